"""A worker: it claims as many jobs as it has room for, runs them, and leaves in order when it is told to."""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from onejob.core.identity import Actor
from onejob.errors import Invalid, OnejobError
from onejob.ledger import Ledger
from onejob.ledger.claims import CLAIM_MAX, ClaimedJob, ClaimRequest
from onejob.ledger.work import LEASE_DEFAULT, build_attempt, checked_lease, checked_types

from .attempt import AttemptReporter, RunningAttempt, StopReason
from .heartbeat import Heartbeat
from .prefetch import Candidate, Prefetcher

if TYPE_CHECKING:
    from .app import App

CONCURRENCY_DEFAULT = 10
CONCURRENCY_MAX = 10_000
DRAIN_DEFAULT = timedelta(seconds=20)
FINAL_REPORT_SECONDS = 2.0
_IDLE_SECONDS = 3600.0
_PAUSE_FIRST = 0.1
_PAUSE_MAX = 5.0

log = logging.getLogger("onejob.worker")


class Worker:
    """Runs the jobs of an app, of one tenant or of all. Make one with `app.worker`."""

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
        if not 1 <= concurrency <= CONCURRENCY_MAX:
            raise Invalid("concurrency", f"a worker runs 1 to {CONCURRENCY_MAX} jobs at once")
        self._handlers = app.handlers_for(types)
        self._types = checked_types(tuple(self._handlers))
        self._tenant = tenant
        self._concurrency = concurrency
        self._lease_ms = checked_lease(lease // timedelta(milliseconds=1))
        self._drain_seconds = drain.total_seconds()
        self._runtime = queue.runtime
        self._runs: dict[bytes, RunningAttempt] = {}  # by the job and the holder of the attempt
        self._busy = 0  # handlers that have not ended
        self._reporter = AttemptReporter(
            self._runtime.gate,
            actor=str(Actor.system(name)),
            retention_ms=self._runtime.retention_ms,
            describe=app.describe,
            threads_max=concurrency,
        )
        self._heartbeat = Heartbeat(self._runtime.gate, self._runs.values(), lease_seconds=self._lease_ms / 1000)
        self._prefetcher = Prefetcher(self._runtime.claims)
        self._capacity_freed = asyncio.Event()
        self._stopping = False
        self._idle_task: asyncio.Task[None] | None = None

    @property
    def running(self) -> int:
        """How many jobs it holds, or how many handlers that would not stop."""
        return max(len(self._runs), self._busy)

    def counts(self) -> dict[str, int]:
        """How the attempts ended that were said."""
        return dict(self._reporter.counts)

    def stop(self) -> None:
        """Claim no more, let handlers end for a bounded time, hand back the rest. `run` returns then."""
        self._stopping = True
        self._capacity_freed.set()
        if self._idle_task is not None:
            self._idle_task.cancel()

    async def run(self) -> None:
        """Until it is told to stop."""
        beating = asyncio.create_task(self._heartbeat.beat())
        beating.add_done_callback(self._on_heartbeat_exit)
        try:
            await self._claim_until_stopped()
            await self._shut_down()
        finally:
            beating.cancel()
            self._prefetcher.close()
            self._reporter.close()

    def _on_heartbeat_exit(self, beating: "asyncio.Task[None]") -> None:
        """Without it leases would end under handlers that run: rather leave."""
        if not beating.cancelled():
            log.error("the worker's heart stopped, so it leaves", exc_info=beating.exception())
            self.stop()

    async def _claim_until_stopped(self) -> None:
        pause = _PAUSE_FIRST
        while not self._stopping:
            # While the end of some is being said others may run; so a claim shares its commit with finishes.
            room = min(self._concurrency - self._busy, 2 * self._concurrency - len(self._runs))
            if room <= 0:
                self._capacity_freed.clear()
                await self._capacity_freed.wait()
                continue
            try:
                await self._claim(min(room, CLAIM_MAX))
                pause = _PAUSE_FIRST
            except OnejobError as error:
                log.warning("no jobs can be claimed: %s", error)
                await self._wait_unless_stopped(asyncio.sleep(pause))
                pause = min(pause * 2, _PAUSE_MAX)

    async def _claim(self, room: int) -> None:
        """Take what there is and run it; where there is nothing, wait for something."""
        wanted = ClaimRequest(
            types=self._types,
            holder=self._runtime.ids.holder(),
            limit=room,
            lease_ms=self._lease_ms,
            start=True,
            tenant=self._tenant,
        )
        if candidates := self._prefetcher.take(room):
            await self._claim_candidates(wanted, candidates)
            return
        ear = self._runtime.claims.wakeups.subscribe(self._types, self._tenant)
        try:
            await self._prefetcher.fetch(wanted)
            candidates = self._prefetcher.take(room)
            if not candidates or not await self._claim_candidates(wanted, candidates):
                await self._wait_unless_stopped(ear.wait(_IDLE_SECONDS))
        finally:
            ear.close()

    async def _claim_candidates(self, claim_request: ClaimRequest, candidates: list[Candidate]) -> int:
        """How many of these could be had."""
        self._prefetcher.schedule_fetch(claim_request)
        self._reporter.flush()
        sent = asyncio.get_running_loop().time()
        taken = await self._prefetcher.claim(claim_request, candidates)
        for one in taken:
            self._start_attempt(one, sent)
        # What ends at once leaves its place to the next claim, which then need not be a small one.
        await asyncio.sleep(0)
        return len(taken)

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
        place = claimed.job.id + claimed.job.holder
        self._runs[place] = run
        self._busy += 1
        run.task = asyncio.create_task(run.execute())
        run.task.add_done_callback(lambda _: self._on_attempt_end(place, run))

    def _on_handler_end(self, run: RunningAttempt) -> None:
        if run.thread is not None and not run.thread.done():
            # The function runs on, and has its place until it ends.
            run.thread.add_done_callback(lambda _: self._release_capacity())
        else:
            self._release_capacity()

    def _release_capacity(self) -> None:
        self._busy -= 1
        self._capacity_freed.set()

    def _on_attempt_end(self, run_id: bytes, run: RunningAttempt) -> None:
        assert run.task is not None
        if not run.task.cancelled() and run.task.exception() is not None:
            log.error("job %s: the worker failed", run.attempt.job_id, exc_info=run.task.exception())
        del self._runs[run_id]
        self._capacity_freed.set()

    async def _wait_unless_stopped(self, wait: Coroutine[Any, Any, None]) -> None:
        """Rest until told to stop."""
        if self._stopping:
            wait.close()
            return
        self._idle_task = asyncio.create_task(wait)
        with suppress(asyncio.CancelledError):
            await self._idle_task
        self._idle_task = None

    async def _shut_down(self) -> None:
        await self._wait_for_attempts(self._drain_seconds)
        for run in list(self._runs.values()):
            run.stop(StopReason.SHUTDOWN)
        await self._wait_for_attempts(FINAL_REPORT_SECONDS)
        if self._busy:
            log.warning("%d handlers would not stop", self._busy)

    async def _wait_for_attempts(self, seconds: float) -> None:
        tasks = [run.task for run in self._runs.values() if run.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
