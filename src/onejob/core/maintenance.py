"""Maintenance: expire keys, end expired leases, delete ended jobs; forget and purge keys; count hits.

The sweeper or an operator proposes these commands. Each checks again inside its decision, on the engine's time, whether
anything is due, so a late or repeated command changes nothing.
"""

from collections.abc import Iterable, Mapping
from operator import attrgetter

from msgspec import json

from .callback import callback_job_id
from .command import CommandData, Facts, Footprint, Step
from .credentials import is_permanent
from .facts import (
    CONFLICTS_MAX,
    KINDS,
    Fact,
    Job,
    KeyConflict,
    Kind,
    Policy,
    Record,
    Stream,
    Usage,
    is_live,
    next_version,
    unexpired_policy,
)
from .ledger_settings import decode_settings
from .replies import Forgotten, Maintained, Missing, Reason, Refused
from .states import ENDED_STATES, Delivery, IdempotencyStatus, JobState, Move
from .work import LAPSE_DIGEST, RETENTION_MS, Event, end_job, record_event, released_job

SWEEPER = "system:sweep"
CONFLICT_PATHS_CHARS_MAX = 400  # so that the conflicts of a record take at most a few kilobytes
# A policy of no tenant that is written after each purge: a store that keeps older states beside the facts then removes
# those too.
ERASURE_POLICY_NAME = "erasure"

# A fact is due when all of these times have passed and the first of them is set. Due facts are sorted by the first.
DUE_FIELDS: Mapping[Kind, tuple[str, ...]] = {
    Kind.RECORD: ("expires_at", "lease_until"),
    Kind.JOB: ("due_at",),
    Kind.STREAM: ("expires_at",),
    Kind.USAGE: ("due_at",),
    Kind.POLICY: ("expires_at",),
}
MaintenanceItem = Record | Job | Stream | Usage | Policy


def is_due(fact: MaintenanceItem, now: int) -> bool:
    times: list[int] = [getattr(fact, name) for name in DUE_FIELDS[KINDS[type(fact)]]]
    return times[0] > 0 and max(times) < now


def due_sort_key(fact: MaintenanceItem) -> tuple[int, bytes]:
    return getattr(fact, DUE_FIELDS[KINDS[type(fact)]][0]), fact.id


def is_abandoned_preparation(job: Job, now: int) -> bool:
    """True if the lease of whoever prepared the job is over, and its key can still be taken over."""
    return job.state is JobState.PREPARING and bool(job.key) and job.due_at < now <= job.keep_until


class Expire(CommandData, frozen=True, gc=False, kw_only=True):
    """Delete a record that has expired."""

    record_id: bytes

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, self.record_id)

    def decide(self, facts: Facts, now: int) -> Step[Maintained]:
        record = facts.record
        if record is None or is_live(record, now):
            return Step(Maintained(False, now))
        return Step(Maintained(True, now), drops=(record,))


class ExpirePolicy(CommandData, frozen=True, gc=False, kw_only=True):
    """Delete a policy that has expired."""

    policy_id: bytes

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, policy=self.policy_id)

    def decide(self, facts: Facts, now: int) -> Step[Maintained]:
        policy = facts.policy
        if policy is None or unexpired_policy(policy, now) is not None:
            return Step(Maintained(False, now))
        return Step(Maintained(True, now), drops=(policy,))


class Maintain(CommandData, frozen=True, gc=False, kw_only=True):
    """Do what is due for a job: fail an abandoned preparation, end an expired lease, delete an ended job."""

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
        if job.state is JobState.PREPARING and is_abandoned_preparation(job, now):
            return Step(Maintained(False, now))  # until its key expires, whoever takes the key over may go on
        if job.state is JobState.PREPARING:
            return self._end_job(job, facts, now, Move.ABANDON, "preparing it was not finished before the key expired")
        if job.state is JobState.RUNNING:
            return self._end_expired_lease(job, facts, now)
        if job.state is JobState.PENDING:  # claimed but never started: nothing ran
            return Step(Maintained(True, now), (released_job(job, now),))
        return Step(Maintained(False, now))

    def _end_expired_lease(self, job: Job, facts: Facts, now: int) -> Step[Maintained]:
        if job.delivery is Delivery.AT_MOST_ONCE:
            return self._end_job(
                job, facts, now, Move.LOSE, "the lease expired after the start: the worker stopped responding"
            )
        if job.attempts >= job.attempts_max:
            return self._end_job(
                job, facts, now, Move.FAIL, "the lease expired, and no attempt is left: the worker stopped responding"
            )
        attachments, trims = record_event(job, Event(now, "lease lapsed", SWEEPER))
        released = released_job(job, now, finish_digest=LAPSE_DIGEST, events=job.events + 1)
        return Step(Maintained(True, now, released), (released,), attachments=attachments, trims=trims)

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
        ended = next(fact for fact in end.puts if isinstance(fact, Job) and fact.id == job.id)
        expired = ended if job.state is JobState.RUNNING else None
        return Step(Maintained(True, now, expired), end.puts, attachments=end.attachments, trims=end.trims)


class Forget(CommandData, frozen=True, gc=False, kw_only=True):
    """Let a key expire early, but not before every gate has forgotten it. The job stays."""

    record_id: bytes
    actor: str
    grace_ms: int = 0  # the longest time that a gate caches an answer, if the settings do not say it
    not_after: int = 0  # on the engine's time; 0: no limit
    settings: bytes = b""  # of the ledger; they say how long a gate may cache an answer

    @property
    def has_echo(self) -> bool:
        return False

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            self.tenant, self.record_id, follow_jobs=True, not_after=self.not_after, settings=self.settings
        )

    def decide(self, facts: Facts, now: int) -> Step[Forgotten | Missing | Refused]:
        record = facts.record
        if record is None or not is_live(record, now):
            return Step(Missing(now))
        if record.status is IdempotencyStatus.PENDING and now <= record.lease_until:
            return Step(Refused(Reason.IN_PROGRESS, "the key is held; forget it when it is settled", now))
        grace_ms = decode_settings(self.settings).memory_ms(now) if self.settings else self.grace_ms
        expires_at = min(record.expires_at, now + grace_ms)
        forgotten = next_version(record, now, expires_at=expires_at)
        job = facts.job
        if job is None:
            return Step(Forgotten(expires_at, now), (forgotten,))
        attachments, trims = record_event(job, Event(now, "key forgotten", self.actor))
        due_at = expires_at if job.state is JobState.PREPARING else job.due_at
        job = next_version(job, now, events=job.events + 1, keep_until=expires_at, due_at=due_at)
        return Step(Forgotten(expires_at, now), (forgotten, job), attachments=attachments, trims=trims)


class Purge(CommandData, frozen=True, gc=False, kw_only=True):
    """Delete facts of a tenant in any state; a record takes its jobs with it."""

    record_id: bytes = b""
    job_ids: tuple[bytes, ...] = ()
    stream_id: bytes = b""
    usage_id: bytes = b""
    policy_id: bytes = b""
    memo_id: bytes = b""
    not_after: int = 0  # on the engine's time; 0: no limit

    @property
    def has_echo(self) -> bool:
        return False

    @property
    def footprint(self) -> Footprint:
        others = (self.stream_id, self.usage_id, self.policy_id)
        return Footprint(
            self.tenant,
            self.record_id,
            self.job_ids,
            *others,
            follow_jobs=True,
            memo=self.memo_id,
            not_after=self.not_after,
        )

    def decide(self, facts: Facts, now: int) -> Step[Maintained]:
        policy = None if facts.policy is None or is_permanent(facts.policy) else facts.policy
        named: list[Fact | None] = [facts.record, facts.stream, facts.usage, policy, facts.memo]
        job_ids = facts.record.job_ids if facts.record is not None else b""
        # A job whose record may not have expired goes with that record, or the key would name a deleted job.
        jobs = (job for job in facts.jobs.values() if job.id in job_ids or not job.key or now > job.keep_until)
        drops = (*(fact for fact in named if fact is not None), *jobs)
        return Step(Maintained(bool(drops), now), drops=drops)


class CountHits(CommandData, frozen=True, gc=False, kw_only=True):
    """Store the hits and conflicts that a gate counted in memory."""

    record_id: bytes
    hits: int
    conflicts: int
    recent_conflicts: tuple[KeyConflict, ...] = ()  # the last of them
    not_after: int = 0  # on the engine's time; 0: no limit

    @property
    def has_echo(self) -> bool:
        return False

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, self.record_id, not_after=self.not_after)

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
            recent_conflicts=add_conflicts(record.recent_conflicts, self.recent_conflicts),
        )
        return Step(Maintained(True, now), (counted,))


def add_conflicts(stored: bytes, newer: tuple[KeyConflict, ...]) -> bytes:
    """`Record.recent_conflicts` with these; several gates report theirs in any order."""
    if not newer:
        return stored
    in_order = sorted((*decode_conflicts(stored), *newer), key=attrgetter("at"))
    return json.encode(in_order[-CONFLICTS_MAX:])


def decode_conflicts(stored: bytes) -> tuple[KeyConflict, ...]:
    return json.decode(stored, type=tuple[KeyConflict, ...]) if stored else ()


def shorten_paths(paths: Iterable[str]) -> tuple[str, ...]:
    """As many paths as a record keeps of one conflict; an ellipsis stands for the others."""
    kept: list[str] = []
    left = CONFLICT_PATHS_CHARS_MAX
    for path in paths:
        left -= len(path)
        if left < 0:
            return (*kept, "…")
        kept.append(path)
    return tuple(kept)
