"""onejob and its peers on one PostgreSQL: the same submissions, each deduplicated by its key."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec

from tests.support.postgres_server import Server

from .bars import OVER_DBOS, OVER_PROCRASTINATE
from .database import database_seconds, running_database
from .measure import Run, interleave, ratios
from .report import REPOSITORY, Report

# Submissions of a round by number of callers, on each side in this order; peers are slower, so they get fewer.
CALLERS = {1: (1_000, 400, 200), 16: (8_000, 800, 480), 64: (9_600, 640, 384)}
# With 16 callers there are published bars; these guard the rest.
GUARDS = {("procrastinate", 1): 2.0, ("DBOS", 1): 3.0, ("procrastinate", 64): 10.0, ("DBOS", 64): 25.0}
PACKAGES = {"onejob": "onejob", "procrastinate": "procrastinate", "DBOS": "dbos"}
LINE_BYTES_MAX = 1 << 24
ANSWER_SECONDS_MAX = 90

Side = asyncio.subprocess.Process


async def postgres(report: Report, rounds: int) -> None:
    report.title("Submissions per second on PostgreSQL, durable before the answer (library, one process)")
    async with AsyncExitStack() as stack:
        server = await asyncio.to_thread(stack.enter_context, running_database())
        sides: dict[str, Side] = {}
        for name, package in PACKAGES.items():
            if find_spec(package) is None:
                report.row(f"without {name}, which is not installed", "-")
            else:
                sides[name] = await stack.enter_async_context(running_side(name, server.database()))
        for callers, totals in CALLERS.items():
            await _compare(report, rounds, server, sides, callers, dict(zip(PACKAGES, totals, strict=True)))


async def _compare(
    report: Report,
    rounds: int,
    server: Server,
    sides: dict[str, Side],
    callers: int,
    totals: dict[str, int],
) -> None:
    case = f"{callers} caller{'s' * (callers > 1)}"
    runs = await interleave(
        {name: on_server(server, side, callers, totals[name]) for name, side in sides.items()}, rounds
    )
    for name, measured in runs.items():
        report.rate(case, name, measured)
    for name, bar in (("procrastinate", OVER_PROCRASTINATE), ("DBOS", OVER_DBOS)):
        if name not in runs:
            continue
        ratio = ratios(runs["onejob"], runs[name])
        if callers == 16:
            report.judge(bar, ratio)
        else:
            report.bar(f"onejob / {name}, {case}", ratio.median, least=GUARDS[name, callers])


def on_server(server: Server, side: Side, callers: int, total: int) -> Callable[[], Awaitable[Run]]:
    """A round of a side, with what the database uses for it."""

    async def run() -> Run:
        before = database_seconds(server)
        found = await run_side(side, callers, total)
        return found._replace(store_cpu_us=(database_seconds(server) - before) / total * 1e6)

    return run


@asynccontextmanager
async def running_side(name: str, url: str, python: str = sys.executable) -> AsyncIterator[Side]:
    side = await start_side(name, url, python)
    try:
        yield side
    finally:
        if side.returncode is None:
            side.kill()
        await side.wait()


async def start_side(name: str, url: str, python: str = sys.executable) -> Side:
    side = await asyncio.create_subprocess_exec(
        python, "-m", "bench.postgres_side", name, url,
        cwd=REPOSITORY, env=side_environment(), limit=LINE_BYTES_MAX,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    while (line := await _read_line(side)) != b"ready\n":
        assert line, f"{name} did not start"
    return side


def side_environment() -> dict[str, str]:
    """So that any interpreter finds onejob and these benchmarks."""
    path = (str(REPOSITORY / "src"), str(REPOSITORY), os.environ.get("PYTHONPATH"))
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))}


async def run_side(side: Side, callers: int, total: int) -> Run:
    rate, seconds = map(float, (await ask_side(side, f"{callers} {total}")).split())
    return Run(rate, seconds / total * 1e6)


async def measure_rate(side: Side, count: int, total: int) -> float:
    return (await run_side(side, count, total)).rate


async def ask_side(side: Side, line: str) -> bytes:
    assert side.stdin is not None
    side.stdin.write(f"{line}\n".encode())
    answer = await _read_line(side)
    assert answer, "a side of the comparison has died"
    return answer


async def _read_line(side: Side) -> bytes:
    assert side.stdout is not None
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        return await side.stdout.readline()
