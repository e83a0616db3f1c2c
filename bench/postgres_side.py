"""One side of the comparisons of libraries: `python -m bench.postgres_side NAME URL`.

It reads lines: `16 800` lets 16 callers make 800 submissions and prints submissions per second and the seconds of
processor time; `open 500 1.5` makes 500 submissions per second for 1.5 s at random moments, and prints how many were not
answered in time and the microseconds of each. Each side has its own process, because the threads and pools of a peer would
slow down the others.
"""

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import islice
from time import perf_counter, process_time
from typing import Any

from .open_loop import offer
from .submissions import random_keys, submission

Submit = Callable[[str], Awaitable[Any]]
POOL = 16


@asynccontextmanager
async def onejob_(url: str) -> AsyncIterator[Submit]:
    import onejob

    async with onejob.open(url, sweep=False) as queue:

        async def submit(key: str) -> None:
            one = submission(key)
            await queue.submit(one.type, one.input, idempotency_key=key)

        yield submit


@asynccontextmanager
async def procrastinate_(url: str) -> AsyncIterator[Submit]:
    import procrastinate

    connector = procrastinate.PsycopgConnector(conninfo=url, max_size=POOL)
    app = procrastinate.App(connector=connector)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()

        async def submit(key: str) -> None:
            one = submission(key)
            await app.configure_task(one.type, queueing_lock=key).defer_async(**one.input)

        yield submit


@asynccontextmanager
async def dbos_(url: str) -> AsyncIterator[Submit]:
    import dbos

    url = url.replace("postgresql://", "postgresql+psycopg://")
    dbos.run_dbos_database_migrations(url)
    client = dbos.DBOSClient(system_database_url=url, system_database_pool_size=POOL)

    async def submit(key: str) -> None:
        one = submission(key)
        options: Any = {"queue_name": "jobs", "workflow_name": one.type, "workflow_id": key}
        await client.enqueue_async(options, one.input)

    yield submit
    client.destroy()


SIDES = {"onejob": onejob_, "procrastinate": procrastinate_, "DBOS": dbos_}


async def main(name: str, url: str) -> None:
    rng = random.Random()
    keys = random_keys(rng)
    async with SIDES[name](url) as submit:
        print("ready", flush=True)
        while line := (await asyncio.to_thread(sys.stdin.readline)).split():
            match line:
                case ["open", rate, seconds]:
                    found = await offer(lambda: submit(next(keys)), float(rate), float(seconds), rng)
                    print(found.late, *(round(latency * 1e6) for latency in found.latencies), flush=True)
                case [count, total]:
                    print(*await _measure(submit, keys, int(count), int(total)), flush=True)


async def _measure(submit: Submit, keys: Any, count: int, total: int) -> tuple[float, float]:
    async def caller(share: list[str]) -> None:
        for key in share:
            await submit(key)

    shares = [list(islice(keys, total // count)) for _ in range(count)]
    begin, cpu = perf_counter(), process_time()
    await asyncio.gather(*(caller(share) for share in shares))
    return total / (perf_counter() - begin), process_time() - cpu


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
