"""What the layer itself answers: problem+json with the code that is authoritative, never to be cached."""

import logging
from math import ceil
from typing import Any, NamedTuple

from msgspec import json

from onejob.codes import CODES
from onejob.errors import (
    IdempotencyConflict,
    Invalid,
    OnejobError,
    StoreRefused,
    SubmissionInProgress,
)

from .stored_response import Headers, StoredResponse

NO_STORE = (b"cache-control", b"no-store")
REPLAYED = (b"idempotent-replayed", b"true")
RETRY_AFTER_MAX = 5
BODYLESS_STATUSES = (204, 304)

log = logging.getLogger("onejob.middleware")


class LayerResponse(NamedTuple):
    """An answer that the layer gives instead of the application."""

    status: int
    headers: Headers
    body: bytes


def problem_response(
    code: str, message: str, *, status: int = 0, retry_after: int | None = None, **details: Any
) -> LayerResponse:
    """`Retry-After` is there exactly when the same request may be sent again."""
    row = CODES[code]
    status = status or row.status
    error = {"code": code, "message": message, "retryable": retry_after is not None, "details": details}
    body = json.encode(
        {
            "type": f"urn:onejob:problem:{code}",
            "title": row.title,
            "status": status,
            "detail": message,
            "error": error,
        }
    )
    again = () if retry_after is None else ((b"retry-after", b"%d" % retry_after),)
    return _build_response(status, ((b"content-type", b"application/problem+json"), NO_STORE, *again), body)


def error_response(error: OnejobError, *, mismatch_status: int) -> LayerResponse:
    """What a client is told when its key was not taken; what ails the store is for the log alone."""
    match error:
        case Invalid():
            return problem_response("VALIDATION_ERROR", str(error))
        case IdempotencyConflict():
            message = "this key was used for another request; use a new key, or send the first request again"
            return problem_response("CONFLICT", message, status=mismatch_status)
        case SubmissionInProgress():
            wait = max(1, min(RETRY_AFTER_MAX, ceil(error.retry_after)))
            message = "the first request with this key is still being done; repeat it as it is"
            return problem_response("IN_PROGRESS", message, retry_after=wait)
    log.error("a key could not be taken: %s", error)
    return unavailable_response(error)


def unavailable_response(error: BaseException) -> LayerResponse:
    wait = None if isinstance(error, StoreRefused) else 1
    message = "whether it was done cannot be said now; repeat with the same key"
    return problem_response("SERVICE_UNAVAILABLE", message, retry_after=wait)


def replay_response(stored: StoredResponse, expires: bytes) -> LayerResponse:
    """The first answer once more, or that it was given and not kept."""
    until = (b"idempotency-expires", expires)
    if stored.body is None:
        message = "this request was done; its response was a stream or too large, and is not kept"
        told = problem_response("RESPONSE_NOT_RETAINED", message, originalStatus=stored.status)
        return told._replace(headers=(*told.headers, REPLAYED, until))
    return _build_response(stored.status, (*stored.headers, NO_STORE, REPLAYED, until), stored.body)


def _build_response(status: int, headers: Headers, body: bytes) -> LayerResponse:
    size = () if status in BODYLESS_STATUSES else ((b"content-length", b"%d" % len(body)),)
    return LayerResponse(status, (*headers, *size), body)
