"""What a process counts in memory: the attempts that end here, and with `Stats` all that its parts have counted.

Submissions and what waits are counted where they pass (engines/gate.py, engines/batcher.py). What all processes share is in
counts.py; http/metrics.py and http/stats.py show both.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from msgspec import Struct

from onejob.core.facts import Job
from onejob.core.identity import CALLBACK_TYPE
from onejob.core.replies import AnyReply, Finished, Maintained
from onejob.core.states import CLAIMABLE_STATES
from onejob.engines.batcher import QueueStats
from onejob.engines.gate import CacheStats
from onejob.settings import IdempotencyConfig

from .maintenance import SweepResult

BUCKETS_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 21600.0, 86400.0)
TYPES_MAX = 100  # further types are counted under OTHER_TYPE
OTHER_TYPE = "other"
RETRIED = "retried"
ENDING_REPLIES = (Finished, Maintained)


class Stats(Struct, frozen=True):
    """How a ledger is configured, what it counted since it was opened, and what it holds now."""

    engine: str
    durability_warning: str  # what the declared durability does not cover; empty: nothing
    config: IdempotencyConfig
    outcomes: Mapping[str, int]
    refusals: Mapping[str, int]
    gate: CacheStats
    queues: Mapping[str, QueueStats]
    sweep_totals: SweepResult
    maintenance_failures: int


class TenantCounts(Struct, frozen=True):
    """A tenant's submissions in this process by outcome, and how many of its callers wait."""

    outcomes: Mapping[str, int]
    waiting: int


def ended_attempts(replies: Sequence[AnyReply | Exception]) -> list[tuple[Finished | Maintained, Job]]:
    """The replies with which an attempt ended, because it was reported or its lease expired, and their jobs."""
    ended: list[tuple[Finished | Maintained, Job]] = []
    for reply in replies:
        if type(reply) is Finished:
            ended.append((reply, reply.job))
        elif type(reply) is Maintained and reply.expired_lease is not None:
            ended.append((reply, reply.expired_lease))
    return ended


def end_of_attempt(job: Job) -> str:
    """How the last attempt of a job ended: the job's state, or that it is retried."""
    return RETRIED if job.state in CLAIMABLE_STATES else str(job.state)


class DurationHistogram:
    __slots__ = ("counts", "total_seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_SECONDS) + 1)
        self.total_seconds = 0.0

    def observe(self, seconds: float) -> None:
        seconds = max(seconds, 0.0)
        self.counts[bisect_left(BUCKETS_SECONDS, seconds)] += 1
        self.total_seconds += seconds


class TypeStats:
    """The attempts of one type. A job waits from its creation or `run_at` to the start of its first attempt."""

    __slots__ = ("ends", "lease_expiries", "runs", "waits")

    def __init__(self) -> None:
        self.ends: dict[str, int] = {}
        self.lease_expiries: dict[str, int] = {}  # by how the attempt ended; they are among the ends too
        self.waits = DurationHistogram()
        self.runs = DurationHistogram()

    def observe_durations(self, job: Job, at: int) -> None:
        self.runs.observe((at - job.started_at) / 1000)
        if job.attempts == 1:
            self.waits.observe((job.started_at - max(job.created_at, job.run_at)) / 1000)


class AttemptStats:
    def __init__(self) -> None:
        self.types: dict[str, TypeStats] = {}
        self.callbacks: dict[str, int] = {}  # deliveries of webhook callbacks by end; never counted under another type
        self.schedule_conflicts = 0  # ticks of schedules whose key belongs to another submission

    def count_end(self, reply: Finished | Maintained, job: Job) -> None:
        stats, end = self._stats_for(job), end_of_attempt(job)
        stats.ends[end] = stats.ends.get(end, 0) + 1
        if job.type == CALLBACK_TYPE:
            self.callbacks[end] = self.callbacks.get(end, 0) + 1
        if isinstance(reply, Finished):
            stats.observe_durations(job, reply.at)
        else:
            stats.lease_expiries[end] = stats.lease_expiries.get(end, 0) + 1

    def _stats_for(self, job: Job) -> TypeStats:
        stats = self.types.get(job.type)
        if stats is None:
            name = job.type if len(self.types) < TYPES_MAX else OTHER_TYPE
            stats = self.types.setdefault(name, TypeStats())
        return stats
