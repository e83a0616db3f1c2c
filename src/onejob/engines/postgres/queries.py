"""The closed list of questions, in PostgreSQL's words."""

from typing import Any

from onejob.core.facts import JOB_ID_BYTES, U64, Attachment, AttachmentKind, Kind
from onejob.core.identity import tenant_prefix
from onejob.core.upkeep import DUE_FIELDS
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

from . import waiting
from .statements import Statements

# A page of a filtered list looks at no more jobs than these: a few milliseconds, whatever a tenant has stored.
EXAMINED_MAX = 10_000


def build_statement(
    statements: Statements, query: Query[Any], oldest_id: bytes = b""
) -> tuple[str, list[Any]]:
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
            sql, values = waiting.ready_jobs_sql(statements, query, now)
        case ListBacklogs():
            sql, values = waiting.backlogs_sql(statements, query, now)
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
                Attachment(id, AttachmentKind(beside), U64(u64_from_signed(n)), data)
                for id, beside, n, data in rows
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
    return f"{_select_from(statements, Kind.JOB)} WHERE {where} ORDER BY id DESC", [
        value for _, value in tests
    ]


def _filters(query: ListJobs) -> list[tuple[str, str]]:
    named = (("state", query.state), ("type", query.type), ("user", query.user))
    return [(f'"{name}" = ', str(value)) for name, value in named if value is not None]
