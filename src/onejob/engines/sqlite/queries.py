"""The closed list of queries on SQLite.

Ready jobs and backlogs are found by loose index scans: each step of the index job_ready skips all rows with the same
prefix. So a page costs what it returns, whether a tenant has a million jobs that are ready or a million
scheduled ones.
"""

from collections.abc import Sequence
from typing import Any

import apsw

from onejob.core.facts import Job, Kind
from onejob.engine import Backlog, ListBacklogs, ListReadyJobs, Page, Query
from onejob.engines.codec import columns, fact_from_row
from onejob.engines.sql import CLAIMABLE_CONDITION, ScanPlan, build_page, build_query, plan_scan, select_from

_FROM_CLAIMABLE = f"FROM job WHERE type = ? AND tenant = ? AND {CLAIMABLE_CONDITION}"
# The next lower priority with claimable jobs of a tenant, and the earliest run_at among them.
NEXT_PRIORITY = f"SELECT priority, run_at {_FROM_CLAIMABLE} AND priority < ? ORDER BY priority DESC, run_at LIMIT 1"
READY_AT_PRIORITY = (
    f"SELECT {', '.join(columns(Kind.JOB))} {_FROM_CLAIMABLE} "
    "AND priority = ? AND run_at <= ? AND lease_until < ? ORDER BY run_at, id LIMIT ?"
)
NEXT_TENANT = f"SELECT tenant FROM job WHERE type = ? AND tenant > ? AND {CLAIMABLE_CONDITION} ORDER BY tenant LIMIT 1"
_INT64_MAX = 2**63 - 1
_NO_PLAN = ScanPlan()


class SqliteWriter:
    """Implements SqlWriter."""

    empty_bytes = "x''"

    def __init__(self, now: int) -> None:
        self.values: list[Any] = []
        self._now = now

    @property
    def now(self) -> str:
        return self.bind(self._now)

    def table(self, name: str) -> str:
        return name

    def bind(self, value: Any) -> str:
        self.values.append(value)
        return f"?{len(self.values)}"

    def hex(self, column: str) -> str:
        return f"hex({column})"

    def position(self, needle: bytes, column: str) -> str:
        return f"instr({column}, {self.bind(needle)})"

    def bind_one_of(self, values: Sequence[Any]) -> str:
        return f"IN ({', '.join(map(self.bind, values))})"


def run_query(db: apsw.Connection, query: Query[Any], now: int) -> Page[Any]:
    if isinstance(query, ListBacklogs):
        return list_backlogs(db, query, now)
    if isinstance(query, ListReadyJobs) and query.tenant is not None:
        return list_ready_jobs(db, query, query.tenant, now)
    plan = _plan_scan(db, query)
    rows = db.execute(*build_statement(query, now, plan)).fetchall()
    return build_page(query, rows, plan)


def build_statement(query: Query[Any], now: int, plan: ScanPlan = _NO_PLAN) -> tuple[str, list[Any]]:
    """The statement for a query, and its values. It selects one row more than the limit, to see if there is more."""
    sql = SqliteWriter(now)
    if isinstance(query, ListReadyJobs):
        text = (
            f"{select_from(sql, Kind.JOB)} WHERE type {sql.bind_one_of(query.types)} AND {CLAIMABLE_CONDITION} "
            f"AND run_at <= {sql.now} AND lease_until < {sql.now} ORDER BY priority DESC, run_at, id"
        )
    else:
        text = build_query(sql, query, plan)
    return f"{text} LIMIT {sql.bind(query.limit + 1)}", sql.values


def _plan_scan(db: apsw.Connection, query: Query[Any]) -> ScanPlan:
    steps = plan_scan(query, lambda: SqliteWriter(0))
    try:
        statement = next(steps)
        while True:
            statement = steps.send(db.execute(*statement).fetchall())
    except StopIteration as done:
        plan: ScanPlan = done.value
        return plan


def list_ready_jobs(db: apsw.Connection, query: ListReadyJobs, tenant: str, now: int) -> Page[Job]:
    """The most urgent jobs, one priority after another."""
    jobs: list[Job] = []
    levels = {type: _next_priority(db, type, tenant, _INT64_MAX) for type in query.types}
    while len(jobs) <= query.limit:
        priority = max((level[0] for level in levels.values() if level is not None), default=None)
        if priority is None:
            break
        equals: list[Job] = []
        for type, level in levels.items():
            if level is not None and level[0] == priority:
                if level[1] <= now:
                    values = (type, tenant, priority, now, now, query.limit + 1 - len(jobs))
                    equals += (fact_from_row(Kind.JOB, row) for row in db.execute(READY_AT_PRIORITY, values))
                levels[type] = _next_priority(db, type, tenant, priority)
        jobs += sorted(equals, key=lambda job: (job.run_at, job.id))
    return Page(jobs[: query.limit], len(jobs) > query.limit)


def list_backlogs(db: apsw.Connection, query: ListBacklogs, now: int) -> Page[Backlog]:
    types = tuple(dict.fromkeys(query.types))
    backlogs: list[Backlog] = []
    for tenant in _tenants_with_backlog(db, query, types):
        earliest = min(_earliest_run_at(db, type, tenant, now) for type in types)
        if earliest < _INT64_MAX:
            backlogs.append(Backlog(tenant, max(earliest - now, 0)))
    return Page(backlogs[: query.limit], len(backlogs) > query.limit)


def _tenants_with_backlog(db: apsw.Connection, query: ListBacklogs, types: tuple[str, ...]) -> list[str]:
    """The tenants of a page, and one more if there are more."""
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
    """When the first job of a type may run; the search stops at a job that may run now."""
    earliest = _INT64_MAX
    level = _next_priority(db, type, tenant, _INT64_MAX)
    while level is not None and earliest > now:
        earliest = min(earliest, level[1])
        level = _next_priority(db, type, tenant, level[0])
    return earliest


def _next_priority(db: apsw.Connection, type: str, tenant: str, below: int) -> tuple[int, int] | None:
    row: Any = db.execute(NEXT_PRIORITY, (type, tenant, below)).fetchone()
    return None if row is None else (row[0], row[1])
