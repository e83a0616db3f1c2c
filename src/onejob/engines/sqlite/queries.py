"""The closed list of questions, in SQLite's words."""

from typing import Any

import apsw

from onejob.core.facts import JOB_ID_BYTES, U64, Attachment, AttachmentKind, Job, Kind
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
from onejob.engines.codec import TABLES, columns, fact_from_row, u64_from_signed, u64_to_signed

# What waits to be run, found by steps over one index: each step skips all that has the same beginning.
#
# So a page costs what it has, and not what a tenant has waiting: neither a million jobs that are ready, nor a
# million whose time has not come.


# Spelled as in the index job_ready, which serves this test only.
CLAIMABLE_CONDITION = f"state IN ({', '.join(repr(str(state)) for state in sorted(CLAIMABLE_STATES))})"
_FROM_CLAIMABLE = f"FROM job WHERE type = ? AND tenant = ? AND {CLAIMABLE_CONDITION}"
# The next lower priority that a tenant has waiting, and the earliest time among its jobs.
NEXT_PRIORITY = f"SELECT priority, run_at {_FROM_CLAIMABLE} AND priority < ? ORDER BY priority DESC, run_at LIMIT 1"
READY_AT_PRIORITY = (
    f"SELECT {', '.join(columns(Kind.JOB))} {_FROM_CLAIMABLE} "
    "AND priority = ? AND run_at <= ? AND lease_until < ? ORDER BY run_at, id LIMIT ?"
)
NEXT_TENANT = f"SELECT tenant FROM job WHERE type = ? AND tenant > ? AND {CLAIMABLE_CONDITION} ORDER BY tenant LIMIT 1"
_INT64_MAX = 2**63 - 1


def list_ready_jobs(db: apsw.Connection, query: ListReadyJobs, tenant: str, now: int) -> Page[Job]:
    """The most urgent jobs, priority by priority."""
    found: list[Job] = []
    tops = {type: _next_priority(db, type, tenant, _INT64_MAX) for type in query.types}
    wanted = query.limit + 1
    while len(found) < wanted:
        top = max((head[0] for head in tops.values() if head is not None), default=None)
        if top is None:
            break
        same: list[Job] = []
        for type, head in tops.items():
            if head is not None and head[0] == top:
                if head[1] <= now:
                    values = (type, tenant, top, now, now, wanted - len(found))
                    same += (fact_from_row(Kind.JOB, row) for row in db.execute(READY_AT_PRIORITY, values))
                tops[type] = _next_priority(db, type, tenant, top)
        found += sorted(same, key=lambda job: (job.run_at, job.id))
    return Page(found[: query.limit], len(found) > query.limit)


def list_backlogs(db: apsw.Connection, query: ListBacklogs, now: int) -> Page[Backlog]:
    types = tuple(dict.fromkeys(query.types))
    found: list[Backlog] = []
    for tenant in _tenants_with_backlog(db, query, types):
        earliest = min(_earliest_run_at(db, type, tenant, now) for type in types)
        if earliest < _INT64_MAX:
            found.append(Backlog(tenant, max(earliest - now, 0)))
    return Page(found[: query.limit], len(found) > query.limit)


def _tenants_with_backlog(db: apsw.Connection, query: ListBacklogs, types: tuple[str, ...]) -> list[str]:
    """The first few that have something waiting, one more than the page may have."""
    if query.tenant is not None:
        return [query.tenant] if query.tenant > query.after and types else []
    tenants: set[str] = set()
    for type in types:
        tenant: str | None = query.after
        for _ in range(query.limit + 1):
            row: Any = db.execute(NEXT_TENANT, (type, tenant)).fetchone()
            if row is None:
                break
            tenant = row[0]
            tenants.add(row[0])
    return sorted(tenants)[: query.limit + 1]


def _earliest_run_at(db: apsw.Connection, type: str, tenant: str, now: int) -> int:
    """When the first job of a type may run; whatever is past is the same."""
    earliest = _INT64_MAX
    head = _next_priority(db, type, tenant, _INT64_MAX)
    while head is not None and earliest > now:
        earliest = min(earliest, head[1])
        head = _next_priority(db, type, tenant, head[0])
    return earliest


def _next_priority(db: apsw.Connection, type: str, tenant: str, below: int) -> tuple[int, int] | None:
    row: Any = db.execute(NEXT_PRIORITY, (type, tenant, below)).fetchone()
    return None if row is None else (row[0], row[1])


# A page of a filtered list looks at no more jobs than these: a few milliseconds, whatever a tenant has stored.
EXAMINED_MAX = 10_000


def run_query(db: apsw.Connection, query: Query[Any], now: int) -> Page[Any]:
    if isinstance(query, ListBacklogs):
        return list_backlogs(db, query, now)
    if isinstance(query, ListReadyJobs) and query.tenant is not None:
        return list_ready_jobs(db, query, query.tenant, now)
    least = _oldest_examined_id(db, query) if isinstance(query, ListJobs) else b""
    sql, values = build_statement(query, now, least)
    rows = db.execute(sql, values).fetchall()
    full = len(rows) > query.limit
    return Page(parse_rows(query, rows[: query.limit]), full or bool(least), b"" if full else least)


def build_statement(query: Query[Any], now: int, oldest_id: bytes = b"") -> tuple[str, list[Any]]:
    """The statement for a query, and its values; the limit comes last, with one more to see whether there is more."""
    match query:
        case ListJobs():
            sql, values = _jobs_sql(query, oldest_id)
        case ListFacts():
            sql, values = _facts_sql(query)
        case ListAttachments():
            sql, values = _attachments_sql(query)
        case ListInputs():
            marks = ", ".join("?" * len(query.job_ids))
            sql = (
                'SELECT job_id, beside, "index", data FROM attachment '
                f'WHERE job_id IN ({marks}) AND beside = ? AND "index" = 0 ORDER BY job_id'
            )
            values = [*query.job_ids, int(AttachmentKind.INPUT)]
        case ListDueFacts():
            sql, values = _due_facts_sql(query, now)
        case ListReadyJobs():
            marks = ", ".join("?" * len(query.types))
            sql = (
                f"{_select_from(Kind.JOB)} WHERE type IN ({marks}) AND {CLAIMABLE_CONDITION} "
                "AND run_at <= ? AND lease_until < ? ORDER BY priority DESC, run_at, id"
            )
            values = [*query.types, now, now]
        case ListLeasedJobs():
            # The last test is spelled as in the index job_held, which has only leases.
            sql = (
                f"{_select_from(Kind.JOB)} WHERE holder = ? AND tenant = ? AND lease_until >= ? AND lease_until > 0 "
                "ORDER BY id"
            )
            values = [query.holder, query.tenant, now]
        case _:
            raise TypeError(f"{type(query).__name__} is not one of the queries")
    return f"{sql} LIMIT ?", [*values, query.limit + 1]


def parse_rows(query: Query[Any], rows: list[Any]) -> list[Any]:
    match query:
        case ListAttachments() | ListInputs():
            return [
                Attachment(id, AttachmentKind(beside), U64(u64_from_signed(n)), data) for id, beside, n, data in rows
            ]
        case ListFacts() | ListDueFacts():
            return [fact_from_row(query.kind, row) for row in rows]
    return [fact_from_row(Kind.JOB, row) for row in rows]


def _select_from(kind: Kind) -> str:
    return f"SELECT {', '.join(columns(kind))} FROM {TABLES[kind]}"


def _attachments_sql(query: ListAttachments) -> tuple[str, list[Any]]:
    sql = (
        'SELECT job_id, beside, "index", data FROM attachment WHERE job_id = ? AND beside = ? '
        'AND ("index" < 0, "index") >= (? < 0, ?) AND EXISTS (SELECT 1 FROM job WHERE id = job_id '
        'AND tenant = ?) ORDER BY "index" < 0, "index"'  # the upper half is stored as negative numbers
    )
    start = u64_to_signed(query.start)
    return sql, [query.job_id, int(query.kind), start, start, query.tenant]


def _facts_sql(query: ListFacts) -> tuple[str, list[Any]]:
    if query.kind is Kind.JOB:
        return f"{_select_from(Kind.JOB)} WHERE tenant = ? AND id > ? ORDER BY id", [
            query.tenant,
            query.after,
        ]
    # The identities of a tenant are one range: the rows of others are not even looked at.
    first = tenant_prefix(query.tenant)
    sql = f"{_select_from(query.kind)} WHERE id > ? AND id < ? AND tenant = ? ORDER BY id"
    return sql, [max(query.after, first), first + b"\xff" * 200, query.tenant]


def _due_facts_sql(query: ListDueFacts, now: int) -> tuple[str, list[Any]]:
    names = DUE_FIELDS[query.kind]
    first = names[0]
    past = " AND ".join(f"{name} < ?" for name in names)
    # The cursor stands first, for SQLite begins its search at the first of several lower bounds.
    sql = f"{_select_from(query.kind)} WHERE ({first}, id) > (?, ?) AND {past} AND {first} > 0 ORDER BY {first}, id"
    return sql, [*query.after, *(now for _ in names)]


def _jobs_sql(query: ListJobs, oldest_id: bytes) -> tuple[str, list[Any]]:
    tests: list[tuple[str, Any]] = [("tenant = ?", query.tenant), *_filters(query)]
    if query.usage_id:  # in the words of its index, which has only marked jobs
        tests.append(("slot = ? AND slot <> x''", query.usage_id))
    if query.before:
        tests.append(("id < ?", query.before))
    if oldest_id:
        tests.append(("id >= ?", oldest_id))
    where = " AND ".join(test for test, _ in tests)
    return f"{_select_from(Kind.JOB)} WHERE {where} ORDER BY id DESC", [value for _, value in tests]


def _filters(query: ListJobs) -> list[tuple[str, str]]:
    named = (("state", query.state), ("type", query.type), ("user", query.user))
    return [(f"{name} = ?", str(value)) for name, value in named if value is not None]


def _oldest_examined_id(db: apsw.Connection, query: ListJobs) -> bytes:
    """The oldest job that a page with a filter looks at; empty when it may look at all."""
    if not _filters(query):
        return b""
    newest = query.before or b"\xff" * (JOB_ID_BYTES + 1)
    sql = "SELECT id FROM job WHERE tenant = ? AND id < ? ORDER BY id DESC LIMIT 1 OFFSET ?"
    row = db.execute(sql, (query.tenant, newest, EXAMINED_MAX - 1)).fetchone()
    return b"" if row is None else bytes(row[0])
