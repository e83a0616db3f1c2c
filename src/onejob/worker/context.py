"""The context of a handler. All methods are thread-safe."""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import Any

from onejob.core.states import Delivery
from onejob.core.work import Extend, Finish
from onejob.engines.gate import Gate
from onejob.ids import Ids
from onejob.ledger.work import Attempt, checked_progress, encode_result, truncated_line

from .exceptions import AttemptCancelled
from .steps import StepRunner

PENDING_LINES_MAX = 1000  # as many as a job stores
BEGIN_FINISH_SECONDS = 10.0


class Context:
    def __init__(
        self,
        attempt: Attempt,
        loop: asyncio.AbstractEventLoop,
        wake: Callable[[], None],
        *,
        gate: Gate,
        ids: Ids,
    ) -> None:
        self._attempt = attempt
        self._loop = loop
        self._wake = wake  # asks the heartbeat to store pending updates soon
        self._cancelled = asyncio.Event()
        self._steps = StepRunner(attempt, gate, ids, is_cancelled=self._cancelled.is_set)
        self.pending_updates = PendingUpdates(attempt.job_row.logs)
        # Set by the worker: stops the heartbeat, and returns the updates that are not stored and the end of the job.
        self.begin_finish: Callable[[bytes], tuple[Sequence[Extend], Finish]]

    @property
    def job_id(self) -> str:
        """The same in every attempt: pass it on as the idempotency key of calls to other services."""
        return self._attempt.job_id

    @property
    def token(self) -> int:
        """The fencing token: it grows with every claim, so that a store can refuse a stale attempt."""
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
        return self._attempt.job_row.key or None

    @property
    def labels(self) -> Mapping[str, str]:
        return self._attempt.job.labels

    @property
    def delivery(self) -> Delivery:
        return self._attempt.job_row.delivery

    @property
    def deadline(self) -> datetime | None:
        """When this attempt times out; None: never."""
        return self._attempt.deadline

    @property
    def cancelled(self) -> bool:
        """True if the job was cancelled, its lease was lost, or the worker shuts down: stop soon."""
        return self._cancelled.is_set()

    async def wait_cancelled(self) -> None:
        await self._cancelled.wait()

    def log(self, line: str) -> None:
        """Append a line to the job's log; it is stored once, within a second."""
        self._run_on_loop(lambda: self.pending_updates.add_line(str(line)))

    def progress(self, value: object) -> "ProgressAck":
        """Set the progress of the job: any short JSON value. Await the result to know that it is stored."""
        text = checked_progress(value, self._attempt.job_row)
        stored: asyncio.Future[None] = self._loop.create_future()
        stored.add_done_callback(_consume_exception)
        self._run_on_loop(lambda: self.pending_updates.set_progress(text, stored))
        return ProgressAck(stored)

    def once(
        self,
        name: str,
        function: Callable[..., Any],
        *arguments: Any,
        delivery: Delivery | str = Delivery.AT_LEAST_ONCE,
        within: Any = None,
    ) -> Any:
        """Call the function, unless an earlier attempt of this job has finished this step: then return what it returned.

        Await it in an async handler. The name identifies the step within the job; the arguments must be the same in every
        attempt. A step that was interrupted is run again, or with `delivery="at_most_once"` raises StepInterrupted.

        With `within`, a connection as `finish_inside` takes it, the step counts as finished with your commit: what the function
        writes on that connection happens once.
        """
        call = self._steps.build_call(name, function, arguments, delivery=delivery, within=within)
        if self._is_on_loop():
            return self._steps.run(call)
        return self._steps.run_in_thread(call, self._loop)

    def step_key(self, name: str) -> str:
        """The idempotency key of a step, the same in every attempt; a parameter `idempotency_key` gets it by itself."""
        return self._steps.key(name)

    def _is_on_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def finish_inside(self, connection: Any, result: Any = None) -> Any:
        """End the job in your transaction, so that it commits with what the handler has written; await it if the driver is.

        `connection` is one of asyncpg, psycopg or Django, a session of SQLAlchemy, or what a method of
        `onejob.transaction.InTransaction` returns for one. Let it be the last statement before your commit: the
        job's row stays locked until then. If the transaction is not committed, the attempt has failed.
        """
        from onejob.transaction import AsyncCommands, InTransaction, SyncCommands

        is_given = isinstance(connection, SyncCommands | AsyncCommands)
        commands = connection if is_given else InTransaction().on(connection)
        data = encode_result(result)
        begun: Future[tuple[Sequence[Extend], Finish]] = Future()
        self._run_on_loop(lambda: begun.set_result(self.begin_finish(data)))  # after the lines that were logged before
        return commands.finish_prepared(*begun.result(BEGIN_FINISH_SECONDS))

    def _run_on_loop(self, action: Callable[[], None]) -> None:
        def act_and_wake() -> None:
            action()
            self._wake()

        if self._is_on_loop():
            act_and_wake()
        else:
            self._loop.call_soon_threadsafe(act_and_wake)

    def cancel(self) -> None:
        """Called by the worker: tell the handler to stop."""
        self._cancelled.set()
        self.pending_updates.fail_waiters()


class ProgressAck:
    """An awaitable that returns when the progress is stored; awaiting it is optional."""

    def __init__(self, stored: "asyncio.Future[None]") -> None:
        self._stored = stored

    def __await__(self) -> Generator[Any, None, None]:
        yield from asyncio.shield(self._stored).__await__()


class PendingUpdates:
    """Log lines and progress of a handler that are not stored yet."""

    def __init__(self, offset: int) -> None:
        self.offset = offset  # lines stored so far
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
        """Drop what the store has now: the first lines, and the progress unless it has changed since."""
        for _ in range(lines):
            self.lines.popleft()
        self.offset += lines
        if self.progress == progress:
            self.progress = ""
        for waiter in progress_waiters:
            self.progress_waiters.remove(waiter)
            if not waiter.done():
                waiter.set_result(None)

    def fail_waiters(self) -> None:
        for waiter in self.progress_waiters:
            if not waiter.done():
                waiter.set_exception(AttemptCancelled("the attempt has ended or lost its lease; stop"))
        self.progress_waiters.clear()


def _consume_exception(stored: "asyncio.Future[None]") -> None:
    if not stored.cancelled():
        stored.exception()  # awaiting is optional, so asyncio must not warn about it
