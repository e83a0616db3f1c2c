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


class Sample(NamedTuple):
    taken: float  # seconds of our clock
    latest: float  # the server's milliseconds less ours: no more than this, and no less than that
    earliest: float


class ServerClock:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self._sample: Sample | None = None

    def heard(self, clock: float, sent: float) -> None:
        """The server said its time in answer to what was sent then."""
        now = self.monotonic()
        new = Sample(now, clock - sent * 1000, clock - now * 1000)
        old = self._sample
        if (
            old is None
            or now - old.taken > _KEEP_SECONDS
            or new.latest <= _by_now(old, now)
            or not _agree(old, new)
        ):
            self._sample = new

    def forget(self) -> None:
        """Another server has another clock."""
        self._sample = None

    def latest(self) -> int | None:
        """The latest that it can be there; None when it was not heard of lately."""
        if self._sample is None:
            return None
        now = self.monotonic()
        age = now - self._sample.taken
        if not 0 <= age < SAMPLE_SECONDS_MAX:
            return None
        return int(now * 1000 + _by_now(self._sample, now))


def _by_now(sample: Sample, now: float) -> float:
    """What a sample says of the latest, after what the clocks may have drifted apart since it was taken."""
    return sample.latest + (now - sample.taken) * 1000 * _DRIFT


def _agree(old: Sample, new: Sample) -> bool:
    """Whether both can be true: if not, a clock was set."""
    return old.earliest <= new.latest + 1 and new.earliest <= old.latest + 1
