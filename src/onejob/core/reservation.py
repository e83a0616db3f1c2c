"""Reserve … Settle: for work between taking a key and knowing the answer."""

from enum import StrEnum

from msgspec.structs import replace

from .arrival import Answer, Arrival, closed, committed, kept, made_ready, replayed
from .charging import let_go, preparing, readied, reheld
from .command import CommandData
from .ending import RETENTION_MS, ended
from .facts import Job, Record, Tally, changed, live
from .quota import Taken
from .receipt import Caution, Held, InProgress, Missing, Reason, Refused, Rejected, Settled
from .states import ENDED, IdempotencyStatus, JobState, Move, RecordMove, status_after
from .step import Facts, Footprint, Step

# Looking up a member of an enum costs more than building a fact: the hot path has them at hand.
_PENDING = IdempotencyStatus.PENDING


class Reserve(Arrival, frozen=True, gc=False, kw_only=True):
    """Take a key, or take over one whose lease ran out; the job is stored as preparing."""

    holder: bytes
    lease_ms: int
    patient: bool = True  # False: the gate does not let it wait while somebody else holds the key

    def decide(self, facts: Facts, now: int) -> Step[Held | Answer]:
        record = facts.record
        if record is None or not live(record, now):
            return self._begin(record, facts, now)
        answer = self.answered(record, facts, now)
        if answer is None:
            return self._take_over(record, facts, now)
        if type(answer) is InProgress and record.holder == self.holder:
            return Step(_held(record, now, taken_over=record.token > 1))
        return Step(answer)

    def _begin(self, old: Record | None, facts: Facts, now: int) -> Step[Held | Answer]:
        mine = facts.jobs.get(self.job_id) if self.job_id else None
        if mine is not None:
            return Step(Refused(Reason.STALE, "this reservation has expired; begin a new one", now))
        lease_until = now + self.lease_ms
        expires_at = lease_until + self.ttl_ms
        record = self.new_record(
            old,
            _PENDING,
            now,
            holder=self.holder,
            lease_until=lease_until,
            expires_at=expires_at,
        )
        if not self.job_id:
            return Step(_held(record, now, taken_over=False), (record,))
        ask = preparing(self.job_id, cost=self.cost, until=lease_until, reservation=self.reservation)
        taken = self.charged(facts, ask, now)
        if isinstance(taken, Refused):
            return Step(taken)
        tallies, slot, cautions = _slot_of(taken)
        job = self.new_job(JobState.PREPARING, now, keep_until=expires_at, due_at=expires_at, slot=slot)
        reply = _held(record, now, taken_over=False, cautions=cautions)
        return Step(reply, (record, job, *tallies), adds=(self.attached_input(),))

    def _take_over(self, record: Record, facts: Facts, now: int) -> Step[Held | Answer]:
        """Slot and job are the taker's: the slot of the holder before ended with the lease."""
        job = facts.jobs.get(record.job_id)
        if job is None or job.state in ENDED:
            return _taken_over(record, job, (), now, holder=self.holder, lease_ms=self.lease_ms)
        until, named = now + self.lease_ms, self.reservation
        ask = preparing(job.id, cost=job.cost_held, until=until, reservation=named, is_new=False)
        taken = self.charged(facts, ask, now)
        if isinstance(taken, Refused):
            return Step(taken)
        tallies, slot, cautions = _slot_of(taken)
        marked = replace(job, slot=slot, user=self.user)
        step = _taken_over(record, marked, tallies, now, holder=self.holder, lease_ms=self.lease_ms)
        return replace(step, reply=replace(step.reply, cautions=cautions)) if cautions else step


class HolderCommand(CommandData, frozen=True, gc=False, kw_only=True):
    """A command by the holder of a key. A token alone is no fence: a re-created record starts again."""

    record_id: bytes
    job_id: bytes
    token: int
    holder: bytes
    policy_id: bytes = b""  # of the tenant's limits, under which a lost slot is taken again

    @property
    def footprint(self) -> Footprint:
        # Without a job nobody is charged, and there is nothing to follow.
        if not self.job_id:
            return Footprint(self.tenant, self.record_id)
        return _slotted(self.tenant, self.record_id, self.policy_id)

    def fenced(self, record: Record | None, now: int) -> Record | None:
        """The record, if it is alive and still this holder's."""
        if record is None or not live(record, now):
            return None
        mine = (record.job_id, record.token, record.holder) == (self.job_id, self.token, self.holder)
        return record if mine else None

    def stale(self, now: int) -> Refused:
        message = "the lease was lost: the key expired, or somebody took it over; do not go on"
        return Refused(Reason.STALE, message, now, {"token": self.token})


class Renew(HolderCommand, frozen=True, gc=False, kw_only=True):
    """Prolong a lease that nobody took over."""

    lease_ms: int

    def decide(self, facts: Facts, now: int) -> Step[Held | Refused]:
        record = self.fenced(facts.record, now)
        if record is None:
            return Step(self.stale(now))
        if record.status is not IdempotencyStatus.PENDING or not record.lease_until:
            return Step(Refused(Reason.ALREADY_SETTLED, "the key is settled: no lease to renew", now))
        lease_until = now + self.lease_ms
        expires_at = lease_until + record.ttl_ms
        tallies = reheld(facts.job, facts, now, until=lease_until)
        if isinstance(tallies, Refused):
            return Step(tallies)
        renewed = changed(record, now, lease_until=lease_until, expires_at=expires_at)
        reply = _held(renewed, now, taken_over=record.token > 1)
        return Step(reply, (renewed, *_kept(facts.job, now, keep_until=expires_at), *tallies))


class Verdict(StrEnum):
    COMMIT = "commit"
    REJECT = "reject"
    FAIL = "fail"  # retryable: the record keeps its fingerprint and its job id


class Settle(HolderCommand, frozen=True, gc=False, kw_only=True):
    """Say what became of a reserved key."""

    verdict: Verdict
    receipt: bytes = b""
    ttl_ms: int = 0  # 0: as reserved
    actor: str
    retention_ms: int = RETENTION_MS

    @property
    def bulk(self) -> int:
        return len(self.receipt)

    def decide(self, facts: Facts, now: int) -> Step[Settled | Refused]:
        record = self.fenced(facts.record, now)
        if record is None:
            return Step(self.stale(now))
        if record.status is not _PENDING or not record.lease_until:
            return Step(self._again(record, facts, now))
        if self.verdict is Verdict.COMMIT:
            return self._commit(record, facts, now)
        reject = self.verdict is Verdict.REJECT
        return self._reject(record, facts, now) if reject else self._fail(record, facts, now)

    def _again(self, record: Record, facts: Facts, now: int) -> Settled | Refused:
        """Repeated with equal content it succeeds; anything else comes too late."""
        if record.receipt == self.receipt and record.status is _STATUS_OF[self.verdict]:
            return Settled(record, facts.jobs.get(record.job_id), now)
        word = "given up" if record.status is IdempotencyStatus.PENDING else record.status.value
        return Refused(Reason.ALREADY_SETTLED, f"the key is already {word}; this changes nothing", now)

    def _commit(self, record: Record, facts: Facts, now: int) -> Step[Settled | Refused]:
        done = committed(
            record,
            now,
            holder=record.holder,
            token=record.token,
            ttl_ms=self.ttl_ms or record.ttl_ms,
            receipt=self.receipt,
        )
        job = facts.job
        if job is None or job.state in ENDED:
            return _settled(done, facts, now)
        tallies = readied(job, facts, now)
        if isinstance(tallies, Refused):
            return Step(tallies)
        ready = made_ready(job, now, keep_until=done.expires_at, slot=tallies[0].id if tallies else b"")
        return Step(Settled(done, ready, now), (done, ready, *tallies))

    def _reject(self, record: Record, facts: Facts, now: int) -> Step[Settled | Refused]:
        done = changed(
            record,
            now,
            status=status_after(record.status, RecordMove.REJECT),
            lease_until=0,
            expires_at=now + (self.ttl_ms or record.ttl_ms),
            receipt=self.receipt,
        )
        job = facts.job
        if job is None or job.state in ENDED:
            return _settled(done, facts, now)
        end = ended(
            replace(job, keep_until=done.expires_at),
            facts.tally,
            now,
            move=Move.REJECT,
            actor=self.actor,
            retention_ms=self.retention_ms,
            error="the submission was rejected",
        )
        return Step(Settled(done, end.job, now), (done, *end.puts), adds=end.adds, cuts=end.cuts)

    def _fail(self, record: Record, facts: Facts, now: int) -> Step[Settled | Refused]:
        given_up = changed(
            record,
            now,
            status=status_after(record.status, RecordMove.FAIL),
            lease_until=0,
            expires_at=now + (self.ttl_ms or record.ttl_ms),
            receipt=self.receipt,
        )
        return _settled(given_up, facts, now, *let_go(facts.job, facts, now))


class TakeOver(CommandData, frozen=True, gc=False, kw_only=True):
    """Take a pending key whose lease ran out, to finish what its holder left; never makes a new one."""

    record_id: bytes
    holder: bytes
    lease_ms: int
    policy_id: bytes = b""

    @property
    def footprint(self) -> Footprint:
        return _slotted(self.tenant, self.record_id, self.policy_id)

    def decide(self, facts: Facts, now: int) -> Step[Held | Missing | Answer]:
        record = facts.record
        if record is None or not live(record, now):
            return Step(Missing(now))
        match record.status:
            case IdempotencyStatus.COMMITTED:
                return Step(replayed(record, facts, now))
            case IdempotencyStatus.REJECTED:
                return Step(Rejected(record.job_id, record.receipt, record.expires_at, now))
            case IdempotencyStatus.PENDING if now > record.lease_until:
                job = facts.jobs.get(record.job_id)
                tallies = reheld(job, facts, now, until=now + self.lease_ms)
                if isinstance(tallies, Refused):
                    return Step(tallies)
                return _taken_over(record, job, tallies, now, holder=self.holder, lease_ms=self.lease_ms)
        if record.holder == self.holder:
            return Step(_held(record, now, taken_over=record.token > 1))
        return Step(InProgress(record.job_id, record.lease_until - now + 1, now))


_STATUS_OF = {
    Verdict.COMMIT: IdempotencyStatus.COMMITTED,
    Verdict.REJECT: IdempotencyStatus.REJECTED,
    Verdict.FAIL: IdempotencyStatus.PENDING,
}


def _slotted(tenant: str, record_id: bytes, policy_id: bytes) -> Footprint:
    """A record, its job, and the tally that counts it."""
    return Footprint(tenant, record_id, policy=policy_id, follow_jobs=True, follow_tally=True)


def _slot_of(taken: Taken | None) -> tuple[tuple[Tally, ...], bytes, tuple[Caution, ...]]:
    return ((), b"", ()) if taken is None else ((taken.tally,), taken.tally.id, taken.cautions)


def _held(record: Record, now: int, *, taken_over: bool, cautions: tuple[Caution, ...] = ()) -> Held:
    return Held(
        record.id, record.job_id, record.token, record.holder, record.lease_until, taken_over, now, cautions
    )


def _taken_over(
    record: Record, job: Job | None, tallies: tuple[Tally, ...], now: int, *, holder: bytes, lease_ms: int
) -> Step[Held | Answer]:
    if job is not None and job.state in ENDED:
        return closed(record, job, now)
    lease_until = now + lease_ms
    expires_at = lease_until + record.ttl_ms
    taken = changed(
        record,
        now,
        status=status_after(record.status, RecordMove.TAKE_OVER),
        holder=holder,
        token=record.token + 1,
        lease_until=lease_until,
        expires_at=expires_at,
    )
    reply = _held(taken, now, taken_over=True)
    return Step(reply, (taken, *_kept(job, now, keep_until=expires_at), *tallies))


def _settled(record: Record, facts: Facts, now: int, *tallies: Tally) -> Step[Settled | Refused]:
    """The record changes; its job, if it has one, only stays as long."""
    jobs = _kept(facts.job, now, keep_until=record.expires_at)
    return Step(Settled(record, jobs[0] if jobs else None, now), (record, *jobs, *tallies))


def _kept(job: Job | None, now: int, *, keep_until: int) -> tuple[Job, ...]:
    return () if job is None else (kept(job, now, keep_until=keep_until),)
