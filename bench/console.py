"""What operators and Prometheus wait for in a store with many jobs: metrics, the overview, pages of jobs."""

import asyncio
import json
from pathlib import Path
from statistics import median
from time import perf_counter

import asyncpg

import onejob
from onejob.engines.sqlite import schema
from onejob.http.app import HttpApp
from onejob.ledger.counts import ALL_TENANTS
from tests.support.app_server import serve_app

from .database import database_server
from .measure import Report

METRICS_MS_MAX = 100
PAGE_MS_MAX = 300
TYPES = 20
# Of 1,000 jobs: 10 wait, 1 is lost, 20 have failed.
STATE = "CASE WHEN n % 100 = 0 THEN 'pending' WHEN n % 1000 = 1 THEN 'lost' WHEN n % 50 = 2 THEN 'failed' ELSE 'success' END"
FIRST_MS = 1_794_900_000_000
PAGES = (
    "/api/overview",
    "/api/jobs",
    "/api/jobs?limit=100",
    "/api/jobs?state=lost",
    "/api/jobs?state=failed&type=t2",
    "/api/jobs?state=pending&type=t3",
    "/api/jobs?type=none",
    "/api/jobs?user=nobody",
    "/api/jobs?label=customer=none",
    "/api/jobs?state=failed&createdBefore=2026-11-17T12:00:00Z",
    "/api/types",
    "/api/workers",
)


async def console(folder: Path, report: Report, rounds: int, jobs: int) -> None:
    path = folder / "console.db"
    await _measure("SQLite", f"sqlite:///{path}", report, rounds, jobs)
    server = database_server()
    try:
        server.init()
        server.start()
        await _measure("PostgreSQL", server.database(), report, rounds, jobs)
    finally:
        server.remove()


async def _measure(name: str, url: str, report: Report, rounds: int, jobs: int) -> None:
    report.title(f"{name} with {jobs:,} jobs (milliseconds)")
    async with onejob.open(url, sweep=False) as queue:
        await queue.submit("t0", {"n": 0}, labels={"customer": "7"})
    begin = perf_counter()
    await (_fill_postgres(url, jobs) if url.startswith("postgresql:") else asyncio.to_thread(_fill_sqlite, url, jobs))
    report.row("seconds to fill the store", f"{perf_counter() - begin:.0f}")
    async with onejob.open(url, sweep=False) as queue, serve_app(HttpApp(queue)) as client:
        for tenant in (ALL_TENANTS, "default"):
            snapshot = (await queue.runtime.job_counts.load(tenant))[0]
            while snapshot.by_state().get("success", 0) < jobs // 2:  # the first request does not wait for the count
                await asyncio.sleep(0.2)
                snapshot = (await queue.runtime.job_counts.load(tenant))[0]
            report.row(f"counting in the background ({tenant or 'all tenants'})", f"{snapshot.took_ms}")
        for path in ("/metrics", *PAGES):
            took = [await _time_request(client.port, path) for _ in range(rounds)]
            bound = METRICS_MS_MAX if path == "/metrics" else PAGE_MS_MAX
            report.bar(f"{path}, median", median(took), most=bound)


async def _time_request(port: int, path: str) -> float:
    begin = perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    response = await reader.read()
    writer.close()
    assert response.startswith(b"HTTP/1.1 200"), response[:300]
    if path.startswith("/api/"):
        json.loads(response.partition(b"\r\n\r\n")[2])
    return (perf_counter() - begin) * 1000


def _fill_sqlite(url: str, jobs: int) -> None:
    db = schema.connect(url.removeprefix("sqlite:///"), synchronous="OFF")
    names = [row[1] for row in db.execute("PRAGMA table_info(job)")]
    id = f"unhex(printf('%012x', {FIRST_MS} + n) || '7000' || printf('%016x', abs(random())))"
    values = {"id": id, "type": f"'t' || (n % {TYPES})", "state": STATE, "key": "'key-' || n"}
    listed = ", ".join(values.get(name, f'job."{name}"') for name in names)
    db.execute(
        f"WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {jobs}) "
        f"INSERT INTO job SELECT {listed} FROM s CROSS JOIN (SELECT * FROM job LIMIT 1) AS job"
    )
    db.close()


async def _fill_postgres(url: str, jobs: int) -> None:
    db = await asyncpg.connect(url)
    rows = await db.fetch(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'job' AND table_schema = 'public' "
        "ORDER BY ordinal_position"
    )
    id = f"decode(lpad(to_hex({FIRST_MS} + n), 12, '0') || '7000' || left(md5(n::text), 16), 'hex')"
    values = {"id": id, "type": f"'t' || (n % {TYPES})", "state": STATE, "key": "'key-' || n"}
    names = [row["column_name"] for row in rows]
    listed = ", ".join(values.get(name, f'job."{name}"') for name in names)
    quoted = ", ".join(f'"{name}"' for name in names)
    await db.execute(
        f"INSERT INTO job ({quoted}) SELECT {listed} FROM generate_series(1, {jobs}::bigint) AS n "
        "CROSS JOIN (SELECT * FROM job LIMIT 1) AS job"
    )
    await db.close()
