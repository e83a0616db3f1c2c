"""The SQL statements that store and load facts in one schema. `tests/golden/files/statements.sql` shows every one filled in.

The rules of this file:

1. A template stands whole: what a batch brings is in few slots, and a slot that is not a name is filled with one of the
   smaller templates below it. Parameters are numbered in the order in which they stand, the fixed ones first.
2. Every statement names its tables in full, so none depends on session state.
3. A statement for many rows takes them in the order of their ids, in which locks are taken (`parts.py` sorts and binds them).
4. What commits by itself proves itself: it raises (`onejob_stamp`) where an assumption of the batch does not hold, or its
   timestamp ($1) is not at most $2 milliseconds old, and then nothing is stored.
"""

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any

from onejob.core.facts import FORMAT, JOB_ID_BYTES, AttachmentKind, Kind
from onejob.core.identity import SETTINGS_POLICY_NAME, SYSTEM_TENANT
from onejob.engines.codec import TABLES, columns, new_fact_columns, new_fact_defaults

from .announcements import TENANTS_LOCK_CLASS, USERS_LOCK_CLASS
from .parts import INSERTING, RAW_COLUMNS, StatementPart, column_types, parameter_types

HELD_TYPES = {"id": "bytea", "was": "bigint", "by": "xid"}  # a row as it was read
NO_KIND = -1  # of the row with the clock, in a snapshot
_SNAPSHOT_COLUMNS = 5  # kind, clock, standbys, where its columns begin, xmin
_SQL_CACHED_MAX = 500  # texts of each kind of statement


def _template(text: str) -> str:
    """One line, as it is sent."""
    return " ".join(text.split()).replace("( ", "(").replace(" )", ")")


# Loads facts of one kind in the order of ids, the clock for each row when its lock is held. What is announced (or nothing) is
# announced before the first row is locked.
_LOAD = _template("""
    SELECT {now} AS clock, {standbys} AS standbys, fact.*
    FROM ({announced_first}) AS one
    LEFT JOIN (SELECT {columns} FROM {table} WHERE id = ANY ($1::bytea[]) ORDER BY id {lock}) AS fact ON true
""")
_ANNOUNCE = _template("""
    SELECT pg_catalog.pg_advisory_xact_lock_shared({tenants_class}, $2::integer),
        pg_catalog.pg_advisory_xact_lock_shared({users_class}, $3::integer)
""")
_CLOCK = "SELECT {now} AS clock, {standbys} AS standbys"

# Loads facts of several kinds without locks, on one snapshot: the clock, then a row for each fact. A row has the columns of all
# kinds, and values in those of its own.
_SNAPSHOT = _template("""
    {found}SELECT {no_kind}, {now} AS clock, {standbys} AS standbys, 0, NULL::xid{nulls} {rows}
""")
_FOUND = _template("""
    found_{name} AS MATERIALIZED (SELECT xmin AS xmin_of_row, {columns} FROM {table} WHERE id = ANY ({ids}))
""")
_ROWS_OF_FOUND = "UNION ALL SELECT {kind:d}, NULL, NULL, {start}, xmin_of_row, {values} FROM found_{name}"
_JOBS_OF_RECORDS = _template("""
    || ARRAY(SELECT substr(r.job_ids, n, {id_bytes}) FROM found_record AS r,
        generate_series(1, length(r.job_ids), {id_bytes}) AS n)
""")
_USAGES_OF_JOBS = "|| ARRAY(SELECT j.usage_id FROM found_job AS j WHERE j.usage_id <> '')"

# Inserts a whole batch in one statement, which checks its assumptions and its timestamp, and commits by itself. The second
# column is the xmin of its rows.
_INSERTS = _template("""
    WITH {inserts}
    SELECT
        CASE
            WHEN {inserted} = 0{violations} THEN {schema}.onejob_stamp($1::bigint, $2::bigint, 0, 1, {now})
            WHEN {now} - $1::bigint BETWEEN 0 AND $2::bigint THEN {now}
            ELSE {schema}.onejob_stamp($1::bigint, $2::bigint, 0, 0, {now})
        END,
        {standbys}, pg_current_xact_id()::xid
""")
_EXISTS = " OR EXISTS (SELECT FROM {table} WHERE id = ANY ({ids}))"
# A policy does not have the expected body, or has expired by the timestamp.
_PRECONDITION_FAILS = _template("""
    OR EXISTS (
        SELECT FROM unnest({ids}, {tenants}, {bodies}) AS s (id, tenant, body)
        WHERE NOT EXISTS (
            SELECT FROM {policy} AS p
            WHERE p.id = s.id AND p.tenant = s.tenant AND p.body = s.body AND (p.expires_at <= 0 OR p.expires_at >= $1::bigint)
        )
    )
""")

# Verifies what a batch was decided on, stores its changes, and commits by itself (optimistic.py). Every change depends on `held`:
# none is made, or waits for another transaction, before all is verified.
_VERIFIED_CHANGES = _template("""
    WITH announced AS MATERIALIZED (
        SELECT count(pg_catalog.pg_advisory_xact_lock_shared({tenants_class}, $3::integer))
            + count(pg_catalog.pg_advisory_xact_lock_shared({users_class}, $4::integer)) AS locks
    ), {holds}held AS MATERIALIZED (
        SELECT coalesce(
            CASE WHEN (SELECT locks FROM announced) = 2 AND {held} = {held_expected} THEN {are_absent} END, false
        ) AS ok
    ), {changes}
    SELECT
        CASE
            WHEN NOT (SELECT ok FROM held) OR {stored} <> {stored_expected}
                THEN {schema}.onejob_stamp($1::bigint, $2::bigint, 0, 1, {now})
            WHEN {now} - $1::bigint BETWEEN 0 AND $2::bigint THEN {now}
            ELSE {schema}.onejob_stamp($1::bigint, $2::bigint, 0, 0, {now})
        END,
        {standbys}, pg_current_xact_id()::xid{notified}
""")
# Locks the rows that are still the ones that were read, and that no other transaction holds.
_HOLD = _template("""
    hold_{name} AS (
        SELECT FROM {table} AS t, {rows}
        WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
        FOR {lock} OF t SKIP LOCKED
    )
""")

# Applies parts of a batch whose facts are locked; the result is the number of rows of each part.
_CHANGES = "{changes}SELECT {counts}"

# Inserts one row per part in a caller's transaction: all, or none and no error. None is inserted if the first row exists, if a
# limit exists, or if the session cannot keep the promise. The transaction is announced before the limits are looked for, so
# that a new limit waits for it or is found. Each INSERT selects from the one before it.
_CALLER_INSERT = _template("""
    WITH {inserts}
    SELECT count(*), {now}, {session_fault}, {waits_for_standby}
    FROM {last}
""")
_FIRST_INSERT = _template("""
    step_1 AS (
        INSERT INTO {table} ({columns}) SELECT {values}
        WHERE {session_fault} = '' AND {schema}.onejob_is_uncounted(
            $1::integer, $2::integer, $3::integer, $4::integer, $5::bytea, $6::bytea, $7::bytea, $8::bytea
        )
        ON CONFLICT DO NOTHING
        RETURNING 1
    )
""")
_NEXT_INSERT = "step_{n} AS (INSERT INTO {table} ({columns}) SELECT {values} FROM step_{before} RETURNING 1)"

# Stores the changes of a command in a caller's transaction: all, or none and no error. None is stored if the first part inserts a
# row that exists, if a usage ($1) or a policy ($2) is there that must be absent, or if the session cannot keep the promise. The
# rows that the other parts change are locked, or are of the new job.
_GUARDED_CHANGES = "WITH {changes} SELECT {session_fault}, {waits_for_standby}, {counts}"
_FIRST_GUARD = "{session_fault} = '' AND {schema}.onejob_is_absent($1::bytea, $2::bytea)"
_NEXT_GUARD = "EXISTS (SELECT FROM part_1)"

# The parts of a batch. The rows (u) are arrays, or written out.
_PART = "{name} AS ({sql} RETURNING 1)"
_COUNT = "(SELECT count(*) FROM {name})"
_COUNT_PRESENT = "(SELECT count(*) FROM {table} WHERE id = ANY ({ids}))"
_NOTIFY = "(SELECT count(pg_notify('{channel}', id)) FROM unnest({ids}) AS id{where})"
_INSERT_WRITTEN_OUT = "INSERT INTO {table} ({columns}) VALUES {rows}"
_PARTS = {
    "insert": "INSERT INTO {table} ({columns}) SELECT {values} FROM {rows}",
    "update": "UPDATE {table} AS t SET {sets} FROM {rows} WHERE t.id = u.id AND t.version = u.was",
    "delete": "DELETE FROM {table} AS t USING {rows} WHERE t.id = u.id AND t.version = u.was",
    "trim": _template("""
        DELETE FROM {table} AS t USING {rows}
        WHERE t."job_id" = u."job_id" AND t."kind" = u."kind" AND t."index" = u."index"
    """),
    "delete_attachments": "DELETE FROM {attachment} WHERE job_id = ANY ({ids})",
    "delete_memos": "DELETE FROM {memo} WHERE job_id = ANY ({ids})",
}

# The clock and the version of the schema; works with every version.
_GREETING = 'SELECT {now}, (SELECT max(version) FROM {schema}."onejob_schema")'
_SETTINGS = "SELECT body FROM {policy} WHERE id = $1::bytea"
# Creates the settings of a ledger that was never used, unless another transaction did.
_INSERT_SETTINGS = _template("""
    INSERT INTO {policy} (id, tenant, name, body, changed_at, version, format)
    SELECT $1::bytea, '{system_tenant}', '{settings_name}', $2::bytea, {now}::bigint, 1, {format:d}
    WHERE NOT EXISTS (SELECT FROM {record})
    ON CONFLICT DO NOTHING
    RETURNING 1
""")
# The record of a key and its first job, without a lock.
_ANSWER = _template("""
    SELECT {now}, {session_fault}, {waits_for_standby}, {record_columns}, {job_columns}
    FROM (VALUES (1)) AS one
    LEFT JOIN {record} AS r ON r.id = $1::bytea
    LEFT JOIN {job} AS j ON j.id = substr(r.job_ids, 1, {id_bytes})
""")
# Announces, then locks and loads a usage ($1) and a policy ($4). The last condition is always true: it makes the policy depend on
# the usage, so that they are locked in that order. Then it is seen whether the settings of the ledger ($5) are the expected
# ones ($6); a transaction that changes them after that waits.
_LIMITS = _template("""
    SELECT {now}, {schema}.onejob_has_settings($5::bytea, $6::bytea), {u_columns}, {p_columns}
    FROM ({announce}) AS one
    LEFT JOIN LATERAL (SELECT {usage_columns} FROM {usage} WHERE id = $1::bytea FOR UPDATE) AS u ON true
    LEFT JOIN LATERAL (
        SELECT {policy_columns} FROM {policy} WHERE id = $4::bytea AND u.version IS DISTINCT FROM -1 FOR SHARE
    ) AS p ON true
""")
# The type and the input of a job.
_INPUT = _template("""
    SELECT j.type, a.data
    FROM {job} AS j
    JOIN {attachment} AS a ON a.job_id = j.id AND a.kind = {input_kind:d} AND a.index = 0
    WHERE j.id = $1::bytea AND j.tenant = $2::text
""")
_SESSION_FAULT = "{schema}.onejob_session_fault({version:d})"  # why the session cannot keep the promise
_WAITS_FOR_STANDBY = "{standbys} <> '' AND current_setting('synchronous_commit') NOT IN ('off', 'local')"
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
WHERE writer.relation IN ('{job}'::regclass, '{record}'::regclass)
    AND writer.mode IN ('RowShareLock', 'RowExclusiveLock')
    AND writer.granted AND writer.pid <> pg_backend_pid() AND ($4::boolean OR session.application_name = 'onejob')
    AND ($1::text[] IS NULL OR writer.virtualtransaction = ANY ($1::text[]))
    AND writer.virtualtransaction NOT IN (SELECT virtualtransaction FROM announced)
"""


class Statements:
    """The templates, filled for one schema."""

    def __init__(self, schema: str) -> None:
        quoted = f'"{schema}"'
        self.now = f"{quoted}.onejob_now()"
        self.channel = f"onejob_{schema}"
        self._names = {
            "schema": quoted,
            "now": self.now,
            "standbys": "current_setting('synchronous_standby_names')",
            "channel": self.channel,
            "tenants_class": TENANTS_LOCK_CLASS,
            "users_class": USERS_LOCK_CLASS,
            "id_bytes": JOB_ID_BYTES,
            "attachment": f'{quoted}."attachment"',
            **{name: f'{quoted}."{name}"' for name in TABLES.values()},
        }
        self._names["waits_for_standby"] = self._fill(_WAITS_FOR_STANDBY)
        self.clock_sql = self._fill(_CLOCK)
        self.greeting_sql = self._fill(_GREETING)
        self.settings_sql = self._fill(_SETTINGS)
        self.writers_sql = self._fill(WRITERS_QUERY)
        self.insert_settings_sql = self._fill(
            _INSERT_SETTINGS, system_tenant=SYSTEM_TENANT, settings_name=SETTINGS_POLICY_NAME, format=FORMAT
        )
        self.input_sql = self._fill(_INPUT, input_kind=AttachmentKind.INPUT)
        self.limits_sql = self._fill(
            _LIMITS,
            announce=self._fill(_ANNOUNCE),
            u_columns=_quoted(columns(Kind.USAGE), "u."),
            p_columns=_quoted(columns(Kind.POLICY), "p."),
            usage_columns=self.columns(Kind.USAGE),
            policy_columns=self.columns(Kind.POLICY),
        )
        self.load_sql = cache(self._load_sql)
        self.snapshot_sql = cache(self._snapshot_sql)
        self.inserts_sql = lru_cache(_SQL_CACHED_MAX)(self._inserts_sql)
        self.verified_changes_sql = lru_cache(_SQL_CACHED_MAX)(self._verified_changes_sql)
        self.changes_sql = cache(self._changes_sql)
        self.answer_sql = cache(self._answer_sql)
        self.caller_insert_sql = cache(self._caller_insert_sql)
        self.guarded_changes_sql = cache(self._guarded_changes_sql)

    def table(self, name: str) -> str:
        return str(self._names[name])

    def columns(self, kind: Kind) -> str:
        return _quoted(columns(kind))

    def _answer_sql(self, version: int) -> str:
        return self._fill(
            _ANSWER,
            session_fault=self._session_fault(version),
            record_columns=_quoted(columns(Kind.RECORD), "r."),
            job_columns=_quoted(columns(Kind.JOB), "j."),
        )

    def _load_sql(self, kind: Kind, lock: str, *, announces: bool = False) -> str:
        announced_first = self._fill(_ANNOUNCE) if announces else "VALUES (1)"
        table = self.table(TABLES[kind])
        return self._fill(_LOAD, announced_first=announced_first, table=table, columns=self.columns(kind), lock=lock)

    def _snapshot_sql(self, kinds: tuple[Kind, ...], *, follows_jobs: bool, follows_usage: bool) -> str:
        found, rows = [], []
        nulls = {kind: [f"NULL::{type}" for type in column_types(kind).values()] for kind in kinds}
        all_nulls = [null for kind in kinds for null in nulls[kind]]
        before = 0
        for number, kind in enumerate(kinds, start=1):
            name, own = TABLES[kind], self.columns(kind)
            ids = f"${number}::bytea[]"
            if kind is Kind.JOB and follows_jobs:
                ids += " " + self._fill(_JOBS_OF_RECORDS)
            if kind is Kind.USAGE and follows_usage:
                ids += " " + _USAGES_OF_JOBS
            found.append(self._fill(_FOUND, name=name, table=self.table(name), columns=own, ids=ids))
            after = before + len(nulls[kind])
            values = ", ".join((*all_nulls[:before], own, *all_nulls[after:]))
            rows.append(
                self._fill(_ROWS_OF_FOUND, kind=kind, start=_SNAPSHOT_COLUMNS + before, values=values, name=name)
            )
            before = after
        with_found = f"WITH {', '.join(found)} " if found else ""
        nulls_of_all = "".join(f", {null}" for null in all_nulls)
        return self._fill(_SNAPSHOT, found=with_found, no_kind=NO_KIND, nulls=nulls_of_all, rows=" ".join(rows)).strip()

    def _inserts_sql(
        self,
        parts: tuple[StatementPart, ...],
        absent: tuple[Kind, ...],
        row_counts: tuple[int, ...] = (),
        *,
        has_preconditions: bool = False,
    ) -> str:
        """With row counts, the rows are written out; without, the values are arrays."""
        mark = _Marks(3)
        violations = [self._fill(_EXISTS, table=self.table(TABLES[kind]), ids=mark("bytea[]")) for kind in absent]
        if has_preconditions:
            ids, tenants, bodies = mark("bytea[]"), mark("text[]"), mark("bytea[]")
            violations.append(" " + self._fill(_PRECONDITION_FAILS, ids=ids, tenants=tenants, bodies=bodies))
        if row_counts:
            inserts = [self._insert_written_out(part, mark, n) for part, n in zip(parts, row_counts, strict=True)]
            names = [f"insert_{part.table}" for part in parts]
        else:
            inserts = [self._part(part, mark) for part in parts]
            names = [part.name for part in parts]
        return self._fill(
            _INSERTS,
            inserts=", ".join(_PART.format(name=name, sql=sql) for name, sql in zip(names, inserts, strict=True)),
            inserted=_sum_of_counts(names),
            violations="".join(violations),
        )

    def _verified_changes_sql(
        self,
        holds: tuple[tuple[Kind, bool], ...],
        absent: tuple[Kind, ...],
        parts: tuple[StatementPart, ...],
        row_counts: tuple[int, ...],
        *,
        notifies: bool,
    ) -> str:
        """A kind is held shared or not. The row counts are those of the holds, then of the parts."""
        mark, counts = _Marks(5), iter(row_counts)
        held = [self._hold(kind, _rows(HELD_TYPES, mark, next(counts)), is_shared) for kind, is_shared in holds]
        places = {kind: mark("bytea[]") for kind in absent}
        absent_ids = ", ".join(places.get(kind, "NULL") for kind in Kind)
        held_expected, stored_expected = mark("bigint"), mark("bigint")
        changes = [
            _PART.format(name=part.name, sql=f"{self._part(part, mark, next(counts))} AND (SELECT ok FROM held)")
            for part in parts
        ]
        return self._fill(
            _VERIFIED_CHANGES,
            holds="".join(f"{hold}, " for hold in held),
            held=_sum_of_counts(f"hold_{TABLES[kind]}" for kind, _ in holds),
            held_expected=held_expected,
            are_absent=self._fill("{schema}.onejob_are_absent({ids})", ids=absent_ids) if absent else "true",
            changes=", ".join(changes),
            stored=_sum_of_counts(part.name for part in parts if part.action != "trim"),
            stored_expected=stored_expected,
            notified=f", {self._notify(mark)}" if notifies else "",
        )

    def _hold(self, kind: Kind, rows: str, is_shared: bool) -> str:
        table, lock = TABLES[kind], "SHARE" if is_shared else "UPDATE"
        return self._fill(_HOLD, name=table, table=self.table(table), rows=rows, lock=lock)

    def _changes_sql(self, parts: tuple[StatementPart, ...]) -> str:
        mark = _Marks(1)
        changes, counts = [], []
        for part in parts:
            if part.action == "absent":
                counts.append(_COUNT_PRESENT.format(table=self.table(part.table), ids=mark("bytea[]")))
            elif part.action == "notify":
                counts.append(self._notify(mark))
            else:
                changes.append(_PART.format(name=part.name, sql=self._part(part, mark)))
                counts.append(_COUNT.format(name=part.name))
        with_changes = f"WITH {', '.join(changes)} " if changes else ""
        return _CHANGES.format(changes=with_changes, counts=", ".join(counts))

    def _caller_insert_sql(self, parts: tuple[StatementPart, ...], version: int) -> str:
        mark = _Marks(9)
        inserts: list[str] = []
        session_fault = self._session_fault(version)
        for n, part in enumerate(parts, start=1):
            inserts.append(
                self._fill(
                    _NEXT_INSERT if inserts else _FIRST_INSERT,
                    table=self.table(part.table),
                    columns=_inserted_columns(part),
                    values=_row(part, mark),
                    session_fault=session_fault,
                    n=n,
                    before=n - 1,
                )
            )
        last = f"step_{len(parts)}"
        return self._fill(_CALLER_INSERT, inserts=", ".join(inserts), session_fault=session_fault, last=last)

    def _guarded_changes_sql(self, parts: tuple[StatementPart, ...], version: int) -> str:
        mark = _Marks(3)
        session_fault = self._session_fault(version)
        guard = self._fill(_FIRST_GUARD, session_fault=session_fault)
        changes: list[str] = []
        counts: list[str] = []
        for n, part in enumerate(parts, start=1):
            if part.action == "notify":
                counts.append(self._notify(mark, f" WHERE {guard}"))
                continue
            is_insert = part.action in INSERTING
            where = f"WHERE {guard} ON CONFLICT DO NOTHING" if is_insert else f"AND {guard}"
            changes.append(_PART.format(name=f"part_{n}", sql=f"{self._part(part, mark)} {where}"))
            counts.append(_COUNT.format(name=f"part_{n}"))
            guard = _NEXT_GUARD
        return self._fill(
            _GUARDED_CHANGES, changes=", ".join(changes), session_fault=session_fault, counts=", ".join(counts)
        )

    def _part(self, part: StatementPart, mark: "_Marks", row_count: int = 0) -> str:
        if part.action in ("delete_attachments", "delete_memos"):
            return self._fill(_PARTS[part.action], ids=mark("bytea[]"))
        types = parameter_types(part)
        table, rows = self.table(part.table), _rows(types, mark, row_count)
        if part.action not in INSERTING:
            sets = ", ".join(f'"{name}" = u."{name}"' for name in types if name not in ("id", "was"))
            return self._fill(_PARTS[part.action], table=table, rows=rows, sets=sets)
        values = ", ".join((_quoted(types), *_constants(part).values()))
        sql = self._fill(_PARTS["insert"], table=table, columns=_inserted_columns(part), values=values, rows=rows)
        return f'{sql} WHERE u."{next(iter(types))}" IS NOT NULL' if row_count else sql

    def _insert_written_out(self, part: StatementPart, mark: "_Marks", row_count: int) -> str:
        rows = ", ".join(f"({_row(part, mark)})" for _ in range(row_count))
        return self._fill(_INSERT_WRITTEN_OUT, table=self.table(part.table), columns=_inserted_columns(part), rows=rows)

    def _notify(self, mark: "_Marks", where: str = "") -> str:
        return self._fill(_NOTIFY, ids=mark("text[]"), where=where)

    def _session_fault(self, version: int) -> str:
        return self._fill(_SESSION_FAULT, version=version)

    def _fill(self, template: str, **slots: Any) -> str:
        return template.format(**self._names, **slots)


class _Marks:
    """Numbers the parameters of a statement in the order in which they stand in it."""

    def __init__(self, first: int) -> None:
        self._next = first

    def __call__(self, type: str, *, by_way_of: str = "") -> str:
        self._next += 1
        return f"${self._next - 1}{by_way_of}::{type}"


def _rows(types: dict[str, str], mark: _Marks, count: int = 0) -> str:
    """Rows as a source named u: arrays, one for each column; with a count, rows that are written out, or NULL."""
    if count:
        rows = ", ".join(f"({', '.join(map(mark, types.values()))})" for _ in range(count))
        return f"(VALUES {rows}) AS u({_quoted(types)})"
    arrays = (mark(f"{type}[]", by_way_of="" if name in RAW_COLUMNS else "::text") for name, type in types.items())
    return f"unnest({', '.join(arrays)}) AS u({_quoted(types)})"


def _row(part: StatementPart, mark: _Marks) -> str:
    """The values of one row: parameters, then the constants."""
    return ", ".join((*map(mark, parameter_types(part).values()), *_constants(part).values()))


def _inserted_columns(part: StatementPart) -> str:
    return _quoted((*parameter_types(part), *_constants(part)))


def _constants(part: StatementPart) -> dict[str, str]:
    """The columns of a new fact that have their defaults."""
    if part.action != "create":
        return {}
    assert part.kind is not None
    types = column_types(part.kind)
    names = list(types)[len(new_fact_columns(part.kind)) :]
    return {
        name: _constant(types[name], value) for name, value in zip(names, new_fact_defaults(part.kind), strict=True)
    }


def _constant(type: str, value: Any) -> str:
    if type == "bigint":
        return f"{value:d}::bigint"
    assert not value, "only empty texts and bytes are defaults of new facts"
    return f"''::{type}"


def _sum_of_counts(names: Iterable[str]) -> str:
    return " + ".join(_COUNT.format(name=name) for name in names) or "0"


def _quoted(names: Iterable[str], prefix: str = "") -> str:
    return ", ".join(f'{prefix}"{name}"' for name in names)
