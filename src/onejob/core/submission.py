"""Submit: a plain job, reserved, created and committed in one step."""

from msgspec.structs import replace

from .arrival import Answer, Arrival, closed, committed, made_ready, ready_state
from .facts import Fact, Record, live
from .ids import text_of
from .notice import notice_id, noticed
from .quota import Ask
from .receipt import Created, Refused, Replayed
from .states import ENDED, IdempotencyStatus
from .step import Facts, Footprint, Step, Warrant

_COMMITTED = IdempotencyStatus.COMMITTED


class Submit(Arrival, frozen=True, gc=False, kw_only=True):
    """Reserve, create and commit in one step. The candidate job id is the holder."""

    callback: str = ""  # a URL that is told when the job has ended; empty: nobody is
    warrant: Warrant | None = None  # None: whoever sends it has proved the right to

    @property
    def footprint(self) -> Footprint:
        plain = super().footprint
        if self.callback:
            plain = replace(plain, jobs=(self.job_id, notice_id(self.job_id)))
        return plain if self.warrant is None else replace(plain, warrant=self.warrant)

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
        taken = None if self.is_uncounted(facts) else self.charged(facts, self._ask(self.job_id), now)
        if isinstance(taken, Refused):
            return Step(taken)
        expires_at = now + self.ttl_ms if self.record_id else 0
        state = ready_state(self.run_at, now)
        puts: tuple[Fact, ...]
        if taken is None:
            job = self.new_job(state, now, keep_until=expires_at)
            reply, puts = Created(job, expires_at, now), (job,)
        else:
            job = self.new_job(state, now, keep_until=expires_at, slot=taken.tally.id)
            reply, puts = Created(job, expires_at, now, taken.cautions), (job, taken.tally)
        if self.record_id:
            done = self.new_record(
                old, _COMMITTED, now, holder=self.job_id, lease_until=0, expires_at=expires_at
            )
            puts = (done, *puts)
        if not self.callback:
            return Step(reply, puts, adds=(self.attached_input(),))
        notice, attached = noticed(job, self.callback, now)
        return Step(reply, (*puts, notice), adds=(self.attached_input(), attached))

    def _finish(self, record: Record, facts: Facts, now: int) -> Step[Created | Answer]:
        """Take over what nobody holds any more and commit it: the job id stays."""
        job = facts.jobs[record.job_id]
        if job.state in ENDED:
            return closed(record, job, now)
        # The job keeps its estimate: whoever finishes it may have said another. It was counted when it began.
        ask = self._ask(job.id)._replace(cost=job.cost_held, is_new=False)
        charged = self.charged(facts, ask, now)
        if isinstance(charged, Refused):
            return Step(charged)
        tallies, cautions = ((), ()) if charged is None else ((charged.tally,), charged.cautions)
        taken = committed(record, now, holder=self.job_id, token=record.token + 1, ttl_ms=self.ttl_ms)
        slot = tallies[0].id if tallies else b""
        # It is the taker's from now on: whose slot it has, whose money it costs, whose job it is.
        ready = made_ready(replace(job, user=self.user), now, keep_until=taken.expires_at, slot=slot)
        return Step(Created(ready, taken.expires_at, now, cautions), (taken, ready, *tallies))

    def _ask(self, job_id: bytes) -> Ask:
        named = self.reservation
        return Ask(cost=self.cost, reservation=named, job_id=text_of(job_id), had=bool(named))
