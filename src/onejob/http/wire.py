"""What travels: the bodies of requests and answers as Structs, which are the codec and the schema at once."""

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Raw, Struct, field
from msgspec.structs import asdict, force_setattr

from onejob.core.history import Event
from onejob.core.moment import utc
from onejob.core.receipt import Caution, Limit, Outcome
from onejob.core.states import Delivery, IdempotencyStatus, JobState
from onejob.core.views import JobView, Receipt, Story
from onejob.intake import ATTEMPTS_DEFAULT

from .shapes import (
    BATCH_MAX,
    Attempts,
    CallbackBody,
    Key,
    Labels,
    Moment,
    Money,
    Name,
    Priority,
    Reserved,
    Seconds,
    Utc,
    Window,
)


class Body(Struct, frozen=True, rename="camel"):
    """An answer."""


class Asked(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A request; a member that nobody knows is a mistake worth telling."""


_NULL = Raw(b"null")


def _whole(number: float) -> int:
    if number != int(number):
        raise ValueError("Expected `int`, got `float`")
    return int(number)


class SubmitBody(Asked, frozen=True, rename="camel", forbid_unknown_fields=True):
    apart: ClassVar[str] = "input"  # judged by itself, by the same rules as through every other door

    type: Name
    input: Raw = field(default_factory=lambda: _NULL)
    scope: Name | None = None
    idempotency_ttl_seconds: Window | None = None
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    priority: Priority = 0
    run_at: Moment | None = None
    max_attempts: Attempts = ATTEMPTS_DEFAULT
    timeout_seconds: Seconds | None = None
    labels: Labels | None = None
    idempotency_key: Key | None = None
    estimated_cost: Money | None = None
    reservation: Reserved | None = None
    callback: CallbackBody | None = None

    def __post_init__(self) -> None:
        if type(self.priority) is float or type(self.max_attempts) is float:
            for name in ("priority", "max_attempts"):
                force_setattr(self, name, _whole(getattr(self, name)))


class BatchBody(Asked, frozen=True, rename="camel", forbid_unknown_fields=True):
    jobs: Annotated[list[SubmitBody], Meta(extra_json_schema={"minItems": 1, "maxItems": BATCH_MAX})]


class BatchTexts(Struct, frozen=True):
    """The items of a batch as they were sent."""

    jobs: list[Raw]


class JobOut(Body, frozen=True, rename="camel"):
    id: str
    type: str
    state: JobState
    key: str | None
    scope: str
    actor: str
    user: str
    delivery: Delivery
    priority: int
    attempts: int
    labels: dict[str, str]
    created_at: Utc
    changed_at: Utc
    run_at: Utc | None
    started_at: Utc | None  # the latest attempt
    ended_at: Utc | None
    progress: Raw  # as the latest attempt told it; null: it told nothing
    error: str | None


class IdempotencyOut(Body, frozen=True, rename="camel"):
    key: str | None
    scope: str
    outcome: Outcome
    expires_at: Utc | None


class WarningOut(Body, frozen=True, rename="camel"):
    """A limit that is nearly reached, or quite where it only warns."""

    limit: Limit
    message: str


class SubmitOut(Body, frozen=True, rename="camel", omit_defaults=True):
    request_id: str
    job: JobOut | None
    idempotency: IdempotencyOut
    job_id: str | None = None  # where a job is known by its id alone: a foreign one, or one that was foreseen
    warnings: list[WarningOut] = []


class ErrorOut(Body, frozen=True, rename="camel"):
    code: str
    message: str
    retryable: bool
    details: dict[str, Any]


class ProblemOut(Body, frozen=True, rename="camel"):
    """application/problem+json; `error.code` is authoritative."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    error: ErrorOut


class VerdictOut(Body, frozen=True, rename="camel", omit_defaults=True):
    """One item of a batch: a job, or the error it met."""

    status: int
    job: JobOut | None = None
    idempotency: IdempotencyOut | None = None
    error: ErrorOut | None = None
    job_id: str | None = None  # where a job is known by its id alone: a foreign one
    warnings: list[WarningOut] = []


class BatchOut(Body, frozen=True, rename="camel"):
    request_id: str
    verdicts: list[VerdictOut]


class OneJobOut(Body, frozen=True, rename="camel"):
    request_id: str
    job: JobOut


class JobsOut(Body, frozen=True, rename="camel"):
    request_id: str
    jobs: list[JobOut]
    next: str | None  # the cursor of the following page


class EventOut(Body, frozen=True, rename="camel"):
    at: Utc
    what: str
    actor: str
    detail: str


class GapOut(Body, frozen=True, rename="camel"):
    """Events that are no longer kept."""

    missing: int


class EndOut(Body, frozen=True, rename="camel"):
    """The job has ended, and no more events will follow."""

    state: JobState | None  # None: the job was erased


class KeyLineOut(Body, frozen=True, rename="camel"):
    key: str
    scope: str
    status: IdempotencyStatus
    actor: str
    user: str
    first_seen: Utc
    expires_at: Utc
    held_until: Utc | None
    hits: int
    conflicts: int
    last_hit_at: Utc | None
    job: JobOut | None


class KeyOut(KeyLineOut, frozen=True, rename="camel"):
    """A key, its record and its story."""

    request_id: str
    events: list[EventOut]
    events_total: int


class KeysOut(Body, frozen=True, rename="camel"):
    request_id: str
    keys: list[KeyLineOut]
    next: str | None  # the cursor of the following page


class ForgottenOut(Body, frozen=True, rename="camel"):
    request_id: str
    usable_after: Utc


class PurgedOut(Body, frozen=True, rename="camel"):
    request_id: str
    erased: int


def job_out(job: JobView) -> JobOut:
    head = job.head  # read directly: this is a good part of an answer to a new key
    return JobOut(
        id=job.id,
        type=head.type,
        state=head.state,
        key=head.key or None,
        scope=head.scope,
        actor=head.actor,
        user=head.user,
        delivery=head.delivery,
        priority=head.priority,
        attempts=head.attempts,
        labels=dict(job.labels) if head.labels else {},
        created_at=utc(head.created_at),
        changed_at=utc(head.changed_at),
        run_at=job.run_at if head.run_at else None,
        started_at=job.started_at if head.started_at else None,
        ended_at=job.ended_at if head.ended_at else None,
        progress=Raw(head.progress) if head.progress else _NULL,
        error=head.error or None,
    )


def submit_out(receipt: Receipt, request_id: str) -> SubmitOut:
    job = receipt.job
    return SubmitOut(
        request_id,
        None if job is None else job_out(job),
        idempotency_out(receipt),
        (receipt.job_id or None) if job is None else None,
        warnings_out(receipt.warnings),
    )


def warnings_out(cautions: Iterable[Caution]) -> list[WarningOut]:
    return [WarningOut(caution.limit, caution.message) for caution in cautions]


def idempotency_out(receipt: Receipt) -> IdempotencyOut:
    return IdempotencyOut(receipt.key, receipt.scope, receipt.outcome, receipt.expires_at)


def key_line_out(story: Story) -> KeyLineOut:
    return KeyLineOut(
        key=story.key,
        scope=story.scope,
        status=story.status,
        actor=story.actor,
        user=story.user,
        first_seen=story.first_seen,
        expires_at=story.expires_at,
        held_until=story.held_until,
        hits=story.hits,
        conflicts=story.conflicts,
        last_hit_at=story.last_hit_at,
        job=job_out(story.job) if story.job else None,
    )


def key_out(story: Story, request_id: str) -> KeyOut:
    return KeyOut(
        **asdict(key_line_out(story)),
        request_id=request_id,
        events=[event_out(event) for event in story.events],
        events_total=story.events_total,
    )


def event_out(event: Event) -> EventOut:
    return EventOut(utc(event.at), event.what, event.actor, event.detail)
