"""Clocks: the system's, a fake one for tests, and engine time. No other file reads the time."""

import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Protocol

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NS_PER_SECOND = 1_000_000_000
_NS_PER_MS = 1_000_000


class Clock(Protocol):
    """Monotonic seconds, which never step back, and wall-clock milliseconds, which may."""

    def monotonic(self) -> float: ...

    def wall_ms(self) -> int: ...


class SystemClock:
    def __init__(self) -> None:
        # Attributes, so that a call reaches the C function directly: they are called several times per request.
        self.monotonic = _seconds_since_boot()
        self.wall_ns = time.time_ns

    def wall_ms(self) -> int:
        return time.time_ns() // _NS_PER_MS

    def thread_cpu(self) -> float:
        """Seconds of processor time of this thread."""
        return time.thread_time()

    def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(seconds)


class FakeClock:
    """A clock for tests, which moves only when a method moves it."""

    def __init__(self, *, monotonic: float = 1_000.0, wall_ms: int = 1_700_000_000_000) -> None:
        # Integer nanoseconds, so that a thousand steps of a millisecond are exactly a second.
        self._monotonic_ns = round(monotonic * _NS_PER_SECOND)
        self._wall_ns = wall_ms * _NS_PER_MS

    def monotonic(self) -> float:
        return self._monotonic_ns / _NS_PER_SECOND

    def wall_ms(self) -> int:
        return self._wall_ns // _NS_PER_MS

    def advance(self, seconds: float | timedelta) -> None:
        """Advance both clocks."""
        seconds = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        assert seconds >= 0, "time does not run backwards; jump_wall steps the wall clock"
        self._monotonic_ns += round(seconds * _NS_PER_SECOND)
        self._wall_ns += round(seconds * _NS_PER_SECOND)

    def jump_wall(self, ms: int) -> None:
        """Step the wall clock in either direction, but not the monotonic clock."""
        self._wall_ns += ms * _NS_PER_MS

    def set_wall(self, wall_ms: int) -> None:
        """Set the wall clock, but not the monotonic clock."""
        self._wall_ns = wall_ms * _NS_PER_MS

    def set_monotonic(self, seconds: float) -> None:
        """Set the monotonic clock, as a reboot does."""
        self._monotonic_ns = round(seconds * _NS_PER_SECOND)


def wall_offset_ms(clock: Clock) -> int:
    """The offset from the monotonic clock to the wall clock, as both are now."""
    return clock.wall_ms() - _to_ms(clock.monotonic())


def make_engine_clock(clock: Clock, offset_ms: int) -> Callable[[], int]:
    """A function that returns engine time: wall-clock milliseconds that ignore later steps of the wall clock."""
    monotonic = clock.monotonic
    return lambda: offset_ms + round(monotonic() * 1e6) // 1000  # as `_to_ms`, without the call


def boot_id() -> str | None:
    """The id of this boot, during which the monotonic clock is valid; None if the system has none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _seconds_since_boot() -> Callable[[], float]:
    """The clock that runs on during suspend and is shared by all processes of a boot."""
    boottime: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    if boottime is None:
        return time.monotonic
    try:
        time.clock_gettime(boottime)
    except OSError:
        # Some sandboxes define the constant but deny the clock.
        return time.monotonic
    return partial(time.clock_gettime, boottime)


def _to_ms(seconds: float) -> int:
    # Via microseconds, because 1.001 * 1000 is slightly less than 1001.
    return round(seconds * 1e6) // 1000
