"""Counts again the jobs of tallies that changed, and lets the decision compare: a difference is a defect."""

from typing import NamedTuple

from .core.facts import Kind, Usage
from .core.identity import policy_id
from .core.limits import QUOTA_POLICY_NAME
from .core.receipt import Reconciled
from .core.recount import Reconcile, slots_and_cost_held
from .engine import PAGE_MAX, Engine, ListDueFacts, ListJobs

RECONCILED_PER_SWEEP_MAX = 50  # in one sweep; the others are due in the next
RECONCILE_PAGES_MAX = 20
_NO_VERSION = -1  # a version that no tally has: the decision only puts it off


class ReconcileResult(NamedTuple):
    usages: int = 0
    drift: int = 0


async def reconcile_usage(engine: Engine) -> ReconcileResult:
    page = await engine.scan(ListDueFacts(kind=Kind.USAGE, limit=RECONCILED_PER_SWEEP_MAX))
    counts = [await _count_jobs(engine, tally) for tally in page.items if isinstance(tally, Usage)]
    replies = await engine.execute(counts) if counts else ()
    told = [reply for reply in replies if isinstance(reply, Reconciled)]
    return ReconcileResult(sum(reply.changed for reply in told), sum(reply.drift for reply in told))


async def _count_jobs(engine: Engine, usage: Usage) -> Reconcile:
    """The jobs that bear its mark. They keep it while they change their state, so none slips through the pages."""
    live = cost_held = marked = 0
    expected, before = _NO_VERSION, b""
    for _ in range(RECONCILE_PAGES_MAX):
        query = ListJobs(tenant=usage.tenant, usage_id=usage.id, before=before, limit=PAGE_MAX)
        page = await engine.scan(query)
        for job in page.items:
            slots, money = slots_and_cost_held(job, usage.id)
            live, cost_held, marked = live + slots, cost_held + money, marked + 1
        if not page.more:
            expected = usage.version
            break
        before = page.scanned_to or page.items[-1].id
    return Reconcile(
        tenant=usage.tenant,
        usage_id=usage.id,
        policy_id=policy_id(usage.tenant, QUOTA_POLICY_NAME),
        expected_version=expected,
        live=live,
        cost_held=cost_held,
        jobs_counted=marked,
    )
