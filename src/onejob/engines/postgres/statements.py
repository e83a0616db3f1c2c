"""The statements of one schema. Every one names its tables in full: no session state is relied on."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, get_type_hints

from msgspec.structs import fields

from onejob.core.batch import Changes
from onejob.core.facts import KINDS, U64, Kind
from onejob.engines.codec import TABLES, columns, fact_to_row, u64_to_signed

# Columns as the texts of arrays: the driver looks at every value of an array twice, and most columns of a batch
# have one value.


# These may be long: they travel as they are.
RAW_COLUMNS = ("data", "body", "receipt")


def array_placeholder(name: str, kind: str, number: int) -> str:
    return f"${number}::bytea[]" if name in RAW_COLUMNS else f"${number}::text::{kind}[]"


def encode_column(name: str, kind: str, values: Sequence[Any]) -> Sequence[Any] | str:
    """The values of a column, as its placeholder takes them."""
    if name in RAW_COLUMNS:
        return list(values)
    spell = _ENCODERS[kind]
    first = values[0]
    # Equal is not enough: an enumeration's member equals its text, and is spelled the same.
    if values.count(first) == len(values):
        return "{" + ",".join([spell(first)] * len(values)) + "}"
    return "{" + ",".join(map(spell, values)) + "}"


def _encode_int(value: int) -> str:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no integer")
    return str(int(value))


def _encode_text(value: str) -> str:
    value.encode()  # a text that has no UTF-8 form is refused before it is sent
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _encode_bytes(value: bytes) -> str:
    return f'"\\\\x{value.hex()}"'


_ENCODERS: dict[str, Callable[[Any], str]] = {
    "bigint": _encode_int,
    "text": _encode_text,
    "bytea": _encode_bytes,
}


# In the order of their columns; what is neither bytes nor a number is stored as text.
ATTACHMENT_TYPES = {"job_id": "bytea", "beside": "bigint", "index": "bigint", "data": "bytea"}

TRIM_TYPES = {name: kind for name, kind in ATTACHMENT_TYPES.items() if name != "data"}
DELETE_TYPES = {"id": "bytea", "was": "bigint"}
PRECONDITION_PARAMS = 3  # identities, tenants and bodies


class StatementPart(NamedTuple):
    """A piece of a statement: insert, update or delete of a kind, or its absence; add, cut, strip; whom to tell."""

    action: str
    kind: Kind | None = None


class Statements:
    def __init__(self, schema: str) -> None:
        self._schema = schema
        self.now = f'"{schema}".onejob_now()'
        self._standbys = "current_setting('synchronous_standby_names')"
        self._clock_columns = f"{self.now} AS clock, {self._standbys} AS standbys"
        self.clock_sql = f"SELECT {self._clock_columns}"
        self.stamp = f'"{schema}".onejob_stamp'
        self.channel = f"onejob_{schema}"
        self.writers_sql = (
            "SELECT DISTINCT virtualtransaction FROM pg_catalog.pg_locks WHERE mode = 'RowExclusiveLock' AND granted "
            f"AND relation = '{self.table('job')}'::regclass AND pid <> pg_backend_pid() "
            "AND ($1::text[] IS NULL OR virtualtransaction = ANY ($1::text[]))"
        )
        self.changes_sql = cache(self._changes_sql)
        self.inserts_sql = cache(self._inserts_sql)
        self.single_row_inserts_sql = cache(self._single_row_inserts_sql)
        self.load_sql = cache(self._load_sql)

    def table(self, name: str) -> str:
        return f'"{self._schema}"."{name}"'

    def columns(self, kind: Kind, alias: str = "") -> str:
        return ", ".join(f'{alias}"{name}"' for name in columns(kind))

    def _load_sql(self, kind: Kind, lock: str) -> str:
        """Lock and load the facts of some identities, in order; the clock is read as each one is held."""
        return (
            f"SELECT {self._clock_columns}, fact.* FROM (VALUES (1)) AS one LEFT JOIN (SELECT {self.columns(kind)} "
            f"FROM {self.table(TABLES[kind])} WHERE id = ANY ($1::bytea[]) ORDER BY id {lock}) AS fact ON true"
        )

    def _inserts_sql(
        self,
        parts: tuple[StatementPart, ...],
        absent: tuple[Kind, ...],
        rows: tuple[int, ...] = (),
        *,
        has_preconditions: bool = False,
    ) -> str:
        """All of a batch in one statement, dated: it stands or falls whole, and commits by itself.

        With numbers of rows, their values are written out: quicker, but another statement for every number.
        """
        first = 3 + len(absent)
        wrong = [self._exists(kind, f"ANY (${n}::bytea[])") for n, kind in enumerate(absent, start=3)]
        if has_preconditions:
            wrong.append(self._precondition_fails(first))
            first += PRECONDITION_PARAMS
        if rows:
            ctes, names = self._inline_inserts(parts, rows, first=first)
        else:
            ctes, _, names = self._part_ctes(parts, first=first)
        counted = " + ".join(f"(SELECT count(*) FROM {name})" for name in names)
        return f"WITH {', '.join(ctes)} SELECT {self._checked_clock([f'{counted} = 0', *wrong])}, {self._standbys}"

    def _single_row_inserts_sql(
        self, parts: tuple[StatementPart, ...], absent: tuple[Kind, ...], *, has_preconditions: bool = False
    ) -> str:
        """The same for one row of each part: every insert draws on the one before it, so that none is counted."""
        wrong = [self._exists(kind, f"${n}::bytea") for n, kind in enumerate(absent, start=3)]
        first, drawn = 3 + len(absent), ""
        if has_preconditions:
            wrong.append(self._precondition_fails(first))
            first += PRECONDITION_PARAMS
        inserts: list[str] = []
        for part in parts:
            table, types = _insert_target(part)
            marks = ", ".join(f"${first + n}::{kind}" for n, kind in enumerate(types.values()))
            first += len(types)
            columns = ", ".join(_quoted(types))
            inserts.append(f"INSERT INTO {self.table(table)} ({columns}) SELECT {marks}{drawn}")
            drawn = f" FROM step_{len(inserts)}"
        before = ", ".join(f"step_{n} AS ({text} RETURNING 1)" for n, text in enumerate(inserts[:-1], start=1))
        returning = f"RETURNING {self._checked_clock(wrong)}, {self._standbys}"
        return f"{f'WITH {before} ' if before else ''}{inserts[-1]} {returning}"

    def _checked_clock(self, violations: list[str]) -> str:
        """The clock after all that was inserted, if nothing is wrong and the date is right; else what `stamp` says."""
        stamp = f"{self.stamp}($1::bigint, $2::bigint, 0,"
        there = f"WHEN {' OR '.join(violations)} THEN {stamp} 1, {self.now}) " if violations else ""
        right = f"WHEN {self.now} - $1::bigint BETWEEN 0 AND $2::bigint THEN {self.now}"
        return f"CASE {there}{right} ELSE {stamp} 0, {self.now}) END"

    def _exists(self, kind: Kind, ids: str) -> str:
        return f"EXISTS (SELECT FROM {self.table(TABLES[kind])} WHERE id = {ids})"

    def _changes_sql(self, parts: tuple[StatementPart, ...]) -> str:
        """Store pieces of a batch; answers how many rows each of them met."""
        ctes, counts, _ = self._part_ctes(parts, first=1)
        return (f"WITH {', '.join(ctes)} " if ctes else "") + f"SELECT {', '.join(counts)}"

    def _part_ctes(self, parts: tuple[StatementPart, ...], *, first: int) -> tuple[list[str], list[str], list[str]]:
        ctes: list[str] = []
        counts: list[str] = []
        names: list[str] = []
        for part in parts:
            if part.action == "absent":
                assert part.kind is not None
                counts.append(self._count(part.kind, first))
                first += 1
            elif part.action == "tell":
                counts.append(
                    f"(SELECT count(pg_notify('{self.channel}', told)) FROM unnest(${first}::text[]) AS told)"
                )
                first += 1
            else:
                name = f"{part.action}_{'' if part.kind is None else TABLES[part.kind]}"
                text, first = self._part_sql(part, first)
                ctes.append(f"{name} AS ({text} RETURNING 1)")
                counts.append(f"(SELECT count(*) FROM {name})")
                names.append(name)
        return ctes, counts, names

    def _count(self, kind: Kind, number: int) -> str:
        table = self.table(TABLES[kind])
        return f"(SELECT count(*) FROM {table} WHERE id = ANY (${number}::bytea[]))"

    def _precondition_fails(self, number: int) -> str:
        """Whether a policy does not read as it is said to."""
        said = f"unnest(${number}::bytea[], ${number + 1}::text[], ${number + 2}::bytea[]) AS s (id, tenant, body)"
        same = "p.id = s.id AND p.tenant = s.tenant AND p.body = s.body"
        there = f"SELECT FROM {self.table('policy')} AS p WHERE {same}"
        return f"EXISTS (SELECT FROM {said} WHERE NOT EXISTS ({there}))"

    def _part_sql(self, part: StatementPart, first: int) -> tuple[str, int]:
        """The text of a change, and the number of the next parameter."""
        if part.action == "add":
            return self._insert("attachment", ATTACHMENT_TYPES, first)
        if part.action == "cut":
            match = " AND ".join(f't."{name}" = u."{name}"' for name in TRIM_TYPES)
            return (
                f"DELETE FROM {self.table('attachment')} AS t USING {_unnest(TRIM_TYPES, first)} WHERE {match}",
                first + len(TRIM_TYPES),
            )
        if part.action == "strip":
            return f"DELETE FROM {self.table('attachment')} WHERE job_id = ANY (${first}::bytea[])", first + 1
        assert part.kind is not None
        table, types = TABLES[part.kind], column_types(part.kind)
        if part.action == "insert":
            return self._insert(table, types, first)
        if part.action == "delete":
            given = DELETE_TYPES
            source = f"DELETE FROM {self.table(table)} AS t USING {_unnest(given, first)}"
        else:
            given = update_column_types(part.kind)
            sets = ", ".join(f'"{name}" = u."{name}"' for name in types if name != "id")
            source = f"UPDATE {self.table(table)} AS t SET {sets} FROM {_unnest(given, first)}"
        return f"{source} WHERE t.id = u.id AND t.version = u.was", first + len(given)

    def _inline_inserts(
        self, parts: tuple[StatementPart, ...], rows: tuple[int, ...], *, first: int
    ) -> tuple[list[str], list[str]]:
        ctes, names = [], []
        for part, count in zip(parts, rows, strict=True):
            table, types = _insert_target(part)
            values = []
            for _ in range(count):
                marks = (f"${first + n}::{kind}" for n, kind in enumerate(types.values()))
                values.append(f"({', '.join(marks)})")
                first += len(types)
            into = f"INSERT INTO {self.table(table)} ({', '.join(_quoted(types))}) VALUES {', '.join(values)}"
            names.append(f"insert_{table}")
            ctes.append(f"insert_{table} AS ({into} RETURNING 1)")
        return ctes, names

    def _insert(self, table: str, types: dict[str, str], first: int) -> tuple[str, int]:
        names = ", ".join(f'"{name}"' for name in types)
        text = f"INSERT INTO {self.table(table)} ({names}) SELECT {names} FROM {_unnest(types, first)}"
        return text, first + len(types)


def _insert_target(part: StatementPart) -> tuple[str, dict[str, str]]:
    """Where the rows of an insert go, and what they are made of."""
    if part.kind is None:
        return "attachment", ATTACHMENT_TYPES
    return TABLES[part.kind], column_types(part.kind)


@cache
def column_types(kind: Kind) -> dict[str, str]:
    (cls,) = (cls for cls, its in KINDS.items() if its is kind)
    hints = get_type_hints(cls)
    return {field.name: _column_type(hints[field.name]) for field in fields(cls)}


def update_column_types(kind: Kind) -> dict[str, str]:
    """The columns, and the version that a row must have to be changed."""
    return column_types(kind) | {"was": "bigint"}


def _column_type(hint: object) -> str:
    if hint is bytes:
        return "bytea"
    return "bigint" if hint is int or hint is U64 else "text"


def _unnest(types: dict[str, str], first: int) -> str:
    arrays = ", ".join(array_placeholder(name, kind, first + n) for n, (name, kind) in enumerate(types.items()))
    return f"unnest({arrays}) AS u({', '.join(_quoted(types))})"


def _quoted(names: Iterable[str]) -> list[str]:
    return [f'"{name}"' for name in names]


# A batch's changes as pieces of statements: arrays, one for each column, sorted as the locks are taken.


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

    def add_rows(self, part: StatementPart, types: dict[str, str], rows: Sequence[Any], expected: int | None) -> None:
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
            rows = [(*fact_to_row(fact), was) for fact, was in sorted(changed, key=lambda update: update[0].id)]
            collected.add_rows(StatementPart("update", kind), update_column_types(kind), rows, len(rows))
    gone = _trimmed_places(changes) if changes.trims else ()
    adds = [add for add in changes.attachments if (add.job_id, int(add.kind), u64_to_signed(add.index)) not in gone]
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
        deletes = sorted((fact.id, version) for fact, version in changes.deletes.get(kind, ()) if fact.id not in anew)
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
