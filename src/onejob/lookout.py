"""Waiting for what others do: for jobs to be ready, for a server to leave. Bounded, and looked at once for all."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from .engine import Engine
from .errors import OnejobError
from .handing import ready

PAUSE_FIRST = 0.05
PAUSE_MAX = 1.0
WAITERS_MAX = 1000


class TooManyWaiters(OnejobError):
    """Not now: others wait."""

    retryable = True


class _Sight:
    """One look at the store for all who wait for the same."""

    def __init__(self) -> None:
        self.waiters = 0
        self.news = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class Lookout:
    def __init__(self, engine: Engine, *, waiters_max: int = WAITERS_MAX) -> None:
        self._engine = engine
        self._waiters_max = waiters_max
        self._tenants: Counter[str] = Counter()
        self._sights: dict[tuple[str, tuple[str, ...]], _Sight] = {}
        self._leaving = asyncio.Event()

    @property
    def waiters(self) -> int:
        return self._tenants.total()

    @property
    def leaving(self) -> bool:
        """The server goes: whoever waits is let go, and nobody should begin to."""
        return self._leaving.is_set()

    def release(self) -> None:
        self._leaving.set()
        for sight in self._sights.values():
            sight.news.set()

    async def left(self) -> None:
        """Returns when the server is about to leave."""
        await self._leaving.wait()

    @contextmanager
    def waiting(self, tenant: str) -> Iterator[None]:
        """A place among those who wait."""
        own = self._tenants[tenant] + 1
        if self.waiters >= self._waiters_max or own * 2 > self._waiters_max + 1:
            raise TooManyWaiters("too many wait here; come back later, or ask without waiting")
        self._tenants[tenant] = own
        try:
            yield
        finally:
            self._tenants[tenant] -= 1
            self._tenants += Counter()  # drops the tenants without a waiter

    async def jobs(self, tenant: str, types: tuple[str, ...], seconds: float) -> None:
        """Wait until there may be jobs of these types, for so long at most, or until the server leaves."""
        if self.leaving:
            return
        place = (tenant, tuple(sorted(types)))
        sight = self._sights.setdefault(place, _Sight())
        sight.waiters += 1
        if sight.task is None:
            sight.task = asyncio.get_running_loop().create_task(self._look(sight, *place))
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await sight.news.wait()
        finally:
            sight.waiters -= 1
            if not sight.waiters and self._sights.get(place) is sight:
                del self._sights[place]
                sight.task.cancel()

    async def _look(self, sight: _Sight, tenant: str, types: tuple[str, ...]) -> None:
        pause = PAUSE_FIRST
        while True:
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_MAX)
            with suppress(OnejobError):  # what is not known has not changed
                if await ready(self._engine, tenant, types, 1):
                    sight.news.set()
                    sight.news = asyncio.Event()
