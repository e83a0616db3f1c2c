"""An open load: requests come at moments that were drawn beforehand, whether or not earlier ones are answered.

Latencies count from the moment at which a request was due, so that a stall is seen by everybody who would have arrived
during it (no coordinated omission). The intervals have an exponential distribution, as those of many independent callers.
"""

import asyncio
import ctypes
import os
import random
import struct
import sys
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, NamedTuple

GRACE_SECONDS = 5.0  # for answers that are missing when the last request was sent
_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1
_START_SECONDS = 0.02


class OpenRun(NamedTuple):
    """Seconds of each request from when it was due, and how many were not answered in time."""

    latencies: list[float]
    late: int


async def offer(submit: Callable[[], Awaitable[Any]], rate: float, seconds: float, rng: random.Random) -> OpenRun:
    """Start `submit` at random moments, `rate` times a second on average."""
    due = _draw_arrivals(rate, seconds, rng)
    latencies: list[float] = []
    tasks: set[asyncio.Task[None]] = set()

    async def run(moment: float) -> None:
        await submit()
        latencies.append(monotonic() - moment)

    def start(moment: float) -> None:
        task = asyncio.ensure_future(run(moment))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    await _at_each(due, start)
    unanswered = tasks.copy()
    if unanswered:
        await asyncio.wait(unanswered, timeout=GRACE_SECONDS)
    failed = len(due) - len(latencies)
    for task in tasks.copy():
        task.cancel()
    # A request without an answer took at least until now.
    return OpenRun(latencies + [monotonic() - due[-1]] * failed, failed)


def _draw_arrivals(rate: float, seconds: float, rng: random.Random) -> list[float]:
    moment = monotonic() + _START_SECONDS
    end = moment + seconds
    found = [moment]
    while (moment := moment + rng.expovariate(rate)) < end:
        found.append(moment)
    return found


async def _at_each(moments: list[float], start: Callable[[float], None]) -> None:
    """Call `start` at each of these moments, a few microseconds late: event loops round their own timers to milliseconds."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    timer = _Timer()
    position = 0

    def on_time() -> None:
        nonlocal position
        timer.read()
        now = monotonic()
        while position < len(moments) and moments[position] <= now:
            start(moments[position])
            position += 1
        if position < len(moments):
            timer.set(moments[position])
        elif not ended.done():
            ended.set_result(None)

    loop.add_reader(timer.fd, on_time)
    timer.set(moments[0])
    try:
        await ended
    finally:
        loop.remove_reader(timer.fd)
        timer.close()


class _Timer:
    """Linux's timerfd, which Python has from 3.13 on."""

    def __init__(self) -> None:
        if not sys.platform.startswith("linux"):
            raise RuntimeError("open loads need timers of Linux; run this benchmark there")
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def set(self, moment: float) -> None:
        nanoseconds = max(int(moment * 1e9), 1)
        setting = struct.pack("=qqqq", 0, 0, *divmod(nanoseconds, 10**9))
        if self._libc.timerfd_settime(self.fd, _ABSOLUTE, setting, None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def read(self) -> None:
        os.read(self.fd, 8)

    def close(self) -> None:
        os.close(self.fd)
