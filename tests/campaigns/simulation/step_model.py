"""The rules of a handler's steps, as part of the model."""

from collections.abc import Callable
from typing import Any

from onejob.core.identity import memo_id
from onejob.core.memo import BeginStep, FinishStep
from onejob.core.states import Delivery

from .model_state import ModelMemo
from .work_model import STALE, TIMED_OUT, ModelReply, WorkModel


class StepModel(WorkModel):
    def _begin_step(self, c: BeginStep, now: int, _: Any) -> ModelReply:
        job, id = self.jobs.get(c.job_id), memo_id(c.tenant, c.job_id, c.name)
        if job is None:
            return ("missing",)
        if job.state != "running" or (job.token, job.holder) != (c.token, c.holder):
            return STALE
        memo = self.memos.get(id)
        now = max(now, job.changed_at, memo.changed_at if memo else 0)
        has_timed_out = bool(job.timeout_ms) and now > job.started_at + job.timeout_ms
        if memo is None:
            if has_timed_out:
                return TIMED_OUT
            memo = self.memos[id] = ModelMemo(c.job_id, c.fingerprint, c.token, c.step_holder, now)
        elif memo.fingerprint != c.fingerprint:
            return ("refused", "STEP_CONFLICT")
        elif memo.result is not None:
            self.counts["step answered"] += 1
            return ("step finished", memo.result)
        elif memo.holder != c.step_holder:
            if has_timed_out:
                return TIMED_OUT
            if c.delivery is Delivery.AT_MOST_ONCE:
                self.counts["step interrupted"] += 1
                return ("refused", "STEP_INTERRUPTED")
            memo.token, memo.holder, memo.runs, memo.changed_at = c.token, c.step_holder, memo.runs + 1, now
        return ("step begun", memo.token, memo.holder, memo.runs)

    def _finish_step(self, c: FinishStep, now: int, _: Any) -> ModelReply:
        memo = self.memos.get(memo_id(c.tenant, c.job_id, c.name))
        if memo is None:
            return ("missing",)
        is_own = (memo.token, memo.holder) == (c.token, c.step_holder)
        if is_own and memo.result is None:
            memo.result, memo.changed_at = c.result, max(now, memo.changed_at)
        return ("step finished", memo.result) if is_own and memo.result == c.result else STALE


STEP_RULES: dict[type[Any], Callable[..., ModelReply]] = {
    BeginStep: StepModel._begin_step,
    FinishStep: StepModel._finish_step,
}
