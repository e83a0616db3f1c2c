"""Bodies for workers over HTTP (claim, start, extend, finish, release) and for operators (resolve, rerun)."""

from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, Raw, UnsetType, field

from onejob.core.states import JobState
from onejob.core.timestamps import to_utc
from onejob.core.work import LEASE_MS_DEFAULT, LEASE_MS_MAX, LEASE_MS_MIN, LOG_LINES_AT_ONCE_MAX, Resolution
from onejob.ledger.work import DELAY_MS_MAX, HOLDER_BYTES_MAX, NOTE_CHARS_MAX, TYPES_MAX, Attempt
from onejob.resources.jobs import JobView
from onejob.runtime.claims import CLAIM_MAX

from .types import Money, Name, OptionalRequestBody, RequestBody, ResponseBody, UtcTimestamp

WAIT_SECONDS_MAX = 30
LEASE_SECONDS = LEASE_MS_DEFAULT / 1000
_WORKER_CHARS_MAX = 40

# Integers, decoded as `int | float` and converted by `to_integer`.
Token = Annotated[int | float, Meta(extra_json_schema={"type": "integer", "minimum": 1, "maximum": 2**53 - 1})]
_Limit = Annotated[int | float, Meta(extra_json_schema={"type": "integer", "minimum": 1, "maximum": CLAIM_MAX})]
_Offset = Annotated[int | float, Meta(extra_json_schema={"type": "integer", "minimum": 0, "maximum": 2**53 - 1})]
_Lease = Annotated[
    float,
    Meta(
        description=f"How long the lease lasts unless it is extended; default {LEASE_SECONDS:g}.",
        extra_json_schema={"minimum": LEASE_MS_MIN / 1000, "maximum": LEASE_MS_MAX / 1000},
    ),
]
_Wait = Annotated[
    float,
    Meta(
        description="How many seconds to wait if no job is ready.",
        extra_json_schema={"minimum": 0, "maximum": WAIT_SECONDS_MAX},
    ),
]
_Delay = Annotated[float, Meta(extra_json_schema={"minimum": 0, "maximum": DELAY_MS_MAX / 1000})]
_Lines = Annotated[list[str], Meta(extra_json_schema={"maxItems": LOG_LINES_AT_ONCE_MAX})]
_PRINTABLE = "^[ -~]+$"  # the schema shows ASCII; other printable text is accepted too, and measured in bytes
Holder = Annotated[
    str,
    Meta(
        description="Your name for this claim or start: the same on every retry, never reused for another.",
        extra_json_schema={"minLength": 1, "maxLength": HOLDER_BYTES_MAX, "pattern": _PRINTABLE},
    ),
]
WorkerName = Annotated[
    str,
    Meta(
        description="Prefix of the holder that the server generates if none is sent.",
        extra_json_schema={"maxLength": _WORKER_CHARS_MAX, "pattern": "^[ -~]*$"},
    ),
]
_Note = Annotated[str, Meta(extra_json_schema={"maxLength": NOTE_CHARS_MAX})]


class ClaimBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    types: Annotated[list[Name], Meta(extra_json_schema={"minItems": 1, "maxItems": TYPES_MAX})]
    limit: _Limit = 1
    lease_seconds: _Lease = LEASE_SECONDS
    wait: _Wait = 0
    holder: Holder | None = None
    worker: WorkerName = ""
    start: bool = False


class StartBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    token: Token
    holder: Holder | None = None
    worker: WorkerName = ""
    lease_seconds: _Lease = LEASE_SECONDS


class ExtendBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    token: Token
    holder: Holder
    lease_seconds: _Lease = LEASE_SECONDS
    progress: Raw | UnsetType = UNSET
    logs: _Lines = field(default_factory=list)
    offset: _Offset = 0


class FinishBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    """With an `error` the attempt failed, and `result` is stored only if the job ends; without one it succeeded."""

    large_member: ClassVar[str] = "result"  # checked on its own, because it may be large

    token: Token
    holder: Holder
    result: Raw | UnsetType = UNSET
    error: str | None = None
    message: str = ""  # of an exception, for operators only
    final: bool = False
    retry_after_seconds: _Delay | None = None
    cost: Money | None = None


class ReleaseBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    token: Token
    holder: Holder
    delay_seconds: _Delay = 0


class ResolveBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    resolution: Resolution
    note: _Note = ""


class RerunBody(OptionalRequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    note: _Note = ""


class ClaimedJobOut(ResponseBody, frozen=True, rename="camel"):
    """A claimed job; every request about it names its id, token and holder."""

    job: JobView
    input: Raw
    token: int
    holder: str
    attempt: int  # the number of this attempt, or of the one that a start would begin
    lease_until: UtcTimestamp  # unless it is extended by then, the job is claimable again
    deadline: UtcTimestamp | None  # when the attempt times out; extending the lease does not move it


class ClaimOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    jobs: list[ClaimedJobOut]


class StartOut(ClaimedJobOut, frozen=True, rename="camel"):
    request_id: str


class ExtendOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    job: JobView
    lease_until: UtcTimestamp
    logs: int  # number of lines so far: the offset of the next one


class JobStateOut(ResponseBody, frozen=True, rename="camel"):
    """The job started to run, or waits for another attempt."""

    state: JobState
    attempts: int
    at: UtcTimestamp


class ProgressOut(ResponseBody, frozen=True, rename="camel"):
    progress: Raw
    at: UtcTimestamp


class LogLineOut(ResponseBody, frozen=True, rename="camel"):
    index: int
    line: str


def claimed_job_out(attempt: Attempt) -> ClaimedJobOut:
    row = attempt.job_row
    running = row.state is JobState.RUNNING
    has_deadline = running and row.timeout_ms
    return ClaimedJobOut(
        attempt.job,
        Raw(attempt.input),
        row.token,
        row.holder.decode(errors="replace"),
        row.attempts if running else row.attempts + 1,
        attempt.lease_until,
        to_utc(row.started_at + row.timeout_ms) if has_deadline else None,
    )
