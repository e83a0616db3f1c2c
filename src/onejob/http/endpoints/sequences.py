"""Endpoints for sequenced clients: submit the next number, get the last committed one."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import fields

from onejob.core.command import JOBS_MAX
from onejob.core.credentials import Permission
from onejob.core.errors import Invalid
from onejob.core.key import checked_key
from onejob.core.sequence import checked_sequence
from onejob.http.request import Request
from onejob.http.responses import Header, Response, resource_response
from onejob.http.routing import Parameter, Route
from onejob.http.schemas.types import (
    SCOPE,
    Key,
    KeyTtlSeconds,
    Name,
    SequenceNumber,
)
from onejob.ledger.parse import Submission
from onejob.ledger.sequences import SequencedSubmission
from onejob.resources.submissions import ClientState, SequenceReceipt

from .jobs import QUOTA_ERRORS, JobOptionsBody, SubmitBody, build_submission, to_timedelta


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


_JOB_FIELDS = tuple(field.name for field in fields(SequenceItemBody))


async def submit_sequence(request: Request) -> Response:
    header = request.key()
    request.query()
    body = await request.decode_body(SequenceBody)
    receipt = await request.ledger.submit_sequence_prepared(
        build_sequenced_submission(request.path_params[0], body, header)
    )
    return _sequence_response(receipt, request.id)


async def get_client_state(request: Request) -> Response:
    scope = request.query("scope").get("scope")
    if scope is None:
        raise Invalid("scope", "the scope of the client is missing; send ?scope=")
    # A credential that may forget keys administers all clients; any other sees only its own.
    any_owner = request.credential.may(Permission.FORGET)
    state = await request.ledger.get_client_state(request.path_params[0], scope=scope, any_owner=any_owner)
    return resource_response(200, state, request.id)


def build_sequenced_submission(client_id: str, body: SequenceBody, header: str | None) -> SequencedSubmission:
    """The key may be in the header or in the body; in both it must be the same."""
    key = header if body.idempotency_key is UNSET else body.idempotency_key
    if key is None:
        raise Invalid("key", "a number needs a key; send idempotencyKey, the same on every retry")
    if header is not None and checked_key(header) != checked_key(key):
        raise Invalid("key", "the header and the body name different keys; send one, or the same")
    ttl = body.idempotency_ttl_seconds
    return SequencedSubmission(
        client_id=client_id,
        sequence=checked_sequence(body.sequence),
        idempotency_key=key,
        scope=body.scope,
        jobs=_build_jobs(body),
        idempotency_ttl=None if ttl is UNSET else to_timedelta("idempotencyTtlSeconds", ttl),
    )


def _sequence_response(receipt: SequenceReceipt, request_id: str) -> Response:
    headers: list[Header] = []
    if receipt.job is not None:
        headers.append((b"location", b"/api/jobs/" + receipt.job.id.encode()))
    if not receipt.committed:
        headers.append((b"idempotent-replayed", b"true"))
    if receipt.expires_at is not None:
        headers.append((b"idempotency-expires", receipt.expires_at.isoformat().encode()))
    return resource_response(202 if receipt.committed else 200, receipt, request_id, *headers)


def _build_jobs(body: SequenceBody) -> list[Submission]:
    single = _sent_job_fields(body)
    if (body.jobs is UNSET) == ("type" not in single) or (body.jobs is not UNSET and single):
        raise Invalid("jobs", "send the type, input and options of one job, or jobs with each its own")
    return [_build_job(single)] if body.jobs is UNSET else [_build_job(_sent_job_fields(item)) for item in body.jobs]


def _sent_job_fields(body: SequenceBody | SequenceItemBody) -> dict[str, Any]:
    return {name: value for name in _JOB_FIELDS if (value := getattr(body, name)) is not UNSET}


def _build_job(job_fields: dict[str, Any]) -> Submission:
    try:
        return build_submission(SubmitBody(**job_fields), None)
    except Invalid:
        raise
    except ValueError as error:
        raise Invalid("jobs", f"a job is invalid: {error}") from error


ROUTES = (
    Route(
        "POST",
        "/api/clients/{client_id}/jobs",
        submit_sequence,
        Permission.SUBMIT,
        "Submit the next number of a client's sequence: one job, or a batch, all or nothing",
        SequenceBody,
        SequenceReceipt,
        202,
        takes_key=True,
        errors=("SEQUENCE_GAP", "ALREADY_COMMITTED", *QUOTA_ERRORS),
        replay_status=200,
    ),
    Route(
        "GET",
        "/api/clients/{client_id}/state",
        get_client_state,
        Permission.READ,
        "Get the last committed number of a client; 0 if there is none",
        None,
        ClientState,
        query=(Parameter("scope", "the scope of the client's sequence", SCOPE, required=True),),
        errors=("FORBIDDEN",),
    ),
)
