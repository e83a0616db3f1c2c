"""The SQL that SQLite and PostgreSQL share: the statements of most queries, and the numbered migrations.

Each statement is written once. What the two databases spell differently is asked of a `SqlWriter`, which also
collects the values. LIMIT is left to the engines: PostgreSQL plans better with the number in the text, and
SQLite prepares fewer statements with a parameter.
"""

from collections.abc import Callable, Generator, Sequence
from functools import cache
from importlib import resources
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from onejob.core.facts import JOB_ID_BYTES, U64, Attachment, AttachmentKind, Kind
from onejob.core.identity import SCHEDULE_ACTOR, SCHEDULE_SCOPE, created_ms, tenant_prefix
from onejob.core.maintenance import DUE_FIELDS
from onejob.core.states import CLAIMABLE_STATES, JobState
from onejob.engine import (
    Backlog,
    CountCommits,
    CountJobs,
    CountKeys,
    CountLiveKeys,
    CountReadyJobs,
    JobCount,
    ListAttachments,
    ListBacklogs,
    ListDueFacts,
    ListFacts,
    ListInputs,
    ListJobs,
    ListLeasedJobs,
    LiveKeyCount,
    Page,
    Query,
    ReadyCount,
)
from onejob.engines.codec import TABLES, columns, fact_from_row, u64_from_signed, u64_to_signed

# A page of a filtered list examines at most this many jobs: a few milliseconds, whatever a tenant has stored.
EXAMINED_MAX = 10_000
TYPES_MERGED_MAX = 64  # of a list by state; with more types it is a filtered list
# Spelled as in the partial index job_ready, which serves this condition only.
CLAIMABLE_CONDITION = f"state IN ({', '.join(repr(str(state)) for state in sorted(CLAIMABLE_STATES))})"
# A store from before the first release has this table. There is no migration from it.
PRERELEASE_TABLE = "tally"
PRERELEASE_MESSAGE = "has the tables of a version before the first release (`{}`), which cannot be migrated"
# Job ids are drawn by the clock of the submitting process, which may differ from the engine's by this much.
_ID_SLACK_MS = 600_000
_ID_SUFFIX_MAX = b"\xff" * 200


class SqlWriter(Protocol):
    """What the dialects spell differently, and the values of one statement."""

    values: list[Any]
    empty_bytes: str

    @property
    def now(self) -> str: ...  # the engine's time in milliseconds

    def table(self, name: str, /) -> str: ...

    def bind(self, value: Any, /) -> str:
        """Add a value and return its placeholder."""

    def hex(self, column: str, /) -> str: ...

    def position(self, needle: bytes, column: str, /) -> str:
        """Where some bytes begin in a column, counted from 1; 0: nowhere."""

    def bind_one_of(self, values: Sequence[bytes], /) -> str:
        """Add several values and return a condition that matches any of them, such as `IN (?1, ?2)`."""


class ScanPlan(NamedTuple):
    """What is found out before a page of jobs is read."""

    oldest_id: bytes = b""  # the oldest job that the page may examine; empty: all
    types: tuple[str, ...] = ()  # the page is merged from these types; empty: it is read in one go


def build_query(sql: SqlWriter, query: Query[Any], plan: ScanPlan) -> str:
    match query:
        case ListJobs() if plan.types:
            return _merged_jobs_sql(sql, query, plan.types)
        case ListJobs():
            return _jobs_sql(sql, query, plan.oldest_id)
        case CountJobs():
            return _job_counts_sql(sql, query)
        case CountReadyJobs():
            return _ready_counts_sql(sql, query)
        case CountKeys():
            return f"SELECT count(*) FROM {sql.table('record')} {_in_tenant_range(sql, query.tenant)}"
        case CountLiveKeys():
            return _live_keys_sql(sql)
        case CountCommits():
            return f"SELECT generation FROM {sql.table('ledger')}"
        case ListFacts():
            return _facts_sql(sql, query)
        case ListAttachments():
            return _attachments_sql(sql, query)
        case ListInputs():
            return _inputs_sql(sql, query)
        case ListDueFacts():
            return _due_facts_sql(sql, query)
        case ListLeasedJobs():
            # The last condition is spelled as in the partial index job_held.
            return (
                f"{select_from(sql, Kind.JOB)} WHERE holder = {sql.bind(query.holder)} "
                f"AND tenant = {sql.bind(query.tenant)} AND lease_until >= {sql.now} AND lease_until > 0 ORDER BY id"
            )
    raise TypeError(f"{type(query).__name__} is not one of the queries")


def _inputs_sql(sql: SqlWriter, query: ListInputs) -> str:
    return (
        f'SELECT job_id, kind, "index", data FROM {sql.table("attachment")} '
        f"WHERE job_id {sql.bind_one_of(query.job_ids)} AND kind = {sql.bind(int(AttachmentKind.INPUT))} "
        'AND "index" = 0 ORDER BY job_id'
    )


def _live_keys_sql(sql: SqlWriter) -> str:
    until = "CASE WHEN lease_until > expires_at THEN lease_until ELSE expires_at END"
    return (
        f"SELECT count(*), coalesce(max({until}), 0) FROM {sql.table('record')} WHERE {until} >= {sql.now} "
        f"AND NOT (actor = {sql.bind(SCHEDULE_ACTOR)} AND scope = {sql.bind(SCHEDULE_SCOPE)})"
    )


def select_from(sql: SqlWriter, kind: Kind) -> str:
    table = TABLES[kind]
    return f"SELECT {', '.join(f'{table}.{name}' for name in columns(kind))} FROM {sql.table(table)}"


def _of_tenant(sql: SqlWriter, tenant: str | None) -> str:
    return "" if tenant is None else f"WHERE tenant = {sql.bind(tenant)}"


def _in_tenant_range(sql: SqlWriter, tenant: str | None, after: bytes = b"") -> str:
    """The identities of a tenant are one range, so the rows of other tenants are not examined."""
    if tenant is None:
        return ""
    first = tenant_prefix(tenant)
    return f"WHERE id > {sql.bind(max(after, first))} AND id < {sql.bind(first + _ID_SUFFIX_MAX)}"


def _job_counts_sql(sql: SqlWriter, query: CountJobs) -> str:
    # Grouped in the order of the index job_state first: SQLite would sort all jobs otherwise.
    counted = (
        f"SELECT tenant, state, type, count(*) AS count FROM {sql.table('job')} {_of_tenant(sql, query.tenant)} "
        "GROUP BY tenant, state, type"
    )
    return (
        f"SELECT type, state, CAST(sum(count) AS bigint) FROM ({counted}) AS counted "
        "GROUP BY type, state ORDER BY sum(count) DESC, type, state"
    )


def _facts_sql(sql: SqlWriter, query: ListFacts) -> str:
    if query.tenant is None:
        return f"{select_from(sql, query.kind)} WHERE id > {sql.bind(query.after)} ORDER BY id"
    if query.kind is Kind.JOB:
        return (
            f"{select_from(sql, Kind.JOB)} WHERE tenant = {sql.bind(query.tenant)} AND id > {sql.bind(query.after)} "
            "ORDER BY id"
        )
    return (
        f"{select_from(sql, query.kind)} {_in_tenant_range(sql, query.tenant, query.after)} "
        f"AND tenant = {sql.bind(query.tenant)} ORDER BY id"
    )


def _ready_counts_sql(sql: SqlWriter, query: CountReadyJobs) -> str:
    where = f"{_of_tenant(sql, query.tenant) or 'WHERE true'} AND {CLAIMABLE_CONDITION} AND run_at <= {sql.now}"
    return (
        f"SELECT type, count(*), min({sql.hex('id')}) FILTER (WHERE run_at = 0), min(run_at) FILTER (WHERE run_at > 0) "
        f"FROM {sql.table('job')} {where} GROUP BY type ORDER BY count(*) DESC, type"
    )


def _jobs_sql(sql: SqlWriter, query: ListJobs, oldest_id: bytes) -> str:
    text = f"{select_from(sql, Kind.JOB)} WHERE tenant = {sql.bind(query.tenant)}"
    for column, value in _filters(query):
        text += f" AND job.{column} = {sql.bind(value)}"
    if query.usage_id:  # spelled as in the partial index job_usage
        text += f" AND usage_id = {sql.bind(query.usage_id)} AND usage_id <> {sql.empty_bytes}"
    if query.label:  # as the first member of the object, or as a later one; quotes inside of texts are escaped
        first, later = sql.position(b"{" + query.label, "labels"), sql.position(b"," + query.label, "labels")
        text += f" AND ({first} = 1 OR {later} > 0)"
    if query.created_from:
        first_id = _id_at(query.created_from - _ID_SLACK_MS)
        text += f" AND created_at >= {sql.bind(query.created_from)} AND id >= {sql.bind(first_id)}"
    if query.created_to:
        last_id = _id_at(query.created_to + _ID_SLACK_MS)
        text += f" AND created_at <= {sql.bind(query.created_to)} AND id < {sql.bind(last_id)}"
    if query.before:
        text += f" AND id < {sql.bind(query.before)}"
    if oldest_id:
        text += f" AND id >= {sql.bind(oldest_id)}"
    return f"{text} ORDER BY id DESC"


def _filters(query: ListJobs) -> list[tuple[str, str]]:
    named = (("state", query.state), ("type", query.type), ("user", query.user))
    return [(column, str(value)) for column, value in named if value is not None]


PlanSteps = Generator[tuple[str, list[Any]], Sequence[Any], ScanPlan]


def plan_scan(query: Query[Any], make_writer: Callable[[], SqlWriter]) -> PlanSteps:
    """Yields statements with their values, is sent their rows, and returns the plan."""
    if not isinstance(query, ListJobs) or query.usage_id:
        return ScanPlan()
    indexed = query.user is None and not query.label
    if indexed and query.state is not None and query.type is None:
        sql = make_writer()
        types = tuple(row[0] for row in (yield _types_sql(sql, query), sql.values))
        if len(types) <= TYPES_MERGED_MAX:
            return ScanPlan(types=types)
    elif indexed and (query.state is None) == (query.type is None):
        return ScanPlan()
    sql = make_writer()
    rows = yield _oldest_id_sql(sql, query), sql.values
    return ScanPlan(oldest_id=rows[0][0] if rows else b"")


def _types_sql(sql: SqlWriter, query: ListJobs) -> str:
    """The types with jobs in a state, by a loose scan of the index job_state."""
    of_state = (
        f"FROM {sql.table('job')} WHERE tenant = {sql.bind(query.tenant)} AND state = {sql.bind(str(query.state))}"
    )
    return (
        f"WITH RECURSIVE one (type) AS (SELECT (SELECT min(type) {of_state}) UNION ALL "
        f"SELECT (SELECT min(type) {of_state} AND type > one.type) FROM one WHERE one.type IS NOT NULL) "
        f"SELECT type FROM one WHERE type IS NOT NULL LIMIT {TYPES_MERGED_MAX + 1}"
    )


def _oldest_id_sql(sql: SqlWriter, query: ListJobs) -> str:
    """The oldest job that a filtered page may examine."""
    newest = query.before or b"\xff" * (JOB_ID_BYTES + 1)
    if query.created_to:
        newest = min(newest, _id_at(query.created_to + _ID_SLACK_MS))
    return (
        f"SELECT id FROM {sql.table('job')} WHERE tenant = {sql.bind(query.tenant)} AND id < {sql.bind(newest)} "
        f"ORDER BY id DESC LIMIT 1 OFFSET {sql.bind(EXAMINED_MAX - 1)}"
    )


def _merged_jobs_sql(sql: SqlWriter, query: ListJobs, types: Sequence[str]) -> str:
    parts = (_jobs_sql(sql, replace(query, type=type), b"") for type in types)
    merged = " UNION ALL ".join(
        f"SELECT * FROM ({part} LIMIT {query.limit + 1}) AS part_{n}" for n, part in enumerate(parts)
    )
    return f"SELECT * FROM ({merged}) AS merged ORDER BY id DESC"


def _id_at(ms: int) -> bytes:
    """The smallest id that was drawn at a time."""
    return max(ms, 0).to_bytes(6, "big") + bytes(JOB_ID_BYTES - 6)


def _attachments_sql(sql: SqlWriter, query: ListAttachments) -> str:
    # The upper half of the unsigned numbers is stored as negative ones.
    start = u64_to_signed(query.start)
    return (
        f'SELECT job_id, kind, "index", data FROM {sql.table("attachment")} '
        f"WHERE job_id = {sql.bind(query.job_id)} AND kind = {sql.bind(int(query.kind))} "
        f'AND ("index" < 0, "index") >= ({sql.bind(start < 0)}, {sql.bind(start)}) '
        f"AND EXISTS (SELECT 1 FROM {sql.table('job')} WHERE id = job_id AND tenant = {sql.bind(query.tenant)}) "
        'ORDER BY "index" < 0, "index"'
    )


def _due_facts_sql(sql: SqlWriter, query: ListDueFacts) -> str:
    names = DUE_FIELDS[query.kind]
    first = names[0]
    due_at, id = query.after
    # The cursor comes first, because SQLite starts its search at the first of several lower bounds.
    return (
        f"{select_from(sql, query.kind)} WHERE ({first}, id) > ({sql.bind(due_at)}, {sql.bind(id)}) "
        f"AND {' AND '.join(f'{name} < {sql.now}' for name in names)} AND {first} > 0 ORDER BY {first}, id"
    )


def build_page(query: Query[Any], rows: Sequence[Any], plan: ScanPlan) -> Page[Any]:
    """The rows are one more than the limit if there is a next page."""
    oldest_id = plan.oldest_id
    is_full = len(rows) > query.limit
    return Page(_parse_rows(query, rows[: query.limit]), is_full or bool(oldest_id), b"" if is_full else oldest_id)


def _parse_rows(query: Query[Any], rows: Sequence[Any]) -> list[Any]:
    match query:
        case ListBacklogs():
            return [Backlog(tenant, wait_ms) for tenant, wait_ms in rows]
        case CountJobs():
            return [JobCount(type, JobState(state), count) for type, state, count in rows]
        case CountReadyJobs():
            return [ReadyCount(type, count, _oldest_at(id, run_at)) for type, count, id, run_at in rows]
        case CountKeys() | CountCommits():
            return [count for (count,) in rows]
        case CountLiveKeys():
            return [LiveKeyCount(*row) for row in rows]
        case ListAttachments() | ListInputs():
            return [Attachment(id, AttachmentKind(kind), U64(u64_from_signed(n)), data) for id, kind, n, data in rows]
        case ListFacts() | ListDueFacts():
            return [fact_from_row(query.kind, row) for row in rows]
    return [fact_from_row(Kind.JOB, row) for row in rows]


def _oldest_at(id_hex: str | None, run_at: int | None) -> int:
    times = [] if run_at is None else [run_at]
    if id_hex is not None:
        times.append(created_ms(bytes.fromhex(id_hex)))
    return min(times)


@cache
def load_migrations(package: str) -> tuple[str, ...]:
    """The texts of a package's 0001_….sql, 0002_….sql, …, in order."""
    folder = resources.files(package)
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    return tuple((folder / name).read_text(encoding="utf-8") for name in names)
