"""Measure in one run what a submission costs, compare it with other systems, and check the bars."""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

from .bucket import bucket
from .callers import callers
from .console import console
from .engines import engines
from .gate import gate
from .growth import growth, memory
from .http import http
from .latency import latency
from .middleware import middleware
from .own_transaction import own_transaction
from .pgbench import pgbench
from .postgres import postgres
from .publish import PAGE, publish, write_files
from .pythons import find_pythons
from .report import REPOSITORY, Report
from .stages import seam, stages
from .users import users
from .work import WORKERS, work

BUILD = REPOSITORY / "build" / "bench"
ROUNDS, ROUNDS_QUICK, ROUNDS_PUBLISHED = 7, 3, 5
SYNCS = 100
SECONDS_MAX, SECONDS_MAX_PUBLISHED = 900, 300  # of one benchmark, so that none can hang


class Setting(NamedTuple):
    """What a benchmark is run with."""

    folder: Path
    report: Report
    rounds: int
    pythons: dict[str, str]
    quick: bool
    published: bool

    @property
    def many(self) -> int:
        return 100_000 if self.quick else 1_000_000


PARTS: dict[str, Callable[[Setting], Awaitable[None]]] = {
    # First, because it reads the peak memory of the process.
    "memory": lambda s: memory(s.report, 300_000 if s.quick else 1_000_000),
    "stages": lambda s: stages(s.folder, s.report, s.rounds * 20),
    "seam": lambda s: seam(s.folder, s.report, s.rounds),
    "callers": lambda s: callers(s.folder, s.report, s.rounds),
    "users": lambda s: users(s.folder, s.report, s.rounds),
    "engines": lambda s: engines(s.folder, s.report, s.rounds, s.many // 10, s.pythons),
    "postgres": lambda s: postgres(s.report, s.rounds),
    "http": lambda s: http(s.folder, s.report, s.rounds, s.pythons),
    "pgbench": lambda s: pgbench(s.folder, s.report, s.rounds),
    "middleware": lambda s: middleware(s.folder, s.report, s.rounds),
    "work": lambda s: work(
        s.folder, s.report, s.rounds, 4_000 if s.quick or s.published else 10_000, (1,) if s.published else WORKERS
    ),
    "growth": lambda s: growth(s.folder, s.report, s.rounds, s.many),
    "latency": lambda s: latency(s.folder, s.report, s.rounds),
    "gate": lambda s: gate(s.report, s.rounds),
    "transaction": lambda s: own_transaction(s.report, s.rounds),
    "bucket": lambda s: bucket(s.folder, s.report, s.many),
    "console": lambda s: console(s.folder, s.report, s.rounds, s.many),
}
# What docs/benchmarks.md shows.
PUBLISHED = ("engines", "postgres", "http", "pgbench", "middleware", "work", "growth", "latency", "console")


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, 100,000 keys instead of 1,000,000")
    parser.add_argument("--folder", type=Path, help="folder for the databases (default: a temporary one)")
    parser.add_argument("--only", choices=PARTS, help="run one benchmark")
    parser.add_argument("--python", help="another interpreter, which runs engines and http too, for comparison")
    parser.add_argument(
        "--publish", action="store_true", help="run what docs/benchmarks.md shows (about 12 minutes), and renew it"
    )
    options = parser.parse_args(arguments)
    if options.publish and (options.quick or options.only):
        parser.error("--publish runs everything that is published; leave out --quick and --only")
    return options


async def main(options: argparse.Namespace) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # so that servers are stopped, too
    rounds = ROUNDS_QUICK if options.quick else ROUNDS_PUBLISHED if options.publish else ROUNDS
    report = Report(quick=options.quick, rounds=rounds)
    pythons = await asyncio.to_thread(find_pythons, options.python)
    machine = report.results.machine
    versions = ", ".join(f"{name} {text}" for name, text in machine.versions.items())
    print(f"{machine.processor}, {machine.cores} cores, {machine.kernel}; commit {report.results.commit}; {versions}")
    begin = perf_counter()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="onejob-bench-", ignore_cleanup_errors=True) as name:
        report.results.sync_ms = await asyncio.to_thread(measure_sync, Path(name))
        setting = Setting(Path(name), report, rounds, pythons, options.quick, options.publish)
        for part in [options.only] if options.only else PUBLISHED if options.publish else PARTS:
            await run_part(setting, part)
    report.results.seconds = round(perf_counter() - begin, 1)
    write_files(report.results, BUILD)
    report.print_summary(is_partial=options.only is not None)
    print(f"  {report.results.seconds:.0f} s; results and plots: {BUILD.relative_to(REPOSITORY)}")
    if options.publish:
        publish(report.results)
        print(f"  published: {PAGE.relative_to(REPOSITORY)}")
    return int(report.has_missed())


def measure_sync(folder: Path) -> float:
    """Milliseconds of a write of 4 KiB with its fdatasync, as the median."""
    took = []
    with (folder / "sync").open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            begin = perf_counter()
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            took.append((perf_counter() - begin) * 1000)
    return median(took)


async def run_part(setting: Setting, part: str) -> None:
    """One benchmark. If it fails or takes too long, the report says so and the next one is run."""
    report = setting.report
    report.part = part
    begin = perf_counter()
    seconds = SECONDS_MAX_PUBLISHED if setting.published else SECONDS_MAX
    try:
        async with asyncio.timeout(seconds):
            await PARTS[part](setting)
    except TimeoutError:
        report.fail(f"it was stopped after {perf_counter() - begin:.0f} s")
    except Exception as error:  # noqa: BLE001 - reported, and the run counts as failed
        traceback.print_exc()
        report.fail(f"{type(error).__name__}: {error}")
    report.row(f"({part})", f"{perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    sys.exit(asyncio.run(main(parse_options())))
