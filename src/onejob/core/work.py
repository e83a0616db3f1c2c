"""Running jobs: the verbs of workers and dispatchers, compare-and-set on (job, token, holder).

    claim ──▶ start ──▶ extend … ──▶ finish
      ╰──────────┴──── release

A claim raises the token; it only ever grows, so whoever comes with an older one finishes nothing. The holder is
drawn once per intention (for brokers: per delivery). The same holder gets the same winning answer again; another
with the same token comes too late.
"""

from .command import CommandData
from .ending import RETENTION_MS, end_job
from .facts import U64, Attachment, AttachmentKind, Job, next_version
from .identity import CALLER_TEXT_BYTES_MAX
from .notice import callback_job_id
from .receipt import Cancelled, Claimed, Extended, Missing, Reason, Refused, Released, Started
from .states import CLAIMABLE_STATES, Delivery, JobState, Move, is_allowed, state_after
from .step import Facts, Footprint, Step, Trim

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
        message = (
            f"the job is not yours any more (it is {job.state}, token {job.token}); stop, change nothing"
        )
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
            Attachment(job.id, AttachmentKind.LOG, U64(job.logs + n), line.encode())
            for n, line in enumerate(fresh)
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
    return next_version(
        job, now, state=state_after(job.state, move), lease_until=0, due_at=0, run_at=run_at, **changes
    )


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
