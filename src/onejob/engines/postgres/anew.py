"""A batch decided as if nothing of it were there, and what storing it has to prove for that to be true."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from onejob.core.facts import Kind
from onejob.core.fold import Changes, fold, vacant
from onejob.core.receipt import AnyReply
from onejob.core.step import Command, Footprint


class Anew(NamedTuple):
    """What is decided where nothing is there yet."""

    replies: list[AnyReply]
    changes: Changes
    absent: dict[Kind, list[bytes]]
    warrants: tuple[list[Any], ...]  # policies, their tenants and bodies, which must be there; empty: none


def decided_anew(commands: Sequence[Command[Any]], footprints: Sequence[Footprint], now: int) -> Anew | None:
    """The decisions if nothing is there yet, provided that storing them proves that nothing was."""
    working = vacant(footprints)
    replies = fold(commands, footprints, working, now, presumed=True)
    changes = working.changes()
    made = {fact.id for inserts in changes.inserts.values() for fact in inserts}
    named = {id for f in footprints for id in (f.record, *f.jobs) if id}
    if not made or not named <= made or changes.updates or changes.deletes or changes.cuts:
        return None
    return Anew(replies, changes, _unmade(footprints, made), _warrants(footprints))


def _unmade(footprints: Sequence[Footprint], made: set[bytes]) -> dict[Kind, list[bytes]]:
    """What the decisions saw not to be there, and do not make: it must not be there when they are stored."""
    named: dict[Kind, set[bytes]] = {Kind.STREAM: set(), Kind.TALLY: set(), Kind.POLICY: set()}
    for f in footprints:
        for kind, id in ((Kind.STREAM, f.stream), (Kind.TALLY, f.tally), (Kind.POLICY, f.policy)):
            if id and id not in made:
                named[kind].add(id)
    return {kind: sorted(ids) for kind, ids in named.items() if ids}


def _warrants(footprints: Sequence[Footprint]) -> tuple[list[Any], ...]:
    """What the decisions presumed to be there, and how it reads."""
    named = {(f.warrant.policy, f.tenant, f.warrant.body) for f in footprints if f.warrant is not None}
    return tuple(map(list, zip(*named, strict=True)))
