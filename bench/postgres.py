"""onejob and its peers on one PostgreSQL: the same submissions, each deduplicated by its key."""

import asyncio
import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from .database import database_server
from .measure import Report

# By number of callers: submissions of a round (onejob, peers), and the bars over procrastinate and DBOS.
CALLERS = {1: (1_500, 500, 2.0, 3.0), 16: (8_000, 800, 6.0, 15.0), 64: (16_000, 960, 10.0, 25.0)}
PACKAGES = {"onejob": "onejob", "procrastinate": "procrastinate", "DBOS": "dbos"}
REPOSITORY = Path(__file__).parents[1]

Side = asyncio.subprocess.Process


async def postgres(report: Report, rounds: int) -> None:
    report.title("Submissions per second on PostgreSQL, durable before the answer (library, one process)")
    server = database_server()
    sides: dict[str, Side] = {}
    try:
        server.init()
        server.start()
        for name, package in PACKAGES.items():
            if find_spec(package) is None:
                report.row(f"without {name}, which is not installed", "-")
            else:
                sides[name] = await start_side(name, server.database())
        await _compare(report, rounds, sides)
    finally:
        for side in sides.values():
            side.kill()
            await side.wait()
        server.remove()


async def start_side(name: str, url: str) -> Side:
    side = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.postgres_side", name, url,
        cwd=REPOSITORY, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert side.stdout is not None
    while (line := await side.stdout.readline()) != b"ready\n":
        assert line, f"{name} did not start"
    return side


async def _compare(report: Report, rounds: int, sides: dict[str, Side]) -> None:
    for count, (our_total, peer_total, over_procrastinate, over_dbos) in CALLERS.items():
        measured: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(rounds + 1):
            for name, side in sides.items():
                rate = await measure_rate(side, count, our_total if name == "onejob" else peer_total)
                if number:  # the first round fills pools and prepares statements
                    measured[name].append(rate)
        rates = {name: median(values) for name, values in measured.items()}
        for name, rate in rates.items():
            report.row(f"{name}, {count} caller{'s' * (count > 1)}", f"{rate:,.0f}")
        for name, ratio_min in (("procrastinate", over_procrastinate), ("DBOS", over_dbos)):
            if name in rates:
                report.bar(f"onejob / {name}, {count}", rates["onejob"] / rates[name], least=ratio_min)


async def measure_rate(side: Side, count: int, total: int) -> float:
    assert side.stdin is not None
    assert side.stdout is not None
    side.stdin.write(b"%d %d\n" % (count, total))
    return float(await side.stdout.readline())
