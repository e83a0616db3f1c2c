"""The closed list of questions, in SQLite's words."""

from typing import Any

from onejob.core.facts import U64, Attachment, Beside, Kind
from onejob.core.identity import tenant_prefix
from onejob.engine import Attachments, Due, JobPage, Listing, Query, Ready
from onejob.engines.codec import columns, fact_of, fold_u64, unfold_u64

_DUE = {
    Kind.RECORD: "expires_at < ? AND lease_until < ? ORDER BY expires_at",
    Kind.JOB: "due_at > 0 AND due_at < ? AND due_at < ? ORDER BY due_at",
    Kind.STREAM: "expires_at > 0 AND expires_at < ? AND expires_at < ? ORDER BY expires_at",
    Kind.TALLY: "due_at > 0 AND due_at < ? AND due_at < ? ORDER BY due_at",
}


def asked(query: Query[Any], now: int) -> tuple[str, list[Any]]:
    """The statement for a query, and its values; the limit comes last, with one more to see whether there is more."""
    match query:
        case JobPage():
            sql, values = _job_page(query)
        case Listing():
            sql, values = _listing(query)
        case Attachments():
            sql = (
                'SELECT job_id, beside, "index", data FROM attachment WHERE job_id = ? AND beside = ? '
                'AND ("index" < 0, "index") >= (? < 0, ?) AND EXISTS (SELECT 1 FROM job WHERE id = job_id '
                'AND tenant = ?) ORDER BY "index" < 0, "index"'  # the upper half is stored as negative numbers
            )
            start = fold_u64(query.start)
            values = [query.job_id, int(query.beside), start, start, query.tenant]
        case Due():
            sql, values = f"{_from(query.kind)} WHERE {_DUE[query.kind]}", [now, now]
        case Ready():
            marks = ", ".join("?" * len(query.types))
            sql = (
                f"{_from(Kind.JOB)} WHERE type IN ({marks}) AND state IN ('pending', 'scheduled') "
                "AND run_at <= ? AND lease_until < ? ORDER BY priority DESC, run_at, id"
            )
            values = [*query.types, now, now]
        case _:
            raise TypeError(f"{type(query).__name__} is not one of the queries")
    return f"{sql} LIMIT ?", [*values, query.limit + 1]


def items(query: Query[Any], rows: list[Any]) -> list[Any]:
    match query:
        case Attachments():
            return [Attachment(id, Beside(beside), U64(unfold_u64(n)), data) for id, beside, n, data in rows]
        case Listing() | Due():
            return [fact_of(query.kind, row) for row in rows]
    return [fact_of(Kind.JOB, row) for row in rows]


def _from(kind: Kind) -> str:
    return f"SELECT {', '.join(columns(kind))} FROM {kind.name.lower()}"


def _listing(query: Listing) -> tuple[str, list[Any]]:
    if query.kind is Kind.JOB:
        return f"{_from(Kind.JOB)} WHERE tenant = ? AND id > ? ORDER BY id", [query.tenant, query.after]
    # The identities of a tenant are one range: the rows of others are not even looked at.
    first = tenant_prefix(query.tenant)
    sql = f"{_from(query.kind)} WHERE id > ? AND id < ? AND tenant = ? ORDER BY id"
    return sql, [max(query.after, first), first + b"\xff" * 200, query.tenant]


def _job_page(query: JobPage) -> tuple[str, list[Any]]:
    tests: list[str] = ["tenant = ?"]
    values: list[Any] = [query.tenant]
    for name, value in (("state", query.state), ("type", query.type), ("user", query.user)):
        if value is not None:
            tests.append(f"{name} = ?")
            values.append(str(value))
    if query.slot:
        tests.append("slot = ? AND slot <> x''")  # in the words of its index, which has only marked jobs
        values.append(query.slot)
    bounds = values
    if query.before:
        tests.append("id < ?")
        bounds = [*values, query.before]
    return f"{_from(Kind.JOB)} WHERE {' AND '.join(tests)} ORDER BY id DESC", bounds
