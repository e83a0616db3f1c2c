"""Workers killed at any moment, and a stopped worker that resumes after it lost its lease."""

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from onejob import sync
from onejob.settings import IdempotencyConfig
from tests.campaigns.worker.campaign import run_campaign

ZOMBIE = """
import asyncio, os, signal, sys
from datetime import timedelta
import onejob

app = onejob.App()


@app.job("t")
async def handle(ctx: onejob.Context) -> str:
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGSTOP)  # it resumes right before its finish
    return f"attempt {ctx.attempt}"


async def main() -> None:
    async with onejob.open(sys.argv[1], sweep=False) as queue:
        worker = app.worker(queue, lease=timedelta(seconds=2))
        running = asyncio.create_task(worker.run())
        while not worker.counts():
            await asyncio.sleep(0.01)
        print(worker.counts(), flush=True)
        worker.stop()
        await running


asyncio.run(main())
"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    return str(request.getfixturevalue("postgres_url"))


def test_killed_workers_leave_every_job_as_its_delivery_promises(url: str, tmp_path: Path) -> None:
    verdict = run_campaign(url, tmp_path, jobs=60, workers=4, seed=7, seconds_max=60)
    assert verdict.violations == []
    assert verdict.kills > 2


def test_the_finish_of_a_zombie_is_refused(url: str) -> None:
    config = IdempotencyConfig(cleanup_interval_seconds=0.1)
    with sync.open(url, config=config) as queue:
        made = queue.submit("t")
        with subprocess.Popen([sys.executable, "-c", ZOMBIE, url], stdout=subprocess.PIPE, text=True) as zombie:
            until = time.monotonic() + 30
            while not queue.job(made.job_id).attempts:
                assert time.monotonic() < until
                time.sleep(0.02)
            (attempt,) = queue.claim("t", start=True, wait=timedelta(seconds=30))
            assert attempt.token == 2
            os.kill(zombie.pid, signal.SIGCONT)
            assert zombie.stdout is not None
            assert "{'refused': 1}" in zombie.stdout.readline()
            assert queue.finish(attempt, "the living").state == "success"
            assert queue.result(made.job_id) == "the living"
            assert zombie.wait(60) == 0
