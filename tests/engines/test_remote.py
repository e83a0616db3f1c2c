"""The engine `http://`: which managers it asks, what it concludes from a failure, and that nothing is done twice or undone."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from onejob.clock import FakeClock
from onejob.conformance.samples import (
    ACTOR,
    TENANT,
    key_id,
    reserve,
    set_limit,
    set_policy,
    settle,
    submit,
    submit_counted,
)
from onejob.conformance.world import expect, list_facts
from onejob.core.command import Command
from onejob.core.facts import Kind
from onejob.core.lookup import LookUpKey
from onejob.core.replies import (
    AnyReply,
    Cancelled,
    Created,
    Defect,
    Found,
    KeyHeld,
    KeySettled,
    Refused,
    Replayed,
    UsageFound,
)
from onejob.core.work import Cancel
from onejob.engine import Durability, Engine, GateSettings, ListJobs, ManagerInfo, OnTimeout
from onejob.engines.batcher import Batcher
from onejob.engines.memory import MemoryEngine
from onejob.engines.remote import RemoteEngine, codec, peers
from onejob.engines.remote.codec import WireCodec
from onejob.engines.sqlite import SqliteEngine
from onejob.engines.sqlite.backup import accept_loss
from onejob.errors import Invalid, PartlyDone, StoreRefused, Unavailable, Unknown
from onejob.manager import ledger as manager_ledger
from onejob.manager import server as manager_server
from tests.support.managers import OLDER_CODEC, SUITE_CODEC, open_remote, running_manager
from tests.support.relay import Relay, running_relay

SILENCE_SECONDS = 0.3


class SharedMemory:
    """Opens engines on the same dictionaries, as processes would open a store."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self._clock = clock
        self.store = MemoryEngine(clock)

    def open(self) -> MemoryEngine:
        engine = MemoryEngine(self._clock)
        engine.facts, engine.attachments, engine.info = self.store.facts, self.store.attachments, self.store.info
        return engine


@asynccontextmanager
async def two_managers() -> AsyncIterator[tuple[Relay, str]]:
    """Two managers of one store, the first behind a relay."""
    store = SharedMemory()
    async with (
        running_manager(store.open()) as first,
        running_manager(store.open()) as second,
        running_relay(first) as relay,
    ):
        yield relay, second


@asynccontextmanager
async def opened(
    *urls: str, codec: WireCodec = SUITE_CODEC, silence: float = SILENCE_SECONDS
) -> AsyncIterator[RemoteEngine]:
    """The engine asks these managers in this order."""
    engine = await open_remote(",".join(urls), codec, silence)
    for n, manager in enumerate(engine.peers.managers):
        manager.tie_break, manager.cost_ms = n, 0.0
    try:
        yield engine
    finally:
        await engine.aclose()


def managers_of(engine: Engine) -> tuple[ManagerInfo, ...]:
    owner = engine.info.owner
    assert owner is not None
    return owner.managers


def answers_to(path: str) -> Any:
    return lambda request: request.startswith(f"POST {path} ".encode())


async def test_managers_of_two_files_are_refused_by_name(tmp_path: Path) -> None:
    one, other = [await SqliteEngine.open(str(tmp_path / f"{n}.db")) for n in range(2)]
    async with running_manager(one) as first, running_manager(other) as second:
        with pytest.raises(StoreRefused) as refused:
            await open_remote(f"{first},{second}")
        message = str(refused.value)
        assert one.info.ledger_id in message
        assert other.info.ledger_id in message
        assert first in message
        assert second in message


async def test_a_manager_of_another_ledger_that_appears_later_is_never_asked() -> None:
    async with AsyncExitStack() as stack:
        own = await stack.enter_async_context(running_manager(MemoryEngine()))
        relay = await stack.enter_async_context(running_relay(own))
        engine = await stack.enter_async_context(opened(relay.url, own))
        other = MemoryEngine()
        relay.redirect(await stack.enter_async_context(running_manager(other)))
        await asyncio.sleep(0.05)
        await expect(engine, submit(), Created)
        assert [manager.state for manager in managers_of(engine)] == ["refused", "reached"]
        assert other.info.ledger_id in managers_of(engine)[0].reason
        assert not other.facts[Kind.JOB]


async def test_a_request_for_another_ledger_is_not_executed() -> None:
    store = MemoryEngine()
    async with running_manager(store) as url, opened(url) as engine:
        assert engine.peers.agreed is not None
        store.info = replace(store.info, ledger_id="another")
        with pytest.raises(Unavailable, match="another"):
            await engine.execute([submit()])
        assert not store.facts[Kind.JOB]


async def test_a_manager_whose_store_was_rolled_back_is_refused(tmp_path: Path) -> None:
    """The whole folder is put back, with the mark beside the file, so that only the gate can notice."""
    async with AsyncExitStack() as stack:
        folder, copy = tmp_path / "store", tmp_path / "copy"
        folder.mkdir()
        async with running_manager(await SqliteEngine.open(str(folder / "onejob.db"))) as url:
            relay = await stack.enter_async_context(running_relay(url))
            engine = await stack.enter_async_context(opened(relay.url))
            kept = (await expect(engine, submit("kept"), Created)).job
            shutil.copytree(folder, copy)
            for key in ("lost", "too"):
                await expect(engine, submit(key), Created)
        older = await SqliteEngine.open(str(copy / "onejob.db"))
        relay.redirect(await stack.enter_async_context(running_manager(older)))
        for key in ("lost", "kept", "new"):
            with pytest.raises(
                Unavailable, match=r"rolled back: it has 2 commits, and this process has seen 4.*--accept-loss"
            ):
                await engine.execute([submit(key)])
        assert managers_of(engine)[0].state == "refused"
        assert [job.key for job in await list_facts(older, Kind.JOB)] == ["kept"]
        relay.redirect(
            await stack.enter_async_context(running_manager(await SqliteEngine.open(str(folder / "onejob.db"))))
        )
        await engine.peers.probe_all()
        assert (await expect(engine, submit("kept"), Replayed)).job == kept
        await expect(engine, submit("lost"), Replayed)


async def test_a_store_whose_loss_was_accepted_is_another_ledger_to_its_gates(tmp_path: Path) -> None:
    path = str(tmp_path / "onejob.db")
    async with AsyncExitStack() as stack:
        async with running_manager(await SqliteEngine.open(path)) as url:
            relay = await stack.enter_async_context(running_relay(url))
            engine = await stack.enter_async_context(opened(relay.url))
            await expect(engine, submit(), Created)
        accept_loss(path, force=True)
        relay.redirect(await stack.enter_async_context(running_manager(await SqliteEngine.open(path))))
        with pytest.raises(Unavailable, match="its ledger is"):
            await engine.execute([submit()])
        restarted = await stack.enter_async_context(opened(relay.url))
        await expect(restarted, submit(), Replayed)


async def test_commits_of_other_managers_are_no_rollback(tmp_path: Path) -> None:
    """Two managers of one file, used in turn: each counts what the other has committed."""
    path = str(tmp_path / "onejob.db")
    async with (
        running_manager(await SqliteEngine.open(path)) as first,
        running_manager(await SqliteEngine.open(path)) as second,
        opened(first, second) as engine,
    ):
        for n in range(6):
            await expect(engine, submit(f"k{n}"), Created)
            for manager in engine.peers.managers:
                manager.tie_break = 1 - manager.tie_break
            await engine.peers.probe_all()
            assert [manager.state for manager in managers_of(engine)] == ["reached", "reached"]
            assert engine.info.generation == n + 2  # the first commit stored the settings


async def test_an_answer_that_overtakes_a_hello_refuses_no_manager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hello says how many commits there were before those that the answer shows."""
    async with running_manager(await SqliteEngine.open(str(tmp_path / "onejob.db"))) as url, opened(url) as engine:
        await expect(engine, submit(), Created)
        known, decode = engine.peers.generation, codec.decode_struct

        def decode_late(answer: bytes, type: Any) -> Any:
            hello = decode(answer, type)
            engine.peers.note_generation(known + 1)
            return hello

        monkeypatch.setattr(peers, "decode_struct", decode_late)
        await engine.peers.probe_all()
        assert [manager.state for manager in managers_of(engine)] == ["reached"]
        assert engine.info.generation == known + 1


@pytest.mark.parametrize("older", [peers, manager_ledger], ids=["gate", "manager"])
async def test_version_1_of_the_wire_is_refused_by_name(older: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands do not prove the settings of the ledger."""
    monkeypatch.setattr(older, "WIRE_VERSION", 1)
    monkeypatch.setattr(older, "WIRE_VERSION_OLDEST", 1)
    async with running_manager(MemoryEngine()) as url:
        with pytest.raises(StoreRefused, match=r"speaks version [12] of the wire, and the gate version [12]; upgrade"):
            await open_remote(url)


async def test_a_manager_of_lower_durability_is_refused_by_name() -> None:
    store = SharedMemory()
    weaker, stronger = store.open(), store.open()
    stronger.info = replace(stronger.info, durability=Durability.QUORUM)
    async with running_manager(weaker) as first, running_manager(stronger) as second:
        with pytest.raises(StoreRefused, match="durability is"):
            await open_remote(f"{first},{second}")


async def test_managers_with_different_settings_are_refused_by_name() -> None:
    store = SharedMemory()
    settings = GateSettings(rate_burst=7)
    async with running_manager(store.open()) as first, running_manager(store.open(), settings=settings) as second:
        with pytest.raises(StoreRefused, match="rate_burst"):
            await open_remote(f"{first},{second}")


async def test_without_a_manager_it_cannot_be_opened() -> None:
    with pytest.raises(Unavailable, match="no manager can be reached"):
        await open_remote("http://127.0.0.1:1")


@pytest.mark.parametrize(
    "url",
    ["http://", "http://a,a", "http://a/path", "http://a,https://b", "http://a:x", "http://a?ca=x", "https://a?x=y"],
)
async def test_a_malformed_url_is_refused(url: str) -> None:
    with pytest.raises(Invalid):
        await RemoteEngine.open(url)


async def test_a_lost_reply_leaves_the_outcome_unknown_and_the_repetition_is_created() -> None:
    async with two_managers() as (relay, second), opened(relay.url, second) as engine:
        relay.cut_answer = answers_to("/execute")
        command = submit()
        with pytest.raises(Unknown):
            await engine.execute([command])
        created = await expect(engine, command, Created)
        assert created.job.id == command.job_id
        assert len(await list_facts(engine, Kind.JOB)) == 1


async def test_the_batcher_repeats_at_the_next_manager() -> None:
    async with two_managers() as (relay, second), opened(relay.url, second) as engine:
        batcher = Batcher(engine)
        relay.cut_answer = answers_to("/execute")
        replies = await batcher.execute([submit(f"k{n}") for n in range(20)])
        assert all(isinstance(reply, Created) for reply in replies)
        assert len(await list_facts(engine, Kind.JOB)) == 20


@pytest.mark.parametrize("path", ["/hello", "/scan", "/barrier"])
async def test_whatever_only_reads_is_asked_again_at_the_next_manager(path: str) -> None:
    async with two_managers() as (relay, second), opened(relay.url, second) as engine:
        await expect(engine, submit(), Created)
        relay.drop_connections()
        await asyncio.sleep(0.02)
        relay.cut_answer = answers_to(path)
        assert len((await engine.scan(ListJobs(tenant=TENANT))).items) == 1
        await engine.barrier(TENANT)
        await expect(engine, LookUpKey(tenant=TENANT, record_id=key_id()), Found)


async def test_a_lost_reply_to_a_read_is_no_failure() -> None:
    async with two_managers() as (relay, second), opened(relay.url, second) as engine:
        await expect(engine, submit(), Created)
        relay.cut_answer = answers_to("/execute")
        await expect(engine, LookUpKey(tenant=TENANT, record_id=key_id()), Found)


async def test_a_frozen_manager_is_left_and_its_late_copy_makes_no_second_job() -> None:
    async with two_managers() as (relay, second), opened(relay.url, second) as engine:
        batcher = Batcher(engine)
        await batcher.execute([submit("before")])
        relay.freeze()
        begin = asyncio.get_running_loop().time()
        (reply,) = await batcher.execute([submit()])
        assert isinstance(reply, Created)
        assert asyncio.get_running_loop().time() - begin < 5
        sent = len(relay.requests)
        assert sent
        relay.wake()
        await asyncio.sleep(0.1)
        assert len(await list_facts(engine, Kind.JOB)) == 2


async def test_a_late_copy_of_a_limit_undoes_no_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first copy waits in front of a frozen manager, while the second is executed and another limit is set."""
    monkeypatch.setattr("onejob.engines.remote.LATE_MS_MAX", 600)
    async with two_managers() as (relay, second), opened(relay.url, second) as engine:
        batcher = Batcher(engine)
        relay.freeze()
        (reply,) = await batcher.execute([set_limit(1)])
        assert isinstance(reply, UsageFound)
        await batcher.execute([set_limit(2)])
        relay.wake()
        await asyncio.sleep(0.1)
        for key in ("a", "b"):
            await expect(engine, submit_counted(key), Created)
        await expect(engine, submit_counted("c"), Refused)


async def test_a_slow_manager_is_not_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_server, "KEEPALIVE_SECONDS", 0.1)

    class Slow(MemoryEngine):
        async def execute(
            self, commands: Sequence[Command[Any]], /, *, on_timeout: OnTimeout | None = None
        ) -> Sequence[AnyReply]:
            if any(command.writes for command in commands):
                await asyncio.sleep(4 * SILENCE_SECONDS)
            return await super().execute(commands)

    async with running_manager(Slow()) as url, opened(url) as engine:
        await expect(engine, submit(), Created)
        await expect(engine, submit("next"), Created)


async def test_when_its_clock_is_set_forward_commands_without_an_echo_are_still_executed() -> None:
    clock = FakeClock()
    async with running_manager(MemoryEngine(clock)) as url, opened(url) as engine:
        clock.advance(86_400)
        await expect(engine, set_limit(1), UsageFound)


async def test_a_manager_that_comes_back_is_asked_again() -> None:
    async with two_managers() as (relay, second), opened(relay.url, second) as engine:
        relay.cut_answer = lambda request: True
        await expect(engine, LookUpKey(tenant=TENANT, record_id=key_id()), object)  # type: ignore[type-var]
        assert [one.state for one in managers_of(engine)] == ["unreachable", "reached"]
        relay.cut_answer = lambda request: False
        await engine.peers.probe_all()
        assert [one.state for one in managers_of(engine)] == ["reached", "reached"]


async def test_a_settled_key_is_heard_of() -> None:
    async with running_manager(MemoryEngine()) as url, opened(url) as engine, opened(url) as other:
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        engine.subscribe(heard.put_nowait)
        engine.subscribe(heard.put_nowait)
        await asyncio.sleep(0.1)
        held = await expect(other, reserve(), KeyHeld)
        await expect(other, settle(held), KeySettled)
        assert await asyncio.wait_for(heard.get(), 60) == key_id()


def open_older_manager(engine: Engine) -> Any:
    return running_manager(engine, codec=OLDER_CODEC)


async def test_what_an_older_manager_does_not_know_goes_to_a_newer_one_and_the_rest_of_its_batch_is_done() -> None:
    store = SharedMemory()
    async with (
        open_older_manager(store.open()) as older,
        running_manager(store.open()) as newer,
        opened(older, newer) as engine,
    ):
        plain, with_callback = submit("a"), submit("b", callback="http://example.com/")
        replies = await engine.execute([plain, with_callback])
        assert [type(reply) for reply in replies] == [Created, Created]
        jobs = {job.id for job in await list_facts(engine, Kind.JOB)}
        assert len(jobs) == 3, "the callback is a job too"
        await expect(engine, Cancel(tenant=TENANT, job_id=plain.job_id, actor=ACTOR), Cancelled)


async def test_what_no_manager_knows_is_refused_as_retryable_and_not_executed() -> None:
    store = SharedMemory()
    async with open_older_manager(store.open()) as older, opened(older) as engine:
        plain, with_callback = submit("a"), submit("b", callback="http://example.com/")
        created, refused = await engine.execute([plain, with_callback])
        assert isinstance(created, Created)
        assert isinstance(refused, Defect)
        assert refused.retryable
        assert len(await list_facts(engine, Kind.JOB)) == 1


async def test_what_was_done_is_told_although_the_manager_that_knows_the_rest_is_lost() -> None:
    store = SharedMemory()
    async with (
        open_older_manager(store.open()) as older,
        running_manager(store.open()) as newer,
        running_relay(newer) as relay,
        opened(older, relay.url) as engine,
    ):
        plain, with_callback = submit("a"), submit("b", callback="http://example.com/")
        relay.cut_answer = answers_to("/execute")
        with pytest.raises(PartlyDone) as failed:
            await engine.execute([plain, with_callback])
        created, unknown = failed.value.results
        assert isinstance(created, Created)
        assert isinstance(unknown, Unknown)
        relay.cut_answer = lambda request: True
        created, refused = await engine.execute([plain, submit("c", callback="http://example.com/")])
        assert isinstance(created, Created)
        assert isinstance(refused, Defect)
        assert refused.retryable


async def test_one_command_that_fails_alone_does_not_fail_its_batch() -> None:
    class Locked(MemoryEngine):
        async def execute(
            self, commands: Sequence[Command[Any]], /, *, on_timeout: OnTimeout | None = None
        ) -> Sequence[AnyReply]:
            replies = list(await super().execute([command for command in commands if not _is_locked(command)]))
            if len(replies) == len(commands):
                return replies
            left = iter(replies)
            results = [Unavailable("locked") if _is_locked(command) else next(left) for command in commands]
            raise PartlyDone("some", results)

    async with running_manager(Locked()) as url, opened(url) as engine:
        with pytest.raises(PartlyDone) as failed:
            await engine.execute([submit("a"), submit("locked")])
        created, locked = failed.value.results
        assert isinstance(created, Created)
        assert isinstance(locked, Unavailable)


def _is_locked(command: Command[Any]) -> bool:
    return getattr(command, "key", "") == "locked"


async def test_a_policy_with_an_expected_version_has_an_echo_and_one_without_has_a_deadline() -> None:
    async with running_manager(MemoryEngine()) as url, running_relay(url) as relay, opened(relay.url) as engine:
        await engine.execute([set_policy(expected_version=0), set_policy("other")])
        sent = msgspec.msgpack.decode(relay.requests[-1].partition(b"\r\n\r\n")[2])
        assert ["not_after" in command for command in sent] == [False, True]
