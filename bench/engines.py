"""SQLite and PostgreSQL as a user of the library meets them: one run, the same number of keys in both stores all the time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from .bars import SQLITE_OVER_POSTGRESQL
from .database import running_database
from .fill import fill
from .measure import Run, interleave, ratios
from .postgres import on_server, run_side, running_side
from .report import Report

# Submissions of a round by number of callers, the same on every side.
TOTALS = {64: 9_600, 16: 4_000, 1: 400}


async def engines(folder: Path, report: Report, rounds: int, keys: int, pythons: dict[str, str]) -> None:
    report.title(f"Submissions per second (library, one process), {keys:,} random keys in each store at the beginning")
    async with AsyncExitStack() as stack:
        server = await asyncio.to_thread(stack.enter_context, running_database())
        sides = {}
        for version, python in pythons.items():
            sqlite, postgresql = f"sqlite:///{folder / f'engines-{version}.db'}", server.database()
            for url in (sqlite, postgresql):
                await fill(url, keys)
            sides["SQLite", version] = await stack.enter_async_context(running_side("onejob", sqlite, python))
            sides["PostgreSQL", version] = await stack.enter_async_context(running_side("onejob", postgresql, python))
        for callers, total in TOTALS.items():
            work: dict[str, Callable[[], Awaitable[Run]]] = {}
            versions = list(pythons) if callers == 64 else list(pythons)[:1]
            for (store, version), side in sides.items():
                if version not in versions:
                    continue
                name = f"{store} {version}"
                if store == "PostgreSQL":
                    work[name] = on_server(server, side, callers, total)
                else:
                    work[name] = partial(run_side, side, callers, total)
            _show(report, callers, await interleave(work, rounds), versions)


def _show(report: Report, callers: int, runs: dict[str, list[Run]], versions: list[str]) -> None:
    case = f"{callers} caller{'s' * (callers > 1)}"
    for version in versions:
        for store in ("SQLite", "PostgreSQL"):
            report.rate(case, f"onejob, {store}", runs[f"{store} {version}"], python=version)
        ratio = ratios(runs[f"SQLite {version}"], runs[f"PostgreSQL {version}"])
        if callers == 64 and version == versions[0]:
            report.judge(SQLITE_OVER_POSTGRESQL, ratio)
        else:
            report.row(f"Python {version}, {case}, SQLite / PostgreSQL", ratio.format(2))
