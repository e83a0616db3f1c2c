"""Under load, the primary is killed and the standby promoted, again and again; servers die meanwhile, clocks lie."""

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
# What the wall clocks of the servers are off by: whose is right must not matter.
CLOCKS = (0, DAY, -DAY)
CALLERS_EACH = 4
REPOSITORY = Path(__file__).parents[2]
_START_TRIES_MAX = 30


class Fleet:
    """Servers on one cluster. One that dies is started again, as by whoever watches over it."""

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
        words = [sys.executable, "-m", "tests.failover.wrong_clock", str(CLOCKS[number])]
        for left in reversed(range(_START_TRIES_MAX)):
            try:
                return raw_http.Server(folder, f'engine = "{self._url}"\n', command=words, home=REPOSITORY)
            except AssertionError:  # there is no primary at the moment
                if not left:
                    raise
        raise AssertionError


class Campaign:
    def __init__(self, folder: Path, cluster: Cluster, seed: int, *, answers: int) -> None:
        """Between two failovers so many answers are given, or up to twice as many."""
        self._answers = answers
        self.cluster = cluster
        self.fleet = Fleet(folder, cluster.url)
        self.answers = RecordedAnswers(seed)

    async def run(self, failovers: int, *, say: Callable[[str], None] = lambda _: None) -> None:
        await asyncio.to_thread(self.fleet.start)
        try:
            async with self._load():
                for number in range(failovers):
                    await self._wait_for_answers()
                    await self._fail_over()
                    say(f"failover {number + 1}: {len(self.answers.answers)} keys, {dict(self.answers.counts)}")
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
        wanted = self.answers.counts["answers"] + self._answers + self.answers.random.randrange(self._answers)
        async with asyncio.timeout(60):
            while self.answers.counts["answers"] < wanted:
                await asyncio.sleep(0.005)

    async def _fail_over(self) -> None:
        """One of the servers dies at some moment of it."""
        victim = self.answers.random.randrange(len(CLOCKS))
        moment = self.answers.random.random() * 3
        dying = asyncio.create_task(self._later(moment, partial(self.fleet.replace, victim)))
        silent = self.answers.random.choice((0.0, 0.2))
        await asyncio.to_thread(self.cluster.fail_over, silent_seconds=silent)
        await asyncio.sleep(self.answers.random.random())
        await asyncio.to_thread(self.cluster.attach)
        await dying

    async def _later(self, seconds: float, act: Callable[[], None]) -> None:
        await asyncio.sleep(seconds)
        await asyncio.to_thread(act)

    async def _verify(self) -> None:
        """Jobs are as many as keys; what was answered is there; nobody was left without an answer."""
        records = await asyncio.to_thread(self.cluster.query, "SELECT key, job_ids FROM record WHERE key LIKE 'key-%'")
        jobs = await asyncio.to_thread(self.cluster.query, "SELECT key, id FROM job WHERE key LIKE 'key-%'")
        kept = {row[0]: format_job_id(row[1]) for row in records}
        assert len(kept) == len(records) == len(jobs)
        assert {(row[0], format_job_id(row[1])) for row in jobs} == set(kept.items())
        assert kept == self.answers.answers
        assert set(kept) == set(self.answers.sent_keys)
