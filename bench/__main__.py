"""`make bench`: measure everything in one run and check the ratios against their bars; `ARGS=--quick` is shorter."""

import argparse
import asyncio
import platform
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw

from .bucket import bucket
from .callers import callers
from .console import console
from .gate import gate
from .growth import growth, memory
from .http import http
from .inside import inside
from .measure import Report
from .middleware import middleware
from .pgbench import pgbench
from .postgres import postgres
from .stages import seam, stages
from .users import users
from .work import work


async def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, 100,000 keys instead of 1,000,000")
    parser.add_argument("--folder", type=Path, help="folder for the databases (default: a temporary one)")
    parser.add_argument(
        "--only",
        choices=(
            "stages",
            "seam",
            "callers",
            "users",
            "work",
            "http",
            "growth",
            "memory",
            "postgres",
            "pgbench",
            "gate",
            "middleware",
            "inside",
            "bucket",
            "console",
        ),
        help="run one benchmark",
    )
    options = parser.parse_args()
    rounds = 3 if options.quick else 7
    report = Report()
    print(f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, {platform.machine()}")
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="onejob-bench-") as name:
        folder = Path(name)
        parts: dict[str, Callable[[], Awaitable[None]]] = {
            "stages": lambda: stages(folder, report, rounds * 20),
            "seam": lambda: seam(folder, report, rounds),
            "callers": lambda: callers(folder, report, rounds),
            "users": lambda: users(folder, report, rounds),
            "work": lambda: work(folder, report, rounds, 4_000 if options.quick else 10_000),
            "http": lambda: http(folder, report, rounds),
            "growth": lambda: growth(folder, report, rounds, 100_000 if options.quick else 1_000_000),
            "memory": lambda: memory(report, 300_000 if options.quick else 1_000_000),
            "postgres": lambda: postgres(report, rounds),
            "pgbench": lambda: pgbench(folder, report, rounds),
            "gate": lambda: gate(report, rounds),
            "middleware": lambda: middleware(folder, report, rounds),
            "inside": lambda: inside(report, rounds),
            "bucket": lambda: bucket(folder, report, 100_000 if options.quick else 1_000_000),
            "console": lambda: console(folder, report, rounds, 100_000 if options.quick else 1_000_000),
        }
        for part, run in parts.items():
            if options.only in (None, part):
                await run()
    print()
    print("all bars held" if not report.missed else f"MISSED: {', '.join(report.missed)}")
    return bool(report.missed)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
