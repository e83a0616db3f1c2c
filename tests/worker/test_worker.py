"""Workers in one process: the arguments of handlers, and the outcome of what they return, raise or never end."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict

import pytest
from msgspec import Struct

import onejob
from onejob import App, Context, Fatal, JobState, Retry
from onejob.worker import attempt
from tests.support.job_rows import load_job_row

SHORT = timedelta(milliseconds=600)
OUTLASTING = timedelta(seconds=2.5)  # a stall of the machine, also right before a heartbeat
LONG = timedelta(seconds=20)


class Order(Struct):
    amount: int
    note: str = ""


@dataclass
class Plain:
    amount: int


class Typed(TypedDict):
    amount: int


@pytest.fixture
async def queue(url: str) -> AsyncIterator[onejob.Ledger]:
    async with onejob.open(url) as ledger:
        yield ledger


async def wait_for_end(queue: onejob.Ledger, job_id: str) -> onejob.Job:
    job = await queue.wait(job_id, LONG)
    assert job.state in ("success", "failed", "cancelled", "lost"), job.state
    return job


async def run_job(app: App, queue: onejob.Ledger, type: str, input: Any = None, **options: Any) -> onejob.Job:
    """Submit a job and run it with a worker to its end."""
    made = await queue.submit(type, input, **options)
    async with app.background_worker(queue):
        return await wait_for_end(queue, made.job_id)


@pytest.mark.parametrize("shape", [Order, Plain, Typed, dict, Any], ids=str)
async def test_the_input_has_the_type_that_the_handler_declares(queue: onejob.Ledger, shape: Any) -> None:
    app = App()

    async def charge(order: Any) -> Any:
        amount = order["amount"] if isinstance(order, dict) else order.amount
        return {"charged": amount, "kind": type(order).__name__}

    charge.__annotations__["order"] = shape
    app.job("charge")(charge)
    job = await run_job(app, queue, "charge", {"amount": 42})
    assert job.state is JobState.SUCCESS
    kind = "dict" if shape in (Typed, dict, Any) else shape.__name__
    assert await queue.result(job.id) == {"charged": 42, "kind": kind}


async def test_a_wrong_input_is_a_final_failure_that_names_the_place_and_not_the_value(
    queue: onejob.Ledger,
) -> None:
    app = App()

    @app.job("charge")
    async def charge(order: Order) -> None:
        raise AssertionError("must not run")

    job = await run_job(app, queue, "charge", {"amount": "my secret"})
    assert (job.state, job.attempts) == (JobState.FAILED, 1)
    assert "$.amount" in str(job.error)
    assert "secret" not in str(job.error)


async def test_plain_functions_run_in_threads(queue: onejob.Ledger) -> None:
    app = App()
    loop_thread = threading.get_ident()

    @app.job("plain")
    def plain(n: int, ctx: Context) -> dict[str, Any]:
        assert threading.get_ident() != loop_thread
        ctx.log("from a thread")
        ctx.progress({"half": True})
        return {"n": n + 1}

    job = await run_job(app, queue, "plain", 1)
    assert await queue.result(job.id) == {"n": 2}
    row = await load_job_row(queue, job.id)
    assert (row.logs, row.progress) == (1, '{"half":true}')


async def test_the_context_describes_the_job_and_accepts_progress_and_log_lines(queue: onejob.Ledger) -> None:
    app = App()
    seen: list[tuple[Any, ...]] = []

    @app.job("t", timeout=30)
    async def handle(context: Context) -> str:
        seen.append((context.job_id, context.token, context.attempt, context.tenant, context.key))
        assert context.deadline is not None
        for n in range(250):
            context.log(f"line {n}")
        await context.progress(0.5)
        assert (await load_job_row(queue, context.job_id)).progress == "0.5"
        return "done"

    made = await handle.submit(queue, idempotency_key="k")
    async with app.background_worker(queue):
        job = await wait_for_end(queue, made.job_id)
    assert seen == [(made.job_id, 1, 1, "default", "k")]
    assert (await load_job_row(queue, job.id)).logs == 250
    assert job.state is JobState.SUCCESS


async def test_a_failure_keeps_its_type_and_place_and_not_its_message(queue: onejob.Ledger) -> None:
    app = App()

    @app.job("t")
    async def handle() -> None:
        raise ValueError("card 4711 is no good")

    job = await run_job(app, queue, "t", max_attempts=1)
    assert job.state is JobState.FAILED
    assert str(job.error).startswith("ValueError at test_worker.py:")
    assert "4711" not in str(job.error)
    (failure,) = await queue.failures(job.id)
    assert (failure.what, failure.detail) == ("attempt 1 failed", "card 4711 is no good")


async def test_the_message_of_an_exception_is_stored_unless_the_app_says_otherwise(queue: onejob.Ledger) -> None:
    app = App(keep_messages=False)

    @app.job("t")
    async def handle() -> None:
        raise ValueError("card 4711 is no good")

    job = await run_job(app, queue, "t", max_attempts=1)
    assert await queue.failures(job.id) == ()


async def test_an_exception_that_has_no_text_fails_its_attempt_all_the_same(queue: onejob.Ledger) -> None:
    app = App()

    class Wordless(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @app.job("t")
    async def handle() -> None:
        raise Wordless

    job = await run_job(app, queue, "t", max_attempts=1)
    assert (job.state, await queue.failures(job.id)) == (JobState.FAILED, ())


EXITS: dict[str, Callable[[], BaseException]] = {
    "exit": lambda: SystemExit(3),
    "group": lambda: BaseExceptionGroup("outer", [BaseExceptionGroup("inner", [SystemExit(3)]), ValueError("x")]),
    "stop": lambda: StopIteration("over"),
}


async def test_a_handler_that_exits_fails_its_attempt_and_the_worker_goes_on(queue: onejob.Ledger) -> None:
    app = App()

    def leave(kind: str) -> None:
        error = EXITS[kind]()
        raise error

    async def leave_async(kind: str) -> None:
        leave(kind)

    app.job("plain")(leave)
    app.job("async")(leave_async)

    @app.job("plain-step")
    def plain_step(kind: str, ctx: Context) -> None:
        ctx.once("leave", leave, kind)

    @app.job("async-step")
    async def async_step(kind: str, ctx: Context) -> None:
        await ctx.once("leave", leave_async, kind)

    @app.job("thread-step")
    async def thread_step(kind: str, ctx: Context) -> None:
        await ctx.once("leave", leave, kind)

    kinds = [(type, kind) for type in app.handlers for kind in EXITS if (type, kind) != ("thread-step", "stop")]
    app.job("after")(lambda: "ran")
    async with app.background_worker(queue):
        for type, kind in kinds:
            job = await wait_for_end(queue, (await queue.submit(type, kind, max_attempts=1)).job_id)
            assert job.state is JobState.FAILED, (type, kind)
            assert (str(job.error).startswith("SystemExit at test_worker.py:")) == (kind == "exit")
        after = await wait_for_end(queue, (await queue.submit("after")).job_id)
    assert after.state is JobState.SUCCESS


async def test_a_described_failure_has_the_message_of_the_app(queue: onejob.Ledger) -> None:
    app = App(describe=str)

    @app.job("t")
    def handle() -> None:
        raise ValueError("no good")

    assert (await run_job(app, queue, "t", max_attempts=1)).error == "no good"


async def test_fatal_ends_the_job_and_retry_runs_it_again(queue: onejob.Ledger) -> None:
    app = App()

    @app.job("fatal")
    async def fatal() -> None:
        raise Fatal("no such account")

    @app.job("retry")
    async def retry(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise Retry("not yet", after=0.01)
        return ctx.attempt

    job = await run_job(app, queue, "fatal", max_attempts=5)
    assert (job.state, job.attempts, job.error) == (JobState.FAILED, 1, "no such account")
    job = await run_job(app, queue, "retry", max_attempts=5)
    token = (await load_job_row(queue, job.id)).token
    assert (job.state, job.attempts, token) == (JobState.SUCCESS, 3, 3)
    assert await queue.result(job.id) == 3


async def test_a_result_that_is_not_json_is_a_final_failure(queue: onejob.Ledger) -> None:
    app = App()

    @app.job("t")
    async def handle() -> object:
        return object()

    job = await run_job(app, queue, "t", max_attempts=5)
    assert (job.state, job.attempts) == (JobState.FAILED, 1)


@pytest.mark.parametrize("plain", [False, True])
async def test_an_attempt_that_exceeds_its_timeout_fails(
    queue: onejob.Ledger, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "_REPORT_TIME_SHARE", 0.8)  # 2 s: a stall of the machine does not use them up
    app = App()
    go = threading.Event()

    @app.job("t")
    async def slow() -> None:
        await asyncio.sleep(60)

    @app.job("plain")
    def slow_plain() -> None:
        go.wait(60)

    made = await queue.submit("plain" if plain else "t", max_attempts=1, timeout=timedelta(seconds=2.5))
    async with app.background_worker(queue, drain=timedelta(0)):
        job = await wait_for_end(queue, made.job_id)
        go.set()
    assert (job.state, job.error) == (JobState.FAILED, "the attempt timed out")


async def test_a_worker_whose_run_is_cancelled_while_it_is_idle_ends(queue: onejob.Ledger) -> None:
    """As by a TaskGroup, a timeout or Ctrl-C: the wait for jobs must not swallow the cancellation."""
    app = App()

    @app.job("t")
    async def handle() -> None: ...

    worker = app.worker(queue)
    running = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(30):
            while worker._idle_task is None:
                await asyncio.sleep(0.01)
            running.cancel()
            await asyncio.wait([running])
        assert running.cancelled()
    finally:
        worker.stop()
        await asyncio.wait([running])


async def test_a_worker_that_is_cancelled_stops_its_handlers_and_releases_their_jobs(queue: onejob.Ledger) -> None:
    app, started, stopped = App(), asyncio.Event(), asyncio.Event()

    @app.job("t")
    async def handle() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    made = await queue.submit("t", max_attempts=1)
    running = asyncio.create_task(app.worker(queue, lease=timedelta(seconds=20)).run())
    async with asyncio.timeout(30):
        await started.wait()
        running.cancel()
        await asyncio.wait([running])
    assert running.cancelled()
    assert stopped.is_set()
    assert (await queue.job(made.job_id)).state is JobState.PENDING

    finishing = App()

    @finishing.job("t")
    async def finish() -> None: ...

    async with finishing.background_worker(queue):
        assert (await wait_for_end(queue, made.job_id)).state is JobState.SUCCESS


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
async def test_when_all_tasks_are_cancelled_a_handler_has_not_cancelled_itself(
    queue: onejob.Ledger, plain: bool, delivery: onejob.Delivery
) -> None:
    """As by the end of `asyncio.run`. A thread goes on, so the outcome of an at-most-once job is not known yet."""
    app, started, go = App(), asyncio.Event(), threading.Event()
    loop, was_cancelled = asyncio.get_running_loop(), list[bool]()

    @app.job("t")
    async def handle() -> None:
        started.set()
        await asyncio.sleep(60)

    @app.job("plain")
    def handle_plain(ctx: Context) -> None:
        loop.call_soon_threadsafe(started.set)
        go.wait(60)
        was_cancelled.append(ctx.cancelled)

    made = await queue.submit("plain" if plain else "t", max_attempts=1, delivery=delivery)
    worker = app.worker(queue, lease=timedelta(seconds=20))
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(30):
        await started.wait()
        attempts = [run.task for run in worker._runs.values() if run.task is not None]
        for task in (*attempts, running):
            task.cancel()
        await asyncio.wait([*attempts, running])
    go.set()
    job = await queue.job(made.job_id)
    if delivery == "at_least_once":
        assert job.state is JobState.PENDING
    elif plain:
        assert job.state is JobState.RUNNING
    else:
        assert (job.state, job.error) == (JobState.FAILED, "the worker shut down before the attempt ended")
    while plain and not was_cancelled:
        await asyncio.sleep(0.01)
    assert all(was_cancelled)


async def test_a_handler_that_cancels_its_own_task_has_failed(queue: onejob.Ledger) -> None:
    app = App()

    @app.job("t")
    async def handle() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    job = await run_job(app, queue, "t", max_attempts=1)
    assert (job.state, job.error) == (JobState.FAILED, "the handler cancelled itself")


def test_a_script_that_closes_its_queue_before_its_worker_ends_soon(url: str) -> None:
    """`asyncio.run` waits for all tasks; a report that can no longer be stored is not tried until the lease is over."""
    script = """
import asyncio, sys, onejob
from datetime import timedelta

app = onejob.App()
started = asyncio.Event()

@app.job("t")
async def handle():
    started.set()
    await asyncio.sleep(60)

async def main():
    async with onejob.open(sys.argv[1]) as queue:
        await queue.submit("t")
        task = asyncio.create_task(app.worker(queue, lease=timedelta(hours=1)).run())
        await started.wait()

asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", script, url], check=True, timeout=120)


async def test_a_worker_that_is_stopped_and_cancelled_at_once_does_not_drain(queue: onejob.Ledger) -> None:
    app, started = App(), asyncio.Event()

    @app.job("t")
    async def handle() -> None:
        started.set()
        await asyncio.sleep(60)

    await queue.submit("t")
    worker = app.worker(queue, lease=timedelta(seconds=20), drain=timedelta(seconds=20))
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(10):
        await started.wait()
        while worker._idle_task is None:
            await asyncio.sleep(0.01)
        worker.stop()
        running.cancel()
        await asyncio.wait([running])
    assert running.cancelled()


async def test_a_worker_that_runs_in_a_task_that_was_cancelled_before_shuts_down_gracefully(
    queue: onejob.Ledger,
) -> None:
    app = App()

    @app.job("t")
    async def handle() -> None: ...

    worker = app.worker(queue)

    async def run_after_cancellation() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await worker.run()

    running = asyncio.create_task(run_after_cancellation())
    async with asyncio.timeout(30):
        await asyncio.sleep(0)
        running.cancel()
        while worker._idle_task is None:
            await asyncio.sleep(0.01)
        worker.stop()
        await running


async def test_a_cancelled_job_stops_its_handler_within_a_heartbeat(queue: onejob.Ledger) -> None:
    app = App()
    begun, stopped = asyncio.Event(), asyncio.Event()

    @app.job("t")
    async def handle(ctx: Context) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            assert ctx.cancelled
            stopped.set()

    made = await queue.submit("t")
    async with app.background_worker(queue, lease=SHORT) as worker:
        await begun.wait()
        await queue.cancel(made.job_id)
        async with asyncio.timeout(15):
            await stopped.wait()
    assert (await queue.job(made.job_id)).state is JobState.CANCELLED
    assert "success" not in worker.counts()


async def test_the_lease_is_extended_while_the_handler_runs(queue: onejob.Ledger) -> None:
    app = App()

    @app.job("t")
    async def handle() -> None:
        await asyncio.sleep(1.2 * OUTLASTING.total_seconds())

    made = await queue.submit("t")
    async with app.background_worker(queue, lease=OUTLASTING):
        while (await queue.job(made.job_id)).state is not JobState.SUCCESS:
            await queue.admin.sweep()
            await asyncio.sleep(0.1)
        job = await wait_for_end(queue, made.job_id)
    token = (await load_job_row(queue, job.id)).token
    assert (job.state, token, job.attempts) == (JobState.SUCCESS, 1, 1)


async def test_an_at_most_once_handler_never_begins_a_second_attempt(queue: onejob.Ledger) -> None:
    app = App()

    @app.job("t", delivery="at_most_once")
    async def handle() -> None:
        raise AssertionError("must not run")

    made = await queue.submit("t")
    (attempt,) = await queue.claim("t", start=True)
    await queue.finish(attempt, error="once", retry_after=timedelta(milliseconds=1))
    async with app.background_worker(queue):
        job = await wait_for_end(queue, made.job_id)
    assert job.state is JobState.FAILED
    assert "at most once" in str(job.error)


async def test_a_worker_that_shuts_down_finishes_what_it_can_and_releases_the_rest(
    queue: onejob.Ledger,
) -> None:
    app = App()
    begun = asyncio.Semaphore(0)

    @app.job("t")
    async def handle(seconds: float) -> None:
        begun.release()
        await asyncio.sleep(seconds)

    quick, slow = await queue.submit("t", 0.2), await queue.submit("t", 60)
    once = await queue.submit("t", 60, delivery=onejob.Delivery.AT_MOST_ONCE)
    async with app.background_worker(queue, drain=timedelta(seconds=0.5)):
        for _ in range(3):
            await begun.acquire()
    assert (await queue.job(quick.job_id)).state is JobState.SUCCESS
    job = await queue.job(slow.job_id)
    lease_until = (await load_job_row(queue, job.id)).lease_until
    assert (job.state, job.attempts, lease_until) == (JobState.PENDING, 0, 0)
    assert (await queue.job(once.job_id)).state is JobState.FAILED


async def test_no_more_jobs_run_at_once_than_the_concurrency_allows(queue: onejob.Ledger) -> None:
    app = App()
    running = most = 0

    @app.job("t")
    async def handle() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    made = await queue.submit_many([onejob.Submission(type="t") for _ in range(40)])
    async with app.background_worker(queue, concurrency=3):
        for receipt in made:
            assert isinstance(receipt, onejob.Receipt)
            assert (await wait_for_end(queue, receipt.job_id)).state is JobState.SUCCESS
    assert most == 3


async def test_wrong_handlers_and_options_are_refused_by_name(queue: onejob.Ledger) -> None:
    app = App()
    with pytest.raises(onejob.Invalid):
        app.worker(queue)
    with pytest.raises(onejob.Invalid, match="one input"):
        app.job("two")(lambda a, b: None)
    with pytest.raises(onejob.Invalid, match="by name"):
        app.job("many")(lambda *a: None)
    app.job("t")(lambda: None)
    with pytest.raises(onejob.Invalid, match="already"):
        app.job("t")(lambda: None)
    with pytest.raises(onejob.Invalid, match="other"):
        app.worker(queue, types=("other",))
    with pytest.raises(onejob.Invalid):
        app.worker(queue, concurrency=0)


async def test_a_worker_is_listed_while_it_runs(queue: onejob.Ledger) -> None:
    app = App()
    app.job("charge")(lambda: None)
    async with app.background_worker(queue, name="till", concurrency=3):
        async with asyncio.timeout(10):
            while not (listed := await queue.admin.workers()):
                await asyncio.sleep(0.02)
    (info,) = listed
    assert (info.name, info.types, info.concurrency, info.all_tenants) == ("till", ("charge",), 3, True)
    assert await queue.admin.workers() == []
