"""The closed list of questions, in PostgreSQL's words."""

from typing import Any

from onejob.core.facts import JOB_ID_BYTES, U64, Attachment, Beside, Kind
from onejob.core.identity import tenant_prefix
from onejob.core.upkeep import DUE
from onejob.engine import (
    Attachments,
    Backlog,
    Due,
    Held,
    Inputs,
    JobPage,
    Listing,
    Page,
    Query,
    Ready,
    Waiting,
)
from onejob.engines.codec import fact_of, fold_u64, unfold_u64

from . import waiting
from .statements import Statements

# A page of a filtered list looks at no more jobs than these: a few milliseconds, whatever a tenant has stored.
EXAMINED_MAX = 10_000


def asked(words: Statements, query: Query[Any], least: bytes = b"") -> tuple[str, list[Any]]:
    """The statement for a query, and its values; with one more than the limit, to see whether there is more."""
    # Asked once and not for every row, so that an index can be used.
    now = f"(SELECT floor({words.now})::bigint)"
    match query:
        case JobPage():
            sql, values = _job_page(words, query, least)
        case Listing():
            sql, values = _listing(words, query)
        case Attachments():
            sql, values = _attachments(words, query)
        case Due():
            sql, values = _due(words, query, now)
        case Ready():
            sql, values = waiting.ready(words, query, now)
        case Waiting():
            sql, values = waiting.backlogs(words, query, now)
        case Inputs():
            sql = (
                f"SELECT job_id, beside, index, data FROM {words.table('attachment')} "
                "WHERE job_id = ANY ($1::bytea[]) AND beside = $2 AND index = 0 ORDER BY job_id"
            )
            values = [list(query.job_ids), int(Beside.INPUT)]
        case Held():
            # The last test is spelled as in the index job_held, which has only leases.
            sql = (
                f"{_from(words, Kind.JOB)} WHERE holder = $1 AND tenant = $2 AND lease_until >= {now} "
                "AND lease_until > 0 ORDER BY id"
            )
            values = [query.holder, query.tenant]
        case _:
            raise TypeError(f"{type(query).__name__} is not one of the queries")
    return f"{sql} LIMIT {query.limit + 1}", values


def items(query: Query[Any], rows: list[Any]) -> list[Any]:
    match query:
        case Waiting():
            return [Backlog(tenant, wait_ms) for tenant, wait_ms in rows]
        case Attachments() | Inputs():
            return [Attachment(id, Beside(beside), U64(unfold_u64(n)), data) for id, beside, n, data in rows]
        case Listing() | Due():
            return [fact_of(query.kind, tuple(row)) for row in rows]
    return [fact_of(Kind.JOB, tuple(row)) for row in rows]


def page(query: Query[Any], rows: list[Any], least: bytes) -> Page[Any]:
    full = len(rows) > query.limit
    return Page(items(query, rows[: query.limit]), full or bool(least), b"" if full else least)


def bound(words: Statements, query: Query[Any]) -> tuple[str, list[Any]] | None:
    """How to ask for the oldest job that a page with a filter looks at; None when it may look at all."""
    if not isinstance(query, JobPage) or not _filters(query):
        return None
    newest = query.before or b"\xff" * (JOB_ID_BYTES + 1)
    sql = f"SELECT id FROM {words.table('job')} WHERE tenant = $1 AND id < $2 ORDER BY id DESC LIMIT 1 OFFSET $3"
    return sql, [query.tenant, newest, EXAMINED_MAX - 1]


def _from(words: Statements, kind: Kind) -> str:
    return f"SELECT {words.columns(kind)} FROM {words.table(kind.name.lower())}"


def _attachments(words: Statements, query: Attachments) -> tuple[str, list[Any]]:
    # The upper half of the unsigned numbers is stored as negative ones.
    sql = (
        f"SELECT job_id, beside, index, data FROM {words.table('attachment')} AS a WHERE job_id = $1 AND beside = $2 "
        "AND (index < 0, index) >= ($3::bigint < 0, $3::bigint) AND EXISTS (SELECT 1 FROM "
        f"{words.table('job')} WHERE id = a.job_id AND tenant = $4) ORDER BY index < 0, index"
    )
    return sql, [query.job_id, int(query.beside), fold_u64(query.start), query.tenant]


def _listing(words: Statements, query: Listing) -> tuple[str, list[Any]]:
    if query.kind is Kind.JOB:
        sql = f"{_from(words, Kind.JOB)} WHERE tenant = $1 AND id > $2 ORDER BY id"
        return sql, [query.tenant, query.after]
    # The identities of a tenant are one range: the rows of others are not even looked at.
    first = tenant_prefix(query.tenant)
    sql = f"{_from(words, query.kind)} WHERE id > $1 AND id < $2 AND tenant = $3 ORDER BY id"
    return sql, [max(query.after, first), first + b"\xff" * 200, query.tenant]


def _due(words: Statements, query: Due, now: str) -> tuple[str, list[Any]]:
    names = DUE[query.kind]
    first = names[0]
    past = " AND ".join(f"{name} < {now}" for name in names)
    sql = (
        f"{_from(words, query.kind)} WHERE ({first}, id) > ($1::bigint, $2::bytea) AND {past} AND {first} > 0 "
        f"ORDER BY {first}, id"
    )
    return sql, list(query.after)


def _job_page(words: Statements, query: JobPage, least: bytes) -> tuple[str, list[Any]]:
    tests: list[tuple[str, Any]] = [("tenant = ", query.tenant), *_filters(query)]
    if query.slot:  # in the words of its index, which has only marked jobs
        tests.append(("slot <> '' AND slot = ", query.slot))
    if query.before:
        tests.append(("id < ", query.before))
    if least:
        tests.append(("id >= ", least))
    where = " AND ".join(f"{test}${n}" for n, (test, _) in enumerate(tests, start=1))
    return f"{_from(words, Kind.JOB)} WHERE {where} ORDER BY id DESC", [value for _, value in tests]


def _filters(query: JobPage) -> list[tuple[str, str]]:
    named = (("state", query.state), ("type", query.type), ("user", query.user))
    return [(f'"{name}" = ', str(value)) for name, value in named if value is not None]
