"""What travels to and from sequenced clients."""

from typing import Annotated

from msgspec import UNSET, Meta, Raw, UnsetType

from onejob.core.client_views import ClientState, SequenceOutcome, SequenceReceipt
from onejob.core.states import Delivery
from onejob.core.step import JOBS_MAX

from .shapes import Attempts, Key, Labels, Moment, Money, Name, Number, Priority, Seconds, Utc, Window
from .wire import Asked, Body, JobOut, WarningOut, job_out, warnings_out


class OfAJob(Asked, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """What may be said of one job besides its type; UNSET where it is not."""

    input: Raw | UnsetType = UNSET
    delivery: Delivery | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    run_at: Moment | UnsetType = UNSET
    max_attempts: Attempts | UnsetType = UNSET
    timeout_seconds: Seconds | UnsetType = UNSET
    labels: Labels | UnsetType = UNSET
    estimated_cost: Money | UnsetType = UNSET


class ItemBody(OfAJob, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One job of a batch."""

    type: Name


class SequenceBody(OfAJob, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One number of a sequence, with one job (`type`, `input`, its options) or a batch (`jobs`)."""

    scope: Name
    sequence: Number
    idempotency_key: Key | UnsetType = UNSET
    idempotency_ttl_seconds: Window | UnsetType = UNSET
    jobs: (
        Annotated[list[ItemBody], Meta(extra_json_schema={"minItems": 1, "maxItems": JOBS_MAX})] | UnsetType
    ) = UNSET
    type: Name | UnsetType = UNSET


class SequenceOut(Body, frozen=True, rename="camel"):
    request_id: str
    outcome: SequenceOutcome
    client_id: str
    scope: str
    key: str
    assigned_sequence: int
    last_committed_sequence: int
    job: JobOut | None  # where there is exactly one
    jobs: list[JobOut]
    expires_at: Utc | None
    warnings: list[WarningOut]


class ClientStateOut(Body, frozen=True, rename="camel"):
    request_id: str
    client_id: str
    scope: str
    last_committed_sequence: int
    last_seen: Utc | None


def sequence_out(receipt: SequenceReceipt, request_id: str) -> SequenceOut:
    jobs = [job_out(job) for job in receipt.jobs]
    return SequenceOut(
        request_id=request_id,
        outcome=receipt.outcome,
        client_id=receipt.client_id,
        scope=receipt.scope,
        key=receipt.key,
        assigned_sequence=receipt.assigned_sequence,
        last_committed_sequence=receipt.last_committed_sequence,
        job=jobs[0] if len(jobs) == 1 else None,
        jobs=jobs,
        expires_at=receipt.expires_at,
        warnings=warnings_out(receipt.warnings),
    )


def state_out(found: ClientState, request_id: str) -> ClientStateOut:
    return ClientStateOut(
        request_id, found.client_id, found.scope, found.last_committed_sequence, found.last_seen
    )
