"""The changes of a batch as the parts of one statement, each with the values of its parameters (`statements.py` has the SQL).

The values of a part are arrays, one for each column, or those of one row after the other (`inline`). Arrays are sent as text,
because the driver inspects every value of an array twice and most columns of a batch have one value: 38 instead of 62 µs of
client time per submission in batches of 64 (docs/decisions/0011). Rows are sorted by id, in which order locks are taken.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple, get_type_hints

from msgspec.structs import fields

from onejob.core.batch import Changes
from onejob.core.facts import KINDS, U64, Attachment, Kind
from onejob.engines.codec import NEW_FACT_KINDS, TABLES, fact_to_row, new_fact_columns, new_fact_rows, u64_to_signed

# Columns in their order, with their types; what is neither bytes nor a number is stored as text.
ATTACHMENT_TYPES = {"job_id": "bytea", "kind": "bigint", "index": "bigint", "data": "bytea"}
TRIM_TYPES = {name: kind for name, kind in ATTACHMENT_TYPES.items() if name != "data"}
DELETE_TYPES = {"id": "bytea", "was": "bigint"}
# Long values are sent as arrays of bytes, not as text.
RAW_COLUMNS = ("data", "body", "receipt", "result")
# Rows that are written out are filled up with NULL to one of these numbers, the same for all facts of a statement, so that there
# are few statements to prepare: a large one takes up to a megabyte of the server, for each connection. Arrays instead of
# rows take 1.07 times the processor time of a held key that is settled, and 1.12 times with 16 callers.
_ROW_COUNTS = (1, 2, 4, 8, 12, 16, 24, 32)
_ATTACHMENT_COUNTS = (1, 4, 16, 64)  # they have few columns
INLINE_ROWS_MAX = _ROW_COUNTS[-1]
INLINE_ATTACHMENTS_MAX = _ATTACHMENT_COUNTS[-1]
_BY_ID = attrgetter("id")


class StatementPart(NamedTuple):
    """One part of a statement.

    `insert`, `update` and `delete` rows of a kind; `create` rows that have the defaults of new facts; check that some are
    `absent`; `add` or `trim` attachments; `delete_attachments` and `delete_memos` of jobs; `notify` listeners.
    """

    action: str
    kind: Kind | None = None

    @property
    def table(self) -> str:
        return "attachment" if self.kind is None else TABLES[self.kind]

    @property
    def name(self) -> str:
        return f"{self.action}_{'' if self.kind is None else self.table}"


INSERTING = ("insert", "create", "add")
_INSERT_PARTS = {kind: StatementPart("insert", kind) for kind in Kind}
_CREATE_PARTS = {kind: StatementPart("create", kind) for kind in NEW_FACT_KINDS}
_ADD_PART = StatementPart("add")


class BoundParts(NamedTuple):
    parts: tuple[StatementPart, ...]
    values: list[Any]
    expected: list[int | None]  # the number of rows of each part; None: any
    row_counts: tuple[int, ...] = ()  # how many rows of each part are written out; none: the values are arrays


@cache
def parameter_types(part: StatementPart) -> dict[str, str]:
    """The columns of a part that are parameters, with their types."""
    if part.kind is None:
        return {"add": ATTACHMENT_TYPES, "trim": TRIM_TYPES}[part.action]
    if part.action == "delete":
        return DELETE_TYPES
    types = column_types(part.kind)
    if part.action == "update":
        return types | {"was": "bigint"}  # the version that the row must have
    return {name: types[name] for name in new_fact_columns(part.kind)} if part.action == "create" else types


@cache
def column_types(kind: Kind) -> dict[str, str]:
    (cls,) = (cls for cls, its_kind in KINDS.items() if its_kind is kind)
    hints = get_type_hints(cls)
    return {field.name: _column_type(hints[field.name]) for field in fields(cls)}


def _column_type(hint: object) -> str:
    if hint is bytes:
        return "bytea"
    return "bigint" if hint is int or hint is U64 else "text"


class InlineCounts(NamedTuple):
    """How many rows are written out of each fact, and of attachments."""

    facts: int
    attachments: int

    @classmethod
    def for_at_least(cls, facts: int, attachments: int) -> "InlineCounts":
        return cls(
            next(count for count in _ROW_COUNTS if count >= facts),
            next(count for count in _ATTACHMENT_COUNTS if count >= attachments),
        )


def rows_to_values(rows: Sequence[Sequence[Any]], count: int) -> list[Any]:
    """The values of one row after the other, filled up to a number of rows."""
    values = list(chain.from_iterable(rows))
    return values + [None] * ((count - len(rows)) * len(rows[0]))


class _PartsBuilder:
    """The values are arrays, one for each column, or with `inline` those of one row after the other."""

    def __init__(self, inline: InlineCounts | None = None) -> None:
        self.parts: list[StatementPart] = []
        self.values: list[Any] = []
        self.expected: list[int | None] = []
        self.row_counts: list[int] = []
        self._inline = inline

    def add(self, part: StatementPart, arrays: Iterable[Sequence[Any]], expected: int | None) -> None:
        self.parts.append(part)
        self.values += arrays
        self.expected.append(expected)

    def add_rows(self, part: StatementPart, rows: Sequence[Any], expected: int | None) -> None:
        if self._inline is not None:
            count = self._inline.attachments if part.kind is None else self._inline.facts
            self.add(part, rows_to_values(rows, count), expected)
            self.row_counts.append(count)
            return
        columns = zip(*rows, strict=True)
        arrays = [encode_column(*of, values) for of, values in zip(parameter_types(part).items(), columns, strict=True)]
        self.add(part, arrays, expected)

    def build(self) -> BoundParts:
        return BoundParts(tuple(self.parts), self.values, self.expected, tuple(self.row_counts))


def attachment_deletions(changes: Changes, inline: InlineCounts | None = None) -> BoundParts:
    """Deletions of attachments and memos of jobs. They come first: a job that is created again starts without them."""
    builder = _PartsBuilder(inline)
    if Kind.JOB in changes.deletes:
        job_ids = [fact.id for fact, _ in changes.deletes[Kind.JOB]]
        builder.add(StatementPart("delete_attachments"), [job_ids], None)
        builder.add(StatementPart("delete_memos"), [job_ids], None)
    if changes.trims:
        builder.add_rows(StatementPart("trim"), sorted(_trimmed_places(changes)), None)
    return builder.build()


def inserts_and_updates(changes: Changes, inline: InlineCounts | None = None) -> BoundParts:
    """Inserts, then updates. A fact that is deleted and created again is an update."""
    builder = _PartsBuilder(inline)
    updates: dict[Kind, list[tuple[Any, int]]] = {}
    for kind in Kind:
        deleted = {fact.id: version for fact, version in changes.deletes.get(kind, ())}
        inserts, updates[kind] = [], list(changes.updates.get(kind, ()))
        for fact in sorted(changes.inserts.get(kind, ()), key=_BY_ID):
            if fact.id in deleted:
                updates[kind].append((fact, deleted[fact.id]))
            else:
                inserts.append(fact)
        if inserts:
            part, rows = _insert_rows(kind, inserts)
            builder.add_rows(part, rows, len(rows))
    for kind, facts in updates.items():
        if facts:
            rows = [(*fact_to_row(fact), version) for fact, version in sorted(facts, key=lambda update: update[0].id)]
            builder.add_rows(StatementPart("update", kind), rows, len(rows))
    trimmed = _trimmed_places(changes) if changes.trims else ()
    attachments = sorted(row for row in map(_attachment_row, changes.attachments) if row[:3] not in trimmed)
    if attachments:
        builder.add_rows(_ADD_PART, attachments, len(attachments))
    return builder.build()


def _insert_rows(kind: Kind, facts: Sequence[Any]) -> tuple[StatementPart, Sequence[Sequence[Any]]]:
    """The part that inserts these facts, and their rows.

    27 of the 65 columns of a new record with its job are constants then, and are not sent. At 64 callers a submission takes
    42.5 instead of 47 µs of the client and 35.5 instead of 39.6 µs of the server, with the shorter path of decision 43.
    """
    rows = new_fact_rows(kind, facts)
    if rows is not None:
        return _CREATE_PARTS[kind], rows
    return _INSERT_PARTS[kind], [fact_to_row(fact) for fact in facts]


def inline_inserts_fast(changes: Changes) -> tuple[tuple[StatementPart, ...], tuple[int, ...], list[Any]]:
    """The parts, their row counts, and the values one by one, for a batch of inserts. Twin: inserts_and_updates."""
    parts: list[StatementPart] = []
    row_counts: list[int] = []
    values: list[Any] = []
    for kind, inserts in sorted(changes.inserts.items()):
        part, rows = _insert_rows(kind, sorted(inserts, key=_BY_ID))
        parts.append(part)
        row_counts.append(len(rows))
        for row in rows:
            values += row
    if changes.attachments:
        parts.append(_ADD_PART)
        row_counts.append(len(changes.attachments))
        for row in sorted(map(_attachment_row, changes.attachments)):
            values += row
    return tuple(parts), tuple(row_counts), values


def guarded_changes(changes: Changes) -> BoundParts:
    """The changes of a command in a caller's transaction. A row that another transaction may insert too comes first."""
    assert not changes.deletes, "no command that deletes is executed in a caller's transaction"
    stored, trims = inserts_and_updates(changes), attachment_deletions(changes)
    bound = with_checks_and_notifications(
        BoundParts(stored.parts + trims.parts, stored.values + trims.values, stored.expected + trims.expected),
        {},
        changes.settled_records,
    )
    usage = _INSERT_PARTS[Kind.USAGE]
    if usage not in bound.parts or Kind.RECORD in changes.inserts:
        return bound
    # Without a key there is no record, and the usage decides. Only inserts come before it.
    at = bound.parts.index(usage)
    before = sum(len(parameter_types(part)) for part in bound.parts[:at])
    after = before + len(parameter_types(usage))
    values = [*bound.values[before:after], *bound.values[:before], *bound.values[after:]]
    return BoundParts((usage, *bound.parts[:at], *bound.parts[at + 1 :]), values, _moved_first(bound.expected, at))


def _moved_first(items: list[int | None], at: int) -> list[int | None]:
    return [items[at], *items[:at], *items[at + 1 :]]


def inserts_two_contended_rows(changes: Changes) -> bool:
    """True if two of the rows could be inserted by another transaction as well, so that one part cannot decide."""
    return len(changes.inserts.keys() - {Kind.JOB}) > 1


def deletions(changes: Changes) -> BoundParts:
    """Deletions of facts. They come last: a batch that inserts the same id waits for this one, which must not wait then."""
    builder = _PartsBuilder()
    for kind in Kind:
        created = {fact.id for fact in changes.inserts.get(kind, ())}
        deletes = sorted(
            (fact.id, version) for fact, version in changes.deletes.get(kind, ()) if fact.id not in created
        )
        if deletes:
            builder.add_rows(StatementPart("delete", kind), deletes, len(deletes))
    return builder.build()


def with_checks_and_notifications(
    bound: BoundParts, absent: dict[Kind, list[bytes]], settled: Sequence[bytes]
) -> BoundParts:
    """The same parts, and checks that some ids are still absent, and notifications of settled records."""
    parts = [*bound.parts, *(StatementPart("absent", kind) for kind in absent)]
    values, expected = [*bound.values, *absent.values()], [*bound.expected, *(0 for _ in absent)]
    if settled:
        parts.append(StatementPart("notify"))
        values.append([id.hex() for id in settled])
        expected.append(None)
    return BoundParts(tuple(parts), values, expected)


def _trimmed_places(changes: Changes) -> set[tuple[bytes, int, int]]:
    return {(trim.job_id, int(trim.kind), u64_to_signed(trim.index)) for trim in changes.trims}


def _attachment_row(attachment: Attachment) -> tuple[bytes, int, int, bytes]:
    return attachment.job_id, int(attachment.kind), u64_to_signed(attachment.index), attachment.data


def encode_column(name: str, kind: str, values: Sequence[Any]) -> Sequence[Any] | str:
    """The values of a column as its placeholder expects them."""
    if name in RAW_COLUMNS:
        return list(values)
    encode = _ENCODERS[kind]
    first = values[0]
    if values.count(first) == len(values):  # equal values have equal texts, also an enum member and its value
        return "{" + ",".join([encode(first)] * len(values)) + "}"
    return "{" + ",".join(map(encode, values)) + "}"


def _encode_int(value: int) -> str:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is not an integer")
    return str(int(value))


def _encode_text(value: str) -> str:
    value.encode()  # refuse a text that has no UTF-8 form before it is sent
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _encode_bytes(value: bytes) -> str:
    return f'"\\\\x{value.hex()}"'


_ENCODERS: dict[str, Callable[[Any], str]] = {
    "bigint": _encode_int,
    "text": _encode_text,
    "bytea": _encode_bytes,
}
