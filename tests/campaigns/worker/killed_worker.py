"""A worker process that writes evidence outside of the ledger: a line per begin, end and reported outcome."""

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import onejob
from onejob.settings import IdempotencyConfig
from onejob.worker import attempt

LEASE = timedelta(seconds=2.5)
CONCURRENCY = 4
TYPES = ("again", "once")
PAUSE_MAX = 0.5


class Evidence:
    """A file that many processes append to; a line is written whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, event: str, job_id: str, token: int) -> None:
        os.write(self._file, f"{event} {job_id} {token} {os.getpid()}\n".encode())


def build_app(evidence: Evidence, chance: Random) -> onejob.App:
    app = onejob.App()

    async def handle(ctx: onejob.Context) -> dict[str, Any]:
        evidence.write("begin", ctx.job_id, ctx.token)
        ctx.log(f"attempt {ctx.attempt}")
        await asyncio.sleep(chance.random() * PAUSE_MAX)
        evidence.write("end", ctx.job_id, ctx.token)
        return {"token": ctx.token, "pid": os.getpid()}

    for type in TYPES:
        app.job(type)(handle)
    return app


def main(url: str, path: Path, seed: int) -> None:
    """Run until killed."""
    evidence = Evidence(path)
    report = attempt.RunningAttempt._report

    async def report_with_evidence(self: attempt.RunningAttempt, command: Any) -> None:
        await report(self, command)
        evidence.write("reported", self.attempt.job_id, self.attempt.token)

    attempt.RunningAttempt._report = report_with_evidence  # type: ignore[method-assign]  # to know what was acknowledged
    asyncio.run(_work(url, build_app(evidence, Random(seed))))


async def _work(url: str, app: onejob.App) -> None:
    config = IdempotencyConfig(cleanup_interval_seconds=0.2)
    async with onejob.open(url, config=config) as queue:
        await app.worker(queue, concurrency=CONCURRENCY, lease=LEASE).run()
