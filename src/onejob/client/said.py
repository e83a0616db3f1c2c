"""What a caller says, and what it becomes: a key, a call, a receipt."""

from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from onejob.core.key import checked_key
from onejob.errors import Invalid, OnejobError, Reason, SubmissionInProgress, SubmissionRefused

from . import calls, wire
from .calls import Call, Said
from .outbox import Intent

BATCH_BYTES_MAX: Final = 1 << 20
_QUOTAS: Final = (Reason.QUOTA_EXCEEDED, Reason.COST_LIMIT_EXCEEDED)


class Submission(Struct, frozen=True, kw_only=True):
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


def key_of(said: Submission) -> str | None:
    """The key that was given, or follows from what was named; None: one is to be drawn."""
    if said.idempotency_key is not None:
        if said.key_from:
            raise Invalid("key_from", "give a key, or the members it follows from, not both")
        return checked_key(said.idempotency_key)
    return calls.derived_key(said.type, said.input, said.key_from) if said.key_from else None


def passing(error: OnejobError, *, resumed: bool) -> bool:
    """A refusal that may end by itself. A full quota keeps an intent only where no caller waits to be told."""
    if isinstance(error, SubmissionRefused):
        return error.reason is Reason.RATE_LIMITED or (resumed and error.reason in _QUOTAS)
    return isinstance(error, SubmissionInProgress)


def submission_of(said: Said) -> Submission:
    if isinstance(said, Submission):
        return said
    names = [*calls.Options.__annotations__]
    options = {name: getattr(said, name) for name in names if getattr(said, name, None) is not None}
    return Submission(type=said.type, input=said.input, idempotency_key=said.idempotency_key, options=options)


def bundles(parsed: list[Call | OnejobError]) -> Iterator[list[int]]:
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


def call_of(intent: Intent) -> Call:
    """The call of a row, byte for byte as it was frozen."""
    return Call(
        method="POST",
        path=intent.path,
        gives=wire.SequenceReceipt if intent.sequence else wire.Submitted,
        body=intent.body,
        key=intent.key,
        window_ms=intent.window_ms,
        numbered=bool(intent.sequence),
    )


def receipt_of(given: wire.Submitted, call: Call, attempts: int) -> wire.Receipt:
    told = given.idempotency
    assert call.key is not None
    return wire.Receipt(
        outcome=told.outcome,
        key=call.key,
        scope=told.scope,
        job_id=given.job.id if given.job else given.job_id or "",
        job=given.job,
        expires_at=told.expires_at,
        attempts=attempts,
        warnings=given.warnings,
    )


def state_call(client_id: str, scope: str) -> Call:
    return calls.get(f"/api/clients/{calls.quoted(client_id)}/state", wire.ClientState, scope=scope)
