"""The replies of commands: expected outcomes are values, which only the ledger turns into exceptions."""

from enum import StrEnum

from msgspec import Struct

from .facts import U64, Job, Memo, Policy, Record, Stream, Usage
from .states import SlotState


class Outcome(StrEnum):
    """The outcome of a submission, as receipts show it."""

    CREATED = "created"
    REPLAYED = "replayed"
    IN_PROGRESS = "in_progress"
    CONFLICT = "conflict"
    REJECTED = "rejected"
    REFUSED = "refused"


class SequenceOutcome(StrEnum):
    COMMITTED = "COMMITTED"
    ALREADY_COMMITTED = "ALREADY_COMMITTED"


class Reason(StrEnum):
    STALE = "STALE"
    ALREADY_SETTLED = "ALREADY_SETTLED"
    IN_PROGRESS = "IN_PROGRESS"
    IDEMPOTENCY_KEY_REUSED = "IDEMPOTENCY_KEY_REUSED"
    SEQUENCE_GAP = "SEQUENCE_GAP"
    ALREADY_COMMITTED = "ALREADY_COMMITTED"  # a used sequence number under another key, or without its record
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"
    COST_LIMIT_EXCEEDED = "COST_LIMIT_EXCEEDED"
    RATE_LIMITED = "RATE_LIMITED"
    SLOT_LOST = "SLOT_LOST"
    NOT_THE_OWNER = "NOT_THE_OWNER"
    NOT_READY = "NOT_READY"
    TIMED_OUT = "TIMED_OUT"
    NOT_ALLOWED = "NOT_ALLOWED"
    STEP_CONFLICT = "STEP_CONFLICT"  # the name of the step was used with other arguments
    STEP_INTERRUPTED = "STEP_INTERRUPTED"  # it was begun, did not finish, and runs at most once
    CREDENTIAL_CHANGED = "CREDENTIAL_CHANGED"  # the precondition of a command is not met
    SETTINGS_CHANGED = "SETTINGS_CHANGED"  # the settings of the ledger are not those that the command was built under
    TOO_LATE = "TOO_LATE"  # the command was executed after its `not_after`


class LimitName(StrEnum):
    """The names of the limits in refusals and warnings."""

    MAX_CONCURRENT = "maxConcurrent"
    JOBS_PER_HOUR = "jobsPerHour"
    JOBS_PER_DAY = "jobsPerDay"
    COST = "costLimit"
    SEQUENCE = "sequence"
    LIVE_KEYS = "liveKeys"


class LimitWarning(Struct, frozen=True, gc=False):
    """A limit that is nearly reached, or reached where it only warns."""

    limit: LimitName
    message: str


class Reply(Struct, frozen=True, gc=False, tag=True, tag_field="is"):
    """The base of all replies; each has a tag, so that replies can be sent like commands."""


class Created(Reply, frozen=True, gc=False):
    job: Job
    expires_at: int  # 0: submitted without a key, so there is no record
    at: int
    warnings: tuple[LimitWarning, ...] = ()


class Replayed(Reply, frozen=True, gc=False):
    job: Job | None  # None: an external job, or a record that wraps a response
    expires_at: int
    at: int
    external_id: str = ""
    receipt: bytes = b""


class InProgress(Reply, frozen=True, gc=False):
    job_id: bytes
    retry_after_ms: int
    at: int


class Conflict(Reply, frozen=True, gc=False):
    """The key was used for another submission."""

    job_id: bytes
    external_id: str
    at: int
    paths: tuple[str, ...] = ()  # where the bodies differ; only another data centre is told with the reply


class Rejected(Reply, frozen=True, gc=False):
    """A final rejection, stored until expires_at."""

    job_id: bytes
    receipt: bytes
    expires_at: int
    at: int


class Refused(Reply, frozen=True, gc=False):
    """Not done and not stored: the same command may succeed later."""

    reason: Reason
    message: str
    at: int
    details: dict[str, int | str] = {}


class KeyHeld(Reply, frozen=True, gc=False):
    """The caller holds the key until the lease ends, and settles it with job id, token and holder."""

    record_id: bytes
    job_id: bytes
    token: int
    holder: bytes
    lease_until: int
    taken_over: bool
    at: int
    warnings: tuple[LimitWarning, ...] = ()


class KeySettled(Reply, frozen=True, gc=False):
    record: Record
    job: Job | None
    at: int


class Found(Reply, frozen=True, gc=False):
    record: Record | None
    job: Job | None
    at: int


class Missing(Reply, frozen=True, gc=False):
    at: int


class PolicyFound(Reply, frozen=True, gc=False):
    """A policy as it is now, read or just written."""

    policy: Policy
    at: int


class UsageFound(Reply, frozen=True, gc=False):
    """A user's usage and the tenant's limits as they are now, read or just written."""

    usage: Usage | None
    policy: Policy | None
    at: int


class SlotHeld(Reply, frozen=True, gc=False):
    """The caller holds a slot until it expires, and consumes it, releases it, or submits with it."""

    reservation: str
    expires_at: int
    at: int
    warnings: tuple[LimitWarning, ...] = ()


class SlotSettled(Reply, frozen=True, gc=False):
    state: SlotState
    at: int
    was_known: bool = True  # False: there was no such slot, or it had expired


class SequenceCommitted(Reply, frozen=True, gc=False):
    """A sequence number was executed."""

    jobs: tuple[Job, ...]
    sequence: U64
    expires_at: int
    at: int
    warnings: tuple[LimitWarning, ...] = ()


class SequenceAlreadyCommitted(Reply, frozen=True, gc=False):
    """The key was executed before, under this number; given until its record expires."""

    jobs: tuple[Job, ...]
    sequence: U64
    last: U64
    expires_at: int
    at: int


class StreamFound(Reply, frozen=True, gc=False):
    stream: Stream
    at: int


class DryRunReply(Reply, frozen=True, gc=False):
    """What a submission would be answered; nothing was stored."""

    reply: (
        Created
        | Replayed
        | InProgress
        | Conflict
        | Rejected
        | Refused
        | KeyHeld
        | SequenceCommitted
        | SequenceAlreadyCommitted
    )
    at: int


class Cancelled(Reply, frozen=True, gc=False):
    job: Job
    changed: bool
    at: int


class Claimed(Reply, frozen=True, gc=False):
    """The caller may start the job, with its token, until the lease ends."""

    job: Job
    at: int


class Started(Reply, frozen=True, gc=False):
    job: Job
    at: int


class Extended(Reply, frozen=True, gc=False):
    job: Job
    at: int


class Released(Reply, frozen=True, gc=False):
    job: Job
    at: int


class Finished(Reply, frozen=True, gc=False):
    """The attempt is over. The job has ended, unless it is retried."""

    job: Job
    at: int


class StepBegun(Reply, frozen=True, gc=False):
    """The caller runs the step now, and finishes it."""

    memo: Memo
    at: int


class StepFinished(Reply, frozen=True, gc=False):
    """The step has finished, now or before: its result is in the memo."""

    memo: Memo
    at: int


class Resolved(Reply, frozen=True, gc=False):
    job: Job
    at: int


class Forgotten(Reply, frozen=True, gc=False):
    """The key is free again after expires_at, when no gate caches it any more."""

    expires_at: int
    at: int


class Maintained(Reply, frozen=True, gc=False):
    """Maintenance visited a fact; `changed` is True if something was due."""

    changed: bool
    at: int
    expired_lease: Job | None = None  # the job whose started attempt ended with its lease, as it is now


class Reconciled(Reply, frozen=True, gc=False):
    """A usage was compared with its jobs; a drift is a bug somewhere, and was corrected."""

    drift: int
    changed: bool
    at: int


class Defect(Reply, frozen=True, gc=False):
    """The command cannot be decided or stored: a bug, or (retryable) a format that only a newer program knows."""

    message: str
    retryable: bool = False


AnyReply = (
    Created
    | Replayed
    | InProgress
    | Conflict
    | Rejected
    | Refused
    | KeyHeld
    | KeySettled
    | Found
    | Missing
    | PolicyFound
    | UsageFound
    | SlotHeld
    | SlotSettled
    | SequenceCommitted
    | SequenceAlreadyCommitted
    | StreamFound
    | DryRunReply
    | Cancelled
    | Claimed
    | Started
    | Extended
    | Released
    | Finished
    | StepBegun
    | StepFinished
    | Resolved
    | Forgotten
    | Maintained
    | Reconciled
    | Defect
)
