"""A Starlette application behind our middleware, and behind that of a peer on Redis; new keys and replays."""

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from .bars import MIDDLEWARE_ONE, MIDDLEWARE_POSTGRESQL, MIDDLEWARE_SQLITE
from .database import database_seconds, running_database
from .http import Started, report_failed, run_wrk, running_server, show_http
from .measure import Run, interleave, processor_seconds, ratios
from .redis import redis_program, run_redis
from .report import Report

NONE, SQLITE, POSTGRESQL = "no middleware", "onejob, SQLite", "onejob, PostgreSQL"
PEER = "asgi-idempotency-header, Redis"
CALLERS = (64, 1)
# The peer's Redis is not durable; our responses are, with fewer round trips.
REPLAYED_MIN = 2.0
BARS = {(64, SQLITE): MIDDLEWARE_SQLITE, (64, POSTGRESQL): MIDDLEWARE_POSTGRESQL, (1, POSTGRESQL): MIDDLEWARE_ONE}


class Application(NamedTuple):
    """An application that is being served, and the processor time of its store."""

    server: Started
    store_seconds: Callable[[], float] | None = None


async def middleware(folder: Path, report: Report, rounds: int) -> None:
    report.title("A Starlette application behind the middleware; ours durable before the answer, Redis in memory")
    if shutil.which("wrk") is None or find_spec("starlette") is None:
        report.row("skipped: wrk or starlette is not installed", "-")
        return
    async with running_applications(folder, report) as applications:
        for callers in CALLERS:
            sides: dict[str, Callable[[], Awaitable[Run]]] = {}
            for name, application in applications.items():
                for case in _cases(name, callers):
                    sides[f"{case}; {name}"] = _side(folder, application, callers, case)
            _show(report, callers, await interleave(sides, rounds, warm_up=0), list(applications))


@asynccontextmanager
async def running_applications(folder: Path, report: Report) -> AsyncIterator[dict[str, Application]]:
    async with AsyncExitStack() as stack:
        database = await asyncio.to_thread(stack.enter_context, running_database())

        async def serve(name: str, store: str) -> Started:
            command = [sys.executable, "-m", "bench.middleware_side", name, store]
            return await stack.enter_async_context(running_server(command, folder))

        applications = {
            NONE: Application(await serve("none", "")),
            SQLITE: Application(await serve("onejob", f"sqlite:///{folder / 'middleware.db'}")),
            POSTGRESQL: Application(await serve("onejob", database.database()), partial(database_seconds, database)),
        }
        program = redis_program()
        if program is None or find_spec("idempotency_header_middleware") is None:
            report.row(f"without {PEER}, which is not installed", "-")
        else:
            redis = await stack.enter_async_context(run_redis(program, folder))
            peer = await serve("asgi-idempotency-header", redis.socket)
            applications[PEER] = Application(peer, partial(processor_seconds, redis.pid))
        yield applications


def _cases(name: str, callers: int) -> tuple[str, ...]:
    return ("new",) if name == NONE or callers == 1 else ("new", "replayed")


def _side(folder: Path, application: Application, callers: int, case: str) -> Callable[[], Awaitable[Run]]:
    turn = 0

    async def run() -> Run:
        nonlocal turn
        turn += 1
        key = f'"n{callers}-{turn}-" .. n' if case == "new" else f'"r{callers}"'
        return await run_wrk(folder, application.server, callers, key, "none", store_seconds=application.store_seconds)

    return run


def _show(report: Report, callers: int, runs: dict[str, list[Run]], names: list[str]) -> None:
    connections = f"{callers} connection{'s' * (callers > 1)}"
    for case in ("new", "replayed"):
        for name in (name for name in names if case in _cases(name, callers)):
            measured = runs[f"{case}; {name}"]
            show_http(report, f"{case}, {connections}", name, measured)
            if name != PEER:  # the peer answers concurrent duplicates with 409, so only our failures count
                report_failed(report, f"{case}, {connections}, {name}", measured)
    if PEER not in names:
        return
    for name in (SQLITE, POSTGRESQL):
        for case in _cases(name, callers):
            ratio = ratios(runs[f"{case}; {name}"], runs[f"{case}; {PEER}"])
            bar = BARS.get((callers, name))
            if case == "new" and bar is not None:
                report.judge(bar, ratio)
            elif case == "replayed":
                report.bar(f"{connections}, {case}, {name} / peer", ratio.median, least=REPLAYED_MIN)
            else:
                # With one caller each response waits for the disk; Redis does not write to disk.
                report.row(f"{connections}, {case}, {name} / peer", ratio.format(2))
