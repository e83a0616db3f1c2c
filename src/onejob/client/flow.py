"""When a client sends a request again: a generator without I/O, and the drivers that perform its steps.

1. `send_with_retries` never sends, sleeps or reads a clock: it yields the next step and is handed the time.
2. A retry sends the same call. Nothing here can change a key or a byte.
3. Nothing is sent again after the end of the key's window: the server may have forgotten the key, and a retry would
   create a second job. What is known of that end may change with every response.
4. "No answer" never means "not done". Only an attempt of which no byte was sent is certain to have done nothing.

The `code` of a response decides what follows (`classify`), never its text.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar

from msgspec import Struct, field, json

from onejob.backoff import Backoff
from onejob.clock import Clock, SystemClock
from onejob.codes import CODES, NextAction
from onejob.errors import Invalid

from .decoding import UNREADABLE

SECONDS_DIGITS_MAX: Final = 9
DATE_RESOLUTION_SECONDS: Final = 1.0


class ServerResponse(Struct, frozen=True):
    """A complete response; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class NoResponse(Struct, frozen=True):
    """No complete response. `sent`: some byte of the request may have reached the server."""

    reason: str
    sent: bool


class ProblemBody(Struct, frozen=True):
    """The `error` member of a problem response."""

    code: str
    message: str = ""
    retryable: bool = False
    details: dict[str, Any] = field(default_factory=dict)


class _ProblemEnvelope(Struct, frozen=True):
    error: ProblemBody


# A response without a code comes from a proxy, or from another API.
RETRYABLE_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
IN_PROGRESS_STATUSES: Final = frozenset({409})


def classify(response: ServerResponse | NoResponse) -> NextAction:
    if isinstance(response, NoResponse):
        return NextAction.RETRY
    if 200 <= response.status < 300:
        return NextAction.KEEP
    problem = parse_problem(response)
    if problem is None:
        if response.status in RETRYABLE_STATUSES:
            return NextAction.WAIT if response.status == 429 else NextAction.RETRY
        # A conflict with Retry-After is a request in progress; any other one must be corrected.
        in_progress = response.status in IN_PROGRESS_STATUSES and retry_after(response) is not None
        return NextAction.WAIT if in_progress else NextAction.GIVE_UP
    row = CODES.get(problem.code)
    if row is None:  # a newer server sent it
        return NextAction.RETRY if problem.retryable else NextAction.GIVE_UP
    # A store that needs an operator is SERVICE_UNAVAILABLE too, and retrying does not help.
    stuck = row.code == "SERVICE_UNAVAILABLE" and not problem.retryable
    return NextAction.GIVE_UP if stuck else row.next_action


def parse_problem(response: ServerResponse) -> ProblemBody | None:
    """The problem in a response; None if the body is not a onejob problem."""
    try:
        return json.decode(response.body, type=_ProblemEnvelope).error
    except UNREADABLE:
        return None


def is_definitive(problem: ProblemBody | None) -> bool:
    row = CODES.get(problem.code) if problem is not None else None
    return row is not None and row.settles


def retry_after(response: ServerResponse) -> float | None:
    """The seconds of a Retry-After header in either form; None if it is missing or malformed."""
    text = response.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:SECONDS_DIGITS_MAX])
    # Dates are compared with the Date of the same response, because the clocks of client and server may differ.
    until, since = _parse_http_date(text), _parse_http_date(response.headers.get("date", ""))
    if until is None or since is None:
        return None
    return max(0.0, (until - since).total_seconds())


def remaining_window(headers: Mapping[str, str], *, wall_ms: int) -> float | None:
    """How many seconds the server certainly still remembers the key of this response, by its Idempotency-Expires.

    It is compared with the Date of the same response, which has whole seconds; without one, with the local clock.
    """
    try:
        until = datetime.fromisoformat(headers.get("idempotency-expires", ""))
    except ValueError:
        return None
    if until.tzinfo is None:
        return None
    since = _parse_http_date(headers.get("date", ""))
    seconds = until.timestamp() - (wall_ms / 1000 if since is None else since.timestamp())
    return max(0.0, seconds - DATE_RESOLUTION_SECONDS)


def _parse_http_date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError):
        return None
    return moment if moment.tzinfo is not None else None


ATTEMPTS_MAX: Final = 1_000
SECONDS_MAX: Final = 365 * 86_400.0


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How long and how often a client retries, in seconds."""

    deadline: float = 120.0
    attempts_max: int = 100
    attempt_timeout: float = 40.0  # longer than the server holds a duplicate of a pending key
    pause_first: float = 0.2
    pause_max: float = 10.0
    retry_after_max: float = 60.0
    waits: bool = True  # retry also while the key is in progress elsewhere, or the rate limit is exceeded

    def __post_init__(self) -> None:
        if type(self.attempts_max) is not int or not 1 <= self.attempts_max <= ATTEMPTS_MAX:
            raise Invalid("attempts_max", f"attempts_max is a whole number from 1 to {ATTEMPTS_MAX}")
        for name in ("deadline", "attempt_timeout", "pause_first", "pause_max", "retry_after_max"):
            # NaN and infinity fail the comparison.
            if not 0 < getattr(self, name) <= SECONDS_MAX:
                raise Invalid(name, f"{name} is a number of seconds, greater than 0")


class Send(Struct, frozen=True):
    """A step: send this call and wait up to `timeout` seconds for the complete response."""

    call: Any
    timeout: float


class Sleep(Struct, frozen=True):
    seconds: float


class DiskWork(Struct, frozen=True):
    """A step: blocking disk work, which an event loop runs in a thread."""

    work: Callable[[], Any]


class StepResult(Struct, frozen=True):
    """The result of a Send or Sleep, and when it ended on a monotonic clock."""

    at: float
    response: ServerResponse | NoResponse | None = None  # None after a Sleep


class CallOutcome(Struct, frozen=True):
    """The last response, and whether an earlier attempt may have been executed unnoticed."""

    response: ServerResponse | NoResponse
    attempts: int
    outcome_unknown: bool
    window_passed: bool = False


T = TypeVar("T")
Operation = Generator[Send | Sleep | DiskWork, Any, T]
RetryFlow = Generator[Send | Sleep, StepResult, CallOutcome]


def send_with_retries(
    call: Any,
    retry: RetryPolicy,
    *,
    begin: float,
    jitter: Callable[[], float],
    may_retry: bool = True,
    window_end: float = float("inf"),
    learned_window_end: Callable[[], float] = lambda: float("inf"),
    outcome_unknown: bool = False,
    accepts: Callable[[ServerResponse], bool] = lambda response: True,
) -> RetryFlow:
    """Send a call until its response is one to keep. `may_retry`: sending it twice has the effect of sending it once.

    A successful response that `accepts` refuses, because it is cut or belongs to another call, counts as none.
    """
    now, deadline, attempt, backoff = begin, begin + retry.deadline, 0, _make_backoff(retry, jitter)
    while True:
        attempt += 1
        # The first attempt may take longer than the window: until it is executed there is nothing to forget.
        stop = min(deadline, window_end) if attempt > 1 or outcome_unknown else deadline
        result = yield Send(call, max(0.001, min(retry.attempt_timeout, stop - now)))
        now, response = result.at, result.response
        assert response is not None
        action = classify(response)
        if action is NextAction.KEEP and isinstance(response, ServerResponse) and not accepts(response):
            action = NextAction.RETRY
            response = NoResponse("the response was incomplete, or not to this call", sent=True)
        # 503 is sent by a server that failed in the middle of the work, and by one that never began it.
        outcome_unknown |= response.sent if isinstance(response, NoResponse) else action is NextAction.RETRY
        again = action is NextAction.RETRY or (action is NextAction.WAIT and retry.waits)
        if not again or attempt == retry.attempts_max or not (may_retry or _was_not_sent(response)):
            return CallOutcome(response, attempt, outcome_unknown)
        window_end = min(window_end, learned_window_end())
        pause = next(backoff) + _requested_pause(response, retry)
        if now + pause >= min(deadline, window_end):
            return CallOutcome(response, attempt, outcome_unknown, window_passed=now + pause >= window_end)
        now = (yield Sleep(pause)).at
        if now >= window_end:
            return CallOutcome(response, attempt, outcome_unknown, window_passed=True)


def _was_not_sent(response: ServerResponse | NoResponse) -> bool:
    return isinstance(response, NoResponse) and not response.sent


def _make_backoff(retry: RetryPolicy, jitter: Callable[[], float]) -> Backoff:
    """With full jitter: a pause lasts any part of its length."""
    return Backoff(retry.pause_first, retry.pause_max, jitter=1.0, random=lambda: 1 - jitter())


def _requested_pause(response: ServerResponse | NoResponse, retry: RetryPolicy) -> float:
    """The server's Retry-After, which the pause comes on top of."""
    requested = retry_after(response) if isinstance(response, ServerResponse) else None
    return 0.0 if requested is None else min(requested, retry.retry_after_max)


def run_blocking(steps: Operation[T], send: Callable[[Send], ServerResponse | NoResponse], clock: Clock) -> T:
    result: Any = None
    try:
        while True:
            step = steps.send(result)
            if isinstance(step, Send):
                response = send(step)
                result = StepResult(clock.monotonic(), response)
            elif isinstance(step, Sleep):
                SystemClock().sleep(step.seconds)
                result = StepResult(clock.monotonic())
            else:
                result = step.work()
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        steps.close()


async def run_async(
    steps: Operation[T], send: Callable[[Send], Awaitable[ServerResponse | NoResponse]], clock: Clock
) -> T:
    result: Any = None
    try:
        while True:
            step = steps.send(result)
            if isinstance(step, Send):
                response = await send(step)
                result = StepResult(clock.monotonic(), response)
            elif isinstance(step, Sleep):
                await asyncio.sleep(step.seconds)
                result = StepResult(clock.monotonic())
            else:
                result = await asyncio.to_thread(step.work)
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        steps.close()
