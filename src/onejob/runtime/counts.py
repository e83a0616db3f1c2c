"""What all processes of a ledger count together, stored as policies of the tenants: snapshots of what there is, and activity.

Snapshots are counts of jobs by type and state, and of keys, each taken by one process for all. Whoever asks gets the last
one of a tenant (or of no tenant: of all tenants together), with its age. If it is older than 15 s, one process counts again in
the background: the one that could note in the policy that it is counting. So no request waits for a count, an idle console
costs nothing, and counting a large store, which reads one index entry per job and key, is done less often: it takes at most a
fiftieth of the time.

Activity is what each process has counted since its last report, added to totals over time. A report that got no answer is sent
again unchanged, which counts it once. So that many tenants cost no more than a few writes a second, one turn reports only
the tenants with the most to report; the others keep counting.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping

from msgspec import Struct, json
from msgspec.structs import replace

from onejob.core.activity import ACTIVITY_POLICY_NAME, Activity, AddActivity, advanced_activity
from onejob.core.credentials import ABSENT, POLICY_BODY_BYTES_MAX
from onejob.core.facts import Job
from onejob.core.identity import SYSTEM_TENANT, policy_id
from onejob.engine import PAGE_MAX, CountJobs, CountKeys, CountReadyJobs, Engine
from onejob.engines.gate import Gate
from onejob.errors import OnejobError
from onejob.ids import Ids

from .policies import decode_body, load_policy, try_set_policy
from .stats import end_of_attempt

COUNTS_POLICY_NAME = "counts"
ALL_TENANTS = SYSTEM_TENANT
INTERVAL_MS = 15_000
SHARE_OF_TIME = 50  # a count is not repeated before this many times its own duration
WAIT_SECONDS_MAX = 1.0  # how long a caller waits for a snapshot
TENANTS_PER_TURN_MAX = 100
REPORTED_TENANTS_MAX = 10_000  # with counted ends; those of further tenants are not reported
_SOURCE_CHARS = 16
_CLAIM_MS_MIN = 10_000
_KEPT_MS = 86_400_000
_ROWS_BYTES_MAX = POLICY_BODY_BYTES_MAX - 1024

log = logging.getLogger("onejob")


class TypeCounts(Struct, frozen=True):
    """The jobs of one type: by state, and those that wait for a worker."""

    states: dict[str, int]
    ready: int = 0
    oldest_ready_at: int = 0  # 0: none is ready


class CountsSnapshot(Struct, frozen=True):
    at: int = 0  # the engine's time; 0: nothing was counted yet
    took_ms: int = 0
    types: dict[str, TypeCounts] = {}
    is_complete: bool = True  # False: there are more types, which have fewer jobs
    counting_until: int = 0  # a process is counting
    counting_process: str = ""  # random: two processes never write the same claim
    keys: int = 0  # stored ones: those that expired lately are among them

    def by_state(self) -> dict[str, int]:
        totals: dict[str, int] = {}
        for counts in self.types.values():
            for state, count in counts.states.items():
                totals[state] = totals.get(state, 0) + count
        return totals

    def is_outdated(self, now: int) -> bool:
        return now > self.counting_until and now - self.at > max(INTERVAL_MS, SHARE_OF_TIME * self.took_ms)


class JobCounts:
    """The snapshots of one ledger."""

    def __init__(self, engine: Engine, ids: Ids) -> None:
        self._engine = engine
        self._ids = ids
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def load(self, tenant: str, *, wait: bool = False) -> tuple[CountsSnapshot, int]:
        """The last snapshot, and the engine's time. If it is outdated, the next one is started.

        It waits a moment for the very first snapshot of a tenant, and with `wait` for any that was started.
        """
        snapshot, version, now = await self._read(tenant)
        if snapshot.is_outdated(now):
            task = self._start(tenant, snapshot, version, now)
            if wait or not snapshot.at:
                await asyncio.wait([task], timeout=WAIT_SECONDS_MAX)
                snapshot, _, now = await self._read(tenant)
        return snapshot, now

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    def _start(self, tenant: str, snapshot: CountsSnapshot, version: int, now: int) -> asyncio.Task[None]:
        task = self._tasks.get(tenant)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._count_logged(tenant, snapshot, version, now))
            self._tasks[tenant] = task
            task.add_done_callback(lambda _: self._tasks.pop(tenant, None))
        return task

    async def _count_logged(self, tenant: str, snapshot: CountsSnapshot, version: int, now: int) -> None:
        try:
            await self._count(tenant, snapshot, version, now)
        except OnejobError as error:
            log.warning("counting jobs failed, will retry: %s", error)
        except Exception:
            log.exception("counting jobs failed with an unexpected error, will retry")

    async def _count(self, tenant: str, snapshot: CountsSnapshot, version: int, now: int) -> None:
        until = now + max(_CLAIM_MS_MIN, 5 * snapshot.took_ms)
        claim = replace(snapshot, counting_until=until, counting_process=self._ids.nonce())
        written = await self._write(tenant, claim, version)
        if written is None:
            return  # another process counts
        started = asyncio.get_running_loop().time()
        counted = await self._scan(None if tenant == ALL_TENANTS else tenant)
        took_ms = round((asyncio.get_running_loop().time() - started) * 1000)
        await self._write(tenant, replace(counted, at=now, took_ms=took_ms), written)

    async def _scan(self, tenant: str | None) -> CountsSnapshot:
        counts = await self._engine.scan(CountJobs(tenant=tenant, limit=PAGE_MAX))
        ready = await self._engine.scan(CountReadyJobs(tenant=tenant, limit=PAGE_MAX))
        (keys,) = (await self._engine.scan(CountKeys(tenant=tenant))).items
        types: dict[str, TypeCounts] = {}
        for row in counts.items:
            types.setdefault(row.type, TypeCounts({})).states[str(row.state)] = row.count
        for waiting in ready.items:
            if waiting.type in types:
                types[waiting.type] = replace(
                    types[waiting.type], ready=waiting.count, oldest_ready_at=waiting.oldest_at
                )
        return replace(fitted_snapshot(types, is_complete=not counts.more), keys=keys)

    async def _read(self, tenant: str) -> tuple[CountsSnapshot, int, int]:
        policy, now = await load_policy(self._engine, tenant, COUNTS_POLICY_NAME)
        if policy is None:
            return CountsSnapshot(), ABSENT, now
        return decode_body(policy, CountsSnapshot), policy.version, now

    async def _write(self, tenant: str, snapshot: CountsSnapshot, version: int) -> int | None:
        """Write over this version; returns the new one, or None if another process was faster."""
        written = await try_set_policy(
            self._engine,
            tenant,
            COUNTS_POLICY_NAME,
            json.encode(snapshot),
            expected_version=version,
            ttl_ms=_KEPT_MS,
        )
        return None if written is None else written.version


class ActivityReporter:
    def __init__(self, gate: Gate, ids: Ids) -> None:
        self._gate = gate
        self._source = ids.holder().hex()[:_SOURCE_CHARS]
        self._reported: dict[str, Mapping[str, int]] = {}  # outcomes of a tenant that were reported
        self._number = 0  # of the last report; those to one tenant only grow
        self._ends: dict[str, dict[str, Counter[str]]] = {}  # by tenant and type
        self._unanswered: list[AddActivity] = []

    def count_end(self, job: Job) -> None:
        types = self._ends.get(job.tenant)
        if types is None:
            if len(self._ends) >= REPORTED_TENANTS_MAX:
                return
            types = self._ends[job.tenant] = {}
        types.setdefault(job.type, Counter())[end_of_attempt(job)] += 1

    async def report(self) -> None:
        """Send one turn of reports; what got no answer is sent again by the next."""
        reports = self._unanswered or [self._build_report(tenant) for tenant in self._busiest_tenants()]
        self._unanswered = reports  # also if this call is cancelled
        replies = await self._gate.execute_each(reports)
        self._unanswered = [
            report for report, reply in zip(reports, replies, strict=True) if isinstance(reply, OnejobError)
        ]

    async def load(self, tenant: str) -> tuple[Activity, int]:
        """A tenant's activity as all processes see it, and the engine's time."""
        policy, now = await load_policy(self._gate, tenant, ACTIVITY_POLICY_NAME)
        activity = Activity(0) if policy is None else decode_body(policy, Activity)
        return advanced_activity(activity, now), now

    def _busiest_tenants(self) -> list[str]:
        outcomes = self._gate.outcomes
        self._reported = {tenant: self._reported[tenant] for tenant in outcomes.tenants() if tenant in self._reported}
        pending: Counter[str] = Counter()
        for tenant in outcomes.tenants():
            news = sum(outcomes.for_tenant(tenant).values()) - sum(self._reported.get(tenant, {}).values())
            if news:
                pending[tenant] = abs(news)
        for tenant, types in self._ends.items():
            pending[tenant] += sum(counts.total() for counts in types.values())
        return [tenant for tenant, _ in pending.most_common(TENANTS_PER_TURN_MAX)]

    def _build_report(self, tenant: str) -> AddActivity:
        outcomes, before = dict(self._gate.outcomes.for_tenant(tenant)), self._reported.get(tenant, {})
        if sum(outcomes.values()) < sum(before.values()):
            before = {}  # the tenant was evicted from the counters, and started from zero
        counts = Counter({name: count - before.get(name, 0) for name, count in outcomes.items()})
        types = self._ends.pop(tenant, {})
        for ends in types.values():
            counts.update({f"end:{name}": count for name, count in ends.items()})
        self._reported[tenant] = outcomes
        self._number += 1
        return AddActivity(
            tenant=tenant,
            policy_id=policy_id(tenant, ACTIVITY_POLICY_NAME),
            source=self._source,
            number=self._number,
            counts={name: count for name, count in counts.items() if count > 0},
            type_counts={type: dict(ends) for type, ends in types.items()},
        )


def fitted_snapshot(types: dict[str, TypeCounts], *, is_complete: bool) -> CountsSnapshot:
    """As many types as a policy can hold, those with the most jobs first."""
    size, fitting = 0, {}
    for type, counts in types.items():
        size += len(json.encode({type: counts}))
        if size > _ROWS_BYTES_MAX:
            is_complete = False
            break
        fitting[type] = counts
    return CountsSnapshot(types=fitting, is_complete=is_complete)
