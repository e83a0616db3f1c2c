"""A worker: it claims as many jobs as it has room for, runs them, and leaves in order when it is told to."""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from onejob.claiming import CLAIM_MAX, Taken, Wanted
from onejob.core.actor import Actor
from onejob.core.attempts import checked_lease
from onejob.errors import Invalid, OnejobError
from onejob.ledger import Ledger
from onejob.working import LEASE_DEFAULT, attempt_of, checked_types

from .ahead import Ahead, Candidate
from .heartbeat import Heartbeat
from .post import Post
from .run import Run, Why

if TYPE_CHECKING:
    from .app import App

CONCURRENCY_DEFAULT = 10
CONCURRENCY_MAX = 10_000
DRAIN_DEFAULT = timedelta(seconds=20)
LAST_WORDS_SECONDS = 2.0
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
        self._handlers = app.handlers_of(types)
        self._types = checked_types(tuple(self._handlers))
        self._tenant = tenant
        self._concurrency = concurrency
        self._lease_ms = checked_lease(lease // timedelta(milliseconds=1))
        self._drain = drain.total_seconds()
        self._host = queue._host
        self._runs: dict[bytes, Run] = {}  # by the job and the holder of the attempt
        self._busy = 0  # handlers that have not ended
        self._post = Post(
            self._host.gate,
            actor=str(Actor.system(name)),
            retention_ms=self._host.retention_ms,
            describe=app.describe,
            threads_max=concurrency,
        )
        self._heart = Heartbeat(self._host.gate, self._runs.values(), lease=self._lease_ms / 1000)
        self._ahead = Ahead(self._host.claims)
        self._freed = asyncio.Event()
        self._stopping = False
        self._rest: asyncio.Task[None] | None = None

    @property
    def running(self) -> int:
        """How many jobs it holds, or how many handlers that would not stop."""
        return max(len(self._runs), self._busy)

    def counts(self) -> dict[str, int]:
        """How the attempts ended that were said."""
        return dict(self._post.counts)

    def stop(self) -> None:
        """Claim no more, let handlers end for a bounded time, hand back the rest. `run` returns then."""
        self._stopping = True
        self._freed.set()
        if self._rest is not None:
            self._rest.cancel()

    async def run(self) -> None:
        """Until it is told to stop."""
        beating = asyncio.create_task(self._heart.beat())
        beating.add_done_callback(self._heart_stopped)
        try:
            await self._work()
            await self._leave()
        finally:
            beating.cancel()
            self._ahead.close()
            self._post.close()

    def _heart_stopped(self, beating: "asyncio.Task[None]") -> None:
        """Without it leases would end under handlers that run: rather leave."""
        if not beating.cancelled():
            log.error("the worker's heart stopped, so it leaves", exc_info=beating.exception())
            self.stop()

    async def _work(self) -> None:
        pause = _PAUSE_FIRST
        while not self._stopping:
            # While the end of some is being said others may run; so a claim shares its commit with finishes.
            room = min(self._concurrency - self._busy, 2 * self._concurrency - len(self._runs))
            if room <= 0:
                self._freed.clear()
                await self._freed.wait()
                continue
            try:
                await self._claim(min(room, CLAIM_MAX))
                pause = _PAUSE_FIRST
            except OnejobError as error:
                log.warning("no jobs can be claimed: %s", error)
                await self._resting(asyncio.sleep(pause))
                pause = min(pause * 2, _PAUSE_MAX)

    async def _claim(self, room: int) -> None:
        """Take what there is and run it; where there is nothing, wait for something."""
        wanted = Wanted(
            types=self._types,
            holder=self._host.ids.holder(),
            limit=room,
            lease_ms=self._lease_ms,
            start=True,
            tenant=self._tenant,
        )
        if candidates := self._ahead.take(room):
            await self._run_some(wanted, candidates)
            return
        ear = self._host.claims.lookout.listen(self._types, self._tenant)
        try:
            await self._ahead.look(wanted)
            candidates = self._ahead.take(room)
            if not candidates or not await self._run_some(wanted, candidates):
                await self._resting(ear.wait(_IDLE_SECONDS))
        finally:
            ear.close()

    async def _run_some(self, wanted: Wanted, candidates: list[Candidate]) -> int:
        """How many of these could be had."""
        self._ahead.look_soon(wanted)
        self._post.collect()
        sent = asyncio.get_running_loop().time()
        taken = await self._ahead.claim(wanted, candidates)
        for one in taken:
            self._begin(one, sent)
        # What ends at once leaves its place to the next claim, which then need not be a small one.
        await asyncio.sleep(0)
        return len(taken)

    def _begin(self, taken: Taken, sent: float) -> None:
        attempt = attempt_of(taken, self._lease_ms)
        run = Run(
            self._handlers[taken.job.type],
            attempt,
            post=self._post,
            began=sent,
            stir=self._heart.stir,
            freed=self._free,
        )
        place = taken.job.id + taken.job.holder
        self._runs[place] = run
        self._busy += 1
        run.task = asyncio.create_task(run.carry_out())
        run.task.add_done_callback(lambda _: self._ended(place, run))

    def _free(self, run: Run) -> None:
        if run.thread is not None and not run.thread.done():
            # The function runs on, and has its place until it ends.
            run.thread.add_done_callback(lambda _: self._left())
        else:
            self._left()

    def _left(self) -> None:
        self._busy -= 1
        self._freed.set()

    def _ended(self, place: bytes, run: Run) -> None:
        assert run.task is not None
        if not run.task.cancelled() and run.task.exception() is not None:
            log.error("job %s: the worker failed", run.attempt.job_id, exc_info=run.task.exception())
        del self._runs[place]
        self._freed.set()

    async def _resting(self, rest: Coroutine[Any, Any, None]) -> None:
        """Rest until told to stop."""
        if self._stopping:
            rest.close()
            return
        self._rest = asyncio.create_task(rest)
        with suppress(asyncio.CancelledError):
            await self._rest
        self._rest = None

    async def _leave(self) -> None:
        await self._all_end(self._drain)
        for run in list(self._runs.values()):
            run.stop(Why.LEAVING)
        await self._all_end(LAST_WORDS_SECONDS)
        if self._busy:
            log.warning("%d handlers would not stop", self._busy)

    async def _all_end(self, seconds: float) -> None:
        tasks = [run.task for run in self._runs.values() if run.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
