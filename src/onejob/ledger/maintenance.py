"""Hygiene: proposes what looks due and lets each decision judge for itself. Several may sweep at once."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import astuple, replace

from onejob.core.facts import Job, Kind, Record, Stream, Usage
from onejob.core.identity import policy_id, record_id, usage_id
from onejob.core.limits import QUOTA_POLICY_NAME
from onejob.core.maintenance import Expire, Maintain, MaintenanceItem, Purge, due_sort_key
from onejob.core.replies import Maintained, Reconciled
from onejob.core.sequence import Evict
from onejob.core.slots import LIVE_STATES, Backfill, Reconcile, slots_and_cost_held
from onejob.core.states import JobState
from onejob.core.work import RETENTION_MS
from onejob.engine import PAGE_MAX, Engine, ListDueFacts, ListFacts, ListJobs
from onejob.errors import Unavailable

# Counts again the jobs of tallies that changed, and lets the decision compare: a difference is a defect.


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


# Jobs from before there were limits: counted now, so that a new limit holds for what runs already.


BACKFILL_PAGE_SIZE = 500
BACKFILL_PAGES_MAX = 200  # of one state and pass; whoever has more live jobs is counted as far as this
BACKFILL_PASSES_MAX = 3


async def backfill_usage(engine: Engine, tenant: str, user: str | None = None) -> int:
    """Count the live jobs of a user, or of all users of a tenant, that nobody counts yet; returns how many."""
    await engine.barrier(tenant, user)  # a write that saw no limit yet must have ended, or its job would not be found
    total = 0
    for _ in range(BACKFILL_PASSES_MAX):
        adopted = sum(
            [
                await _backfill_state(engine, ListJobs(tenant=tenant, user=user, state=state, limit=BACKFILL_PAGE_SIZE))
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


# Erasing a tenant: fact by fact, each by a decision of its own, until nothing is left.


PURGE_PASSES_MAX = 10
PURGE_PAGE_SIZE = 500


class PurgeProgress:
    """How many facts are gone, also when it was stopped half-way."""

    def __init__(self) -> None:
        self.count = 0


async def purge_tenant(engine: Engine, tenant: str, progress: PurgeProgress) -> None:
    """Again and again until a pass finds nothing, for others may be submitting."""
    for _ in range(PURGE_PASSES_MAX):
        before = progress.count
        for kind in Kind:
            await _purge_kind(engine, tenant, kind, progress)
        if progress.count == before:
            return
    raise Unavailable("the tenant is still being used; revoke its credentials, then repeat")


async def _purge_kind(engine: Engine, tenant: str, kind: Kind, progress: PurgeProgress) -> None:
    """Records take their jobs along, so that no key is left without its job."""
    after = b""
    while True:
        page = await engine.scan(ListFacts(tenant=tenant, kind=kind, after=after, limit=PURGE_PAGE_SIZE))
        ids = [fact.id for fact in page.items]
        if ids:
            replies = await engine.execute(_build_purges(tenant, kind, ids))
            progress.count += sum(isinstance(reply, Maintained) and reply.changed for reply in replies)
            after = ids[-1]
        if not page.more:
            return


def _build_purges(tenant: str, kind: Kind, ids: Sequence[bytes]) -> list[Purge]:
    match kind:
        case Kind.RECORD:
            return [Purge(tenant=tenant, record_id=id) for id in ids]
        case Kind.JOB:
            return [Purge(tenant=tenant, job_ids=(id,)) for id in ids]
        case Kind.STREAM:
            return [Purge(tenant=tenant, stream_id=id) for id in ids]
        case Kind.USAGE:
            return [Purge(tenant=tenant, usage_id=id) for id in ids]
        case Kind.POLICY:
            return [Purge(tenant=tenant, policy_id=id) for id in ids]


SWEEP_PAGE_SIZE = 500
SWEEP_ROUNDS_MAX = 200
_START_CURSOR = (0, b"")


class SweepResult(Struct, frozen=True):
    records: int = 0
    jobs: int = 0
    streams: int = 0
    usages: int = 0
    drift: int = 0  # of tallies against their jobs: a defect, mended

    def plus(self, other: "SweepResult") -> "SweepResult":
        return SweepResult(*(mine + more for mine, more in zip(astuple(self), astuple(other), strict=True)))


class Sweeper:
    def __init__(self, engine: Engine, *, retention_ms: int = RETENTION_MS) -> None:
        self._engine = engine
        self._retention_ms = retention_ms
        self._cursors: dict[Kind, tuple[int, bytes]] = {}

    async def sweep(self) -> SweepResult:
        """Expired records, lapsed leases, abandoned preparations, jobs past their retention, idle streams, tallies."""
        records, jobs = await self._sweep_kind(Kind.RECORD), await self._sweep_kind(Kind.JOB)
        streams = await self._sweep_kind(Kind.STREAM)
        return SweepResult(records, jobs, streams, *await reconcile_usage(self._engine))

    async def _sweep_kind(self, kind: Kind) -> int:
        """Go on behind what was proposed, changed or not; what must stay as it is blocks nothing behind it."""
        total = 0
        for _ in range(SWEEP_ROUNDS_MAX):
            page = await self._engine.scan(
                ListDueFacts(kind=kind, after=self._cursors.get(kind, _START_CURSOR), limit=SWEEP_PAGE_SIZE)
            )
            if page.items:
                proposals = [self._build_command(fact) for fact in _in_key_order(page.items)]
                replies = await self._engine.execute(proposals)
                total += sum(isinstance(reply, Maintained) and reply.changed for reply in replies)
            if not page.more:
                self._cursors.pop(kind, None)
                break
            # Where the next sweep begins if this one ends here.
            self._cursors[kind] = due_sort_key(page.items[-1])
        return total

    def _build_command(self, fact: MaintenanceItem) -> Expire | Maintain | Evict:
        match fact:
            case Record():
                return Expire(tenant=fact.tenant, record_id=fact.id)
            case Job():
                return Maintain(tenant=fact.tenant, job_id=fact.id, retention_ms=self._retention_ms)
            case Stream():
                return Evict(tenant=fact.tenant, stream_id=fact.id)
        raise TypeError(f"nothing is ever due with a {type(fact).__name__}")


def _in_key_order(facts: Sequence[MaintenanceItem]) -> Sequence[MaintenanceItem]:
    """Streams are evicted in one order, so that replicas of a log propose alike."""
    return sorted(facts, key=lambda fact: fact.id) if isinstance(facts[0], Stream) else facts
