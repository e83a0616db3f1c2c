"""From the end of a call to its answer, or to the one exception that says the next act."""

from typing import Any, NoReturn

from msgspec import json

from onejob.errors import (
    AmbiguousOutcome,
    IdempotencyConflict,
    Invalid,
    NotAllowed,
    NotFound,
    OnejobError,
    Reason,
    ServerFailed,
    SubmissionInProgress,
    SubmissionRefused,
    SubmissionRejected,
    Unavailable,
    Unknown,
    WindowPassed,
)

from .calls import Call
from .flow import Ended
from .judged import Act, Answer, Lost, Told, judged, settles, told_of

_REASONS = frozenset(Reason)


def answered(call: Call, ended: Ended) -> Any:
    """The decoded answer of a call that was done; raises whatever it was instead."""
    said = ended.said
    if isinstance(said, Lost):
        raise_lost(call, ended, said.reason)
    act = judged(said)
    if act is Act.KEEP:
        return json.decode(said.body, type=call.gives)
    told = told_of(said)
    error = refusal(told, said, call.key or "")
    if call.key is None:
        raise error
    if act is Act.RETRY or (ended.doubtful and not settles(told)):
        raise_lost(call, ended, str(error), error)
    raise error


def raise_lost(call: Call, ended: Ended, reason: str, cause: Exception | None = None) -> NoReturn:
    """No definite answer: what that means depends on what was asked, and whether anything was sent."""
    if not ended.doubtful or call.method == "GET":
        raise Unavailable(f"the server gave no answer ({reason}): nothing was done; repeat later") from cause
    if call.key is None:
        raise Unknown(f"the server gave no answer ({reason}): it may be done; repeat it") from cause
    tries = f"{ended.attempts} attempt{'s' if ended.attempts > 1 else ''}"
    if ended.window_passed and not call.numbered:
        raise WindowPassed(
            f"no definite answer after {tries} ({reason}), and the window of the key may be over: the job may exist, "
            "and a repetition could make a second one; look for it first",
            key=call.key,
            attempts=ended.attempts,
        ) from cause
    raise AmbiguousOutcome(
        f"no definite answer after {tries} ({reason}): the job may exist; repeat with the same key and body",
        key=call.key,
        attempts=ended.attempts,
    ) from cause


def refusal(told: Told | None, said: Answer | None, key: str) -> OnejobError:
    """The exception of a problem; its code decides."""
    status = said.status if said is not None else 0
    if told is None:
        return ServerFailed(
            f"the server answered {status} in words that are not onejob's; see whether the URL is right",
            status=status,
        )
    text, details = told.message, told.details
    match told.code:
        case "CONFLICT":
            paths = tuple(map(str, details.get("paths") or ()))
            return IdempotencyConflict(key=key, job_id=str(details.get("jobId") or ""), paths=paths)
        case "IN_PROGRESS":
            return SubmissionInProgress(key=key, job_id=str(details.get("jobId") or ""), retry_after=1.0)
        case "REJECTED":
            return SubmissionRejected(key=key, job_id=str(details.get("jobId") or ""), receipt=b"")
        case "BAD_REQUEST" | "VALIDATION_ERROR" | "PAYLOAD_TOO_LARGE" | "METHOD_NOT_ALLOWED":
            return Invalid(str(details.get("what") or "request"), text)
        case "UNAUTHORIZED" | "FORBIDDEN":
            return NotAllowed(text)
        case "NOT_FOUND":
            return NotFound(text)
        case "SERVICE_UNAVAILABLE":
            return Unavailable(text)
    if told.code in _REASONS:
        return SubmissionRefused(key=key, reason=Reason(told.code), message=text, details=details)
    return ServerFailed(text, status=status, code=told.code)
