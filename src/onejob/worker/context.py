"""What a handler is told of its job, and may tell of it. Every method may be called from any thread."""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Mapping
from datetime import datetime
from typing import Any

from onejob.core.attempts import Attempt, checked_progress, cut
from onejob.core.states import Delivery

from .verdicts import Outdone

LINES_MAX = 1000  # waiting to be told: as many as are kept of a job


class Context:
    def __init__(self, attempt: Attempt, loop: asyncio.AbstractEventLoop, stir: Callable[[], None]) -> None:
        self._attempt = attempt
        self._loop = loop
        self._stir = stir  # have what is new told soon
        self._cancelled = asyncio.Event()
        self.untold = Untold(attempt.head.logs)

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
        return self._attempt.head.attempts

    @property
    def type(self) -> str:
        return self._attempt.head.type

    @property
    def tenant(self) -> str:
        return self._attempt.head.tenant

    @property
    def user(self) -> str:
        return self._attempt.head.user

    @property
    def key(self) -> str | None:
        return self._attempt.job.key

    @property
    def labels(self) -> Mapping[str, str]:
        return self._attempt.job.labels

    @property
    def delivery(self) -> Delivery:
        return self._attempt.head.delivery

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
        self._soon(lambda: self.untold.add(str(line)))

    def progress(self, value: object) -> "Told":
        """Tell how far the job is: anything short that is JSON. Await it to know that it is stored."""
        text = checked_progress(value, self._attempt.head)
        told: asyncio.Future[None] = self._loop.create_future()
        told.add_done_callback(_looked_at)
        self._soon(lambda: self.untold.tell(text, told))
        return Told(told)

    def _soon(self, act: Callable[[], None]) -> None:
        def acted() -> None:
            act()
            self._stir()

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
        self.untold.give_up()


class Told:
    """Of progress that is on its way; need not be awaited."""

    def __init__(self, told: "asyncio.Future[None]") -> None:
        self._told = told

    def __await__(self) -> Generator[Any, None, None]:
        yield from asyncio.shield(self._told).__await__()


class Untold:
    """What a handler has said and the store has not heard."""

    def __init__(self, offset: int) -> None:
        self.offset = offset  # how many lines are stored
        self.lines: deque[str] = deque()
        self.progress = ""
        self.waiting: list[asyncio.Future[None]] = []

    def __bool__(self) -> bool:
        return bool(self.lines or self.progress)

    def add(self, line: str) -> None:
        if len(self.lines) < LINES_MAX:
            self.lines.append(cut(line))

    def tell(self, progress: str, told: "asyncio.Future[None]") -> None:
        self.progress = progress
        self.waiting.append(told)

    def heard(self, lines: int, progress: str, waiting: "list[asyncio.Future[None]]") -> None:
        """The store has so many lines more, and this progress."""
        for _ in range(lines):
            self.lines.popleft()
        self.offset += lines
        if self.progress == progress:
            self.progress = ""
        for told in waiting:
            self.waiting.remove(told)
            if not told.done():
                told.set_result(None)

    def give_up(self) -> None:
        for told in self.waiting:
            if not told.done():
                told.set_exception(Outdone("the job is not this worker's any more; stop"))
        self.waiting.clear()


def _looked_at(told: "asyncio.Future[None]") -> None:
    if not told.cancelled():
        told.exception()  # whoever did not wait for it does not want to know
