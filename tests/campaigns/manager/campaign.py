"""Gates and managers under load, while gates are killed, managers are killed and frozen, and lines are cut.

Every key is sent twice at once, through two gates. At the end each key has one job in the store, which is the one that
every caller was told. Clocks of gates and managers are a day off, in both directions.
"""

import asyncio
import itertools
import json
import random
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import asyncpg

from onejob.core.identity import format_job_id
from tests.support.manager_process import GateProcess, ManagerProcess
from tests.support.raw_http import HttpResponse, KeepAliveClient, request, submission
from tests.support.relay import Relay, running_relay

DAY = 86_400
GATE_CLOCKS = (0, DAY, -DAY)
MANAGER_CLOCKS = (DAY, -DAY)
CUT_GATE = 0  # the gate whose lines to the managers can be cut
FAILOVER_SECONDS_MAX = 5.0
GATE_DEATH_SECONDS_MAX = 2.0
ANSWER_SECONDS_MAX = 60.0
# An hour: shorter than the day by which clocks are off, so that a window that is measured with them would show.
BODY = {"type": "charge", "input": {"amount": 42}, "idempotencyTtlSeconds": 3600}
USER = "counted"
_RETRY_SECONDS = 0.05
_JOBS = """
SELECT job.key, job.id, record.job_ids FROM job
LEFT JOIN record ON record.scope = job.scope AND record.key = job.key WHERE job.key LIKE 'key-%'
"""


class Plan(NamedTuple):
    """How long each part takes."""

    callers: int = 64
    pace_seconds: float = 0.5
    gate_deaths: int = 20
    gate_death_every: float = 3.0
    manager_rounds: int = 2
    freeze_seconds: float = 10.0
    cut_seconds: float = 30.0
    lossy_seconds: float = 10.0

    def shortened(self, share: float) -> "Plan":
        """A share of the deaths and seconds; a freeze is never shorter than what a gate waits for a sign of life."""
        return self._replace(
            gate_deaths=max(1, round(self.gate_deaths * share)),
            manager_rounds=max(1, round(self.manager_rounds * share)),
            freeze_seconds=max(3.0, self.freeze_seconds * share),
            cut_seconds=max(3.0, self.cut_seconds * share),
            lossy_seconds=max(1.0, self.lossy_seconds * share),
        )


class Fleet:
    """Three gates on one or two managers; the lines of one gate go through relays."""

    def __init__(self, engine: str, folder: Path, *, managers: int) -> None:
        self._engine = engine
        config = folder / "manager.toml"
        config.write_text("rate_per_second = 10\nrate_burst = 1000000\n")  # a token at a time, from a full bucket
        self._options = ("--engine", engine, "--config", str(config))
        # One that owns a file has the clock of the store.
        self._clocks = MANAGER_CLOCKS if managers > 1 else (0,)
        self.managers = [self._start_manager(n) for n in range(managers)]
        self.relays: list[Relay] = []
        self.gates: list[GateProcess] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Fleet"]:
        async with AsyncExitStack() as stack:
            stack.callback(self._stop)
            self.relays = [await stack.enter_async_context(running_relay(one.url)) for one in self.managers]
            self.gates = [await asyncio.to_thread(self._start_gate, n) for n in range(len(GATE_CLOCKS))]
            yield self

    async def replace_gate(self, n: int) -> None:
        port = self.gates[n].port
        await asyncio.to_thread(self.gates[n].kill)
        self.gates[n] = await asyncio.to_thread(self._start_gate, n, port)

    async def replace_manager(self, n: int, seconds: float) -> None:
        """Kill it; it is back after this long."""
        address = self.managers[n].address
        await asyncio.to_thread(self.managers[n].kill)
        await asyncio.sleep(seconds)
        self.managers[n] = await asyncio.to_thread(self._start_manager, n, address)

    async def freeze_manager(self, n: int, seconds: float) -> None:
        self.managers[n].freeze()
        await asyncio.sleep(seconds)
        self.managers[n].wake()

    def _start_manager(self, n: int, bind: str = "127.0.0.1:0") -> ManagerProcess:
        return ManagerProcess(*self._options, bind=bind, clock_seconds=self._clocks[n], quiet=True)

    def _start_gate(self, n: int, port: int = 0) -> GateProcess:
        managers: Sequence[Relay | ManagerProcess] = self.relays if n == CUT_GATE else self.managers
        return GateProcess(*(one.url for one in managers), port=port, clock_seconds=GATE_CLOCKS[n], quiet=True)

    def _stop(self) -> None:
        for process in (*self.gates, *self.managers):
            process.wake()
            process.kill()


class HasGates(Protocol):
    gates: list[GateProcess]


class Load:
    """Callers that repeat a key at the next gate until they have an answer, and what they were told."""

    def __init__(
        self, fleet: HasGates, plan: Plan, seed: int, *, answer_seconds_max: float = ANSWER_SECONDS_MAX
    ) -> None:
        self.random = random.Random(seed)
        self.jobs: dict[str, str] = {}  # by key
        self.counts: Counter[str] = Counter()
        self.seconds: list[float] = []  # until each answer, since it was last cleared
        self.last_created_at = time.monotonic()
        self.longest_pause = 0.0  # between two new jobs of anybody; a gate may replay without a store
        self.slowest_refusal = 0.0
        self.cut_since = float("inf")  # the moment from which the cut gate cannot know anything new
        self.lone_keys: set[str] = set()  # sent to the cut gate only, and not answered
        self.limit = 0
        self._fleet = fleet
        self._plan = plan
        self._answer_seconds_max = answer_seconds_max
        self._numbers = itertools.count()
        self._stop = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._plan.callers):
                group.create_task(self._submit_pairs())
            group.create_task(self._raise_limits())
            group.create_task(self._reserve_slots())
            try:
                yield
            finally:
                self._stop.set()

    async def submit(self, key: str, gate: int) -> str:
        """The job of a key, from this gate or, where that has none to give, from the next one."""
        begin, gates = time.monotonic(), len(self._fleet.gates)
        while (job := await self._try_submit(key, gate)) is None:
            seconds = time.monotonic() - begin
            assert seconds < self._answer_seconds_max, f"{key} had no answer for {seconds:g} s"
            gate = (gate + 1) % gates
            await asyncio.sleep(_RETRY_SECONDS)
        self.seconds.append(time.monotonic() - begin)
        return self._record(key, job)

    async def submit_to_cut_gate_only(self) -> None:
        """One attempt for a key that nobody else sends."""
        key = f"key-lone-{next(self._numbers)}"
        begin = time.monotonic()
        job = await self._try_submit(key, CUT_GATE)
        self.slowest_refusal = max(self.slowest_refusal, time.monotonic() - begin)
        assert job is None, "a gate without a manager has created a job"
        self.lone_keys.add(key)

    async def ask(self, gate: int, method: str, path: str, body: bytes = b"", **headers: str) -> HttpResponse | None:
        return await self._send(gate, request(method, path, body, headers, close=False))

    def describe_seconds(self) -> str:
        ordered = sorted(self.seconds) or [0.0]
        parts = {"median": len(ordered) // 2, "p99": len(ordered) * 99 // 100, "slowest": -1}
        return ", ".join(f"{name} {ordered[at]:.2f} s" for name, at in parts.items())

    async def _submit_pairs(self) -> None:
        gates = range(len(self._fleet.gates))
        while not self._stop.is_set():
            key = f"key-{next(self._numbers)}"
            one, other = self.random.sample(gates, 2)
            await asyncio.gather(self.submit(key, one), self.submit(key, other))
            await asyncio.sleep(self._plan.pace_seconds * (0.5 + self.random.random()))

    async def _try_submit(self, key: str, gate: int) -> str | None:
        begin = time.monotonic()
        reply = await self._send(gate, submission(key, BODY))
        if reply is None or reply.status != 202:
            return None
        outcome = str(reply.body["idempotency"]["outcome"])
        self.counts[outcome] += 1
        if outcome == "created":
            self.longest_pause = max(self.longest_pause, time.monotonic() - self.last_created_at)
            self.last_created_at = time.monotonic()
        assert gate != CUT_GATE or begin < self.cut_since, "a gate without a manager has answered"
        return str(reply.body["job"]["id"])

    def _record(self, key: str, job: str) -> str:
        first = self.jobs.setdefault(key, job)
        assert first == job, f"{key} was answered with {first}, and then with {job}"
        return job

    async def _raise_limits(self) -> None:
        """A limit that only grows: whoever reads less than was acknowledged has met a late copy."""
        for n in itertools.count():
            if self._stop.is_set():
                return
            gate = n % len(self._fleet.gates)
            reply = await self.ask(gate, "PUT", f"/api/quotas/{USER}", b'{"maxConcurrent": %d}' % (self.limit + 1))
            if reply is not None and reply.status == 200:
                self.limit += 1
                self.counts["limits"] += 1
            await self.check_limit((gate + 1) % len(self._fleet.gates))
            await asyncio.sleep(_RETRY_SECONDS)

    async def check_limit(self, gate: int) -> bool:
        reply = await self.ask(gate, "GET", f"/api/quotas/{USER}")
        if reply is None or reply.status != 200:
            return False
        assert self.limit <= reply.body["limits"].get("maxConcurrent", 0) <= self.limit + 1, (reply.body, self.limit)
        return True

    async def _reserve_slots(self) -> None:
        """A counted user: his facts are loaded under locks, which a frozen manager may hold."""
        slot = ""
        while not self._stop.is_set():
            begin = time.monotonic()
            path = f"/api/reservations/{slot}/release" if slot else "/api/reservations"
            reply = await self._insist_on_slot(path, b"" if slot else b'{"user": "%s"}' % USER.encode())
            if reply is None:
                return
            slot = "" if slot else str(reply.body["id"])
            self.counts["slots"] += not slot
            self.seconds.append(time.monotonic() - begin)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _insist_on_slot(self, path: str, body: bytes) -> HttpResponse | None:
        """The answer of the first gate that has one; None: it is time to stop."""
        gates = len(self._fleet.gates)
        for gate in itertools.count(self.random.randrange(gates)):
            reply = await self.ask(gate % gates, "POST", path, body)
            if reply is not None and reply.status in (200, 201, 404, 409):
                return reply
            if self._stop.is_set():
                return None
            await asyncio.sleep(_RETRY_SECONDS)
        return None

    async def _send(self, gate: int, data: bytes) -> HttpResponse | None:
        """None: the connection was lost. Whoever has no answer must be told to repeat, and when."""
        try:
            client = await KeepAliveClient.connect(self._fleet.gates[gate].port)
        except OSError:
            self.counts["refused connections"] += 1
            return None
        reply = await client.ask(data)
        client.close()
        if reply is None:
            self.counts["lost connections"] += 1
        elif reply.status == 503:
            assert reply.body["error"]["retryable"], reply
            assert "retry-after" in reply.headers, reply
            self.counts["503"] += 1
        else:
            assert reply.status < 500, reply
        return reply


class Campaign:
    def __init__(self, engine: str, folder: Path, plan: Plan, seed: int, *, managers: int) -> None:
        self.fleet = Fleet(engine, folder, managers=managers)
        self.load = Load(self.fleet, plan, seed)
        self._engine = engine
        self._plan = plan
        self._has_other_manager = managers > 1
        self.too_slow: list[str] = []  # what took longer than it may; a busy machine can be the reason

    async def run(self, report: Callable[[str], None] = lambda _: None) -> None:
        async with self.fleet.running():
            await self.run_under_load(
                self.kill_gates,
                self.disturb_managers,
                self.cut_line_to_managers,
                self.cut_line_to_gate,
                self.cut_line_both_ways,
                self.lose_replies,
                report=report,
            )
            report(f"slowest 503 of a gate that is cut off: {self.load.slowest_refusal:.2f} s")
            cut = await cut_each_reply(self.fleet, self.load)
            report(f"each reply of a script cut in turn: {dict(cut)}")
        await self.verify()
        report(f"{len(self.load.jobs)} keys, as many jobs, 0 split, 0 lost; {dict(self.load.counts)}")

    async def run_under_load(
        self, *parts: Callable[[], Awaitable[None]], report: Callable[[str], None] = lambda _: None
    ) -> None:
        async with self.load.running():
            for run_part in parts:
                self.load.seconds.clear()
                before = len(self.load.jobs)
                await run_part()
                keys = len(self.load.jobs) - before
                report(f"{run_part.__name__}: {keys} keys, answers after {self.load.describe_seconds()}")
        assert await self.load.check_limit(1)

    async def verify(self) -> None:
        """Each key has one record and one job, the one that was told. What nobody was told of may exist, once."""
        stored = await read_jobs(self._engine)
        assert len({key for key, _ in stored}) == len(stored), "a key has two jobs"
        assert dict(stored) == self.load.jobs

    async def kill_gates(self) -> None:
        for n in range(self._plan.gate_deaths):
            begin = time.monotonic()
            await self.fleet.replace_gate(n % len(self.fleet.gates))
            await asyncio.sleep(max(0.0, self._plan.gate_death_every - (time.monotonic() - begin)))
        self._check_slowest("gates killed", GATE_DEATH_SECONDS_MAX)

    async def disturb_managers(self) -> None:
        for _ in range(self._plan.manager_rounds):
            for n in range(len(self.fleet.managers)):
                await self.fleet.replace_manager(n, min(3.0, self._plan.freeze_seconds))
                await self._settle()
                await self.fleet.freeze_manager(n, self._plan.freeze_seconds)
                await self._settle()
        if self._has_other_manager:
            self._check_slowest("managers killed and frozen", FAILOVER_SECONDS_MAX)

    async def cut_line_to_managers(self) -> None:
        await self._cut_line(requests=True)

    async def cut_line_to_gate(self) -> None:
        await self._cut_line(answers=True)

    async def cut_line_both_ways(self) -> None:
        await self._cut_line(requests=True, answers=True)

    async def _cut_line(self, *, requests: bool = False, answers: bool = False) -> None:
        """Cut one gate off from all managers. It must answer nothing and create nothing until the line is back."""
        self.load.lone_keys.clear()
        for relay in self.fleet.relays:
            relay.drops_requests, relay.drops_answers = requests, answers
        self.load.cut_since = time.monotonic()
        while time.monotonic() - self.load.cut_since < self._plan.cut_seconds:
            await self.load.submit_to_cut_gate_only()
            await asyncio.sleep(self._plan.pace_seconds)
        told = set(self.load.jobs)
        stored = dict(await read_jobs(self._engine))
        if requests:
            assert not self.load.lone_keys & stored.keys(), "a gate whose requests are lost has created a job"
        self.load.cut_since = float("inf")
        for relay in self.fleet.relays:
            relay.heal()
        await self._settle()
        for key in (*self.load.lone_keys, *self.load.random.sample(sorted(told), min(50, len(told)))):
            job = await self.load.submit(key, CUT_GATE)
            assert stored.get(key, job) == job
        self.load.counts["cut off, not answered"] += len(self.load.lone_keys)

    async def lose_replies(self) -> None:
        """Every tenth reply to the gate is lost, after the manager has executed the request."""
        chance = self.load.random.random
        for relay in self.fleet.relays:
            relay.cut_answer = lambda _: chance() < 0.1
        await asyncio.sleep(self._plan.lossy_seconds)
        for relay in self.fleet.relays:
            relay.cut_answer = lambda _: False
        await self._settle()

    async def _settle(self) -> None:
        """Until every gate reaches every manager again."""
        async with asyncio.timeout(20):
            for gate in range(len(self.fleet.gates)):
                while not await self._is_whole(gate):
                    await asyncio.sleep(0.1)

    async def _is_whole(self, gate: int) -> bool:
        reply = await self.load.ask(gate, "GET", "/readyz")
        if reply is None or reply.status != 200:
            return False
        return all(one["state"] == "reached" for one in reply.body["managers"])

    def _check_slowest(self, what: str, seconds: float) -> None:
        if (slowest := max(self.load.seconds, default=0.0)) >= seconds:
            self.too_slow.append(f"{what}: the slowest answer took {slowest:.1f} s, at most {seconds:g}")


MESSAGES = ("/hello", "/execute", "/scan", "/barrier", "/tokens")


async def cut_each_reply(fleet: Fleet, load: Load) -> Counter[str]:
    """Run a script of verbs once for each reply that it takes, and lose that one after the manager has executed it."""
    cut: Counter[str] = Counter()

    def cut_where(is_wanted: Callable[[str], bool]) -> None:
        def cut_answer(data: bytes) -> bool:
            path = data.split(b" ", 2)[1].decode()
            if path == "/subscribe" or not is_wanted(path):
                return False
            cut[path] += 1
            return True

        for relay in fleet.relays:
            relay.drop_connections()  # so that hello is one of the messages
            relay.cut_answer = cut_answer

    for place in itertools.count():
        numbers = itertools.count()
        cut_where(partial(_is_at, place, numbers))
        await run_script(load, f"key-script-{place}")
        if next(numbers) <= place:
            break
    for message in set(MESSAGES) - set(cut):  # it had another place in each run
        cut_where(partial(_is_first, message, cut))
        await run_script(load, f"key-script-{message.strip('/')}")
    for relay in fleet.relays:
        relay.cut_answer = lambda _: False
    missing = set(MESSAGES) - set(cut)
    assert not missing, f"no reply was cut of {missing}"
    return cut


def _is_at(place: int, numbers: "itertools.count[int]", path: str) -> bool:
    return next(numbers) == place


def _is_first(message: str, cut: Counter[str], path: str) -> bool:
    return path == message and not cut[message]


async def run_script(load: Load, key: str) -> None:
    """Every answer is the one that it would be without a fault, or a 503, and then the repetition's is."""
    first = await insist(load, "POST", "/api/jobs", 202, BODY, idempotency_key=key)
    assert first["idempotency"]["outcome"] == "created", first
    job = load.jobs[key] = first["job"]["id"]
    again = await insist(load, "POST", "/api/jobs", 202, BODY, idempotency_key=key)
    assert (again["job"]["id"], again["idempotency"]["outcome"]) == (job, "replayed")
    load.limit += 1
    await insist(load, "PUT", f"/api/quotas/{USER}", 200, {"maxConcurrent": load.limit})
    sequence = {"scope": "s", "sequence": 1, "idempotencyKey": f"sequence-{key}", "type": "t", "input": 1}
    assert (await insist(load, "POST", f"/api/clients/{key}/jobs", 202, sequence))["outcome"] == "COMMITTED"
    listed = await insist(load, "GET", "/api/jobs?limit=5", 200)
    assert listed["jobs"]
    await insist(load, "POST", f"/api/jobs/{job}/cancel", 200)
    assert (await insist(load, "GET", f"/api/jobs/{job}", 200))["job"]["state"] == "cancelled"


async def insist(load: Load, method: str, path: str, status: int, body: object = None, **headers: str) -> Any:
    """The answer; a 503 is repeated, as its Retry-After asks for."""
    data = b"" if body is None else json.dumps(body).encode()
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        while (reply := await load.ask(CUT_GATE, method, path, data, **headers)) is None or reply.status == 503:
            await asyncio.sleep(_RETRY_SECONDS)
    assert reply.status == status, reply
    return reply.body


async def read_jobs(engine: str) -> list[tuple[str, str]]:
    """Key and job of every job in the store, each of which is the one that the record of its key names."""
    rows: Sequence[Any]
    if engine.startswith("sqlite"):
        connection = sqlite3.connect(engine.removeprefix("sqlite:///"))
        rows = connection.execute(_JOBS).fetchall()
        connection.close()
    else:
        database = await asyncpg.connect(engine)
        rows = await database.fetch(_JOBS)
        await database.close()
    for key, job, recorded in rows:
        assert job == recorded, f"{key} has a job that its record does not name"
    return [(key, format_job_id(job)) for key, job, _ in rows]
