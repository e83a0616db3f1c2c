"""Sequenced clients over HTTP: send a number, ask how far a client is."""

from typing import Any

from msgspec import UNSET
from msgspec.structs import fields

from onejob.core.client_views import SequenceReceipt
from onejob.core.invalid import Invalid
from onejob.core.key import checked_key
from onejob.core.roles import Act
from onejob.intake import Submission
from onejob.sequences import SequencedSubmission

from .answers import Answer, Header, answer
from .jobs import QUOTA_ERRORS, seconds, submission_of
from .request import Request
from .routes import Parameter, Route
from .sequence_wire import ClientStateOut, ItemBody, SequenceBody, SequenceOut, sequence_out, state_out
from .shapes import SCOPE
from .wire import SubmitBody

INTEGRAL_MAX = 2**53
_OF_THE_JOB = tuple(field.name for field in fields(ItemBody))


async def submit(request: Request) -> Answer:
    header = request.key()
    request.query()
    body = await request.decoded(SequenceBody)
    receipt = await request.ledger.send_sequence(said(request.path[0], body, header))
    return _answered(receipt, request.id)


async def state(request: Request) -> Answer:
    scope = request.query("scope").get("scope")
    if scope is None:
        raise Invalid("scope", "say in which scope the client counts: ?scope=")
    # Whoever may let keys be forgotten looks after all clients; anybody else sees the own ones.
    any_owner = request.credential.may(Act.FORGET)
    found = await request.ledger.get_client_state(request.path[0], scope=scope, any_owner=any_owner)
    return answer(200, state_out(found, request.id))


def said(client_id: str, body: SequenceBody, header: str | None) -> SequencedSubmission:
    """What a body says; the key may stand in the header, and where it stands twice it is the same."""
    key = header if body.idempotency_key is UNSET else body.idempotency_key
    if key is None:
        raise Invalid("key", "a number has a key: send idempotencyKey, the same on every retry")
    if header is not None and checked_key(header) != checked_key(key):
        raise Invalid("key", "the header and the body name different keys; send one, or the same")
    ttl = body.idempotency_ttl_seconds
    return SequencedSubmission(
        client_id=client_id,
        sequence=_whole(body.sequence),
        idempotency_key=key,
        scope=body.scope,
        jobs=_jobs(body),
        idempotency_ttl=None if ttl is UNSET else seconds("idempotencyTtlSeconds", ttl),
    )


def _answered(receipt: SequenceReceipt, request_id: str) -> Answer:
    told = sequence_out(receipt, request_id)
    headers: list[Header] = []
    if told.job is not None:
        headers.append((b"location", b"/api/jobs/" + told.job.id.encode()))
    if not receipt.committed:
        headers.append((b"idempotent-replayed", b"true"))
    if told.expires_at is not None:
        headers.append((b"idempotency-expires", told.expires_at.isoformat().encode()))
    return answer(202 if receipt.committed else 200, told, *headers)


def _jobs(body: SequenceBody) -> list[Submission]:
    own = _given(body)
    if (body.jobs is UNSET) == ("type" not in own) or (body.jobs is not UNSET and own):
        raise Invalid("jobs", "send the type, input and options of one job, or jobs with each its own")
    return [_job(own)] if body.jobs is UNSET else [_job(_given(item)) for item in body.jobs]


def _given(body: SequenceBody | ItemBody) -> dict[str, Any]:
    found = {name: getattr(body, name) for name in _OF_THE_JOB}
    return {name: value for name, value in found.items() if value is not UNSET}


def _job(given: dict[str, Any]) -> Submission:
    try:
        return submission_of(SubmitBody(**given), None)
    except Invalid:
        raise
    except ValueError as error:
        raise Invalid("jobs", f"a job cannot be taken: {error}") from error


def _whole(number: float) -> int:
    """In JSON 3.0 is the whole number 3; beyond what a double counts one by one it is not said which."""
    if isinstance(number, float) and number.is_integer() and abs(number) <= INTEGRAL_MAX:
        return int(number)
    return number  # type: ignore[return-value]  # the core refuses what is no whole number


ROUTES = (
    Route(
        "POST",
        "/api/clients/{client_id}/jobs",
        submit,
        Act.SUBMIT,
        "Send the next number of a client's sequence: one job, or a batch, all or nothing",
        SequenceBody,
        SequenceOut,
        202,
        takes_key=True,
        errors=("SEQUENCE_GAP", *QUOTA_ERRORS),
        again=200,
    ),
    Route(
        "GET",
        "/api/clients/{client_id}/state",
        state,
        Act.READ,
        "Tell how far a client's sequence is; 0 if it never came",
        None,
        ClientStateOut,
        query=(Parameter("scope", "in which it counts", SCOPE, required=True),),
        errors=("FORBIDDEN",),
    ),
)
