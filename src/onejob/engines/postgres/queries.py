"""The closed list of questions, in PostgreSQL's words."""

from typing import Any

from onejob.core.facts import U64, Attachment, Beside, Kind
from onejob.core.identity import tenant_prefix
from onejob.engine import Attachments, Due, JobPage, Listing, Query, Ready
from onejob.engines.codec import fact_of, fold_u64, unfold_u64

from .statements import Statements

_DUE = {
    Kind.RECORD: "expires_at < {now} AND lease_until < {now} ORDER BY expires_at",
    Kind.JOB: "due_at > 0 AND due_at < {now} ORDER BY due_at",
    Kind.STREAM: "expires_at > 0 AND expires_at < {now} ORDER BY expires_at",
}


def asked(words: Statements, query: Query[Any]) -> tuple[str, list[Any]]:
    """The statement for a query, and its values; with one more than the limit, to see whether there is more."""
    # Asked once and not for every row, so that an index can be used.
    now = f"(SELECT floor({words.now})::bigint)"
    match query:
        case JobPage():
            sql, values = _job_page(words, query)
        case Listing():
            sql, values = _listing(words, query)
        case Attachments():
            sql, values = _attachments(words, query)
        case Due():
            sql, values = f"{_from(words, query.kind)} WHERE {_DUE[query.kind].format(now=now)}", []
        case Ready():
            sql, values = _ready(words, query, now)
        case _:
            raise TypeError(f"{type(query).__name__} is not one of the queries")
    return f"{sql} LIMIT {query.limit + 1}", values


def items(query: Query[Any], rows: list[Any]) -> list[Any]:
    match query:
        case Attachments():
            return [Attachment(id, Beside(beside), U64(unfold_u64(n)), data) for id, beside, n, data in rows]
        case Listing() | Due():
            return [fact_of(query.kind, tuple(row)) for row in rows]
    return [fact_of(Kind.JOB, tuple(row)) for row in rows]


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


def _ready(words: Statements, query: Ready, now: str) -> tuple[str, list[Any]]:
    # Of each type its most urgent ones, which an index has in order: all that are ready are never sorted.
    order = "ORDER BY priority DESC, run_at, id"
    each = (
        f"{_from(words, Kind.JOB)} WHERE type = wanted.name AND state IN ('pending', 'scheduled') "
        f"AND run_at <= {now} AND lease_until < {now} {order} LIMIT {query.limit + 1}"
    )
    types = "(SELECT DISTINCT unnest($1::text[]) AS name) AS wanted"
    return f"SELECT job.* FROM {types} CROSS JOIN LATERAL ({each}) AS job {order}", [list(query.types)]


def _listing(words: Statements, query: Listing) -> tuple[str, list[Any]]:
    if query.kind is Kind.JOB:
        sql = f"{_from(words, Kind.JOB)} WHERE tenant = $1 AND id > $2 ORDER BY id"
        return sql, [query.tenant, query.after]
    # The identities of a tenant are one range: the rows of others are not even looked at.
    first = tenant_prefix(query.tenant)
    sql = f"{_from(words, query.kind)} WHERE id > $1 AND id < $2 AND tenant = $3 ORDER BY id"
    return sql, [max(query.after, first), first + b"\xff" * 200, query.tenant]


def _job_page(words: Statements, query: JobPage) -> tuple[str, list[Any]]:
    tests, values = ["tenant = $1"], [query.tenant]
    for name, value in (("state", query.state), ("type", query.type), ("user", query.user)):
        if value is not None:
            values.append(str(value))
            tests.append(f'"{name}" = ${len(values)}')
    bounds: list[Any] = list(values)
    if query.before:
        bounds.append(query.before)
        tests.append(f"id < ${len(bounds)}")
    return f"{_from(words, Kind.JOB)} WHERE {' AND '.join(tests)} ORDER BY id DESC", bounds
