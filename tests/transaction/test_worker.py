"""`ctx.finish_inside`: the effect of a handler and the end of its job are one commit."""

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg
import pytest

import onejob
from onejob.core.facts import AttachmentKind
from onejob.core.states import JobState
from onejob.errors import Invalid
from onejob.resources.jobs import JobView
from onejob.transaction import InTransaction
from tests.transaction.test_inside import count

WAIT = timedelta(seconds=20)
FAST = {"lease": timedelta(seconds=3), "drain": timedelta(seconds=1)}


async def run_job(queue: onejob.Ledger, app: onejob.App, **options: Any) -> JobView:
    async with app.background_worker(queue, **(FAST | options)):
        receipt = await queue.submit("pay", 1, max_attempts=2)
        assert receipt.job is not None
        return await queue.wait(receipt.job.id, WAIT)


async def test_the_effect_and_the_end_commit_together(queue: onejob.Ledger, db: Any, postgres_url: str) -> None:
    app = onejob.App()

    @app.job("pay")
    async def pay(order: int, ctx: onejob.Context) -> None:
        connection = await asyncpg.connect(postgres_url)
        try:
            async with connection.transaction():
                await connection.execute("INSERT INTO orders VALUES ('paid')")
                ctx.log("paid")
                view = await ctx.finish_inside(connection, {"paid": order})
                assert view.state is JobState.SUCCESS
                assert (await queue.job(ctx.job_id)).state is JobState.RUNNING
                # Longer than a beat: no heartbeat waits for the lock and then stops the handler.
                await asyncio.sleep(1.1)
        finally:
            await connection.close()

    job = await run_job(queue, app)
    assert job.state is JobState.SUCCESS
    assert await queue.result(job.id) == {"paid": 1}
    assert (await queue.log_lines(job.id)).lines == ("paid",)
    assert await count(db, "orders") == 1


async def test_a_plain_function_finishes_in_its_own_transaction(
    queue: onejob.Ledger, db: Any, postgres_url: str, in_transaction: InTransaction
) -> None:
    app = onejob.App()

    @app.job("pay")
    def pay(order: int, ctx: onejob.Context) -> None:
        with psycopg.connect(postgres_url) as connection:
            connection.execute("INSERT INTO orders VALUES ('paid')")
            for n in range(3):
                ctx.log(f"line {n}")
            ctx.finish_inside(in_transaction.psycopg(connection), order)

    job = await run_job(queue, app)
    assert await queue.result(job.id) == 1
    assert (await queue.log_lines(job.id)).lines == ("line 0", "line 1", "line 2")
    assert await count(db, "orders") == 1


async def test_a_handler_that_rolls_back_has_failed(queue: onejob.Ledger, db: Any, postgres_url: str) -> None:
    """It returns as if nothing had happened, and the job is not ended."""
    app = onejob.App()
    attempts: list[int] = []

    @app.job("pay")
    def pay(order: int, ctx: onejob.Context) -> None:
        attempts.append(ctx.attempt)
        with psycopg.connect(postgres_url) as connection:
            connection.execute("INSERT INTO orders VALUES ('paid')")
            ctx.finish_inside(connection, order)
            if ctx.attempt == 1:
                connection.rollback()

    async with app.background_worker(queue, **FAST):  # type: ignore[arg-type]  # of several types
        receipt = await queue.submit("pay", 1, max_attempts=2)
        assert receipt.job is not None
        job = await queue.wait(receipt.job.id, WAIT)
    assert attempts == [1, 2]
    assert job.state is JobState.SUCCESS
    assert await count(db, "orders") == 1
    events = await db.fetch("SELECT data FROM attachment WHERE kind = $1", int(AttachmentKind.EVENT))
    assert any(b"not committed" in event["data"] for event in events)


async def test_a_worker_that_lost_its_job_commits_nothing(queue: onejob.Ledger, db: Any, postgres_url: str) -> None:
    await queue.submit("pay", 1)
    (lost,) = await queue.claim("pay", start=True, lease=timedelta(milliseconds=100))
    await asyncio.sleep(0.15)
    await queue.admin.sweep()
    (current,) = await queue.claim("pay", start=True, wait=WAIT)
    async with asyncio.timeout(10):
        connection = await asyncpg.connect(postgres_url)
        with pytest.raises(onejob.LeaseLost):
            await pay_and_finish(connection, lost)
        await pay_and_finish(connection, current)
        await connection.close()
    assert await count(db, "orders") == 1


async def pay_and_finish(connection: Any, attempt: onejob.Attempt) -> None:
    async with connection.transaction():
        await connection.execute("INSERT INTO orders VALUES ('paid')")
        await InTransaction().asyncpg(connection).finish(attempt, 1)


def test_what_is_no_connection_is_refused(in_transaction: InTransaction) -> None:
    with pytest.raises(Invalid, match=r"builtins\.str is not a connection"):
        in_transaction.on("postgresql://…")
