"""Counts the attempts that end in this process: how they ended, how long jobs waited, how long they ran."""

from bisect import bisect_left
from collections.abc import Sequence

from onejob.core.facts import Job
from onejob.core.identity import CALLBACK_TYPE
from onejob.core.replies import AnyReply, Finished, Maintained
from onejob.core.states import CLAIMABLE_STATES

BUCKETS_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 21600.0, 86400.0)
TYPES_MAX = 100  # further types are counted under OTHER_TYPE
OTHER_TYPE = "other"
RETRIED = "retried"
ENDING_REPLIES = (Finished, Maintained)


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
