"""The worker threads of the SQLite engine, and the file lock between processes that write one file."""

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from onejob.clock import SystemClock
from onejob.errors import Unavailable

T = TypeVar("T")
_LOCK_POLL_SECONDS_FIRST = 0.0002
_LOCK_POLL_SECONDS_MAX = 0.002


class FairFileLock:
    """A fair lock between the processes that write one file.

    SQLite's busy handler polls, so a busy process starves the others. Here a process locks the queue file, then the
    lock file, and unlocks the queue file only when it has both: a process that has just written must queue behind the one
    that waits. The kernel releases both locks when a process dies.
    """

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
                    f"another process has held the write lock for {self._timeout:.0f} s; "
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


class WorkerThread:
    """Runs blocking calls off the event loop, in order. Cancelling a caller does not stop its call."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                result = work(*args)
            except BaseException as error:  # noqa: BLE001 - the caller gets it
                _call_in_loop(loop, _set_exception, future, error)
            else:
                _call_in_loop(loop, _set_result, future, result)

        self._calls.put(run)
        return future

    async def aclose(self) -> None:
        self._calls.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


def _call_in_loop(loop: asyncio.AbstractEventLoop, work: Callable[..., None], *args: Any) -> None:
    # If the loop was closed meanwhile, no caller is left.
    if not loop.is_closed():
        loop.call_soon_threadsafe(work, *args)


def _set_result(future: "asyncio.Future[T]", result: T) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: "asyncio.Future[T]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
