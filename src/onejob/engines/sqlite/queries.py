"""The closed list of questions, in SQLite's words."""

from typing import Any

import apsw

from onejob.core.facts import JOB_ID_BYTES, U64, Attachment, Beside, Kind
from onejob.core.identity import tenant_prefix
from onejob.core.upkeep import DUE
from onejob.engine import Attachments, Due, Held, Inputs, JobPage, Listing, Page, Query, Ready, Waiting
from onejob.engines.codec import columns, fact_of, fold_u64, unfold_u64

from . import waiting
from .waiting import CLAIMABLE_TEST

# A page of a filtered list looks at no more jobs than these: a few milliseconds, whatever a tenant has stored.
EXAMINED_MAX = 10_000


def answered(db: apsw.Connection, query: Query[Any], now: int) -> Page[Any]:
    if isinstance(query, Waiting):
        return waiting.backlogs(db, query, now)
    if isinstance(query, Ready) and query.tenant is not None:
        return waiting.ready(db, query, query.tenant, now)
    least = _least(db, query) if isinstance(query, JobPage) else b""
    sql, values = asked(query, now, least)
    rows = db.execute(sql, values).fetchall()
    full = len(rows) > query.limit
    return Page(items(query, rows[: query.limit]), full or bool(least), b"" if full else least)


def asked(query: Query[Any], now: int, least: bytes = b"") -> tuple[str, list[Any]]:
    """The statement for a query, and its values; the limit comes last, with one more to see whether there is more."""
    match query:
        case JobPage():
            sql, values = _job_page(query, least)
        case Listing():
            sql, values = _listing(query)
        case Attachments():
            sql, values = _attachments(query)
        case Inputs():
            marks = ", ".join("?" * len(query.job_ids))
            sql = (
                'SELECT job_id, beside, "index", data FROM attachment '
                f'WHERE job_id IN ({marks}) AND beside = ? AND "index" = 0 ORDER BY job_id'
            )
            values = [*query.job_ids, int(Beside.INPUT)]
        case Due():
            sql, values = _due(query, now)
        case Ready():
            marks = ", ".join("?" * len(query.types))
            sql = (
                f"{_from(Kind.JOB)} WHERE type IN ({marks}) AND {CLAIMABLE_TEST} "
                "AND run_at <= ? AND lease_until < ? ORDER BY priority DESC, run_at, id"
            )
            values = [*query.types, now, now]
        case Held():
            # The last test is spelled as in the index job_held, which has only leases.
            sql = (
                f"{_from(Kind.JOB)} WHERE holder = ? AND tenant = ? AND lease_until >= ? AND lease_until > 0 "
                "ORDER BY id"
            )
            values = [query.holder, query.tenant, now]
        case _:
            raise TypeError(f"{type(query).__name__} is not one of the queries")
    return f"{sql} LIMIT ?", [*values, query.limit + 1]


def items(query: Query[Any], rows: list[Any]) -> list[Any]:
    match query:
        case Attachments() | Inputs():
            return [Attachment(id, Beside(beside), U64(unfold_u64(n)), data) for id, beside, n, data in rows]
        case Listing() | Due():
            return [fact_of(query.kind, row) for row in rows]
    return [fact_of(Kind.JOB, row) for row in rows]


def _from(kind: Kind) -> str:
    return f"SELECT {', '.join(columns(kind))} FROM {kind.name.lower()}"


def _attachments(query: Attachments) -> tuple[str, list[Any]]:
    sql = (
        'SELECT job_id, beside, "index", data FROM attachment WHERE job_id = ? AND beside = ? '
        'AND ("index" < 0, "index") >= (? < 0, ?) AND EXISTS (SELECT 1 FROM job WHERE id = job_id '
        'AND tenant = ?) ORDER BY "index" < 0, "index"'  # the upper half is stored as negative numbers
    )
    start = fold_u64(query.start)
    return sql, [query.job_id, int(query.beside), start, start, query.tenant]


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


def _job_page(query: JobPage, least: bytes) -> tuple[str, list[Any]]:
    tests: list[tuple[str, Any]] = [("tenant = ?", query.tenant), *_filters(query)]
    if query.slot:  # in the words of its index, which has only marked jobs
        tests.append(("slot = ? AND slot <> x''", query.slot))
    if query.before:
        tests.append(("id < ?", query.before))
    if least:
        tests.append(("id >= ?", least))
    where = " AND ".join(test for test, _ in tests)
    return f"{_from(Kind.JOB)} WHERE {where} ORDER BY id DESC", [value for _, value in tests]


def _filters(query: JobPage) -> list[tuple[str, str]]:
    named = (("state", query.state), ("type", query.type), ("user", query.user))
    return [(f"{name} = ?", str(value)) for name, value in named if value is not None]


def _least(db: apsw.Connection, query: JobPage) -> bytes:
    """The oldest job that a page with a filter looks at; empty when it may look at all."""
    if not _filters(query):
        return b""
    newest = query.before or b"\xff" * (JOB_ID_BYTES + 1)
    sql = "SELECT id FROM job WHERE tenant = ? AND id < ? ORDER BY id DESC LIMIT 1 OFFSET ?"
    row = db.execute(sql, (query.tenant, newest, EXAMINED_MAX - 1)).fetchone()
    return b"" if row is None else bytes(row[0])
