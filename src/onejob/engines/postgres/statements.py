"""The statements of one schema. Every one names its tables in full: no session state is relied on."""

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple, get_type_hints

from msgspec.structs import fields

from onejob.core.facts import KINDS, U64, Kind
from onejob.engines.codec import columns

from .arrays import placeholder

# In the order of their columns; what is neither bytes nor a number is stored as text.
ADD_TYPES = {"job_id": "bytea", "beside": "bigint", "index": "bigint", "data": "bytea"}

CUT_TYPES = {name: kind for name, kind in ADD_TYPES.items() if name != "data"}
DELETE_TYPES = {"id": "bytea", "was": "bigint"}
WARRANT_VALUES = 3  # identities, tenants and bodies


class Part(NamedTuple):
    """A piece of a statement: insert, update or delete of a kind, or its absence; add, cut, strip; whom to tell."""

    act: str
    kind: Kind | None = None


class Statements:
    def __init__(self, schema: str) -> None:
        self._schema = schema
        self.now = f'"{schema}".onejob_now()'
        self._standbys = "current_setting('synchronous_standby_names')"
        self._head = f"{self.now} AS clock, {self._standbys} AS standbys"
        self.time = f"SELECT {self._head}"
        self.stamp = f'"{schema}".onejob_stamp'
        self.channel = f"onejob_{schema}"
        self.writers = (
            "SELECT DISTINCT virtualtransaction FROM pg_catalog.pg_locks WHERE mode = 'RowExclusiveLock' AND granted "
            f"AND relation = '{self.table('job')}'::regclass AND pid <> pg_backend_pid() "
            "AND ($1::text[] IS NULL OR virtualtransaction = ANY ($1::text[]))"
        )
        self.storing = cache(self._storing)
        self.inserting = cache(self._inserting)
        self.single = cache(self._single)
        self.loading = cache(self._loading)

    def table(self, name: str) -> str:
        return f'"{self._schema}"."{name}"'

    def columns(self, kind: Kind, alias: str = "") -> str:
        return ", ".join(f'{alias}"{name}"' for name in columns(kind))

    def _loading(self, kind: Kind, lock: str) -> str:
        """Lock and load the facts of some identities, in order; the clock is read as each one is held."""
        return (
            f"SELECT {self._head}, fact.* FROM (VALUES (1)) AS one LEFT JOIN (SELECT {self.columns(kind)} "
            f"FROM {self.table(kind.name.lower())} WHERE id = ANY ($1::bytea[]) ORDER BY id {lock}) AS fact ON true"
        )

    def _inserting(
        self,
        parts: tuple[Part, ...],
        absent: tuple[Kind, ...],
        rows: tuple[int, ...] = (),
        *,
        warranted: bool = False,
    ) -> str:
        """All of a batch in one statement, dated: it stands or falls whole, and commits by itself.

        With numbers of rows, their values are written out: quicker, but another statement for every number.
        """
        first = 3 + len(absent)
        wrong = [self._there(kind, f"ANY (${n}::bytea[])") for n, kind in enumerate(absent, start=3)]
        if warranted:
            wrong.append(self._unlike(first))
            first += WARRANT_VALUES
        if rows:
            ctes, names = self._written_out(parts, rows, first=first)
        else:
            ctes, _, names = self._pieces(parts, first=first)
        counted = " + ".join(f"(SELECT count(*) FROM {name})" for name in names)
        return f"WITH {', '.join(ctes)} SELECT {self._dated([f'{counted} = 0', *wrong])}, {self._standbys}"

    def _single(self, parts: tuple[Part, ...], absent: tuple[Kind, ...], *, warranted: bool = False) -> str:
        """The same for one row of each part: every insert draws on the one before it, so that none is counted."""
        wrong = [self._there(kind, f"${n}::bytea") for n, kind in enumerate(absent, start=3)]
        first, drawn = 3 + len(absent), ""
        if warranted:
            wrong.append(self._unlike(first))
            first += WARRANT_VALUES
        inserts: list[str] = []
        for part in parts:
            table, types = _table(part)
            marks = ", ".join(f"${first + n}::{kind}" for n, kind in enumerate(types.values()))
            first += len(types)
            columns = ", ".join(_quoted(types))
            inserts.append(f"INSERT INTO {self.table(table)} ({columns}) SELECT {marks}{drawn}")
            drawn = f" FROM step_{len(inserts)}"
        before = ", ".join(
            f"step_{n} AS ({text} RETURNING 1)" for n, text in enumerate(inserts[:-1], start=1)
        )
        returning = f"RETURNING {self._dated(wrong)}, {self._standbys}"
        return f"{f'WITH {before} ' if before else ''}{inserts[-1]} {returning}"

    def _dated(self, wrongs: list[str]) -> str:
        """The clock after all that was inserted, if nothing is wrong and the date is right; else what `stamp` says."""
        stamp = f"{self.stamp}($1::bigint, $2::bigint, 0,"
        there = f"WHEN {' OR '.join(wrongs)} THEN {stamp} 1, {self.now}) " if wrongs else ""
        right = f"WHEN {self.now} - $1::bigint BETWEEN 0 AND $2::bigint THEN {self.now}"
        return f"CASE {there}{right} ELSE {stamp} 0, {self.now}) END"

    def _there(self, kind: Kind, ids: str) -> str:
        return f"EXISTS (SELECT FROM {self.table(kind.name.lower())} WHERE id = {ids})"

    def _storing(self, parts: tuple[Part, ...]) -> str:
        """Store pieces of a batch; answers how many rows each of them met."""
        ctes, counts, _ = self._pieces(parts, first=1)
        return (f"WITH {', '.join(ctes)} " if ctes else "") + f"SELECT {', '.join(counts)}"

    def _pieces(self, parts: tuple[Part, ...], *, first: int) -> tuple[list[str], list[str], list[str]]:
        ctes: list[str] = []
        counts: list[str] = []
        names: list[str] = []
        for part in parts:
            if part.act == "absent":
                assert part.kind is not None
                counts.append(self._count(part.kind, first))
                first += 1
            elif part.act == "tell":
                counts.append(
                    f"(SELECT count(pg_notify('{self.channel}', told)) FROM unnest(${first}::text[]) AS told)"
                )
                first += 1
            else:
                name = f"{part.act}_{'' if part.kind is None else part.kind.name.lower()}"
                text, first = self._piece(part, first)
                ctes.append(f"{name} AS ({text} RETURNING 1)")
                counts.append(f"(SELECT count(*) FROM {name})")
                names.append(name)
        return ctes, counts, names

    def _count(self, kind: Kind, number: int) -> str:
        table = self.table(kind.name.lower())
        return f"(SELECT count(*) FROM {table} WHERE id = ANY (${number}::bytea[]))"

    def _unlike(self, number: int) -> str:
        """Whether a policy does not read as it is said to."""
        said = f"unnest(${number}::bytea[], ${number + 1}::text[], ${number + 2}::bytea[]) AS s (id, tenant, body)"
        same = "p.id = s.id AND p.tenant = s.tenant AND p.body = s.body"
        there = f"SELECT FROM {self.table('policy')} AS p WHERE {same}"
        return f"EXISTS (SELECT FROM {said} WHERE NOT EXISTS ({there}))"

    def _piece(self, part: Part, first: int) -> tuple[str, int]:
        """The text of a change, and the number of the next parameter."""
        if part.act == "add":
            return self._insert("attachment", ADD_TYPES, first)
        if part.act == "cut":
            match = " AND ".join(f't."{name}" = u."{name}"' for name in CUT_TYPES)
            return (
                f"DELETE FROM {self.table('attachment')} AS t USING {_unnest(CUT_TYPES, first)} WHERE {match}",
                first + len(CUT_TYPES),
            )
        if part.act == "strip":
            return f"DELETE FROM {self.table('attachment')} WHERE job_id = ANY (${first}::bytea[])", first + 1
        assert part.kind is not None
        table, types = part.kind.name.lower(), types_of(part.kind)
        if part.act == "insert":
            return self._insert(table, types, first)
        if part.act == "delete":
            given = DELETE_TYPES
            source = f"DELETE FROM {self.table(table)} AS t USING {_unnest(given, first)}"
        else:
            given = update_types(part.kind)
            sets = ", ".join(f'"{name}" = u."{name}"' for name in types if name != "id")
            source = f"UPDATE {self.table(table)} AS t SET {sets} FROM {_unnest(given, first)}"
        return f"{source} WHERE t.id = u.id AND t.version = u.was", first + len(given)

    def _written_out(
        self, parts: tuple[Part, ...], rows: tuple[int, ...], *, first: int
    ) -> tuple[list[str], list[str]]:
        ctes, names = [], []
        for part, count in zip(parts, rows, strict=True):
            table, types = _table(part)
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


def _table(part: Part) -> tuple[str, dict[str, str]]:
    """Where the rows of an insert go, and what they are made of."""
    if part.kind is None:
        return "attachment", ADD_TYPES
    return part.kind.name.lower(), types_of(part.kind)


@cache
def types_of(kind: Kind) -> dict[str, str]:
    (cls,) = (cls for cls, its in KINDS.items() if its is kind)
    hints = get_type_hints(cls)
    return {field.name: _type(hints[field.name]) for field in fields(cls)}


def update_types(kind: Kind) -> dict[str, str]:
    """The columns, and the version that a row must have to be changed."""
    return types_of(kind) | {"was": "bigint"}


def _type(hint: object) -> str:
    if hint is bytes:
        return "bytea"
    return "bigint" if hint is int or hint is U64 else "text"


def _unnest(types: dict[str, str], first: int) -> str:
    arrays = ", ".join(placeholder(name, kind, first + n) for n, (name, kind) in enumerate(types.items()))
    return f"unnest({arrays}) AS u({', '.join(_quoted(types))})"


def _quoted(names: Iterable[str]) -> list[str]:
    return [f'"{name}"' for name in names]
