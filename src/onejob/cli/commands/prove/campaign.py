"""The campaign of `onejob prove`: submissions through servers that are killed and a network that loses and repeats messages.

Every key is sent by several callers at once, each through a proxy to a server process of its own, and again until it is
answered: a client has to do no more. At the end the store itself is read: each key must have one job, the one that every caller
was told.
"""

import asyncio
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct, field, json

from onejob.backoff import Backoff
from onejob.core.credentials import Role
from onejob.core.facts import Job, Kind, Record
from onejob.core.identity import format_job_id
from onejob.engine import PAGE_MAX, ListFacts
from onejob.errors import Unavailable
from onejob.ids import new_nonce, random_fraction
from onejob.ledger import Ledger
from onejob.ledger import open as open_ledger
from onejob.ledger.api_keys import ApiKeys
from onejob.ledger.base import runtime_of
from onejob.settings import server_environment

from .faulty_proxy import DROP, LOSE, PASS, TWICE, FaultyProxy, NetworkFault, cut

JOB_TYPE = "prove"
SERVE = (sys.executable, "-m", "onejob.cli", "serve")
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0
PROBLEMS_MAX = 20
_ATTEMPT_SECONDS_MAX = 15.0
_PAUSE_FIRST, _PAUSE_MAX, _JITTER = 0.03, 0.75, 2 / 3
_FAULTS_MAX = 4  # after this many attempts at a key, a proxy lets it pass
_ANSWER_BYTES = 800
_LATE_DUPLICATES = 0.25  # the share of keys that are sent once more, after others
_RETRYABLE = ("IN_PROGRESS", "RATE_LIMITED", "SERVICE_UNAVAILABLE")
_ADDRESS = re.compile(rb" at (https?)://127\.0\.0\.1:(\d+)")


OnProgress = Callable[["Evidence"], None]


class ProvePlan(Struct, frozen=True, kw_only=True):
    keys: int
    kills: int
    callers: int = 24
    copies: int = 2  # that are sent of every key at once
    servers: int = 2
    seconds_max: float  # after which no new key is begun
    answer_seconds_max: float = 120.0
    seed: str


class KeyEvidence(Struct):
    """What was told about a key."""

    begun_at: float
    answered_at: float = 0.0  # for the first time
    job_ids: set[str] = field(default_factory=set)
    attempts: int = 0
    answers: int = 0


class KilledServer(Struct, frozen=True):
    at: float
    server: int
    down_seconds: float


class StoreContent(Struct, frozen=True):
    """What the store has at the end, read without the servers."""

    jobs: dict[str, list[str]]  # key -> ids of the jobs that were made under it
    records: dict[str, str]  # key -> the id of the job that it names


class Evidence(Struct):
    """What happened."""

    keys: dict[str, KeyEvidence] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    kills: list[KilledServer] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)  # responses that no key should get
    seconds: float = 0.0
    durability: str = ""
    tenant: str = ""
    content: StoreContent = field(default_factory=lambda: StoreContent({}, {}))


class ProveVerdict(Struct, frozen=True, rename="camel"):
    keys: int
    jobs: int
    lost: int  # keys whose answer names a job that the store does not have, or that the store does not know
    doubled: int  # keys with more than one job, or of which callers were told different ones
    unanswered: int
    unexpected: int
    problems: list[str]

    @property
    def is_kept(self) -> bool:
        wrong = self.lost, self.doubled, self.unanswered, self.unexpected
        return self.keys == self.jobs and self.keys > 0 and not any(wrong)

    def __str__(self) -> str:
        line = f"{self.keys} keys, {self.jobs} jobs, {self.lost} lost, {self.doubled} doubled"
        line += f", {self.unanswered} unanswered" if self.unanswered else ""
        return line + (f", {self.unexpected} unexpected responses" if self.unexpected else "")


def judge(evidence: Evidence) -> ProveVerdict:
    """Compare what callers were told with what the store has."""
    lost, doubled, unanswered, problems = 0, 0, 0, list[str]()
    jobs, records = evidence.content.jobs, evidence.content.records
    for key, told in evidence.keys.items():
        made = jobs.get(key, [])
        if not told.job_ids:
            unanswered += 1
            problems.append(f"{key}: no answer")
        elif len(made) > 1 or len(told.job_ids) > 1:
            doubled += 1
            problems.append(f"{key}: told {sorted(told.job_ids)}, made {made}")
        elif not told.job_ids <= set(made) or records.get(key) not in told.job_ids:
            lost += 1
            problems.append(f"{key}: told {sorted(told.job_ids)}, the store has {made or 'no job'}")
    problems += [f"{key}: made without being sent" for key in jobs.keys() - evidence.keys.keys()]
    return ProveVerdict(
        keys=len(evidence.keys),
        jobs=sum(map(len, jobs.values())),
        lost=lost,
        doubled=doubled,
        unanswered=unanswered,
        unexpected=len(evidence.unexpected),
        problems=[*problems, *evidence.unexpected][:PROBLEMS_MAX],
    )


def choose_fault(seed: str, key: str, attempt: int) -> NetworkFault:
    """What happens to an attempt: the same for the same seed."""
    chance = _fraction(seed, key, str(attempt))
    if attempt >= _FAULTS_MAX or chance >= 0.45:
        return PASS
    if chance < 0.15:
        return LOSE
    if chance < 0.25:
        return cut(int(_fraction(seed, key, "cut") * _ANSWER_BYTES))
    return DROP if chance < 0.33 else TWICE


class KillableServer:
    """A server in a process of its own, which is killed and started again on the same port."""

    def __init__(self, number: int, command: Sequence[str], folder: Path) -> None:
        self.number = number
        self.port = 0
        self._command = command
        self._log = folder / f"server-{number}.log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                "--port",
                str(self.port),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=server_environment(),
            )
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                line = await self._process.stdout.readline()
        except TimeoutError:
            line = b""
        found = _ADDRESS.search(line)
        if found is None:
            await self.kill()
            said = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            raise Unavailable(
                f"a server does not start ({said[0] if said else 'it says nothing'}); correct it, then retry"
            )
        self.port = int(found[2])

    async def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing is finished."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def stop(self) -> None:
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await self._process.wait()
        except TimeoutError:
            await self.kill()


class ProveCampaign:
    """Runs a plan on a store; `serve` is the command that starts a server, without its port."""

    def __init__(self, url: str, plan: ProvePlan, folder: Path, *, serve: Sequence[str] = SERVE) -> None:
        self._url = url
        self._plan = plan
        self._folder = folder
        self._serve = serve
        self.evidence = Evidence(tenant=f"prove-{new_nonce()}")
        self._credential = ""
        self._remaining: Iterator[int] = iter(range(plan.keys))
        self._finished: list[str] = []
        self._killed = [asyncio.Event() for _ in range(plan.kills)]
        self._answered = 0
        self._is_over = False
        self._progress = asyncio.Event()

    async def run(self, on_progress: OnProgress) -> ProveVerdict:
        """Raises if it cannot be carried out. What it made is deleted again, unless something was wrong."""
        async with self._open_ledger() as ledger:
            self.evidence.durability = ledger.durability.value
            key = await ApiKeys(ledger).create("prove", roles=[Role.SUBMITTER])
            self._credential = key.text
        begin = asyncio.get_running_loop().time()
        kept = False
        try:
            async with self._running_servers() as (servers, proxies):
                await self._submit_while_killing(servers, proxies, on_progress)
            self.evidence.seconds = asyncio.get_running_loop().time() - begin
            async with self._open_ledger() as ledger:
                self.evidence.content = await _read_store(ledger)
            verdict = judge(self.evidence)
            kept = not verdict.is_kept
            return verdict
        finally:
            if not kept:
                await self._delete(key.key.id)

    @asynccontextmanager
    async def _open_ledger(self) -> AsyncIterator[Ledger]:
        async with open_ledger(self._url, tenant=self.evidence.tenant, sweep=False) as ledger:
            yield ledger

    async def _delete(self, key_id: str) -> None:
        async with self._open_ledger() as ledger:
            await ApiKeys(ledger).revoke(key_id)
            await ledger.admin.purge()

    @asynccontextmanager
    async def _running_servers(self) -> AsyncIterator[tuple[list[KillableServer], list[FaultyProxy]]]:
        config = self._folder / "prove.toml"
        config.write_text('auth = true\nlog_requests = "none"\n', encoding="utf-8")
        command = (*self._serve, "--engine", self._url, "--config", str(config))
        servers = [KillableServer(number, command, self._folder) for number in range(self._plan.servers)]
        async with AsyncExitStack() as stack:
            for server in servers:
                stack.push_async_callback(server.stop)
                await server.start()
            proxies = [
                await stack.enter_async_context(_running_proxy(running.port, self._plan.seed)) for running in servers
            ]
            yield servers, proxies
            for proxy in proxies:
                self.evidence.faults.update(proxy.fault_counts)

    async def _submit_while_killing(
        self, servers: list[KillableServer], proxies: list[FaultyProxy], on_progress: OnProgress
    ) -> None:
        until = asyncio.get_running_loop().time() + self._plan.seconds_max
        killing = asyncio.create_task(self._kill_servers(servers))
        showing = asyncio.create_task(_call_every(0.25, lambda: on_progress(self.evidence)))
        callers = asyncio.gather(*(self._run_caller(proxies, until) for _ in range(self._plan.callers)))
        try:
            # It ends when every key is answered, or with a server that does not start again.
            done, _ = await asyncio.wait((killing, callers), return_when=asyncio.FIRST_COMPLETED)
            if callers not in done and killing.exception() is None:
                await callers
        finally:
            self._is_over = True
            self._progress.set()
            showing.cancel()
            callers.cancel()
            await asyncio.gather(killing, showing, callers, return_exceptions=True)
        killing.result()
        callers.result()

    async def _kill_servers(self, servers: list[KillableServer]) -> None:
        """Kill the servers in turn, spread over the keys."""
        loop, plan = asyncio.get_running_loop(), self._plan
        for number in range(plan.kills):
            while self._answered < plan.keys * (number + 1) // (plan.kills + 1) and not self._is_over:
                self._progress.clear()
                await self._progress.wait()
            if self._is_over:
                return
            victim, at = servers[number % len(servers)], loop.time()
            await victim.kill()
            self._killed[number].set()
            await victim.start()
            self.evidence.kills.append(KilledServer(at, victim.number, loop.time() - at))

    async def _run_caller(self, proxies: list[FaultyProxy], until: float) -> None:
        loop = asyncio.get_running_loop()
        for number in self._remaining:
            if not await self._may_begin(number, until):
                return
            key = f"{self.evidence.tenant}-{number}"
            body = json.encode({"type": JOB_TYPE, "input": {"order": number, "amount": 42}})
            self.evidence.keys[key] = KeyEvidence(loop.time())
            copies = range(number, number + self._plan.copies)
            await asyncio.gather(*(self._submit_until_answered(proxies, door, key, body) for door in copies))
            self._finished.append(key)
            if random_fraction() < _LATE_DUPLICATES:
                await self._repeat_earlier(proxies, number)

    async def _may_begin(self, number: int, until: float) -> bool:
        """Wait for the kill before the last one that is due before this key, so that kills are spread; False: it is too late."""
        due = number * (self._plan.kills + 1) // self._plan.keys
        try:
            async with asyncio.timeout_at(until):
                if due >= 2:
                    await self._killed[due - 2].wait()
        except TimeoutError:
            return False
        return asyncio.get_running_loop().time() <= until

    async def _repeat_earlier(self, proxies: list[FaultyProxy], door: int) -> None:
        key = self._finished[int(random_fraction() * len(self._finished))]
        number = int(key.rpartition("-")[2])
        body = json.encode({"type": JOB_TYPE, "input": {"order": number, "amount": 42}})
        await self._submit_until_answered(proxies, door, key, body)

    async def _submit_until_answered(self, proxies: list[FaultyProxy], door: int, key: str, body: bytes) -> None:
        """Send the same request again until it is answered, to the next server each time: all that a client has to do."""
        loop, told = asyncio.get_running_loop(), self.evidence.keys[key]
        until, backoff = loop.time() + self._plan.answer_seconds_max, Backoff(_PAUSE_FIRST, _PAUSE_MAX, jitter=_JITTER)
        while loop.time() < until:
            told.attempts += 1
            response = await _exchange(proxies[door % len(proxies)].port, _build_request(key, body, self._credential))
            door += 1
            if response is not None:
                status, content = response
                if 200 <= status < 300:
                    self._note_answer(told, content)
                    return
                if _error_code(content) not in _RETRYABLE:
                    self.evidence.unexpected.append(f"{key}: {status} {content[:200].decode(errors='replace')}")
                    return
            await asyncio.sleep(next(backoff))

    def _note_answer(self, told: KeyEvidence, content: bytes) -> None:
        answer: Any = json.decode(content)
        told.job_ids.add(answer["job"]["id"])
        told.answers += 1
        if not told.answered_at:
            told.answered_at = asyncio.get_running_loop().time()
            self._answered += 1
            self._progress.set()
        self.evidence.outcomes[answer["idempotency"]["outcome"]] += 1


async def _read_store(ledger: Ledger) -> StoreContent:
    """Every job and every record of the tenant."""
    jobs: dict[str, list[str]] = {}
    records: dict[str, str] = {}
    for kind in (Kind.JOB, Kind.RECORD):
        after = b""
        while True:
            query = ListFacts(tenant=ledger.caller.tenant, kind=kind, after=after, limit=PAGE_MAX)
            page = await runtime_of(ledger).gate.scan(query)
            for fact in page.items:
                if isinstance(fact, Job):
                    jobs.setdefault(fact.key, []).append(format_job_id(fact.id))
                elif isinstance(fact, Record):
                    records[fact.key] = format_job_id(fact.job_id) if fact.job_ids else ""
            if not page.more:
                break
            after = page.scanned_to or page.items[-1].id
    return StoreContent(jobs, records)


@asynccontextmanager
async def _running_proxy(upstream: int, seed: str) -> AsyncIterator[FaultyProxy]:
    proxy = FaultyProxy(upstream, lambda key, attempt: choose_fault(seed, key, attempt))
    listener = await proxy.start()
    try:
        yield proxy
    finally:
        listener.close()
        await proxy.aclose()


async def _call_every(seconds: float, call: Callable[[], None]) -> None:
    while True:
        call()
        await asyncio.sleep(seconds)


def _build_request(key: str, body: bytes, credential: str) -> bytes:
    head = (
        "POST /api/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f'Authorization: Bearer {credential}\r\nIdempotency-Key: "{key}"\r\nContent-Length: {len(body)}\r\n\r\n'
    )
    return head.encode() + body


async def _exchange(port: int, request: bytes) -> tuple[int, bytes] | None:
    """Status and body of the response; None if there was no complete one."""
    writer = None
    try:
        async with asyncio.timeout(_ATTEMPT_SECONDS_MAX):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"\r\ncontent-length: *(\d+)", head.lower())
            return int(head.split()[1]), await reader.readexactly(int(length[1]) if length else 0)
    except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError, IndexError):
        return None
    finally:
        if writer is not None:
            writer.close()


def _error_code(content: bytes) -> str:
    try:
        return str(json.decode(content)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return ""


def _fraction(*parts: str) -> float:
    return int.from_bytes(sha256("/".join(parts).encode()).digest()[:6], "big") / 2**48
