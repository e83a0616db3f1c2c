"""`ctx.once(within=…)`: the effect of a step and its memo are one commit."""

from functools import partial
from typing import Any

import asyncpg
import psycopg
import pytest

import onejob
from onejob import JobState
from onejob.errors import Invalid
from tests.transaction.test_inside import count
from tests.transaction.test_worker import run_job


@pytest.fixture
def app() -> onejob.App:
    return onejob.App()


async def write(connection: Any, order: str) -> str:
    await connection.execute("INSERT INTO orders VALUES ($1)", order)
    return f"wrote {order}"


async def test_the_effect_and_the_memo_commit_together(
    queue: onejob.Ledger, db: Any, postgres_url: str, app: onejob.App
) -> None:
    @app.job("pay")
    async def pay(order: int, ctx: onejob.Context) -> list[str]:
        connection = await asyncpg.connect(postgres_url)
        try:
            async with connection.transaction():
                found = [
                    await ctx.once("row", partial(write, connection), "o-1", within=connection, delivery="at_most_once")
                    for _ in range(2)  # the second time in the same transaction
                ]
                assert [step.state for step in await queue.steps(ctx.job_id)] != ["finished"] or ctx.attempt == 2
            if ctx.attempt == 1:
                raise onejob.Retry(after=0.01)
            return found
        finally:
            await connection.close()

    job = await run_job(queue, app)
    assert (job.state, job.attempts) == (JobState.SUCCESS, 2)
    assert await queue.result(job.id) == ["wrote o-1"] * 2
    assert await count(db, "orders") == 1


async def test_a_step_that_was_rolled_back_is_run_again(
    queue: onejob.Ledger, db: Any, postgres_url: str, app: onejob.App
) -> None:
    @app.job("pay")
    async def pay(order: int, ctx: onejob.Context) -> None:
        connection = await asyncpg.connect(postgres_url)
        try:
            for attempt in range(2):
                transaction = connection.transaction()
                await transaction.start()
                await ctx.once("row", partial(write, connection), "o-1", within=connection)
                await (transaction.commit() if ctx.attempt == 2 and attempt else transaction.rollback())
            if ctx.attempt == 1:
                raise onejob.Retry(after=0.01)
        finally:
            await connection.close()

    job = await run_job(queue, app)
    assert (job.state, job.attempts) == (JobState.SUCCESS, 2)
    assert await count(db, "orders") == 1
    assert [(step.state, step.runs) for step in await queue.steps(job.id)] == [("finished", 4)]


async def test_a_plain_handler_has_steps_in_its_own_transaction(
    queue: onejob.Ledger, db: Any, postgres_url: str, app: onejob.App
) -> None:
    @app.job("pay")
    def pay(order: int, ctx: onejob.Context) -> str:
        with psycopg.connect(postgres_url) as connection, connection.transaction():
            insert = partial(connection.execute, "INSERT INTO orders VALUES ('o-1')")
            result = str(ctx.once("row", lambda: insert().rowcount, within=connection))
        if ctx.attempt == 1:
            raise onejob.Retry(after=0.01)
        return result

    job = await run_job(queue, app)
    assert job.state is JobState.SUCCESS, job.error
    assert await queue.result(job.id) == "1"
    assert await count(db, "orders") == 1


async def test_a_stale_attempt_cannot_commit_its_step(
    queue: onejob.Ledger, db: Any, postgres_url: str, app: onejob.App
) -> None:
    """Another attempt began the step while this one was in its function."""

    async def write_and_lose(connection: Any, ctx: onejob.Context) -> None:
        await connection.execute("INSERT INTO orders VALUES ('o-1')")
        if ctx.attempt == 1:
            begun = await queue.begin_step(ctx._attempt, "row", [])
            assert not begun.finished

    @app.job("pay")
    async def pay(order: int, ctx: onejob.Context) -> None:
        connection = await asyncpg.connect(postgres_url)
        try:
            async with connection.transaction():
                await ctx.once("row", partial(write_and_lose, connection, ctx), within=connection)
        finally:
            await connection.close()

    job = await run_job(queue, app)
    assert (job.state, job.attempts) == (JobState.SUCCESS, 2)
    assert await count(db, "orders") == 1


async def test_a_connection_without_a_transaction_is_refused(
    queue: onejob.Ledger, postgres_url: str, app: onejob.App
) -> None:
    @app.job("pay")
    async def pay(order: int, ctx: onejob.Context) -> None:
        connection = await asyncpg.connect(postgres_url)
        try:
            with pytest.raises(Invalid):
                await ctx.once("row", lambda: None, within=connection)
            with pytest.raises(Invalid, match="pass one of these"):
                await ctx.once("row", lambda: None, within="connection")
        finally:
            await connection.close()

    assert (await run_job(queue, app)).state is JobState.SUCCESS
