"""A manager: whom it lets in, what a credential may do, what it prescribes, and how its port is opened."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

import onejob
from onejob.addresses import Address
from onejob.clock import FakeClock, SystemClock
from onejob.conformance.samples import OTHER, TENANT, set_policy, submit
from onejob.conformance.world import expect, list_facts
from onejob.core.command import is_settings_refusal
from onejob.core.credentials import DropPolicy, SetPolicy
from onejob.core.errors import Invalid
from onejob.core.facts import Kind
from onejob.core.gate_keys import gate_key_policy_name
from onejob.core.identity import SETTINGS_POLICY_NAME, SYSTEM_TENANT, policy_id
from onejob.core.ledger_settings import (
    CLOSED_MS,
    SETTINGS_POLICY_ID,
    closed_settings,
    decode_settings,
    encode_settings,
)
from onejob.core.maintenance import Purge
from onejob.core.replies import Created, PolicyFound
from onejob.engine import GateSettings, ListBacklogs, ListJobs
from onejob.engines.memory import MemoryEngine
from onejob.engines.remote import RemoteEngine
from onejob.engines.remote.codec import encode_struct
from onejob.engines.remote.connection import RequestRefused, open_connection
from onejob.engines.remote.messages import HelloRequest, TokenRequest
from onejob.errors import NotFound, StoreRefused, Unavailable
from onejob.ids import SystemIds
from onejob.manager import ledger as manager_ledger
from onejob.manager.gate_keys import GateKeys
from onejob.manager.ledger import ManagerIdempotencyLedger, RateShares
from onejob.manager.server import ManagerConfig, ManagerServer, needs_gate_key
from onejob.runtime.policies import load_policy, try_set_policy
from onejob.runtime.settings import open_settings
from tests.http.test_tls import make_files
from tests.support.managers import SUITE_CODEC, running_manager


@asynccontextmanager
async def opened(url: str, key: str = "") -> AsyncIterator[RemoteEngine]:
    engine = await RemoteEngine.open(url.replace("://", f"://{key}@") if key else url, codec=SUITE_CODEC)
    try:
        yield engine
    finally:
        await engine.aclose()


def gate_keys(engine: MemoryEngine) -> GateKeys:
    return GateKeys(engine, SystemIds(), actor="client:admin")


async def test_a_manager_takes_only_gate_credentials() -> None:
    store = MemoryEngine()
    made = await gate_keys(store).create("dc1")
    async with running_manager(store, needs_gate_key=True) as url:
        for key in ("", "wrong", "ojg_" + "0" * 12 + "." + "a" * 43, made.text[:-1] + "_"):
            with pytest.raises(StoreRefused, match="credential"):
                async with opened(url, key):
                    pass
        async with opened(url, made.text) as engine:
            await expect(engine, submit(), Created)


async def test_the_credential_of_a_gate_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryEngine()
    made = await gate_keys(store).create("dc1")
    monkeypatch.setenv("ONEJOB_GATE_KEY", made.text)
    async with running_manager(store, needs_gate_key=True) as url, opened(url) as engine:
        await expect(engine, submit(), Created)


async def test_a_revoked_gate_is_refused_on_the_connections_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_ledger, "CREDENTIAL_SECONDS_MAX", 0.0)
    store = MemoryEngine()
    made = await gate_keys(store).create("dc1")
    async with running_manager(store, needs_gate_key=True) as url, opened(url, made.text) as engine:
        await expect(engine, submit(), Created)
        await gate_keys(store).revoke(made.key.id)
        with pytest.raises(Unavailable, match="credential"):
            await engine.execute([submit("other")])
        assert len(store.facts[Kind.JOB]) == 1


async def test_a_rotated_gate_key_has_two_secrets_for_a_while_and_an_expired_one_none() -> None:
    clock = FakeClock()
    store = MemoryEngine(clock)
    keys = gate_keys(store)
    made = await keys.create("dc1", lifetime=timedelta(days=30))
    rotated = await keys.rotate(made.key.id, overlap=timedelta(hours=1))
    assert await keys.verify(made.text)
    assert await keys.verify(rotated.text)
    clock.advance(3601)
    assert await keys.verify(made.text) is None
    assert await keys.verify(rotated.text)
    clock.advance(30 * 86_400)
    assert await keys.verify(rotated.text) is None
    with pytest.raises(NotFound):
        await keys.revoke("0" * 12)
    assert [key.name for key in await keys.list()] == ["dc1"]


async def test_only_the_hash_of_a_gate_key_is_stored() -> None:
    store = MemoryEngine()
    made = await gate_keys(store).create("dc1")
    (policy,) = store.facts[Kind.POLICY].values()
    assert made.text.rpartition(".")[2].encode() not in policy.body
    assert policy.tenant == SYSTEM_TENANT


async def test_a_credential_for_some_tenants_acts_for_no_other() -> None:
    store = MemoryEngine()
    made = await gate_keys(store).create("site-a", tenants=[TENANT])
    async with running_manager(store, needs_gate_key=True) as url, opened(url, made.text) as engine:
        await expect(engine, submit(), Created)
        await list_facts(engine, Kind.JOB)
        for work in (
            engine.execute([submit(tenant=OTHER)]),
            engine.scan(ListJobs(tenant=OTHER)),
            engine.scan(ListBacklogs(types=("t",))),
            engine.barrier(OTHER),
        ):
            with pytest.raises(Unavailable, match="may not act"):
                await work
            await engine.peers.probe_all()
        assert len(store.facts[Kind.JOB]) == 1


async def test_a_gate_cannot_make_a_credential_for_another_or_delete_the_settings() -> None:
    store = MemoryEngine()
    async with running_manager(store) as url, opened(url) as engine:
        name = gate_key_policy_name("0" * 12)
        forged = policy_id(SYSTEM_TENANT, name)
        for command in (
            SetPolicy(tenant=SYSTEM_TENANT, policy_id=forged, name=name, body=b"{}"),
            SetPolicy(tenant=SYSTEM_TENANT, policy_id=forged, name="ready", body=b"{}"),
        ):
            with pytest.raises(Unavailable, match="gate keys"):
                await engine.execute([command])
            await engine.peers.probe_all()
        drop = DropPolicy(tenant=SYSTEM_TENANT, policy_id=SETTINGS_POLICY_ID)
        await engine.execute([drop, Purge(tenant=SYSTEM_TENANT, policy_id=SETTINGS_POLICY_ID)])
        assert list(store.facts[Kind.POLICY]) == [SETTINGS_POLICY_ID]
        await expect(engine, set_policy(), PolicyFound)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.5", "::"])
async def test_beyond_loopback_a_manager_needs_a_credential_or_certificates(host: str) -> None:
    store = MemoryEngine()
    config = ManagerConfig(engine="memory://", host=host)
    with pytest.raises(Invalid, match="gatekey create"):
        await needs_gate_key(store, config)
    assert not await needs_gate_key(store, replace(config, host="127.0.0.1"))
    with_ca = replace(config, tls_cert="c", tls_key="k", tls_client_ca="ca")
    assert not await needs_gate_key(store, with_ca)
    made = await gate_keys(store).create("dc1")
    assert await needs_gate_key(store, config)
    await gate_keys(store).revoke(made.key.id)
    with pytest.raises(Invalid):
        await needs_gate_key(store, config)


async def test_with_client_certificates_only_gates_that_have_one_get_in(tmp_path: Path) -> None:
    manager, gate, stranger = (make_files(tmp_path / name) for name in ("manager", "gate", "stranger"))
    config = ManagerConfig(
        engine="memory://", tls_cert=str(manager.cert), tls_key=str(manager.key), tls_client_ca=str(gate.cert)
    )
    ledger = ManagerIdempotencyLedger(
        MemoryEngine(),
        clock=SystemClock(),
        settings=GateSettings(),
        needs_gate_key=False,
        needs_settings=False,
        codec=SUITE_CODEC,
    )
    server = ManagerServer(ledger)
    _, port = await server.listen("127.0.0.1", 0, config.ssl_context())
    url = f"https://127.0.0.1:{port}?ca={manager.cert}"
    async with opened(f"{url}&cert={gate.cert}&key={gate.key}") as engine:
        await expect(engine, submit(), Created)
    for refused in (url, f"{url}&cert={stranger.cert}&key={stranger.key}", f"https://127.0.0.1:{port}"):
        with pytest.raises(Unavailable):
            async with opened(refused):
                pass
    await server.aclose()
    await ledger.aclose()


async def test_a_gate_takes_the_settings_of_its_manager() -> None:
    settings = GateSettings(rejected_ttl_seconds=8.0, pending_ttl_seconds=9.0)
    async with running_manager(MemoryEngine(), settings=settings) as url, onejob.open(url) as ledger:
        config = ledger.admin.runtime_stats().config
        assert (config.rejected_ttl_seconds, config.pending_ttl_seconds) == (8, 9)
        receipt = await ledger.submit("t", {"n": 1}, idempotency_key="k")
        assert receipt.created
        assert not (await ledger.submit("t", {"n": 1}, idempotency_key="k")).created


async def test_a_gate_does_not_sweep_the_store() -> None:
    config = onejob.IdempotencyConfig(cleanup_interval_seconds=0.05)
    async with running_manager(MemoryEngine()) as url, onejob.open(url, config=config) as ledger:
        await ledger.submit("t", idempotency_key="k")
        await asyncio.sleep(0.3)
        assert ledger.admin.runtime_stats().sweep_totals.records == 0
        assert ledger.admin.runtime_stats().maintenance_failures == 0


async def test_a_command_that_proves_no_settings_is_not_executed() -> None:
    """Whatever a gate believes: it could make a key under another owner."""
    store = MemoryEngine()
    async with running_manager(store, needs_settings=True) as url, opened(url) as engine:
        with pytest.raises(Unavailable, match="does not prove the settings of the ledger"):
            await engine.execute([submit()])
        owner = engine.info.owner
        assert owner is not None
        proven = replace(submit(), settings=owner.settings)
        closed = encode_settings(closed_settings(decode_settings(owner.settings), 0, by="client:admin"))
        (refused,) = await engine.execute([replace(submit(), settings=closed)])
        assert is_settings_refusal(refused)
        await expect(engine, proven, Created)
    assert len(store.facts[Kind.RECORD]) == 1


async def test_a_manager_opens_doors_that_a_dead_process_closed(clock: FakeClock) -> None:
    """Gates whose credential is limited to tenants may not do it."""
    store = MemoryEngine(clock)
    stored = await open_settings(store, {})
    closed = encode_settings(closed_settings(stored.settings, stored.at, by="client:admin"))
    name = SETTINGS_POLICY_NAME
    assert await try_set_policy(store, SYSTEM_TENANT, name, closed, expected_version=stored.version) is not None
    ledger = ManagerIdempotencyLedger(store, clock=clock, settings=GateSettings(), needs_gate_key=False)
    maintenance = asyncio.create_task(ledger.maintain(0.01))
    await asyncio.sleep(0.1)
    policy, _ = await load_policy(store, SYSTEM_TENANT, name)
    assert policy is not None
    assert policy.body == closed, "the process may still be there"
    clock.advance(CLOSED_MS / 1000 + 1)
    async with asyncio.timeout(10):
        while policy.body == closed:
            await asyncio.sleep(0.01)
            policy, _ = await load_policy(store, SYSTEM_TENANT, name)
            assert policy is not None
    assert decode_settings(policy.body).version == stored.settings.version + 2
    maintenance.cancel()


async def test_an_older_gate_is_refused_by_name() -> None:
    async with running_manager(MemoryEngine()) as url:
        for path, body, message in (
            ("/hello", encode_struct(HelloRequest(1, 1)), "version 2 of the wire, and the gate version 1"),
            ("/execute", b"\x90", "the gate none"),
            ("/hello", b"\x90", "malformed"),
        ):
            connection = await open_connection(Address("127.0.0.1", int(url.rpartition(":")[2])), None)
            with pytest.raises(RequestRefused, match=message):
                await connection.request(path, (), body)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /hello HTTP/1.0\r\n\r\n",
        b"POST /hello HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /hello HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\nx",
        b"POST /hello HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /hello HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n",
        b"POST /execute HTTP/1.1\r\ncontent-length: 5000\r\n\r\n",  # too much for a stranger
        b"POST /hello HTTP/1.1\r\ncontent-length: 0\r\n\r\nPOST /hello HTTP/1.1\r\ncontent-length: 0\r\n\r\n",
        b"x" * 20_000,
        bytes(range(256)) * 100,
    ],
)
async def test_other_bytes_are_refused_and_the_connection_closed(data: bytes) -> None:
    async with running_manager(MemoryEngine()) as url, opened(url) as engine:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(data)
        answer = await asyncio.wait_for(reader.read(), 60)
        assert not answer.startswith(b"HTTP/1.1 200")
        writer.close()
        await expect(engine, submit(), Created)


async def test_rates_hold_for_all_gates_together_and_managers_divide_them() -> None:
    clock = FakeClock()
    settings = GateSettings(rate_per_second=10.0, rate_burst=10)
    one, other = RateShares(settings, clock.monotonic), RateShares(settings, clock.monotonic)
    request = TokenRequest("t", "client:a", 3, managers=2)
    assert sum(shares.grant(request).granted for shares in (one, other) for _ in range(5)) == 10
    refused = one.grant(request)
    assert (refused.granted, refused.retry_after) == (0, 1)
    clock.advance(1.0)
    assert sum(shares.grant(request).granted for shares in (one, other) for _ in range(5)) == 10
    assert RateShares(GateSettings(), clock.monotonic).grant(request).granted == 3


async def test_a_manager_answers_what_it_executes_before_it_stops() -> None:
    store = MemoryEngine()
    ledger = ManagerIdempotencyLedger(
        store, clock=SystemClock(), settings=GateSettings(), needs_gate_key=False, codec=SUITE_CODEC
    )
    server = ManagerServer(ledger)
    host, port = await server.listen("127.0.0.1", 0)
    async with opened(f"http://{host}:{port}") as engine:
        work = asyncio.create_task(engine.execute([submit()]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        closing = asyncio.create_task(server.aclose())
        try:
            (reply,) = await work
            assert isinstance(reply, Created)
        except Unavailable:
            assert not store.facts[Kind.JOB]
        await closing
        await ledger.aclose()
        with pytest.raises(Unavailable):
            await engine.execute([submit()])


def test_a_manager_is_not_put_in_front_of_another_manager() -> None:
    with pytest.raises(Invalid, match="owns its ledger"):
        ManagerConfig(engine="http://m1:8002")
