"""The worker: it claims as many jobs as it has capacity for, runs them, and shuts down gracefully."""

import asyncio
import logging
from collections.abc import Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from onejob.backoff import Backoff
from onejob.core.identity import Actor, checked_name
from onejob.core.timestamps import checked_timedelta, to_duration_ms
from onejob.errors import Invalid, OnejobError
from onejob.ledger import Ledger
from onejob.ledger.base import runtime_of
from onejob.ledger.work import LEASE_DEFAULT, build_attempt, checked_lease, checked_types
from onejob.runtime.claims import CLAIM_MAX, ClaimedJob, ClaimRequest
from onejob.runtime.workers import WorkerPresence

from .attempt import FINAL_REPORT_SECONDS, AttemptReporter, RunningAttempt, StopReason
from .heartbeat import Heartbeat
from .prefetch import Candidate, Prefetcher
from .scheduler import Scheduler

if TYPE_CHECKING:
    from .app import App

CONCURRENCY_DEFAULT = 10
CONCURRENCY_MAX = 10_000
DRAIN_DEFAULT = timedelta(seconds=20)
_IDLE_SECONDS = 3600.0
_PAUSE_FIRST = 0.1
_PAUSE_MAX = 5.0

log = logging.getLogger("onejob.worker")


class WorkerOptions(TypedDict, total=False):
    """The options of `Worker` as keyword arguments."""

    concurrency: int
    types: tuple[str, ...] | None
    tenant: str | None
    lease: timedelta
    drain: timedelta
    name: str


class Worker:
    """Runs the jobs of an app, of one tenant or (`tenant=None`) of all. Created by `App.worker`."""

    def __init__(
        self,
        app: "App",
        queue: Ledger,
        *,
        concurrency: int = CONCURRENCY_DEFAULT,
        types: tuple[str, ...] | None = None,
        tenant: str | None = None,
        lease: timedelta = LEASE_DEFAULT,
        drain: timedelta = DRAIN_DEFAULT,
        name: str = "worker",
    ) -> None:
        self._handlers = app.handlers_for(types)
        self._types = checked_types(tuple(self._handlers))
        self._tenant = None if tenant is None else checked_name("tenant", tenant)
        self._concurrency = _checked_concurrency(concurrency)
        self._lease_ms = checked_lease(to_duration_ms("lease", lease))
        self._drain_seconds = checked_timedelta("drain", drain).total_seconds()
        self._runtime = runtime_of(queue)
        self._runs: dict[bytes, RunningAttempt] = {}  # by job id and holder
        self._busy = 0  # handlers that are still running
        self._task: asyncio.Task[Any] | None = None  # that runs `run`
        self._earlier_cancellations = 0
        self._reporter = self._build_reporter(app, name)
        self._heartbeat = Heartbeat(self._runtime.gate, self._runs.values(), lease_seconds=self._lease_ms / 1000)
        self._prefetcher = Prefetcher(self._runtime.claims)
        self._scheduler = Scheduler(tuple(app.schedules.values()), queue, tenant=self._tenant)
        self._presence = self._build_presence(name)
        self._capacity_freed = asyncio.Event()
        self._stopping = False
        self._idle_task: asyncio.Task[None] | None = None

    def _build_reporter(self, app: "App", name: str) -> AttemptReporter:
        return AttemptReporter(
            self._runtime.gate,
            ids=self._runtime.ids,
            actor=str(Actor.system(name)),
            retention_ms=self._runtime.retention_ms,
            describe=app.describe,
            keep_messages=app.keep_messages,
            threads_max=self._concurrency,
            is_shutting_down=lambda: self._stopping or self._is_cancelled(),
            tracing=self._runtime.tracing,
        )

    def _build_presence(self, name: str) -> WorkerPresence:
        return WorkerPresence(
            self._runtime.gate,
            id=self._runtime.ids.nonce(),
            name=name,
            types=self._types,
            concurrency=self._concurrency,
            tenant=self._tenant,
            running=lambda: self.running,
            counts=self.counts,
        )

    @property
    def concurrency(self) -> int:
        return self._concurrency

    @property
    def running(self) -> int:
        """The number of claimed jobs, or of handlers still running if that is greater."""
        return max(len(self._runs), self._busy)

    def counts(self) -> dict[str, int]:
        """The number of attempts by reported outcome."""
        return dict(self._reporter.counts)

    def stop(self) -> None:
        """Claim no more, let handlers finish for `drain`, then stop them and release their jobs; then `run` returns."""
        self._stopping = True
        self._capacity_freed.set()
        if self._idle_task is not None:
            self._idle_task.cancel()

    async def run(self) -> None:
        """Claim and run jobs until `stop` is called. If it is cancelled, handlers are stopped at once and their jobs released."""
        self._task = asyncio.current_task()
        assert self._task is not None
        self._earlier_cancellations = self._task.cancelling()
        heartbeat = asyncio.create_task(self._heartbeat.beat())
        heartbeat.add_done_callback(self._on_heartbeat_exit)
        scheduler = asyncio.create_task(self._scheduler.run())
        scheduler.add_done_callback(self._on_scheduler_exit)
        announcing = asyncio.create_task(self._presence.announce_until_cancelled())
        try:
            await self._claim_until_stopped()
            scheduler.cancel()
            await self._shut_down()
            announcing.cancel()
            await self._presence.withdraw()
        except (asyncio.CancelledError, Exception):
            await self._stop_handlers()  # nobody would extend their leases
            raise
        finally:
            scheduler.cancel()
            announcing.cancel()
            heartbeat.cancel()
            self._prefetcher.close()
            self._reporter.close()

    def _is_cancelled(self) -> bool:
        """True if `run` itself was cancelled."""
        return self._task is not None and self._task.cancelling() > self._earlier_cancellations

    def _on_heartbeat_exit(self, heartbeat: "asyncio.Task[None]") -> None:
        """Without heartbeats the leases of running handlers would expire."""
        if not heartbeat.cancelled():
            log.error("heartbeat task failed; shutting the worker down", exc_info=heartbeat.exception())
            self.stop()

    def _on_scheduler_exit(self, scheduler: "asyncio.Task[None]") -> None:
        if not scheduler.cancelled() and scheduler.exception() is not None:
            log.error("scheduler task failed; shutting the worker down", exc_info=scheduler.exception())
            self.stop()

    async def _claim_until_stopped(self) -> None:
        backoff = Backoff(_PAUSE_FIRST, _PAUSE_MAX)
        while not self._stopping:
            # New jobs may run while others report their outcome; so a claim shares its commit with finishes.
            capacity = min(self._concurrency - self._busy, 2 * self._concurrency - len(self._runs))
            if capacity <= 0:
                self._capacity_freed.clear()
                await self._capacity_freed.wait()
                continue
            try:
                await self._claim(min(capacity, CLAIM_MAX))
                backoff.reset()
            except OnejobError as error:
                log.warning("claiming jobs failed, will retry: %s", error)
                await self._wait_unless_stopped(asyncio.sleep(next(backoff)))

    async def _claim(self, limit: int) -> None:
        """Claim and start up to `limit` jobs; if there are none, wait for a wake-up."""
        request = ClaimRequest(
            types=self._types,
            holder=self._runtime.ids.holder(),
            limit=limit,
            lease_ms=self._lease_ms,
            start=True,
            tenant=self._tenant,
        )
        if candidates := self._prefetcher.take(limit):
            await self._claim_candidates(request, candidates)
            return
        listener = self._runtime.claims.wakeups.subscribe(self._types, self._tenant)
        try:
            await self._prefetcher.fetch(request)
            candidates = self._prefetcher.take(limit)
            if not candidates or not await self._claim_candidates(request, candidates):
                await self._wait_unless_stopped(listener.wait(_IDLE_SECONDS))
        finally:
            listener.close()

    async def _claim_candidates(self, claim_request: ClaimRequest, candidates: list[Candidate]) -> int:
        """Claim and start these jobs; returns how many were won."""
        self._prefetcher.schedule_fetch(claim_request)
        self._reporter.flush()
        sent = asyncio.get_running_loop().time()
        won = await self._prefetcher.claim(claim_request, candidates)
        for claimed in won:
            self._start_attempt(claimed, sent)
        # Handlers that end at once free their capacity before the next claim, which is larger then.
        await asyncio.sleep(0)
        return len(won)

    def _start_attempt(self, claimed: ClaimedJob, sent_at: float) -> None:
        attempt = build_attempt(claimed, self._lease_ms)
        run = RunningAttempt(
            self._handlers[claimed.job.type],
            attempt,
            reporter=self._reporter,
            began=sent_at,
            wake=self._heartbeat.wake,
            on_handler_end=self._on_handler_end,
        )
        run_id = claimed.job.id + claimed.job.holder
        self._runs[run_id] = run
        self._busy += 1
        run.task = asyncio.create_task(run.execute())
        run.task.add_done_callback(lambda _: self._on_attempt_end(run_id, run))

    def _on_handler_end(self, run: RunningAttempt) -> None:
        if run.thread is not None and not run.thread.done():
            # The function runs on in its thread, and occupies capacity until it ends.
            run.thread.add_done_callback(lambda _: self._release_capacity())
        else:
            self._release_capacity()

    def _release_capacity(self) -> None:
        self._busy -= 1
        self._capacity_freed.set()

    def _on_attempt_end(self, run_id: bytes, run: RunningAttempt) -> None:
        assert run.task is not None
        if not run.task.cancelled() and run.task.exception() is not None:
            log.error("job %s: attempt task failed", run.attempt.job_id, exc_info=run.task.exception())
        del self._runs[run_id]
        self._capacity_freed.set()

    async def _wait_unless_stopped(self, wait: Coroutine[Any, Any, None]) -> None:
        if self._stopping:
            wait.close()
            return
        self._idle_task = asyncio.create_task(wait)
        try:
            await self._idle_task
        except asyncio.CancelledError:
            if self._is_cancelled():
                raise  # else `stop` has cancelled the wait
        finally:
            self._idle_task = None

    async def _shut_down(self) -> None:
        await self._wait_for_attempts(self._drain_seconds)
        await self._stop_handlers()

    async def _stop_handlers(self) -> None:
        for run in list(self._runs.values()):
            run.stop(StopReason.SHUTDOWN)
        await self._wait_for_attempts(FINAL_REPORT_SECONDS)
        if self._busy:
            log.warning("%d handlers are still running after shutdown", self._busy)

    async def _wait_for_attempts(self, seconds: float) -> None:
        tasks = [run.task for run in self._runs.values() if run.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)


def _checked_concurrency(concurrency: int) -> int:
    if not 1 <= concurrency <= CONCURRENCY_MAX:
        raise Invalid("concurrency", f"concurrency is out of range; a worker runs 1 to {CONCURRENCY_MAX} jobs at once")
    return concurrency
