"""Workers on a store in trouble: a word is repeated until it is heard, and what was lost is left alone."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

import onejob
from onejob import App, Context, JobState
from onejob.core.command import Command
from onejob.core.replies import AnyReply
from onejob.core.work import Claim, Extend, Finish

LEASE = timedelta(milliseconds=600)
Trouble = Callable[[Sequence[Command[Any]]], BaseException | None]


class Troubled:
    """A ledger whose engine fails when it is told to, before or after it has done what was asked."""

    def __init__(self, queue: onejob.Ledger) -> None:
        self.queue = queue
        self.before: Trouble = lambda _: None
        self.after: Trouble = lambda _: None
        engine: Any = queue._runtime.gate._inner._engine
        execute = engine.execute

        async def troubled(commands: Sequence[Command[Any]], /) -> Sequence[AnyReply]:
            if (error := self.before(commands)) is not None:
                raise error
            replies: Sequence[AnyReply] = await execute(commands)
            if (error := self.after(commands)) is not None:
                raise error
            return replies

        engine.execute = troubled


@pytest.fixture
async def troubled() -> AsyncIterator[Troubled]:
    async with onejob.open("memory://") as queue:
        yield Troubled(queue)


def some(kind: type[Any], times: int, error: type[Exception]) -> Trouble:
    left = times

    def fails(commands: Sequence[Command[Any]]) -> BaseException | None:
        nonlocal left
        if left and any(isinstance(command, kind) for command in commands):
            left -= 1
            return error("the store is in trouble")
        return None

    return fails


@pytest.mark.parametrize(
    ("when", "error"),
    [("before", onejob.Unavailable), ("before", onejob.Unknown), ("after", onejob.Unknown)],
)
async def test_a_finish_is_repeated_until_it_is_heard(troubled: Troubled, when: str, error: type[Exception]) -> None:
    app = App()

    @app.job("t")
    async def handle() -> str:
        return "done"

    setattr(troubled, when, some(Finish, 7, error))
    made = await troubled.queue.submit("t")
    async with app.background_worker(troubled.queue, lease=timedelta(seconds=30)) as worker:
        job = await troubled.queue.wait(made.job_id, timedelta(seconds=20))
        assert job.state is JobState.SUCCESS
        while not worker.counts():
            await asyncio.sleep(0.01)
        assert worker.counts() == {"success": 1}
    assert await troubled.queue.result(made.job_id) == "done"


async def test_a_claim_whose_answer_was_lost_is_repeated_and_runs_once(troubled: Troubled) -> None:
    app = App()
    ran = 0

    @app.job("t")
    async def handle() -> None:
        nonlocal ran
        ran += 1

    troubled.after = some(Claim, 4, onejob.Unknown)
    made = await troubled.queue.submit("t", delivery=onejob.Delivery.AT_MOST_ONCE)
    async with app.background_worker(troubled.queue):
        job = await troubled.queue.wait(made.job_id, timedelta(seconds=20))
    assert (job.state, job.row.token, ran) == (JobState.SUCCESS, 1, 1)


async def test_a_worker_that_hears_nothing_stops_its_handler_when_the_lease_is_over(
    troubled: Troubled,
) -> None:
    app = App()
    begun, stopped = asyncio.Event(), asyncio.Event()

    @app.job("t")
    async def handle(ctx: Context) -> None:
        if ctx.attempt > 1:
            return
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    made = await troubled.queue.submit("t", max_attempts=3)
    async with app.background_worker(troubled.queue, lease=LEASE):
        await begun.wait()
        troubled.before = some(Extend, 10**6, onejob.Unavailable)
        async with asyncio.timeout(5):
            await stopped.wait()
        assert (await troubled.queue.job(made.job_id)).state is JobState.RUNNING
        await asyncio.sleep(LEASE.total_seconds())
        await troubled.queue.sweep()
        job = await troubled.queue.wait(made.job_id, timedelta(seconds=20))
    assert (job.state, job.row.token) == (JobState.SUCCESS, 2)


async def test_a_worker_waits_for_a_store_that_is_away(troubled: Troubled) -> None:
    app = App()

    @app.job("t")
    async def handle() -> None:
        pass

    troubled.before = some(Claim, 3, onejob.Unavailable)
    made = await troubled.queue.submit("t")
    async with app.background_worker(troubled.queue):
        job = await troubled.queue.wait(made.job_id, timedelta(seconds=20))
    assert job.state is JobState.SUCCESS
