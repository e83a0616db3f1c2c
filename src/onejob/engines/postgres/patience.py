"""How long whoever waits is kept waiting: one timer for all that is under way, which goes on when it has run out."""

import asyncio
from collections.abc import Callable

from .attempt import CallState

_IDLE_POLL_SECONDS = 0.01
OnTimeout = Callable[[Exception], None]


class TimeoutWatchdog:
    """The work under way, each with until when it is waited for and how to tell who waits."""

    def __init__(self, timeout_error: Callable[[CallState], Exception]) -> None:
        self._timeout_error = timeout_error
        self._calls: dict[CallState, tuple[float, OnTimeout]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0  # when the timer runs out

    def begin(self, call: CallState, seconds: float, on_timeout: OnTimeout) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        self._calls[call] = until, on_timeout
        if self._timer is None or until < self._timer_due:
            self._set_timer(loop, until)

    def end(self, call: CallState) -> None:
        del self._calls[call]

    def __bool__(self) -> bool:
        return bool(self._calls)

    async def wait_until_idle(self, seconds: float) -> None:
        """Wait until nothing is under way that somebody waits for, but no longer than that."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not all(one.timed_out for one in self._calls) and loop.time() < until:  # noqa: ASYNC110 - once
            await asyncio.sleep(_IDLE_POLL_SECONDS)
        if self._timer is not None:
            self._timer.cancel()

    def _on_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """The timer has run out for the first that it was set for; most often that has ended long ago."""
        now, self._timer = max(loop.time(), self._timer_due), None  # a timer may run out a little early
        late = [one for one, (until, _) in self._calls.items() if until <= now and not one.timed_out]
        for attempt in late:
            attempt.timed_out = True
            self._calls[attempt][1](self._timeout_error(attempt))
        next_one = min((until for until, _ in self._calls.values() if until > now), default=None)
        if next_one is not None:
            self._set_timer(loop, next_one)

    def _set_timer(self, loop: asyncio.AbstractEventLoop, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_due = loop.call_at(until, self._on_timer, loop), until
