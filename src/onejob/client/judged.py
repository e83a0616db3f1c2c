"""What an answer means, by its code and never by its text: repeat, wait, mend, give up."""

from datetime import datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec import Struct, field, json

SECONDS_DIGITS_MAX: Final = 9


class Answer(Struct, frozen=True):
    """A whole answer; the names of its headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Lost(Struct, frozen=True):
    """No whole answer. `sent`: some byte of the call may have arrived."""

    reason: str
    sent: bool


class Told(Struct, frozen=True):
    """The server's own account of a failure."""

    code: str
    message: str = ""
    retryable: bool = False
    details: dict[str, Any] = field(default_factory=dict)


class _Problem(Struct, frozen=True):
    error: Told


class Act(StrEnum):
    """The caller's next act."""

    KEEP = "keep"  # it is done: this is the answer
    RETRY = "retry with the same key"
    WAIT = "wait"  # then repeat with the same key
    FIX = "fix"  # the same bytes will never do: mend them, or use a new key
    GIVE_UP = "give up"  # not by repeating now


ACTS: Final = {
    "BAD_REQUEST": Act.FIX,
    "VALIDATION_ERROR": Act.FIX,
    "UNAUTHORIZED": Act.FIX,
    "FORBIDDEN": Act.FIX,
    "NOT_FOUND": Act.FIX,
    "METHOD_NOT_ALLOWED": Act.FIX,
    "PAYLOAD_TOO_LARGE": Act.FIX,
    "CONFLICT": Act.FIX,
    "IDEMPOTENCY_KEY_REUSED": Act.FIX,
    "SEQUENCE_GAP": Act.FIX,
    "ALREADY_SETTLED": Act.GIVE_UP,
    "STALE": Act.GIVE_UP,
    "TIMED_OUT": Act.GIVE_UP,
    "NOT_ALLOWED": Act.GIVE_UP,
    "IN_PROGRESS": Act.WAIT,
    "RATE_LIMITED": Act.WAIT,
    "REJECTED": Act.GIVE_UP,
    "QUOTA_EXCEEDED": Act.GIVE_UP,
    "COST_LIMIT_EXCEEDED": Act.GIVE_UP,
    "SLOT_LOST": Act.GIVE_UP,
    "INTERNAL_ERROR": Act.RETRY,
    "SERVICE_UNAVAILABLE": Act.RETRY,
}

# Said after the key was looked up, or of bytes that every attempt had: such a refusal tells that no attempt made a job.
# A credential, on the contrary, is judged before the key; 401 says nothing of what an attempt before it did.
SETTLING: Final = frozenset(
    {
        "BAD_REQUEST", "VALIDATION_ERROR", "PAYLOAD_TOO_LARGE", "CONFLICT", "IDEMPOTENCY_KEY_REUSED",
        "SEQUENCE_GAP", "IN_PROGRESS", "RATE_LIMITED", "REJECTED", "QUOTA_EXCEEDED", "COST_LIMIT_EXCEEDED",
        "SLOT_LOST",
    }
)  # fmt: skip

# An answer without a code comes from a proxy, or from an API that is not ours.
AWAY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
BUSY: Final = frozenset({409})


def judged(said: Answer | Lost) -> Act:
    if isinstance(said, Lost):
        return Act.RETRY
    if 200 <= said.status < 300:
        return Act.KEEP
    told = told_of(said)
    if told is None:
        if said.status in AWAY:
            return Act.WAIT if said.status == 429 else Act.RETRY
        # The one conflict that needs no correction says when to come back.
        waits = said.status in BUSY and retry_after(said) is not None
        return Act.WAIT if waits else Act.GIVE_UP
    act = ACTS.get(told.code, Act.RETRY if told.retryable else Act.GIVE_UP)
    # A store that must be mended first is away too, but to repeat is no help.
    return Act.GIVE_UP if told.code == "SERVICE_UNAVAILABLE" and not told.retryable else act


def told_of(answer: Answer) -> Told | None:
    """The problem in an answer; None where there is none, or in other words than ours."""
    try:
        return json.decode(answer.body, type=_Problem).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def settles(told: Told | None) -> bool:
    return told is not None and told.code in SETTLING


def retry_after(answer: Answer) -> float | None:
    """The seconds that a server asks for, of either form; None where it asks for nothing that can be meant."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:SECONDS_DIGITS_MAX])
    # A date means something only on the clock that wrote it, so it is read against the date of the same answer.
    until, since = _date(text), _date(answer.headers.get("date", ""))
    if until is None or since is None:
        return None
    return max(0.0, (until - since).total_seconds())


def _date(text: str) -> datetime | None:
    try:
        read = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError):
        return None
    return read if read.tzinfo is not None else None
