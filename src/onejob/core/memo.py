"""Memos of a handler's steps: a step that has finished is never run again by a later attempt.

    begin_step ──▶ the step runs ──▶ finish_step

1. A step begins only in the running attempt of its job: with the current token and holder.
2. A memo belongs to (job, name). Other arguments under the same name are a conflict.
3. A finished step is answered from its memo. One that was begun and not finished is run again, unless it runs at most
   once: then it is refused, because its effect may have happened.
4. The holder is a nonce, drawn once per call. The same holder gets the same answer again. Whoever begins a step after it
   replaces token and holder, so that of two runs only the later one can finish.
5. Finishing needs the memo alone, not the job: a memo that is finished inside a caller's transaction locks one row
   that nothing but this step needs.
6. Memos live as long as their job. Their number and size are bounded.
"""

from typing import ClassVar

from .command import CommandData, Facts, Footprint, Step
from .facts import Memo, next_version
from .identity import memo_id
from .replies import Missing, Reason, Refused, StepBegun, StepFinished
from .states import Delivery, JobState
from .work import JobHolderCommand, timed_out_refusal

MEMOS_MAX = 1000  # of a job
MEMO_RESULT_BYTES_MAX = 64 << 10


class BeginStep(JobHolderCommand, frozen=True, gc=False, kw_only=True):
    """Begin a step of a running attempt, or get the result of the step if it has finished."""

    name: str
    fingerprint: bytes  # of the arguments
    step_holder: bytes  # drawn once per call
    delivery: Delivery = Delivery.AT_LEAST_ONCE

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, jobs=(self.job_id,), memo=memo_id(self.tenant, self.job_id, self.name))

    def decide(self, facts: Facts, now: int) -> Step[StepBegun | StepFinished | Refused | Missing]:
        job, memo = facts.jobs.get(self.job_id), facts.memo
        if job is None:
            return Step(Missing(now))
        if job.state is not JobState.RUNNING or (job.token, job.holder) != (self.token, self.holder):
            return Step(self.stale_refusal(job, now))
        has_timed_out = bool(job.timeout_ms) and now > job.started_at + job.timeout_ms
        if memo is None:
            if has_timed_out:
                return Step(timed_out_refusal(now))
            if job.memos >= MEMOS_MAX:
                message = f"a job has at most {MEMOS_MAX} steps; do several acts in one step, or submit further jobs"
                return Step(Refused(Reason.NOT_ALLOWED, message, now, {"steps": job.memos}))
            begun = self._new_memo(now)
            return Step(StepBegun(begun, now), (begun, next_version(job, now, memos=job.memos + 1)))
        if memo.fingerprint != self.fingerprint:
            message = "a step of this name was begun with other arguments; give every step a name of its own"
            return Step(Refused(Reason.STEP_CONFLICT, message, now))
        if memo.ended_at:
            return Step(StepFinished(memo, now))
        if memo.holder == self.step_holder:
            return Step(StepBegun(memo, now))
        return Step(timed_out_refusal(now)) if has_timed_out else self._begin_again(memo, now)

    def _begin_again(self, memo: Memo, now: int) -> Step[StepBegun | StepFinished | Refused | Missing]:
        if self.delivery is Delivery.AT_MOST_ONCE:
            message = (
                "the step was begun before and did not finish, and it runs at most once; find out whether its effect "
                "happened"
            )
            return Step(Refused(Reason.STEP_INTERRUPTED, message, now, {"beganAt": memo.began_at, "token": memo.token}))
        begun = next_version(memo, now, token=self.token, holder=self.step_holder, began_at=now, runs=memo.runs + 1)
        return Step(StepBegun(begun, now), (begun,))

    def _new_memo(self, now: int) -> Memo:
        return Memo(
            id=memo_id(self.tenant, self.job_id, self.name),
            tenant=self.tenant,
            job_id=self.job_id,
            name=self.name,
            fingerprint=self.fingerprint,
            token=self.token,
            holder=self.step_holder,
            began_at=now,
            changed_at=now,
        )


class MemoCommand(CommandData, frozen=True, gc=False, kw_only=True):
    """A command on the memo alone."""

    job_id: bytes
    name: str

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, memo=memo_id(self.tenant, self.job_id, self.name))


class FinishStep(MemoCommand, frozen=True, gc=False, kw_only=True):
    """Store the result of a step. Repeated with an equal result it succeeds; after another run began it is refused."""

    token: int
    step_holder: bytes
    result: bytes  # JSON

    @property
    def payload_bytes(self) -> int:
        return len(self.result)

    def decide(self, facts: Facts, now: int) -> Step[StepFinished | Refused | Missing]:
        memo = facts.memo
        if memo is None:
            return Step(Missing(now))
        is_own = (memo.token, memo.holder) == (self.token, self.step_holder)
        if is_own and memo.ended_at and memo.result == self.result:
            return Step(StepFinished(memo, now))
        if not is_own or memo.ended_at:
            message = f"the step was begun again by another attempt (token {memo.token}); stop, change nothing"
            return Step(Refused(Reason.STALE, message, now, {"token": memo.token}))
        finished = next_version(memo, now, ended_at=now, result=self.result)
        return Step(StepFinished(finished, now), (finished,))


class LookUpMemo(MemoCommand, frozen=True, gc=False, kw_only=True):
    """The memo of a step that has finished."""

    writes: ClassVar[bool] = False

    def decide(self, facts: Facts, now: int) -> Step[StepFinished | Missing]:
        memo = facts.memo
        return Step(Missing(now) if memo is None or not memo.ended_at else StepFinished(memo, now))
