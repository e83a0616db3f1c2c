"""The only file that asks the time."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NS_PER_SECOND = 1_000_000_000
_NS_PER_MS = 1_000_000


class Clock(Protocol):
    """What may be asked: seconds that only grow, and the wall's milliseconds, which jump."""

    def monotonic(self) -> float: ...

    def wall_ms(self) -> int: ...


class SystemClock:
    """The machine's own clocks."""

    def __init__(self) -> None:
        # As an attribute it is the system's own function: it is asked several times for every request.
        self.monotonic = _seconds_since_boot()

    def wall_ms(self) -> int:
        return time.time_ns() // _NS_PER_MS

    def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(seconds)


class FakeClock:
    """A clock for tests: it stands still until it is told to move."""

    def __init__(self, *, monotonic: float = 1_000.0, wall_ms: int = 1_700_000_000_000) -> None:
        # Whole nanoseconds, so that a thousand steps of a millisecond are exactly a second.
        self._monotonic_ns = round(monotonic * _NS_PER_SECOND)
        self._wall_ns = wall_ms * _NS_PER_MS

    def monotonic(self) -> float:
        return self._monotonic_ns / _NS_PER_SECOND

    def wall_ms(self) -> int:
        return self._wall_ns // _NS_PER_MS

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        assert seconds >= 0, "time does not run backwards; jump_wall steps the wall clock"
        self._monotonic_ns += round(seconds * _NS_PER_SECOND)
        self._wall_ns += round(seconds * _NS_PER_SECOND)

    def jump_wall(self, ms: int) -> None:
        """Step the wall clock, in either direction; the monotonic clock does not notice."""
        self._wall_ns += ms * _NS_PER_MS

    def set_wall(self, wall_ms: int) -> None:
        """Set the wall clock; the monotonic clock does not notice."""
        self._wall_ns = wall_ms * _NS_PER_MS

    def set_monotonic(self, seconds: float) -> None:
        """Set the monotonic clock, as a restart of the machine does."""
        self._monotonic_ns = round(seconds * _NS_PER_SECOND)


def wall_offset_ms(clock: Clock) -> int:
    """Give the offset in ms that ties the monotonic clock to the wall clock as they stand now."""
    return clock.wall_ms() - _to_ms(clock.monotonic())


def make_engine_clock(clock: Clock, offset_ms: int) -> Callable[[], int]:
    """Give a reader of engine time: milliseconds that later steps of the wall clock do not move."""
    monotonic = clock.monotonic
    return lambda: offset_ms + _to_ms(monotonic())


def boot_id() -> str | None:
    """Name this boot of the machine, the life of its monotonic clock; None where there is no such name."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _seconds_since_boot() -> Callable[[], float]:
    """Choose the clock that goes on during suspend and is shared by all processes of a boot."""
    boottime: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    if boottime is None:
        return time.monotonic
    try:
        time.clock_gettime(boottime)
    except OSError:
        # Some sandboxes have the name but not the clock.
        return time.monotonic
    return partial(time.clock_gettime, boottime)


def _to_ms(seconds: float) -> int:
    # By way of microseconds, for 1.001 * 1000 is a little less than 1001.
    return round(seconds * 1e6) // 1000
