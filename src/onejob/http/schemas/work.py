"""What travels between the service and workers in any language, and what operators say about jobs."""

from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, Raw, UnsetType, field

from onejob.core.states import JobState
from onejob.core.timestamps import to_utc
from onejob.core.work import (
    LEASE_MS_DEFAULT,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    LOG_LINES_AT_ONCE_MAX,
    Resolution,
)
from onejob.ledger.claims import CLAIM_MAX
from onejob.ledger.work import DELAY_MS_MAX, HOLDER_BYTES_MAX, NOTE_CHARS_MAX, TYPES_MAX, Attempt

from .jobs import JobOut, job_out
from .types import Money, Name, OptionalRequestBody, RequestBody, ResponseBody, UtcTimestamp

WAIT_SECONDS_MAX = 30
LEASE_SECONDS = LEASE_MS_DEFAULT / 1000
_WORKER_CHARS_MAX = 40

# Whole numbers; 3.0 is one, as some languages write it.
_Token = Annotated[int | float, Meta(extra_json_schema={"type": "integer", "minimum": 1, "maximum": 2**53 - 1})]
_Limit = Annotated[int | float, Meta(extra_json_schema={"type": "integer", "minimum": 1, "maximum": CLAIM_MAX})]
_Offset = Annotated[int | float, Meta(extra_json_schema={"type": "integer", "minimum": 0, "maximum": 2**53 - 1})]
_Lease = Annotated[
    float,
    Meta(
        description=f"How long the job stays yours without another word; {LEASE_SECONDS:g} unless said.",
        extra_json_schema={"minimum": LEASE_MS_MIN / 1000, "maximum": LEASE_MS_MAX / 1000},
    ),
]
_Wait = Annotated[
    float,
    Meta(
        description="How many seconds to wait for jobs when there are none.",
        extra_json_schema={"minimum": 0, "maximum": WAIT_SECONDS_MAX},
    ),
]
_Delay = Annotated[float, Meta(extra_json_schema={"minimum": 0, "maximum": DELAY_MS_MAX / 1000})]
_Lines = Annotated[list[str], Meta(extra_json_schema={"maxItems": LOG_LINES_AT_ONCE_MAX})]
_PRINTABLE = "^[ -~]+$"  # of ASCII; other scripts are taken as well, by their bytes
Holder = Annotated[
    str,
    Meta(
        description="Your name for this one claim or start, the same on every retry, never used for another.",
        extra_json_schema={"minLength": 1, "maxLength": HOLDER_BYTES_MAX, "pattern": _PRINTABLE},
    ),
]
WorkerName = Annotated[
    str,
    Meta(
        description="With what a drawn holder begins.",
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
    token: _Token
    holder: Holder | None = None
    worker: WorkerName = ""
    lease_seconds: _Lease = LEASE_SECONDS


class ExtendBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    token: _Token
    holder: Holder
    lease_seconds: _Lease = LEASE_SECONDS
    progress: Raw | UnsetType = UNSET
    logs: _Lines = field(default_factory=list)
    offset: _Offset = 0


class FinishBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    """With an error the attempt failed, and a result is kept if the job ends with it; else it succeeded."""

    large_member: ClassVar[str] = "result"  # judged by itself, for it may be large

    token: _Token
    holder: Holder
    result: Raw | UnsetType = UNSET
    error: str | None = None
    final: bool = False
    retry_after_seconds: _Delay | None = None
    cost: Money | None = None


class ReleaseBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    token: _Token
    holder: Holder
    delay_seconds: _Delay = 0


class ResolveBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    resolution: Resolution
    note: _Note = ""


class RerunBody(OptionalRequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    note: _Note = ""


class ClaimedJobOut(ResponseBody, frozen=True, rename="camel"):
    """A job in your hands: name it, its token and its holder in every word about it."""

    job: JobOut
    input: Raw
    token: int
    holder: str
    attempt: int  # which one this is, or will be when it is started
    lease_until: UtcTimestamp  # not heard of by then, the job goes to somebody else
    deadline: UtcTimestamp | None  # by which the attempt must be over, whatever is heard of it


class ClaimOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    jobs: list[ClaimedJobOut]


class StartOut(ClaimedJobOut, frozen=True, rename="camel"):
    request_id: str


class ExtendOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    job: JobOut
    lease_until: UtcTimestamp
    logs: int  # how many lines there are; where the next ones begin


class LogsOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    offset: int  # of the first line here; what came before it and is not here is no longer kept
    lines: list[str]
    next: int  # the offset of the line after the last one here
    total: int  # how many lines there were so far
    state: JobState


class JobStateOut(ResponseBody, frozen=True, rename="camel"):
    """The job began to run, or waits for another attempt."""

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
    head = attempt.job_row
    running = head.state is JobState.RUNNING
    ends = running and head.timeout_ms
    return ClaimedJobOut(
        job_out(attempt.job),
        Raw(attempt.input),
        head.token,
        head.holder.decode(errors="replace"),
        head.attempts if running else head.attempts + 1,
        attempt.lease_until,
        to_utc(head.started_at + head.timeout_ms) if ends else None,
    )
