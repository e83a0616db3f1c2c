"""When a worker that died is started again: at once, unless it keeps dying young; and when that is hopeless."""

from typing import Final

STABLE_UPTIME_SECONDS: Final = 5.0  # who was ready and lived so long did not die young
BACKOFF_SECONDS_MIN: Final = 0.5
BACKOFF_SECONDS_MAX: Final = 15.0
FAILED_STARTS_MAX: Final = 3  # of each worker, in a row, while none is ready


class RestartBackoff:
    def __init__(self, workers: int) -> None:
        self._early_exits = dict.fromkeys(range(1, workers + 1), 0)  # deaths in a row
        self._failed_starts = 0  # starts since one of them was last ready

    def reset_failed_starts(self) -> None:
        self._failed_starts = 0

    def next_delay(self, number: int, *, uptime_seconds: float, ready: bool) -> float:
        """A worker died: how many seconds to wait before it is started again."""
        self._failed_starts += not ready
        if ready and uptime_seconds >= STABLE_UPTIME_SECONDS:
            self._early_exits[number] = 0
        deaths = self._early_exits[number]
        self._early_exits[number] += 1
        return min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN * 2 ** (deaths - 1)) if deaths else 0.0

    @property
    def should_give_up(self) -> bool:
        """Since a worker was last ready, all of them were tried again and again."""
        return self._failed_starts >= FAILED_STARTS_MAX * len(self._early_exits)
