"""The closed list of questions, in PostgreSQL's words."""

from typing import Any

from onejob.core.facts import JOB_ID_BYTES, U64, Attachment, AttachmentKind, Kind
from onejob.core.identity import tenant_prefix
from onejob.core.maintenance import DUE_FIELDS
from onejob.core.states import CLAIMABLE_STATES
from onejob.engine import (
    Backlog,
    ListAttachments,
    ListBacklogs,
    ListDueFacts,
    ListFacts,
    ListInputs,
    ListJobs,
    ListLeasedJobs,
    ListReadyJobs,
    Page,
    Query,
)
from onejob.engines.codec import TABLES, fact_from_row, u64_from_signed, u64_to_signed

from .statements import Statements

# What waits to be run, found by steps over one index: each step skips all that has the same beginning.
#
# So a page costs what it has, and not what a tenant has waiting: neither a million jobs that are ready, nor a
# million whose time has not come.


# Spelled as in the index job_ready, which serves this test only.
CLAIMABLE_CONDITION = f"state IN ({', '.join(repr(str(state)) for state in sorted(CLAIMABLE_STATES))})"
_WANTED_TYPES = "(SELECT DISTINCT unnest($1::text[]) AS name) AS wanted"


def ready_jobs_sql(statements: Statements, query: ListReadyJobs, now: str) -> tuple[str, list[Any]]:
    """The most urgent jobs; of one tenant priority by priority."""
    order = "ORDER BY priority DESC, run_at, id"
    job = f"SELECT {statements.columns(Kind.JOB)} FROM {statements.table('job')}"
    due = f"AND run_at <= {now} AND lease_until < {now}"
    if query.tenant is None:
        each = f"{job} WHERE type = wanted.name AND {CLAIMABLE_CONDITION} {due}"
        return f"SELECT job.* FROM {_WANTED_TYPES} CROSS JOIN LATERAL ({each}) AS job {order}", [list(query.types)]
    line = f"FROM {statements.table('job')} WHERE type = name AND tenant = $2 AND {CLAIMABLE_CONDITION}"
    levels = (
        f"SELECT name, (SELECT max(priority) {line}) AS priority FROM {_WANTED_TYPES} UNION ALL "
        f"SELECT name, (SELECT max(priority) {line} AND priority < level.priority) FROM level "
        "WHERE level.priority IS NOT NULL"
    )
    each = (
        f"{job} WHERE type = name AND tenant = $2 AND {CLAIMABLE_CONDITION} AND priority = level.priority {due} "
        f"ORDER BY run_at, id LIMIT {query.limit + 1}"
    )
    sql = f"WITH RECURSIVE level AS ({levels}) SELECT job.* FROM level CROSS JOIN LATERAL ({each}) AS job {order}"
    return sql, [list(query.types), query.tenant]


def backlogs_sql(statements: Statements, query: ListBacklogs, now: str) -> tuple[str, list[Any]]:
    """The tenants of a page, each with the milliseconds until the first of its jobs may run."""
    line = f"FROM {statements.table('job')} WHERE type = name AND {CLAIMABLE_CONDITION}"
    if query.tenant is None:
        steps = (
            f"SELECT name, (SELECT min(tenant) {line} AND tenant > $2::text) AS tenant, 1 AS n FROM {_WANTED_TYPES} "
            f"UNION ALL SELECT name, (SELECT min(tenant) {line} AND tenant > step.tenant), n + 1 FROM step "
            f"WHERE step.tenant IS NOT NULL AND n <= {query.limit}"
        )
        tenants = (
            f"WITH RECURSIVE step AS ({steps}) SELECT DISTINCT tenant FROM step WHERE tenant IS NOT NULL "
            f"ORDER BY tenant LIMIT {query.limit + 1}"
        )
        values = [list(query.types), query.after]
    else:
        tenants = "SELECT $3::text AS tenant WHERE $3::text > $2::text"
        values = [list(query.types), query.after, query.tenant]
    # Down the priorities, until there is one with a job whose time has come.
    head = f"SELECT priority, run_at {line} AND tenant = own.tenant"
    first = "ORDER BY priority DESC, run_at LIMIT 1"
    down = (
        f"({head} {first}) UNION ALL SELECT below.* FROM heads CROSS JOIN LATERAL "
        f"({head} AND priority < heads.priority {first}) AS below WHERE heads.run_at > {now}"
    )
    earliest = f"WITH RECURSIVE heads AS ({down}) SELECT min(run_at) AS run_at FROM heads"
    sql = (
        f"SELECT own.tenant, greatest(min(early.run_at) - {now}, 0) FROM ({tenants}) AS own CROSS JOIN {_WANTED_TYPES} "
        f"CROSS JOIN LATERAL ({earliest}) AS early GROUP BY own.tenant HAVING min(early.run_at) IS NOT NULL "
        "ORDER BY own.tenant"
    )
    return sql, values


# A page of a filtered list looks at no more jobs than these: a few milliseconds, whatever a tenant has stored.
EXAMINED_MAX = 10_000


def build_statement(statements: Statements, query: Query[Any], oldest_id: bytes = b"") -> tuple[str, list[Any]]:
    """The statement for a query, and its values; with one more than the limit, to see whether there is more."""
    # Asked once and not for every row, so that an index can be used.
    now = f"(SELECT floor({statements.now})::bigint)"
    match query:
        case ListJobs():
            sql, values = _jobs_sql(statements, query, oldest_id)
        case ListFacts():
            sql, values = _facts_sql(statements, query)
        case ListAttachments():
            sql, values = _attachments_sql(statements, query)
        case ListDueFacts():
            sql, values = _due_facts_sql(statements, query, now)
        case ListReadyJobs():
            sql, values = ready_jobs_sql(statements, query, now)
        case ListBacklogs():
            sql, values = backlogs_sql(statements, query, now)
        case ListInputs():
            sql = (
                f"SELECT job_id, beside, index, data FROM {statements.table('attachment')} "
                "WHERE job_id = ANY ($1::bytea[]) AND beside = $2 AND index = 0 ORDER BY job_id"
            )
            values = [list(query.job_ids), int(AttachmentKind.INPUT)]
        case ListLeasedJobs():
            # The last test is spelled as in the index job_held, which has only leases.
            sql = (
                f"{_select_from(statements, Kind.JOB)} WHERE holder = $1 AND tenant = $2 AND lease_until >= {now} "
                "AND lease_until > 0 ORDER BY id"
            )
            values = [query.holder, query.tenant]
        case _:
            raise TypeError(f"{type(query).__name__} is not one of the queries")
    return f"{sql} LIMIT {query.limit + 1}", values


def parse_rows(query: Query[Any], rows: list[Any]) -> list[Any]:
    match query:
        case ListBacklogs():
            return [Backlog(tenant, wait_ms) for tenant, wait_ms in rows]
        case ListAttachments() | ListInputs():
            return [
                Attachment(id, AttachmentKind(beside), U64(u64_from_signed(n)), data) for id, beside, n, data in rows
            ]
        case ListFacts() | ListDueFacts():
            return [fact_from_row(query.kind, tuple(row)) for row in rows]
    return [fact_from_row(Kind.JOB, tuple(row)) for row in rows]


def build_page(query: Query[Any], rows: list[Any], oldest_id: bytes) -> Page[Any]:
    full = len(rows) > query.limit
    return Page(parse_rows(query, rows[: query.limit]), full or bool(oldest_id), b"" if full else oldest_id)


def build_oldest_id_statement(statements: Statements, query: Query[Any]) -> tuple[str, list[Any]] | None:
    """How to ask for the oldest job that a page with a filter looks at; None when it may look at all."""
    if not isinstance(query, ListJobs) or not _filters(query):
        return None
    newest = query.before or b"\xff" * (JOB_ID_BYTES + 1)
    sql = f"SELECT id FROM {statements.table('job')} WHERE tenant = $1 AND id < $2 ORDER BY id DESC LIMIT 1 OFFSET $3"
    return sql, [query.tenant, newest, EXAMINED_MAX - 1]


def _select_from(statements: Statements, kind: Kind) -> str:
    return f"SELECT {statements.columns(kind)} FROM {statements.table(TABLES[kind])}"


def _attachments_sql(statements: Statements, query: ListAttachments) -> tuple[str, list[Any]]:
    # The upper half of the unsigned numbers is stored as negative ones.
    sql = (
        f"SELECT job_id, beside, index, data FROM {statements.table('attachment')} AS a WHERE job_id = $1 AND beside = $2 "
        "AND (index < 0, index) >= ($3::bigint < 0, $3::bigint) AND EXISTS (SELECT 1 FROM "
        f"{statements.table('job')} WHERE id = a.job_id AND tenant = $4) ORDER BY index < 0, index"
    )
    return sql, [query.job_id, int(query.kind), u64_to_signed(query.start), query.tenant]


def _facts_sql(statements: Statements, query: ListFacts) -> tuple[str, list[Any]]:
    if query.kind is Kind.JOB:
        sql = f"{_select_from(statements, Kind.JOB)} WHERE tenant = $1 AND id > $2 ORDER BY id"
        return sql, [query.tenant, query.after]
    # The identities of a tenant are one range: the rows of others are not even looked at.
    first = tenant_prefix(query.tenant)
    sql = f"{_select_from(statements, query.kind)} WHERE id > $1 AND id < $2 AND tenant = $3 ORDER BY id"
    return sql, [max(query.after, first), first + b"\xff" * 200, query.tenant]


def _due_facts_sql(statements: Statements, query: ListDueFacts, now: str) -> tuple[str, list[Any]]:
    names = DUE_FIELDS[query.kind]
    first = names[0]
    past = " AND ".join(f"{name} < {now}" for name in names)
    sql = (
        f"{_select_from(statements, query.kind)} WHERE ({first}, id) > ($1::bigint, $2::bytea) AND {past} AND {first} > 0 "
        f"ORDER BY {first}, id"
    )
    return sql, list(query.after)


def _jobs_sql(statements: Statements, query: ListJobs, oldest_id: bytes) -> tuple[str, list[Any]]:
    tests: list[tuple[str, Any]] = [("tenant = ", query.tenant), *_filters(query)]
    if query.usage_id:  # in the words of its index, which has only marked jobs
        tests.append(("slot <> '' AND slot = ", query.usage_id))
    if query.before:
        tests.append(("id < ", query.before))
    if oldest_id:
        tests.append(("id >= ", oldest_id))
    where = " AND ".join(f"{test}${n}" for n, (test, _) in enumerate(tests, start=1))
    return f"{_select_from(statements, Kind.JOB)} WHERE {where} ORDER BY id DESC", [value for _, value in tests]


def _filters(query: ListJobs) -> list[tuple[str, str]]:
    named = (("state", query.state), ("type", query.type), ("user", query.user))
    return [(f'"{name}" = ', str(value)) for name, value in named if value is not None]
