"""The SQL statements that store and load facts in one schema, and the changes of a batch as their parameters.

Every statement names its tables in full, so none depends on session state. A statement for many rows takes one array per
column, sorted by id, which is the order in which locks are taken. Arrays are sent as text, because the driver
inspects every value of an array twice and most columns of a batch have one value: 38 instead of 62 µs of client
time per submission in batches of 64 (docs/decisions/0011).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple, get_type_hints
from zlib import crc32

from msgspec.structs import fields

from onejob.core.batch import Changes
from onejob.core.command import Footprint
from onejob.core.facts import FORMAT, JOB_ID_BYTES, KINDS, U64, Attachment, AttachmentKind, Kind
from onejob.core.identity import SETTINGS_POLICY_NAME, SYSTEM_TENANT, tenant_prefix, usage_id
from onejob.engines.codec import (
    NEW_FACT_KINDS,
    TABLES,
    columns,
    fact_to_row,
    new_fact_columns,
    new_fact_defaults,
    new_fact_rows,
    u64_to_signed,
)

# Columns in their order, with their types; what is neither bytes nor a number is stored as text.
ATTACHMENT_TYPES = {"job_id": "bytea", "kind": "bigint", "index": "bigint", "data": "bytea"}
TRIM_TYPES = {name: kind for name, kind in ATTACHMENT_TYPES.items() if name != "data"}
DELETE_TYPES = {"id": "bytea", "was": "bigint"}
HELD_TYPES = {"id": "bytea", "was": "bigint", "by": "xid"}  # a row as it was read
PRECONDITION_PARAMS = 3  # ids, tenants and bodies
UNCOUNTED_PARAMS = 8  # of onejob_is_uncounted
_SNAPSHOT_COLUMNS = 5  # kind, clock, standbys, where its columns begin, xmin
NO_KIND = -1  # of the row with the clock
# Long values are sent as arrays of bytes, not as text.
RAW_COLUMNS = ("data", "body", "receipt", "result")
_BY_ID = attrgetter("id")


# A batch that is loaded under locks announces which tenants and users it concerns, by two shared advisory locks that
# conflict with nothing and end with its transaction. The number of each is a Bloom filter of 32 bits.
TENANTS_LOCK_CLASS = 0x6F6E6A74
USERS_LOCK_CLASS = 0x6F6E6A75
_FILTER_BITS = 32
_TAKE_ANNOUNCEMENT = (
    f"SELECT pg_catalog.pg_advisory_xact_lock_shared({TENANTS_LOCK_CLASS}, $2::integer), "
    f"pg_catalog.pg_advisory_xact_lock_shared({USERS_LOCK_CLASS}, $3::integer)"
)
# The same in a statement that has its timestamp before it.
_ANNOUNCED = (
    f"announced AS MATERIALIZED (SELECT count(pg_catalog.pg_advisory_xact_lock_shared({TENANTS_LOCK_CLASS}, $3::integer)) "
    f"+ count(pg_catalog.pg_advisory_xact_lock_shared({USERS_LOCK_CLASS}, $4::integer)) AS locks)"
)
_IS_ANNOUNCED = "(SELECT locks FROM announced) = 2"
# The transactions that may write jobs or records of those in question, or those of $1 that still may: every transaction that
# announces one of them ($2 is the class of the announcement, $3 the filters of which one must fit), and the engine's
# own that announce nothing, because their batch is one statement. Other programs decide nothing, so nobody waits
# for their transactions; one that executes commands in its own transaction announces them.
WRITERS_QUERY = """
WITH announced AS (
    SELECT virtualtransaction, EXISTS (
        SELECT FROM unnest($3::bigint[]) AS wanted (bits) WHERE objid::bigint & bits = bits
    ) AS is_concerned
    FROM pg_catalog.pg_locks
    WHERE locktype = 'advisory' AND classid::bigint = $2::bigint AND objsubid = 2 AND pid <> pg_backend_pid()
        AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
)
SELECT virtualtransaction FROM announced
WHERE is_concerned AND ($1::text[] IS NULL OR virtualtransaction = ANY ($1::text[]))
UNION
SELECT writer.virtualtransaction
FROM pg_catalog.pg_locks AS writer JOIN pg_catalog.pg_stat_activity AS session ON session.pid = writer.pid
WHERE writer.relation IN ('{job_table}'::regclass, '{record_table}'::regclass)
    AND writer.mode IN ('RowShareLock', 'RowExclusiveLock')
    AND writer.granted AND writer.pid <> pg_backend_pid() AND ($4::boolean OR session.application_name = 'onejob')
    AND ($1::text[] IS NULL OR writer.virtualtransaction = ANY ($1::text[]))
    AND writer.virtualtransaction NOT IN (SELECT virtualtransaction FROM announced)
"""


def announcement(footprints: Iterable[Footprint]) -> tuple[int, int]:
    """Whom a batch concerns, as the numbers of its advisory locks; the first statement that loads takes them."""
    tenants = users = 0
    for f in footprints:
        tenant = tenant_prefix(f.tenant)
        tenants |= _filter_of(tenant)
        users |= _filter_of(f.usage or tenant)  # without a usage it may concern any user of its tenant
    return _to_int4(tenants), _to_int4(users)


def barrier_values(tenant: str | None, user: str | None) -> list[Any]:
    """The class and the filters of the announcements that a barrier waits for; no bits fit every announcement.

    A barrier of all tenants also waits for transactions of other programs, which may settle a key without announcing it.
    """
    if tenant is None:
        return [TENANTS_LOCK_CLASS, [0], True]
    anybody = _filter_of(tenant_prefix(tenant))
    if user is None:
        return [TENANTS_LOCK_CLASS, [anybody], False]
    return [USERS_LOCK_CLASS, [anybody, _filter_of(usage_id(tenant, user))], False]


def _filter_of(id: bytes) -> int:
    """Two of the bits."""
    digest = crc32(id)
    return 1 << digest % _FILTER_BITS | 1 << (digest >> 16) % _FILTER_BITS


def _to_int4(bits: int) -> int:
    """The signed integer of the same bits."""
    return bits - (1 << _FILTER_BITS) if bits >> (_FILTER_BITS - 1) else bits


class StatementPart(NamedTuple):
    """One part of a statement.

    `insert`, `update` and `delete` rows of a kind; `create` rows that have the defaults of new facts; check that some are
    `absent`; `add` or `trim` attachments; `delete_attachments` and `delete_memos` of jobs; `notify` listeners.
    """

    action: str
    kind: Kind | None = None


_INSERT_PARTS = {kind: StatementPart("insert", kind) for kind in Kind}
_CREATE_PARTS = {kind: StatementPart("create", kind) for kind in NEW_FACT_KINDS}
_INSERTING = ("insert", "create", "add")
_ADD_PART = StatementPart("add")


class Statements:
    def __init__(self, schema: str) -> None:
        self._schema = schema
        self.now = f'"{schema}".onejob_now()'
        self._standbys = "current_setting('synchronous_standby_names')"
        self._clock_columns = f"{self.now} AS clock, {self._standbys} AS standbys"
        self.clock_sql = f"SELECT {self._clock_columns}"
        # What follows the clock in the result of a statement that commits by itself: the second is the xmin of its rows.
        self._outcome_columns = f"{self._standbys}, pg_current_xact_id()::xid"
        self._stamp = f'"{schema}".onejob_stamp'
        self.channel = f"onejob_{schema}"
        self.writers_sql = WRITERS_QUERY.format(job_table=self.table("job"), record_table=self.table("record"))
        self.changes_sql = cache(self._changes_sql)
        self.inserts_sql = lru_cache(_SQL_CACHED_MAX)(self._inserts_sql)
        self.load_sql = cache(self._load_sql)
        self.caller_insert_sql = cache(self._caller_insert_sql)
        self.guarded_changes_sql = cache(self._guarded_changes_sql)
        self.snapshot_sql = cache(self._snapshot_sql)
        self.verified_changes_sql = lru_cache(_SQL_CACHED_MAX)(self._verified_changes_sql)

    def table(self, name: str) -> str:
        return f'"{self._schema}"."{name}"'

    def columns(self, kind: Kind) -> str:
        return _quoted(columns(kind))

    def _load_sql(self, kind: Kind, lock: str, *, announces: bool = False) -> str:
        """Lock and load facts in the order of ids. The clock is read for each row when its lock is held.

        An announcement is made before the first row is locked.
        """
        announced = _TAKE_ANNOUNCEMENT if announces else "VALUES (1)"
        return (
            f"SELECT {self._clock_columns}, fact.* FROM ({announced}) AS one LEFT JOIN (SELECT {self.columns(kind)} "
            f"FROM {self.table(TABLES[kind])} WHERE id = ANY ($1::bytea[]) ORDER BY id {lock}) AS fact ON true"
        )

    def _snapshot_sql(self, kinds: tuple[Kind, ...], *, follows_jobs: bool, follows_usage: bool) -> str:
        """Load facts of several kinds without locks, on one snapshot: the clock, then a row for each fact.

        A row has the columns of all kinds, and values in those of its own.
        """
        ctes, selects = [], []
        nulls = {kind: [f"NULL::{type}" for type in column_types(kind).values()] for kind in kinds}
        padding = [null for kind in kinds for null in nulls[kind]]
        selects.append(f"SELECT {', '.join((str(NO_KIND), self._clock_columns, '0', 'NULL::xid', *padding))}")
        start = _SNAPSHOT_COLUMNS
        for number, kind in enumerate(kinds, start=1):
            ids = f"${number}::bytea[]"
            if kind is Kind.JOB and follows_jobs:
                ids += f" || ARRAY(SELECT substr(r.job_ids, n, {JOB_ID_BYTES}) FROM found_record AS r, "
                ids += f"generate_series(1, length(r.job_ids), {JOB_ID_BYTES}) AS n)"
            if kind is Kind.USAGE and follows_usage:
                ids += " || ARRAY(SELECT j.usage_id FROM found_job AS j WHERE j.usage_id <> '')"
            name, before = f"found_{TABLES[kind]}", start - _SNAPSHOT_COLUMNS
            source = f"SELECT xmin AS xmin_of_row, {self.columns(kind)} FROM {self.table(TABLES[kind])} WHERE id = ANY ({ids})"
            ctes.append(f"{name} AS MATERIALIZED ({source})")
            values = [*padding[:before], self.columns(kind), *padding[before + len(nulls[kind]) :]]
            selects.append(f"SELECT {kind:d}, NULL, NULL, {start}, xmin_of_row, {', '.join(values)} FROM {name}")
            start += len(nulls[kind])
        found = f"WITH {', '.join(ctes)} " if ctes else ""
        return found + " UNION ALL ".join(selects)

    def _verified_changes_sql(
        self,
        holds: tuple[tuple[Kind, bool], ...],
        absent: tuple[Kind, ...],
        parts: tuple[StatementPart, ...],
        row_counts: tuple[int, ...],
        *,
        notifies: bool,
    ) -> str:
        """Verify what a batch was decided on, store its changes, and commit (optimistic.py). A kind is held shared or not.

        The row counts are those of the holds, then of the parts. Every change depends on `held`: none is made, or waits for
        another transaction, before all is verified.
        """
        rows = iter(row_counts)
        ctes, number = [_ANNOUNCED], 5
        for kind, is_shared in holds:
            count = next(rows)
            ctes.append(self._hold(kind, _rows(HELD_TYPES, number, count), "SHARE" if is_shared else "UPDATE"))
            number += len(HELD_TYPES) * count
        held = " + ".join(f"(SELECT count(*) FROM hold_{TABLES[kind]})" for kind, _ in holds) or "0"
        places = {kind: f"${number + n}::bytea[]" for n, kind in enumerate(absent)}
        number += len(absent)
        are_absent = f'"{self._schema}".onejob_are_absent({", ".join(places.get(kind, "NULL") for kind in Kind)})'
        is_held = (
            f"CASE WHEN {_IS_ANNOUNCED} AND {held} = ${number}::bigint THEN {are_absent if absent else 'true'} END"
        )
        ctes.append(f"held AS MATERIALIZED (SELECT coalesce({is_held}, false) AS ok)")
        expected, number = f"${number + 1}::bigint", number + 2
        stored = []
        for part in parts:
            name = f"{part.action}_{'' if part.kind is None else TABLES[part.kind]}"
            text, number = self._part_sql(part, number, next(rows))
            ctes.append(f"{name} AS ({text} AND (SELECT ok FROM held) RETURNING 1)")
            stored += [] if part.action == "trim" else [f"(SELECT count(*) FROM {name})"]
        violations = ["NOT (SELECT ok FROM held)", f"{' + '.join(stored) or '0'} <> {expected}"]
        notified = f", {self._notify(number)}" if notifies else ""
        return f"WITH {', '.join(ctes)} SELECT {self._checked_clock(violations)}, {self._outcome_columns}{notified}"

    def _hold(self, kind: Kind, rows: str, lock: str) -> str:
        """Lock the rows that are still the ones that were read, and that no other transaction holds."""
        same = f"t.id = u.id AND t.version = u.was AND t.xmin = u.by AND {_IS_ANNOUNCED}"
        source = f"{self.table(TABLES[kind])} AS t, {rows}"
        return f"hold_{TABLES[kind]} AS (SELECT FROM {source} WHERE {same} FOR {lock} OF t SKIP LOCKED)"

    def _notify(self, number: int) -> str:
        return f"(SELECT count(pg_notify('{self.channel}', id)) FROM unnest(${number}::text[]) AS id)"

    def _inserts_sql(
        self,
        parts: tuple[StatementPart, ...],
        absent: tuple[Kind, ...],
        rows: tuple[int, ...] = (),
        *,
        has_preconditions: bool = False,
    ) -> str:
        """Insert a whole batch in one statement, which checks the timestamp and commits by itself.

        With row counts, the rows are written out; without, the values are arrays.
        """
        first = 3 + len(absent)
        violations = [self._exists(kind, f"ANY (${n}::bytea[])") for n, kind in enumerate(absent, start=3)]
        if has_preconditions:
            violations.append(self._precondition_fails(first))
            first += PRECONDITION_PARAMS
        if rows:
            ctes, names = self._inline_inserts(parts, rows, first=first)
        else:
            ctes, _, names = self._part_ctes(parts, first=first)
        counted = " + ".join(f"(SELECT count(*) FROM {name})" for name in names)
        checked_clock = self._checked_clock([f"{counted} = 0", *violations])
        return f"WITH {', '.join(ctes)} SELECT {checked_clock}, {self._outcome_columns}"

    def _chained_inserts(self, parts: tuple[StatementPart, ...], first: int) -> list[str]:
        """One row per part; each INSERT selects from the one before it, which is named `step_1`, `step_2`, …"""
        inserts: list[str] = []
        source = ""
        for part in parts:
            target = _insert_target(part)
            inserts.append(f"{self._insert_into(target)} SELECT {target.values(first)}{source}")
            first += len(target.types)
            source = f" FROM step_{len(inserts)}"
        return inserts

    def _checked_clock(self, violations: list[str]) -> str:
        """The clock after the inserts; onejob_stamp raises on a violation or an old timestamp, and waits for a future one."""
        stamp = f"{self._stamp}($1::bigint, $2::bigint, 0,"
        violated = f"WHEN {' OR '.join(violations)} THEN {stamp} 1, {self.now}) "
        in_time = f"WHEN {self.now} - $1::bigint BETWEEN 0 AND $2::bigint THEN {self.now}"
        return f"CASE {violated}{in_time} ELSE {stamp} 0, {self.now}) END"

    def _exists(self, kind: Kind, ids: str) -> str:
        return f"EXISTS (SELECT FROM {self.table(TABLES[kind])} WHERE id = {ids})"

    def _changes_sql(self, parts: tuple[StatementPart, ...]) -> str:
        """Apply parts of a batch; the result is the number of rows of each part."""
        ctes, counts, _ = self._part_ctes(parts, first=1)
        return (f"WITH {', '.join(ctes)} " if ctes else "") + f"SELECT {', '.join(counts)}"

    @property
    def greeting_sql(self) -> str:
        """The clock and the version of the schema; works with every version."""
        return f"SELECT {self.now}, (SELECT max(version) FROM {self.table('onejob_schema')})"

    @property
    def settings_sql(self) -> str:
        """The settings of the ledger (the policy $1)."""
        return f"SELECT body FROM {self.table('policy')} WHERE id = $1::bytea"

    @property
    def insert_settings_sql(self) -> str:
        """Create the settings of a ledger that was never used, unless another transaction did."""
        return (
            f"INSERT INTO {self.table('policy')} (id, tenant, name, body, changed_at, version, format) "
            f"SELECT $1::bytea, '{SYSTEM_TENANT}', '{SETTINGS_POLICY_NAME}', $2::bytea, {self.now}::bigint, 1, {FORMAT:d} "
            f"WHERE NOT EXISTS (SELECT FROM {self.table('record')}) "
            "ON CONFLICT DO NOTHING RETURNING 1"
        )

    def answer_sql(self, version: int) -> str:
        """The record of a key and its first job, without a lock."""
        record, job = (_quoted_of(kind, name) for kind, name in ((Kind.RECORD, "r"), (Kind.JOB, "j")))
        return (
            f"SELECT {self.now}, {self._session_columns(version)}, {record}, {job} FROM (VALUES (1)) AS one "
            f"LEFT JOIN {self.table('record')} AS r ON r.id = $1::bytea "
            f"LEFT JOIN {self.table('job')} AS j ON j.id = substr(r.job_ids, 1, {JOB_ID_BYTES})"
        )

    @property
    def limits_sql(self) -> str:
        """Announce, then lock and load a usage ($1) and a policy ($4), in that order, which the last condition enforces.

        Then see whether the settings of the ledger ($5) are the expected ones ($6). Whoever changes them after that waits.
        """
        usage, policy = (self.columns(kind) for kind in (Kind.USAGE, Kind.POLICY))
        return (
            f'SELECT {self.now}, "{self._schema}".onejob_has_settings($5::bytea, $6::bytea), '
            f"{_quoted_of(Kind.USAGE, 'u')}, {_quoted_of(Kind.POLICY, 'p')} "
            f"FROM ({_TAKE_ANNOUNCEMENT}) AS one "
            f"LEFT JOIN LATERAL (SELECT {usage} FROM {self.table('usage')} WHERE id = $1::bytea FOR UPDATE) AS u ON true "
            f"LEFT JOIN LATERAL (SELECT {policy} FROM {self.table('policy')} WHERE id = $4::bytea "
            "AND u.version IS DISTINCT FROM -1 FOR SHARE) AS p ON true"
        )

    @property
    def input_sql(self) -> str:
        """The type and the input of a job."""
        return (
            f"SELECT j.type, a.data FROM {self.table('job')} AS j JOIN {self.table('attachment')} AS a "
            f"ON a.job_id = j.id AND a.kind = {AttachmentKind.INPUT:d} AND a.index = 0 "
            "WHERE j.id = $1::bytea AND j.tenant = $2::text"
        )

    def _caller_insert_sql(self, parts: tuple[StatementPart, ...], version: int) -> str:
        """Insert one row per part in a caller's transaction: all, or none and no error.

        None is inserted if the first row exists, if a limit exists, or if the session cannot keep the promise. The
        transaction is announced before the limits are looked for, so that a new limit waits for it or is found.
        """
        first, *others = self._chained_inserts(parts, 1 + UNCOUNTED_PARAMS)
        marks = ", ".join(f"${n}::{kind}" for n, kind in enumerate(("integer",) * 4 + ("bytea",) * 4, start=1))
        guard = f"{self._session_fault(version)} = '' AND \"{self._schema}\".onejob_is_uncounted({marks})"
        inserts = [f"{first} WHERE {guard} ON CONFLICT DO NOTHING", *others]
        ctes = ", ".join(f"step_{n} AS ({text} RETURNING 1)" for n, text in enumerate(inserts, start=1))
        return f"WITH {ctes} SELECT count(*), {self.now}, {self._session_columns(version)} FROM step_{len(inserts)}"

    def _guarded_changes_sql(self, parts: tuple[StatementPart, ...], version: int) -> str:
        """Store the changes of a command in a caller's transaction: all, or none and no error.

        None is stored if the first part inserts a row that exists, if a usage ($1) or a policy ($2) is there that must be
        absent, or if the session cannot keep the promise. The rows that the other parts change are locked, or are of
        the new job.
        """
        conditions = (
            f"{self._session_fault(version)} = ''",
            f'"{self._schema}".onejob_is_absent($1::bytea, $2::bytea)',
        )
        guard, number = " AND ".join(conditions), 3
        ctes: list[str] = []
        counts: list[str] = []
        for part in parts:
            name = f"part_{len(counts) + 1}"
            if part.action == "notify":
                source = f"unnest(${number}::text[]) AS id WHERE {guard}"
                counts.append(f"(SELECT count(pg_notify('{self.channel}', id)) FROM {source})")
                number += 1
                continue
            text, number = self._part_sql(part, number)
            where = f"WHERE {guard} ON CONFLICT DO NOTHING" if part.action in _INSERTING else f"AND {guard}"
            ctes.append(f"{name} AS ({text} {where} RETURNING 1)")
            counts.append(f"(SELECT count(*) FROM {name})")
            guard = "EXISTS (SELECT FROM part_1)"
        return f"WITH {', '.join(ctes)} SELECT {self._session_columns(version)}, {', '.join(counts)}"

    def _session_fault(self, version: int) -> str:
        return f'"{self._schema}".onejob_session_fault({version:d})'

    def _session_columns(self, version: int) -> str:
        """Why the session cannot keep the promise, and whether its commit waits for a standby."""
        waits = f"{self._standbys} <> '' AND current_setting('synchronous_commit') NOT IN ('off', 'local')"
        return f"{self._session_fault(version)}, {waits}"

    def _part_ctes(self, parts: tuple[StatementPart, ...], *, first: int) -> tuple[list[str], list[str], list[str]]:
        ctes: list[str] = []
        counts: list[str] = []
        names: list[str] = []
        for part in parts:
            if part.action == "absent":
                assert part.kind is not None
                counts.append(self._count(part.kind, first))
                first += 1
            elif part.action == "notify":
                counts.append(self._notify(first))
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
        """A condition that is true if a policy does not have the expected body, or has expired by the timestamp ($1)."""
        expected = f"unnest(${number}::bytea[], ${number + 1}::text[], ${number + 2}::bytea[]) AS s (id, tenant, body)"
        same = "p.id = s.id AND p.tenant = s.tenant AND p.body = s.body AND (p.expires_at <= 0 OR p.expires_at >= $1::bigint)"
        policy = f"SELECT FROM {self.table('policy')} AS p WHERE {same}"
        return f"EXISTS (SELECT FROM {expected} WHERE NOT EXISTS ({policy}))"

    def _part_sql(self, part: StatementPart, first: int, rows: int = 0) -> tuple[str, int]:
        """The text of a part, and the number of the next parameter. With a number of rows, they are written out."""
        if part.action in _INSERTING:
            return self._insert(_insert_target(part), first, rows)
        if part.action == "trim":
            match = " AND ".join(f't."{name}" = u."{name}"' for name in TRIM_TYPES)
            return (
                f"DELETE FROM {self.table('attachment')} AS t USING {_rows(TRIM_TYPES, first, rows)} WHERE {match}",
                first + len(TRIM_TYPES) * (rows or 1),
            )
        if part.action == "delete_attachments":
            return f"DELETE FROM {self.table('attachment')} WHERE job_id = ANY (${first}::bytea[])", first + 1
        if part.action == "delete_memos":
            return f"DELETE FROM {self.table('memo')} WHERE job_id = ANY (${first}::bytea[])", first + 1
        assert part.kind is not None
        table, types = TABLES[part.kind], column_types(part.kind)
        if part.action == "delete":
            parameters = DELETE_TYPES
            source = f"DELETE FROM {self.table(table)} AS t USING {_rows(parameters, first, rows)}"
        else:
            parameters = update_column_types(part.kind)
            sets = ", ".join(f'"{name}" = u."{name}"' for name in types if name != "id")
            source = f"UPDATE {self.table(table)} AS t SET {sets} FROM {_rows(parameters, first, rows)}"
        return f"{source} WHERE t.id = u.id AND t.version = u.was", first + len(parameters) * (rows or 1)

    def _inline_inserts(
        self, parts: tuple[StatementPart, ...], rows: tuple[int, ...], *, first: int
    ) -> tuple[list[str], list[str]]:
        ctes, names = [], []
        for part, count in zip(parts, rows, strict=True):
            target = _insert_target(part)
            values = ", ".join(f"({target.values(first + n * len(target.types))})" for n in range(count))
            first += len(target.types) * count
            name = f"insert_{target.table}"
            names.append(name)
            ctes.append(f"{name} AS ({self._insert_into(target)} VALUES {values} RETURNING 1)")
        return ctes, names

    def _insert(self, target: "_InsertTarget", first: int, rows: int) -> tuple[str, int]:
        types = target.types
        columns = ", ".join((_quoted(types), *target.constants.values()))
        text = f"{self._insert_into(target)} SELECT {columns} FROM {_rows(types, first, rows)}"
        if rows:
            text += f' WHERE u."{next(iter(types))}" IS NOT NULL'
        return text, first + len(types) * (rows or 1)

    def _insert_into(self, target: "_InsertTarget") -> str:
        return f"INSERT INTO {self.table(target.table)} ({_quoted((*target.types, *target.constants))})"


def _quoted_of(kind: Kind, alias: str) -> str:
    return ", ".join(f'{alias}."{name}"' for name in columns(kind))


class _InsertTarget(NamedTuple):
    """The table of an insert, its columns with their types, and those with a constant."""

    table: str
    types: dict[str, str]
    constants: dict[str, str] = {}  # noqa: RUF012 - never changed

    def values(self, first: int) -> str:
        """One row: parameters from this number on, then the constants."""
        marks = [f"${first + n}::{type}" for n, type in enumerate(self.types.values())]
        return ", ".join((*marks, *self.constants.values()))


@cache
def _insert_target(part: StatementPart) -> _InsertTarget:
    if part.kind is None:
        return _InsertTarget("attachment", ATTACHMENT_TYPES)
    types = column_types(part.kind)
    if part.action != "create":
        return _InsertTarget(TABLES[part.kind], types)
    new = new_fact_columns(part.kind)
    defaults = zip(list(types)[len(new) :], new_fact_defaults(part.kind), strict=True)
    constants = {name: _constant(types[name], value) for name, value in defaults}
    return _InsertTarget(TABLES[part.kind], {name: types[name] for name in new}, constants)


def _constant(type: str, value: Any) -> str:
    if type == "bigint":
        return f"{value:d}::bigint"
    assert not value, "only empty texts and bytes are defaults of new facts"
    return f"''::{type}"


@cache
def column_types(kind: Kind) -> dict[str, str]:
    (cls,) = (cls for cls, its_kind in KINDS.items() if its_kind is kind)
    hints = get_type_hints(cls)
    return {field.name: _column_type(hints[field.name]) for field in fields(cls)}


def update_column_types(kind: Kind) -> dict[str, str]:
    """The columns, and the version that a row must have."""
    return column_types(kind) | {"was": "bigint"}


def _column_type(hint: object) -> str:
    if hint is bytes:
        return "bytea"
    return "bigint" if hint is int or hint is U64 else "text"


def _rows(types: dict[str, str], first: int, count: int = 0) -> str:
    """Rows as a source named u: arrays, one for each column; with a count, rows that are written out, or NULL."""
    if count:
        marks = [f"${first + n}::{kind}" for n, kind in enumerate(list(types.values()) * count)]
        rows = (", ".join(marks[at : at + len(types)]) for at in range(0, len(marks), len(types)))
        return f"(VALUES ({'), ('.join(rows)})) AS u({_quoted(types)})"
    arrays = ", ".join(array_placeholder(name, kind, first + n) for n, (name, kind) in enumerate(types.items()))
    return f"unnest({arrays}) AS u({_quoted(types)})"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


class BoundParts(NamedTuple):
    parts: tuple[StatementPart, ...]
    values: list[Any]
    expected: list[int | None]  # the number of rows of each part; None: any
    row_counts: tuple[int, ...] = ()  # how many rows of each part are written out; none: the values are arrays


# Rows that are written out are filled up with NULL to one of these numbers, the same for all facts of a statement, so that there
# are few statements to prepare: a large one takes up to a megabyte of the server, for each connection.
_ROW_COUNTS = (1, 2, 4, 8, 12, 16, 24, 32)
_ATTACHMENT_COUNTS = (1, 4, 16, 64)  # they have few columns
INLINE_ROWS_MAX = _ROW_COUNTS[-1]
INLINE_ATTACHMENTS_MAX = _ATTACHMENT_COUNTS[-1]
_SQL_CACHED_MAX = 500  # texts of each kind of statement


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

    def add_rows(self, part: StatementPart, types: dict[str, str], rows: Sequence[Any], expected: int | None) -> None:
        if self._inline is not None:
            count = self._inline.attachments if part.kind is None else self._inline.facts
            self.add(part, rows_to_values(rows, count), expected)
            self.row_counts.append(count)
            return
        columns = zip(*rows, strict=True)
        arrays = [encode_column(*of, values) for of, values in zip(types.items(), columns, strict=True)]
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
        builder.add_rows(StatementPart("trim"), TRIM_TYPES, sorted(_trimmed_places(changes)), None)
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
            builder.add_rows(part, _insert_target(part).types, rows, len(rows))
    for kind, facts in updates.items():
        if facts:
            rows = [(*fact_to_row(fact), version) for fact, version in sorted(facts, key=lambda update: update[0].id)]
            builder.add_rows(StatementPart("update", kind), update_column_types(kind), rows, len(rows))
    trimmed = _trimmed_places(changes) if changes.trims else ()
    attachments = sorted(row for row in map(_attachment_row, changes.attachments) if row[:3] not in trimmed)
    if attachments:
        builder.add_rows(_ADD_PART, ATTACHMENT_TYPES, attachments, len(attachments))
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
    # Without a key there is no record, and the usage decides.
    at = bound.parts.index(usage)
    before = sum(_parameter_count(part) for part in bound.parts[:at])
    after = before + _parameter_count(usage)
    values = [*bound.values[before:after], *bound.values[:before], *bound.values[after:]]
    return BoundParts((usage, *bound.parts[:at], *bound.parts[at + 1 :]), values, _moved_first(bound.expected, at))


def _parameter_count(part: StatementPart) -> int:
    return len(_insert_target(part).types)  # only inserts come before the insert of a usage


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
            builder.add_rows(StatementPart("delete", kind), DELETE_TYPES, deletes, len(deletes))
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


def array_placeholder(name: str, kind: str, number: int) -> str:
    return f"${number}::bytea[]" if name in RAW_COLUMNS else f"${number}::text::{kind}[]"


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
