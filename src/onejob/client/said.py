"""What a caller says, and what it becomes: a key, a call, a receipt."""

from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from onejob.core.key import checked_key
from onejob.errors import Invalid, OnejobError, Reason, SubmissionInProgress, SubmissionRefused

from . import calls, wire
from .calls import Call, SubmissionLike
from .outbox import Intent

BATCH_BYTES_MAX: Final = 1 << 20
_QUOTA_REASONS: Final = (Reason.QUOTA_EXCEEDED, Reason.COST_LIMIT_EXCEEDED)


class ClientSubmission(Struct, frozen=True, kw_only=True):
    """One logical submission, as a caller says it; `options` as the ledger has them."""

    type: str
    input: Any = None
    idempotency_key: str | None = None
    key_from: tuple[str, ...] = ()
    options: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        try:
            return self.options[name]
        except KeyError:
            raise AttributeError(name) from None


def given_or_derived_key(submission: ClientSubmission) -> str | None:
    """The key that was given, or follows from what was named; None: one is to be drawn."""
    if submission.idempotency_key is not None:
        if submission.key_from:
            raise Invalid("key_from", "give a key, or the members it follows from, not both")
        return checked_key(submission.idempotency_key)
    return (
        calls.derived_key(submission.type, submission.input, submission.key_from)
        if submission.key_from
        else None
    )


def is_transient(error: OnejobError, *, resumed: bool) -> bool:
    """A refusal that may end by itself. A full quota keeps an intent only where no caller waits to be told."""
    if isinstance(error, SubmissionRefused):
        return error.reason is Reason.RATE_LIMITED or (resumed and error.reason in _QUOTA_REASONS)
    return isinstance(error, SubmissionInProgress)


def to_client_submission(submission: SubmissionLike) -> ClientSubmission:
    if isinstance(submission, ClientSubmission):
        return submission
    names = [*calls.SubmitOptions.__annotations__]
    options = {
        name: getattr(submission, name) for name in names if getattr(submission, name, None) is not None
    }
    return ClientSubmission(
        type=submission.type,
        input=submission.input,
        idempotency_key=submission.idempotency_key,
        options=options,
    )


def split_into_batches(parsed: list[Call | OnejobError]) -> Iterator[list[int]]:
    """Places of what may travel together: what the server takes in one body, and each key once."""
    places: list[int] = []
    size, keys = 0, set[str | None]()
    for place, call in enumerate(parsed):
        if not isinstance(call, Call):
            continue
        if places and (size + len(call.body) > BATCH_BYTES_MAX or call.key in keys):
            yield places
            places, size, keys = [], 0, set()
        places.append(place)
        size += len(call.body) + 1
        keys.add(call.key)
    if places:
        yield places


def call_from_intent(intent: Intent) -> Call:
    """The call of a row, byte for byte as it was frozen."""
    return Call(
        method="POST",
        path=intent.path,
        response_type=wire.SequenceReceiptModel if intent.sequence else wire.SubmitResponseModel,
        body=intent.body,
        key=intent.key,
        window_ms=intent.window_ms,
        sequenced=bool(intent.sequence),
    )


def receipt_from_response(response: wire.SubmitResponseModel, call: Call, attempts: int) -> wire.ReceiptModel:
    told = response.idempotency
    assert call.key is not None
    return wire.ReceiptModel(
        outcome=told.outcome,
        key=call.key,
        scope=told.scope,
        job_id=response.job.id if response.job else response.job_id or "",
        job=response.job,
        expires_at=told.expires_at,
        attempts=attempts,
        warnings=response.warnings,
    )


def client_state_call(client_id: str, scope: str) -> Call:
    return calls.get_call(
        f"/api/clients/{calls.quote_path_segment(client_id)}/state", wire.ClientStateModel, scope=scope
    )
