"""The rules of running jobs once more, plainly: who has a job, until when, and what it may still say."""

from collections.abc import Callable
from typing import Any

from onejob.core.work import Claim, Extend, Finish, FinishOutcome, Release, Resolve, Start

from .clerk import Clerk
from .shelf import Work

Said = tuple[Any, ...]
HANDED_BACK = ("handed back",)
STALE = ("refused", "STALE")


class Foreman(Clerk):
    def end(self, job: Work, state: str, now: int, *, cost: int | None = None) -> None:
        super().end(job, state, now, cost=cost)
        job.lease, job.said = 0, None

    def _claim(self, c: Claim, now: int, _: Any) -> Said:
        job = self.jobs.get(c.job_id)
        if job is None:
            return ("missing",)
        now = max(now, job.stamp)
        if job.holder == c.holder and now <= job.lease:
            return ("started" if job.state == "running" else "claimed", job.id, job.token, job.lease)
        if job.state not in ("pending", "scheduled") or now < job.run_at or now <= job.lease:
            return ("refused", "NOT_READY")
        job.token, job.holder, job.lease, job.said = job.token + 1, c.holder, now + c.lease_ms, None
        job.state = "pending"
        if c.start and not (job.once and job.attempts):
            job.state, job.attempts = "running", job.attempts + 1
            return ("started", job.id, job.token, job.lease)
        return ("claimed", job.id, job.token, job.lease)

    def _start(self, c: Start, now: int, _: Any) -> Said:
        job, now, mine = self._mine(c, now)
        if job is None:
            return ("missing",)
        if job.state == "running" and mine:
            return ("started", job.id, job.token, job.lease)
        free = job.state == "pending" and job.token == c.token and now <= job.lease
        if not free or (job.once and job.attempts):
            return STALE
        job.state, job.holder, job.lease, job.attempts = (
            "running",
            c.holder,
            now + c.lease_ms,
            job.attempts + 1,
        )
        return ("started", job.id, job.token, job.lease)

    def _extend(self, c: Extend, now: int, _: Any) -> Said:
        job, now, mine = self._mine(c, now)
        if job is None:
            return ("missing",)
        if not mine or job.state not in ("pending", "running"):
            return STALE
        if c.offset > job.lines:
            return ("refused", "SEQUENCE_GAP")
        job.lease, job.lines = now + c.lease_ms, max(job.lines, c.offset + len(c.logs))
        return ("extended", job.id, job.lease, job.lines)

    def _release(self, c: Release, now: int, _: Any) -> Said:
        job, now, mine = self._mine(c, now)
        if job is None:
            return ("missing",)
        if not mine or job.state not in ("pending", "running"):
            again = (job.token, job.holder, job.said) == (c.token, c.holder, HANDED_BACK)
            return ("released", job.id, job.state) if again else STALE
        if job.state == "running" and job.once:
            return ("refused", "NOT_ALLOWED")
        job.attempts -= job.state == "running"
        self._let_go(job, now, c.delay_ms)
        job.said = HANDED_BACK
        return ("released", job.id, job.state)

    def _finish_work(self, c: Finish, now: int, _: Any) -> Said:
        """A lease that has lapsed unnoticed is no loss; one that was noticed is."""
        job, now, _mine = self._mine(c, now)
        if job is None:
            return ("missing",)
        now = self.stamped(now, tally=job.slot)
        said = (c.outcome, c.final, c.cost, c.error, c.result)
        if (job.token, job.holder) == (c.token, c.holder) and job.said == said:
            return ("finished", job.id, job.state)
        if job.state != "running" or (job.token, job.holder) != (c.token, c.holder):
            return STALE
        if c.outcome is FinishOutcome.FAILED and not (c.final or job.once or job.attempts >= job.most):
            self._let_go(job, now, c.retry_ms)
        else:
            self.end(job, "success" if c.outcome is FinishOutcome.SUCCESS else "failed", now, cost=c.cost)
            self.counts["finished"] += 1
        job.said = said
        return ("finished", job.id, job.state)

    def _resolve(self, c: Resolve, now: int, _: Any) -> Said:
        """Only as the end of a walk does it: a lost job has failed."""
        job = self.jobs.get(c.job_id)
        if job is None:
            return ("missing",)
        if job.state != "lost":
            return ("refused", "NOT_ALLOWED")
        self.end(job, "failed", self.stamped(max(now, job.stamp), tally=c.usage_id, policy=c.policy_id))
        return ("resolved", job.id, "failed")

    def lapse(self, job: Work, now: int) -> bool:
        """Nobody has prolonged the lease; False where it lives."""
        if not job.lease or now <= job.lease:
            return False
        if job.state == "pending":
            self._let_go(job, now, 0)
            job.holder = b""
        elif job.state != "running":
            return False
        elif job.once:
            self.end(job, "lost", now)
            self.counts["lost"] += 1
        elif job.attempts >= job.most:
            self.end(job, "failed", now)
        else:
            self._let_go(job, now, 0)
            job.holder = b""
            self.counts["lapsed"] += 1
        return True

    def _let_go(self, job: Work, now: int, delay_ms: int) -> None:
        job.state, job.lease = ("scheduled" if delay_ms else "pending"), 0
        job.run_at = now + delay_ms if delay_ms else job.run_at

    def _mine(self, c: Any, now: int) -> tuple[Work | None, int, bool]:
        job = self.jobs.get(c.job_id)
        if job is None:
            return None, now, False
        now = max(now, job.stamp)
        return job, now, (job.token, job.holder) == (c.token, c.holder) and now <= job.lease


WORK_RULES: dict[type[Any], Callable[..., Said]] = {
    Claim: Foreman._claim,
    Start: Foreman._start,
    Extend: Foreman._extend,
    Release: Foreman._release,
    Finish: Foreman._finish_work,
    Resolve: Foreman._resolve,
}
