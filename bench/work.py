"""Jobs through: submitted, claimed, started, run by an empty async handler and finished, per second."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from time import perf_counter

import onejob

from .measure import Report

WORKERS = (1, 4)
CONCURRENCY = 10
CHUNK = 500


async def work(folder: Path, report: Report, jobs: int) -> None:
    report.title(f"Jobs through per second ({CONCURRENCY} at once in each worker, an empty async handler)")
    for workers in WORKERS:
        url = f"sqlite:///{folder / f'work{workers}.db'}"
        submitting, running = await _through(url, workers, jobs)
        name = f"SQLite, {workers} worker{'s' if workers > 1 else ''}"
        report.row(f"{name}: submitted", f"{jobs / submitting:,.0f}")
        report.row(f"{name}: claimed, started, finished", f"{jobs / running:,.0f}")
        report.row(f"{name}: all of it", f"{jobs / (submitting + running):,.0f}")


async def _through(url: str, workers: int, jobs: int) -> tuple[float, float]:
    """Seconds to submit so many jobs, and to run them."""
    async with onejob.open(url, sweep=False) as queue:
        children = [await _born(url) for _ in range(workers)]
        begin = perf_counter()
        for start in range(0, jobs, CHUNK):
            some = range(start, min(start + CHUNK, jobs))
            await queue.submit_many(
                [onejob.Submission(type="nothing", idempotency_key=f"job-{n}") for n in some]
            )
        submitted = perf_counter()
        for child in children:
            _say(child, "go")
        await _counted(children, jobs)
        done = perf_counter()
    for child in children:
        _say(child, "leave")
        await child.wait()
    return submitted - begin, done - submitted


async def _born(url: str) -> Process:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.work_child", url, str(CONCURRENCY), stdin=PIPE, stdout=PIPE
    )
    assert child.stdout is not None
    assert await child.stdout.readline() == b"ready\n"
    return child


def _say(child: Process, word: str) -> None:
    assert child.stdin is not None
    child.stdin.write(f"{word}\n".encode())


async def _counted(children: list[Process], jobs: int) -> None:
    done = 0
    enough = asyncio.Event()

    async def listen(child: Process) -> None:
        nonlocal done
        assert child.stdout is not None
        while line := await child.stdout.readline():
            done += int(line)
            if done >= jobs:
                enough.set()
                return

    listening = [asyncio.create_task(listen(child)) for child in children]
    await enough.wait()
    for task in listening:
        task.cancel()
