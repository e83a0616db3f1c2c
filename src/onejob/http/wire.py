"""What travels: the bodies of requests and answers as Structs, which are the codec and the schema at once."""

from datetime import datetime
from typing import Any

from msgspec import Raw, Struct

from onejob.core.moment import utc
from onejob.core.receipt import Outcome
from onejob.core.states import Delivery, IdempotencyStatus, JobState
from onejob.core.views import JobView, Receipt, Story
from onejob.intake import ATTEMPTS_DEFAULT


class Body(Struct, frozen=True, rename="camel"):
    """An answer."""


class Asked(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A request; a member that nobody knows is a mistake worth telling."""


class SubmitBody(Asked, frozen=True, rename="camel", forbid_unknown_fields=True):
    type: str
    input: Raw = Raw(b"null")
    scope: str | None = None
    idempotency_ttl_seconds: float | None = None
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    priority: int = 0
    run_at: datetime | None = None
    max_attempts: int = ATTEMPTS_DEFAULT
    timeout_seconds: float | None = None
    labels: dict[str, str] | None = None
    idempotency_key: str | None = None


class BatchBody(Asked, frozen=True, rename="camel", forbid_unknown_fields=True):
    jobs: list[SubmitBody]


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
    created_at: datetime
    changed_at: datetime
    run_at: datetime | None
    ended_at: datetime | None
    error: str | None


class IdempotencyOut(Body, frozen=True, rename="camel"):
    key: str | None
    scope: str
    outcome: Outcome
    expires_at: datetime | None


class SubmitOut(Body, frozen=True, rename="camel"):
    request_id: str
    job: JobOut | None
    idempotency: IdempotencyOut


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
    at: datetime
    what: str
    actor: str
    detail: str


class KeyOut(Body, frozen=True, rename="camel"):
    request_id: str
    key: str
    scope: str
    status: IdempotencyStatus
    actor: str
    user: str
    first_seen: datetime
    expires_at: datetime
    held_until: datetime | None
    hits: int
    conflicts: int
    last_hit_at: datetime | None
    job: JobOut | None
    events: list[EventOut]
    events_total: int


class ForgottenOut(Body, frozen=True, rename="camel"):
    request_id: str
    usable_after: datetime


class PurgedOut(Body, frozen=True, rename="camel"):
    request_id: str
    erased: int


def job_out(job: JobView) -> JobOut:
    return JobOut(
        id=job.id,
        type=job.type,
        state=job.state,
        key=job.key,
        scope=job.scope,
        actor=job.actor,
        user=job.user,
        delivery=job.delivery,
        priority=job.priority,
        attempts=job.attempts,
        labels=dict(job.labels),
        created_at=job.created_at,
        changed_at=job.changed_at,
        run_at=job.run_at,
        ended_at=job.ended_at,
        error=job.error,
    )


def idempotency_out(receipt: Receipt) -> IdempotencyOut:
    return IdempotencyOut(receipt.key, receipt.scope, receipt.outcome, receipt.expires_at)


def key_out(story: Story, request_id: str) -> KeyOut:
    return KeyOut(
        request_id=request_id,
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
        events=[EventOut(utc(event.at), event.what, event.actor, event.detail) for event in story.events],
        events_total=story.events_total,
    )
