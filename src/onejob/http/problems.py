"""From an exception to its problem: code, status, message and details, as the service and the command line report it."""

import errno
from collections.abc import Mapping
from math import ceil
from typing import Any, NamedTuple

from onejob.codes import CODES
from onejob.core.replies import Reason
from onejob.errors import (
    IdempotencyConflict,
    Invalid,
    LeaseLost,
    MayBeDone,
    NotAllowed,
    NotFound,
    NotTheOwner,
    OnejobError,
    Outdated,
    SubmissionInProgress,
    SubmissionRefused,
    SubmissionRejected,
    Unavailable,
    Unknown,
    WorkRefused,
)

STORE_RETRY_AFTER_SECONDS = 1
INTERNAL_ERROR_MESSAGE = "internal error; the server log has it under the request id"


class MalformedBody(Invalid):
    """A body that cannot be read as JSON, so that none of its values was looked at."""


class Unauthorized(OnejobError):
    """The request has no credential, or one that is unknown or revoked."""


class Forbidden(OnejobError):
    """The credential is valid but lacks the permission."""


class ServerShuttingDown(OnejobError):
    """The server is shutting down; nothing was done."""

    retryable = True


class RateLimited(OnejobError):
    """A credential submits new jobs faster than its rate limit."""

    retryable = True

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LoginThrottled(OnejobError):
    """An address has sent too many invalid credentials lately, and this is one more."""

    retryable = True

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Problem(NamedTuple):
    code: str
    status: int
    title: str
    message: str
    details: Mapping[str, Any] = {}
    retry_after: int | None = None  # in seconds; None: a retry of the same request does not help


# Names that differ between Python and the wire; every other name only changes from snake_case to camelCase.
_WIRE_NAMES = {
    "idempotency_ttl": "idempotencyTtlSeconds",
    "moment": "runAt",
    "timeout": "timeoutSeconds",
    "ttl": "idempotencyTtlSeconds",
}

# Reasons of a refused submission that have another code on the wire.
_CODE_BY_REASON = {
    Reason.SLOT_LOST: "QUOTA_EXCEEDED",
    Reason.NOT_THE_OWNER: "FORBIDDEN",
    Reason.STALE: "ALREADY_SETTLED",
    Reason.CREDENTIAL_CHANGED: "UNAUTHORIZED",
}
_AMOUNT_DETAILS = ("allowed", "spent", "held")


def problem(code: str, message: str, retry_after: int | None = None, **details: Any) -> Problem:
    row = CODES[code]
    return Problem(code, row.status, row.title, message, details, retry_after)


def unavailable_problem(cause: str, *, retryable: bool) -> Problem:
    """A 503 that comes from the server itself, after which the request may be done."""
    if retryable:
        return problem("SERVICE_UNAVAILABLE", f"{cause}; retry with the same key", STORE_RETRY_AFTER_SECONDS)
    return problem("SERVICE_UNAVAILABLE", f"{cause}; it may be done, so look before you retry")


def is_out_of_memory(error: BaseException | None) -> bool:
    """True if the process could not get memory: the request is not at fault, and may succeed later."""
    match error:
        case MemoryError():
            return True
        case OSError():
            return error.errno == errno.ENOMEM
        case RuntimeError():
            return str(error) == "can't start new thread"  # CPython has no other name for it
    return False


def to_problem(error: OnejobError) -> Problem:
    text = str(error)
    match error:
        case NotTheOwner():
            return problem("FORBIDDEN", text, what=error.what)
        case MalformedBody():
            return problem("BAD_REQUEST", text, what=error.what)
        case Invalid():
            name = _WIRE_NAMES.get(error.what) or _to_camel_case(error.what)
            # Only a name with an underscore is surely the field; "a timeout" in a message is plain English.
            message = text.replace(error.what, name) if "_" in error.what else text
            return problem("VALIDATION_ERROR", message, what=name)
        case IdempotencyConflict():
            return problem("CONFLICT", text, jobId=error.job_id, paths=list(error.paths))
        case SubmissionInProgress():
            return problem("IN_PROGRESS", text, max(1, round(error.retry_after)), jobId=error.job_id)
        case SubmissionRejected():
            return problem("REJECTED", text, jobId=error.job_id)
        case SubmissionRefused():
            return _refusal_problem(error)
        case LeaseLost():
            return problem("STALE", text)._replace(details=error.details)
        case WorkRefused():
            return problem(error.reason.value, text)._replace(details=error.details)
        case ServerShuttingDown():
            return problem("SERVICE_UNAVAILABLE", text, STORE_RETRY_AFTER_SECONDS)
        case Forbidden() | NotAllowed():
            return problem("FORBIDDEN", text)
        case Unauthorized():
            return problem("UNAUTHORIZED", text)
        case RateLimited():
            return problem("RATE_LIMITED", text, error.retry_after)
        case LoginThrottled():
            return problem("LOGIN_THROTTLED", text, error.retry_after)
        case NotFound():
            return problem("NOT_FOUND", text)
        case Unavailable() | Unknown():
            return problem("SERVICE_UNAVAILABLE", text, STORE_RETRY_AFTER_SECONDS if error.retryable else None)
    return problem("INTERNAL_ERROR", text)


def _refusal_problem(error: SubmissionRefused) -> Problem:
    wait = None if error.retry_after is None else max(1, ceil(error.retry_after))
    if error.reason is Reason.IN_PROGRESS:
        wait = wait or 1
    details: dict[str, Any] = {_to_camel_case(name): value for name, value in error.details.items()}
    if error.reason is Reason.COST_LIMIT_EXCEEDED:  # amounts are numbers on the wire
        details |= {name: float(details[name]) for name in _AMOUNT_DETAILS if name in details}
    if error.reason is Reason.SLOT_LOST:
        details["slotLost"] = True
    return problem(_CODE_BY_REASON.get(error.reason, error.reason.value), str(error), wait, **details)


def _to_camel_case(name: str) -> str:
    if not name.islower():
        return name  # an environment variable, or camelCase already
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def to_public_problem(error: OnejobError, *, mismatch_status: int) -> Problem:
    """The problem as a client sees it: details of the store stay in the log."""
    found = to_problem(error)
    match error:
        case IdempotencyConflict():
            return found._replace(status=mismatch_status)
        case MayBeDone() | Outdated():
            return found
        case Unknown():
            return found._replace(message="the outcome is unknown; retry with the same key")
        case Unavailable():
            return found._replace(message="the store is unavailable: nothing was done; retry with the same key")
    if found.code == "INTERNAL_ERROR":
        return found._replace(message=INTERNAL_ERROR_MESSAGE)
    return found
