"""New keys over HTTP with two processes, against single-row inserts by pgbench on the same database."""

import asyncio
import re
import shutil
import sys
from pathlib import Path
from statistics import median

from tests.support.postgres_server import SUPERUSER, Server

from .database import database_server
from .http import SECONDS, Started, api_key, run_wrk, start_server
from .measure import Report

PROCESSES = 2
CONNECTIONS = 64
LEAST = 0.5
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
    server = database_server()
    services: list[Started] = []
    try:
        server.init()
        server.start()
        url = server.database()
        secret = await api_key(url)
        services += [await _service(folder / f"pg{number}", url) for number in range(PROCESSES)]
        await _compare(folder, report, rounds, server, services, secret)
    finally:
        for process, _ in services:
            process.terminate()
            await process.wait()
        server.remove()


async def _service(folder: Path, url: str) -> Started:
    await asyncio.to_thread(folder.mkdir)
    (folder / "serve.toml").write_text(f'auth = true\nport = 0\nengine = "{url}"\n')
    return await start_server([sys.executable, "-m", "onejob.cli", "serve", "--config", "serve.toml"], folder)


async def _compare(
    folder: Path, report: Report, rounds: int, server: Server, services: list[Started], secret: str
) -> None:
    database = server.database().rpartition("/")[2]
    connection_options = ("-h", "127.0.0.1", "-p", str(server.port), "-U", SUPERUSER)
    server.run("psql", *connection_options, "-d", database, "-c", TABLE)
    script = server.folder / "insert.sql"
    script.write_text(INSERT)
    script.chmod(0o644)
    ours: list[float] = []
    theirs: list[float] = []
    p99_ms: list[float] = []
    cpu_us: list[float] = []
    for number in range(rounds + 1):
        options = (
            "-n",
            "-M",
            "prepared",
            "-c",
            str(CONNECTIONS),
            "-j",
            "2",
            "-T",
            str(SECONDS),
            "-f",
            str(script),
        )
        output = await asyncio.to_thread(server.run, "pgbench", *connection_options, *options, database)
        rate = re.search(r"tps = ([\d.]+)", output)
        assert rate
        runs = await asyncio.gather(
            *(
                run_wrk(folder / f"pg{n}", service, CONNECTIONS // PROCESSES, f'"p{n}-{number}-" .. n', secret)
                for n, service in enumerate(services)
            )
        )
        if any(run.failed for run in runs):
            report.missed.append("responses that were not 2xx")
        if number:  # the first round creates files and prepares statements
            theirs.append(float(rate[1]))
            ours.append(sum(run.rate for run in runs))
            p99_ms.append(max(run.p99_ms for run in runs))
            cpu_us.append(sum(run.cpu_us for run in runs) / PROCESSES)
    report.row("pgbench, single-row INSERT ... ON CONFLICT", f"{median(theirs):,.0f}/s")
    figures = f"{median(ours):,.0f}/s  p99 {median(p99_ms):.1f} ms  {median(cpu_us):.0f} µs"
    report.row("onejob over HTTP, authentication on", figures)
    report.bar("onejob / pgbench", median(a / b for a, b in zip(ours, theirs, strict=True)), least=LEAST)
