"""Latency under an open load of 30, 50 and 70 % of what each side can do at most; ours and the peers.

The maximum is measured in every round just before its loads, with a closed load of 64 callers, because the machine is not
equally fast in every minute. The latencies of all rounds are taken together.
"""

import asyncio
import random
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import NamedTuple

from .database import running_database
from .http import Started, api_key, run_wrk, running_service
from .measure import interleave, percentile
from .middleware import NONE, running_applications
from .postgres import LINE_BYTES_MAX, Side, ask_side, run_side, running_side, side_environment
from .report import REPOSITORY, LatencyResult, Report

LOADS = (0.3, 0.5, 0.7)
CALLERS = 64
LIBRARY, SERVICE, MIDDLEWARE = "library", "HTTP service", "middleware"
# Submissions of a closed load: about a second of each.
TOTALS = {"onejob": 6_400, "procrastinate": 640, "DBOS": 320}
PACKAGES = {"procrastinate": "procrastinate", "DBOS": "dbos"}
SECONDS_MIN, SECONDS_MAX = 0.6, 4.0
COUNT_MIN = 220  # requests of a round
P999_COUNT_MIN = 1_000


class Case(NamedTuple):
    """One side: how its maximum is found, and the process that sends to it."""

    case: str
    name: str
    find_maximum: Callable[[], Awaitable[float]]
    sender: Side


class Round(NamedTuple):
    maximum: float
    latencies_ms: dict[float, list[float]]
    late: dict[float, int]


async def latency(folder: Path, report: Report, rounds: int) -> None:
    report.title(f"{'Milliseconds from when a request was due, open load':<68}{'p50':>10}{'p99':>10}{'p99.9':>10}")
    async with AsyncExitStack() as stack:
        cases = await stack.enter_async_context(_libraries(folder, report))
        if shutil.which("wrk") is None:
            report.row("without HTTP: wrk is not installed", "-")
        else:
            cases += await stack.enter_async_context(_services(folder))
            cases += await stack.enter_async_context(_applications(folder, report))
        sides = {f"{case.case}, {case.name}": partial(_measure, case) for case in cases}
        measured = await interleave(sides, rounds, warm_up=0)
    for case, found in zip(cases, measured.values(), strict=True):
        for load in LOADS:
            report.latency(_summarise(case, load, found))


async def _measure(case: Case) -> Round:
    maximum = await case.find_maximum()
    latencies: dict[float, list[float]] = {}
    late: dict[float, int] = {}
    for load in LOADS:
        rate = maximum * load
        seconds = min(max(SECONDS_MIN, COUNT_MIN / rate), SECONDS_MAX)
        first, *rest = map(int, (await ask_side(case.sender, f"open {rate} {seconds}")).split())
        latencies[load], late[load] = [microseconds / 1000 for microseconds in rest], first
    return Round(maximum, latencies, late)


def _summarise(case: Case, load: float, rounds: list[Round]) -> LatencyResult:
    pooled = sorted(latency for one in rounds for latency in one.latencies_ms[load])
    maximum = median(one.maximum for one in rounds)
    return LatencyResult(
        case=case.case,
        side=case.name,
        load=load,
        offered=maximum * load,
        maximum=maximum,
        count=len(pooled),
        p50=percentile(pooled, 0.5),
        p99=percentile(pooled, 0.99),
        p999=percentile(pooled, 0.999) if len(pooled) >= P999_COUNT_MIN else None,
        late=sum(one.late[load] for one in rounds),
    )


@asynccontextmanager
async def _libraries(folder: Path, report: Report) -> AsyncIterator[list[Case]]:
    async with AsyncExitStack() as stack:
        server = await asyncio.to_thread(stack.enter_context, running_database())
        urls = {"onejob, SQLite": f"sqlite:///{folder / 'latency.db'}", "onejob, PostgreSQL": server.database()}
        for name, package in PACKAGES.items():
            if find_spec(package) is None:
                report.row(f"without {name}, which is not installed", "-")
            else:
                urls[name] = server.database()
        cases = []
        for name, url in urls.items():
            library = name.partition(",")[0]
            side = await stack.enter_async_context(running_side(library, url))

            async def find_maximum(side: Side = side, total: int = TOTALS[library]) -> float:
                return (await run_side(side, CALLERS, total)).rate

            await find_maximum()  # fills pools and prepares statements
            cases.append(Case(LIBRARY, name, find_maximum, side))
        yield cases


@asynccontextmanager
async def _services(folder: Path) -> AsyncIterator[list[Case]]:
    async with AsyncExitStack() as stack:
        server = await asyncio.to_thread(stack.enter_context, running_database())
        cases = []
        for name, url in (
            ("onejob, SQLite", f"sqlite:///{folder / 'latency-http.db'}"),
            ("onejob, PostgreSQL", server.database()),
        ):
            place = folder / f"latency-{name.split()[1]}"
            await asyncio.to_thread(place.mkdir)
            secret = await api_key(url)
            service = await stack.enter_async_context(running_service(place, url))
            cases.append(await stack.enter_async_context(_http_case(place, SERVICE, name, service, secret)))
        yield cases


@asynccontextmanager
async def _applications(folder: Path, report: Report) -> AsyncIterator[list[Case]]:
    place = folder / "latency-middleware"
    await asyncio.to_thread(place.mkdir)
    async with AsyncExitStack() as stack:
        applications = await stack.enter_async_context(running_applications(place, report))
        yield [
            await stack.enter_async_context(_http_case(place, MIDDLEWARE, name, application.server, "none"))
            for name, application in applications.items()
            if name != NONE
        ]


@asynccontextmanager
async def _http_case(folder: Path, case: str, name: str, server: Started, secret: str) -> AsyncIterator[Case]:
    async def find_maximum() -> float:
        key = f'"m{random.getrandbits(64)}-" .. n'
        return (await run_wrk(folder, server, CALLERS, key, secret, seconds=1)).rate

    sender = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.http_side", server[1], secret,
        cwd=REPOSITORY, env=side_environment(), limit=LINE_BYTES_MAX,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert sender.stdout is not None
        assert await sender.stdout.readline() == b"ready\n", f"the callers of {name} did not start"
        yield Case(case, name, find_maximum, sender)
    finally:
        if sender.returncode is None:
            sender.kill()
        await sender.wait()
