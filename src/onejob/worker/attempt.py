"""One attempt: its handler runs, and how it ended is said until it is heard or the lease is over."""

import asyncio
import contextvars
import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import partial
from typing import Any

from onejob.core.command import Command
from onejob.core.replies import AnyReply, Finished, Refused, Released
from onejob.core.states import Delivery
from onejob.core.work import LOG_LINES_AT_ONCE_MAX, Extend, Finish, FinishOutcome, Release
from onejob.engines.gate import Gate
from onejob.errors import Invalid, Unavailable, Unknown
from onejob.ledger.work import Attempt, attempt_fence_fields, encode_result

from .context import AttemptCancelled, Context, Fatal, Retry
from .handlers import Handler, describe_exception

# Where the words of a worker go: to the ledger, and again while it is in trouble.


PAUSE_FIRST = 0.02
PAUSE_MAX = 1.0


class AttemptReporter:
    def __init__(
        self,
        gate: Gate,
        *,
        actor: str,
        retention_ms: int,
        describe: Callable[[BaseException], str],
        threads_max: int,
    ) -> None:
        self.gate = gate
        self.actor = actor
        self.retention_ms = retention_ms
        self.describe = describe
        self.counts: Counter[str] = Counter()
        self._threads_max = threads_max
        self._thread_pool: ThreadPoolExecutor | None = None
        self._coalescing: list[asyncio.Future[None]] = []

    def thread_pool(self) -> ThreadPoolExecutor:
        """For plain functions; made when the first one runs."""
        if self._thread_pool is None:
            self._thread_pool = ThreadPoolExecutor(self._threads_max, "onejob-handler")
        return self._thread_pool

    def count(self, outcome: str) -> None:
        self.counts[outcome] += 1

    async def execute_with_retry(self, commands: Sequence[Command[Any]], *, until: float) -> AnyReply | BaseException:
        """The reply to the last of these; they are repeated, all the same, until a moment of the loop's time."""
        loop = asyncio.get_running_loop()
        pause = PAUSE_FIRST
        while True:
            await self._coalesce()
            reply = (await self.gate.execute_each(commands))[-1]
            if not isinstance(reply, (Unavailable, Unknown)) or loop.time() + pause > until:
                return reply
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_MAX)

    def flush(self) -> None:
        """Let everything that is to be said go out now: whoever claims in the same moment shares its commit."""
        waiting, self._coalescing = self._coalescing, []
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)

    async def _coalesce(self) -> None:
        """Until others that end in this moment are here as well."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        if not self._coalescing:
            loop.call_soon(loop.call_soon, self.flush)
        self._coalescing.append(turn)
        await turn

    def close(self) -> None:
        if self._thread_pool is not None:
            self._thread_pool.shutdown(wait=False, cancel_futures=True)


# The last part of an attempt's time is for saying that it is over.
_REPORT_TIME_SHARE = 0.05
_MS = 1000

log = logging.getLogger("onejob.worker")


class StopReason(StrEnum):
    """A handler is told to stop because …"""

    TIMED_OUT = "its time is over"
    LEASE_LOST = "the job is not this worker's any more"
    SHUTDOWN = "its worker was told to leave before it ended"


class RunningAttempt:
    """An attempt while this process works on it."""

    def __init__(
        self,
        handler: Handler,
        attempt: Attempt,
        *,
        reporter: AttemptReporter,
        began: float,
        wake: Callable[["RunningAttempt"], None],
        on_handler_end: Callable[["RunningAttempt"], None],
    ) -> None:
        self.handler = handler
        self.attempt = attempt
        self._reporter = reporter
        self._on_handler_end = on_handler_end  # called when the handler has ended, though that is not said yet
        loop = asyncio.get_running_loop()
        self.context = Context(attempt, loop, lambda: wake(self))
        timeout_ms = attempt.job_row.timeout_ms
        self._lease_end_max = began + timeout_ms / _MS if timeout_ms else math.inf
        self.set_lease_end(began)
        self.is_finishing = False  # nothing is left but to say how it ended
        self.task: asyncio.Task[None] | None = None
        self.thread: asyncio.Future[Any] | None = None  # of a plain function, which nobody can stop
        self._stop_reason: StopReason | None = None
        self._deadline = began + self._time_limit_seconds() if self._time_limit_seconds() else None

    def set_lease_end(self, sent_at: float) -> None:
        """The store has heard a word that was sent then: the lease counts from there, so it never ends later here."""
        self.lease_end = min(sent_at + self.attempt.lease_ms / _MS, self._lease_end_max)

    async def execute(self) -> None:
        """Run the handler, then say how it ended, unless the job is somebody else's by now."""
        alarm = None
        if self._deadline is not None:
            alarm = asyncio.get_running_loop().call_at(self._deadline, self.stop, StopReason.TIMED_OUT)
        try:
            word = await self._run_handler()
        finally:
            self.is_finishing = True
            self._on_handler_end(self)
            if alarm is not None:
                alarm.cancel()
        if word is not None:
            await self._report(word)

    def stop(self, reason: StopReason) -> None:
        """Tell the handler to stop; what was said first counts."""
        if self.is_finishing:
            return
        self._stop_reason = self._stop_reason or reason
        self.context.cancel()
        if self.task is not None:
            self.task.cancel()

    def build_extend(self) -> tuple[Extend, Callable[[], None]]:
        """The word that prolongs the lease and tells what is untold; and what to do when it was heard."""
        untold = self.context.pending_updates
        lines = tuple(untold.lines)[:LOG_LINES_AT_ONCE_MAX]
        extend = Extend(
            **attempt_fence_fields(self.attempt),
            lease_ms=self.attempt.lease_ms,
            progress=untold.progress,
            logs=lines,
            offset=untold.offset,
        )
        return extend, partial(untold.mark_stored, len(lines), untold.progress, list(untold.progress_waiters))

    async def _run_handler(self) -> Finish | Release | None:
        """How the handler ended, as a command; None where there is nothing left to say."""
        head = self.attempt.job_row
        try:
            if self.handler.delivery is Delivery.AT_MOST_ONCE and head.attempts > 1:
                raise Fatal("it was started before, and its handler runs at most once")
            arguments = self.handler.arguments(self.attempt.input, self.context)
            value = await self._call_function(arguments)
            return self._finish_command(FinishOutcome.SUCCESS, result=encode_result(value))
        except asyncio.CancelledError:
            return self._stopped_command()
        except AttemptCancelled:
            return None
        except (Fatal, Invalid) as error:
            return self._failed_command(str(error), final=True)
        except Retry as error:
            after = None if error.after is None else max(round(error.after.total_seconds() * _MS), 1)
            return self._failed_command(str(error) or "to be tried again", retry_ms=after or 0)
        except Exception as error:  # noqa: BLE001 - it is the handler's, and it is told
            if self._stop_reason is not None:
                return self._stopped_command()
            log.warning("job %s failed: %s", self.attempt.job_id, describe_exception(error))
            return self._failed_command(self._reporter.describe(error))

    async def _call_function(self, arguments: dict[str, Any]) -> Any:
        if self.handler.is_async:
            return await self.handler.function(**arguments)
        call = partial(contextvars.copy_context().run, self.handler.function, **arguments)
        self.thread = asyncio.get_running_loop().run_in_executor(self._reporter.thread_pool(), call)
        return await asyncio.shield(self.thread)

    def _stopped_command(self) -> Finish | Release | None:
        """What to say of a handler that was stopped."""
        if self.task is not None:
            self.task.uncancel()
        match self._stop_reason:
            case StopReason.TIMED_OUT:
                return self._failed_command(StopReason.TIMED_OUT)
            case StopReason.SHUTDOWN if self.attempt.job_row.delivery is Delivery.AT_LEAST_ONCE:
                return Release(**attempt_fence_fields(self.attempt))
            case StopReason.SHUTDOWN if self.thread is None:
                return self._failed_command(StopReason.SHUTDOWN)
            case StopReason.SHUTDOWN:
                return None  # a thread cannot be stopped; whether it does its work is not known, so it will be lost
            case None:
                return self._failed_command("it was cancelled from within")
        return None

    def _failed_command(self, error: str, *, final: bool = False, retry_ms: int = 0) -> Finish:
        return self._finish_command(FinishOutcome.FAILED, error=error, final=final, retry_ms=retry_ms)

    def _finish_command(self, ends: FinishOutcome, **more: Any) -> Finish:
        post = self._reporter
        return Finish(
            **attempt_fence_fields(self.attempt),
            outcome=ends,
            actor=post.actor,
            retention_ms=post.retention_ms,
            **more,
        )

    async def _report(self, command: Finish | Release) -> None:
        """Say it, with what is untold before it, again and again while the store is in trouble."""
        reply = await self._reporter.execute_with_retry(self._with_pending_updates(command), until=self.lease_end)
        match reply:
            case Finished() | Released():
                self._reporter.count(str(reply.job.state))
            case Refused():
                self._reporter.count("refused")
                log.info("job %s: %s", self.attempt.job_id, reply.message)
            case _:
                self._reporter.count("unsaid")
                log.warning("job %s: how it ended could not be said: %s", self.attempt.job_id, reply)
        self.context.pending_updates.fail_waiters()

    def _with_pending_updates(self, command: Finish | Release) -> list[Command[Any]]:
        words: list[Command[Any]] = []
        untold = self.context.pending_updates
        if untold:
            lines, offset = tuple(untold.lines), untold.offset
            for start in range(0, max(len(lines), 1), LOG_LINES_AT_ONCE_MAX):
                some = lines[start : start + LOG_LINES_AT_ONCE_MAX]
                words.append(
                    Extend(
                        **attempt_fence_fields(self.attempt),
                        lease_ms=self.attempt.lease_ms,
                        progress=untold.progress,
                        logs=some,
                        offset=offset + start,
                    )
                )
        return [*words, command]

    def _time_limit_seconds(self) -> float:
        """How long the handler may take; 0: as long as it likes."""
        own = self.handler.timeout.total_seconds() if self.handler.timeout is not None else 0.0
        stored = self.attempt.job_row.timeout_ms / _MS * (1 - _REPORT_TIME_SHARE)
        return min(own or stored, stored or own)
