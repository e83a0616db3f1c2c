"""Places for those who wait at an edge: bounded, half of them for one tenant, and let go when the process leaves."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from .errors import OnejobError

WAITERS_MAX = 1000


class TooManyWaiters(OnejobError):
    """Not now: others wait."""

    retryable = True


class Waiters:
    def __init__(self, *, waiters_max: int = WAITERS_MAX) -> None:
        self._waiters_max = waiters_max
        self._tenants: Counter[str] = Counter()
        self._shutdown = asyncio.Event()

    @property
    def count(self) -> int:
        return self._tenants.total()

    @property
    def is_shutting_down(self) -> bool:
        """The server goes: whoever waits is let go, and nobody should begin to."""
        return self._shutdown.is_set()

    def release(self) -> None:
        self._shutdown.set()

    async def wait_for_shutdown(self) -> None:
        """Returns when the server is about to leave."""
        await self._shutdown.wait()

    @contextmanager
    def admit(self, tenant: str) -> Iterator[None]:
        """A place among those who wait."""
        own = self._tenants[tenant] + 1
        if self.count >= self._waiters_max or own * 2 > self._waiters_max + 1:
            raise TooManyWaiters("too many wait here; come back later, or ask without waiting")
        self._tenants[tenant] = own
        try:
            yield
        finally:
            self._tenants[tenant] -= 1
            self._tenants += Counter()  # drops the tenants without a waiter
