"""What strangers and limited credentials cannot do to a manager, and to the tenants of others."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from msgspec import msgpack
from msgspec.structs import replace

from onejob.addresses import Address
from onejob.clock import FakeClock
from onejob.conformance.samples import OTHER, TENANT, USER, key_id, quota_ids, settle, submit
from onejob.conformance.samples import reserve as reserve_key
from onejob.conformance.world import expect
from onejob.core.callback import callback_job_id
from onejob.core.command import Command
from onejob.core.credentials import DropPolicy, LookUpPolicy, SetPolicy
from onejob.core.facts import Kind, Policy
from onejob.core.gate_keys import GateKey, gate_key_policy_name
from onejob.core.identity import SYSTEM_TENANT, policy_id, record_id
from onejob.core.lookup import DryRun, LookUpAnswer, LookUpJob, LookUpKey
from onejob.core.maintenance import Purge
from onejob.core.replies import (
    Cancelled,
    Created,
    Defect,
    DryRunReply,
    Found,
    KeyHeld,
    KeySettled,
    Maintained,
    Missing,
    PolicyFound,
    Refused,
)
from onejob.core.site_delivery import SITE_TTL_MS_MAX, CancelAtSite
from onejob.core.sites import SiteTargets
from onejob.core.states import JobState
from onejob.core.submit import Submit
from onejob.engine import GateSettings, ListFacts
from onejob.engines.memory import MemoryEngine
from onejob.engines.remote import RemoteEngine
from onejob.engines.remote.codec import Malformed, array_length
from onejob.engines.remote.connection import RequestRefused, open_connection
from onejob.engines.remote.messages import SITE_BODY_BYTES_MAX, TokenRequest
from onejob.errors import PartlyDone, StoreRefused, TenantRefused, Unavailable
from onejob.ids import SystemIds, new_job_id
from onejob.ledger import Ledger
from onejob.ledger.base import runtime_of
from onejob.manager import server as manager_server
from onejob.manager.access import COMMANDS_MAX, SITE_COMMANDS_MAX
from onejob.manager.gate_keys import GateKeys
from onejob.manager.ledger import ManagerIdempotencyLedger, RateShares, WireRequest
from onejob.runtime import Runtime
from onejob.runtime.callers import Caller
from onejob.runtime.workers import WorkerInfo, announce_worker, list_workers
from onejob.settings import IdempotencyConfig
from tests.support.managers import SUITE_CODEC, running_manager

SITE_USER, SITE_TYPE = "vera", "pay"


@asynccontextmanager
async def opened(url: str, key: str) -> AsyncIterator[RemoteEngine]:
    engine = await RemoteEngine.open(url, codec=SUITE_CODEC, gate_key=key, silence_seconds_max=10.0)
    try:
        yield engine
    finally:
        await engine.aclose()


@asynccontextmanager
async def limited_gate(*, is_site: bool = False, **options: Any) -> AsyncIterator[tuple[RemoteEngine, MemoryEngine]]:
    """A gate whose credential names one tenant, and the store behind its manager."""
    store = MemoryEngine()
    made = await GateKeys(store, SystemIds(), actor="client:admin").create("a", tenants=[TENANT], is_site=is_site)
    async with (
        running_manager(store, needs_gate_key=True, **options) as url,
        opened(url, made.text) as engine,
    ):
        yield engine, store


def delivered(kind: type[Submit] = Submit, key: str = "k", **options: Any) -> Submit:
    """What a home sends."""
    fields: dict[str, Any] = {
        "job_id": new_job_id(),
        "type": SITE_TYPE,
        "tenant": TENANT,
        "record_id": record_id(TENANT, SITE_TYPE, key),
        "scope": SITE_TYPE,
        "key": key,
        "fingerprint": b"f" * 33,
        "actor": "client:home",
        "user": SITE_USER,
    }
    return kind(**fields | options)


async def results_of(engine: RemoteEngine, commands: Sequence[Any]) -> Sequence[Any]:
    try:
        return await engine.execute(commands)
    except PartlyDone as error:
        return error.results


# Limited credentials and the other commands of a batch


async def test_a_gate_for_some_tenants_submits_with_keys_is_ready_and_purges() -> None:
    async with limited_gate() as (engine, store):
        ledger = Ledger(Runtime(engine, IdempotencyConfig(), clock=FakeClock(), ids=SystemIds()), Caller(tenant=TENANT))
        assert (await ledger.submit("t", idempotency_key="k")).created
        assert not (await ledger.submit("t", idempotency_key="k")).created
        await runtime_of(ledger).readiness.check()
        with pytest.raises(Unavailable):  # then readiness writes a probe
            await runtime_of(ledger).gate.execute([submit(tenant=OTHER)])
        await runtime_of(ledger).readiness.check()
        await ledger.admin.purge()
        assert not store.facts[Kind.JOB]


async def test_a_refused_command_fails_alone() -> None:
    async with limited_gate() as (engine, store):
        good, bad, other = await results_of(engine, [submit("a"), submit("b", tenant=OTHER), submit("c")])
        assert isinstance(good, Created)
        assert isinstance(other, Created)
        assert isinstance(bad, TenantRefused)
        assert len(store.facts[Kind.JOB]) == 2


async def test_a_limited_gate_hears_nothing_of_other_tenants_in_the_list_of_stored_keys() -> None:
    async with limited_gate() as (engine, store):
        id = policy_id(SYSTEM_TENANT, "stored-keys")
        body = b'{"acme":{"since":1,"until":4000000000000},"globex":{"since":1,"until":4000000000000}}'
        command = SetPolicy(tenant=SYSTEM_TENANT, policy_id=id, name="stored-keys", body=body)
        with pytest.raises(TenantRefused):
            await engine.execute([command])
        await store.execute([command])
        found = await expect(engine, LookUpPolicy(tenant=SYSTEM_TENANT, policy_id=id), PolicyFound)
        assert b"acme" in found.policy.body
        assert b"globex" not in found.policy.body


async def test_no_id_of_a_command_belongs_to_another_tenant() -> None:
    async with limited_gate() as (engine, store):
        name = gate_key_policy_name("0" * 12)
        wrong: list[Command[Any]] = [
            submit(record_id=key_id(tenant=OTHER)),
            submit(tenant=TENANT, policy_id=quota_ids(OTHER)["policy_id"]),
            SetPolicy(tenant=TENANT, policy_id=policy_id(SYSTEM_TENANT, name), name=name, body=b"{}"),
            LookUpKey(tenant=TENANT, record_id=key_id(tenant=OTHER)),
        ]
        assert [type(one) for one in await results_of(engine, [*wrong, submit("fine")])] == [
            *[TenantRefused] * len(wrong),
            Created,
        ]
        # The rule holds without credentials, too: whoever makes the command.
        (squat,) = await store.execute([wrong[0]])
        assert isinstance(squat, Defect)
        await expect(store, submit(tenant=OTHER), Created)


async def test_a_command_inside_another_is_of_the_same_tenant() -> None:
    async with limited_gate() as (engine, store):
        secret = submit(tenant=OTHER)
        await expect(store, secret, Created)
        inner = replace(secret, job_id=new_job_id())
        with pytest.raises(TenantRefused):
            await engine.execute([DryRun(tenant=TENANT, command=inner)])
        with pytest.raises(TenantRefused):
            await engine.execute([LookUpAnswer(tenant=TENANT, command=inner)])
        assert isinstance((await store.execute([DryRun(tenant=TENANT, command=inner)]))[0], Defect)
        await expect(engine, DryRun(tenant=TENANT, command=submit()), DryRunReply)


async def test_nobody_deletes_the_credential_of_a_gate() -> None:
    store = MemoryEngine()
    keys = GateKeys(store, SystemIds(), actor="client:admin")
    made = await keys.create("all")
    id = policy_id(SYSTEM_TENANT, gate_key_policy_name(made.key.id))
    async with running_manager(store, needs_gate_key=True) as url, opened(url, made.text) as engine:
        await expect(engine, DropPolicy(tenant=SYSTEM_TENANT, policy_id=id), Refused)
        purged = await expect(engine, Purge(tenant=SYSTEM_TENANT, policy_id=id), Maintained)
        assert not purged.changed
        assert await keys.verify(made.text)


async def test_a_key_that_is_sent_limits_also_where_none_is_needed() -> None:
    store = MemoryEngine()
    made = await GateKeys(store, SystemIds(), actor="client:admin").create("a", tenants=[TENANT])
    async with running_manager(store, needs_gate_key=False) as url:
        async with opened(url, made.text) as engine:
            await expect(engine, submit(), Created)
            with pytest.raises(TenantRefused):
                await engine.execute([submit(tenant=OTHER)])
        with pytest.raises(StoreRefused, match="credential"):
            async with opened(url, "ojg_000000000000." + "A" * 43):
                pass
        async with opened(url, "") as engine:
            await expect(engine, submit(tenant=OTHER), Created)


async def test_a_limited_gate_sees_the_workers_of_all_tenants_and_no_gate_key() -> None:
    async with limited_gate() as (engine, store):
        info = WorkerInfo("w1", "w", "host", 1, "1", ("t",), 1, 0, {}, 0, None)
        await announce_worker(store, info)
        assert [one.id for one in await list_workers(engine, TENANT)] == ["w1"]
        (made,) = await GateKeys(store, SystemIds(), actor="client:admin").list()
        id = policy_id(SYSTEM_TENANT, gate_key_policy_name(made.id))
        await expect(engine, LookUpPolicy(tenant=SYSTEM_TENANT, policy_id=id), Missing)
        page = await engine.scan(ListFacts(tenant=SYSTEM_TENANT, kind=Kind.POLICY))
        assert sorted(one.name for one in page.items if isinstance(one, Policy)) == ["", "settings", "worker/w1"]
        with pytest.raises(Unavailable):
            await engine.scan(ListFacts(tenant=SYSTEM_TENANT, kind=Kind.JOB))


# Other data centres


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "onejob.site.fra"},
        {"type": "onejob.callback"},
        {"callback": "http://127.0.0.1:1/x"},
        {"sites": SiteTargets(("fra",))},
        {"actor": "system:root"},
        {"actor": "nobody"},
        {"labels": b"\xff\xfe"},
        {"labels": b'{"a":1}'},
        {"input": b"{"},
        {"input": b'"\xff"'},
        {"job_id": b"abc"},
        {"job_id": b""},
        {"priority": 2**62},
        {"attempts_max": 0},
        {"timeout_ms": -1},
        {"run_at": 2**64 - 1},
        {"ttl_ms": SITE_TTL_MS_MAX + 1},
        {"ttl_ms": -5},
        {"key": "a\0b"},
        {"record_id": b""},
        {"record_id": record_id(TENANT, SITE_TYPE, "another")},
        {"usage_id": quota_ids()["usage_id"]},
        {"user": "a\nb"},
        {"fingerprint": b""},
    ],
    ids=str,
)
async def test_what_a_site_delivers_is_checked_as_if_it_were_submitted(changes: dict[str, Any]) -> None:
    async with limited_gate(is_site=True) as (engine, store):
        for kind in (Submit, CancelAtSite):
            bad, good = await results_of(engine, [delivered(kind, **changes), delivered(key=kind.__name__)])
            assert isinstance(bad, TenantRefused)
            assert isinstance(good, Created)
        assert len(store.facts[Kind.JOB]) == 2


async def test_a_site_delivers_asks_and_cancels_and_may_nothing_else() -> None:
    async with limited_gate(is_site=True) as (engine, _):
        for command in (delivered(), delivered(record_id=record_id(TENANT, SITE_TYPE, "k", SITE_USER))):
            await expect(engine, command, Created)
            await expect(engine, LookUpJob(tenant=TENANT, job_id=command.job_id), Found)
            cancel = delivered(CancelAtSite, job_id=command.job_id, record_id=command.record_id)
            await expect(engine, cancel, Cancelled)
        with pytest.raises(TenantRefused, match="deliver jobs"):
            await engine.execute([LookUpKey(tenant=TENANT, record_id=key_id())])
        with pytest.raises(TenantRefused, match="not act"):
            await engine.execute([LookUpJob(tenant=SYSTEM_TENANT, job_id=bytes(16))])


async def test_a_delivery_cancels_only_the_job_that_it_made() -> None:
    store = MemoryEngine()
    local = replace(
        delivered(), fingerprint=b"g" * 33, callback="https://example.org/done", **quota_ids(user=SITE_USER)
    )
    await expect(store, local, Created)
    for changes in ({}, {"key": "x", "record_id": record_id(TENANT, SITE_TYPE, "x")}, {"user": USER}):
        await expect(store, delivered(CancelAtSite, job_id=local.job_id, **changes), Refused)
    assert store.facts[Kind.JOB][local.job_id].state is JobState.PENDING
    # With its own fingerprint, the ordinary rule holds: usage and callback are those of the job.
    await expect(store, delivered(CancelAtSite, job_id=local.job_id, fingerprint=local.fingerprint), Cancelled)
    assert store.facts[Kind.JOB][local.job_id].state is JobState.CANCELLED
    assert store.facts[Kind.JOB][callback_job_id(local.job_id)].state is JobState.PENDING


async def test_a_site_hears_of_no_settled_keys() -> None:
    async with limited_gate(is_site=True) as (engine, _):
        connection, headers = await engine.peers.connect(engine.peers.managers[0])
        with pytest.raises(RequestRefused, match="nothing else"):
            await connection.request("/subscribe", headers, b"")


# Floods


async def test_a_long_array_is_refused_before_it_is_decoded() -> None:
    for is_site, most in ((True, SITE_COMMANDS_MAX), (False, COMMANDS_MAX)):
        async with limited_gate(is_site=is_site) as (engine, _):
            connection, headers = await engine.peers.connect(engine.peers.managers[0])
            body = b"\xdd" + (4_000_000).to_bytes(4, "big") + b"\xc0" * 4_000_000
            begin = time.process_time()
            with pytest.raises(RequestRefused, match=f"at most {most} "):
                await connection.request("/execute", headers, body)
            assert time.process_time() - begin < 1.0
            for malformed in (b"", b"\xdd\x00", b"\xc0"):
                with pytest.raises(RequestRefused, match="malformed"):
                    await connection.request("/execute", headers, malformed)
            connection.close()


def test_the_length_of_an_array_is_read_from_its_first_bytes() -> None:
    for count in (0, 15, 16, 65_535, 65_536):
        assert array_length(msgpack.encode([None] * count)) == count
    for data in (b"", b"\x80", b"\xdc\x00", b"\xdd\x00\x00\x00"):
        with pytest.raises(Malformed):
            array_length(data)


async def test_the_requests_of_a_site_are_smaller() -> None:
    async with limited_gate(is_site=True) as (engine, _):
        connection, headers = await engine.peers.connect(engine.peers.managers[0])
        with pytest.raises(RequestRefused, match="too large"):
            await connection.request("/execute", headers, bytes(SITE_BODY_BYTES_MAX + 1))


async def test_a_stranger_is_disconnected_with_the_first_refusal() -> None:
    async with limited_gate() as (engine, _):
        address = engine.peers.managers[0].address
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"POST /hello HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 60)  # to the end
        assert answer.startswith(b"HTTP/1.1 401")
        assert b"connection: close" in answer
        writer.close()


async def test_whoever_was_never_accepted_is_disconnected_whatever_the_refusal() -> None:
    async with running_manager(MemoryEngine()) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"POST /execute HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 60)
        assert answer.startswith(b"HTTP/1.1 426")
        writer.close()


async def test_one_address_has_few_connections_that_were_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_server, "UNAUTHENTICATED_PER_ADDRESS_MAX", 3)
    async with limited_gate() as (engine, _):
        address = engine.peers.managers[0].address
        silent = [await asyncio.open_connection(address.host, address.port) for _ in range(4)]
        assert await asyncio.wait_for(_read_end(silent[3][0]), 60) == b""
        await expect(engine, submit(), Created)  # its connection was accepted before
        for _, writer in silent:
            writer.close()
        await asyncio.sleep(0.05)
        await engine.peers.probe_all()
        assert engine.peers.managers[0].is_reached


async def _read_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def test_strangers_of_one_ipv6_network_count_together() -> None:
    networks = [manager_server._network_of((host, 1)) for host in ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1")]
    assert networks[0] == networks[1] != networks[2]
    assert (
        manager_server._network_of(("::ffff:10.0.0.1", 1)) == manager_server._network_of(("10.0.0.1", 1)) == "10.0.0.1"
    )
    assert manager_server._network_of(("fe80::1%eth0", 1, 0, 2)) == manager_server._network_of(("fe80::2", 1, 0, 2))
    assert manager_server._network_of(None) == ""


async def test_a_stream_that_cannot_begin_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with limited_gate() as (engine, _):
        address = engine.peers.managers[0].address
        connection = await open_connection(Address(address.host, address.port), None)
        _, headers = await engine.peers.connect(engine.peers.managers[0])
        superscript = tuple(
            (name, "²".encode("latin-1") if name == b"onejob-wire" else value) for name, value in headers
        )
        with pytest.raises(RequestRefused, match="speaks version"):
            await connection.request("/subscribe", superscript, b"")

        def broken(*_: object) -> None:
            raise RuntimeError("secret")

        monkeypatch.setattr(ManagerIdempotencyLedger, "check_target", broken)
        connection = await open_connection(Address(address.host, address.port), None)
        with pytest.raises(RequestRefused, match="see its log") as refused:
            await connection.request("/subscribe", headers, b"")
        assert refused.value.status == 503


async def test_a_gate_that_leaves_before_its_stream_begins_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would be called for each settled key until the manager ends."""
    asked, left, may_answer = asyncio.Event(), asyncio.Event(), asyncio.Event()
    listeners: set[object] = set()
    authorize, lose = ManagerIdempotencyLedger.authorize, manager_server.ManagerConnection.connection_lost

    async def authorize_slowly(self: ManagerIdempotencyLedger, request: WireRequest) -> GateKey:
        if request.path == "/subscribe":
            asked.set()
            await may_answer.wait()
        return await authorize(self, request)

    def lose_connection(self: manager_server.ManagerConnection, exc: Exception | None) -> None:
        lose(self, exc)
        left.set()

    monkeypatch.setattr(ManagerIdempotencyLedger, "authorize", authorize_slowly)
    monkeypatch.setattr(ManagerIdempotencyLedger, "subscribe", lambda _, listener: listeners.add(listener))
    monkeypatch.setattr(ManagerIdempotencyLedger, "unsubscribe", lambda _, listener: listeners.discard(listener))
    monkeypatch.setattr(manager_server.ManagerConnection, "connection_lost", lose_connection)
    async with limited_gate() as (engine, _):
        address = engine.peers.managers[0].address
        _, headers = await engine.peers.connect(engine.peers.managers[0])
        connection = await open_connection(Address(address.host, address.port), None)
        request = asyncio.create_task(connection.request("/subscribe", headers, b""))
        await asked.wait()
        connection.close()
        await left.wait()
        may_answer.set()
        await asyncio.gather(request, return_exceptions=True)
        await asyncio.sleep(0.05)
        assert not listeners


async def test_no_stream_begins_while_the_manager_shuts_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shutdown would wait for the end of the stream."""
    asked, may_answer = asyncio.Event(), asyncio.Event()
    authorize = ManagerIdempotencyLedger.authorize
    servers: list[manager_server.ManagerServer] = []
    listen = manager_server.ManagerServer.listen

    async def authorize_slowly(self: ManagerIdempotencyLedger, request: WireRequest) -> GateKey:
        if request.path == "/subscribe":
            asked.set()
            await may_answer.wait()
        return await authorize(self, request)

    async def note_and_listen(self: manager_server.ManagerServer, *args: Any) -> Address:
        servers.append(self)
        return await listen(self, *args)

    monkeypatch.setattr(ManagerIdempotencyLedger, "authorize", authorize_slowly)
    monkeypatch.setattr(manager_server.ManagerServer, "listen", note_and_listen)
    async with limited_gate() as (engine, _):
        address = engine.peers.managers[0].address
        _, headers = await engine.peers.connect(engine.peers.managers[0])
        connection = await open_connection(Address(address.host, address.port), None)
        request = asyncio.create_task(connection.request("/subscribe", headers, b""))
        await asked.wait()
        closing = asyncio.create_task(servers[0].aclose(drain_seconds=60))
        await asyncio.sleep(0.05)
        may_answer.set()
        with pytest.raises(RequestRefused, match="shutting down"):
            await request
        await asyncio.wait_for(closing, 30)


def test_a_limited_gate_changes_the_rate_of_its_own_tenants_alone() -> None:
    clock = FakeClock()
    shares = RateShares(GateSettings(rate_per_second=10.0, rate_burst=10), clock.monotonic)
    other = TokenRequest(OTHER, "client:x", 4, managers=1)
    assert shares.grant(other).granted == 4
    for managers in (10**15, 2, -1):
        shares.grant(TokenRequest(TENANT, "client:x", 1, managers=managers), is_limited=True)
    assert shares.grant(TokenRequest(TENANT, "client:x", -(10**6), managers=1), is_limited=True).granted == 0
    assert shares.grant(TokenRequest(TENANT, "client:x", 10**6, managers=1), is_limited=True).granted <= 1
    assert shares.grant(replace(other, wanted=10**6)).granted == 6
    clock.advance(timedelta(seconds=1).total_seconds())
    assert shares.grant(replace(other, wanted=10**6)).granted == 10
    unlimited = RateShares(GateSettings(), clock.monotonic)
    assert unlimited.grant(TokenRequest(TENANT, "a", -5, managers=1)).granted == 0


async def test_settled_keys_reach_a_limited_gate() -> None:
    async with limited_gate() as (engine, store):
        heard: list[bytes] = []
        engine.subscribe(heard.append)
        for _ in range(100):
            held = await expect(engine, reserve_key(f"k{_}"), KeyHeld)
            await expect(engine, settle(held), KeySettled)
            if heard:
                break
            await asyncio.sleep(0.02)
        assert heard
        assert store.facts[Kind.RECORD]
