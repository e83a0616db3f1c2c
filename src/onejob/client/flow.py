"""When to send again: one generator without I/O, driven by every client."""

# The rules of this file:
# 1. It never sends, sleeps or looks at a clock: it yields what is to be done, and is handed the time.
# 2. What is sent again is the very same call. Nothing here can change a key or a byte.
# 3. After `window_end` nothing is sent: the server may have forgotten the key, and a repetition would be a new job.
# 4. "No answer" is never "not done". Only an attempt of which not a byte was sent leaves no doubt.

from collections.abc import Callable, Generator
from typing import Any, Final

from msgspec import Struct

from onejob.errors import Invalid

from .judged import Act, Answer, Lost, judged, retry_after

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


class Heard(Struct, frozen=True):
    """What came of it, and when, on a clock that only grows."""

    at: float
    said: Answer | Lost | None = None  # None: a sleep is over


class Ended(Struct, frozen=True):
    """The last that was heard, and whether the call may have been executed without our knowing."""

    said: Answer | Lost
    attempts: int
    doubtful: bool
    window_passed: bool = False


Flow = Generator[Send | Sleep, Heard, Ended]


def flow(
    call: Any,
    retry: RetryPolicy,
    *,
    begin: float,
    chance: Callable[[], float],
    repeat: bool = True,
    window_end: float = float("inf"),
    doubtful: bool = False,
    fits: Callable[[Answer], bool] = lambda answer: True,
) -> Flow:
    """Send a call until its answer is one to keep. `repeat`: sending it twice cannot do a second thing.

    An answer that does not fit the call, cut short or meant for another one, is as good as none.
    """
    now, stop = begin, min(begin + retry.deadline, window_end)
    attempt = 0
    while True:
        attempt += 1
        heard = yield Send(call, max(0.001, min(retry.attempt_timeout, stop - now)))
        now, said = heard.at, heard.said
        assert said is not None
        act = judged(said)
        if act is Act.KEEP and isinstance(said, Answer) and not fits(said):
            act, said = Act.RETRY, Lost("the answer was not whole, or not to this call", sent=True)
        # A server away in the middle of its work and one that never began say the same: 503.
        doubtful |= said.sent if isinstance(said, Lost) else act is Act.RETRY
        again = act is Act.RETRY or (act is Act.WAIT and retry.waits)
        if not again or attempt == retry.attempts_max or not (repeat or _unsent(said)):
            return Ended(said, attempt, doubtful)
        pause = _pause(said, attempt, retry, chance())
        if now + pause >= stop:
            passed = now + pause >= window_end
            return Ended(said, attempt, doubtful, passed)
        now = (yield Sleep(pause)).at
        if now >= window_end:
            return Ended(said, attempt, doubtful, window_passed=True)


def _unsent(said: Answer | Lost) -> bool:
    return isinstance(said, Lost) and not said.sent


def _pause(said: Answer | Lost, attempt: int, retry: RetryPolicy, chance: float) -> float:
    """Grows with every attempt, spread by chance over its whole length; never shorter than the server asked."""
    grown: float = min(retry.pause_max, retry.pause_first * 2.0 ** min(attempt - 1, 60))
    told = retry_after(said) if isinstance(said, Answer) else None
    return chance * grown + (0.0 if told is None else min(told, retry.retry_after_max))
