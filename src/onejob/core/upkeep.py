"""Hygiene as decisions: proposed by the sweeper or an operator, judged by the engine's own time.

Whatever is proposed is looked at again inside the decision, so a late or repeated proposal does no harm.
"""

from collections.abc import Mapping

from .command import CommandData
from .ending import RETENTION_MS, ended
from .facts import KINDS, Fact, Job, Kind, Record, Stream, Tally, changed, live
from .history import Event, told
from .notice import notice_id
from .receipt import Forgotten, Missing, Reason, Refused, Tended
from .states import ENDED, Delivery, IdempotencyStatus, JobState, Move, after
from .step import Facts, Footprint, Step

SWEEPER = "system:sweep"

# What is due: all of these moments have passed, and the first of them is set. The first puts them in order.
DUE: Mapping[Kind, tuple[str, ...]] = {
    Kind.RECORD: ("expires_at", "lease_until"),
    Kind.JOB: ("due_at",),
    Kind.STREAM: ("expires_at",),
    Kind.TALLY: ("due_at",),
}
Upkept = Record | Job | Stream | Tally


def due(fact: Upkept, now: int) -> bool:
    """Whether upkeep should look at a fact."""
    moments: list[int] = [getattr(fact, name) for name in DUE[KINDS[type(fact)]]]
    return moments[0] > 0 and max(moments) < now


def due_place(fact: Upkept) -> tuple[int, bytes]:
    """Where a fact stands among those that are due."""
    return getattr(fact, DUE[KINDS[type(fact)]][0]), fact.id


class Expire(CommandData, frozen=True, gc=False, kw_only=True):
    """Drop a record whose window has passed."""

    record_id: bytes

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, self.record_id)

    def decide(self, facts: Facts, now: int) -> Step[Tended]:
        record = facts.record
        if record is None or live(record, now):
            return Step(Tended(False, now))
        return Step(Tended(True, now), drops=(record,))


class Tend(CommandData, frozen=True, gc=False, kw_only=True):
    """Do what is due with a job: end an abandoned preparation, end a lapsed lease, drop a retained job."""

    job_id: bytes
    retention_ms: int = RETENTION_MS

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, jobs=(self.job_id, notice_id(self.job_id)), follow_tally=True)

    def decide(self, facts: Facts, now: int) -> Step[Tended]:
        job = facts.jobs.get(self.job_id)
        if job is None or not job.due_at or now <= job.due_at:
            return Step(Tended(False, now))
        if job.state in ENDED:
            return Step(Tended(True, now), drops=(job,))
        if job.state is JobState.PREPARING:
            return self._end(job, facts, now, Move.ABANDON, "nobody finished preparing it inside its window")
        if job.state is JobState.RUNNING:
            return self._lapse(job, facts, now)
        if job.state is JobState.PENDING:  # claimed but never started: nothing ran
            return Step(Tended(True, now), (_released(job, now),))
        return Step(Tended(False, now))

    def _lapse(self, job: Job, facts: Facts, now: int) -> Step[Tended]:
        if job.delivery is Delivery.AT_MOST_ONCE:
            return self._end(job, facts, now, Move.LOSE, "its worker went silent after the start")
        if job.attempts >= job.attempts_max:
            return self._end(job, facts, now, Move.FAIL, "its worker went silent and no attempt is left")
        adds, cuts = told(job, Event(now, "lease lapsed", SWEEPER))
        again = _released(job, now, events=job.events + 1)
        return Step(Tended(True, now), (again,), adds=adds, cuts=cuts)

    def _end(self, job: Job, facts: Facts, now: int, move: Move, error: str) -> Step[Tended]:
        end = ended(
            job,
            facts.tally,
            now,
            move=move,
            actor=SWEEPER,
            retention_ms=self.retention_ms,
            error=error,
            notice=facts.jobs.get(notice_id(self.job_id)),
        )
        return Step(Tended(True, now), end.puts, adds=end.adds, cuts=end.cuts)


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
        if record is None or not live(record, now):
            return Step(Missing(now))
        if record.status is IdempotencyStatus.PENDING and now <= record.lease_until:
            return Step(
                Refused(Reason.IN_PROGRESS, "somebody holds this key; forget it when it is settled", now)
            )
        expires_at = min(record.expires_at, now + self.grace_ms)
        forgotten = changed(record, now, expires_at=expires_at)
        job = facts.job
        if job is None:
            return Step(Forgotten(expires_at, now), (forgotten,))
        adds, cuts = told(job, Event(now, "key forgotten", self.actor))
        due_at = expires_at if job.state is JobState.PREPARING else job.due_at
        told_job = changed(job, now, events=job.events + 1, keep_until=expires_at, due_at=due_at)
        return Step(Forgotten(expires_at, now), (forgotten, told_job), adds=adds, cuts=cuts)


class Purge(CommandData, frozen=True, gc=False, kw_only=True):
    """Erase facts of a tenant, whatever their state; a record takes its jobs along."""

    record_id: bytes = b""
    job_ids: tuple[bytes, ...] = ()
    stream_id: bytes = b""
    tally_id: bytes = b""
    policy_id: bytes = b""

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            self.tenant,
            self.record_id,
            self.job_ids,
            self.stream_id,
            self.tally_id,
            self.policy_id,
            follow_jobs=True,
        )

    def decide(self, facts: Facts, now: int) -> Step[Tended]:
        named: list[Fact | None] = [facts.record, facts.stream, facts.tally, facts.policy]
        held = facts.record.job_ids if facts.record is not None else b""
        # A job whose record may be alive goes with its record, or the key would name a job that is gone.
        jobs = (job for job in facts.jobs.values() if job.id in held or not job.key or now > job.keep_until)
        drops = (*(fact for fact in named if fact is not None), *jobs)
        return Step(Tended(bool(drops), now), drops=drops)


class CountHits(CommandData, frozen=True, gc=False, kw_only=True):
    """Write down the hits and conflicts that were counted in memory."""

    record_id: bytes
    hits: int
    conflicts: int

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, self.record_id)

    def decide(self, facts: Facts, now: int) -> Step[Tended]:
        record = facts.record
        if record is None or not live(record, now):
            return Step(Tended(False, now))
        counted = changed(
            record,
            now,
            hits=record.hits + self.hits,
            conflicts=record.conflicts + self.conflicts,
            last_hit_at=now if self.hits else record.last_hit_at,
        )
        return Step(Tended(True, now), (counted,))


def _released(job: Job, now: int, **more: int) -> Job:
    state = after(job.state, Move.RELEASE)
    return changed(job, now, state=state, holder=b"", lease_until=0, due_at=0, **more)
