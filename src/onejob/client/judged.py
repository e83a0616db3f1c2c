"""What an answer means, by its code and never by its text: repeat, wait, mend, give up."""

from datetime import datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec import Struct, field, json

SECONDS_DIGITS_MAX: Final = 9


class ServerResponse(Struct, frozen=True):
    """A whole answer; the names of its headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class NoResponse(Struct, frozen=True):
    """No whole answer. `sent`: some byte of the call may have arrived."""

    reason: str
    sent: bool


class ProblemBody(Struct, frozen=True):
    """The server's own account of a failure."""

    code: str
    message: str = ""
    retryable: bool = False
    details: dict[str, Any] = field(default_factory=dict)


class _ProblemEnvelope(Struct, frozen=True):
    error: ProblemBody


class NextAction(StrEnum):
    """The caller's next act."""

    KEEP = "keep"  # it is done: this is the answer
    RETRY = "retry with the same key"
    WAIT = "wait"  # then repeat with the same key
    FIX = "fix"  # the same bytes will never do: mend them, or use a new key
    GIVE_UP = "give up"  # not by repeating now


NEXT_ACTIONS: Final = {
    "BAD_REQUEST": NextAction.FIX,
    "VALIDATION_ERROR": NextAction.FIX,
    "UNAUTHORIZED": NextAction.FIX,
    "FORBIDDEN": NextAction.FIX,
    "NOT_FOUND": NextAction.FIX,
    "METHOD_NOT_ALLOWED": NextAction.FIX,
    "PAYLOAD_TOO_LARGE": NextAction.FIX,
    "CONFLICT": NextAction.FIX,
    "IDEMPOTENCY_KEY_REUSED": NextAction.FIX,
    "SEQUENCE_GAP": NextAction.FIX,
    "ALREADY_SETTLED": NextAction.GIVE_UP,
    "STALE": NextAction.GIVE_UP,
    "TIMED_OUT": NextAction.GIVE_UP,
    "NOT_ALLOWED": NextAction.GIVE_UP,
    "IN_PROGRESS": NextAction.WAIT,
    "RATE_LIMITED": NextAction.WAIT,
    "REJECTED": NextAction.GIVE_UP,
    "QUOTA_EXCEEDED": NextAction.GIVE_UP,
    "COST_LIMIT_EXCEEDED": NextAction.GIVE_UP,
    "SLOT_LOST": NextAction.GIVE_UP,
    "INTERNAL_ERROR": NextAction.RETRY,
    "SERVICE_UNAVAILABLE": NextAction.RETRY,
}

# Said after the key was looked up, or of bytes that every attempt had: such a refusal tells that no attempt made a job.
# A credential, on the contrary, is judged before the key; 401 says nothing of what an attempt before it did.
DEFINITIVE_CODES: Final = frozenset(
    {
        "BAD_REQUEST", "VALIDATION_ERROR", "PAYLOAD_TOO_LARGE", "CONFLICT", "IDEMPOTENCY_KEY_REUSED",
        "SEQUENCE_GAP", "IN_PROGRESS", "RATE_LIMITED", "REJECTED", "QUOTA_EXCEEDED", "COST_LIMIT_EXCEEDED",
        "SLOT_LOST",
    }
)  # fmt: skip

# An answer without a code comes from a proxy, or from an API that is not ours.
RETRYABLE_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
IN_PROGRESS_STATUSES: Final = frozenset({409})


def classify(response: ServerResponse | NoResponse) -> NextAction:
    if isinstance(response, NoResponse):
        return NextAction.RETRY
    if 200 <= response.status < 300:
        return NextAction.KEEP
    told = parse_problem(response)
    if told is None:
        if response.status in RETRYABLE_STATUSES:
            return NextAction.WAIT if response.status == 429 else NextAction.RETRY
        # The one conflict that needs no correction says when to come back.
        waits = response.status in IN_PROGRESS_STATUSES and retry_after(response) is not None
        return NextAction.WAIT if waits else NextAction.GIVE_UP
    act = NEXT_ACTIONS.get(told.code, NextAction.RETRY if told.retryable else NextAction.GIVE_UP)
    # A store that must be mended first is away too, but to repeat is no help.
    return NextAction.GIVE_UP if told.code == "SERVICE_UNAVAILABLE" and not told.retryable else act


def parse_problem(response: ServerResponse) -> ProblemBody | None:
    """The problem in an answer; None where there is none, or in other words than ours."""
    try:
        return json.decode(response.body, type=_ProblemEnvelope).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def is_definitive(problem: ProblemBody | None) -> bool:
    return problem is not None and problem.code in DEFINITIVE_CODES


def retry_after(response: ServerResponse) -> float | None:
    """The seconds that a server asks for, of either form; None where it asks for nothing that can be meant."""
    text = response.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:SECONDS_DIGITS_MAX])
    # A date means something only on the clock that wrote it, so it is read against the date of the same answer.
    until, since = _parse_http_date(text), _parse_http_date(response.headers.get("date", ""))
    if until is None or since is None:
        return None
    return max(0.0, (until - since).total_seconds())


def _parse_http_date(text: str) -> datetime | None:
    try:
        read = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError):
        return None
    return read if read.tzinfo is not None else None
