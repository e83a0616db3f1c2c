"""Counts again the jobs of tallies that changed, and lets the decision compare: a difference is a defect."""

from typing import NamedTuple

from .core.facts import Kind, Tally
from .core.identity import policy_id
from .core.limits import POLICY_NAME
from .core.receipt import Recounted
from .core.recount import Recount, holds
from .engine import PAGE_MAX, Due, Engine, JobPage

TALLIES_MAX = 50  # in one sweep; the others are due in the next
PAGES_MAX = 20
_UNCOUNTED = -1  # a version that no tally has: the decision only puts it off


class Census(NamedTuple):
    tallies: int = 0
    drift: int = 0


async def take_census(engine: Engine) -> Census:
    page = await engine.scan(Due(kind=Kind.TALLY, limit=TALLIES_MAX))
    counts = [await _counted(engine, tally) for tally in page.items if isinstance(tally, Tally)]
    replies = await engine.execute(counts) if counts else ()
    told = [reply for reply in replies if isinstance(reply, Recounted)]
    return Census(sum(reply.changed for reply in told), sum(reply.drift for reply in told))


async def _counted(engine: Engine, tally: Tally) -> Recount:
    """The jobs that bear its mark. They keep it while they change their state, so none slips through the pages."""
    live = cost_held = marked = 0
    expected, before = _UNCOUNTED, b""
    for _ in range(PAGES_MAX):
        query = JobPage(tenant=tally.tenant, slot=tally.id, before=before, limit=PAGE_MAX)
        page = await engine.scan(query)
        for job in page.items:
            slots, money = holds(job, tally.id)
            live, cost_held, marked = live + slots, cost_held + money, marked + 1
        if not page.more:
            expected = tally.version
            break
        before = page.seen or page.items[-1].id
    return Recount(
        tenant=tally.tenant,
        tally_id=tally.id,
        policy_id=policy_id(tally.tenant, POLICY_NAME),
        expected=expected,
        live=live,
        cost_held=cost_held,
        marked=marked,
    )
