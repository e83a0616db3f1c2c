"""Throughput of jobs, from submission to finish with an empty handler; onejob and its peers."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

from .database import database_server
from .measure import Report
from .redis import redis_program, run_redis

WORKERS = (1, 4)
CONCURRENCY = 10
SECONDS_MAX = 120
REPOSITORY = Path(__file__).parents[1]
# Against the peer at the same number of workers. Celery's Redis is not durable, and Celery has no keys.
RATIO_MIN = {"procrastinate": 2.0, "Celery": 1.0}
# Peers are slower, so they get fewer jobs.
PEER_SHARE = 5


class Throughput(NamedTuple):
    """Jobs per second in one round."""

    submitted: float
    run: float
    both: float


class Target(NamedTuple):
    """A library and its store."""

    side: str
    url: str
    jobs: int

    @property
    def name(self) -> str:
        return f"{self.side}, {'SQLite' if self.url.startswith('sqlite') else self.url.partition(':')[0]}"


async def work(folder: Path, report: Report, rounds: int, jobs: int) -> None:
    report.title(f"Jobs through per second ({CONCURRENCY} at once in each worker, an empty handler)")
    async with AsyncExitStack() as stack:
        targets = [Target("onejob", f"sqlite:///{folder / 'work.db'}", jobs)]
        server = database_server()
        stack.callback(server.remove)
        server.init()
        server.start()
        targets.append(Target("onejob", server.database(), jobs))
        if find_spec("procrastinate") is None:
            report.row("without procrastinate, which is not installed", "-")
        else:
            targets.append(Target("procrastinate", server.database(), jobs // PEER_SHARE))
        program = redis_program()
        if program is None or find_spec("celery") is None:
            report.row("without Celery on Redis, which is not installed", "-")
        else:
            socket = await stack.enter_async_context(run_redis(program, folder))
            targets.append(Target("Celery", f"redis+socket://{socket}", jobs // PEER_SHARE))
        for workers in WORKERS:
            await _compare(report, rounds, workers, targets)


async def _compare(report: Report, rounds: int, workers: int, targets: list[Target]) -> None:
    measured: dict[str, list[Throughput]] = {target.name: [] for target in targets}
    for number in range(rounds + 1):
        for target in targets:
            throughput = await _measure(target, workers)
            if number:  # the first round fills pools and caches
                measured[target.name].append(throughput)
    workers_text = f"{workers} worker{'s' * (workers > 1)}"
    middles = {name: Throughput(*map(median, zip(*runs, strict=True))) for name, runs in measured.items()}
    for name, medians in middles.items():
        report.row(
            f"{name}, {workers_text}",
            f"{medians.both:,.0f}  (submitted {medians.submitted:,.0f}, run {medians.run:,.0f})",
        )
    ours = middles["onejob, postgresql"]
    for target in targets:
        if target.side in RATIO_MIN:
            ratio = ours.both / middles[target.name].both
            report.bar(f"onejob, postgresql / {target.name}, {workers_text}", ratio, least=RATIO_MIN[target.side])


async def _measure(target: Target, workers: int) -> Throughput:
    """Submit the jobs, then run them."""
    children = [await _start_process(target) for _ in range(workers + 1)]
    try:
        submitter, *others = children
        submitting = float(await _ask(submitter, f"submit {target.jobs}"))
        for child in others:
            _send_line(child, "work")
        async with asyncio.timeout(SECONDS_MAX):
            first, begin = await _wait_for_jobs(others, target.jobs)
        while int(await _ask(submitter, "left")):
            pass
        # Counted from the first report on, because some workers need a second to start.
        running = (perf_counter() - begin) * target.jobs / (target.jobs - first)
    finally:
        for child in children:
            child.kill()
            await child.wait()
    return Throughput(target.jobs / submitting, target.jobs / running, target.jobs / (submitting + running))


async def _start_process(target: Target) -> Process:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.work_side", target.side, target.url, str(CONCURRENCY),
        cwd=REPOSITORY, stdin=PIPE, stdout=PIPE, stderr=DEVNULL,
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
    return await child.stdout.readline()


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
