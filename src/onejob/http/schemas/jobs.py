"""JSON bodies of jobs, batches and keys: Structs that are both the codec and the OpenAPI schema."""

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Raw, Struct, field
from msgspec.structs import asdict, force_setattr

from onejob.core.replies import LimitName, LimitWarning, Outcome
from onejob.core.sites import SiteView
from onejob.core.states import Delivery, IdempotencyStatus, JobState
from onejob.core.timestamps import to_utc
from onejob.core.views import JobView, KeyHistory, Receipt
from onejob.core.work import Event
from onejob.ledger.parse import ATTEMPTS_DEFAULT

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
    UtcTimestamp,
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


class JobOut(ResponseBody, frozen=True, rename="camel"):
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
    created_at: UtcTimestamp
    changed_at: UtcTimestamp
    run_at: UtcTimestamp | None
    started_at: UtcTimestamp | None  # the latest attempt
    ended_at: UtcTimestamp | None
    progress: Raw  # of the latest attempt; null: none was reported
    error: str | None


class IdempotencyOut(ResponseBody, frozen=True, rename="camel"):
    key: str | None
    scope: str
    outcome: Outcome
    expires_at: UtcTimestamp | None


class WarningOut(ResponseBody, frozen=True, rename="camel"):
    """A limit that is nearly reached, or reached where it only warns."""

    limit: LimitName
    message: str


class SubmitOut(ResponseBody, frozen=True, rename="camel", omit_defaults=True):
    request_id: str
    job: JobOut | None
    idempotency: IdempotencyOut
    job_id: str | None = None  # where only the id of the job is known: an external job, or a dry run
    warnings: list[WarningOut] = []  # noqa: RUF012 - never changed
    paths: list[str] = []  # noqa: RUF012 - never changed; of a dry run that found a conflict: where the bodies differ


class ErrorOut(ResponseBody, frozen=True, rename="camel"):
    code: str
    message: str
    retryable: bool
    details: dict[str, Any]


class ProblemOut(ResponseBody, frozen=True, rename="camel"):
    """application/problem+json; `error.code` is authoritative."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    error: ErrorOut


class VerdictOut(ResponseBody, frozen=True, rename="camel", omit_defaults=True):
    """One item of a batch: a job, or an error."""

    status: int
    job: JobOut | None = None
    idempotency: IdempotencyOut | None = None
    error: ErrorOut | None = None
    job_id: str | None = None  # where only the id of the job is known: an external job
    warnings: list[WarningOut] = []  # noqa: RUF012 - never changed


class BatchOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    verdicts: list[VerdictOut]


class SingleJobOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    job: JobOut


class JobsOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    jobs: list[JobOut]
    next: str | None  # the cursor of the next page


class EventOut(ResponseBody, frozen=True, rename="camel"):
    at: UtcTimestamp
    what: str
    actor: str
    detail: str


class FailuresOut(ResponseBody, frozen=True, rename="camel"):
    """The failed attempts of a job, oldest first; `detail` is the message of the exception."""

    request_id: str
    failures: list[EventOut]


class SiteOut(ResponseBody, frozen=True, rename="camel"):
    """How a job stands at one of its data centres, as far as this service has heard."""

    site: str
    state: str | None  # of the job there, `other job`, `refused` or `unknown`; null: it has not answered
    at: UtcTimestamp | None  # when it answered
    on_its_way: str | None  # `submission` or `cancel`, until the site has confirmed it
    error: str | None  # why the latest attempt to reach it failed
    error_at: UtcTimestamp | None
    other_job: str | None = None  # of `other job`: the id of the job that the key belongs to there
    prevailing_job: str | None = None  # of that job and this one, the one with the smaller id
    cancel_at: str | None = None  # the site at which the other one of the two is to be cancelled
    cancel_command: str | None = None  # which cancels it there, with `--url` if the settings name the address
    paths: list[str] = []  # noqa: RUF012 - never changed; where the two submissions differ


class SitesOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    sites: list[SiteOut]


class EventGapOut(ResponseBody, frozen=True, rename="camel"):
    """Events that are no longer stored."""

    missing: int


class StreamEndOut(ResponseBody, frozen=True, rename="camel"):
    """The job has ended; no more events follow."""

    state: JobState | None  # None: the job was deleted


class KeySummaryOut(ResponseBody, frozen=True, rename="camel"):
    key: str
    scope: str
    status: IdempotencyStatus
    actor: str
    user: str
    first_seen: UtcTimestamp
    expires_at: UtcTimestamp
    held_until: UtcTimestamp | None
    hits: int
    conflicts: int
    last_hit_at: UtcTimestamp | None
    job: JobOut | None


class KeyConflictOut(ResponseBody, frozen=True, rename="camel"):
    """Another body under the key: `paths` say where it differed. Without any, the bodies were not compared."""

    at: UtcTimestamp
    actor: str
    paths: list[str]


class KeyOut(KeySummaryOut, frozen=True, rename="camel"):
    """A key, its record, its events and its last conflicts."""

    request_id: str
    events: list[EventOut]
    events_total: int
    recent_conflicts: list[KeyConflictOut]


class KeysOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    keys: list[KeySummaryOut]
    next: str | None  # the cursor of the next page


class KeyForgottenOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    usable_after: UtcTimestamp


class TenantPurgedOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    erased: int
    gone_at: UtcTimestamp  # by then the store's own history has none of it left; a bucket keeps it for a day


def job_out(job: JobView) -> JobOut:
    # The row is read directly, not through the view, and the arguments are given by position, which takes a third of
    # the time: every response to a submission has a job.
    row = job.row
    return JobOut(
        job.id,
        row.type,
        row.state,
        row.key or None,
        row.scope,
        row.actor,
        row.user,
        row.delivery,
        row.priority,
        row.attempts,
        dict(job.labels) if row.labels else {},
        to_utc(row.created_at),
        to_utc(row.changed_at),
        job.run_at if row.run_at else None,
        job.started_at if row.started_at else None,
        job.ended_at if row.ended_at else None,
        Raw(row.progress) if row.progress else _NULL,
        row.error or None,
    )


def submit_out(receipt: Receipt, request_id: str) -> SubmitOut:
    job = receipt.job
    return SubmitOut(
        request_id,
        None if job is None else job_out(job),
        idempotency_out(receipt),
        (receipt.job_id or None) if job is None else None,
        warnings_out(receipt.warnings),
        list(receipt.paths),
    )


def warnings_out(warnings: Iterable[LimitWarning]) -> list[WarningOut]:
    return [WarningOut(warning.limit, warning.message) for warning in warnings]


def idempotency_out(receipt: Receipt) -> IdempotencyOut:
    return IdempotencyOut(receipt.key, receipt.scope, receipt.outcome, receipt.expires_at)


def key_summary_out(history: KeyHistory) -> KeySummaryOut:
    return KeySummaryOut(
        key=history.key,
        scope=history.scope,
        status=history.status,
        actor=history.actor,
        user=history.user,
        first_seen=history.first_seen,
        expires_at=history.expires_at,
        held_until=history.held_until,
        hits=history.hits,
        conflicts=history.conflicts,
        last_hit_at=history.last_hit_at,
        job=job_out(history.job) if history.job else None,
    )


def key_out(history: KeyHistory, request_id: str) -> KeyOut:
    return KeyOut(
        **asdict(key_summary_out(history)),
        request_id=request_id,
        events=[event_out(event) for event in history.events],
        events_total=history.events_total,
        recent_conflicts=[
            KeyConflictOut(to_utc(one.at), one.actor, list(one.paths)) for one in history.recent_conflicts
        ],
    )


def sites_out(views: Iterable[SiteView], request_id: str) -> SitesOut:
    return SitesOut(request_id, [_site_out(one) for one in views])


def _site_out(view: SiteView) -> SiteOut:
    return SiteOut(
        view.site,
        view.state,
        view.at,
        view.on_its_way,
        view.error,
        view.error_at,
        view.other_job,
        view.prevailing_job,
        view.cancel_at,
        view.cancel_command,
        list(view.paths),
    )


def event_out(event: Event) -> EventOut:
    return EventOut(to_utc(event.at), event.what, event.actor, event.detail)
