"""Mutants of running jobs: claim, start, extend, finish, release."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from onejob.core import work
from onejob.core.command import Facts, Step
from onejob.core.facts import Job, next_version
from onejob.core.maintenance import Maintain
from onejob.core.replies import Maintained, Released
from onejob.core.states import CLAIMABLE_STATES, JobState
from onejob.core.work import LAPSE_DIGEST, Extend, Finish, JobHolderCommand, Release, Start

from .mutant_registry import mutant
from .process import Components


def _as_holder(command: Any, facts: Facts) -> Any:
    job = facts.jobs.get(command.job_id)
    return command if job is None else replace(command, token=job.token, holder=job.holder)


@mutant
def finish_without_checking_the_token() -> Iterator[Components]:
    """The mistake of most queues: any result is accepted."""
    decide = Finish.decide

    def trusting(self: Finish, facts: Facts, now: int) -> Any:
        return decide(_as_holder(self, facts), facts, now)

    with patch.object(Finish, "decide", trusting):
        yield Components()


@mutant
def start_without_checking_the_holder() -> Iterator[Components]:
    """A broker delivers a job twice, and both deliveries run."""
    decide = Start.decide

    def trusting(self: Start, facts: Facts, now: int) -> Any:
        job = facts.jobs.get(self.job_id)
        if job is not None and job.state is JobState.RUNNING and job.token == self.token:
            return decide(replace(self, holder=job.holder), facts, now)
        return decide(self, facts, now)

    with patch.object(Start, "decide", trusting):
        yield Components()


@mutant
def expired_lease_runs_an_at_most_once_job_again() -> Iterator[Components]:
    def careless(self: Maintain, job: Job, facts: Facts, now: int) -> Step[Maintained]:
        again = next_version(job, now, state=JobState.PENDING, holder=b"", lease_until=0, due_at=0)
        return Step(Maintained(True, now), (again,))

    with patch.object(Maintain, "_end_expired_lease", careless):
        yield Components()


@mutant
def slot_freed_by_cancel_and_again_by_finish() -> Iterator[Components]:
    """A finish after the cancel is accepted as if the job still ran."""
    decide = Finish.decide

    def late(self: Finish, facts: Facts, now: int) -> Any:
        job = facts.jobs.get(self.job_id)
        if job is not None and job.state is JobState.CANCELLED and job.token == self.token:
            alive = replace(job, state=JobState.RUNNING, holder=self.holder)
            return decide(self, replace(facts, jobs={job.id: alive}), now)
        return decide(self, facts, now)

    with patch.object(Finish, "decide", late):
        yield Components()


@mutant
def claim_a_held_job() -> Iterator[Components]:
    def greedy(job: Job, now: int) -> bool:
        return job.state in CLAIMABLE_STATES and job.run_at <= now

    with patch.object(work, "is_ready", greedy):
        yield Components()


@mutant
def token_stays_with_the_next_claim() -> Iterator[Components]:
    decide = work.Claim.decide

    def same(self: work.Claim, facts: Facts, now: int) -> Any:
        step: Any = decide(self, facts, now)
        old = facts.jobs.get(self.job_id)
        if not step.puts or old is None or not old.token:
            return step
        job = replace(step.puts[0], token=old.token)
        return replace(step, reply=replace(step.reply, job=job), puts=(job,))

    with patch.object(work.Claim, "decide", same):
        yield Components()


@mutant
def started_at_most_once_job_is_released() -> Iterator[Components]:
    decide = Release.decide

    def generous(self: Release, facts: Facts, now: int) -> Any:
        job = facts.jobs.get(self.job_id)
        if job is not None and job.state is JobState.RUNNING and self.holds_lease(job, now):
            free = next_version(job, now, state=JobState.PENDING, lease_until=0, due_at=0)
            return Step(Released(free, now), (free,))
        return decide(self, facts, now)

    with patch.object(Release, "decide", generous):
        yield Components()


@mutant
def expired_lease_is_extended_after_another_took_it() -> Iterator[Components]:
    decide = Extend.decide

    def stubborn(self: Extend, facts: Facts, now: int) -> Any:
        return decide(_as_holder(self, facts), facts, now)

    with patch.object(Extend, "decide", stubborn):
        yield Components()


def _is_late(command: Any, facts: Facts, now: int) -> bool:
    job = facts.jobs.get(command.job_id)
    return job is not None and (job.token, job.holder) == (command.token, command.holder) and now > job.lease_until


@mutant
def late_extension_is_refused() -> Iterator[Components]:
    """Ours: a late worker was told that its lease was lost, and a moment later its finish was accepted."""
    decide = Extend.decide

    def strict(self: Extend, facts: Facts, now: int) -> Any:
        return (
            Step(self.stale_refusal(facts.jobs[self.job_id], now))
            if _is_late(self, facts, now)
            else decide(self, facts, now)
        )

    with patch.object(Extend, "decide", strict):
        yield Components()


@mutant
def late_release_is_refused() -> Iterator[Components]:
    """Ours, the same for a release."""
    decide = Release.decide

    def strict(self: Release, facts: Facts, now: int) -> Any:
        job = facts.jobs.get(self.job_id)
        if job is not None and not job.finish_digest and _is_late(self, facts, now):
            return Step(self.stale_refusal(job, now))
        return decide(self, facts, now)

    with patch.object(Release, "decide", strict):
        yield Components()


@mutant
def late_extension_revives_a_lost_job() -> Iterator[Components]:
    """Its worker goes on, while an operator decides what became of it."""
    decide = Extend.decide

    def reviving(self: Extend, facts: Facts, now: int) -> Any:
        job = facts.jobs.get(self.job_id)
        if job is not None and job.state is JobState.LOST and job.token == self.token:
            alive = replace(job, state=JobState.RUNNING, holder=self.holder)
            return decide(self, replace(facts, jobs={job.id: alive}), now)
        return decide(self, facts, now)

    with patch.object(Extend, "decide", reviving):
        yield Components()


@mutant
def late_extension_revives_a_reported_attempt() -> Iterator[Components]:
    """A delayed copy of an extension takes a job back that its worker has released, or finished as failed."""
    held_job = JobHolderCommand.held_job

    def reviving(self: JobHolderCommand, job: Job) -> Job | None:
        return held_job(self, replace(job, finish_digest=LAPSE_DIGEST) if job.finish_digest else job)

    with patch.object(JobHolderCommand, "held_job", reviving):
        yield Components()


@mutant
def revived_job_stays_in_the_queue() -> Iterator[Components]:
    """The lease is extended, but the job keeps the state in which others claim it."""
    held_job = JobHolderCommand.held_job

    def passive(self: JobHolderCommand, job: Job) -> Job | None:
        return None if (held := held_job(self, job)) is None else replace(held, state=job.state)

    with patch.object(JobHolderCommand, "held_job", passive):
        yield Components()


@mutant
def success_after_the_timeout_is_accepted() -> Iterator[Components]:
    """A timeout that holds only once a sweep has noticed it."""
    decide = Finish.decide

    def patient(self: Finish, facts: Facts, now: int) -> Any:
        jobs = {id: replace(job, timeout_ms=0) for id, job in facts.jobs.items()}
        step: Any = decide(self, replace(facts, jobs=jobs), now)
        timeout_ms = {id: job.timeout_ms for id, job in facts.jobs.items()}
        puts = [replace(put, timeout_ms=timeout_ms[put.id]) if isinstance(put, Job) else put for put in step.puts]
        return replace(step, puts=tuple(puts))

    with patch.object(Finish, "decide", patient):
        yield Components()


@mutant
def extension_past_the_timeout_is_accepted() -> Iterator[Components]:
    with patch.object(work, "_lease_end", lambda job, now, lease_ms: now + lease_ms):
        yield Components()
