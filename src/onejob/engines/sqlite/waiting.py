"""What waits to be run, found by steps over one index: each step skips all that has the same beginning.

So a page costs what it has, and not what a tenant has waiting: neither a million jobs that are ready, nor a
million whose time has not come.
"""

from typing import Any

import apsw

from onejob.core.facts import Job, Kind
from onejob.core.states import CLAIMABLE_STATES
from onejob.engine import Backlog, ListBacklogs, ListReadyJobs, Page
from onejob.engines.codec import columns, fact_from_row

# Spelled as in the index job_ready, which serves this test only.
CLAIMABLE_CONDITION = f"state IN ({', '.join(repr(str(state)) for state in sorted(CLAIMABLE_STATES))})"
_FROM_CLAIMABLE = f"FROM job WHERE type = ? AND tenant = ? AND {CLAIMABLE_CONDITION}"
# The next lower priority that a tenant has waiting, and the earliest time among its jobs.
NEXT_PRIORITY = (
    f"SELECT priority, run_at {_FROM_CLAIMABLE} AND priority < ? ORDER BY priority DESC, run_at LIMIT 1"
)
READY_AT_PRIORITY = (
    f"SELECT {', '.join(columns(Kind.JOB))} {_FROM_CLAIMABLE} "
    "AND priority = ? AND run_at <= ? AND lease_until < ? ORDER BY run_at, id LIMIT ?"
)
NEXT_TENANT = (
    f"SELECT tenant FROM job WHERE type = ? AND tenant > ? AND {CLAIMABLE_CONDITION} ORDER BY tenant LIMIT 1"
)
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
