"""Estimates the server's clock from its last replies, without a round trip.

Every reply contains the server's time at some moment between sending and receiving, which bounds the offset of the
two clocks from both sides. A batch that is decided before it is sent is stamped with the latest time that the
server's clock can show at that moment. So its timestamp is never lower than that of an earlier reply; that it is
not higher than the time of its own reply is ensured by the server (`onejob_stamp`).
"""

from collections.abc import Callable
from typing import NamedTuple

SAMPLE_SECONDS_MAX = 2.0
_KEEP_SECONDS = 1.0
# How fast two clocks may drift apart: the maximum slew rate of NTP.
_DRIFT = 0.0005


class ClockSample(NamedTuple):
    taken_at: float  # seconds of the monotonic clock
    offset_max_ms: float  # the server's milliseconds minus ours, at most
    offset_min_ms: float


class ServerClock:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self._sample: ClockSample | None = None

    def observe(self, server_ms: float, sent_at: float) -> None:
        """Record the server's time in the reply to a message that was sent at `sent_at`."""
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
        """Drop the sample, for example because another server has another clock."""
        self._sample = None

    def latest_ms(self) -> int | None:
        """The latest time that the server's clock can show now; None without a recent sample."""
        if self._sample is None:
            return None
        now = self.monotonic()
        age = now - self._sample.taken_at
        if not 0 <= age < SAMPLE_SECONDS_MAX:
            return None
        return int(now * 1000 + _offset_max_at(self._sample, now))


def _offset_max_at(sample: ClockSample, now: float) -> float:
    """The upper bound of a sample, widened by the drift since it was taken."""
    return sample.offset_max_ms + (now - sample.taken_at) * 1000 * _DRIFT


def _are_consistent(old: ClockSample, new: ClockSample) -> bool:
    """True if both can hold; if not, a clock was set."""
    return old.offset_min_ms <= new.offset_max_ms + 1 and new.offset_min_ms <= old.offset_max_ms + 1
