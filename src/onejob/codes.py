"""The error codes: one row per code, read by the HTTP service, the client, the command line and the middleware.

The code of a problem is part of the wire contract; status, title, client action and exit code follow from it. The title is
the same in every occurrence (RFC 9457); the message says what happened and what to do next.
"""

from enum import IntEnum, StrEnum
from typing import Final

from msgspec import Struct


class NextAction(StrEnum):
    """What a client does with a response."""

    KEEP = "keep"  # success: this is the response
    RETRY = "retry with the same key"
    WAIT = "wait"  # as long as Retry-After says, then retry with the same key
    FIX = "fix"  # the same bytes never succeed: correct them, or use a new key
    GIVE_UP = "give up"  # retrying now does not help


class ExitCode(IntEnum):
    """The exit codes of the command line."""

    DONE = 0
    FAILED = 1
    USAGE_ERROR = 2
    CONFLICT = 3
    UNAVAILABLE = 4
    NOT_FOUND = 5
    REFUSED = 6
    FORBIDDEN = 7
    JOB_UNSUCCESSFUL = 8
    JOB_UNFINISHED = 9
    INTERRUPTED = 130


class ErrorCode(Struct, frozen=True):
    code: str
    status: int
    title: str
    next_action: NextAction
    exit_code: ExitCode
    # True if the code is decided after the lookup of the key, or from bytes that every attempt had, and every other attempt
    # would be answered with it too: then none has created a job, and none that is still under way will. UNAUTHORIZED is decided
    # before the lookup and proves nothing about an attempt whose response was lost; what a quota refuses now, it may admit later.
    settles: bool = False
    # True if Retry-After is expected with this code. Each problem decides for itself: an exhausted hourly quota has it too, and
    # a store that needs an operator is SERVICE_UNAVAILABLE without it.
    retryable: bool = False
    in_http_api: bool = True  # False: only the middleware, or another version of the server, sends it


_KEEP, _RETRY, _WAIT, _FIX, _GIVE_UP = NextAction
_EXIT = ExitCode

_ROWS: Final = (
    # BAD_REQUEST: the request cannot be read, as HTTP or as JSON. VALIDATION_ERROR: it can, and a value in it is wrong.
    ErrorCode("BAD_REQUEST", 400, "Bad request", _FIX, _EXIT.USAGE_ERROR, settles=True),
    ErrorCode("VALIDATION_ERROR", 400, "Validation error", _FIX, _EXIT.USAGE_ERROR, settles=True),
    ErrorCode("UNAUTHORIZED", 401, "Unauthorized", _FIX, _EXIT.FORBIDDEN),
    ErrorCode("FORBIDDEN", 403, "Forbidden", _FIX, _EXIT.FORBIDDEN),
    ErrorCode("NOT_FOUND", 404, "Not found", _FIX, _EXIT.NOT_FOUND),
    ErrorCode("METHOD_NOT_ALLOWED", 405, "Method not allowed", _FIX, _EXIT.FAILED),
    ErrorCode("CONFLICT", 409, "Conflict", _FIX, _EXIT.CONFLICT, settles=True),
    ErrorCode("IN_PROGRESS", 409, "Request in progress", _WAIT, _EXIT.REFUSED, settles=True, retryable=True),
    ErrorCode("SEQUENCE_GAP", 409, "Sequence gap", _FIX, _EXIT.USAGE_ERROR),
    # Not definite: a lost attempt may have executed the number, and its record has expired.
    ErrorCode("ALREADY_COMMITTED", 409, "Sequence number already committed", _FIX, _EXIT.CONFLICT),
    ErrorCode("IDEMPOTENCY_KEY_REUSED", 409, "Idempotency key reused", _FIX, _EXIT.CONFLICT, settles=True),
    ErrorCode("ALREADY_SETTLED", 409, "Already settled", _GIVE_UP, _EXIT.CONFLICT),
    ErrorCode("STALE", 409, "Lease lost", _GIVE_UP, _EXIT.CONFLICT),
    ErrorCode("TIMED_OUT", 409, "Attempt timed out", _GIVE_UP, _EXIT.CONFLICT),
    ErrorCode("NOT_ALLOWED", 409, "Not allowed in this state", _GIVE_UP, _EXIT.CONFLICT),
    ErrorCode("STEP_CONFLICT", 409, "Step with other arguments", _FIX, _EXIT.CONFLICT),
    ErrorCode("STEP_INTERRUPTED", 409, "Step interrupted", _GIVE_UP, _EXIT.CONFLICT),
    ErrorCode("REJECTED", 422, "Submission rejected", _GIVE_UP, _EXIT.FAILED, settles=True),
    ErrorCode("PAYLOAD_TOO_LARGE", 413, "Payload too large", _FIX, _EXIT.USAGE_ERROR, settles=True),
    ErrorCode("UNSUPPORTED_MEDIA_TYPE", 415, "Unsupported media type", _FIX, _EXIT.USAGE_ERROR),
    ErrorCode("QUOTA_EXCEEDED", 429, "Quota exceeded", _GIVE_UP, _EXIT.REFUSED),
    ErrorCode("COST_LIMIT_EXCEEDED", 429, "Cost limit exceeded", _GIVE_UP, _EXIT.REFUSED),
    ErrorCode("RATE_LIMITED", 429, "Too many requests", _WAIT, _EXIT.REFUSED, retryable=True),
    ErrorCode("LOGIN_THROTTLED", 429, "Too many failed logins", _WAIT, _EXIT.FORBIDDEN, retryable=True),
    ErrorCode("INTERNAL_ERROR", 500, "Internal server error", _RETRY, _EXIT.FAILED),
    ErrorCode("SERVICE_UNAVAILABLE", 503, "Service unavailable", _RETRY, _EXIT.UNAVAILABLE, retryable=True),
    # This server sends QUOTA_EXCEEDED in its place, with `slotLost` among the details.
    ErrorCode("SLOT_LOST", 429, "Slot lost", _GIVE_UP, _EXIT.FAILED, settles=True, in_http_api=False),
    ErrorCode("KEY_MISSING", 400, "Idempotency-Key is missing", _GIVE_UP, _EXIT.FAILED, in_http_api=False),
    ErrorCode("RESPONSE_NOT_RETAINED", 410, "Response not retained", _GIVE_UP, _EXIT.FAILED, in_http_api=False),
)

CODES: Final = {row.code: row for row in _ROWS}
HTTP_API_CODES: Final = tuple(row.code for row in _ROWS if row.in_http_api)
