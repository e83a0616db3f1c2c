"""Gates and managers are upgraded one by one, in both orders, while requests come that only the newer program knows."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

import onejob
from onejob.conformance.world import list_facts
from onejob.core.facts import Kind
from onejob.core.identity import format_job_id
from onejob.engines import remote
from onejob.engines.remote import RemoteEngine
from onejob.engines.remote.codec import WireCodec
from onejob.engines.sqlite import SqliteEngine
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from tests.support.app_server import Client, HttpResponse, serve_app
from tests.support.managers import OLDER_CODEC, running_manager
from tests.support.relay import Relay, running_relay

CALLERS = 4
ROUNDS_MIN = 3  # of every caller, between two upgrades
CALLBACK = {"url": "https://example.com/hook"}
CALLBACKS_ALLOWED = ServiceConfig(callbacks="any")


class Site:
    """Two managers of one file, and a gate; each can be replaced by the newer program."""

    def __init__(self, path: str, stack: AsyncExitStack) -> None:
        self._path = path
        self._stack = stack
        self.relays: list[Relay] = []  # the addresses of the managers
        self.client: Client | None = None
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.rounds = 0
        self.keys: dict[str, str] = {}

    async def start_manager(self, n: int, codec: WireCodec) -> None:
        url = await self._stack.enter_async_context(running_manager(await SqliteEngine.open(self._path), codec=codec))
        if n == len(self.relays):
            self.relays.append(await self._stack.enter_async_context(running_relay(url)))
        else:
            self.relays[n].redirect(url)

    async def start_gate(self, codec: WireCodec, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(remote, "WireCodec", lambda: codec)
        url = ",".join(relay.url for relay in self.relays)
        queue = await self._stack.enter_async_context(onejob.open(url))
        self.client = await self._stack.enter_async_context(serve_app(HttpApp(queue, config=CALLBACKS_ALLOWED)))

    async def call(self, name: str, stop: asyncio.Event) -> None:
        n = 0
        while not stop.is_set():
            n += 1
            job = await self._submit("plain", f"{name}-{n}", {"type": "t"})
            await self._submit("callback", f"{name}-{n}-c", {"type": "t", "callback": CALLBACK})
            if job is not None:
                answer = await self._ask("cancel", "POST", f"/api/jobs/{job}/cancel")
                assert answer.status == 503 or answer.body["job"]["state"] == "cancelled"
            self.rounds += 1

    async def _submit(self, what: str, key: str, body: object) -> str | None:
        assert self.client is not None
        answer = self._check(what, await self.client.post("/api/jobs", body, b"idempotency-key: " + key.encode()))
        if answer.status == 503:
            return None
        self.keys[key] = str(answer.body["job"]["id"])
        return self.keys[key]

    async def _ask(self, what: str, method: str, path: str) -> HttpResponse:
        assert self.client is not None
        return self._check(what, await self.client.ask(method, path))

    def _check(self, what: str, answer: HttpResponse) -> HttpResponse:
        self.statuses[what, answer.status] += 1
        if answer.status == 503:
            assert answer.body["error"]["retryable"]
            assert answer.headers["retry-after"]
        else:
            assert answer.status in (200, 202), answer
        return answer

    async def let_callers_run(self) -> dict[str, set[int]]:
        """The statuses that each kind of request gets from now on."""
        self.statuses.clear()
        until = self.rounds + CALLERS * ROUNDS_MIN
        async with asyncio.timeout(60):
            while self.rounds < until:
                await asyncio.sleep(0.01)
        seen: dict[str, set[int]] = {}
        for what, status in self.statuses:
            seen.setdefault(what, set()).add(status)
        return seen


@asynccontextmanager
async def running_site(path: str, monkeypatch: pytest.MonkeyPatch, *, gate: WireCodec) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        site = Site(path, stack)
        for n in range(2):
            await site.start_manager(n, OLDER_CODEC)
        await site.start_gate(gate, monkeypatch)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for n in range(CALLERS):
                group.create_task(site.call(f"caller{n}", stop))
            try:
                yield site
            finally:
                stop.set()
        engine = await RemoteEngine.open(site.relays[0].url, codec=WireCodec())
        records = {record.key: record for record in await list_facts(engine, Kind.RECORD, tenant="default")}
        await engine.aclose()
        assert {key: format_job_id(records[key].job_ids) for key in site.keys} == site.keys


OLDER_ANSWERS = {"plain": {202}, "callback": {503}, "cancel": {503}}
NEWER_ANSWERS = {"plain": {202}, "callback": {202}, "cancel": {200}}


async def test_when_gates_are_upgraded_first_every_answer_is_right_or_503(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_site(str(tmp_path / "onejob.db"), monkeypatch, gate=WireCodec()) as site:
        assert await site.let_callers_run() == OLDER_ANSWERS
        for n in range(2):  # one manager that knows them is enough
            await site.start_manager(n, WireCodec())
            await site.let_callers_run()
            assert await site.let_callers_run() == NEWER_ANSWERS


async def test_when_managers_are_upgraded_first_every_answer_is_right_or_503(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older gate does not know the reply to a cancellation, which is then done, and told to who asks again later."""
    monkeypatch.setattr(remote, "LATE_MS_MAX", 200)  # for as long the gate waits after a reply that it does not know
    async with running_site(str(tmp_path / "onejob.db"), monkeypatch, gate=OLDER_CODEC) as site:
        assert await site.let_callers_run() == OLDER_ANSWERS
        for n in range(2):
            await site.start_manager(n, WireCodec())
            await site.let_callers_run()
            assert (await site.let_callers_run())["plain"] == {202}
        await site.start_gate(WireCodec(), monkeypatch)
        await site.let_callers_run()
        assert await site.let_callers_run() == NEWER_ANSWERS
