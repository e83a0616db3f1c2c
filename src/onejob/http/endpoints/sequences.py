"""Sequenced clients over HTTP: send a number, ask how far a client is."""

from typing import Any

from msgspec import UNSET
from msgspec.structs import fields

from onejob.core.credentials import Permission
from onejob.core.errors import Invalid
from onejob.core.key import checked_key
from onejob.core.views import SequenceReceipt
from onejob.http.request import Request
from onejob.http.responses import Header, Response, json_response
from onejob.http.routing import Parameter, Route
from onejob.http.schemas.jobs import SubmitBody
from onejob.http.schemas.sequences import (
    ClientStateOut,
    SequenceBody,
    SequenceItemBody,
    SequenceOut,
    client_state_out,
    sequence_out,
)
from onejob.http.schemas.types import SCOPE
from onejob.ledger.parse import Submission
from onejob.ledger.sequences import SequencedSubmission

from .jobs import QUOTA_ERRORS, build_submission, to_timedelta

INTEGRAL_MAX = 2**53
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
        raise Invalid("scope", "say in which scope the client counts: ?scope=")
    # Whoever may let keys be forgotten looks after all clients; anybody else sees the own ones.
    any_owner = request.credential.may(Permission.FORGET)
    found = await request.ledger.get_client_state(request.path_params[0], scope=scope, any_owner=any_owner)
    return json_response(200, client_state_out(found, request.id))


def build_sequenced_submission(client_id: str, body: SequenceBody, header: str | None) -> SequencedSubmission:
    """What a body says; the key may stand in the header, and where it stands twice it is the same."""
    key = header if body.idempotency_key is UNSET else body.idempotency_key
    if key is None:
        raise Invalid("key", "a number has a key: send idempotencyKey, the same on every retry")
    if header is not None and checked_key(header) != checked_key(key):
        raise Invalid("key", "the header and the body name different keys; send one, or the same")
    ttl = body.idempotency_ttl_seconds
    return SequencedSubmission(
        client_id=client_id,
        sequence=_to_integer(body.sequence),
        idempotency_key=key,
        scope=body.scope,
        jobs=_build_jobs(body),
        idempotency_ttl=None if ttl is UNSET else to_timedelta("idempotencyTtlSeconds", ttl),
    )


def _sequence_response(receipt: SequenceReceipt, request_id: str) -> Response:
    told = sequence_out(receipt, request_id)
    headers: list[Header] = []
    if told.job is not None:
        headers.append((b"location", b"/api/jobs/" + told.job.id.encode()))
    if not receipt.committed:
        headers.append((b"idempotent-replayed", b"true"))
    if told.expires_at is not None:
        headers.append((b"idempotency-expires", told.expires_at.isoformat().encode()))
    return json_response(202 if receipt.committed else 200, told, *headers)


def _build_jobs(body: SequenceBody) -> list[Submission]:
    own = _given_job_fields(body)
    if (body.jobs is UNSET) == ("type" not in own) or (body.jobs is not UNSET and own):
        raise Invalid("jobs", "send the type, input and options of one job, or jobs with each its own")
    return [_build_job(own)] if body.jobs is UNSET else [_build_job(_given_job_fields(item)) for item in body.jobs]


def _given_job_fields(body: SequenceBody | SequenceItemBody) -> dict[str, Any]:
    found = {name: getattr(body, name) for name in _JOB_FIELDS}
    return {name: value for name, value in found.items() if value is not UNSET}


def _build_job(job_fields: dict[str, Any]) -> Submission:
    try:
        return build_submission(SubmitBody(**job_fields), None)
    except Invalid:
        raise
    except ValueError as error:
        raise Invalid("jobs", f"a job cannot be taken: {error}") from error


def _to_integer(number: float) -> int:
    """In JSON 3.0 is the whole number 3; beyond what a double counts one by one it is not said which."""
    if isinstance(number, float) and number.is_integer() and abs(number) <= INTEGRAL_MAX:
        return int(number)
    return number  # type: ignore[return-value]  # the core refuses what is no whole number


ROUTES = (
    Route(
        "POST",
        "/api/clients/{client_id}/jobs",
        submit_sequence,
        Permission.SUBMIT,
        "Send the next number of a client's sequence: one job, or a batch, all or nothing",
        SequenceBody,
        SequenceOut,
        202,
        takes_key=True,
        errors=("SEQUENCE_GAP", *QUOTA_ERRORS),
        repeat_status=200,
    ),
    Route(
        "GET",
        "/api/clients/{client_id}/state",
        get_client_state,
        Permission.READ,
        "Tell how far a client's sequence is; 0 if it never came",
        None,
        ClientStateOut,
        query=(Parameter("scope", "in which it counts", SCOPE, required=True),),
        errors=("FORBIDDEN",),
    ),
)
