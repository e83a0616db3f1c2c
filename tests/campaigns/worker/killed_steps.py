"""A worker process whose handlers have five steps, and which kills itself at one of the points between them.

It appends evidence to a file outside of the ledger: an `effect` in the middle of each step, `stored` when the ledger has
acknowledged the step, and `returned` with what the handler got.
"""

import asyncio
import os
import signal
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import asyncpg

import onejob
from onejob.core.identity import format_job_id
from onejob.core.memo import BeginStep, FinishStep
from onejob.core.replies import StepFinished
from onejob.ledger.base import runtime_of
from onejob.settings import IdempotencyConfig

LEASE = timedelta(milliseconds=300)
STEPS = ("first", "second", "mail", "third", "last")
AT_MOST_ONCE = ("mail",)
CONCURRENCY = 6


class Evidence:
    """Evidence lines and kill points: the process dies at the point whose number it was given."""

    def __init__(self, path: Path, kill_at: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._points_left = kill_at

    def write(self, event: str, job_id: str, step: str, value: str) -> None:
        os.write(self._file, f"{event} {job_id} {step} {value}\n".encode())

    def point(self) -> None:
        self._points_left -= 1
        if self._points_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def build_app(evidence: Evidence, chance: Random, database: str) -> onejob.App:
    app = onejob.App()

    async def insert(connection: Any, job_id: str) -> None:
        evidence.point()
        await connection.execute("INSERT INTO step_rows VALUES ($1)", job_id)
        evidence.point()

    async def write_row(ctx: onejob.Context) -> None:
        """A step within a transaction of the handler, which must leave one row."""
        connection = await asyncpg.connect(database)
        try:
            async with connection.transaction():
                await ctx.once("row", partial(insert, connection), ctx.job_id, within=connection)
                evidence.point()
            evidence.point()
        finally:
            await connection.close()

    async def act(job_id: str, step: str) -> str:
        evidence.point()
        value = f"{chance.getrandbits(64):x}"
        evidence.write("effect", job_id, step, value)
        evidence.point()
        return value

    @app.job("order", max_attempts=100)
    async def order(ctx: onejob.Context) -> dict[str, str]:
        values = {}
        for step in STEPS:
            delivery = "at_most_once" if step in AT_MOST_ONCE else "at_least_once"
            try:
                values[step] = await ctx.once(step, act, ctx.job_id, step, delivery=delivery)
            except onejob.StepInterrupted:
                values[step] = "interrupted"
            evidence.write("returned", ctx.job_id, step, values[step])
            evidence.point()
        if database:
            await write_row(ctx)
        return values

    return app


def main(url: str, path: Path, seed: int, kill_at: int) -> None:
    """Run until killed."""
    asyncio.run(_work(url, Evidence(path, kill_at), Random(seed)))


async def _work(url: str, evidence: Evidence, chance: Random) -> None:
    config = IdempotencyConfig(cleanup_interval_seconds=0.1)
    async with onejob.open(url, config=config) as queue:
        gate = runtime_of(queue).gate
        execute_one = gate.execute_one

        async def execute_with_points(command: Any, **options: Any) -> Any:
            """The process may also die right before a commit, and right after it."""
            if not isinstance(command, (BeginStep, FinishStep)):
                return await execute_one(command, **options)
            evidence.point()
            reply = await execute_one(command, **options)
            if isinstance(command, FinishStep) and isinstance(reply, StepFinished):
                evidence.write(
                    "stored", format_job_id(command.job_id), command.name, reply.memo.result.decode().strip('"')
                )
            evidence.point()
            return reply

        gate.execute_one = execute_with_points  # type: ignore[method-assign]  # to die between commit and reply
        await (
            build_app(evidence, chance, url if url.startswith("postgres") else "")
            .worker(queue, concurrency=CONCURRENCY, lease=LEASE)
            .run()
        )
