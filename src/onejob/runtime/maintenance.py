"""Maintenance of the store: periodic sweeps and reconciling, backfill and purge on demand.

- Sweep: deletes expired records and jobs past their retention, ends expired leases and abandoned preparations, evicts
  idle streams. No answer depends on it, because every decision checks expiry itself.
- Reconcile: counts the jobs of changed usages again and corrects a usage that differs. A difference is a bug.
- Backfill: counts the live jobs that were submitted before their user had a limit, so that the limit includes them.
- Purge: deletes everything of a tenant.

All of them only propose: a query lists what looks due, and for each fact one command decides on the facts that it
loads itself. So several processes may run maintenance at once.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import astuple, replace

from onejob.core.facts import Job, Kind, Policy, Record, Stream, Usage
from onejob.core.identity import policy_id, record_id, usage_id
from onejob.core.limits import QUOTA_POLICY_NAME
from onejob.core.maintenance import (
    Expire,
    ExpirePolicy,
    Maintain,
    MaintenanceItem,
    Purge,
    due_sort_key,
    is_abandoned_preparation,
)
from onejob.core.replies import Maintained, Reconciled
from onejob.core.sequence import Evict
from onejob.core.slots import LIVE_STATES, Backfill, Reconcile, slots_and_cost_held
from onejob.core.states import ENDED_STATES, JobState
from onejob.core.work import RETENTION_MS
from onejob.engine import PAGE_MAX, Engine, ListDueFacts, ListFacts, ListJobs
from onejob.errors import Unknown

SWEEP_PAGE_SIZE = 500
SWEEP_ROUNDS_MAX = 200
LEASE_PAGES_MAX = 4
_START_CURSOR = (0, b"")


class SweepResult(Struct, frozen=True):
    records: int = 0
    jobs: int = 0
    streams: int = 0
    usages: int = 0
    drift: int = 0  # what reconciling corrected: a bug if it is not 0

    def plus(self, other: "SweepResult") -> "SweepResult":
        return SweepResult(*(own + added for own, added in zip(astuple(self), astuple(other), strict=True)))


class LeaseExpiry:
    """Ends the expired leases of jobs without deleting anything: when jobs are claimed, and first in a sweep.

    Due jobs are listed by the time they became due. The cursor moves past those that are only to be deleted, which the
    sweep does; whatever becomes due later has a later time, so each call examines only what is new.
    """

    def __init__(self, engine: Engine, *, retention_ms: int = RETENTION_MS) -> None:
        self._engine = engine
        self._retention_ms = retention_ms
        self._cursor = _START_CURSOR

    async def end_expired(self) -> int:
        """End expired leases; returns how many jobs changed."""
        total = 0
        for _ in range(LEASE_PAGES_MAX):
            page = await self._engine.scan(ListDueFacts(kind=Kind.JOB, after=self._cursor, limit=SWEEP_PAGE_SIZE))
            proposals = [
                Maintain(tenant=job.tenant, job_id=job.id, retention_ms=self._retention_ms)
                for job in page.items
                if isinstance(job, Job) and job.state not in ENDED_STATES
            ]
            if proposals:
                replies = await self._engine.execute(proposals)
                total += sum(isinstance(reply, Maintained) and reply.changed for reply in replies)
            if page.items:
                self._cursor = due_sort_key(page.items[-1])
            if not page.more:
                break
        return total


async def find_abandoned_preparations(engine: Engine) -> list[Job]:
    """Jobs of all tenants whose preparation was begun and left; taking over its key decides whether one still is."""
    found: list[Job] = []
    cursor = _START_CURSOR
    for _ in range(LEASE_PAGES_MAX):
        page = await engine.scan(ListDueFacts(kind=Kind.JOB, after=cursor, limit=SWEEP_PAGE_SIZE))
        due = [job for job in page.items if isinstance(job, Job)]
        # They were due when they were listed; whether the key has expired since is for the take-over to decide.
        found += [job for job in due if is_abandoned_preparation(job, job.keep_until)]
        if not page.more:
            break
        cursor = due_sort_key(page.items[-1])
    return found


class Sweeper:
    def __init__(self, engine: Engine, *, retention_ms: int = RETENTION_MS) -> None:
        self._engine = engine
        self._retention_ms = retention_ms
        self._leases = LeaseExpiry(engine, retention_ms=retention_ms)
        self._ended_leases = 0
        self._cursors: dict[Kind, tuple[int, bytes]] = {}

    async def sweep(self) -> SweepResult:
        """Sweep records, jobs and streams that are due, and reconcile usages.

        A record is deleted before its job: no record ever names a job that is gone. Expired leases wait for none of it.
        """
        self._ended_leases = 0
        records, jobs = await self._sweep_kind(Kind.RECORD), await self._sweep_kind(Kind.JOB)
        streams = await self._sweep_kind(Kind.STREAM)
        await self._sweep_kind(Kind.POLICY)
        return SweepResult(records, jobs + self._ended_leases, streams, *await reconcile_usage(self._engine))

    async def _sweep_kind(self, kind: Kind) -> int:
        """Continue after the last proposed fact, changed or not, so that a fact that must stay blocks no other."""
        total = 0
        for _ in range(SWEEP_ROUNDS_MAX):
            self._ended_leases += await self._leases.end_expired()
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
            # The next sweep starts here if this one reaches SWEEP_ROUNDS_MAX.
            self._cursors[kind] = due_sort_key(page.items[-1])
        return total

    def _build_command(self, fact: MaintenanceItem) -> Expire | ExpirePolicy | Maintain | Evict:
        match fact:
            case Record():
                return Expire(tenant=fact.tenant, record_id=fact.id)
            case Job():
                return Maintain(tenant=fact.tenant, job_id=fact.id, retention_ms=self._retention_ms)
            case Stream():
                return Evict(tenant=fact.tenant, stream_id=fact.id)
            case Policy():
                return ExpirePolicy(tenant=fact.tenant, policy_id=fact.id)
        raise TypeError(f"a {type(fact).__name__} is never due for a sweep")


def _in_key_order(facts: Sequence[MaintenanceItem]) -> Sequence[MaintenanceItem]:
    """Streams are evicted in one order, so that all replicas of a log propose the same commands."""
    return sorted(facts, key=lambda fact: fact.id) if isinstance(facts[0], Stream) else facts


RECONCILED_PER_SWEEP_MAX = 50  # the others stay due for the next sweep
RECONCILE_PAGES_MAX = 20
_NO_VERSION = -1  # matches no usage, so that the command only postpones it


class ReconcileResult(NamedTuple):
    usages: int = 0
    drift: int = 0


async def reconcile_usage(engine: Engine) -> ReconcileResult:
    """Count the jobs of every usage that is due, and correct the usages that differ."""
    page = await engine.scan(ListDueFacts(kind=Kind.USAGE, limit=RECONCILED_PER_SWEEP_MAX))
    commands = [await _count_jobs(engine, usage) for usage in page.items if isinstance(usage, Usage)]
    replies = await engine.execute(commands) if commands else ()
    reconciled = [reply for reply in replies if isinstance(reply, Reconciled)]
    return ReconcileResult(sum(reply.changed for reply in reconciled), sum(reply.drift for reply in reconciled))


async def _count_jobs(engine: Engine, usage: Usage) -> Reconcile:
    """Count the jobs that are marked with a usage. A change of state keeps the mark, so no page misses a job."""
    live = cost_held = marked = 0
    expected, before = _NO_VERSION, b""
    for _ in range(RECONCILE_PAGES_MAX):
        query = ListJobs(tenant=usage.tenant, usage_id=usage.id, before=before, limit=PAGE_MAX)
        page = await engine.scan(query)
        for job in page.items:
            slots, cost = slots_and_cost_held(job, usage.id)
            live, cost_held, marked = live + slots, cost_held + cost, marked + 1
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


BACKFILL_PAGE_SIZE = 500
BACKFILL_PAGES_MAX = 200  # of one state in one pass; further live jobs stay uncounted
BACKFILL_PASSES_MAX = 3


async def backfill_usage(engine: Engine, tenant: str, user: str | None = None) -> int:
    """Count a user's uncounted live jobs, or those of all users of a tenant; returns how many there were."""
    await engine.barrier(tenant, user)  # a submission that saw no limit must have ended, or the scan misses its job
    total = 0
    for _ in range(BACKFILL_PASSES_MAX):
        counted = sum(
            [
                await _backfill_state(engine, ListJobs(tenant=tenant, user=user, state=state, limit=BACKFILL_PAGE_SIZE))
                for state in (*LIVE_STATES, JobState.PREPARING)
            ]
        )
        total += counted
        if not counted:
            break  # a job that changed its state during a pass may have been missed, so the next pass scans again
    return total


async def _backfill_state(engine: Engine, query: ListJobs) -> int:
    counted, before = 0, b""
    for _ in range(BACKFILL_PAGES_MAX):
        page = await engine.scan(replace(query, before=before))
        commands = [command for job in page.items if not job.usage_id for command in _build_backfills(job)]
        if commands:
            replies = await engine.execute(commands)
            counted += sum(isinstance(reply, Maintained) and reply.changed for reply in replies)
        if not page.more:
            break
        before = page.scanned_to or page.items[-1].id
    return counted


def _build_backfills(job: Job) -> Iterator[Backfill]:
    """A preparing job does not show whether its key is the user's or the tenant's: one of two commands finds nothing."""
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


PURGE_PASSES_MAX = 10
PURGE_PAGE_SIZE = 500


class PurgeProgress:
    """How many facts were deleted, also when the purge fails half-way."""

    def __init__(self) -> None:
        self.count = 0


async def purge_tenant(engine: Engine, tenant: str, progress: PurgeProgress) -> None:
    """Delete all facts of a tenant. Passes are repeated until one finds nothing, because others may be submitting."""
    for _ in range(PURGE_PASSES_MAX):
        before = progress.count
        for kind in Kind:
            await _purge_kind(engine, tenant, kind, progress)
        if progress.count == before:
            return
    raise Unknown(
        "the tenant is still being used, and some of its data is left; revoke its credentials, then purge again"
    )


async def _purge_kind(engine: Engine, tenant: str, kind: Kind, progress: PurgeProgress) -> None:
    """Delete facts of one kind. A record is deleted together with its jobs, so that no key loses its job alone."""
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
        case Kind.MEMO:
            return [Purge(tenant=tenant, memo_id=id) for id in ids]
