"""Hygiene as decisions: proposed by the sweeper or an operator, judged by the engine's own time.

Whatever is proposed is looked at again inside the decision, so a late or repeated proposal does no harm.
"""

from collections.abc import Mapping

from .callback import callback_job_id
from .command import CommandData, Facts, Footprint, Step
from .facts import KINDS, Fact, Job, Kind, Record, Stream, Usage, is_live, next_version
from .replies import Forgotten, Maintained, Missing, Reason, Refused
from .states import ENDED_STATES, Delivery, IdempotencyStatus, JobState, Move, state_after
from .work import RETENTION_MS, Event, end_job, record_event

SWEEPER = "system:sweep"

# What is due: all of these moments have passed, and the first of them is set. The first puts them in order.
DUE_FIELDS: Mapping[Kind, tuple[str, ...]] = {
    Kind.RECORD: ("expires_at", "lease_until"),
    Kind.JOB: ("due_at",),
    Kind.STREAM: ("expires_at",),
    Kind.USAGE: ("due_at",),
}
MaintenanceItem = Record | Job | Stream | Usage


def is_due(fact: MaintenanceItem, now: int) -> bool:
    """Whether upkeep should look at a fact."""
    moments: list[int] = [getattr(fact, name) for name in DUE_FIELDS[KINDS[type(fact)]]]
    return moments[0] > 0 and max(moments) < now


def due_sort_key(fact: MaintenanceItem) -> tuple[int, bytes]:
    """Where a fact stands among those that are due."""
    return getattr(fact, DUE_FIELDS[KINDS[type(fact)]][0]), fact.id


class Expire(CommandData, frozen=True, gc=False, kw_only=True):
    """Drop a record whose window has passed."""

    record_id: bytes

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, self.record_id)

    def decide(self, facts: Facts, now: int) -> Step[Maintained]:
        record = facts.record
        if record is None or is_live(record, now):
            return Step(Maintained(False, now))
        return Step(Maintained(True, now), drops=(record,))


class Maintain(CommandData, frozen=True, gc=False, kw_only=True):
    """Do what is due with a job: end an abandoned preparation, end a lapsed lease, drop a retained job."""

    job_id: bytes
    retention_ms: int = RETENTION_MS

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, jobs=(self.job_id, callback_job_id(self.job_id)), follow_usage=True)

    def decide(self, facts: Facts, now: int) -> Step[Maintained]:
        job = facts.jobs.get(self.job_id)
        if job is None or not job.due_at or now <= job.due_at:
            return Step(Maintained(False, now))
        if job.state in ENDED_STATES:
            return Step(Maintained(True, now), drops=(job,))
        if job.state is JobState.PREPARING:
            return self._end_job(job, facts, now, Move.ABANDON, "nobody finished preparing it inside its window")
        if job.state is JobState.RUNNING:
            return self._end_expired_lease(job, facts, now)
        if job.state is JobState.PENDING:  # claimed but never started: nothing ran
            return Step(Maintained(True, now), (_released_job(job, now),))
        return Step(Maintained(False, now))

    def _end_expired_lease(self, job: Job, facts: Facts, now: int) -> Step[Maintained]:
        if job.delivery is Delivery.AT_MOST_ONCE:
            return self._end_job(job, facts, now, Move.LOSE, "its worker went silent after the start")
        if job.attempts >= job.attempts_max:
            return self._end_job(job, facts, now, Move.FAIL, "its worker went silent and no attempt is left")
        adds, cuts = record_event(job, Event(now, "lease lapsed", SWEEPER))
        again = _released_job(job, now, events=job.events + 1)
        return Step(Maintained(True, now), (again,), attachments=adds, trims=cuts)

    def _end_job(self, job: Job, facts: Facts, now: int, move: Move, error: str) -> Step[Maintained]:
        end = end_job(
            job,
            facts.usage,
            now,
            move=move,
            actor=SWEEPER,
            retention_ms=self.retention_ms,
            error=error,
            callback=facts.jobs.get(callback_job_id(self.job_id)),
        )
        return Step(Maintained(True, now), end.puts, attachments=end.attachments, trims=end.trims)


class Forget(CommandData, frozen=True, gc=False, kw_only=True):
    """Let a key expire early, once every gate has forgotten it. The job stays."""

    record_id: bytes
    actor: str
    grace_ms: int  # the longest that a gate may remember

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, self.record_id, follow_jobs=True)

    def decide(self, facts: Facts, now: int) -> Step[Forgotten | Missing | Refused]:
        record = facts.record
        if record is None or not is_live(record, now):
            return Step(Missing(now))
        if record.status is IdempotencyStatus.PENDING and now <= record.lease_until:
            return Step(Refused(Reason.IN_PROGRESS, "somebody holds this key; forget it when it is settled", now))
        expires_at = min(record.expires_at, now + self.grace_ms)
        forgotten = next_version(record, now, expires_at=expires_at)
        job = facts.job
        if job is None:
            return Step(Forgotten(expires_at, now), (forgotten,))
        adds, cuts = record_event(job, Event(now, "key forgotten", self.actor))
        due_at = expires_at if job.state is JobState.PREPARING else job.due_at
        told_job = next_version(job, now, events=job.events + 1, keep_until=expires_at, due_at=due_at)
        return Step(Forgotten(expires_at, now), (forgotten, told_job), attachments=adds, trims=cuts)


class Purge(CommandData, frozen=True, gc=False, kw_only=True):
    """Erase facts of a tenant, whatever their state; a record takes its jobs along."""

    record_id: bytes = b""
    job_ids: tuple[bytes, ...] = ()
    stream_id: bytes = b""
    usage_id: bytes = b""
    policy_id: bytes = b""

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            self.tenant,
            self.record_id,
            self.job_ids,
            self.stream_id,
            self.usage_id,
            self.policy_id,
            follow_jobs=True,
        )

    def decide(self, facts: Facts, now: int) -> Step[Maintained]:
        named: list[Fact | None] = [facts.record, facts.stream, facts.usage, facts.policy]
        held = facts.record.job_ids if facts.record is not None else b""
        # A job whose record may be alive goes with its record, or the key would name a job that is gone.
        jobs = (job for job in facts.jobs.values() if job.id in held or not job.key or now > job.keep_until)
        drops = (*(fact for fact in named if fact is not None), *jobs)
        return Step(Maintained(bool(drops), now), drops=drops)


class CountHits(CommandData, frozen=True, gc=False, kw_only=True):
    """Write down the hits and conflicts that were counted in memory."""

    record_id: bytes
    hits: int
    conflicts: int

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, self.record_id)

    def decide(self, facts: Facts, now: int) -> Step[Maintained]:
        record = facts.record
        if record is None or not is_live(record, now):
            return Step(Maintained(False, now))
        counted = next_version(
            record,
            now,
            hits=record.hits + self.hits,
            conflicts=record.conflicts + self.conflicts,
            last_hit_at=now if self.hits else record.last_hit_at,
        )
        return Step(Maintained(True, now), (counted,))


def _released_job(job: Job, now: int, **changes: int) -> Job:
    state = state_after(job.state, Move.RELEASE)
    return next_version(job, now, state=state, holder=b"", lease_until=0, due_at=0, **changes)
