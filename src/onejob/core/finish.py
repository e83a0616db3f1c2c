"""How attempts end: by their worker's word, or by an operator's about what no worker can tell."""

from enum import StrEnum
from hashlib import sha256

from msgspec.structs import replace

from .charging import charge
from .ending import RETENTION_MS, end_job, shortened_error
from .facts import U64, Attachment, AttachmentKind, Job, Usage, next_version
from .history import Event, record_event
from .ids import format_job_id
from .notice import callback_job_id
from .quota import QuotaRequest
from .receipt import Finished, Missing, Reason, Refused, Resolved
from .states import Delivery, JobState, Move, is_allowed, state_after
from .step import Facts, Footprint, Step
from .tally import spending_changes
from .work import JobCommand, JobHolderCommand, released_job

BACKOFF_FIRST_MS = 1000
BACKOFF_MS_MAX = 3600 * 1000
RESULT_BYTES_MAX = 1 << 20
_FINISH_DIGEST_BYTES = 8


class FinishOutcome(StrEnum):
    SUCCESS = "success"
    FAILED = "failed"


class Finish(JobHolderCommand, frozen=True, gc=False, kw_only=True):
    """Say how an attempt ended. A failure is tried again while attempts are left, unless it is final."""

    outcome: FinishOutcome
    result: bytes = b""  # JSON
    error: str = ""
    final: bool = False  # no further attempt would help
    retry_ms: int = 0  # 0: by the back-off
    cost: int | None = None  # what it really cost; None: what was estimated
    actor: str
    retention_ms: int = RETENTION_MS

    @property
    def payload_bytes(self) -> int:
        return len(self.result)

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, jobs=(self.job_id, callback_job_id(self.job_id)), follow_usage=True)

    @property
    def finish_digest(self) -> bytes:
        """What is said, so that the same word said again is known."""
        said = (
            f"{self.outcome}\n{self.final}\n{self.cost}\n{self.error}\n".encode(errors="surrogatepass")
            + self.result
        )
        return sha256(said).digest()[:_FINISH_DIGEST_BYTES]

    def decide(self, facts: Facts, now: int) -> Step[Finished | Refused | Missing]:
        job = facts.jobs.get(self.job_id)
        if job is None:
            return Step(Missing(now))
        seal = self.finish_digest
        if (job.token, job.holder, job.seal) == (self.token, self.holder, seal):
            return Step(Finished(job, now))
        if job.state is not JobState.RUNNING or (job.token, job.holder) != (self.token, self.holder):
            return Step(self.stale_refusal(job, now))
        # A lease that lapsed unnoticed is no loss: nobody else has the job, or the token would have grown.
        if self.outcome is FinishOutcome.FAILED and self._may_retry(job):
            return self._schedule_retry(job, seal, now)
        move = Move.SUCCEED if self.outcome is FinishOutcome.SUCCESS else Move.FAIL
        end = end_job(
            job,
            facts.usage,
            now,
            move=move,
            actor=self.actor,
            retention_ms=self.retention_ms,
            error=self.error,
            cost=self.cost,
            finish_digest=seal,
            callback=facts.jobs.get(callback_job_id(self.job_id)),
        )
        adds = end.attachments
        if self.result:
            adds = (*adds, Attachment(job.id, AttachmentKind.RESULT, U64(job.token), self.result))
        return Step(Finished(end.job, now), end.puts, attachments=adds, trims=end.trims)

    def _may_retry(self, job: Job) -> bool:
        started_once = job.delivery is Delivery.AT_MOST_ONCE
        return not (self.final or started_once or job.attempts >= job.attempts_max)

    def _schedule_retry(self, job: Job, finish_digest: bytes, now: int) -> Step[Finished | Refused | Missing]:
        wait_ms = self.retry_ms or backoff_ms(job)
        adds, cuts = record_event(job, Event(now, f"attempt {job.attempts} failed", self.actor, self.error))
        error = shortened_error(self.error)
        later = released_job(
            job, now, delay_ms=wait_ms, seal=finish_digest, error=error, events=job.events + 1
        )
        return Step(Finished(later, now), (later,), attachments=adds, trims=cuts)


class Resolution(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RERUN = "rerun"


class Resolve(JobCommand, frozen=True, gc=False, kw_only=True):
    """An operator's word about a lost job, or to run a failed one again: same id, and its next token is a new one."""

    resolution: Resolution
    actor: str
    note: str = ""
    user: str = ""  # the job's, whose tally is named
    usage_id: bytes = b""
    policy_id: bytes = b""
    retention_ms: int = RETENTION_MS

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            self.tenant,
            jobs=(self.job_id, callback_job_id(self.job_id)),
            usage=self.usage_id,
            policy=self.policy_id,
            follow_usage=True,
        )

    def decide(self, facts: Facts, now: int) -> Step[Resolved | Refused | Missing]:
        job = facts.jobs.get(self.job_id)
        if job is None:
            return Step(Missing(now))
        move = _RESOLUTION_MOVES[self.resolution]
        if not is_allowed(job.state, move) or job.state is JobState.RUNNING:
            message = f"a {job.state} job cannot be resolved so; lost ones can, and failed ones can run again"
            return Step(Refused(Reason.NOT_ALLOWED, message, now, {"state": job.state}))
        if move is Move.RERUN:
            return self._rerun(job, facts, now)
        end = end_job(
            job,
            facts.usage,
            now,
            move=move,
            actor=self.actor,
            retention_ms=self.retention_ms,
            error="" if move is Move.SUCCEED else self.note or job.error,
            callback=facts.jobs.get(callback_job_id(self.job_id)),
        )
        return Step(Resolved(end.job, now), end.puts, attachments=end.attachments, trims=end.trims)

    def _rerun(self, job: Job, facts: Facts, now: int) -> Step[Resolved | Refused | Missing]:
        """A slot is taken again, or the rerun is refused. What a lost job held is spent, for it ran, and held anew."""
        lost = job.cost_held if job.slot else 0
        ask = QuotaRequest(cost=job.cost_held - lost, job_id=format_job_id(job.id), is_new=False)
        taken = charge(facts, ask, now, tenant=self.tenant, user=self.user, usage_id=self.usage_id)
        if isinstance(taken, Refused):
            return Step(taken)
        tallies: tuple[Usage, ...] = ()
        if taken is not None:
            spent = spending_changes(taken.usage, now, lost) if lost else {}
            tallies = (replace(taken.usage, **spent),)
        adds, cuts = record_event(job, Event(now, "run again", self.actor, self.note))
        again = next_version(
            job,
            now,
            state=state_after(job.state, Move.RERUN),
            attempts=0,
            run_at=0,
            ended_at=0,
            due_at=0,
            error="",
            seal=b"",
            slot=tallies[0].id if tallies else b"",
            events=job.events + 1,
        )
        return Step(Resolved(again, now), (again, *tallies), attachments=adds, trims=cuts)


_RESOLUTION_MOVES = {
    Resolution.SUCCEEDED: Move.SUCCEED,
    Resolution.FAILED: Move.FAIL,
    Resolution.RERUN: Move.RERUN,
}


def backoff_ms(job: Job) -> int:
    """Doubling from a second to an hour, less up to a half of it."""
    # The chance is drawn from the job itself, so that it falls the same wherever it is decided.
    whole = min(BACKOFF_FIRST_MS << min(job.attempts - 1, 20), BACKOFF_MS_MAX)
    chance = int.from_bytes(sha256(job.id + job.token.to_bytes(8, "big")).digest()[:4], "big") / 2**32
    return round(whole * (1 - chance / 2))
