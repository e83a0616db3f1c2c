"""Submit: a plain job, reserved, created and committed in one step."""

from .arrival import Answer, Arrival, closed, committed, made_ready, ready_state
from .facts import Record, live
from .receipt import Created, Replayed
from .states import ENDED, IdempotencyStatus
from .step import Facts, Step

_COMMITTED = IdempotencyStatus.COMMITTED


class Submit(Arrival, frozen=True, gc=False, kw_only=True):
    """Reserve, create and commit in one step. The candidate job id is the holder."""

    def decide(self, facts: Facts, now: int) -> Step[Created | Answer]:
        record = facts.record
        if record is None or not live(record, now):
            return self._create(record, facts, now)
        answer = self.answered(record, facts, now)
        if answer is None:
            return self._finish(record, facts, now)
        if type(answer) is Replayed and answer.job is not None and record.holder == self.job_id:
            return Step(Created(answer.job, record.expires_at, now))
        return Step(answer)

    def _create(self, old: Record | None, facts: Facts, now: int) -> Step[Created | Answer]:
        mine = facts.jobs.get(self.job_id)
        if mine is not None:
            # This very command was executed before, and its record has gone since. Its window is over even if
            # the clock was set back in between, so that no gate lives on this answer.
            assert mine.key == self.key
            return Step(Created(mine, min(mine.keep_until, now - 1), now))
        expires_at = now + self.ttl_ms if self.record_id else 0
        job = self.new_job(ready_state(self.run_at, now), now, keep_until=expires_at)
        reply = Created(job, expires_at, now)
        if not self.record_id:
            return Step(reply, (job,), adds=(self.attached_input(),))
        committed = self.new_record(
            old,
            _COMMITTED,
            now,
            holder=self.job_id,
            lease_until=0,
            expires_at=expires_at,
        )
        return Step(reply, (committed, job), adds=(self.attached_input(),))

    def _finish(self, record: Record, facts: Facts, now: int) -> Step[Created | Answer]:
        """Take over what nobody holds any more and commit it: the job id stays."""
        job = facts.jobs[record.job_id]
        if job.state in ENDED:
            return closed(record, job, now)
        taken = committed(record, now, holder=self.job_id, token=record.token + 1, ttl_ms=self.ttl_ms)
        ready = made_ready(job, now, keep_until=taken.expires_at)
        return Step(Created(ready, taken.expires_at, now), (taken, ready))
