"""JSON bodies of jobs, batches and keys: Structs that are both the codec and the OpenAPI schema."""

from typing import Annotated, ClassVar

from msgspec import Meta, Raw, Struct, field
from msgspec.structs import force_setattr

from onejob.core.states import Delivery, JobState
from onejob.ledger.parse import ATTEMPTS_DEFAULT
from onejob.resources.submissions import ErrorBody

from .types import (
    BATCH_MAX,
    CallbackBody,
    Key,
    KeyTtlSeconds,
    Labels,
    MaxAttempts,
    Money,
    Name,
    Priority,
    RequestBody,
    ReservationId,
    ResponseBody,
    SiteNames,
    TimeoutSeconds,
    Timestamp,
    to_integer,
)

_NULL = Raw(b"null")


class SubmitBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    large_member: ClassVar[str] = "input"  # checked apart from the body, by the rules that hold for every input

    type: Name
    input: Raw = field(default_factory=lambda: _NULL)
    scope: Name | None = None
    idempotency_ttl_seconds: KeyTtlSeconds | None = None
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    priority: Priority = 0
    run_at: Timestamp | None = None
    max_attempts: MaxAttempts = ATTEMPTS_DEFAULT
    timeout_seconds: TimeoutSeconds | None = None
    labels: Labels | None = None
    idempotency_key: Key | None = None
    estimated_cost: Money | None = None
    reservation: ReservationId | None = None
    callback: CallbackBody | None = None
    sites: SiteNames | None = None

    def __post_init__(self) -> None:
        if type(self.priority) is float or type(self.max_attempts) is float:
            force_setattr(self, "priority", to_integer("priority", self.priority))
            force_setattr(self, "max_attempts", to_integer("maxAttempts", self.max_attempts))


class BatchBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    jobs: Annotated[list[SubmitBody], Meta(extra_json_schema={"minItems": 1, "maxItems": BATCH_MAX})]


class RawBatchBody(Struct, frozen=True):
    """The items of a batch as raw JSON."""

    jobs: list[Raw]


class ProblemOut(ResponseBody, frozen=True, rename="camel"):
    """application/problem+json; `error.code` is authoritative."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    error: ErrorBody


class EventGapOut(ResponseBody, frozen=True, rename="camel"):
    """Events that are no longer stored."""

    missing: int


class StreamEndOut(ResponseBody, frozen=True, rename="camel"):
    """The job has ended; no more events follow."""

    state: JobState | None  # None: the job was deleted
