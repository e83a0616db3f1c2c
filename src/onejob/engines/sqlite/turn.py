"""A fair turn between processes that write one file.

SQLite's own waiting is a lottery: whoever polls at the right moment wins, and a busy process starves the
others. Here a process takes the place of the next in line, then the turn, and gives up the place only when it
has the turn. The one that just wrote must queue behind whoever holds the place. The kernel drops both locks
when a process dies.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from onejob.clock import SystemClock
from onejob.errors import Unavailable

_WAIT_FIRST = 0.0002
_WAIT_MAX = 0.002


class Turn:
    def __init__(self, path: str, *, timeout: float) -> None:
        self._timeout = timeout
        self._next = _opened(path + "-next")
        self._turn = _opened(path + "-turn")

    @contextmanager
    def taken(self) -> Iterator[None]:
        self._lock(self._next)
        try:
            self._lock(self._turn)
        finally:
            fcntl.flock(self._next, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._turn, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._next)
        os.close(self._turn)

    def _lock(self, file: int) -> None:
        if _try(file):
            return
        clock = SystemClock()
        until = clock.monotonic() + self._timeout
        pause = _WAIT_FIRST
        while not _try(file):
            if clock.monotonic() > until:
                raise Unavailable(
                    f"another process has held the store's turn for {self._timeout:.0f} s; "
                    "see whether it hangs, then repeat"
                )
            clock.sleep(pause)
            pause = min(pause * 2, _WAIT_MAX)


def _opened(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
