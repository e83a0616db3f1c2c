"""Responses of the middleware itself: problems (application/problem+json) and replays, never cacheable."""

import logging
from math import ceil
from typing import Any, NamedTuple

from msgspec import json

from onejob.codes import CODES
from onejob.errors import IdempotencyConflict, Invalid, OnejobError, StoreRefused, SubmissionInProgress

from .stored_response import Headers, StoredResponse

NO_STORE = (b"cache-control", b"no-store")
NO_SNIFF = (b"x-content-type-options", b"nosniff")
REPLAYED = (b"idempotent-replayed", b"true")
RETRY_AFTER_MAX = 5
BODYLESS_STATUSES = (204, 304)

log = logging.getLogger("onejob.middleware")


class LayerResponse(NamedTuple):
    """A response that the layer sends instead of the application."""

    status: int
    headers: Headers
    body: bytes


def problem_response(
    code: str, message: str, *, status: int = 0, retry_after: int | None = None, **details: Any
) -> LayerResponse:
    """A problem; it has `Retry-After` exactly if the same request may be sent again."""
    row = CODES[code]
    status = status or row.status
    error = {"code": code, "message": message, "retryable": retry_after is not None, "details": details}
    body = json.encode(
        {"type": f"urn:onejob:problem:{code}", "title": row.title, "status": status, "detail": message, "error": error}
    )
    wait = () if retry_after is None else ((b"retry-after", b"%d" % retry_after),)
    return _build_response(status, ((b"content-type", b"application/problem+json"), NO_STORE, NO_SNIFF, *wait), body)


def error_response(error: OnejobError, *, mismatch_status: int) -> LayerResponse:
    """The response if a key could not be acquired; details of the store go to the log only."""
    match error:
        case Invalid():
            return problem_response("VALIDATION_ERROR", str(error))
        case IdempotencyConflict():
            message = "this key was used for another request; use a new key, or send the first request again"
            return problem_response("CONFLICT", message, status=mismatch_status)
        case SubmissionInProgress():
            wait = max(1, min(RETRY_AFTER_MAX, ceil(error.retry_after)))
            message = "the first request with this key is still running; retry the same request after Retry-After"
            return problem_response("IN_PROGRESS", message, retry_after=wait)
    log.error("acquiring a key failed: %s", error)
    return unavailable_response(error)


def unavailable_response(error: BaseException) -> LayerResponse:
    wait = None if isinstance(error, StoreRefused) else 1
    message = "the store is unavailable and the outcome is unknown; retry with the same key"
    return problem_response("SERVICE_UNAVAILABLE", message, retry_after=wait)


def replay_response(stored: StoredResponse, expires_header: tuple[bytes, bytes]) -> LayerResponse:
    """The stored response; a 410 if only its tombstone was stored."""
    if stored.body is None:
        message = "this request was done, but its response was a stream or too large to store; do not retry it"
        gone = problem_response("RESPONSE_NOT_RETAINED", message, originalStatus=stored.status)
        return gone._replace(headers=(*gone.headers, REPLAYED, expires_header))
    return _build_response(stored.status, (*stored.headers, NO_STORE, REPLAYED, expires_header), stored.body)


def _build_response(status: int, headers: Headers, body: bytes) -> LayerResponse:
    size = () if status in BODYLESS_STATUSES else ((b"content-length", b"%d" % len(body)),)
    return LayerResponse(status, (*headers, *size), body)
