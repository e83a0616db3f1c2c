"""What waits to be run, found by steps over one index: each step skips all that has the same beginning.

So a page costs what it has, and not what a tenant has waiting: neither a million jobs that are ready, nor a
million whose time has not come.
"""

from typing import Any

from onejob.core.facts import Kind
from onejob.core.states import CLAIMABLE_STATES
from onejob.engine import ListBacklogs, ListReadyJobs

from .statements import Statements

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
        return f"SELECT job.* FROM {_WANTED_TYPES} CROSS JOIN LATERAL ({each}) AS job {order}", [
            list(query.types)
        ]
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
