"""Submit: a plain job, reserved, created and committed in one step."""

from msgspec.structs import replace

from .arrival import (
    ExistingKeyReply,
    SubmissionCommand,
    commit_ended_job,
    committed_record,
    readied_job,
    ready_state,
)
from .facts import Fact, Record, is_live
from .ids import format_job_id
from .notice import callback_job, callback_job_id
from .quota import QuotaRequest
from .receipt import Created, Refused, Replayed
from .states import ENDED_STATES, IdempotencyStatus
from .step import Facts, Footprint, Precondition, Step

_COMMITTED = IdempotencyStatus.COMMITTED


class Submit(SubmissionCommand, frozen=True, gc=False, kw_only=True):
    """Reserve, create and commit in one step. The candidate job id is the holder."""

    callback: str = ""  # a URL that is told when the job has ended; empty: nobody is
    precondition: Precondition | None = None  # None: whoever sends it has proved the right to

    @property
    def footprint(self) -> Footprint:
        plain = super().footprint
        if self.callback:
            plain = replace(plain, jobs=(self.job_id, callback_job_id(self.job_id)))
        return plain if self.precondition is None else replace(plain, precondition=self.precondition)

    def decide(self, facts: Facts, now: int) -> Step[Created | ExistingKeyReply]:
        record = facts.record
        if record is None or not is_live(record, now):
            return self._create(record, facts, now)
        answer = self.reply_for_existing_key(record, facts, now)
        if answer is None:
            return self._take_over_and_commit(record, facts, now)
        if type(answer) is Replayed and answer.job is not None and record.holder == self.job_id:
            return Step(Created(answer.job, record.expires_at, now))
        return Step(answer)

    def _create(self, old: Record | None, facts: Facts, now: int) -> Step[Created | ExistingKeyReply]:
        mine = facts.jobs.get(self.job_id)
        if mine is not None:
            # This very command was executed before, and its record has gone since. Its window is over even if
            # the clock was set back in between, so that no gate lives on this answer.
            assert mine.key == self.key
            return Step(Created(mine, min(mine.keep_until, now - 1), now))
        taken = (
            None if self.is_uncounted(facts) else self.charge(facts, self._quota_request(self.job_id), now)
        )
        if isinstance(taken, Refused):
            return Step(taken)
        expires_at = now + self.ttl_ms if self.record_id else 0
        state = ready_state(self.run_at, now)
        puts: tuple[Fact, ...]
        if taken is None:
            job = self.new_job(state, now, keep_until=expires_at)
            reply, puts = Created(job, expires_at, now), (job,)
        else:
            job = self.new_job(state, now, keep_until=expires_at, slot=taken.usage.id)
            reply, puts = Created(job, expires_at, now, taken.warnings), (job, taken.usage)
        if self.record_id:
            done = self.new_record(
                old, _COMMITTED, now, holder=self.job_id, lease_until=0, expires_at=expires_at
            )
            puts = (done, *puts)
        if not self.callback:
            return Step(reply, puts, attachments=(self.input_attachment(),))
        notice, attached = callback_job(job, self.callback, now)
        return Step(reply, (*puts, notice), attachments=(self.input_attachment(), attached))

    def _take_over_and_commit(
        self, record: Record, facts: Facts, now: int
    ) -> Step[Created | ExistingKeyReply]:
        """Take over what nobody holds any more and commit it: the job id stays."""
        job = facts.jobs[record.job_id]
        if job.state in ENDED_STATES:
            return commit_ended_job(record, job, now)
        # The job keeps its estimate: whoever finishes it may have said another. It was counted when it began.
        ask = self._quota_request(job.id)._replace(cost=job.cost_held, is_new=False)
        charged = self.charge(facts, ask, now)
        if isinstance(charged, Refused):
            return Step(charged)
        tallies, cautions = ((), ()) if charged is None else ((charged.usage,), charged.warnings)
        taken = committed_record(record, now, holder=self.job_id, token=record.token + 1, ttl_ms=self.ttl_ms)
        slot = tallies[0].id if tallies else b""
        # It is the taker's from now on: whose slot it has, whose money it costs, whose job it is.
        ready = readied_job(replace(job, user=self.user), now, keep_until=taken.expires_at, slot=slot)
        return Step(Created(ready, taken.expires_at, now, cautions), (taken, ready, *tallies))

    def _quota_request(self, job_id: bytes) -> QuotaRequest:
        named = self.reservation
        return QuotaRequest(
            cost=self.cost, reservation=named, job_id=format_job_id(job_id), had_slot=bool(named)
        )
