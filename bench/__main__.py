"""`make bench`: every figure of one run, and the bars it must hold. `ARGS=--quick` for a short one."""

import argparse
import asyncio
import platform
import sys
import tempfile
from pathlib import Path

import apsw

from .callers import callers
from .growth import growth, memory
from .measure import Report
from .stages import seam, stages


async def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds, 100,000 keys instead of 1,000,000"
    )
    parser.add_argument("--folder", type=Path, help="where the databases are made (default: a temporary one)")
    options = parser.parse_args()
    rounds = 3 if options.quick else 7
    report = Report()
    print(f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, {platform.machine()}")
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="onejob-bench-") as name:
        folder = Path(name)
        await stages(folder, report, rounds * 20)
        await seam(folder, report, rounds)
        await callers(folder, report, rounds)
        await growth(folder, report, rounds, 100_000 if options.quick else 1_000_000)
        memory(report, 300_000 if options.quick else 1_000_000)
    print()
    print("every bar was held" if not report.missed else f"MISSED: {', '.join(report.missed)}")
    return bool(report.missed)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
