"""New keys over HTTP with two processes, against single-row inserts by pgbench on the same database."""

import asyncio
import re
import resource
import shutil
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from tests.support.postgres_server import SUPERUSER, Server

from .bars import HTTP_OVER_PGBENCH
from .database import database_seconds, running_database
from .http import Started, api_key, report_failed, run_wrk, running_service, show_http
from .measure import Run, interleave, ratios
from .report import Report

PROCESSES = 2
CONNECTIONS = 64
SECONDS = 2
TABLE = "CREATE TABLE plain (key text PRIMARY KEY, body text NOT NULL)"
INSERT = (
    'INSERT INTO plain VALUES (md5(random()::text), \'{"customer": "cus_9s6XKzkNRiz8i3", "amount": 4200}\') '
    "ON CONFLICT (key) DO NOTHING;\n"
)


async def pgbench(folder: Path, report: Report, rounds: int) -> None:
    report.title(f"New keys over HTTP on PostgreSQL, {PROCESSES} processes, {CONNECTIONS} connections")
    if shutil.which("wrk") is None:
        report.row("skipped: wrk is not installed", "-")
        return
    async with AsyncExitStack() as stack:
        server = await asyncio.to_thread(stack.enter_context, running_database())
        url = server.database()
        secret = await api_key(url)
        services = []
        for number in range(PROCESSES):
            place = folder / f"pg{number}"
            await asyncio.to_thread(place.mkdir)
            services.append(await stack.enter_async_context(running_service(place, url)))
        sides = {"pgbench": _inserts(server, url), "onejob": _requests(folder, server, services, secret)}
        runs = await interleave(sides, rounds)
    case = f"new, {CONNECTIONS} connections"
    report.rate(f"single-row INSERT, {CONNECTIONS} connections", "pgbench", runs["pgbench"])
    show_http(report, case, f"onejob serve, PostgreSQL, {PROCESSES} processes", runs["onejob"])
    report_failed(report, case, runs["onejob"])
    report.judge(HTTP_OVER_PGBENCH, ratios(runs["onejob"], runs["pgbench"]))


def _inserts(server: Server, url: str) -> Callable[[], Awaitable[Run]]:
    database = url.rpartition("/")[2]
    connection_options = ("-h", "127.0.0.1", "-p", str(server.port), "-U", SUPERUSER)
    server.run("psql", *connection_options, "-d", database, "-c", TABLE)
    script = server.folder / "insert.sql"
    script.write_text(INSERT)
    script.chmod(0o644)
    options = f"-n -M prepared -c {CONNECTIONS} -j 2 -T {SECONDS} -f {script}".split()

    async def run() -> Run:
        before, ours = database_seconds(server), _children_seconds()
        output = await asyncio.to_thread(server.run, "pgbench", *connection_options, *options, database)
        rate, count = re.search(r"tps = ([\d.]+)", output), re.search(r"actually processed: (\d+)", output)
        assert rate
        assert count
        each_us = 1e6 / int(count[1])
        return Run(
            float(rate[1]), (_children_seconds() - ours) * each_us, (database_seconds(server) - before) * each_us
        )

    return run


def _requests(folder: Path, server: Server, services: list[Started], secret: str) -> Callable[[], Awaitable[Run]]:
    turn = 0

    async def run() -> Run:
        nonlocal turn
        turn += 1
        before = database_seconds(server)
        found = await asyncio.gather(
            *(
                run_wrk(
                    folder / f"pg{n}",
                    service,
                    CONNECTIONS // PROCESSES,
                    f'"p{n}-{turn}-" .. n',
                    secret,
                    seconds=SECONDS,
                )
                for n, service in enumerate(services)
            )
        )
        rate = sum(one.rate for one in found)
        return Run(
            rate,
            sum(one.cpu_us * one.rate for one in found) / rate,
            (database_seconds(server) - before) / (rate * SECONDS) * 1e6,
            max(one.p99_ms or 0.0 for one in found),
            sum(one.failed for one in found),
        )

    return run


def _children_seconds() -> float:
    """Processor time of the programs that have ended, of which pgbench is one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
