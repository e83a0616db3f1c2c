"""An event loop on a clock of our own: when everybody waits, time jumps to whoever wakes first."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

from onejob.clock import FakeClock

_TICK = 1e-9


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: FakeClock) -> None:
        self._fake = clock
        super().__init__(_TimeSkippingSelector(clock))

    def time(self) -> float:
        return self._fake.monotonic()


class _TimeSkippingSelector(selectors.DefaultSelector):
    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout != 0:
            assert timeout is not None, "everybody waits, and nobody will ever wake"
            self._clock.advance(max(timeout, _TICK))
        return ready


def in_virtual_time(test: Callable[[FakeClock], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test on a virtual loop; it gets the clock."""

    def run() -> None:
        clock = FakeClock()
        with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
            runner.run(test(clock))

    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    return run
