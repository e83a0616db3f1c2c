"""Jobs through: submitted, claimed, started, run by an empty handler and finished, per second; ours and its peers'."""

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
# Of what a peer does at the same number of workers. Celery's Redis keeps nothing through a crash, and knows no keys.
RATIO_MIN = {"procrastinate": 2.0, "Celery": 1.0}
# A peer is slower, so it gets fewer.
PEER_SHARE = 5


class Throughput(NamedTuple):
    """Of one round: jobs per second."""

    submitted: float
    run: float
    both: float


class Target(NamedTuple):
    """Who runs the jobs, and where."""

    side: str
    url: str
    jobs: int

    @property
    def name(self) -> str:
        return f"{self.side}, {'SQLite' if self.url.startswith('sqlite') else self.url.partition(':')[0]}"


async def work(folder: Path, report: Report, rounds: int, jobs: int) -> None:
    report.title(f"Jobs through per second ({CONCURRENCY} at once in each worker, an empty handler)")
    async with AsyncExitStack() as stack:
        places = [Target("onejob", f"sqlite:///{folder / 'work.db'}", jobs)]
        server = database_server()
        stack.callback(server.remove)
        server.init()
        server.start()
        places.append(Target("onejob", server.database(), jobs))
        if find_spec("procrastinate") is None:
            report.row("without procrastinate, which is not installed", "-")
        else:
            places.append(Target("procrastinate", server.database(), jobs // PEER_SHARE))
        program = redis_program()
        if program is None or find_spec("celery") is None:
            report.row("without Celery on Redis, which is not installed", "-")
        else:
            socket = await stack.enter_async_context(run_redis(program, folder))
            places.append(Target("Celery", f"redis+socket://{socket}", jobs // PEER_SHARE))
        for workers in WORKERS:
            await _compare(report, rounds, workers, places)


async def _compare(report: Report, rounds: int, workers: int, places: list[Target]) -> None:
    seen: dict[str, list[Throughput]] = {place.name: [] for place in places}
    for number in range(rounds + 1):
        for place in places:
            through = await _measure(place, workers)
            if number:  # the first one fills pools and caches
                seen[place.name].append(through)
    words = f"{workers} worker{'s' * (workers > 1)}"
    middles = {name: Throughput(*map(median, zip(*runs, strict=True))) for name, runs in seen.items()}
    for name, middle in middles.items():
        report.row(
            f"{name}, {words}",
            f"{middle.both:,.0f}  (submitted {middle.submitted:,.0f}, run {middle.run:,.0f})",
        )
    ours = middles["onejob, postgresql"]
    for place in places:
        if place.side in RATIO_MIN:
            ratio = ours.both / middles[place.name].both
            report.bar(f"onejob, postgresql / {place.name}, {words}", ratio, least=RATIO_MIN[place.side])


async def _measure(place: Target, workers: int) -> Throughput:
    """Submit so many jobs, then have them run."""
    children = [await _start_process(place) for _ in range(workers + 1)]
    try:
        submitter, *others = children
        submitting = float(await _ask(submitter, f"submit {place.jobs}"))
        for child in others:
            _send_line(child, "work")
        async with asyncio.timeout(SECONDS_MAX):
            first, begin = await _wait_for_jobs(others, place.jobs)
        while int(await _ask(submitter, "left")):
            pass
        # From the first word on, for some need a second to set out.
        running = (perf_counter() - begin) * place.jobs / (place.jobs - first)
    finally:
        for child in children:
            child.kill()
            await child.wait()
    return Throughput(place.jobs / submitting, place.jobs / running, place.jobs / (submitting + running))


async def _start_process(place: Target) -> Process:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.work_side", place.side, place.url, str(CONCURRENCY),
        cwd=REPOSITORY, stdin=PIPE, stdout=PIPE, stderr=DEVNULL,
    )  # fmt: skip
    assert child.stdout is not None
    while (line := await child.stdout.readline()) != b"ready\n":
        assert line, f"{place.side} did not start"
    return child


def _send_line(child: Process, word: str) -> None:
    assert child.stdin is not None
    child.stdin.write(f"{word}\n".encode())


async def _ask(child: Process, word: str) -> bytes:
    _send_line(child, word)
    assert child.stdout is not None
    return await child.stdout.readline()


async def _wait_for_jobs(children: list[Process], jobs: int) -> tuple[int, float]:
    """Until so many were run; how many the first word told of, and when."""
    done = 0
    first: tuple[int, float] | None = None
    enough = asyncio.Event()

    async def listen(child: Process) -> None:
        nonlocal done, first
        assert child.stdout is not None
        while line := await child.stdout.readline():
            done += int(line)
            first = first or (done, perf_counter())
            if done >= jobs:
                enough.set()
                return

    listening = [asyncio.create_task(listen(child)) for child in children]
    await enough.wait()
    for task in listening:
        task.cancel()
    assert first is not None
    return first
