"""Callers who submit every key twice, through two gates, while the whole site of the primary is killed again and again."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from tests.campaigns.manager.campaign import Load, Plan, read_jobs
from tests.support.manager_process import GateProcess, ManagerProcess

from .cluster import ThreeSites, draw_port
from .recipe import SITES

PLAN = Plan(callers=24, pace_seconds=0.25)
ANSWER_SECONDS_MAX = 180.0
# An answer that was on its way when the site died may still arrive.
_IN_FLIGHT_SECONDS = 1.0
_CUT_SECONDS = 0.2


class Failover(NamedTuple):
    site: str
    elected: float  # until there was a primary with a standby
    pause: float  # the longest time in which no job was created
    back: float  # from the restart of the killed site until it is a standby again
    keys: int  # until then


class Fleet:
    """A manager and a gate in each site, which die with it."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._manager_ports = [draw_port() for _ in SITES]
        self._gate_ports = [draw_port() for _ in SITES]
        self.managers: list[ManagerProcess] = []
        self.gates: list[GateProcess] = []

    def start(self) -> None:
        for n in range(len(SITES)):
            self.managers.append(self._start_manager(n))
        for n in range(len(SITES)):
            self.gates.append(self._start_gate(n))

    def kill(self, n: int) -> None:
        self.gates[n].kill()
        self.managers[n].kill()

    def restart(self, n: int) -> None:
        self.managers[n] = self._start_manager(n)
        self.gates[n] = self._start_gate(n)

    def stop(self) -> None:
        for process in (*self.gates, *self.managers):
            process.kill()

    def _start_manager(self, n: int) -> ManagerProcess:
        bind = f"127.0.0.1:{self._manager_ports[n]}"
        return ManagerProcess("--engine", self._engine, bind=bind, quiet=True)

    def _start_gate(self, n: int) -> GateProcess:
        managers = (f"http://127.0.0.1:{port}" for port in self._manager_ports)
        return GateProcess(*managers, port=self._gate_ports[n], quiet=True)


class Campaign:
    def __init__(self, cluster: ThreeSites, seed: int, *, load_seconds: float) -> None:
        self.cluster = cluster
        self.fleet = Fleet(cluster.url)
        self.load = Load(self.fleet, PLAN, seed, answer_seconds_max=ANSWER_SECONDS_MAX)
        self._load_seconds = load_seconds

    async def run(self, kills: int, report: Callable[[str], None] = lambda _: None) -> list[Failover]:
        async with self._running():
            async with self.load.running():
                failovers = []
                for n in range(kills):
                    failovers.append(await self._kill_primary_site(is_cut_first=n % 2 == 1))
                    report(describe(failovers[-1]))
                await asyncio.sleep(self._load_seconds)
            await self._verify()
        return failovers

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        try:
            await asyncio.to_thread(self.fleet.start)
            yield
        finally:
            await asyncio.to_thread(self.fleet.stop)

    async def _kill_primary_site(self, *, is_cut_first: bool) -> Failover:
        await asyncio.sleep(self._load_seconds * (0.5 + self.load.random.random()))
        site = self.cluster.sites[await self.cluster.wait_until_whole()]
        number = SITES.index(site.name)
        before = len(self.load.jobs)
        self.load.longest_pause = 0.0
        if is_cut_first:
            site.stop_replication()
            await asyncio.sleep(_CUT_SECONDS)
        await asyncio.to_thread(site.kill)
        await asyncio.to_thread(self.fleet.kill, number)
        killed_at = time.monotonic()
        await self.cluster.wait_until_elected()
        elected = time.monotonic() - killed_at
        while self.load.last_created_at < killed_at + _IN_FLIGHT_SECONDS:
            await asyncio.sleep(0.05)
        pause = self.load.longest_pause
        await asyncio.sleep(self._load_seconds)  # two sites serve
        begin = time.monotonic()
        await asyncio.to_thread(site.start)
        await self.cluster.wait_until_whole()
        back = time.monotonic() - begin
        await asyncio.to_thread(self.fleet.restart, number)
        return Failover(site.name, elected, pause, back, len(self.load.jobs) - before)

    async def _verify(self) -> None:
        """Every node has one job for each key, the one that its callers were told, once the standbys have replayed it."""
        primary = await self.cluster.wait_until_whole()
        stored = await read_jobs(self.cluster.database(primary))
        lost = self.load.jobs.keys() - dict(stored).keys()
        assert not lost, f"{len(lost)} of {len(self.load.jobs)} keys that were answered are lost: {sorted(lost)[:5]}"
        assert len({key for key, _ in stored}) == len(stored), "a key has two jobs"
        assert dict(stored) == self.load.jobs
        async with asyncio.timeout(60):
            for site in SITES:
                while sorted(await read_jobs(self.cluster.database(site))) != sorted(stored):
                    await asyncio.sleep(0.5)


def describe(failover: Failover) -> str:
    return (
        f"{failover.site} killed: a new primary with a standby after {failover.elected:.1f} s, no new job for "
        f"{failover.pause:.1f} s; a standby again {failover.back:.1f} s after "
        f"its restart; {failover.keys} keys"
    )
