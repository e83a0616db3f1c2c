"""A batch's changes as pieces of statements: arrays, one for each column, sorted as the locks are taken."""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from onejob.core.facts import Kind
from onejob.core.fold import Changes
from onejob.engines.codec import fact_to_row, u64_to_signed

from .arrays import encode_column
from .statements import (
    ATTACHMENT_TYPES,
    DELETE_TYPES,
    TRIM_TYPES,
    StatementPart,
    column_types,
    update_column_types,
)

_BY_ID = attrgetter("id")
_INSERT_PARTS = {kind: StatementPart("insert", kind) for kind in Kind}
_ATTACH_PART = StatementPart("add")


class BoundParts(NamedTuple):
    parts: tuple[StatementPart, ...]
    values: list[Sequence[Any]]
    expected: list[int | None]  # how many rows each piece must meet; None: any number


class _PartsBuilder:
    def __init__(self) -> None:
        self.parts: list[StatementPart] = []
        self.values: list[Sequence[Any]] = []
        self.expected: list[int | None] = []

    def add(self, part: StatementPart, arrays: Iterable[Sequence[Any]], expected: int | None) -> None:
        self.parts.append(part)
        self.values += arrays
        self.expected.append(expected)

    def add_rows(
        self, part: StatementPart, types: dict[str, str], rows: Sequence[Any], expected: int | None
    ) -> None:
        columns = zip(*rows, strict=True)
        arrays = [encode_column(*of, values) for of, values in zip(types.items(), columns, strict=True)]
        self.add(part, arrays, expected)

    def build(self) -> BoundParts:
        return BoundParts(tuple(self.parts), self.values, self.expected)


def attachment_deletions(changes: Changes) -> BoundParts:
    """What stood beside a job and goes: first, for a job that is made anew begins with nothing beside it."""
    collected = _PartsBuilder()
    if Kind.JOB in changes.deletes:
        collected.add(StatementPart("strip"), [[fact.id for fact, _ in changes.deletes[Kind.JOB]]], None)
    if changes.trims:
        collected.add_rows(StatementPart("cut"), TRIM_TYPES, sorted(_trimmed_places(changes)), None)
    return collected.build()


def inserts_and_updates(changes: Changes) -> BoundParts:
    """What is made and what is changed; a fact that was dropped and made anew is a changed one."""
    collected = _PartsBuilder()
    updates: dict[Kind, list[tuple[Any, int]]] = {}
    for kind in Kind:
        dropped = {fact.id: version for fact, version in changes.deletes.get(kind, ())}
        inserts, updates[kind] = [], list(changes.updates.get(kind, ()))
        for fact in sorted(changes.inserts.get(kind, ()), key=_BY_ID):
            if fact.id in dropped:
                updates[kind].append((fact, dropped[fact.id]))
            else:
                inserts.append(fact_to_row(fact))
        if inserts:
            collected.add_rows(StatementPart("insert", kind), column_types(kind), inserts, len(inserts))
    for kind, changed in updates.items():
        if changed:
            rows = [
                (*fact_to_row(fact), was) for fact, was in sorted(changed, key=lambda update: update[0].id)
            ]
            collected.add_rows(StatementPart("update", kind), update_column_types(kind), rows, len(rows))
    gone = _trimmed_places(changes) if changes.trims else ()
    adds = [
        add
        for add in changes.attachments
        if (add.job_id, int(add.kind), u64_to_signed(add.index)) not in gone
    ]
    if adds:
        beside = sorted((add.job_id, int(add.kind), u64_to_signed(add.index), add.data) for add in adds)
        collected.add_rows(StatementPart("add"), ATTACHMENT_TYPES, beside, len(beside))
    return collected.build()


def single_row_inserts(
    changes: Changes, absent: dict[Kind, list[bytes]], preconditions: Sequence[Any]
) -> tuple[tuple[StatementPart, ...], list[Any]] | None:
    """What is made, if it is one row of each kind and at most one beside them: the parts, and all values."""
    parts: list[StatementPart] = []
    values: list[Any] = []
    for ids in absent.values():
        if len(ids) != 1:
            return None
        values += ids
    values += preconditions
    for kind, inserts in changes.inserts.items():
        if len(inserts) != 1:
            return None
        parts.append(_INSERT_PARTS[kind])
        values += fact_to_row(inserts[0])
    if changes.attachments:
        if len(changes.attachments) != 1:
            return None
        (add,) = changes.attachments
        parts.append(_ATTACH_PART)
        values += (add.job_id, int(add.kind), u64_to_signed(add.index), add.data)
    return tuple(parts), values


def inline_inserts(changes: Changes) -> tuple[tuple[StatementPart, ...], tuple[int, ...], list[Any]]:
    """What a batch of inserts makes, value by value: the parts, how many rows each has, and the values."""
    parts: list[StatementPart] = []
    rows: list[int] = []
    values: list[Any] = []
    for kind, inserts in sorted(changes.inserts.items()):
        parts.append(StatementPart("insert", kind))
        rows.append(len(inserts))
        for fact in sorted(inserts, key=_BY_ID):
            values += fact_to_row(fact)
    if changes.attachments:
        parts.append(StatementPart("add"))
        rows.append(len(changes.attachments))
        for beside in sorted(
            (add.job_id, int(add.kind), u64_to_signed(add.index), add.data) for add in changes.attachments
        ):
            values += beside
    return tuple(parts), tuple(rows), values


def deletions(changes: Changes) -> BoundParts:
    """What goes, last: whoever makes a fact that is being deleted waits for us, and we must not wait for him then."""
    collected = _PartsBuilder()
    for kind in Kind:
        anew = {fact.id for fact in changes.inserts.get(kind, ())}
        deletes = sorted(
            (fact.id, version) for fact, version in changes.deletes.get(kind, ()) if fact.id not in anew
        )
        if deletes:
            collected.add_rows(StatementPart("delete", kind), DELETE_TYPES, deletes, len(deletes))
    return collected.build()


def with_checks_and_notifications(
    bound: BoundParts, absent: dict[Kind, list[bytes]], settled: Sequence[bytes]
) -> BoundParts:
    """And with what must still not be there, and whom to tell."""
    collected = _PartsBuilder()
    for part, expected in zip(bound.parts, bound.expected, strict=True):
        collected.add(part, (), expected)
    collected.values += bound.values
    for kind, ids in absent.items():
        collected.add(StatementPart("absent", kind), [ids], 0)
    if settled:
        collected.add(StatementPart("tell"), [[id.hex() for id in settled]], None)
    return collected.build()


def _trimmed_places(changes: Changes) -> set[tuple[bytes, int, int]]:
    return {(cut.job_id, int(cut.kind), u64_to_signed(cut.index)) for cut in changes.trims}
