"""The closed list of queries on PostgreSQL.

Ready jobs and backlogs are found by loose index scans, written as recursive queries: each step of the index job_ready
skips all rows with the same prefix. So a page costs what it returns, whether a tenant has a million jobs that are
ready or a million scheduled ones.
"""

from collections.abc import Sequence
from typing import Any

from onejob.core.facts import Kind
from onejob.engine import ListBacklogs, ListReadyJobs, Query
from onejob.engines.sql import CLAIMABLE_CONDITION, PlanSteps, ScanPlan, build_query
from onejob.engines.sql import build_page as build_page
from onejob.engines.sql import plan_scan as plan_any_scan

from .statements import Statements

_NO_PLAN = ScanPlan()
_TYPES = "(SELECT DISTINCT unnest($1::text[]) AS name) AS requested"


class PostgresWriter:
    """Implements SqlWriter."""

    empty_bytes = "''"

    def __init__(self, statements: Statements) -> None:
        self.values: list[Any] = []
        self.table = statements.table
        # A subquery, which is evaluated once and not for every row, so that an index can be used.
        self.now = f"(SELECT floor({statements.now})::bigint)"

    def bind(self, value: Any) -> str:
        self.values.append(value)
        return f"${len(self.values)}"

    def hex(self, column: str) -> str:
        return f"encode({column}, 'hex')"

    def position(self, needle: bytes, column: str) -> str:
        return f"position({self.bind(needle)}::bytea IN {column})"

    def bind_one_of(self, values: Sequence[bytes]) -> str:
        return f"= ANY ({self.bind(list(values))}::bytea[])"


def build_statement(statements: Statements, query: Query[Any], plan: ScanPlan = _NO_PLAN) -> tuple[str, list[Any]]:
    """The statement for a query, and its values. It selects one row more than the limit, to see if there is more."""
    sql = PostgresWriter(statements)
    match query:
        case ListReadyJobs():
            text, values = _ready_jobs_sql(statements, query, sql.now)
        case ListBacklogs():
            text, values = _backlogs_sql(statements, query, sql.now)
        case _:
            text, values = build_query(sql, query, plan), sql.values
    return f"{text} LIMIT {query.limit + 1}", values


def plan_scan(statements: Statements, query: Query[Any]) -> PlanSteps:
    return plan_any_scan(query, lambda: PostgresWriter(statements))


def _ready_jobs_sql(statements: Statements, query: ListReadyJobs, now: str) -> tuple[str, list[Any]]:
    """The most urgent jobs, each with its xmin; of one tenant, one priority after another."""
    order = "ORDER BY priority DESC, run_at, id"
    columns, table = f"{statements.columns(Kind.JOB)}, xmin AS xmin_of_row", statements.table("job")
    due = f"run_at <= {now} AND lease_until < {now}"
    if query.tenant is None:
        jobs = f"SELECT {columns} FROM {table} WHERE type = requested.name AND {CLAIMABLE_CONDITION} AND {due}"
        return f"SELECT job.* FROM {_TYPES} CROSS JOIN LATERAL ({jobs}) AS job {order}", [list(query.types)]
    claimable = f"FROM {table} WHERE type = name AND tenant = $2 AND {CLAIMABLE_CONDITION}"
    levels = (
        f"SELECT name, (SELECT max(priority) {claimable}) AS priority FROM {_TYPES} UNION ALL "
        f"SELECT name, (SELECT max(priority) {claimable} AND priority < level.priority) FROM level "
        "WHERE level.priority IS NOT NULL"
    )
    jobs = (
        f"SELECT {columns} {claimable} AND priority = level.priority AND {due} "
        f"ORDER BY run_at, id LIMIT {query.limit + 1}"
    )
    sql = f"WITH RECURSIVE level AS ({levels}) SELECT job.* FROM level CROSS JOIN LATERAL ({jobs}) AS job {order}"
    return sql, [list(query.types), query.tenant]


def _backlogs_sql(statements: Statements, query: ListBacklogs, now: str) -> tuple[str, list[Any]]:
    """The tenants of a page, each with the milliseconds until the first of its jobs may run."""
    claimable = f"FROM {statements.table('job')} WHERE type = name AND {CLAIMABLE_CONDITION}"
    if query.tenant is None:
        steps = (
            f"SELECT name, (SELECT min(tenant) {claimable} AND tenant > $2::text) AS tenant, 1 AS n FROM {_TYPES} "
            f"UNION ALL SELECT name, (SELECT min(tenant) {claimable} AND tenant > step.tenant), n + 1 FROM step "
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
    # Down the priorities, until one has a job that may run now.
    select = f"SELECT priority, run_at {claimable} AND tenant = listed.tenant"
    first = "ORDER BY priority DESC, run_at LIMIT 1"
    levels = (
        f"({select} {first}) UNION ALL SELECT below.* FROM level CROSS JOIN LATERAL "
        f"({select} AND priority < level.priority {first}) AS below WHERE level.run_at > {now}"
    )
    earliest = f"WITH RECURSIVE level AS ({levels}) SELECT min(run_at) AS run_at FROM level"
    sql = (
        f"SELECT listed.tenant, greatest(min(earliest.run_at) - {now}, 0) FROM ({tenants}) AS listed "
        f"CROSS JOIN {_TYPES} CROSS JOIN LATERAL ({earliest}) AS earliest GROUP BY listed.tenant "
        "HAVING min(earliest.run_at) IS NOT NULL ORDER BY listed.tenant"
    )
    return sql, values
