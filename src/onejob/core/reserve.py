"""Reserve, Renew, Settle, TakeOver: hold a key under a lease while its work is done, then settle it."""

from enum import StrEnum
from typing import ClassVar

from msgspec.structs import replace

from .command import CommandData, Facts, Footprint, Step
from .facts import Job, Record, Usage, is_live, new_job, next_version
from .quota import (
    QuotaCharge,
    confirm_job_slot,
    preparation_request,
    refuse_new_key,
    release_job_slot,
    renew_job_slot,
)
from .replies import InProgress, KeyHeld, KeySettled, LimitWarning, Missing, Reason, Refused, Rejected
from .states import ENDED_STATES, IdempotencyStatus, JobState, Move, RecordMove, status_after
from .submit import (
    ExistingKeyReply,
    SubmissionCommand,
    commit_ended_job,
    committed_record,
    readied_job,
    replayed_reply,
    retained_job,
)
from .work import RETENTION_MS, end_job

# A module constant for the hot path: looking up a member of an enum costs more than building a fact.
_PENDING = IdempotencyStatus.PENDING


class Reserve(SubmissionCommand, frozen=True, gc=False, kw_only=True):
    """Hold a key, or take over one whose lease has expired; the job is stored as preparing."""

    holder: bytes
    lease_ms: int
    wait_if_held: bool = True  # False: the gate replies InProgress at once instead of waiting for the holder

    def decide(self, facts: Facts, now: int) -> Step[KeyHeld | ExistingKeyReply]:
        record = facts.record
        if self.free_version is not None or self.external_job is not None:
            external = self.reply_for_external_job(facts, now)
            if external is not None:
                return external
        if record is None or not is_live(record, now):
            return self._begin(record, facts, now)
        reply = self.reply_for_existing_key(record, facts, now)
        if reply is None:
            return self._take_over(record, facts, now)
        if type(reply) is InProgress and record.holder == self.holder:
            return Step(_held_reply(record, now, taken_over=record.token > 1))
        return Step(reply)

    def _begin(self, old: Record | None, facts: Facts, now: int) -> Step[KeyHeld | ExistingKeyReply]:
        if self.job_id and self.job_id in facts.jobs:  # executed before, and its record has been deleted since
            return Step(Refused(Reason.STALE, "the lease on this key has expired; reserve the key again", now))
        if refused := refuse_new_key(self.key_limit, now):
            return Step(refused)
        lease_until = now + self.lease_ms
        expires_at = lease_until + self.ttl_ms
        record = self.new_record(old, _PENDING, now, holder=self.holder, lease_until=lease_until, expires_at=expires_at)
        if not self.job_id:
            return Step(_held_reply(record, now, taken_over=False), (record,))
        request = preparation_request(self.job_id, cost=self.cost, until=lease_until, reservation=self.reservation)
        charged = self.charge(facts, request, now)
        if isinstance(charged, Refused):
            return Step(charged)
        usages, usage_id, warnings = _unpack_charge(charged)
        job = new_job(self, self, JobState.PREPARING, now, keep_until=expires_at, due_at=lease_until, usage_id=usage_id)
        reply = _held_reply(record, now, taken_over=False, warnings=warnings)
        return Step(reply, (record, job, *usages), attachments=(self.input_attachment(),))

    def _take_over(self, record: Record, facts: Facts, now: int) -> Step[KeyHeld | ExistingKeyReply]:
        """Slot and job become this user's; the slot of the previous holder ended with its lease."""
        job = facts.jobs.get(record.job_id)
        if job is None or job.state in ENDED_STATES:
            return _take_over_step(record, job, (), now, holder=self.holder, lease_ms=self.lease_ms)
        until, slot_id = now + self.lease_ms, self.reservation
        request = preparation_request(job.id, cost=job.cost_held, until=until, reservation=slot_id, is_new=False)
        charged = self.charge(facts, request, now)
        if isinstance(charged, Refused):
            return Step(charged)
        usages, usage_id, warnings = _unpack_charge(charged)
        reassigned = replace(job, usage_id=usage_id, user=self.user)
        step = _take_over_step(record, reassigned, usages, now, holder=self.holder, lease_ms=self.lease_ms)
        return replace(step, reply=replace(step.reply, warnings=warnings)) if warnings else step


UNANSWERED_MAX = 10_000


class UnansweredReservations:
    """The reservations that got no answer: each may hold its key, unknown to its caller.

    A reservation of the same record with the same fingerprint and user is its repetition, and is made as the same holder,
    which gets the key back if it has it. Nobody else can have been told that holder. Beyond UNANSWERED_MAX the oldest is
    forgotten; its key becomes free when the lease expires.
    """

    def __init__(self) -> None:
        self._holders: dict[tuple[bytes, bytes, str], bytes] = {}

    def add(self, reserve: Reserve) -> None:
        self._holders[_repetition_id(reserve)] = reserve.holder
        if len(self._holders) > UNANSWERED_MAX:
            del self._holders[next(iter(self._holders))]

    def resume(self, reserve: Reserve) -> Reserve:
        """This reservation, as the holder that got no answer if there is one. Of several at once, one is."""
        holder = self._holders.pop(_repetition_id(reserve), None) if self._holders else None
        return reserve if holder is None else replace(reserve, holder=holder)


def _repetition_id(reserve: Reserve) -> tuple[bytes, bytes, str]:
    return reserve.record_id, reserve.fingerprint, reserve.user


class KeyHolderCommand(CommandData, frozen=True, gc=False, kw_only=True):
    """A command by the holder of a key. The token alone is not a fence: a re-created record counts from 1 again."""

    record_id: bytes
    job_id: bytes
    token: int
    holder: bytes
    policy_id: bytes = b""  # of the tenant's limits, which apply when an expired slot is charged again

    @property
    def footprint(self) -> Footprint:
        # Without a job there is nothing to charge and nothing to follow.
        if not self.job_id:
            return Footprint(self.tenant, self.record_id)
        return _key_footprint(self.tenant, self.record_id, self.policy_id)

    def record_if_held(self, record: Record | None, now: int) -> Record | None:
        """The record, if it is live and this holder still has it."""
        if record is None or not is_live(record, now):
            return None
        is_held = (record.job_id, record.token, record.holder) == (self.job_id, self.token, self.holder)
        return record if is_held else None

    def stale_refusal(self, now: int) -> Refused:
        message = "the lease was lost: the key expired, or another holder took it over; stop this work"
        return Refused(Reason.STALE, message, now, {"token": self.token})


class Renew(KeyHolderCommand, frozen=True, gc=False, kw_only=True):
    """Extend the lease of a key, unless another holder took it over."""

    lease_ms: int

    def decide(self, facts: Facts, now: int) -> Step[KeyHeld | Refused]:
        record = self.record_if_held(facts.record, now)
        if record is None:
            return Step(self.stale_refusal(now))
        if record.status is not IdempotencyStatus.PENDING or not record.lease_until:
            return Step(Refused(Reason.ALREADY_SETTLED, "the key is settled: no lease to renew", now))
        lease_until = now + self.lease_ms
        expires_at = lease_until + record.ttl_ms
        usages = renew_job_slot(facts.job, facts, now, until=lease_until)
        if isinstance(usages, Refused):
            return Step(usages)
        renewed = next_version(record, now, lease_until=lease_until, expires_at=expires_at)
        reply = _held_reply(renewed, now, taken_over=record.token > 1)
        jobs = _retained_jobs(facts.job, now, keep_until=expires_at, lease_until=lease_until)
        return Step(reply, (renewed, *jobs, *usages))


class Verdict(StrEnum):
    COMMIT = "commit"
    REJECT = "reject"
    FAIL = "fail"  # retryable: the record keeps its fingerprint and its job id


class Settle(KeyHolderCommand, frozen=True, gc=False, kw_only=True):
    """Settle a held key: commit it, reject it, or release it for another try."""

    may_be_overtaken: ClassVar[bool] = True

    verdict: Verdict
    receipt: bytes = b""
    ttl_ms: int = 0  # 0: as reserved
    actor: str
    retention_ms: int = RETENTION_MS

    @property
    def payload_bytes(self) -> int:
        return len(self.receipt)

    def decide(self, facts: Facts, now: int) -> Step[KeySettled | Refused]:
        record = self.record_if_held(facts.record, now)
        if record is None:
            return Step(self.stale_refusal(now))
        if record.status is not _PENDING or not record.lease_until:
            return Step(self._repeat_reply(record, facts, now))
        if self.verdict is Verdict.COMMIT:
            return self._commit(record, facts, now)
        reject = self.verdict is Verdict.REJECT
        return self._reject(record, facts, now) if reject else self._fail(record, facts, now)

    def _repeat_reply(self, record: Record, facts: Facts, now: int) -> KeySettled | Refused:
        """A retry with equal content succeeds; any other is refused."""
        if record.receipt == self.receipt and record.status is _STATUS_BY_VERDICT[self.verdict]:
            return KeySettled(record, facts.jobs.get(record.job_id), now)
        word = "released" if record.status is IdempotencyStatus.PENDING else record.status.value
        return Refused(Reason.ALREADY_SETTLED, f"the key is already {word}; this changes nothing", now)

    def _commit(self, record: Record, facts: Facts, now: int) -> Step[KeySettled | Refused]:
        ttl_ms = self.ttl_ms or record.ttl_ms
        committed = committed_record(
            record, now, holder=record.holder, token=record.token, ttl_ms=ttl_ms, receipt=self.receipt
        )
        job = facts.job
        if job is None or job.state in ENDED_STATES:
            return _settle_step(committed, facts, now)
        usages = confirm_job_slot(job, facts, now)
        if isinstance(usages, Refused):
            return Step(usages)
        ready = readied_job(job, now, keep_until=committed.expires_at, usage_id=usages[0].id if usages else b"")
        return Step(KeySettled(committed, ready, now), (committed, ready, *usages))

    def _reject(self, record: Record, facts: Facts, now: int) -> Step[KeySettled | Refused]:
        rejected = next_version(
            record,
            now,
            status=status_after(record.status, RecordMove.REJECT),
            lease_until=0,
            expires_at=now + (self.ttl_ms or record.ttl_ms),
            receipt=self.receipt,
        )
        job = facts.job
        if job is None or job.state in ENDED_STATES:
            return _settle_step(rejected, facts, now)
        end = end_job(
            replace(job, keep_until=rejected.expires_at),
            facts.usage,
            now,
            move=Move.REJECT,
            actor=self.actor,
            retention_ms=self.retention_ms,
            error="the submission was rejected",
        )
        return Step(
            KeySettled(rejected, end.job, now), (rejected, *end.puts), attachments=end.attachments, trims=end.trims
        )

    def _fail(self, record: Record, facts: Facts, now: int) -> Step[KeySettled | Refused]:
        released = next_version(
            record,
            now,
            status=status_after(record.status, RecordMove.FAIL),
            lease_until=0,
            expires_at=now + (self.ttl_ms or record.ttl_ms),
            receipt=self.receipt,
        )
        return _settle_step(released, facts, now, *release_job_slot(facts.job, facts, now))


class TakeOver(CommandData, frozen=True, gc=False, kw_only=True):
    """Take over a pending key whose lease has expired, to finish its work; it never creates a key."""

    record_id: bytes
    holder: bytes
    lease_ms: int
    policy_id: bytes = b""
    free_version: int | None = None  # of the record that was found; None: whatever it is now

    @property
    def footprint(self) -> Footprint:
        return _key_footprint(self.tenant, self.record_id, self.policy_id)

    def decide(self, facts: Facts, now: int) -> Step[KeyHeld | Missing | ExistingKeyReply]:
        record = facts.record
        if record is None or not is_live(record, now):
            return Step(Missing(now))
        match record.status:
            case IdempotencyStatus.COMMITTED:
                return Step(replayed_reply(record, facts, now))
            case IdempotencyStatus.REJECTED:
                return Step(Rejected(record.job_id, record.receipt, record.expires_at, now))
            case IdempotencyStatus.PENDING if now > record.lease_until:
                if self.free_version not in (None, record.version):
                    return Step(Missing(now))  # what was found is over
                job = facts.jobs.get(record.job_id)
                usages = renew_job_slot(job, facts, now, until=now + self.lease_ms)
                if isinstance(usages, Refused):
                    return Step(usages)
                return _take_over_step(record, job, usages, now, holder=self.holder, lease_ms=self.lease_ms)
        if record.holder == self.holder:
            return Step(_held_reply(record, now, taken_over=record.token > 1))
        return Step(InProgress(record.job_id, record.lease_until - now + 1, now))


_STATUS_BY_VERDICT = {
    Verdict.COMMIT: IdempotencyStatus.COMMITTED,
    Verdict.REJECT: IdempotencyStatus.REJECTED,
    Verdict.FAIL: IdempotencyStatus.PENDING,
}


def _key_footprint(tenant: str, record_id: bytes, policy_id: bytes) -> Footprint:
    """A record, its job, and the usage fact that counts it."""
    return Footprint(tenant, record_id, policy=policy_id, follow_jobs=True, follow_usage=True)


def _unpack_charge(charge: QuotaCharge | None) -> tuple[tuple[Usage, ...], bytes, tuple[LimitWarning, ...]]:
    return ((), b"", ()) if charge is None else ((charge.usage,), charge.usage.id, charge.warnings)


def _held_reply(record: Record, now: int, *, taken_over: bool, warnings: tuple[LimitWarning, ...] = ()) -> KeyHeld:
    return KeyHeld(record.id, record.job_id, record.token, record.holder, record.lease_until, taken_over, now, warnings)


def _take_over_step(
    record: Record, job: Job | None, usages: tuple[Usage, ...], now: int, *, holder: bytes, lease_ms: int
) -> Step[KeyHeld | ExistingKeyReply]:
    if job is not None and job.state in ENDED_STATES:
        return commit_ended_job(record, job, now)
    lease_until = now + lease_ms
    expires_at = lease_until + record.ttl_ms
    taken_over = next_version(
        record,
        now,
        status=status_after(record.status, RecordMove.TAKE_OVER),
        holder=holder,
        token=record.token + 1,
        lease_until=lease_until,
        expires_at=expires_at,
    )
    reply = _held_reply(taken_over, now, taken_over=True)
    jobs = _retained_jobs(job, now, keep_until=expires_at, lease_until=lease_until)
    return Step(reply, (taken_over, *jobs, *usages))


def _settle_step(record: Record, facts: Facts, now: int, *usages: Usage) -> Step[KeySettled | Refused]:
    """The record changes; its job, if it has one, is only kept as long as the record."""
    jobs = _retained_jobs(facts.job, now, keep_until=record.expires_at)
    return Step(KeySettled(record, jobs[0] if jobs else None, now), (record, *jobs, *usages))


def _retained_jobs(job: Job | None, now: int, *, keep_until: int, lease_until: int = 0) -> tuple[Job, ...]:
    return () if job is None else (retained_job(job, now, keep_until=keep_until, lease_until=lease_until),)
