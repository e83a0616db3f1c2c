"""One attempt: run the handler, then report how it ended, retried until it is stored or the lease expires."""

import asyncio
import contextvars
import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from onejob.backoff import Backoff
from onejob.core.command import Command
from onejob.core.lookup import LookUpJob
from onejob.core.replies import AnyReply, Finished, Found, Refused, Released
from onejob.core.states import ENDED_STATES, Delivery
from onejob.core.work import LOG_LINES_AT_ONCE_MAX, Extend, Finish, FinishOutcome, Release
from onejob.engines.gate import Gate
from onejob.errors import Invalid, Unavailable, Unknown
from onejob.ids import Ids
from onejob.ledger.work import Attempt, attempt_fence_fields, encode_result

from .context import Context
from .exceptions import AttemptCancelled, Fatal, Retry
from .handlers import Handler, describe_exception, exception_message
from .log_context import JobLogContext, set_current_job

if TYPE_CHECKING:
    from onejob.tracing import Tracing

PAUSE_FIRST = 0.02
PAUSE_MAX = 1.0
FINAL_REPORT_SECONDS = 2.0  # for reports at a shutdown
# The last part of an attempt's time is reserved for reporting that it has timed out.
_REPORT_TIME_SHARE = 0.05
_MS = 1000

log = logging.getLogger("onejob.worker")


class AttemptReporter:
    """What the attempts of a worker share: the gate for their reports, the thread pool, the counts of outcomes."""

    def __init__(
        self,
        gate: Gate,
        *,
        ids: Ids,
        actor: str,
        retention_ms: int,
        describe: Callable[[BaseException], str],
        keep_messages: bool,
        threads_max: int,
        is_shutting_down: Callable[[], bool],
        tracing: "Tracing | None" = None,
    ) -> None:
        self.is_shutting_down = is_shutting_down
        self.tracing = tracing
        self.gate = gate
        self.ids = ids
        self.actor = actor
        self.retention_ms = retention_ms
        self.describe = describe
        self.keep_messages = keep_messages
        self.counts: Counter[str] = Counter()
        self._threads_max = threads_max
        self._thread_pool: ThreadPoolExecutor | None = None
        self._coalescing: list[asyncio.Future[None]] = []

    def thread_pool(self) -> ThreadPoolExecutor:
        """The pool for plain functions, created when the first one runs."""
        if self._thread_pool is None:
            self._thread_pool = ThreadPoolExecutor(self._threads_max, "onejob-handler")
        return self._thread_pool

    def count(self, outcome: str) -> None:
        self.counts[outcome] += 1

    async def execute_with_retry(self, commands: Sequence[Command[Any]], *, until: float) -> AnyReply | BaseException:
        """Execute all of these, again while the store is unavailable, until this loop time; returns the last reply."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(PAUSE_FIRST, PAUSE_MAX)
        while True:
            await self._coalesce()
            reply = (await self.gate.execute_each(commands))[-1]
            if not isinstance(reply, (Unavailable, Unknown)) or loop.time() + backoff.seconds > until:
                return reply
            await asyncio.sleep(next(backoff))

    def flush(self) -> None:
        """Send all reports that are waiting, so that they share a commit with a claim."""
        waiters, self._coalescing = self._coalescing, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _coalesce(self) -> None:
        """Wait for other attempts that end in this turn of the loop, so that their reports share a commit."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        if not self._coalescing:
            loop.call_soon(loop.call_soon, self.flush)
        self._coalescing.append(waiter)
        await waiter

    def close(self) -> None:
        if self._thread_pool is not None:
            self._thread_pool.shutdown(wait=False, cancel_futures=True)


class StopReason(StrEnum):
    """Why a handler is stopped; the text is stored as the error of the attempt."""

    TIMED_OUT = "the attempt timed out"
    LEASE_LOST = "the lease was lost"
    LEASE_EXPIRED = "the lease expired while the store could not be reached"
    SHUTDOWN = "the worker shut down before the attempt ended"


class RunningAttempt:
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
        self._on_handler_end = on_handler_end  # called before the outcome is reported
        loop = asyncio.get_running_loop()
        self.context = Context(attempt, loop, lambda: wake(self), gate=reporter.gate, ids=reporter.ids)
        timeout_ms = attempt.job_row.timeout_ms
        self._lease_end_max = began + timeout_ms / _MS if timeout_ms else math.inf
        self.set_lease_end(began)
        self.is_finishing = False  # the handler has ended; only the report is left
        self.inside_finish: Finish | None = None  # the end of the job, in a transaction of the handler
        self.context.begin_finish = self._begin_finish_inside
        self.task: asyncio.Task[None] | None = None
        self.thread: asyncio.Future[Any] | None = None  # of a plain function, which cannot be stopped
        self._stop_reason: StopReason | None = None
        self._timers: dict[StopReason, asyncio.TimerHandle] = {}
        self._deadline = began + self._time_limit_seconds() if self._time_limit_seconds() else None

    def set_lease_end(self, sent_at: float) -> None:
        """Count the lease from when the command was sent, so that it never ends later here than in the store."""
        self.lease_end = min(sent_at + self.attempt.lease_ms / _MS, self._lease_end_max)

    @property
    def needs_lease(self) -> bool:
        """False once the handler has ended, or holds the lock of its job in the transaction that ends it."""
        return not self.is_finishing and self.inside_finish is None

    async def execute(self) -> None:
        """Run the handler, then report how it ended, unless the lease was lost."""
        loop = asyncio.get_running_loop()
        try:
            command = await self._run_in_context() if loop.time() < self.lease_end else self._not_begun_command()
        finally:
            self.is_finishing = True
            self._on_handler_end(self)
            for timer in self._timers.values():
                timer.cancel()
        if command is not None:
            await self._report(command)

    def stop(self, reason: StopReason) -> None:
        """Stop the handler; the first reason counts."""
        if self.is_finishing:
            return
        self._stop_reason = self._stop_reason or reason
        self.context.cancel()
        if self.task is not None:
            self.task.cancel()

    def _stop_when_lease_expires(self) -> None:
        """By a timer of its own, because the heartbeat may wait for a store that does not answer."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self.lease_end:
            self.stop(StopReason.LEASE_EXPIRED)
            return
        self._timers[StopReason.LEASE_EXPIRED] = loop.call_at(self.lease_end, self._stop_when_lease_expires)

    def build_extend(self) -> tuple[Extend, Callable[[], None]]:
        """The command that extends the lease and stores pending updates, and the callback for its success."""
        updates = self.context.pending_updates
        lines = tuple(updates.lines)[:LOG_LINES_AT_ONCE_MAX]
        extend = self._extend_command(lines, updates.offset)
        return extend, partial(updates.mark_stored, len(lines), updates.progress, list(updates.progress_waiters))

    async def _run_in_context(self) -> Finish | Release | None:
        """Run the handler so that its log lines and spans belong to the job."""
        job = self.attempt.job_row
        set_current_job(JobLogContext(self.attempt.job_id, job.attempts, job.type, job.tenant))
        if self._reporter.tracing is None:
            return await self._run_handler()
        with self._reporter.tracing.trace_attempt(job) as span:
            command = await self._run_handler()
            is_failure = isinstance(command, Finish) and command.outcome is FinishOutcome.FAILED
            outcome = str(command.outcome) if isinstance(command, Finish) else "released" if command else "stopped"
            span.set_outcome(outcome, is_error=is_failure)
            return command

    async def _run_handler(self) -> Finish | Release | None:
        """Run the handler; returns the command that reports its outcome, None if there is nothing to report."""
        self._stop_when_lease_expires()
        if self._deadline is not None:
            loop = asyncio.get_running_loop()
            self._timers[StopReason.TIMED_OUT] = loop.call_at(self._deadline, self.stop, StopReason.TIMED_OUT)
        try:
            if self.handler.delivery is Delivery.AT_MOST_ONCE and self.attempt.job_row.attempts > 1:
                raise Fatal("an earlier attempt was started, and the handler runs at most once")
            arguments = self.handler.arguments(self.attempt.input, self.context)
            result = encode_result(await self._call_function(arguments))
            if self.inside_finish is not None:
                return await self._check_inside_finish(self.inside_finish)
            return self._finish_command(FinishOutcome.SUCCESS, result=result)
        except asyncio.CancelledError:
            return self._stopped_command()
        except AttemptCancelled:
            return None
        except (Fatal, Invalid) as error:
            return self._failed_command(str(error), final=True)
        except Retry as error:
            retry_ms = 0 if error.after is None else max(round(error.after.total_seconds() * _MS), 1)
            return self._failed_command(str(error) or "the handler raised Retry", retry_ms=retry_ms)
        except BaseException as error:
            if _stops_the_worker(error):
                raise
            if self._stop_reason is not None:
                return self._stopped_command()
            log.warning("job %s failed: %s", self.attempt.job_id, describe_exception(error))
            message = (self.handler.message or exception_message)(error) if self._reporter.keep_messages else ""
            return self._failed_command((self.handler.describe or self._reporter.describe)(error), message=message)

    def _begin_finish_inside(self, result: bytes) -> tuple[Sequence[Extend], Finish]:
        """The commands that end the job in the handler's transaction, whose lock keeps the heartbeat out from now on."""
        self.inside_finish = self._finish_command(FinishOutcome.SUCCESS, result=result)
        return self._pending_extends(), self.inside_finish

    async def _check_inside_finish(self, finish: Finish) -> Finish | None:
        """None if the handler's transaction has ended the job; else it was not committed, and the attempt has failed."""
        lookup = LookUpJob(tenant=finish.tenant, job_id=finish.job_id)
        reply = await self._reporter.execute_with_retry([lookup], until=self.lease_end)
        job = reply.job if isinstance(reply, Found) else None
        if job is not None and (job.token, job.finish_digest) == (finish.token, finish.finish_digest):
            self._reporter.count(str(job.state))
            self.context.pending_updates.fail_waiters()
            return None
        return self._failed_command("the transaction of finish_inside was not committed")

    async def _call_function(self, arguments: dict[str, Any]) -> Any:
        if self.handler.is_async:
            return await self.handler.function(**arguments)
        call = partial(contextvars.copy_context().run, _call_in_thread, self.handler.function, arguments)
        self.thread = asyncio.get_running_loop().run_in_executor(self._reporter.thread_pool(), call)
        return await asyncio.shield(self.thread)

    def _stopped_command(self) -> Finish | Release | None:
        """The report of a handler that was stopped."""
        if self.task is not None:
            self.task.uncancel()
        if self._stop_reason is None and self._reporter.is_shutting_down():
            # All tasks were cancelled at once, as by the end of `asyncio.run`, which waits for them.
            self._stop_reason = StopReason.SHUTDOWN
            self.context.cancel()
            self.lease_end = min(self.lease_end, asyncio.get_running_loop().time() + FINAL_REPORT_SECONDS)
        match self._stop_reason:
            case StopReason.TIMED_OUT:
                return self._failed_command(StopReason.TIMED_OUT)
            case StopReason.SHUTDOWN if self.attempt.job_row.delivery is Delivery.AT_LEAST_ONCE:
                return Release(**attempt_fence_fields(self.attempt))
            case StopReason.SHUTDOWN if self.thread is None:
                return self._failed_command(StopReason.SHUTDOWN)
            case StopReason.SHUTDOWN:
                return None  # the thread runs on and its outcome is unknown, so the job becomes lost
            case None:
                return self._failed_command("the handler cancelled itself")
        return None

    def _not_begun_command(self) -> Finish | Release:
        """The answer to the claim came after the lease: another worker may run the job, so this one does not begin."""
        if self.attempt.job_row.delivery is Delivery.AT_LEAST_ONCE:
            return Release(**attempt_fence_fields(self.attempt))
        return self._failed_command("the lease expired before the handler began")

    def _failed_command(self, error: str, *, message: str = "", final: bool = False, retry_ms: int = 0) -> Finish:
        return self._finish_command(FinishOutcome.FAILED, error=error, message=message, final=final, retry_ms=retry_ms)

    def _finish_command(self, outcome: FinishOutcome, **options: Any) -> Finish:
        return Finish(
            **attempt_fence_fields(self.attempt),
            outcome=outcome,
            actor=self._reporter.actor,
            retention_ms=self._reporter.retention_ms,
            **options,
        )

    def _extend_command(self, lines: tuple[str, ...], offset: int) -> Extend:
        return Extend(
            **attempt_fence_fields(self.attempt),
            lease_ms=self.attempt.lease_ms,
            progress=self.context.pending_updates.progress,
            logs=lines,
            offset=offset,
        )

    async def _report(self, command: Finish | Release) -> None:
        """Report the outcome after the pending updates; retried while the store is unavailable."""
        reply = await self._reporter.execute_with_retry(self._with_pending_updates(command), until=self.lease_end)
        match reply:
            case Finished() | Released():
                self._reporter.count(str(reply.job.state))
                if self.handler.on_end is not None and reply.job.state in ENDED_STATES:
                    await self._call_on_end(self.handler.on_end)
            case Refused():
                self._reporter.count("refused")
                log.info("job %s: %s", self.attempt.job_id, reply.message)
            case _:
                self._reporter.count("unreported")
                log.warning("job %s: reporting its outcome failed: %s", self.attempt.job_id, reply)
        self.context.pending_updates.fail_waiters()

    async def _call_on_end(self, on_end: Callable[[str], object]) -> None:
        call = partial(on_end, self.attempt.job_id)
        try:
            await asyncio.get_running_loop().run_in_executor(self._reporter.thread_pool(), call)
        except Exception:
            log.exception("job %s has ended, and what is called after its end failed", self.attempt.job_id)

    def _with_pending_updates(self, command: Finish | Release) -> list[Command[Any]]:
        return [*self._pending_extends(), command]

    def _pending_extends(self) -> list[Extend]:
        updates = self.context.pending_updates
        if not updates:
            return []
        lines, offset = tuple(updates.lines), updates.offset
        starts = range(0, max(len(lines), 1), LOG_LINES_AT_ONCE_MAX)
        return [self._extend_command(lines[start : start + LOG_LINES_AT_ONCE_MAX], offset + start) for start in starts]

    def _time_limit_seconds(self) -> float:
        """The shorter of the two timeouts, that of the handler and that of the job; 0: none."""
        of_handler = self.handler.timeout.total_seconds() if self.handler.timeout is not None else 0.0
        of_job = self.attempt.job_row.timeout_ms / _MS * (1 - _REPORT_TIME_SHARE)
        return min(of_handler or of_job, of_job or of_handler)


def _stops_the_worker(error: BaseException) -> bool:
    """False for what fails its attempt only, such as the SystemExit of a handler that calls `sys.exit`."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(_stops_the_worker, error.exceptions))
    return isinstance(error, (KeyboardInterrupt, GeneratorExit))


def _call_in_thread(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    try:
        return function(**arguments)
    except StopIteration as error:  # a future cannot hold it, so the attempt would wait without end
        raise RuntimeError("the handler raised StopIteration") from error
