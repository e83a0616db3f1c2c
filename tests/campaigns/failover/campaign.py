"""Repeated failovers under load, while servers are killed and wall clocks are wrong."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import onejob
from onejob.core.identity import format_job_id
from tests.support import raw_http

from .callers import RecordedAnswers, submit_by_http, submit_by_ledger
from .cluster import Cluster

DAY = 86_400
# By how many seconds the wall clocks of the servers are off.
CLOCKS = (0, DAY, -DAY)
CALLERS_EACH = 4
REPOSITORY = Path(__file__).parents[3]
_START_TRIES_MAX = 30


class Fleet:
    """The onejob servers on one cluster. One that is killed is started again, as by a supervisor."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._url = url
        self.servers: list[raw_http.Server] = []

    def start(self) -> None:
        for number in range(len(CLOCKS)):
            self.servers.append(self._start_server(number))

    def replace(self, number: int) -> None:
        self.servers[number].kill()
        self.servers[number] = self._start_server(number)

    def stop(self) -> None:
        for server in self.servers:
            server.kill()

    def port(self, number: int) -> Callable[[], int]:
        return lambda: self.servers[number].port

    def _start_server(self, number: int) -> raw_http.Server:
        folder = self._folder / str(number)
        folder.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "tests.support.wrong_clock", str(CLOCKS[number])]
        for tries_left in reversed(range(_START_TRIES_MAX)):
            try:
                return raw_http.Server(folder, f'engine = "{self._url}"\n', command=command, home=REPOSITORY)
            except AssertionError:  # there may be no primary at the moment
                if not tries_left:
                    raise
        raise AssertionError


class Campaign:
    def __init__(self, folder: Path, cluster: Cluster, seed: int, *, answers: int) -> None:
        """Between two failovers there are `answers` to twice as many answers."""
        self._answers = answers
        self.cluster = cluster
        self.fleet = Fleet(folder, cluster.url)
        self.answers = RecordedAnswers(seed)

    async def run(self, failovers: int, *, report: Callable[[str], None] = lambda _: None) -> None:
        await asyncio.to_thread(self.fleet.start)
        try:
            async with self._load():
                for number in range(failovers):
                    await self._wait_for_answers()
                    await self._fail_over()
                    report(f"failover {number + 1}: {len(self.answers.answers)} keys, {dict(self.answers.counts)}")
                await self._wait_for_answers()
            await self._verify()
        finally:
            await asyncio.to_thread(self.fleet.stop)

    @asynccontextmanager
    async def _load(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        async with onejob.open(self.cluster.url) as queue, asyncio.TaskGroup() as group:
            for _ in range(CALLERS_EACH):
                group.create_task(submit_by_ledger(self.answers, queue, stop))
                for server in range(len(CLOCKS)):
                    group.create_task(submit_by_http(self.answers, self.fleet.port(server), stop))
            try:
                yield
            finally:
                stop.set()

    async def _wait_for_answers(self) -> None:
        target = self.answers.counts["answers"] + self._answers + self.answers.random.randrange(self._answers)
        async with asyncio.timeout(60):
            while self.answers.counts["answers"] < target:
                await asyncio.sleep(0.005)

    async def _fail_over(self) -> None:
        """Fail over, and kill one of the servers at a random moment meanwhile."""
        victim = self.answers.random.randrange(len(CLOCKS))
        moment = self.answers.random.random() * 3
        kill = asyncio.create_task(self._later(moment, partial(self.fleet.replace, victim)))
        silent_seconds = self.answers.random.choice((0.0, 0.2))
        await asyncio.to_thread(self.cluster.fail_over, silent_seconds=silent_seconds)
        await asyncio.sleep(self.answers.random.random())
        await asyncio.to_thread(self.cluster.attach)
        await kill

    async def _later(self, seconds: float, action: Callable[[], None]) -> None:
        await asyncio.sleep(seconds)
        await asyncio.to_thread(action)

    async def _verify(self) -> None:
        """Every key has one job, every answer is stored, and every caller got an answer."""
        records = await asyncio.to_thread(self.cluster.query, "SELECT key, job_ids FROM record WHERE key LIKE 'key-%'")
        jobs = await asyncio.to_thread(self.cluster.query, "SELECT key, id FROM job WHERE key LIKE 'key-%'")
        stored = {row[0]: format_job_id(row[1]) for row in records}
        assert len(stored) == len(records) == len(jobs)
        assert {(row[0], format_job_id(row[1])) for row in jobs} == set(stored.items())
        assert stored == self.answers.answers
        assert set(stored) == set(self.answers.sent_keys)
