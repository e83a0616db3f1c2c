"""A Starlette application behind our middleware and behind a peer's, on Redis; new keys and replays, in one run."""

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
# On a bare Redis the peer keeps nothing through a crash: our answers are durable, with fewer round trips.
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
            report.row(f"without {PEER}: it is not installed", "-")
        else:
            store = await stack.enter_async_context(run_redis(redis, folder))
            sides[PEER] = await stack.enter_async_context(_side(folder, "asgi-idempotency-header", store))
        for callers in CALLERS:
            await _compare(folder, report, rounds, callers, sides)


async def _compare(folder: Path, report: Report, rounds: int, callers: int, sides: dict[str, Started]) -> None:
    seen: dict[tuple[str, str], list[Run]] = {}
    for number in range(rounds):
        for name, side in sides.items():
            for what, key in (("new", f'"n{callers}-{number}-" .. n'), ("replayed", f'"r{callers}"')):
                run = await run_wrk(folder, side, callers, key, "none")
                seen.setdefault((what, name), []).append(run)
    for (what, name), runs in sorted(seen.items()):
        middle = Run(*(median(values) for values in zip(*runs, strict=True)))
        figures = f"{middle.rate:,.0f}/s  p99 {middle.p99_ms:.1f} ms  {middle.cpu_us:.0f} µs"
        report.row(f"{callers} connections, {what}, {name}", figures)
        # The peer refuses what is in flight with 409; of ours every answer is the answer.
        if name != PEER and any(run.failed for run in runs):
            report.missed.append(f"{what}, {name}: answers that were not 2xx")
    for what, least in BARS.items():
        theirs = seen.get((what, PEER))
        for name in sides if theirs else ():
            if name.startswith("onejob"):
                pairs = zip(seen[what, name], theirs or (), strict=True)
                ratio = median(mine.rate / their.rate for mine, their in pairs)
                # With one caller each answer waits for the disk by itself; Redis waits for none.
                bar = least if callers > 1 else 0.01
                report.bar(f"{callers} connections, {what}, {name} / peer", ratio, least=bar)


@asynccontextmanager
async def _side(folder: Path, name: str, store: str) -> AsyncIterator[Started]:
    words = [sys.executable, "-m", "bench.middleware_side", name, store]
    process, url = await start_server(words, folder, str(Path(__file__).parents[1]))
    try:
        yield process, url
    finally:
        process.terminate()
        await process.wait()
