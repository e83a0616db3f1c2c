"""How attempts end: by their worker's word, or by an operator's about what no worker can tell."""

from enum import StrEnum
from hashlib import sha256

from msgspec.structs import replace

from .charging import charge
from .ending import RETENTION_MS, ended, shortened
from .facts import U64, Attachment, Beside, Job, Tally, changed
from .history import Event, told
from .ids import text_of
from .notice import notice_id
from .quota import Ask
from .receipt import Finished, Missing, Reason, Refused, Resolved
from .states import Delivery, JobState, Move, after, allowed
from .step import Facts, Footprint, Step
from .tally import spending
from .work import HeldCommand, JobCommand, let_go

BACKOFF_FIRST_MS = 1000
BACKOFF_MS_MAX = 3600 * 1000
RESULT_BYTES_MAX = 1 << 20
_SEAL_BYTES = 8


class Ends(StrEnum):
    SUCCESS = "success"
    FAILED = "failed"


class Finish(HeldCommand, frozen=True, gc=False, kw_only=True):
    """Say how an attempt ended. A failure is tried again while attempts are left, unless it is final."""

    ends: Ends
    result: bytes = b""  # JSON
    error: str = ""
    final: bool = False  # no further attempt would help
    retry_ms: int = 0  # 0: by the back-off
    cost: int | None = None  # what it really cost; None: what was estimated
    actor: str
    retention_ms: int = RETENTION_MS

    @property
    def bulk(self) -> int:
        return len(self.result)

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, jobs=(self.job_id, notice_id(self.job_id)), follow_tally=True)

    @property
    def seal(self) -> bytes:
        """What is said, so that the same word said again is known."""
        said = (
            f"{self.ends}\n{self.final}\n{self.cost}\n{self.error}\n".encode(errors="surrogatepass")
            + self.result
        )
        return sha256(said).digest()[:_SEAL_BYTES]

    def decide(self, facts: Facts, now: int) -> Step[Finished | Refused | Missing]:
        job = facts.jobs.get(self.job_id)
        if job is None:
            return Step(Missing(now))
        seal = self.seal
        if (job.token, job.holder, job.seal) == (self.token, self.holder, seal):
            return Step(Finished(job, now))
        if job.state is not JobState.RUNNING or (job.token, job.holder) != (self.token, self.holder):
            return Step(self.stale(job, now))
        # A lease that lapsed unnoticed is no loss: nobody else has the job, or the token would have grown.
        if self.ends is Ends.FAILED and self._again(job):
            return self._later(job, seal, now)
        move = Move.SUCCEED if self.ends is Ends.SUCCESS else Move.FAIL
        end = ended(
            job,
            facts.tally,
            now,
            move=move,
            actor=self.actor,
            retention_ms=self.retention_ms,
            error=self.error,
            cost=self.cost,
            seal=seal,
            notice=facts.jobs.get(notice_id(self.job_id)),
        )
        adds = end.adds
        if self.result:
            adds = (*adds, Attachment(job.id, Beside.RESULT, U64(job.token), self.result))
        return Step(Finished(end.job, now), end.puts, adds=adds, cuts=end.cuts)

    def _again(self, job: Job) -> bool:
        started_once = job.delivery is Delivery.AT_MOST_ONCE
        return not (self.final or started_once or job.attempts >= job.attempts_max)

    def _later(self, job: Job, seal: bytes, now: int) -> Step[Finished | Refused | Missing]:
        wait_ms = self.retry_ms or backoff_ms(job)
        adds, cuts = told(job, Event(now, f"attempt {job.attempts} failed", self.actor, self.error))
        error = shortened(self.error)
        later = let_go(job, now, delay_ms=wait_ms, seal=seal, error=error, events=job.events + 1)
        return Step(Finished(later, now), (later,), adds=adds, cuts=cuts)


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
    tally_id: bytes = b""
    policy_id: bytes = b""
    retention_ms: int = RETENTION_MS

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            self.tenant,
            jobs=(self.job_id, notice_id(self.job_id)),
            tally=self.tally_id,
            policy=self.policy_id,
            follow_tally=True,
        )

    def decide(self, facts: Facts, now: int) -> Step[Resolved | Refused | Missing]:
        job = facts.jobs.get(self.job_id)
        if job is None:
            return Step(Missing(now))
        move = _MOVES[self.resolution]
        if not allowed(job.state, move) or job.state is JobState.RUNNING:
            message = f"a {job.state} job cannot be resolved so; lost ones can, and failed ones can run again"
            return Step(Refused(Reason.NOT_ALLOWED, message, now, {"state": job.state}))
        if move is Move.RERUN:
            return self._rerun(job, facts, now)
        end = ended(
            job,
            facts.tally,
            now,
            move=move,
            actor=self.actor,
            retention_ms=self.retention_ms,
            error="" if move is Move.SUCCEED else self.note or job.error,
            notice=facts.jobs.get(notice_id(self.job_id)),
        )
        return Step(Resolved(end.job, now), end.puts, adds=end.adds, cuts=end.cuts)

    def _rerun(self, job: Job, facts: Facts, now: int) -> Step[Resolved | Refused | Missing]:
        """A slot is taken again, or the rerun is refused. What a lost job held is spent, for it ran, and held anew."""
        lost = job.cost_held if job.slot else 0
        ask = Ask(cost=job.cost_held - lost, job_id=text_of(job.id), is_new=False)
        taken = charge(facts, ask, now, tenant=self.tenant, user=self.user, tally_id=self.tally_id)
        if isinstance(taken, Refused):
            return Step(taken)
        tallies: tuple[Tally, ...] = ()
        if taken is not None:
            spent = spending(taken.tally, now, lost) if lost else {}
            tallies = (replace(taken.tally, **spent),)
        adds, cuts = told(job, Event(now, "run again", self.actor, self.note))
        again = changed(
            job,
            now,
            state=after(job.state, Move.RERUN),
            attempts=0,
            run_at=0,
            ended_at=0,
            due_at=0,
            error="",
            seal=b"",
            slot=tallies[0].id if tallies else b"",
            events=job.events + 1,
        )
        return Step(Resolved(again, now), (again, *tallies), adds=adds, cuts=cuts)


_MOVES = {
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
