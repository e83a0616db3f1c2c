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

_LOCK_POLL_SECONDS_FIRST = 0.0002
_LOCK_POLL_SECONDS_MAX = 0.002


class FairFileLock:
    def __init__(self, path: str, *, timeout: float) -> None:
        self._timeout = timeout
        self._queue_fd = _open_lock_file(path + "-next")
        self._lock_fd = _open_lock_file(path + "-turn")

    @contextmanager
    def acquire(self) -> Iterator[None]:
        self._lock(self._queue_fd)
        try:
            self._lock(self._lock_fd)
        finally:
            fcntl.flock(self._queue_fd, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._queue_fd)
        os.close(self._lock_fd)

    def _lock(self, file: int) -> None:
        if _try_lock(file):
            return
        clock = SystemClock()
        until = clock.monotonic() + self._timeout
        pause = _LOCK_POLL_SECONDS_FIRST
        while not _try_lock(file):
            if clock.monotonic() > until:
                raise Unavailable(
                    f"another process has held the store's turn for {self._timeout:.0f} s; "
                    "see whether it hangs, then repeat"
                )
            clock.sleep(pause)
            pause = min(pause * 2, _LOCK_POLL_SECONDS_MAX)


def _open_lock_file(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
