"""When to send again: one generator without I/O, driven by every client."""

from collections.abc import Callable, Generator
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import msgspec
from msgspec import Struct, field, json

from onejob.codes import CODES, NextAction
from onejob.errors import Invalid

# What an answer means, by its code and never by its text: repeat, wait, mend, give up.


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
    row = CODES.get(told.code)
    if row is None:  # a newer server sent it
        return NextAction.RETRY if told.retryable else NextAction.GIVE_UP
    # A store that needs an operator is SERVICE_UNAVAILABLE too, and retrying does not help.
    stuck = row.code == "SERVICE_UNAVAILABLE" and not told.retryable
    return NextAction.GIVE_UP if stuck else row.next_action


def parse_problem(response: ServerResponse) -> ProblemBody | None:
    """The problem in an answer; None where there is none, or in other words than ours."""
    try:
        return json.decode(response.body, type=_ProblemEnvelope).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def is_definitive(problem: ProblemBody | None) -> bool:
    row = CODES.get(problem.code) if problem is not None else None
    return row is not None and row.settles


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


# The rules of this file:
# 1. It never sends, sleeps or looks at a clock: it yields what is to be done, and is handed the time.
# 2. What is sent again is the very same call. Nothing here can change a key or a byte.
# 3. After `window_end` nothing is sent: the server may have forgotten the key, and a repetition would be a new job.
# 4. "No answer" is never "not done". Only an attempt of which not a byte was sent leaves no doubt.


ATTEMPTS_MAX: Final = 1_000
SECONDS_MAX: Final = 365 * 86_400.0


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How long and how often a client tries, in seconds."""

    deadline: float = 120.0
    attempts_max: int = 100
    attempt_timeout: float = 40.0  # longer than a server lets a duplicate wait
    pause_first: float = 0.2
    pause_max: float = 10.0
    retry_after_max: float = 60.0
    waits: bool = True  # also while the key is in progress elsewhere, or the rate is exceeded

    def __post_init__(self) -> None:
        if type(self.attempts_max) is not int or not 1 <= self.attempts_max <= ATTEMPTS_MAX:
            raise Invalid("attempts_max", f"attempts_max is a whole number from 1 to {ATTEMPTS_MAX}")
        for name in ("deadline", "attempt_timeout", "pause_first", "pause_max", "retry_after_max"):
            # NaN and infinity fail the comparison.
            if not 0 < getattr(self, name) <= SECONDS_MAX:
                raise Invalid(name, f"{name} is a number of seconds, greater than 0")


class Send(Struct, frozen=True):
    """Send this, and wait so long for the whole answer."""

    call: Any
    timeout: float


class Sleep(Struct, frozen=True):
    seconds: float


class StepResult(Struct, frozen=True):
    """What came of it, and when, on a clock that only grows."""

    at: float
    response: ServerResponse | NoResponse | None = None  # None: a sleep is over


class CallOutcome(Struct, frozen=True):
    """The last that was heard, and whether the call may have been executed without our knowing."""

    response: ServerResponse | NoResponse
    attempts: int
    outcome_unknown: bool
    window_passed: bool = False


RetryFlow = Generator[Send | Sleep, StepResult, CallOutcome]


def send_with_retries(
    call: Any,
    retry: RetryPolicy,
    *,
    begin: float,
    jitter: Callable[[], float],
    repeat: bool = True,
    window_end: float = float("inf"),
    outcome_unknown: bool = False,
    accepts: Callable[[ServerResponse], bool] = lambda answer: True,
) -> RetryFlow:
    """Send a call until its answer is one to keep. `repeat`: sending it twice cannot do a second thing.

    An answer that does not fit the call, cut short or meant for another one, is as good as none.
    """
    now, stop = begin, min(begin + retry.deadline, window_end)
    attempt = 0
    while True:
        attempt += 1
        heard = yield Send(call, max(0.001, min(retry.attempt_timeout, stop - now)))
        now, said = heard.at, heard.response
        assert said is not None
        act = classify(said)
        if act is NextAction.KEEP and isinstance(said, ServerResponse) and not accepts(said):
            act, said = (
                NextAction.RETRY,
                NoResponse("the answer was not whole, or not to this call", sent=True),
            )
        # A server away in the middle of its work and one that never began say the same: 503.
        outcome_unknown |= said.sent if isinstance(said, NoResponse) else act is NextAction.RETRY
        again = act is NextAction.RETRY or (act is NextAction.WAIT and retry.waits)
        if not again or attempt == retry.attempts_max or not (repeat or _was_not_sent(said)):
            return CallOutcome(said, attempt, outcome_unknown)
        pause = _backoff_seconds(said, attempt, retry, jitter())
        if now + pause >= stop:
            passed = now + pause >= window_end
            return CallOutcome(said, attempt, outcome_unknown, passed)
        now = (yield Sleep(pause)).at
        if now >= window_end:
            return CallOutcome(said, attempt, outcome_unknown, window_passed=True)


def _was_not_sent(response: ServerResponse | NoResponse) -> bool:
    return isinstance(response, NoResponse) and not response.sent


def _backoff_seconds(response: ServerResponse | NoResponse, attempt: int, retry: RetryPolicy, jitter: float) -> float:
    """Grows with every attempt, spread by chance over its whole length; never shorter than the server asked."""
    grown: float = min(retry.pause_max, retry.pause_first * 2.0 ** min(attempt - 1, 60))
    told = retry_after(response) if isinstance(response, ServerResponse) else None
    return jitter * grown + (0.0 if told is None else min(told, retry.retry_after_max))
