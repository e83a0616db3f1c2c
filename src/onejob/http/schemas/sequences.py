"""JSON bodies of sequenced clients."""

from typing import Annotated

from msgspec import UNSET, Meta, Raw, UnsetType

from onejob.core.command import JOBS_MAX
from onejob.core.states import Delivery
from onejob.core.views import ClientState, SequenceOutcome, SequenceReceipt

from .jobs import JobOut, WarningOut, job_out, warnings_out
from .types import (
    Key,
    KeyTtlSeconds,
    Labels,
    MaxAttempts,
    Money,
    Name,
    Priority,
    RequestBody,
    ResponseBody,
    SequenceNumber,
    TimeoutSeconds,
    Timestamp,
    UtcTimestamp,
)


class JobOptionsBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The input and the options of one job; UNSET if they were not sent."""

    input: Raw | UnsetType = UNSET
    delivery: Delivery | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    run_at: Timestamp | UnsetType = UNSET
    max_attempts: MaxAttempts | UnsetType = UNSET
    timeout_seconds: TimeoutSeconds | UnsetType = UNSET
    labels: Labels | UnsetType = UNSET
    estimated_cost: Money | UnsetType = UNSET


class SequenceItemBody(JobOptionsBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One job of a batch."""

    type: Name


class SequenceBody(JobOptionsBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One number of a sequence, with one job (`type`, `input`, its options) or a batch (`jobs`)."""

    scope: Name
    sequence: SequenceNumber
    idempotency_key: Key | UnsetType = UNSET
    idempotency_ttl_seconds: KeyTtlSeconds | UnsetType = UNSET
    jobs: (
        Annotated[list[SequenceItemBody], Meta(extra_json_schema={"minItems": 1, "maxItems": JOBS_MAX})] | UnsetType
    ) = UNSET
    type: Name | UnsetType = UNSET


class SequenceOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    outcome: SequenceOutcome
    client_id: str
    scope: str
    key: str
    assigned_sequence: int
    last_committed_sequence: int
    job: JobOut | None  # where there is exactly one
    jobs: list[JobOut]
    expires_at: UtcTimestamp | None
    warnings: list[WarningOut]


class ClientStateOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    client_id: str
    scope: str
    last_committed_sequence: int
    last_seen: UtcTimestamp | None


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


def client_state_out(state: ClientState, request_id: str) -> ClientStateOut:
    return ClientStateOut(request_id, state.client_id, state.scope, state.last_committed_sequence, state.last_seen)
