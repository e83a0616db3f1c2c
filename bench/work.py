"""Throughput of jobs, from submission to finish with an empty handler; onejob and its peers."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

from .bars import WORK_OVER_PROCRASTINATE
from .database import database_seconds, running_database
from .measure import Run, interleave, processor_seconds, ratios
from .postgres import side_environment
from .redis import redis_program, run_redis
from .report import REPOSITORY, Report

WORKERS = (1, 4)
CONCURRENCY = 10
SECONDS_MAX = 120
STORES = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "redis+socket": "Redis"}
# Against the peer at the same number of workers. Celery's Redis is not durable, and Celery has no keys.
RATIO_MIN = {"procrastinate": 2.0, "Celery": 1.0}
# Peers are slower, so they get fewer jobs.
PEER_SHARE = 5


class Throughput(NamedTuple):
    """Jobs per second in one round: submitted, run, and from the first submission to the last end."""

    submitted: float
    run: float
    both: Run


class Target(NamedTuple):
    """A library and its store."""

    side: str
    url: str
    jobs: int
    store_seconds: Callable[[], float] | None = None

    @property
    def name(self) -> str:
        return f"{self.side}, {STORES[self.url.partition(':')[0]]}"


async def work(folder: Path, report: Report, rounds: int, jobs: int, workers: Sequence[int] = WORKERS) -> None:
    report.title(f"Jobs through per second ({CONCURRENCY} at once in each worker, an empty handler)")
    async with AsyncExitStack() as stack:
        server = await asyncio.to_thread(stack.enter_context, running_database())
        database = partial(database_seconds, server)
        targets = [
            Target("onejob", f"sqlite:///{folder / 'work.db'}", jobs),
            Target("onejob", server.database(), jobs, database),
        ]
        if find_spec("procrastinate") is None:
            report.row("without procrastinate, which is not installed", "-")
        else:
            targets.append(Target("procrastinate", server.database(), jobs // PEER_SHARE, database))
        program = redis_program()
        if program is None or find_spec("celery") is None:
            report.row("without Celery on Redis, which is not installed", "-")
        else:
            redis = await stack.enter_async_context(run_redis(program, folder))
            used = partial(processor_seconds, redis.pid)
            targets.append(Target("Celery", f"redis+socket://{redis.socket}", jobs // PEER_SHARE, used))
        for count in workers:
            await _compare(report, rounds, count, targets)


async def _compare(report: Report, rounds: int, workers: int, targets: list[Target]) -> None:
    measured = await interleave({target.name: partial(_measure, target, workers) for target in targets}, rounds)
    case = f"{workers} worker{'s' * (workers > 1)}"
    runs = {name: [one.both for one in found] for name, found in measured.items()}
    for name, found in measured.items():
        submitted, run = median(one.submitted for one in found), median(one.run for one in found)
        report.rate(case, name, runs[name], note=f"  (submitted {submitted:,.0f}, run {run:,.0f})")
    for target in targets:
        if target.side not in RATIO_MIN:
            continue
        ratio = ratios(runs["onejob, PostgreSQL"], runs[target.name])
        if target.side == "procrastinate" and workers == 1:
            report.judge(WORK_OVER_PROCRASTINATE, ratio)
        else:
            name = f"onejob, PostgreSQL / {target.name}, {case}"
            report.bar(name, ratio.median, least=RATIO_MIN[target.side])


async def _measure(target: Target, workers: int) -> Throughput:
    """Submit the jobs, then run them."""
    children = [await _start_process(target) for _ in range(workers + 1)]
    try:
        pids = [child.pid for child in children]
        cpu = processor_seconds(*pids)
        store = target.store_seconds() if target.store_seconds else 0.0
        async with asyncio.timeout(SECONDS_MAX):
            submitting, running = await _submit_and_run(children, target.jobs)
        cpu = processor_seconds(*pids) - cpu
        store = target.store_seconds() - store if target.store_seconds else 0.0
    finally:
        for child in children:
            if child.returncode is None:
                child.kill()
            await child.wait()
    per_job_us = 1e6 / target.jobs
    both = Run(
        target.jobs / (submitting + running), cpu * per_job_us, store * per_job_us if target.store_seconds else None
    )
    return Throughput(target.jobs / submitting, target.jobs / running, both)


async def _submit_and_run(children: list[Process], jobs: int) -> tuple[float, float]:
    """Seconds of submitting and of running."""
    submitter, *others = children
    submitting = float(await _ask(submitter, f"submit {jobs}"))
    for child in others:
        _send_line(child, "work")
    first, begin = await _wait_for_jobs(others, jobs)
    while int(await _ask(submitter, "left")):
        pass
    # Counted from the first report on, because some workers need a second to start.
    return submitting, (perf_counter() - begin) * jobs / (jobs - first)


async def _start_process(target: Target) -> Process:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.work_side", target.side, target.url, str(CONCURRENCY),
        cwd=REPOSITORY, env=side_environment(), stdin=PIPE, stdout=PIPE, stderr=DEVNULL,
    )  # fmt: skip
    assert child.stdout is not None
    while (line := await child.stdout.readline()) != b"ready\n":
        assert line, f"{target.side} did not start"
    return child


def _send_line(child: Process, line: str) -> None:
    assert child.stdin is not None
    child.stdin.write(f"{line}\n".encode())


async def _ask(child: Process, line: str) -> bytes:
    _send_line(child, line)
    assert child.stdout is not None
    answer = await child.stdout.readline()
    assert answer, "a process of the benchmark has died"
    return answer


async def _wait_for_jobs(children: list[Process], jobs: int) -> tuple[int, float]:
    """Wait until all jobs were run; return the count and the time of the first report."""
    count = 0
    first: tuple[int, float] | None = None
    all_done = asyncio.Event()

    async def read_counts(child: Process) -> None:
        nonlocal count, first
        assert child.stdout is not None
        while line := await child.stdout.readline():
            count += int(line)
            first = first or (count, perf_counter())
            if count >= jobs:
                all_done.set()
                return

    readers = [asyncio.create_task(read_counts(child)) for child in children]
    await all_done.wait()
    for task in readers:
        task.cancel()
    assert first is not None
    return first
