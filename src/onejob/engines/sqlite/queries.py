"""The closed list of questions, in SQLite's words."""

from typing import Any

from onejob.core.facts import U64, Attachment, Beside, Kind
from onejob.core.identity import tenant_prefix
from onejob.core.states import CLAIMABLE
from onejob.core.upkeep import DUE
from onejob.engine import Attachments, Due, JobPage, Listing, Query, Ready
from onejob.engines.codec import columns, fact_of, fold_u64, unfold_u64

# Spelled as in the index job_ready, which serves this test only.
_CLAIMABLE = f"state IN ({', '.join(repr(str(state)) for state in sorted(CLAIMABLE))})"


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
            sql, values = _due(query, now)
        case Ready():
            marks = ", ".join("?" * len(query.types))
            sql = (
                f"{_from(Kind.JOB)} WHERE type IN ({marks}) AND {_CLAIMABLE} "
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


def _due(query: Due, now: int) -> tuple[str, list[Any]]:
    names = DUE[query.kind]
    first = names[0]
    past = " AND ".join(f"{name} < ?" for name in names)
    # The cursor stands first, for SQLite begins its search at the first of several lower bounds.
    sql = f"{_from(query.kind)} WHERE ({first}, id) > (?, ?) AND {past} AND {first} > 0 ORDER BY {first}, id"
    return sql, [*query.after, *(now for _ in names)]


def _job_page(query: JobPage) -> tuple[str, list[Any]]:
    tests, values = ["tenant = ?"], [query.tenant]
    for name, value in (("state", query.state), ("type", query.type), ("user", query.user)):
        if value is not None:
            tests.append(f"{name} = ?")
            values.append(str(value))
    bounds: list[Any] = values
    if query.before:
        tests.append("id < ?")
        bounds = [*values, query.before]
    return f"{_from(Kind.JOB)} WHERE {' AND '.join(tests)} ORDER BY id DESC", bounds
