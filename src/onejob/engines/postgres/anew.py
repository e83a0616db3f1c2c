"""A batch decided as if nothing of it were there, and what storing it has to prove for that to be true."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from onejob.core.facts import Kind
from onejob.core.fold import Changes, decide_batch, empty_working_set
from onejob.core.receipt import AnyReply
from onejob.core.step import Command, Footprint


class OptimisticInsert(NamedTuple):
    """What is decided where nothing is there yet."""

    replies: list[AnyReply]
    changes: Changes
    absent: dict[Kind, list[bytes]]
    preconditions: tuple[
        list[Any], ...
    ]  # policies, their tenants and bodies, which must be there; empty: none


def decide_optimistic_insert(
    commands: Sequence[Command[Any]], footprints: Sequence[Footprint], now: int
) -> OptimisticInsert | None:
    """The decisions if nothing is there yet, provided that storing them proves that nothing was."""
    working = empty_working_set(footprints)
    replies = decide_batch(commands, footprints, working, now, preconditions_checked_later=True)
    changes = working.changes()
    made = {fact.id for inserts in changes.inserts.values() for fact in inserts}
    named = {id for f in footprints for id in (f.record, *f.jobs) if id}
    if not made or not named <= made or changes.updates or changes.deletes or changes.trims:
        return None
    return OptimisticInsert(
        replies, changes, _ids_assumed_absent(footprints, made), _expected_policies(footprints)
    )


def _ids_assumed_absent(footprints: Sequence[Footprint], created: set[bytes]) -> dict[Kind, list[bytes]]:
    """What the decisions saw not to be there, and do not make: it must not be there when they are stored."""
    named: dict[Kind, set[bytes]] = {Kind.STREAM: set(), Kind.USAGE: set(), Kind.POLICY: set()}
    for f in footprints:
        for kind, id in ((Kind.STREAM, f.stream), (Kind.USAGE, f.usage), (Kind.POLICY, f.policy)):
            if id and id not in created:
                named[kind].add(id)
    return {kind: sorted(ids) for kind, ids in named.items() if ids}


def _expected_policies(footprints: Sequence[Footprint]) -> tuple[list[Any], ...]:
    """What the decisions presumed to be there, and how it reads."""
    named = {
        (f.precondition.policy_id, f.tenant, f.precondition.expected_body)
        for f in footprints
        if f.precondition is not None
    }
    return tuple(map(list, zip(*named, strict=True)))
