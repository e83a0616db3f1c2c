"""How long whoever waits is kept waiting: one timer for all that is under way, which goes on when it has run out."""

import asyncio
from collections.abc import Callable

from .attempt import Attempt

_PAUSE = 0.01
GiveUp = Callable[[Exception], None]


class Patience:
    """The work under way, each with until when it is waited for and how to tell who waits."""

    def __init__(self, truth: Callable[[Attempt], Exception]) -> None:
        self._truth = truth
        self._waiting: dict[Attempt, tuple[float, GiveUp]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # when the timer runs out

    def begin(self, attempt: Attempt, seconds: float, give_up: GiveUp) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        self._waiting[attempt] = until, give_up
        if self._timer is None or until < self._due:
            self._set(loop, until)

    def end(self, attempt: Attempt) -> None:
        del self._waiting[attempt]

    def __bool__(self) -> bool:
        return bool(self._waiting)

    async def over(self, seconds: float) -> None:
        """Wait until nothing is under way that somebody waits for, but no longer than that."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not all(one.given_up for one in self._waiting) and loop.time() < until:  # noqa: ASYNC110 - once
            await asyncio.sleep(_PAUSE)
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """The timer has run out for the first that it was set for; most often that has ended long ago."""
        now, self._timer = max(loop.time(), self._due), None  # a timer may run out a little early
        late = [one for one, (until, _) in self._waiting.items() if until <= now and not one.given_up]
        for attempt in late:
            attempt.given_up = True
            self._waiting[attempt][1](self._truth(attempt))
        next_one = min((until for until, _ in self._waiting.values() if until > now), default=None)
        if next_one is not None:
            self._set(loop, next_one)

    def _set(self, loop: asyncio.AbstractEventLoop, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due = loop.call_at(until, self._look, loop), until
