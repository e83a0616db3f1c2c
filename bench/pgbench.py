"""New keys over HTTP with two processes, against the plainest thing that the same database can do with a key."""

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
    plain = server.database().rpartition("/")[2]
    where = ("-h", "127.0.0.1", "-p", str(server.port), "-U", SUPERUSER)
    server.run("psql", *where, "-d", plain, "-c", TABLE)
    script = server.folder / "insert.sql"
    script.write_text(INSERT)
    script.chmod(0o644)
    ours: list[float] = []
    theirs: list[float] = []
    late: list[float] = []
    cpu: list[float] = []
    for number in range(rounds + 1):
        words = (
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
        told = await asyncio.to_thread(server.run, "pgbench", *where, *words, plain)
        rate = re.search(r"tps = ([\d.]+)", told)
        assert rate
        runs = await asyncio.gather(
            *(
                run_wrk(folder / f"pg{n}", service, CONNECTIONS // PROCESSES, f'"p{n}-{number}-" .. n', secret)
                for n, service in enumerate(services)
            )
        )
        if any(run.failed for run in runs):
            report.missed.append("answers that were not 2xx")
        if number:  # the first round makes files and prepares statements
            theirs.append(float(rate[1]))
            ours.append(sum(run.rate for run in runs))
            late.append(max(run.p99_ms for run in runs))
            cpu.append(sum(run.cpu_us for run in runs) / PROCESSES)
    report.row("pgbench, single-row INSERT ... ON CONFLICT", f"{median(theirs):,.0f}/s")
    figures = f"{median(ours):,.0f}/s  p99 {median(late):.1f} ms  {median(cpu):.0f} µs"
    report.row("onejob over HTTP, authentication on", figures)
    report.bar("onejob / pgbench", median(a / b for a, b in zip(ours, theirs, strict=True)), least=LEAST)
