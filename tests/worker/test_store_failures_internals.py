"""Workers on a failing store: commands are repeated until they are acknowledged, and lost jobs are left alone."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

import onejob
from onejob import App, Context, JobState
from onejob.clock import SystemClock
from onejob.core.command import Command
from onejob.core.replies import AnyReply
from onejob.core.work import Claim, Extend, Finish, Release
from onejob.engine import Engine, OnTimeout
from onejob.engines.memory import MemoryEngine
from onejob.ledger.base import runtime_of
from onejob.testing import FaultyEngine, open_ledger
from tests.support.job_rows import load_job_row

LEASE = timedelta(milliseconds=600)


class HangingEngine(FaultyEngine):
    """An engine that stops answering: before it executes a batch, or after it has executed one with such a command."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.hangs = False
        self.hangs_after: type[Any] | None = None
        self.is_hanging = asyncio.Event()
        self._resumed = asyncio.Event()

    async def execute(
        self, commands: Sequence[Command[Any]], /, *, on_timeout: OnTimeout | None = None
    ) -> Sequence[AnyReply]:
        if self.hangs:
            await self._resumed.wait()
        replies = await super().execute(commands, on_timeout=on_timeout)
        if self.hangs_after is not None and any(isinstance(command, self.hangs_after) for command in commands):
            self.is_hanging.set()
            await self._resumed.wait()
        return replies

    def resume(self) -> None:
        self.hangs, self.hangs_after = False, None
        self._resumed.set()


ErrorFor = Callable[[Sequence[Command[Any]]], BaseException | None]


class FaultyLedger:
    """A ledger whose engine raises injected errors before or after it executes a batch."""

    def __init__(self, queue: onejob.Ledger) -> None:
        self.queue = queue
        self.before: ErrorFor = lambda _: None
        self.after: ErrorFor = lambda _: None
        engine: Any = runtime_of(queue).gate._batcher._engine
        execute = engine.execute

        async def execute_with_faults(commands: Sequence[Command[Any]], /, **options: Any) -> Sequence[AnyReply]:
            if (error := self.before(commands)) is not None:
                raise error
            replies: Sequence[AnyReply] = await execute(commands, **options)
            if (error := self.after(commands)) is not None:
                raise error
            return replies

        engine.execute = execute_with_faults


@pytest.fixture
async def faulty_ledger() -> AsyncIterator[FaultyLedger]:
    async with onejob.open("memory://") as queue:
        yield FaultyLedger(queue)


def errors_for(kind: type[Any], times: int, error: type[Exception]) -> ErrorFor:
    left = times

    def next_error(commands: Sequence[Command[Any]]) -> BaseException | None:
        nonlocal left
        if left and any(isinstance(command, kind) for command in commands):
            left -= 1
            return error("injected fault")
        return None

    return next_error


@pytest.mark.parametrize(
    ("when", "error"),
    [("before", onejob.Unavailable), ("before", onejob.Unknown), ("after", onejob.Unknown)],
)
async def test_a_finish_is_retried_until_it_is_acknowledged(
    faulty_ledger: FaultyLedger, when: str, error: type[Exception]
) -> None:
    app = App()

    @app.job("t")
    async def handle() -> str:
        return "done"

    setattr(faulty_ledger, when, errors_for(Finish, 7, error))
    made = await faulty_ledger.queue.submit("t")
    async with app.background_worker(faulty_ledger.queue, lease=timedelta(seconds=30)) as worker:
        job = await faulty_ledger.queue.wait(made.job_id, timedelta(seconds=20))
        assert job.state is JobState.SUCCESS
        while not worker.counts():
            await asyncio.sleep(0.01)
        assert worker.counts() == {"success": 1}
    assert await faulty_ledger.queue.result(made.job_id) == "done"


async def test_a_claim_whose_reply_was_lost_is_repeated_and_runs_once(faulty_ledger: FaultyLedger) -> None:
    app = App()
    ran = 0

    @app.job("t")
    async def handle() -> None:
        nonlocal ran
        ran += 1

    faulty_ledger.after = errors_for(Claim, 4, onejob.Unknown)
    made = await faulty_ledger.queue.submit("t", delivery=onejob.Delivery.AT_MOST_ONCE)
    async with app.background_worker(faulty_ledger.queue):
        job = await faulty_ledger.queue.wait(made.job_id, timedelta(seconds=20))
    token = (await load_job_row(faulty_ledger.queue, job.id)).token
    assert (job.state, token, ran) == (JobState.SUCCESS, 1, 1)


async def test_a_worker_that_cannot_reach_the_store_stops_its_handler_when_the_lease_expires(
    faulty_ledger: FaultyLedger,
) -> None:
    app = App()
    begun, stopped = asyncio.Event(), asyncio.Event()
    reported: list[int] = []

    def fail_extends(commands: Sequence[Command[Any]]) -> BaseException | None:
        reported.extend(command.token for command in commands if isinstance(command, (Finish, Release)))
        is_extending = any(isinstance(command, Extend) for command in commands)
        return onejob.Unavailable("injected fault") if is_extending else None

    @app.job("t")
    async def handle(ctx: Context) -> None:
        if ctx.attempt > 1:
            return
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    made = await faulty_ledger.queue.submit("t", max_attempts=3)
    async with app.background_worker(faulty_ledger.queue, lease=LEASE):
        await begun.wait()
        faulty_ledger.before = fail_extends
        async with asyncio.timeout(15):
            await stopped.wait()
        await asyncio.sleep(LEASE.total_seconds())
        await faulty_ledger.queue.admin.sweep()
        job = await faulty_ledger.queue.wait(made.job_id, timedelta(seconds=20))
    token = (await load_job_row(faulty_ledger.queue, job.id)).token
    assert (job.state, token) == (JobState.SUCCESS, 2)
    assert reported == [2], "the attempt that lost its lease reports nothing"


async def test_a_handler_stops_when_its_lease_is_over_although_the_heartbeat_hangs() -> None:
    """So it has stopped before another worker can start the job."""
    loop = asyncio.get_running_loop()
    engine = MemoryEngine()
    hanging, healthy = HangingEngine(engine), open_ledger(engine, clock=SystemClock())
    cut_off = open_ledger(hanging, clock=SystemClock())
    first, second = App(), App()
    begun = asyncio.Event()
    stopped: list[float] = []
    started: list[float] = []

    @first.job("t")
    async def handle() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.append(loop.time())

    @second.job("t")
    async def handle_again() -> None:
        started.append(loop.time())

    made = await healthy.submit("t", max_attempts=3)
    async with first.background_worker(cut_off, lease=LEASE, drain=timedelta(0)):
        await begun.wait()
        hanging.hangs = True
        async with second.background_worker(healthy):
            job = await healthy.wait(made.job_id, timedelta(seconds=20))
        hanging.resume()
    token = (await load_job_row(healthy, job.id)).token
    assert (job.state, token) == (JobState.SUCCESS, 2)
    assert stopped[0] <= started[0], "the first handler still ran when the second started"
    await cut_off.aclose()
    await healthy.aclose()


@pytest.mark.parametrize(
    ("delivery", "state"),
    [(onejob.Delivery.AT_LEAST_ONCE, JobState.PENDING), (onejob.Delivery.AT_MOST_ONCE, JobState.FAILED)],
)
async def test_a_claim_that_is_answered_after_its_lease_begins_nothing(
    delivery: onejob.Delivery, state: JobState
) -> None:
    engine = HangingEngine(MemoryEngine())
    queue = open_ledger(engine, clock=SystemClock())
    app = App()
    runs = 0

    @app.job("t")
    async def handle() -> None:
        nonlocal runs
        runs += 1

    made = await queue.submit("t", delivery=delivery)
    worker = app.worker(queue, lease=timedelta(milliseconds=200), drain=timedelta(0))
    engine.hangs_after = Claim
    running = asyncio.create_task(worker.run())
    await engine.is_hanging.wait()
    worker.stop()
    await asyncio.sleep(0.3)
    engine.resume()
    await running
    job = await queue.job(made.job_id)
    assert (job.state, job.attempts, runs) == (state, int(state is JobState.FAILED), 0)
    await queue.aclose()


async def test_a_worker_waits_for_an_unavailable_store(faulty_ledger: FaultyLedger) -> None:
    app = App()

    @app.job("t")
    async def handle() -> None:
        pass

    faulty_ledger.before = errors_for(Claim, 3, onejob.Unavailable)
    made = await faulty_ledger.queue.submit("t")
    async with app.background_worker(faulty_ledger.queue):
        job = await faulty_ledger.queue.wait(made.job_id, timedelta(seconds=20))
    assert job.state is JobState.SUCCESS
