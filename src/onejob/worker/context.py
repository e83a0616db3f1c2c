"""What a handler is told of its job, and may tell of it. Every method may be called from any thread."""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Mapping
from datetime import datetime, timedelta
from typing import Any

from onejob.core.states import Delivery
from onejob.ledger.work import Attempt, checked_progress, truncated_line

# What a handler may raise to say more than that it failed.


class Fatal(Exception):
    """The job has failed, and no further attempt would help. The message is kept with the job."""


class Retry(Exception):
    """This attempt has failed; try again after so long, if attempts are left. The message is kept with the job."""

    def __init__(self, message: str = "", *, after: timedelta | float | None = None) -> None:
        super().__init__(message)
        if isinstance(after, (int, float)):
            after = timedelta(seconds=after)
        if after is not None and after < timedelta(0):
            raise ValueError("a job is not tried again in the past; give a length of time from now on")
        self.after = after


class AttemptCancelled(Exception):
    """The job is not this worker's any more: it was cancelled, or its lease was lost. Stop."""


PENDING_LINES_MAX = 1000  # waiting to be told: as many as are kept of a job


class Context:
    def __init__(self, attempt: Attempt, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self._attempt = attempt
        self._loop = loop
        self._wake = wake  # have what is new told soon
        self._cancelled = asyncio.Event()
        self.pending_updates = PendingUpdates(attempt.job_row.logs)

    @property
    def job_id(self) -> str:
        """Hand it on as the idempotency key of what you call: it is the same in every attempt."""
        return self._attempt.job_id

    @property
    def token(self) -> int:
        """Grows with every attempt: a store that compares it refuses whoever comes too late."""
        return self._attempt.token

    @property
    def attempt(self) -> int:
        """1 for the first."""
        return self._attempt.job_row.attempts

    @property
    def type(self) -> str:
        return self._attempt.job_row.type

    @property
    def tenant(self) -> str:
        return self._attempt.job_row.tenant

    @property
    def user(self) -> str:
        return self._attempt.job_row.user

    @property
    def key(self) -> str | None:
        return self._attempt.job.key

    @property
    def labels(self) -> Mapping[str, str]:
        return self._attempt.job.labels

    @property
    def delivery(self) -> Delivery:
        return self._attempt.job_row.delivery

    @property
    def deadline(self) -> datetime | None:
        """When the time of this attempt is over; None: there is no limit."""
        return self._attempt.deadline

    @property
    def cancelled(self) -> bool:
        """The job is not yours any more, or the worker leaves: stop soon."""
        return self._cancelled.is_set()

    async def wait_cancelled(self) -> None:
        await self._cancelled.wait()

    def log(self, line: str) -> None:
        """Append a line to the job's log; told within a second, and each line once."""
        self._run_on_loop(lambda: self.pending_updates.add_line(str(line)))

    def progress(self, value: object) -> "ProgressAck":
        """Tell how far the job is: anything short that is JSON. Await it to know that it is stored."""
        text = checked_progress(value, self._attempt.job_row)
        told: asyncio.Future[None] = self._loop.create_future()
        told.add_done_callback(_consume_exception)
        self._run_on_loop(lambda: self.pending_updates.set_progress(text, told))
        return ProgressAck(told)

    def _run_on_loop(self, action: Callable[[], None]) -> None:
        def acted() -> None:
            action()
            self._wake()

        try:
            near = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            near = False
        if near:
            acted()
        else:
            self._loop.call_soon_threadsafe(acted)

    def cancel(self) -> None:
        """For the worker: the handler should stop."""
        self._cancelled.set()
        self.pending_updates.fail_waiters()


class ProgressAck:
    """Of progress that is on its way; need not be awaited."""

    def __init__(self, stored: "asyncio.Future[None]") -> None:
        self._stored = stored

    def __await__(self) -> Generator[Any, None, None]:
        yield from asyncio.shield(self._stored).__await__()


class PendingUpdates:
    """What a handler has said and the store has not heard."""

    def __init__(self, offset: int) -> None:
        self.offset = offset  # how many lines are stored
        self.lines: deque[str] = deque()
        self.progress = ""
        self.progress_waiters: list[asyncio.Future[None]] = []

    def __bool__(self) -> bool:
        return bool(self.lines or self.progress)

    def add_line(self, line: str) -> None:
        if len(self.lines) < PENDING_LINES_MAX:
            self.lines.append(truncated_line(line))

    def set_progress(self, progress: str, stored: "asyncio.Future[None]") -> None:
        self.progress = progress
        self.progress_waiters.append(stored)

    def mark_stored(self, lines: int, progress: str, progress_waiters: "list[asyncio.Future[None]]") -> None:
        """The store has so many lines more, and this progress."""
        for _ in range(lines):
            self.lines.popleft()
        self.offset += lines
        if self.progress == progress:
            self.progress = ""
        for told in progress_waiters:
            self.progress_waiters.remove(told)
            if not told.done():
                told.set_result(None)

    def fail_waiters(self) -> None:
        for told in self.progress_waiters:
            if not told.done():
                told.set_exception(AttemptCancelled("the job is not this worker's any more; stop"))
        self.progress_waiters.clear()


def _consume_exception(stored: "asyncio.Future[None]") -> None:
    if not stored.cancelled():
        stored.exception()  # whoever did not wait for it does not want to know
