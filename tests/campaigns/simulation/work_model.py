"""The rules of running jobs, as part of the model: leases, tokens, attempts and their ends."""

from collections.abc import Callable
from typing import Any

from onejob.core.work import Claim, Extend, Finish, FinishOutcome, Release, Resolve, Start

from .model_state import ModelJob
from .quota_model import QuotaModel

ModelReply = tuple[Any, ...]
RELEASED = ("released",)
LAPSED = ("lapsed",)
STALE = ("refused", "STALE")
TIMED_OUT = ("refused", "TIMED_OUT")


class WorkModel(QuotaModel):
    def end(self, job: ModelJob, state: str, now: int, *, cost: int | None = None) -> None:
        super().end(job, state, now, cost=cost)
        job.lease_until, job.last_report = 0, None

    def _claim(self, c: Claim, now: int, _: Any) -> ModelReply:
        job = self.jobs.get(c.job_id)
        if job is None:
            return ("missing",)
        now = max(now, job.changed_at)
        if job.holder == c.holder and now <= job.lease_until:
            return ("started" if job.state == "running" else "claimed", job.id, job.token, job.lease_until)
        if job.state not in ("pending", "scheduled") or now < job.run_at or now <= job.lease_until:
            return ("refused", "NOT_READY")
        job.token, job.holder, job.lease_until, job.last_report = job.token + 1, c.holder, now + c.lease_ms, None
        job.state = "pending"
        if c.start and not (job.at_most_once and job.attempts):
            self._begin_attempt(job, c, now)
            return ("started", job.id, job.token, job.lease_until)
        return ("claimed", job.id, job.token, job.lease_until)

    def _start(self, c: Start, now: int, _: Any) -> ModelReply:
        job, now, is_holder = self._job_and_ownership(c, now)
        if job is None:
            return ("missing",)
        if job.state == "running" and is_holder:
            return ("started", job.id, job.token, job.lease_until)
        is_startable = job.state == "pending" and job.token == c.token and now <= job.lease_until
        if not is_startable or (job.at_most_once and job.attempts):
            return STALE
        self._begin_attempt(job, c, now)
        return ("started", job.id, job.token, job.lease_until)

    def _begin_attempt(self, job: ModelJob, c: Claim | Start, now: int) -> None:
        job.state, job.holder, job.attempts, job.started_at = "running", c.holder, job.attempts + 1, now
        job.lease_until = now + min(c.lease_ms, job.timeout_ms or c.lease_ms)

    def _extend(self, c: Extend, now: int, _: Any) -> ModelReply:
        job, now, _ = self._job_and_ownership(c, now)
        if job is None:
            return ("missing",)
        if not self._may_report(job, c):
            return STALE
        deadline = self._deadline(job)
        if deadline and now >= deadline:
            return TIMED_OUT
        if c.offset > job.log_lines:
            return ("refused", "SEQUENCE_GAP")
        self._revive(job)
        job.lease_until = min(now + c.lease_ms, deadline or now + c.lease_ms)
        job.log_lines = max(job.log_lines, c.offset + len(c.logs))
        return ("extended", job.id, job.lease_until, job.log_lines)

    def _release(self, c: Release, now: int, _: Any) -> ModelReply:
        job, now, _ = self._job_and_ownership(c, now)
        if job is None:
            return ("missing",)
        if not self._may_report(job, c):
            is_repeated = (job.token, job.holder, job.last_report) == (c.token, c.holder, RELEASED)
            return ("released", job.id, job.state) if is_repeated else STALE
        self._revive(job)
        if job.state == "running" and job.at_most_once:
            return ("refused", "NOT_ALLOWED")
        job.attempts -= job.state == "running"
        self._return_to_queue(job, now, c.delay_ms)
        job.last_report = RELEASED
        return ("released", job.id, job.state)

    def _finish_attempt(self, c: Finish, now: int, _: Any) -> ModelReply:
        """An expired lease loses the job only once it has ended, or another holder has claimed it."""
        job, now, _mine = self._job_and_ownership(c, now)
        if job is None:
            return ("missing",)
        now = self.decision_time(now, usage=job.slot)
        report = (c.outcome, c.final, c.cost, c.error, c.result)
        if (job.token, job.holder) == (c.token, c.holder) and job.last_report == report:
            return ("finished", job.id, job.state)
        if not self._may_report(job, c) or (job.state == "pending" and job.last_report != LAPSED):
            return STALE
        if c.outcome is FinishOutcome.SUCCESS and now > (self._deadline(job) or now):
            return TIMED_OUT
        self._revive(job)
        if c.outcome is FinishOutcome.FAILED and not (c.final or job.at_most_once or job.attempts >= job.attempts_max):
            self._return_to_queue(job, now, c.retry_ms)
        else:
            self.end(job, "success" if c.outcome is FinishOutcome.SUCCESS else "failed", now, cost=c.cost)
            self.counts["finished"] += 1
        job.last_report = report
        return ("finished", job.id, job.state)

    def _resolve(self, c: Resolve, now: int, _: Any) -> ModelReply:
        """Only what the end of a simulation does: a lost job has failed."""
        job = self.jobs.get(c.job_id)
        if job is None:
            return ("missing",)
        if job.state != "lost":
            return ("refused", "NOT_ALLOWED")
        usage = c.usage_id or job.slot
        self.end(job, "failed", self.decision_time(max(now, job.changed_at), usage=usage, policy=c.policy_id))
        return ("resolved", job.id, "failed")

    def expire_lease(self, job: ModelJob, now: int) -> bool:
        """End an expired lease; False if it has not expired."""
        if not job.lease_until or now <= job.lease_until:
            return False
        if job.state == "pending":
            self._return_to_queue(job, now, 0)
        elif job.state != "running":
            return False
        elif job.at_most_once:
            self.end(job, "lost", now)
            self.counts["lost"] += 1
        elif job.attempts >= job.attempts_max:
            self.end(job, "failed", now)
        else:
            self._return_to_queue(job, now, 0)
            job.last_report = LAPSED
            self.counts["lease expired"] += 1
        return True

    def _may_report(self, job: ModelJob, c: Any) -> bool:
        """A holder is heard, however late, until it has reported, the job has ended, or another has claimed it."""
        if (job.token, job.holder) != (c.token, c.holder):
            return False
        return job.state == "running" or (job.state == "pending" and job.last_report in (None, LAPSED))

    def _deadline(self, job: ModelJob) -> int:
        """When the attempt times out; 0: it does not, or has not started."""
        is_attempt = job.state == "running" or job.last_report == LAPSED
        return job.started_at + job.timeout_ms if is_attempt and job.timeout_ms else 0

    def _revive(self, job: ModelJob) -> None:
        if job.last_report == LAPSED:
            job.state, job.last_report = "running", None
            self.counts["revived"] += 1

    def _return_to_queue(self, job: ModelJob, now: int, delay_ms: int) -> None:
        job.state, job.lease_until, job.changed_at = ("scheduled" if delay_ms else "pending"), 0, now
        job.run_at = now + delay_ms if delay_ms else job.run_at

    def _job_and_ownership(self, c: Any, now: int) -> tuple[ModelJob | None, int, bool]:
        job = self.jobs.get(c.job_id)
        if job is None:
            return None, now, False
        now = max(now, job.changed_at)
        return job, now, (job.token, job.holder) == (c.token, c.holder) and now <= job.lease_until


WORK_RULES: dict[type[Any], Callable[..., ModelReply]] = {
    Claim: WorkModel._claim,
    Start: WorkModel._start,
    Extend: WorkModel._extend,
    Release: WorkModel._release,
    Finish: WorkModel._finish_attempt,
    Resolve: WorkModel._resolve,
}
