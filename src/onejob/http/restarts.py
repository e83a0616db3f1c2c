"""When a worker that died is started again: at once, unless it keeps dying young; and when that is hopeless."""

from typing import Final

STEADY_SECONDS: Final = 5.0  # who was ready and lived so long did not die young
PAUSE_SECONDS_MIN: Final = 0.5
PAUSE_SECONDS_MAX: Final = 15.0
FAILED_STARTS_MAX: Final = 3  # of each worker, in a row, while none is ready


class Restarts:
    def __init__(self, workers: int) -> None:
        self._young = dict.fromkeys(range(1, workers + 1), 0)  # deaths in a row
        self._failed = 0  # starts since one of them was last ready

    def ready(self) -> None:
        self._failed = 0

    def pause(self, number: int, *, lived: float, ready: bool) -> float:
        """A worker died: how many seconds to wait before it is started again."""
        self._failed += not ready
        if ready and lived >= STEADY_SECONDS:
            self._young[number] = 0
        deaths = self._young[number]
        self._young[number] += 1
        return min(PAUSE_SECONDS_MAX, PAUSE_SECONDS_MIN * 2 ** (deaths - 1)) if deaths else 0.0

    @property
    def hopeless(self) -> bool:
        """Since a worker was last ready, all of them were tried again and again."""
        return self._failed >= FAILED_STARTS_MAX * len(self._young)
