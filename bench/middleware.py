"""A Starlette application behind our middleware, and behind that of a peer on Redis; new keys and replays."""

import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from .database import database_server
from .http import Run, Started, run_wrk, start_server
from .measure import Report
from .redis import redis_program, run_redis

PEER = "asgi-idempotency-header, Redis"
CALLERS = (64, 1)
# The peer's Redis is not durable; our responses are, with fewer round trips.
BARS = {"new": 3.0, "replayed": 2.0}


async def middleware(folder: Path, report: Report, rounds: int) -> None:
    report.title("A Starlette application behind the middleware; ours durable before the answer, Redis in memory")
    if shutil.which("wrk") is None or find_spec("starlette") is None:
        report.row("skipped: wrk or starlette is not installed", "-")
        return
    async with AsyncExitStack() as stack:
        server = database_server()
        stack.callback(server.remove)
        server.init()
        server.start()
        sides = {
            "none": await stack.enter_async_context(_side(folder, "none", "")),
            "onejob, SQLite": await stack.enter_async_context(
                _side(folder, "onejob", f"sqlite:///{folder / 'middleware.db'}")
            ),
            "onejob, PostgreSQL": await stack.enter_async_context(_side(folder, "onejob", server.database())),
        }
        redis = redis_program()
        if redis is None or find_spec("idempotency_header_middleware") is None:
            report.row(f"without {PEER}, which is not installed", "-")
        else:
            store = await stack.enter_async_context(run_redis(redis, folder))
            sides[PEER] = await stack.enter_async_context(_side(folder, "asgi-idempotency-header", store))
        for callers in CALLERS:
            await _compare(folder, report, rounds, callers, sides)


async def _compare(folder: Path, report: Report, rounds: int, callers: int, sides: dict[str, Started]) -> None:
    runs_by_case: dict[tuple[str, str], list[Run]] = {}
    for number in range(rounds):
        for name, side in sides.items():
            for case, key in (("new", f'"n{callers}-{number}-" .. n'), ("replayed", f'"r{callers}"')):
                run = await run_wrk(folder, side, callers, key, "none")
                runs_by_case.setdefault((case, name), []).append(run)
    for (case, name), runs in sorted(runs_by_case.items()):
        medians = Run(*(median(values) for values in zip(*runs, strict=True)))
        figures = f"{medians.rate:,.0f}/s  p99 {medians.p99_ms:.1f} ms  {medians.cpu_us:.0f} µs"
        report.row(f"{callers} connections, {case}, {name}", figures)
        # The peer answers concurrent duplicates with 409, so only our failures count.
        if name != PEER and any(run.failed for run in runs):
            report.missed.append(f"{case}, {name}: responses that were not 2xx")
    for case, ratio_min in BARS.items():
        peer_runs = runs_by_case.get((case, PEER))
        for name in sides if peer_runs else ():
            if name.startswith("onejob"):
                pairs = zip(runs_by_case[case, name], peer_runs or (), strict=True)
                ratio = median(ours.rate / peer.rate for ours, peer in pairs)
                # With one caller each response waits for the disk; Redis does not write to disk.
                bar_min = ratio_min if callers > 1 else 0.01
                report.bar(f"{callers} connections, {case}, {name} / peer", ratio, least=bar_min)


@asynccontextmanager
async def _side(folder: Path, name: str, store: str) -> AsyncIterator[Started]:
    command = [sys.executable, "-m", "bench.middleware_side", name, store]
    process, url = await start_server(command, folder, str(Path(__file__).parents[1]))
    try:
        yield process, url
    finally:
        process.terminate()
        await process.wait()
