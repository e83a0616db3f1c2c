"""The server's clock, as far as it can be known without asking.

Every answer tells the server's time at some moment between sending and receiving, which bounds the difference of
the two clocks from both sides. A batch that is decided before it is sent is dated with the latest that the
server's clock can be at that moment: so it is never dated before anything that was answered before. That it is
not dated after its own answer, the server sees to (`onejob_stamp`).
"""

from collections.abc import Callable
from typing import NamedTuple

SAMPLE_SECONDS_MAX = 2.0
_KEEP_SECONDS = 1.0
# What two clocks may drift apart: twice what NTP slews at most.
_DRIFT = 0.0005


class ClockSample(NamedTuple):
    taken_at: float  # seconds of our clock
    offset_max_ms: float  # the server's milliseconds less ours: no more than this, and no less than that
    offset_min_ms: float


class ServerClock:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self._sample: ClockSample | None = None

    def observe(self, server_ms: float, sent_at: float) -> None:
        """The server said its time in answer to what was sent then."""
        now = self.monotonic()
        new = ClockSample(now, server_ms - sent_at * 1000, server_ms - now * 1000)
        old = self._sample
        if (
            old is None
            or now - old.taken_at > _KEEP_SECONDS
            or new.offset_max_ms <= _offset_max_at(old, now)
            or not _are_consistent(old, new)
        ):
            self._sample = new

    def forget(self) -> None:
        """Another server has another clock."""
        self._sample = None

    def latest_ms(self) -> int | None:
        """The latest that it can be there; None when it was not heard of lately."""
        if self._sample is None:
            return None
        now = self.monotonic()
        age = now - self._sample.taken_at
        if not 0 <= age < SAMPLE_SECONDS_MAX:
            return None
        return int(now * 1000 + _offset_max_at(self._sample, now))


def _offset_max_at(sample: ClockSample, now: float) -> float:
    """What a sample says of the latest, after what the clocks may have drifted apart since it was taken."""
    return sample.offset_max_ms + (now - sample.taken_at) * 1000 * _DRIFT


def _are_consistent(old: ClockSample, new: ClockSample) -> bool:
    """Whether both can be true: if not, a clock was set."""
    return old.offset_min_ms <= new.offset_max_ms + 1 and new.offset_min_ms <= old.offset_max_ms + 1
