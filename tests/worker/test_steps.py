"""Steps of a handler: what has finished is not run again, in async and in plain handlers."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

import onejob
from onejob import App, Context, Delivery, JobState, Retry, StepInterrupted
from onejob.core.facts import Kind
from onejob.core.memo import MEMO_RESULT_BYTES_MAX, BeginStep, FinishStep
from onejob.engine import ListFacts
from onejob.errors import Unavailable, Unknown
from onejob.ledger.base import runtime_of

from .test_store_failures_internals import FaultyLedger, errors_for
from .test_worker import run_job, wait_for_end


@pytest.fixture
async def queue(url: str) -> AsyncIterator[onejob.Ledger]:
    async with onejob.open(url) as ledger:
        yield ledger


class Effects:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def act(self, name: str, *, idempotency_key: str) -> dict[str, Any]:
        self.calls.append(name)
        return {"did": name, "key": idempotency_key}

    async def act_async(self, name: str, *, idempotency_key: str) -> dict[str, Any]:
        await asyncio.sleep(0)
        return self.act(name, idempotency_key=idempotency_key)


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_a_finished_step_is_not_run_again_by_the_next_attempt(queue: onejob.Ledger, *, is_async: bool) -> None:
    app, effects = App(), Effects()

    async def run_async(ctx: Context) -> list[Any]:
        found = [await ctx.once("pay", effects.act_async, "pay"), await ctx.once("plain", effects.act, "plain")]
        if ctx.attempt == 1:
            raise Retry(after=0.01)
        return [*found, await ctx.once("mail", effects.act_async, "mail")]

    def run_plain(ctx: Context) -> list[Any]:
        found = [ctx.once("pay", effects.act, "pay"), ctx.once("plain", effects.act, "plain")]
        if ctx.attempt == 1:
            raise Retry(after=0.01)
        return [*found, ctx.once("mail", effects.act, "mail")]

    app.job("order")(run_async if is_async else run_plain)
    job = await run_job(app, queue, "order", max_attempts=3)
    assert (job.state, job.attempts) == (JobState.SUCCESS, 2)
    assert effects.calls == ["pay", "plain", "mail"]
    keys = [f"{job.id}:{name}" for name in effects.calls]
    assert await queue.result(job.id) == [
        {"did": name, "key": key} for name, key in zip(effects.calls, keys, strict=True)
    ]
    assert [(step.name, step.state, step.runs) for step in await queue.steps(job.id)] == [
        (name, "finished", 1) for name in effects.calls
    ]


async def test_a_step_that_failed_is_run_again_unless_it_runs_at_most_once(queue: onejob.Ledger) -> None:
    app, runs, caught = App(), [], []

    def fail(name: str, attempt: int) -> str:
        runs.append(name)
        if attempt == 1:
            raise ConnectionError(name)
        return name

    @app.job("order")
    async def order(ctx: Context) -> None:
        for name, delivery in (("again", "at_least_once"), ("never", "at_most_once")):
            try:
                await ctx.once(name, partial(fail, attempt=ctx.attempt), name, delivery=delivery)
            except ConnectionError:
                pass
            except StepInterrupted as error:
                caught.append(str(error))
        if ctx.attempt == 1:
            raise Retry(after=0.01)

    job = await run_job(app, queue, "order", max_attempts=3)
    assert job.state is JobState.SUCCESS
    assert runs == ["again", "never", "again"]
    assert len(caught) == 1
    assert "never" in caught[0]
    assert {step.name: (step.state, step.runs) for step in await queue.steps(job.id)} == {
        "again": ("finished", 2),
        "never": ("begun", 1),
    }


async def test_an_interrupted_step_that_is_not_caught_fails_the_job_for_good(queue: onejob.Ledger) -> None:
    app = App()

    def fail() -> None:
        raise ConnectionError

    @app.job("order")
    async def order(ctx: Context) -> None:
        await ctx.once("mail", fail, delivery=Delivery.AT_MOST_ONCE)

    made = await queue.submit("order", max_attempts=9)
    async with app.background_worker(queue):
        job = await wait_for_end(queue, made.job_id)
    assert (job.state, job.attempts) == (JobState.FAILED, 2)
    assert "'mail'" in str(job.error)
    assert "at most once" in str(job.error)


async def test_other_arguments_under_one_name_fail_the_job_for_good(queue: onejob.Ledger) -> None:
    app = App()
    runs: list[float] = []

    @app.job("order")
    async def order(ctx: Context) -> None:
        for amount in (1, 1.0, 2):
            await ctx.once("pay", runs.append, amount)

    job = await run_job(app, queue, "order", max_attempts=9)
    assert (job.state, job.attempts, runs) == (JobState.FAILED, 1, [1])
    assert "other arguments" in str(job.error)


async def test_two_calls_with_one_name_at_once_run_one_after_the_other(queue: onejob.Ledger) -> None:
    app, runs = App(), []

    async def slow() -> int:
        runs.append(1)
        await asyncio.sleep(0.05)
        return len(runs)

    @app.job("order")
    async def order(ctx: Context) -> list[int]:
        return list(await asyncio.gather(*(ctx.once("slow", slow) for _ in range(5))))

    job = await run_job(app, queue, "order")
    assert await queue.result(job.id) == [1] * 5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda ctx: ctx.once("big", lambda: "x" * MEMO_RESULT_BYTES_MAX), "at most"),
        (lambda ctx: ctx.once("object", object), "is JSON"),
        (lambda ctx: ctx.once("argument", print, object()), "functools.partial"),
        (lambda ctx: ctx.once("", print), "printable characters"),
        (lambda ctx: ctx.once("x", print, delivery="twice"), "at_most_once"),
    ],
    ids=["large result", "result", "argument", "name", "delivery"],
)
async def test_what_cannot_be_stored_fails_the_job_for_good(queue: onejob.Ledger, call: Any, message: str) -> None:
    app = App()

    @app.job("order")
    async def order(ctx: Context) -> None:
        await call(ctx)

    job = await run_job(app, queue, "order", max_attempts=9)
    assert (job.state, job.attempts) == (JobState.FAILED, 1)
    assert message in str(job.error)


@pytest.mark.parametrize("error", [Unavailable, Unknown])
@pytest.mark.parametrize("command", [BeginStep, FinishStep])
async def test_a_step_is_run_once_on_a_store_that_fails(error: type[Exception], command: type[Any]) -> None:
    async with onejob.open("memory://") as queue:
        faulty, app = FaultyLedger(queue), App()
        runs: list[int] = []
        faulty.before = errors_for(command, 2, error)
        faulty.after = errors_for(command, 2 if error is Unknown else 0, error)

        @app.job("order")
        async def order(ctx: Context) -> None:
            await ctx.once("pay", runs.append, 1, delivery="at_most_once")

        job = await run_job(app, queue, "order")
        assert (job.state, job.attempts, runs) == (JobState.SUCCESS, 1, [1])


async def test_a_custom_worker_begins_and_finishes_steps_itself(queue: onejob.Ledger) -> None:
    made = await queue.submit("order", max_attempts=3)
    (attempt,) = await queue.claim("order", start=True)
    step = await queue.begin_step(attempt, "pay", [1])
    assert (step.finished, step.result) == (False, None)
    assert (await queue.finish_step(step, {"paid": 1})).state == "finished"
    await queue.release(attempt)
    with pytest.raises(onejob.LeaseLost):
        await queue.begin_step(attempt, "mail")
    (attempt,) = await queue.claim("order", start=True)
    step = await queue.begin_step(attempt, "pay", [1])
    assert (step.finished, step.result) == (True, {"paid": 1})
    with pytest.raises(onejob.WorkRefused, match="other arguments"):
        await queue.begin_step(attempt, "pay", [2])
    assert [one.name for one in await queue.steps(made.job_id)] == ["pay"]


async def test_a_purged_tenant_leaves_no_memo(queue: onejob.Ledger) -> None:
    await queue.submit("order", idempotency_key="k")
    (attempt,) = await queue.claim("order", start=True)
    for name in ("a", "b"):
        await queue.finish_step(await queue.begin_step(attempt, name), "secret")
    await queue.admin.purge()
    assert (await runtime_of(queue).gate.scan(ListFacts(tenant="default", kind=Kind.MEMO))).items == []
