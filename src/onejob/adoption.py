"""Jobs from before there were limits: counted now, so that a new limit holds for what runs already."""

from collections.abc import Iterator

from msgspec.structs import replace

from .core.facts import Job
from .core.identity import policy_id, record_id, usage_id
from .core.limits import QUOTA_POLICY_NAME
from .core.receipt import Maintained
from .core.recount import LIVE_STATES, Backfill
from .core.states import JobState
from .engine import Crowded, Engine, ListJobs

BACKFILL_PAGE_SIZE = 500
BACKFILL_PAGES_MAX = 200  # of one state and pass; whoever has more live jobs is counted as far as this
BACKFILL_PASSES_MAX = 3


async def backfill_usage(engine: Engine, tenant: str, user: str | None = None) -> int:
    """Count the live jobs of a user, or of all users of a tenant, that nobody counts yet; returns how many."""
    if isinstance(engine, Crowded):
        await engine.barrier()  # whoever saw no limit yet must have ended, or its jobs would not be found
    total = 0
    for _ in range(BACKFILL_PASSES_MAX):
        adopted = sum(
            [
                await _backfill_state(
                    engine, ListJobs(tenant=tenant, user=user, state=state, limit=BACKFILL_PAGE_SIZE)
                )
                for state in (*LIVE_STATES, JobState.PREPARING)
            ]
        )
        total += adopted
        if not adopted:
            break  # a job may change its state while it is looked for, so what was missed is looked for again
    return total


async def _backfill_state(engine: Engine, query: ListJobs) -> int:
    adopted, before = 0, b""
    for _ in range(BACKFILL_PAGES_MAX):
        page = await engine.scan(replace(query, before=before))
        commands = [command for job in page.items if not job.slot for command in _build_backfills(job)]
        if commands:
            replies = await engine.execute(commands)
            adopted += sum(isinstance(reply, Maintained) and reply.changed for reply in replies)
        if not page.more:
            break
        before = page.scanned_to or page.items[-1].id
    return adopted


def _build_backfills(job: Job) -> Iterator[Backfill]:
    """A preparing job does not tell whether its key is the user's own or shared: one of the two names nothing."""
    preparing = job.state is JobState.PREPARING
    for owner in ("", job.user) if preparing else ("",):
        yield Backfill(
            tenant=job.tenant,
            usage_id=usage_id(job.tenant, job.user),
            policy_id=policy_id(job.tenant, QUOTA_POLICY_NAME),
            user=job.user,
            job_id=job.id,
            record_id=record_id(job.tenant, job.scope, job.key, owner) if preparing else b"",
        )
