"""A batch's changes as pieces of statements: arrays, one for each column, sorted as the locks are taken."""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from onejob.core.facts import Kind
from onejob.core.fold import Changes
from onejob.engines.codec import fold_u64, row_of

from .arrays import column
from .statements import ADD_TYPES, CUT_TYPES, DELETE_TYPES, Part, types_of, update_types

_BY_ID = attrgetter("id")
_INSERTS = {kind: Part("insert", kind) for kind in Kind}
_ADD = Part("add")


class Pieces(NamedTuple):
    parts: tuple[Part, ...]
    values: list[Sequence[Any]]
    expected: list[int | None]  # how many rows each piece must meet; None: any number


class _Collected:
    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.values: list[Sequence[Any]] = []
        self.expected: list[int | None] = []

    def take(self, part: Part, arrays: Iterable[Sequence[Any]], expected: int | None) -> None:
        self.parts.append(part)
        self.values += arrays
        self.expected.append(expected)

    def rows(self, part: Part, types: dict[str, str], rows: Sequence[Any], expected: int | None) -> None:
        columns = zip(*rows, strict=True)
        arrays = [column(*of, values) for of, values in zip(types.items(), columns, strict=True)]
        self.take(part, arrays, expected)

    def pieces(self) -> Pieces:
        return Pieces(tuple(self.parts), self.values, self.expected)


def cleared(changes: Changes) -> Pieces:
    """What stood beside a job and goes: first, for a job that is made anew begins with nothing beside it."""
    collected = _Collected()
    if Kind.JOB in changes.deletes:
        collected.take(Part("strip"), [[fact.id for fact, _ in changes.deletes[Kind.JOB]]], None)
    if changes.cuts:
        collected.rows(Part("cut"), CUT_TYPES, sorted(_cut_places(changes)), None)
    return collected.pieces()


def additions(changes: Changes) -> Pieces:
    """What is made and what is changed; a fact that was dropped and made anew is a changed one."""
    collected = _Collected()
    updates: dict[Kind, list[tuple[Any, int]]] = {}
    for kind in Kind:
        dropped = {fact.id: version for fact, version in changes.deletes.get(kind, ())}
        inserts, updates[kind] = [], list(changes.updates.get(kind, ()))
        for fact in sorted(changes.inserts.get(kind, ()), key=_BY_ID):
            if fact.id in dropped:
                updates[kind].append((fact, dropped[fact.id]))
            else:
                inserts.append(row_of(fact))
        if inserts:
            collected.rows(Part("insert", kind), types_of(kind), inserts, len(inserts))
    for kind, changed in updates.items():
        if changed:
            rows = [(*row_of(fact), was) for fact, was in sorted(changed, key=lambda update: update[0].id)]
            collected.rows(Part("update", kind), update_types(kind), rows, len(rows))
    gone = _cut_places(changes) if changes.cuts else ()
    adds = [add for add in changes.adds if (add.job_id, int(add.beside), fold_u64(add.index)) not in gone]
    if adds:
        beside = sorted((add.job_id, int(add.beside), fold_u64(add.index), add.data) for add in adds)
        collected.rows(Part("add"), ADD_TYPES, beside, len(beside))
    return collected.pieces()


def single(
    changes: Changes, absent: dict[Kind, list[bytes]], warrants: Sequence[Any]
) -> tuple[tuple[Part, ...], list[Any]] | None:
    """What is made, if it is one row of each kind and at most one beside them: the parts, and all values."""
    parts: list[Part] = []
    values: list[Any] = []
    for ids in absent.values():
        if len(ids) != 1:
            return None
        values += ids
    values += warrants
    for kind, inserts in changes.inserts.items():
        if len(inserts) != 1:
            return None
        parts.append(_INSERTS[kind])
        values += row_of(inserts[0])
    if changes.adds:
        if len(changes.adds) != 1:
            return None
        (add,) = changes.adds
        parts.append(_ADD)
        values += (add.job_id, int(add.beside), fold_u64(add.index), add.data)
    return tuple(parts), values


def written_out(changes: Changes) -> tuple[tuple[Part, ...], tuple[int, ...], list[Any]]:
    """What a batch of inserts makes, value by value: the parts, how many rows each has, and the values."""
    parts: list[Part] = []
    rows: list[int] = []
    values: list[Any] = []
    for kind, inserts in sorted(changes.inserts.items()):
        parts.append(Part("insert", kind))
        rows.append(len(inserts))
        for fact in sorted(inserts, key=_BY_ID):
            values += row_of(fact)
    if changes.adds:
        parts.append(Part("add"))
        rows.append(len(changes.adds))
        for beside in sorted(
            (add.job_id, int(add.beside), fold_u64(add.index), add.data) for add in changes.adds
        ):
            values += beside
    return tuple(parts), tuple(rows), values


def removals(changes: Changes) -> Pieces:
    """What goes, last: whoever makes a fact that is being deleted waits for us, and we must not wait for him then."""
    collected = _Collected()
    for kind in Kind:
        anew = {fact.id for fact in changes.inserts.get(kind, ())}
        deletes = sorted(
            (fact.id, version) for fact, version in changes.deletes.get(kind, ()) if fact.id not in anew
        )
        if deletes:
            collected.rows(Part("delete", kind), DELETE_TYPES, deletes, len(deletes))
    return collected.pieces()


def with_more(pieces: Pieces, absent: dict[Kind, list[bytes]], settled: Sequence[bytes]) -> Pieces:
    """And with what must still not be there, and whom to tell."""
    collected = _Collected()
    for part, expected in zip(pieces.parts, pieces.expected, strict=True):
        collected.take(part, (), expected)
    collected.values += pieces.values
    for kind, ids in absent.items():
        collected.take(Part("absent", kind), [ids], 0)
    if settled:
        collected.take(Part("tell"), [[id.hex() for id in settled]], None)
    return collected.pieces()


def _cut_places(changes: Changes) -> set[tuple[bytes, int, int]]:
    return {(cut.job_id, int(cut.beside), fold_u64(cut.index)) for cut in changes.cuts}
