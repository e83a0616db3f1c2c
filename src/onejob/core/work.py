"""Running jobs: the verbs of workers and dispatchers, compare-and-set on (job, token, holder).

    claim ──▶ start ──▶ extend … ──▶ finish
      ╰──────────┴──── release

A claim raises the token; it only ever grows, so whoever comes with an older one finishes nothing. The holder is
drawn once per intention (for brokers: per delivery). The same holder gets the same winning answer again; another
with the same token comes too late.
"""

import re
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

from msgspec import Struct, json
from msgspec.structs import replace

from .callback import callback_job_id, release_callback_job
from .command import CommandData, Facts, Footprint, Step, Trim
from .facts import U64, Attachment, AttachmentKind, Fact, Job, Usage, next_version
from .identity import CALLER_TEXT_BYTES_MAX, format_job_id
from .quota import QuotaRequest, charge, reservations_without_job, spending_changes, updated_usage
from .replies import Cancelled, Claimed, Extended, Finished, Missing, Reason, Refused, Released, Resolved, Started
from .states import CLAIMABLE_STATES, ENDED_STATES, Delivery, JobState, Move, is_allowed, state_after

# A job's story: the first 8 and the last 24 events are kept, the rest are counted.


FIRST_EVENTS_MAX = 8
LAST_EVENTS_MAX = 24
_DETAIL_CHARS_MAX = 500
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")


class Event(Struct, frozen=True, gc=False, omit_defaults=True):
    at: int
    what: str
    actor: str
    detail: str = ""


def record_event(job: Job, event: Event) -> tuple[tuple[Attachment, ...], tuple[Trim, ...]]:
    """The rows that add an event to a job whose count is still the old one."""
    index = job.events
    short = Event(event.at, event.what, event.actor, to_storable_text(event.detail[:_DETAIL_CHARS_MAX]))
    adds = (Attachment(job.id, AttachmentKind.EVENT, U64(index), json.encode(short)),)
    leaving = index - LAST_EVENTS_MAX
    cuts = (Trim(job.id, AttachmentKind.EVENT, leaving),) if leaving >= FIRST_EVENTS_MAX else ()
    return adds, cuts


def to_storable_text(text: str) -> str:
    """What a program or a person says of a job, as every store can keep it.

    Names and keys with a NUL are refused, and JSON is stored as bytes; but an attempt that failed has failed,
    whatever its error contains: what some store cannot hold as text is told as U+FFFD, on every one.
    """
    return _UNSTORABLE.sub("\ufffd", text)


def first_event(job: Job) -> Event:
    """Implied by the head: nothing is written for it."""
    return Event(job.created_at, "submitted", job.actor)


# How a job ends: the one place that clears a lease, frees a slot, sets the retention and tells the story.


RETENTION_MS = 7 * 24 * 3600 * 1000
_ERROR_BYTES_MAX = 300  # of the 2 KiB of a head


class JobEnding(NamedTuple):
    job: Job
    puts: tuple[Fact, ...]
    attachments: tuple[Attachment, ...]
    trims: tuple[Trim, ...]


def end_job(
    job: Job,
    usage: Usage | None,
    now: int,
    *,
    move: Move,
    actor: str,
    retention_ms: int,
    error: str = "",
    cost: int | None = None,
    finish_digest: bytes = b"",
    callback: Job | None = None,
) -> JobEnding:
    """`cost` is what it really cost; unless it is known, a job that ran cost what was estimated."""
    state = state_after(job.state, move)
    assert state in ENDED_STATES
    error = shortened_error(error)
    adds, cuts = record_event(job, Event(now, state.value, actor, error))
    lost = state is JobState.LOST
    stopped = next_version(
        job,
        now,
        state=state,
        holder=job.holder if finish_digest else b"",  # whoever finished it may say so again
        seal=finish_digest,
        lease_until=0,
        # What a lost job spent is not known yet: its money stays held, and the mark says where.
        slot=job.slot if lost and job.cost_held else b"",
        ended_at=now,
        # A lost job waits for an operator, however long.
        due_at=0 if lost else max(now + retention_ms, job.keep_until),
        error=error,
        events=job.events + 1,
    )
    spent = job.cost_held if cost is None and job.attempts else cost or 0
    puts: tuple[Fact, ...] = (
        stopped,
        *release_callback_job(callback, state, now),
        *_usage_without_job(job, usage, now, state, spent),
    )
    return JobEnding(stopped, puts, adds, cuts)


def shortened_error(error: str) -> str:
    """As much of an error as the head has room for."""
    return to_storable_text(error).encode()[:_ERROR_BYTES_MAX].decode(errors="ignore")


def _usage_without_job(job: Job, usage: Usage | None, now: int, state: JobState, spent: int) -> tuple[Usage, ...]:
    """The tally without this job's slot and money. The mark is cleared in the same step, so both are freed once."""
    # A tally may be gone: a tenant that is being purged loses it before its jobs.
    if not job.slot or usage is None or usage.id != job.slot:
        return ()
    if job.state is JobState.PREPARING:
        return (updated_usage(usage, now, reservations=reservations_without_job(usage, job, now)),)
    live = usage.live if job.state is JobState.LOST else max(usage.live - 1, 0)
    if state is JobState.LOST:
        return (updated_usage(usage, now, live=live),)
    held = max(usage.cost_held - job.cost_held, 0)
    return (
        updated_usage(usage, now, live=live, cost_held=held, **(spending_changes(usage, now, spent) if spent else {})),
    )


LEASE_MS_DEFAULT = 60_000
LEASE_MS_MIN = 100
LEASE_MS_MAX = 24 * 3600 * 1000
LOG_LINES_MAX = 1000  # kept for a job, the newest
LOG_LINES_AT_ONCE_MAX = 100
LOG_CHARS_MAX = 2000
PROGRESS_BYTES_MAX = 500


class JobCommand(CommandData, frozen=True, gc=False, kw_only=True):
    job_id: bytes

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, jobs=(self.job_id,))


class Claim(JobCommand, frozen=True, gc=False, kw_only=True):
    """Take a job that is ready. With `start` it is started in the same step, by whoever is about to run it."""

    holder: bytes
    lease_ms: int = LEASE_MS_DEFAULT
    start: bool = False

    def decide(self, facts: Facts, now: int) -> Step[Claimed | Started | Refused | Missing]:
        job = facts.jobs.get(self.job_id)
        if job is None:
            return Step(Missing(now))
        if job.holder == self.holder and now <= job.lease_until:
            return Step(Started(job, now) if job.state is JobState.RUNNING else Claimed(job, now))
        if not is_ready(job, now):
            return Step(Refused(Reason.NOT_READY, "the job is not to be had: ask for others", now))
        state, token = state_after(job.state, Move.CLAIM), job.token + 1
        if self.start and _may_start(job):
            begun = next_version(
                job, now, token=token, seal=b"", **_start_changes(job, state, now, self.holder, self.lease_ms)
            )
            return Step(Started(begun, now), (begun,))
        until = now + self.lease_ms
        claimed = next_version(
            job, now, state=state, token=token, holder=self.holder, lease_until=until, due_at=until, seal=b""
        )
        return Step(Claimed(claimed, now), (claimed,))


class JobHolderCommand(JobCommand, frozen=True, gc=False, kw_only=True):
    """A command by whoever has the token."""

    token: int
    holder: bytes

    def holds_lease(self, job: Job, now: int) -> bool:
        """Claimed or started by this holder, and the lease lives."""
        return (job.token, job.holder) == (self.token, self.holder) and now <= job.lease_until

    def stale_refusal(self, job: Job, now: int) -> Refused:
        message = f"the job is not yours any more (it is {job.state}, token {job.token}); stop, change nothing"
        return Refused(Reason.STALE, message, now, {"state": job.state, "token": job.token})


class Start(JobHolderCommand, frozen=True, gc=False, kw_only=True):
    """Begin to run. Of several deliveries of one (job, token) one starts; the others do nothing."""

    lease_ms: int = LEASE_MS_DEFAULT

    def decide(self, facts: Facts, now: int) -> Step[Started | Refused | Missing]:
        job = facts.jobs.get(self.job_id)
        if job is None:
            return Step(Missing(now))
        if job.state is JobState.RUNNING and self.holds_lease(job, now):
            return Step(Started(job, now))
        if job.state is not JobState.PENDING or job.token != self.token or now > job.lease_until:
            return Step(self.stale_refusal(job, now))
        if not _may_start(job):
            return Step(self.stale_refusal(job, now))
        begun = next_version(job, now, **_start_changes(job, job.state, now, self.holder, self.lease_ms))
        return Step(Started(begun, now), (begun,))


class Extend(JobHolderCommand, frozen=True, gc=False, kw_only=True):
    """Prolong the lease; tell of progress, and append log lines at an offset, so that each is there once."""

    lease_ms: int = LEASE_MS_DEFAULT
    progress: str = ""  # JSON; empty: as it was
    logs: tuple[str, ...] = ()
    offset: int = 0  # how many lines came before these

    @property
    def payload_bytes(self) -> int:
        return sum(map(len, self.logs))

    def decide(self, facts: Facts, now: int) -> Step[Extended | Refused | Missing]:
        job = facts.jobs.get(self.job_id)
        if job is None:
            return Step(Missing(now))
        if not is_allowed(job.state, Move.EXTEND) or not self.holds_lease(job, now):
            return Step(self.stale_refusal(job, now))
        until = _lease_end(job, now, self.lease_ms)
        if until <= now:
            message = "the time of this attempt is over; stop, and finish it as failed"
            return Step(Refused(Reason.TIMED_OUT, message, now))
        if self.offset > job.logs:
            message = f"there are {job.logs} log lines so far; send those from there on"
            return Step(Refused(Reason.SEQUENCE_GAP, message, now, {"logs": job.logs}))
        if self.progress and (room := progress_bytes_max(job)) < len(self.progress.encode()):
            message = f"the head of this job has room for {room} bytes of progress; say less"
            return Step(Refused(Reason.NOT_ALLOWED, message, now, {"room": room}))
        fresh = self.logs[job.logs - self.offset :]
        adds = tuple(
            Attachment(job.id, AttachmentKind.LOG, U64(job.logs + n), line.encode()) for n, line in enumerate(fresh)
        )
        last = job.logs + len(fresh)
        leaving = range(max(job.logs - LOG_LINES_MAX, 0), max(last - LOG_LINES_MAX, 0))
        extended = next_version(
            job, now, lease_until=until, due_at=until, logs=last, progress=self.progress or job.progress
        )
        cuts = tuple(Trim(job.id, AttachmentKind.LOG, index) for index in leaving)
        return Step(Extended(extended, now), (extended,), attachments=adds, trims=cuts)


class Release(JobHolderCommand, frozen=True, gc=False, kw_only=True):
    """Hand a job back, for at once or for later. A start that is taken back was no attempt."""

    delay_ms: int = 0

    def decide(self, facts: Facts, now: int) -> Step[Released | Refused | Missing]:
        job = facts.jobs.get(self.job_id)
        if job is None:
            return Step(Missing(now))
        running = job.state is JobState.RUNNING
        if not self.holds_lease(job, now) or not is_allowed(job.state, Move.RELEASE):
            handed_back = (job.token, job.holder, job.seal) == (self.token, self.holder, _RELEASE_DIGEST)
            return Step(Released(job, now) if handed_back else self.stale_refusal(job, now))
        if running and job.delivery is Delivery.AT_MOST_ONCE:
            message = "an at-most-once job that was started is not run again; finish it"
            return Step(Refused(Reason.NOT_ALLOWED, message, now))
        attempts = job.attempts - running
        free = released_job(job, now, delay_ms=self.delay_ms, seal=_RELEASE_DIGEST, attempts=attempts)
        return Step(Released(free, now), (free,))


class Cancel(JobCommand, frozen=True, gc=False, kw_only=True):
    """End a job that has not ended; one that has stays as it is."""

    actor: str
    retention_ms: int = RETENTION_MS

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, jobs=(self.job_id, callback_job_id(self.job_id)), follow_usage=True)

    def decide(self, facts: Facts, now: int) -> Step[Cancelled | Missing]:
        job = facts.jobs.get(self.job_id)
        if job is None:
            return Step(Missing(now))
        if not is_allowed(job.state, Move.CANCEL):
            return Step(Cancelled(job, False, now))
        end = end_job(
            job,
            facts.usage,
            now,
            move=Move.CANCEL,
            actor=self.actor,
            retention_ms=self.retention_ms,
            callback=facts.jobs.get(callback_job_id(self.job_id)),
        )
        return Step(Cancelled(end.job, True, now), end.puts, attachments=end.attachments, trims=end.trims)


_RELEASE_DIGEST = b"handed back"


def is_ready(job: Job, now: int) -> bool:
    """Whether it can be claimed."""
    return job.state in CLAIMABLE_STATES and job.run_at <= now and now > job.lease_until


def progress_bytes_max(job: Job) -> int:
    """How many bytes of progress fit into the head, beside what was chosen for the job."""
    names = (job.tenant, job.type, job.scope, job.key, job.actor, job.user)
    chosen = sum(len(name.encode()) for name in names) + len(job.labels)
    return max(min(PROGRESS_BYTES_MAX, CALLER_TEXT_BYTES_MAX - chosen), 0)


def released_job(job: Job, now: int, *, delay_ms: int = 0, **changes: object) -> Job:
    """The job without its lease, ready again at once or after a delay. Who held it last is still to be seen."""
    move = Move.SCHEDULE if delay_ms else Move.RELEASE
    run_at = now + delay_ms if delay_ms else job.run_at
    return next_version(job, now, state=state_after(job.state, move), lease_until=0, due_at=0, run_at=run_at, **changes)


def _may_start(job: Job) -> bool:
    return job.delivery is not Delivery.AT_MOST_ONCE or not job.attempts


def _start_changes(job: Job, state: JobState, now: int, holder: bytes, lease_ms: int) -> dict[str, object]:
    """The changes that start an attempt of a job in this state."""
    until = now + (min(lease_ms, job.timeout_ms) if job.timeout_ms else lease_ms)
    return {
        "state": state_after(state, Move.START),
        "holder": holder,
        "attempts": job.attempts + 1,
        "started_at": now,
        "lease_until": until,
        "due_at": until,
        "progress": "",
    }


def _lease_end(job: Job, now: int, lease_ms: int) -> int:
    """A lease never outlives the timeout of the attempt."""
    if job.state is JobState.RUNNING and job.timeout_ms:
        return min(now + lease_ms, job.started_at + job.timeout_ms)
    return now + lease_ms


# How attempts end: by their worker's word, or by an operator's about what no worker can tell.


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
        said = f"{self.outcome}\n{self.final}\n{self.cost}\n{self.error}\n".encode(errors="surrogatepass") + self.result
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
        later = released_job(job, now, delay_ms=wait_ms, seal=finish_digest, error=error, events=job.events + 1)
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
