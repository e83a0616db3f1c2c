"""One process of the benchmark `work`: `python -m bench.work_side NAME URL CONCURRENCY`.

It reads commands: `submit N` submits jobs and prints the seconds that took; `work` starts a worker that prints how many jobs it
has run; `left` prints how many jobs are not stored as ended. The benchmark kills it at the end.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any, Protocol
from uuid import uuid4

CHUNK = 500
REPORT_SECONDS = 0.01


class Side(Protocol):
    async def submit(self, jobs: int) -> None: ...
    async def remaining(self) -> int: ...
    async def work(self, concurrency: int) -> None: ...
    def done(self) -> int: ...


class Onejob:
    def __init__(self, queue: Any) -> None:
        import onejob

        self._queue = queue
        self._submission = onejob.Submission
        self._app = onejob.App()
        self._app.job("nothing")(_no_op)
        self._worker: Any = None
        self._round = uuid4().hex

    @classmethod
    @asynccontextmanager
    async def opened(cls, url: str) -> AsyncIterator["Onejob"]:
        import onejob

        async with onejob.open(url, sweep=False) as queue:
            yield cls(queue)

    async def submit(self, jobs: int) -> None:
        for start in range(0, jobs, CHUNK):
            keys = (f"{self._round}-{n}" for n in range(start, min(start + CHUNK, jobs)))
            submissions = [self._submission(type="nothing", idempotency_key=key) for key in keys]
            await self._queue.submit_many(submissions)

    async def remaining(self) -> int:
        return 0  # a worker counts stored ends only

    async def work(self, concurrency: int) -> None:
        self._worker = self._app.worker(self._queue, concurrency=concurrency)
        await self._worker.run()

    def done(self) -> int:
        return int(self._worker.counts().get("success", 0)) if self._worker is not None else 0


class Procrastinate:
    def __init__(self, app: Any) -> None:
        self._app = app
        self._done = 0
        self._task = app.task(name="nothing")(self._no_op)

    async def _no_op(self) -> None:
        self._done += 1

    @classmethod
    @asynccontextmanager
    async def opened(cls, url: str) -> AsyncIterator["Procrastinate"]:
        import procrastinate

        app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, max_size=16))
        async with app.open_async():
            if not await app.check_connection_async():
                await app.schema_manager.apply_schema_async()
            yield cls(app)

    async def submit(self, jobs: int) -> None:
        for start in range(0, jobs, CHUNK):
            await self._task.batch_defer_async(*({} for _ in range(min(CHUNK, jobs - start))))

    async def remaining(self) -> int:
        sql = "SELECT count(*) AS n FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
        return int((await self._app.connector.execute_query_one_async(sql))["n"])

    async def work(self, concurrency: int) -> None:
        await self._app.run_worker_async(concurrency=concurrency, install_signal_handlers=False)

    def done(self) -> int:
        return self._done


class Celery:
    """Celery has no async handlers, so plain ones run in as many threads of one process."""

    def __init__(self, url: str) -> None:
        import celery

        self._app = celery.Celery(broker=url)
        self._app.conf.update(worker_redirect_stdouts=False, task_ignore_result=True)
        self._done = 0

        def nothing() -> None:
            self._done += 1

        self._task = self._app.task(name="nothing")(nothing)

    @classmethod
    @asynccontextmanager
    async def opened(cls, url: str) -> AsyncIterator["Celery"]:
        yield cls(url)

    async def submit(self, jobs: int) -> None:
        with self._app.producer_pool.acquire(block=True) as producer:
            for _ in range(jobs):
                self._task.apply_async(producer=producer)

    async def remaining(self) -> int:
        return 0

    async def work(self, concurrency: int) -> None:
        worker = self._app.Worker(
            pool="threads", concurrency=concurrency, loglevel="ERROR", quiet=True,
            without_gossip=True, without_mingle=True, without_heartbeat=True,
        )  # fmt: skip
        await asyncio.to_thread(worker.start)

    def done(self) -> int:
        return self._done


SIDES: dict[str, Any] = {"onejob": Onejob, "procrastinate": Procrastinate, "Celery": Celery}


async def _no_op() -> None:
    pass


async def main(name: str, url: str, concurrency: int) -> None:
    async with SIDES[name].opened(url) as side:
        print("ready", flush=True)
        tasks: list[asyncio.Task[None]] = []
        while command := (await asyncio.to_thread(sys.stdin.readline)).split():
            match command:
                case ["submit", count]:
                    begin = perf_counter()
                    await side.submit(int(count))
                    print(perf_counter() - begin, flush=True)
                case ["left"]:
                    print(await side.remaining(), flush=True)
                case ["work"]:
                    tasks.append(asyncio.create_task(side.work(concurrency)))
                    tasks.append(asyncio.create_task(_print_counts(side.done)))


async def _print_counts(done: Callable[[], int]) -> None:
    reported = 0
    while True:
        await asyncio.sleep(REPORT_SECONDS)
        if (now := done()) != reported:
            print(now - reported, flush=True)
            reported = now


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
