"""Deaths at named points: a process ends itself as `kill -9` would, so that a test can look at what is left."""

import os
import signal
from collections.abc import Callable

Kill = Callable[[], None]


def die() -> None:
    """End this process now: no handler runs, nothing is flushed."""
    os.kill(os.getpid(), signal.SIGKILL)


class KillPoints:
    """Reached points are counted; the one that was chosen kills. `at=None` only counts, to learn how many there are."""

    def __init__(self, at: int | None = None, *, kill: Kill = die) -> None:
        self._at = at
        self._kill = kill
        self.reached: list[str] = []

    def reach(self, name: str) -> None:
        self.reached.append(name)
        if self._at is not None and len(self.reached) == self._at:
            self._kill()
