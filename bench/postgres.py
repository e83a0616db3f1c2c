"""Ours against its peers on one PostgreSQL, in one run: the same submissions, each deduplicated by its key."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

import onejob
from tests.postgres_server import Server

from .made import random_keys, submission
from .measure import Report, Work, rates

# At each number of callers: how many submissions a round has, ours and theirs, and the bars of the two.
CALLERS = {1: (400, 100, 2.0, 3.0), 16: (4_000, 400, 6.0, 15.0), 64: (9_600, 640, 10.0, 25.0)}

Submit = Callable[[str], Awaitable[Any]]


async def postgres(report: Report, rounds: int) -> None:
    report.title("Submissions per second on PostgreSQL, durable before the answer (library, one process)")
    server = Server(shared_buffers="128MB", max_wal_size="4GB", checkpoint_timeout="30min")
    try:
        server.make()
        server.start()
        async with onejob.open(server.database(), sweep=False) as queue, peers(server, report) as others:
            await _compare(report, rounds, {"onejob": _ours(queue)} | others)
    finally:
        server.remove()


async def _compare(report: Report, rounds: int, sides: dict[str, Submit]) -> None:
    keys = random_keys(random.Random())
    for count, (mine, theirs, over_procrastinate, over_dbos) in CALLERS.items():
        works: dict[str, Work] = {
            name: _work(submit, keys, count, mine if name == "onejob" else theirs)
            for name, submit in sides.items()
        }
        await rates(works, 1)  # prepared statements, pools
        seen = await rates(works, rounds)
        for name, rate in seen.items():
            report.row(f"{name}, {count} caller{'s' * (count > 1)}", f"{rate:,.0f}")
        for name, least in (("procrastinate", over_procrastinate), ("DBOS", over_dbos)):
            if name in seen:
                report.bar(f"onejob / {name}, {count}", seen["onejob"] / seen[name], least=least)


def _work(submit: Submit, keys: Any, count: int, many: int) -> Work:
    async def caller(share: list[str]) -> None:
        for key in share:
            await submit(key)

    async def work() -> int:
        shares = [list(islice(keys, many // count)) for _ in range(count)]
        await asyncio.gather(*(caller(share) for share in shares))
        return many

    return work


def _ours(queue: onejob.Ledger) -> Submit:
    async def submit(key: str) -> None:
        said = submission(key)
        await queue.submit(said.type, said.input, idempotency_key=key)

    return submit


@asynccontextmanager
async def peers(server: Server, report: Report) -> AsyncIterator[dict[str, Submit]]:
    """Those that are installed, each with a database and a pool of its own, as large as the callers are many."""
    try:
        import dbos
        import procrastinate
    except ImportError as error:
        report.row(f"without its peers: {error.name} is not installed", "-")
        yield {}
        return
    connector = procrastinate.PsycopgConnector(conninfo=server.database(), max_size=16)
    app = procrastinate.App(connector=connector)
    url = server.database().replace("postgresql://", "postgresql+psycopg://")
    dbos.run_dbos_database_migrations(url)
    client = dbos.DBOSClient(system_database_url=url, system_database_pool_size=16)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        yield {"procrastinate": _procrastinate(app), "DBOS": _dbos(client)}
    client.destroy()


def _procrastinate(app: Any) -> Submit:
    async def submit(key: str) -> None:
        said = submission(key)
        await app.configure_task(said.type, queueing_lock=key).defer_async(**said.input)

    return submit


def _dbos(client: Any) -> Submit:
    async def submit(key: str) -> None:
        said = submission(key)
        options = {"queue_name": "jobs", "workflow_name": said.type, "workflow_id": key}
        await client.enqueue_async(options, said.input)

    return submit
