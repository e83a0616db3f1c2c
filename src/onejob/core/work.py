"""Running jobs: claim, start, extend, finish, release, cancel, resolve; how a job ends; its event log.

    claim ──▶ start ──▶ extend … ──▶ finish
      ╰──────────┴──── release

1. Every command of a worker is a compare-and-set on (job, token, holder). A claim raises the token, which only grows,
   so a worker with an older token changes nothing.
2. The holder is a nonce, drawn once per intention (for brokers: per delivery). The same holder gets the same winning
   answer again; another holder with the same token is refused as stale.
3. A claim that was never started is not an attempt. After the start, an expired lease is a failed attempt, or `lost`
   where the job may run at most once (maintenance.py).
4. A late holder is heard: while nobody else has claimed the job, extend, release and finish work after the lease, whether or not
   maintenance has returned the job to the queue, and extend revives the lease. A job that has ended or is lost is never
   revived, and after the timeout of the attempt neither an extension nor a success is accepted.
5. Every end of a job goes through `end_job`: it clears the lease, frees slot and money, sets the retention, makes the
   callback job ready and records the event.
6. Cancel and resolve (which includes rerun) may carry a key. The job keeps the last 8 of them with what they did, so that a
   retry changes nothing and gets the same answer. They are kept apart from the worker's holder. Refusals are not kept.
7. A claimed job may be started by another holder than the one that claimed it: a message of a broker carries id and token. Jobs
   that the service runs itself have no such messages, and nobody starts them but by claiming them.
8. Of the events the first 8 and the last 24 are stored; the others are only counted.
"""

import re
from enum import IntEnum, StrEnum
from hashlib import sha256
from typing import ClassVar, NamedTuple

from msgspec import Struct, json
from msgspec.structs import force_setattr, replace

from .callback import callback_job_id, release_callback_job
from .command import CommandData, Facts, Footprint, Step, Trim
from .facts import U64, Attachment, AttachmentKind, Fact, Job, Usage, next_version
from .identity import CALLER_TEXT_BYTES_MAX, format_job_id, is_service_type
from .quota import QuotaRequest, charge, reservations_without_job, spending_changes, updated_usage
from .replies import Cancelled, Claimed, Extended, Finished, Missing, Reason, Refused, Released, Resolved, Started
from .sites import refusal_at_home, runs_elsewhere
from .states import CLAIMABLE_STATES, ENDED_STATES, Delivery, JobState, Move, is_allowed, state_after

RETENTION_MS = 7 * 24 * 3600 * 1000
RETENTION_MS_MAX = 3650 * 24 * 3600 * 1000
LEASE_MS_DEFAULT = 60_000
LEASE_MS_MIN = 100
LEASE_MS_MAX = 24 * 3600 * 1000
BACKOFF_FIRST_MS = 1000
BACKOFF_MS_MAX = 3600 * 1000
RESULT_BYTES_MAX = 1 << 20
LOG_LINES_MAX = 1000  # stored for a job, the newest
LOG_LINES_AT_ONCE_MAX = 100
LOG_CHARS_MAX = 2000
PROGRESS_BYTES_MAX = 500
FIRST_EVENTS_MAX = 8
LAST_EVENTS_MAX = 24
VERB_KEYS_MAX = 8
MESSAGE_CHARS_MAX = 2000  # of an exception

_DETAIL_CHARS_MAX = 500
_ERROR_BYTES_MAX = 260  # of the 2 KiB of a job row
_FINISH_DIGEST_BYTES = 8
_VERB_KEY_DIGEST_BYTES = 6
_VERB_KEY_BYTES = _VERB_KEY_DIGEST_BYTES + 1  # the digest, then verb and outcome in one byte
RELEASE_DIGEST = b"handed back"  # stored in place of a finish digest, so that a repeated release is recognised
# The same for a lease that expired during an attempt: its holder may go on until the job is claimed again.
LAPSE_DIGEST = b"lapsed"
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")


class JobCommand(CommandData, frozen=True, gc=False, kw_only=True):
    job_id: bytes

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, jobs=(self.job_id,))


class Claim(JobCommand, frozen=True, gc=False, kw_only=True):
    """Take a job that is ready; with `start`, also start it in the same step."""

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
            return Step(Refused(Reason.NOT_READY, "the job cannot be claimed now; claim another one", now))
        state, token = state_after(job.state, Move.CLAIM), job.token + 1
        if self.start and _may_start(job):
            changes = _start_changes(job, state, now, self.holder, self.lease_ms)
            started = next_version(job, now, token=token, finish_digest=b"", **changes)
            return Step(Started(started, now), (started,))
        until = now + self.lease_ms
        claimed = next_version(
            job, now, state=state, token=token, holder=self.holder, lease_until=until, due_at=until, finish_digest=b""
        )
        return Step(Claimed(claimed, now), (claimed,))


class JobHolderCommand(JobCommand, frozen=True, gc=False, kw_only=True):
    """A command of the worker that claimed the job."""

    token: int
    holder: bytes

    def holds_lease(self, job: Job, now: int) -> bool:
        """True if this holder claimed or started the job, and the lease has not expired."""
        return (job.token, job.holder) == (self.token, self.holder) and now <= job.lease_until

    def held_job(self, job: Job) -> Job | None:
        """The job as this holder has it, also after its lease; None if it was claimed again, reported or ended."""
        if (job.token, job.holder) != (self.token, self.holder) or runs_elsewhere(job):
            return None
        if job.state is JobState.RUNNING or (job.state is JobState.PENDING and not job.finish_digest):
            return job
        if job.state is JobState.PENDING and job.finish_digest == LAPSE_DIGEST:
            return replace(job, state=state_after(job.state, Move.REVIVE), finish_digest=b"")
        return None

    def stale_refusal(self, job: Job, now: int) -> Refused:
        message = f"the lease on this job was lost (it is {job.state}, token {job.token}); stop, change nothing"
        return Refused(Reason.STALE, message, now, {"state": job.state, "token": job.token})


class Start(JobHolderCommand, frozen=True, gc=False, kw_only=True):
    """Begin an attempt. Of several deliveries of one (job, token) one starts; the others are refused as stale."""

    lease_ms: int = LEASE_MS_DEFAULT

    def decide(self, facts: Facts, now: int) -> Step[Started | Refused | Missing]:
        job = facts.jobs.get(self.job_id)
        if job is None:
            return Step(Missing(now))
        if is_service_type(job.type):
            return Step(Refused(Reason.NOT_ALLOWED, "the service itself runs this job; claim another one", now))
        if job.state is JobState.RUNNING and self.holds_lease(job, now):
            return Step(Started(job, now))
        if job.state is not JobState.PENDING or job.token != self.token or now > job.lease_until:
            return Step(self.stale_refusal(job, now))
        if not _may_start(job):
            return Step(self.stale_refusal(job, now))
        started = next_version(job, now, **_start_changes(job, job.state, now, self.holder, self.lease_ms))
        return Step(Started(started, now), (started,))


class Extend(JobHolderCommand, frozen=True, gc=False, kw_only=True):
    """Renew the lease, store progress, and append log lines at an offset, so that each is stored once."""

    lease_ms: int = LEASE_MS_DEFAULT
    progress: str = ""  # JSON; empty: unchanged
    logs: tuple[str, ...] = ()
    offset: int = 0  # how many lines came before these

    @property
    def payload_bytes(self) -> int:
        return sum(map(len, self.logs))

    def decide(self, facts: Facts, now: int) -> Step[Extended | Refused | Missing]:
        job = facts.jobs.get(self.job_id)
        if job is None:
            return Step(Missing(now))
        held = self.held_job(job)
        if held is None:
            return Step(self.stale_refusal(job, now))
        job = held
        until = _lease_end(job, now, self.lease_ms)
        if until <= now:
            return Step(timed_out_refusal(now))
        if self.offset > job.logs:
            message = f"{job.logs} log lines are stored; send the lines from that offset on"
            return Step(Refused(Reason.SEQUENCE_GAP, message, now, {"logs": job.logs}))
        if self.progress and (room := progress_bytes_max(job)) < len(self.progress.encode()):
            message = f"the job row has room for {room} bytes of progress; send less"
            return Step(Refused(Reason.NOT_ALLOWED, message, now, {"room": room}))
        attachments, trims, total = self._append_logs(job)
        extended = next_version(
            job, now, lease_until=until, due_at=until, logs=total, progress=self.progress or job.progress
        )
        return Step(Extended(extended, now), (extended,), attachments=attachments, trims=trims)

    def _append_logs(self, job: Job) -> tuple[tuple[Attachment, ...], tuple[Trim, ...], int]:
        """The new lines, the oldest ones that make room for them, and the number of lines afterwards."""
        lines = enumerate(self.logs[job.logs - self.offset :], job.logs)
        attachments = tuple(Attachment(job.id, AttachmentKind.LOG, U64(n), line.encode()) for n, line in lines)
        total = job.logs + len(attachments)
        trimmed = range(max(job.logs - LOG_LINES_MAX, 0), max(total - LOG_LINES_MAX, 0))
        return attachments, tuple(Trim(job.id, AttachmentKind.LOG, n) for n in trimmed), total


class Release(JobHolderCommand, frozen=True, gc=False, kw_only=True):
    """Give a job back, ready at once or after a delay. A released start does not count as an attempt."""

    delay_ms: int = 0

    def decide(self, facts: Facts, now: int) -> Step[Released | Refused | Missing]:
        job = facts.jobs.get(self.job_id)
        if job is None:
            return Step(Missing(now))
        held = self.held_job(job)
        if held is None:
            is_repeated = (job.token, job.holder, job.finish_digest) == (self.token, self.holder, RELEASE_DIGEST)
            return Step(Released(job, now) if is_repeated else self.stale_refusal(job, now))
        job = held
        running = job.state is JobState.RUNNING
        if running and job.delivery is Delivery.AT_MOST_ONCE:
            message = "an at-most-once job that was started is not run again; finish it"
            return Step(Refused(Reason.NOT_ALLOWED, message, now))
        attempts = job.attempts - running
        released = released_job(job, now, delay_ms=self.delay_ms, finish_digest=RELEASE_DIGEST, attempts=attempts)
        return Step(Released(released, now), (released,))


class FinishOutcome(StrEnum):
    SUCCESS = "success"
    FAILED = "failed"


class Finish(JobHolderCommand, frozen=True, gc=False, kw_only=True):
    """Report how an attempt ended. A failure is retried while attempts are left, unless it is final."""

    may_be_overtaken: ClassVar[bool] = True

    outcome: FinishOutcome
    result: bytes = b""  # JSON
    error: str = ""  # for everybody who sees the job
    message: str = ""  # of the exception, for operators: it may repeat the input
    final: bool = False  # no further attempt would help
    retry_ms: int = 0  # 0: the default backoff
    cost: int | None = None  # the actual cost; None: the estimate
    actor: str
    retention_ms: int = RETENTION_MS

    def __post_init__(self) -> None:
        clean_text_field(self, "error")

    @property
    def payload_bytes(self) -> int:
        return len(self.result)

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, jobs=(self.job_id, callback_job_id(self.job_id)), follow_usage=True)

    @property
    def finish_digest(self) -> bytes:
        """Digest of the report, stored with the job, so that a repeated finish is recognised."""
        header = f"{self.outcome}\n{self.final}\n{self.cost}\n{self.error}\n".encode()
        return sha256(header + self.result).digest()[:_FINISH_DIGEST_BYTES]

    def decide(self, facts: Facts, now: int) -> Step[Finished | Refused | Missing]:
        job = facts.jobs.get(self.job_id)
        if job is None:
            return Step(Missing(now))
        digest = self.finish_digest
        if (job.token, job.holder, job.finish_digest) == (self.token, self.holder, digest):
            return Step(Finished(job, now))
        held = self.held_job(job)
        if held is None or held.state is not JobState.RUNNING:
            return Step(self.stale_refusal(job, now))
        job = held
        if self.outcome is FinishOutcome.SUCCESS and job.timeout_ms and now > job.started_at + job.timeout_ms:
            return Step(timed_out_refusal(now))
        if self.outcome is FinishOutcome.FAILED and self._may_retry(job):
            return self._schedule_retry(job, digest, now)
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
            finish_digest=digest,
            callback=facts.jobs.get(callback_job_id(self.job_id)),
        )
        attachments = (*end.attachments, *self._failure_attachments(job, now))
        if self.result:
            attachments = (*attachments, Attachment(job.id, AttachmentKind.RESULT, U64(job.token), self.result))
        return Step(Finished(end.job, now), end.puts, attachments=attachments, trims=end.trims)

    def _may_retry(self, job: Job) -> bool:
        at_most_once = job.delivery is Delivery.AT_MOST_ONCE
        return not (self.final or at_most_once or job.attempts >= job.attempts_max)

    def _schedule_retry(self, job: Job, finish_digest: bytes, now: int) -> Step[Finished | Refused | Missing]:
        delay_ms = self.retry_ms or backoff_ms(job)
        attachments, trims = record_event(job, Event(now, f"attempt {job.attempts} failed", self.actor, self.error))
        error = shortened_error(self.error)
        retried = released_job(
            job, now, delay_ms=delay_ms, finish_digest=finish_digest, error=error, events=job.events + 1
        )
        attachments = (*attachments, *self._failure_attachments(job, now))
        return Step(Finished(retried, now), (retried,), attachments=attachments, trims=trims)

    def _failure_attachments(self, job: Job, now: int) -> tuple[Attachment, ...]:
        """The message of the exception, beside the event of the failed attempt: it is trimmed with that."""
        if not self.message:
            return ()
        message = to_storable_text(self.message[:MESSAGE_CHARS_MAX])
        failure = Event(now, f"attempt {job.attempts} failed", self.actor, message)
        return (Attachment(job.id, AttachmentKind.FAILURE, U64(job.events), json.encode(failure)),)


class Verb(IntEnum):
    """What a verb key was used for; the numbers are stored."""

    CANCEL = 0
    SUCCEEDED = 1
    FAILED = 2
    RERUN = 3


class VerbOutcome(NamedTuple):
    verb: Verb
    changed: bool  # False: the job had ended before, and stayed as it was


def verb_key_digest(key: str) -> bytes:
    """The form in which a job keeps the key of a verb. It belongs to the job: the same key is the same verb, whoever acts."""
    return sha256(f"0:{key}".encode()).digest()[:_VERB_KEY_DIGEST_BYTES]


class VerbCommand(JobCommand, frozen=True, gc=False, kw_only=True):
    """A verb that is not a worker's. With a key, its retry gets the same answer."""

    actor: str
    retention_ms: int = RETENTION_MS
    verb_key: bytes = b""  # a digest; empty: no key
    not_after: int = 0  # on the engine's time; 0: no limit

    @property
    def has_echo(self) -> bool:
        return bool(self.verb_key)

    def earlier_outcome(self, job: Job) -> VerbOutcome | None:
        """What the key of this command did before; None if the job does not know it."""
        kept = job.verb_keys
        for at in range(0, len(kept), _VERB_KEY_BYTES) if self.verb_key else ():
            if kept[at : at + _VERB_KEY_DIGEST_BYTES] == self.verb_key:
                number, changed = divmod(kept[at + _VERB_KEY_DIGEST_BYTES], 2)
                return VerbOutcome(Verb(number), bool(changed))
        return None

    def keys_with(self, job: Job, verb: Verb, *, changed: bool) -> bytes:
        """`Job.verb_keys` with the key of this command; the oldest makes room for it."""
        if not self.verb_key:
            return job.verb_keys
        newest = self.verb_key + bytes([verb * 2 + changed])
        return (job.verb_keys + newest)[-VERB_KEYS_MAX * _VERB_KEY_BYTES :]

    def key_reused_refusal(self, now: int) -> Refused:
        message = "this key was used for another verb on this job; use a new key for a new act"
        return Refused(Reason.IDEMPOTENCY_KEY_REUSED, message, now)


class Cancel(VerbCommand, frozen=True, gc=False, kw_only=True):
    """End a job. One that has already ended stays as it is."""

    @property
    def footprint(self) -> Footprint:
        jobs = (self.job_id, callback_job_id(self.job_id))
        return Footprint(self.tenant, jobs=jobs, follow_usage=True, not_after=self.not_after)

    def decide(self, facts: Facts, now: int) -> Step[Cancelled | Refused | Missing]:
        job = facts.jobs.get(self.job_id)
        if job is None:
            return Step(Missing(now))
        if message := refusal_at_home(job, Move.CANCEL):
            return Step(Refused(Reason.NOT_ALLOWED, message, now))
        if (earlier := self.earlier_outcome(job)) is not None:
            is_same_verb = earlier.verb is Verb.CANCEL
            return Step(Cancelled(job, earlier.changed, now) if is_same_verb else self.key_reused_refusal(now))
        if not is_allowed(job.state, Move.CANCEL):
            if not self.verb_key:
                return Step(Cancelled(job, False, now))
            # Stored, so that a late copy does not cancel a job that was run again meanwhile. Nothing else changes.
            kept = replace(job, version=job.version + 1, verb_keys=self.keys_with(job, Verb.CANCEL, changed=False))
            return Step(Cancelled(kept, False, now), (kept,))
        end = end_job(
            replace(job, verb_keys=self.keys_with(job, Verb.CANCEL, changed=True)),
            facts.usage,
            now,
            move=Move.CANCEL,
            actor=self.actor,
            retention_ms=self.retention_ms,
            callback=facts.jobs.get(callback_job_id(self.job_id)),
        )
        return Step(Cancelled(end.job, True, now), end.puts, attachments=end.attachments, trims=end.trims)


class Resolution(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RERUN = "rerun"


class Resolve(VerbCommand, frozen=True, gc=False, kw_only=True):
    """An operator's decision: how a lost job ended, or that a lost or failed one runs again with the same id."""

    resolution: Resolution
    note: str = ""
    user: str = ""  # the job's user, whose usage is named
    usage_id: bytes = b""
    policy_id: bytes = b""

    def __post_init__(self) -> None:
        clean_text_field(self, "note")

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            self.tenant,
            jobs=(self.job_id, callback_job_id(self.job_id)),
            usage=self.usage_id,
            policy=self.policy_id,
            follow_usage=True,
            not_after=self.not_after,
        )

    def decide(self, facts: Facts, now: int) -> Step[Resolved | Refused | Missing]:
        job = facts.jobs.get(self.job_id)
        if job is None:
            return Step(Missing(now))
        verb, move = _RESOLUTION_VERBS[self.resolution], _RESOLUTION_MOVES[self.resolution]
        if message := refusal_at_home(job, move):
            return Step(Refused(Reason.NOT_ALLOWED, message, now))
        if (earlier := self.earlier_outcome(job)) is not None:
            return Step(Resolved(job, now) if earlier.verb is verb else self.key_reused_refusal(now))
        if not is_allowed(job.state, move) or job.state is JobState.RUNNING:
            message = (
                f"a {job.state} job cannot be resolved like this; only a lost one can, and a failed one can run again"
            )
            return Step(Refused(Reason.NOT_ALLOWED, message, now, {"state": job.state}))
        job = replace(job, verb_keys=self.keys_with(job, verb, changed=True))
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
        """Take a slot again, or be refused. The money that a lost job held is spent, for it ran, and held once more."""
        held_since_lost = job.cost_held if job.usage_id else 0
        request = QuotaRequest(cost=job.cost_held - held_since_lost, job_id=format_job_id(job.id), is_new=False)
        charged = charge(facts, request, now, tenant=self.tenant, user=self.user, usage_id=self.usage_id)
        if isinstance(charged, Refused):
            return Step(charged)
        usages: tuple[Usage, ...] = ()
        if charged is not None:
            spending = spending_changes(charged.usage, now, held_since_lost) if held_since_lost else {}
            usages = (replace(charged.usage, **spending),)
        attachments, trims = record_event(job, Event(now, "run again", self.actor, self.note))
        rerun = next_version(
            job,
            now,
            state=state_after(job.state, Move.RERUN),
            attempts=0,
            run_at=0,
            ended_at=0,
            due_at=0,
            error="",
            holder=b"",  # nothing of an earlier attempt is revived
            finish_digest=b"",
            usage_id=usages[0].id if usages else b"",
            events=job.events + 1,
        )
        return Step(Resolved(rerun, now), (rerun, *usages), attachments=attachments, trims=trims)


_RESOLUTION_MOVES = {Resolution.SUCCEEDED: Move.SUCCEED, Resolution.FAILED: Move.FAIL, Resolution.RERUN: Move.RERUN}
_RESOLUTION_VERBS = {
    Resolution.SUCCEEDED: Verb.SUCCEEDED,
    Resolution.FAILED: Verb.FAILED,
    Resolution.RERUN: Verb.RERUN,
}


def is_ready(job: Job, now: int) -> bool:
    """True if the job can be claimed."""
    return job.state in CLAIMABLE_STATES and job.run_at <= now and now > job.lease_until


def progress_bytes_max(job: Job) -> int:
    """How many bytes of progress fit into the job row, next to the caller's text."""
    names = (job.tenant, job.type, job.scope, job.key, job.actor, job.user)
    caller_text_bytes = sum(len(name.encode()) for name in names) + len(job.labels)
    return max(min(PROGRESS_BYTES_MAX, CALLER_TEXT_BYTES_MAX - caller_text_bytes), 0)


def released_job(job: Job, now: int, *, delay_ms: int = 0, **changes: object) -> Job:
    """The job without its lease, ready at once or after a delay. Its last holder stays, to recognise a retry."""
    move = Move.SCHEDULE if delay_ms else Move.RELEASE
    run_at = now + delay_ms if delay_ms else job.run_at
    return next_version(job, now, state=state_after(job.state, move), lease_until=0, due_at=0, run_at=run_at, **changes)


def timed_out_refusal(now: int) -> Refused:
    return Refused(Reason.TIMED_OUT, "the attempt timed out; stop, and finish it as failed", now)


def _may_start(job: Job) -> bool:
    return job.delivery is not Delivery.AT_MOST_ONCE or not job.attempts


def _start_changes(job: Job, state: JobState, now: int, holder: bytes, lease_ms: int) -> dict[str, object]:
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
    """The new end of a lease, which never exceeds the timeout of the attempt."""
    if job.state is JobState.RUNNING and job.timeout_ms:
        return min(now + lease_ms, job.started_at + job.timeout_ms)
    return now + lease_ms


def backoff_ms(job: Job) -> int:
    """Exponential backoff with jitter: doubles from a second to an hour, less up to half of it."""
    longest = min(BACKOFF_FIRST_MS << min(job.attempts - 1, 20), BACKOFF_MS_MAX)
    # The jitter is a hash of job and token, so that a repeated decision gives the same delay.
    jitter = int.from_bytes(sha256(job.id + job.token.to_bytes(8, "big")).digest()[:4], "big") / 2**32
    return round(longest * (1 - jitter / 2))


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
    """End a job. `cost` is the actual cost; without it, a job that ran costs its estimate."""
    state = state_after(job.state, move)
    assert state in ENDED_STATES
    error = shortened_error(error)
    attachments, trims = record_event(job, Event(now, state.value, actor, error))
    lost = state is JobState.LOST
    ended = next_version(
        job,
        now,
        state=state,
        holder=job.holder if finish_digest else b"",  # a repeated finish is compared with it
        finish_digest=finish_digest,
        lease_until=0,
        # What a lost job spent is not known yet: its money stays held by that usage.
        usage_id=job.usage_id if lost and job.cost_held else b"",
        ended_at=now,
        # A lost job is kept until an operator resolves it.
        due_at=0 if lost else max(now + retention_ms, job.keep_until),
        error=error,
        events=job.events + 1,
    )
    spent = job.cost_held if cost is None and job.attempts else cost or 0
    callbacks = release_callback_job(callback, state, now)
    puts: tuple[Fact, ...] = (ended, *callbacks, *_usage_without_job(job, usage, now, state, spent))
    return JobEnding(ended, puts, attachments, trims)


def shortened_error(error: str) -> str:
    """As much of an error as the job row has room for."""
    return to_storable_text(error).encode()[:_ERROR_BYTES_MAX].decode(errors="ignore")


def _usage_without_job(job: Job, usage: Usage | None, now: int, state: JobState, spent: int) -> tuple[Usage, ...]:
    """The usage without this job's slot and money. The same step clears `job.usage_id`, so both are freed once."""
    # The usage may be gone: a purge of the tenant deletes it before the jobs.
    if not job.usage_id or usage is None or usage.id != job.usage_id:
        return ()
    if job.state is JobState.PREPARING:
        return (updated_usage(usage, now, reservations=reservations_without_job(usage, job, now)),)
    live = usage.live if job.state is JobState.LOST else max(usage.live - 1, 0)
    if state is JobState.LOST:
        return (updated_usage(usage, now, live=live),)
    cost_held = max(usage.cost_held - job.cost_held, 0)
    spending = spending_changes(usage, now, spent) if spent else {}
    return (updated_usage(usage, now, live=live, cost_held=cost_held, **spending),)


class Event(Struct, frozen=True, gc=False, omit_defaults=True):
    at: int
    what: str
    actor: str
    detail: str = ""


def record_event(job: Job, event: Event) -> tuple[tuple[Attachment, ...], tuple[Trim, ...]]:
    """The attachment of a job's next event, and the trim that makes room for it; the caller raises `job.events`."""
    index = job.events
    short = Event(event.at, event.what, event.actor, to_storable_text(event.detail[:_DETAIL_CHARS_MAX]))
    attachments = (Attachment(job.id, AttachmentKind.EVENT, U64(index), json.encode(short)),)
    trimmed = index - LAST_EVENTS_MAX
    if trimmed < FIRST_EVENTS_MAX:
        return attachments, ()
    # With the message of its exception, if it was a failed attempt.
    return attachments, tuple(Trim(job.id, kind, trimmed) for kind in (AttachmentKind.EVENT, AttachmentKind.FAILURE))


def to_storable_text(text: str) -> str:
    """Free text of a job, with U+FFFD for the characters that some store cannot hold as text.

    Names and keys with a NUL are refused, and JSON is stored as bytes; but a failed attempt must be recorded,
    whatever its error contains, and all engines must store the same.
    """
    return _UNSTORABLE.sub("\ufffd", text)


def clean_text_field(command: Struct, field: str) -> None:
    """Clean a free text where the command is made, so that the command can be sent to another process as it is."""
    text: str = getattr(command, field)
    if _UNSTORABLE.search(text) is not None:
        force_setattr(command, field, to_storable_text(text))


def first_event(job: Job) -> Event:
    """The event of the submission: implied by the job row, never stored."""
    return Event(job.created_at, "submitted", job.actor)
