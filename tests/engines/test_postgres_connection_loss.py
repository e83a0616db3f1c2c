"""Connections are cut, sessions killed and callers cancelled: every reply tells the truth about the commit."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import asyncpg
import pytest

from onejob.conformance.commands import FactsRead, write_facts
from onejob.conformance.samples import OTHER, TENANT, USER, a_policy, key_id, quota_ids, reserve, settle, submit
from onejob.conformance.world import expect, list_facts
from onejob.core.command import Command
from onejob.core.facts import Kind
from onejob.core.lookup import LookUpKey
from onejob.core.replies import Created, Found, KeyHeld, KeySettled, Replayed
from onejob.engine import ListJobs
from onejob.engines import batcher, postgres
from onejob.engines.postgres import PostgresEngine
from onejob.engines.postgres.clock import ServerClock
from onejob.engines.postgres.connection import NonCancellingConnection
from onejob.engines.postgres.store import PostgresStore
from onejob.errors import Unavailable, Unknown

from .postgres_proxy import CutRule, PostgresProxy, run_postgres_proxy


class ProxiedEngine(NamedTuple):
    engine: PostgresEngine  # through the proxy
    other: PostgresEngine  # direct
    proxy: PostgresProxy


@pytest.fixture
async def proxied(postgres_url: str) -> AsyncIterator[ProxiedEngine]:
    async with run_postgres_proxy(postgres_url) as (proxy, url):
        engine = await PostgresEngine.open(url)
        other = await PostgresEngine.open(postgres_url)
        await expect(engine, submit("first"), Created)  # now there is a sample of the server's clock
        yield ProxiedEngine(engine, other, proxy)
        proxy.cut_rule = None
        await engine.aclose()
        await other.aclose()


def cut_before_statement(word: bytes) -> CutRule:
    """Cut before a query that contains this word reaches the server."""
    return lambda side, letter, body: side == "query" and letter in b"QP" and word in body


def cut_before_answer_to(word: bytes) -> CutRule:
    """Cut before the reply to such a query arrives: the server has executed it."""
    is_sent = False

    def cut(side: str, letter: bytes, body: bytes) -> bool:
        nonlocal is_sent
        if side == "query" and letter in b"QP" and word in body:
            is_sent = True
        return is_sent and side == "answer" and letter == b"C"

    return cut


@pytest.fixture
def locked_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are loaded under locks."""

    async def never_applies(*_: Any) -> None:
        return None

    monkeypatch.setattr(PostgresStore, "_change_fast", never_applies)


@pytest.mark.usefixtures("locked_path")
async def test_a_connection_lost_before_the_commit_is_retried(proxied: ProxiedEngine) -> None:
    held = await expect(proxied.engine, reserve(), KeyHeld)
    for word in (b"BEGIN", b'FROM "public"."record"', b'FROM "public"."job"', b"UPDATE"):
        proxied.proxy.cut_rule = cut_before_statement(word)
        await proxied.engine.execute([settle(held)])
        again = await expect(proxied.engine, settle(held), KeySettled)
        assert again.record.job_id == held.job_id
    assert proxied.proxy.cuts >= 1


@pytest.mark.usefixtures("locked_path")
@pytest.mark.parametrize("stage", ["sent", "answered"])
async def test_a_connection_lost_around_the_commit_is_unknown_and_a_retry_finds_out(
    proxied: ProxiedEngine, stage: str
) -> None:
    held = await expect(proxied.engine, reserve(), KeyHeld)
    word = b"COMMIT"
    proxied.proxy.cut_rule = cut_before_statement(word) if stage == "sent" else cut_before_answer_to(word)
    with pytest.raises(Unknown):
        await proxied.engine.execute([settle(held)])
    assert proxied.proxy.cuts == 1
    found = await expect(proxied.other, LookUpKey(tenant=TENANT, record_id=key_id()), Found)
    assert found.record is not None
    assert (found.record.lease_until == 0) == (stage == "answered")
    assert (await expect(proxied.engine, settle(held), KeySettled)).record.lease_until == 0


@pytest.mark.parametrize("stage", ["sent", "answered"])
async def test_a_connection_lost_around_an_insert_is_unknown_and_a_retry_finds_out(
    proxied: ProxiedEngine, stage: str
) -> None:
    await expect(proxied.engine, submit("warm"), Created)
    command = submit("new")

    def bind(side: str, letter: bytes, body: bytes) -> bool:
        return side == "query" and letter == b"B" and b"new" in body

    bound = False

    def answer(side: str, letter: bytes, body: bytes) -> bool:
        nonlocal bound
        bound = bound or bind(side, letter, body)
        return bound and side == "answer" and letter == b"C"

    proxied.proxy.cut_rule = bind if stage == "sent" else answer
    with pytest.raises(Unknown):
        await proxied.engine.execute([command])
    assert proxied.proxy.cuts == 1
    jobs = [job for job in await list_facts(proxied.other, Kind.JOB) if job.key == "new"]
    assert [job.id for job in jobs] == ([command.job_id] if stage == "answered" else [])
    # A command recognizes its own job: the reply is Created, not Replayed.
    created = await expect(proxied.engine, command, Created)
    assert created.job.id == command.job_id
    assert (await expect(proxied.other, submit("new"), Replayed)).job == created.job


class ChangeStages:
    """Cuts the connection at a stage of a change that is loaded without locks and stored in one statement.

    A change of what the process has stored last is not loaded.
    """

    def __init__(self, stage: str, *, is_loaded: bool) -> None:
        self._stage = stage
        self._statements = 0 if is_loaded else 1

    def __call__(self, side: str, letter: bytes, body: bytes) -> bool:
        self._statements += side == "query" and letter == b"B"
        match self._stage:
            case "loading":
                return self._statements == 1
            case "loaded":
                return self._statements == 1 and side == "answer" and letter == b"Z"
            case "storing":
                return self._statements == 2
        return self._statements == 2 and side == "answer" and letter == b"C"


@pytest.mark.parametrize(
    ("stage", "is_loaded"),
    [("loading", True), ("loaded", True), ("storing", True), ("stored", True), ("storing", False), ("stored", False)],
)
async def test_a_connection_lost_during_a_change_is_repeated_or_unknown(
    proxied: ProxiedEngine, stage: str, is_loaded: bool
) -> None:
    holder = proxied.other if is_loaded else proxied.engine
    first, held = [await expect(holder, reserve(f"k{n}", job_id=b"", lease_ms=60_000), KeyHeld) for n in range(2)]
    await expect(proxied.engine, settle(first), KeySettled)  # now the statements are prepared
    proxied.proxy.cut_rule = ChangeStages(stage, is_loaded=is_loaded)
    if stage in ("loading", "loaded"):
        await expect(proxied.engine, settle(held), KeySettled)
    else:
        with pytest.raises(Unknown):
            await proxied.engine.execute([settle(held)])
    assert proxied.proxy.cuts == 1
    found = await expect(proxied.other, LookUpKey(tenant=TENANT, record_id=held.record_id), Found)
    assert found.record is not None
    assert (found.record.lease_until == 0) == (stage != "storing")
    assert (await expect(proxied.engine, settle(held), KeySettled)).record.lease_until == 0


async def test_a_connection_lost_while_reading_is_retried(proxied: ProxiedEngine) -> None:
    for _ in range(3):
        proxied.proxy.abort_all()
        await expect(proxied.engine, LookUpKey(tenant=TENANT, record_id=key_id("first")), Found)
        proxied.proxy.cut_rule = cut_before_statement(b"ORDER BY id DESC")
        page = await proxied.engine.scan(ListJobs(tenant=TENANT))
        assert len(page.items) == 1


async def test_a_server_that_stays_unreachable_is_unavailable_in_time(
    proxied: ProxiedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "RECONNECT_SECONDS", 0.3)
    proxied.proxy.refuses_connections = True
    proxied.proxy.abort_all()
    async with asyncio.timeout(15):
        while any(one._connection and not one._connection.is_closed() for one in proxied.engine._connectors):
            await asyncio.sleep(0.01)
    for command in (submit("new"), LookUpKey(tenant=TENANT, record_id=key_id("first"))):
        with pytest.raises(Unavailable):
            await proxied.engine.execute([command])
    with pytest.raises(Unavailable):
        await proxied.engine.scan(ListJobs(tenant=TENANT))
    proxied.proxy.refuses_connections = False
    await expect(proxied.engine, submit("new"), Created)


@pytest.mark.parametrize("kind", ["terminate", "kill"])
async def test_a_session_that_is_ended_at_any_time_loses_nothing(
    proxied: ProxiedEngine, postgres_url: str, kind: str
) -> None:
    """Sessions end while batches are in flight; callers that repeat get one job per key."""
    admin = await asyncpg.connect(postgres_url)
    stop = False
    failures = 0

    async def end_sessions() -> None:
        while not stop:
            await asyncio.sleep(0.2)
            await admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'onejob' "
                "AND pid <> pg_backend_pid() AND datname = current_database()"
            )

    async def submit_until_answered(n: int) -> Created:
        nonlocal failures
        command = submit(f"k{n}")
        for _ in range(50):
            try:
                return await expect(proxied.engine if n % 2 else proxied.other, command, Created)
            except (Unknown, Unavailable):
                failures += 1
        raise AssertionError("no answer")

    task = asyncio.create_task(end_sessions()) if kind == "terminate" else None
    try:
        for start in range(0, 240, 8):
            if kind == "kill":
                proxied.proxy.abort_all()
            await asyncio.gather(*(submit_until_answered(n) for n in range(start, start + 8)))
    finally:
        stop = True
        if task is not None:
            await task
        await admin.close()
    keys = [job.key for job in await list_facts(proxied.other, Kind.JOB)]
    assert len(keys) == len(set(keys)) == 241


async def test_a_cancelled_caller_cancels_no_statement(proxied: ProxiedEngine, postgres_url: str) -> None:
    """The statement waits for a lock while its caller is cancelled; it commits when the lock is free."""
    blocker = await asyncpg.connect(postgres_url)
    await blocker.execute("BEGIN; LOCK TABLE job IN ACCESS EXCLUSIVE MODE")
    call = asyncio.create_task(proxied.engine.execute([submit("cancelled")]))
    await wait_for_blocked_statement(blocker)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await blocker.execute("COMMIT")
    await blocker.close()
    async with asyncio.timeout(10):
        while not [job for job in await list_facts(proxied.other, Kind.JOB) if job.key == "cancelled"]:
            await asyncio.sleep(0.01)


async def test_the_driver_never_sends_a_cancel_request(postgres_url: str) -> None:
    """Not even when the waiting task is cancelled: the connection closes, and the statement goes on."""
    connection: Any = await asyncpg.connect(postgres_url, connection_class=NonCancellingConnection)
    watcher = await asyncpg.connect(postgres_url)
    slow = "WITH slept AS (SELECT pg_sleep(0.3)) INSERT INTO policy SELECT '\\x01', 't', 'n', '', 0, 1, 1 FROM slept"
    call = asyncio.create_task(connection.execute(slow))
    await asyncio.sleep(0.1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert connection.is_closed()
    async with asyncio.timeout(10):
        while not await watcher.fetchval("SELECT count(*) FROM policy"):
            await asyncio.sleep(0.02)
    await watcher.close()


async def test_closing_waits_for_a_running_commit(proxied: ProxiedEngine, postgres_url: str) -> None:
    blocker = await asyncpg.connect(postgres_url)
    await blocker.execute("BEGIN; LOCK TABLE job IN ACCESS EXCLUSIVE MODE")
    call = asyncio.create_task(proxied.engine.execute([submit("last")]))
    await wait_for_blocked_statement(blocker)
    closing = asyncio.create_task(proxied.engine.aclose())
    await asyncio.sleep(0.05)
    assert not closing.done()
    await blocker.execute("COMMIT")
    await blocker.close()
    await closing
    (reply,) = await call
    assert isinstance(reply, Created)


async def test_a_timed_out_caller_gets_unknown_if_a_commit_was_sent_and_else_unavailable(
    proxied: ProxiedEngine, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "ANSWER_SECONDS", 0.3)
    blocker = await asyncpg.connect(postgres_url)
    await blocker.execute("BEGIN; LOCK TABLE job IN ACCESS EXCLUSIVE MODE")
    # Sent in one statement that commits by itself: it may still commit.
    with pytest.raises(Unknown):
        await proxied.engine.execute([submit("sent")])
    # Its commit was not sent, and never will be.
    with pytest.raises(Unavailable):
        await proxied.engine.execute([write_facts(a_policy()), submit("first")])
    await blocker.execute("COMMIT")
    await blocker.close()
    monkeypatch.setattr(postgres, "ANSWER_SECONDS", 15)
    await expect(proxied.engine, submit("after"), Created)
    async with asyncio.timeout(10):
        while proxied.engine._watchdog:
            await asyncio.sleep(0.01)
    assert {job.key for job in await list_facts(proxied.other, Kind.JOB)} - {"sent"} == {"first", "after"}
    assert await list_facts(proxied.other, Kind.POLICY) == []
    await expect(proxied.engine, write_facts(a_policy()), FactsRead)


async def test_a_scan_whose_caller_timed_out_is_not_executed(
    proxied: ProxiedEngine, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "ANSWER_SECONDS", 0.3)
    statements: list[str] = []
    fetch = PostgresStore.fetch

    async def recorded(self: PostgresStore, connection: Any, sql: str, values: list[Any]) -> list[Any]:
        statements.append(sql)
        return await fetch(self, connection, sql, values)

    monkeypatch.setattr(PostgresStore, "fetch", recorded)
    blocker = await asyncpg.connect(postgres_url)
    await blocker.execute("BEGIN; LOCK TABLE job IN ACCESS EXCLUSIVE MODE")
    scans = [asyncio.create_task(list_facts(proxied.engine, Kind.JOB)) for _ in range(5)]
    results = await asyncio.gather(*scans, return_exceptions=True)
    assert {type(result) for result in results} == {Unavailable}
    await blocker.execute("COMMIT")
    await blocker.close()
    monkeypatch.setattr(postgres, "ANSWER_SECONDS", 15)
    await list_facts(proxied.engine, Kind.JOB)
    assert len(statements) == 2, "the one that was running, and the last one"


async def test_behind_a_batcher_a_timed_out_caller_is_answered_and_closing_ends(
    proxied: ProxiedEngine, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "ANSWER_SECONDS", 0.5)
    batching = batcher.Batcher(proxied.engine)
    blocker = await asyncpg.connect(postgres_url)
    await blocker.execute("BEGIN; LOCK TABLE job IN ACCESS EXCLUSIVE MODE")
    with pytest.raises(Unknown):
        await batching.execute([submit("sent")])
    async with asyncio.timeout(15):
        await batching.aclose()
    await blocker.execute("COMMIT")
    await blocker.close()


async def test_the_barrier_returns_when_writers_have_ended(proxied: ProxiedEngine, postgres_url: str) -> None:
    """Such a transaction is one statement of an engine, which does not announce whom it concerns."""
    await proxied.engine.barrier(TENANT)
    ours = {"application_name": "onejob"}
    before, after = [await asyncpg.connect(postgres_url, server_settings=ours) for _ in range(2)]
    write = "BEGIN; LOCK TABLE job IN ROW EXCLUSIVE MODE"
    await before.execute(write)
    barrier = asyncio.create_task(proxied.engine.barrier(TENANT))
    await asyncio.sleep(0.1)
    assert not barrier.done()
    await after.execute(write)  # it began after the barrier, which does not wait for it
    await before.execute("COMMIT")
    await asyncio.wait_for(barrier, 60)
    await before.close()
    await after.close()


@asynccontextmanager
async def hold_write_open(
    engine: PostgresEngine, commands: Sequence[Command[Any]], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[None]:
    """The commands are executed under locks, and wait in front of their commit."""
    commit, waiting, release = PostgresStore._commit, asyncio.Event(), asyncio.Event()

    async def held(self: PostgresStore, *arguments: Any) -> None:
        waiting.set()
        await release.wait()
        await commit(self, *arguments)

    async def never_applies(*_: Any) -> None:
        return None

    with monkeypatch.context() as patch:
        patch.setattr(PostgresStore, "_commit", held)
        patch.setattr(PostgresStore, "_insert_fast", never_applies)
        patch.setattr(PostgresStore, "_change_fast", never_applies)
        call = asyncio.create_task(engine.execute(commands))
        await asyncio.wait_for(waiting.wait(), 60)
    try:
        yield
    finally:
        release.set()
        await call


async def is_waiting(barrier: Awaitable[None]) -> bool:
    task = asyncio.ensure_future(barrier)
    done, _ = await asyncio.wait([task], timeout=0.3)
    if done:
        task.result()
    task.cancel()
    return not done


async def test_the_barrier_waits_only_for_the_tenant_and_the_user_that_it_names(
    proxied: ProxiedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    barrier = proxied.engine.barrier
    async with hold_write_open(proxied.other, [submit("new", **quota_ids(OTHER, USER), user=USER)], monkeypatch):
        assert not await is_waiting(barrier(TENANT))
        assert not await is_waiting(barrier(TENANT, USER))
        assert not await is_waiting(barrier(OTHER, "somebody"))
        assert await is_waiting(barrier(OTHER, USER))
        assert await is_waiting(barrier(OTHER))
    assert not await is_waiting(barrier(OTHER))
    # A command that names no user may concern any of its tenant.
    held = await expect(proxied.other, reserve("held", lease_ms=60_000), KeyHeld)
    async with hold_write_open(proxied.other, [settle(held)], monkeypatch):
        assert await is_waiting(barrier(TENANT, "somebody"))
        assert not await is_waiting(barrier(OTHER, "somebody"))


@pytest.mark.usefixtures("locked_path")
async def test_a_writer_that_has_loaded_its_limits_is_waited_for(
    proxied: ProxiedEngine, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has seen that there are none, and has stored nothing yet."""
    save, waiting, release = PostgresStore._save, asyncio.Event(), asyncio.Event()

    async def held(self: PostgresStore, *arguments: Any) -> None:
        waiting.set()
        await release.wait()
        await save(self, *arguments)

    monkeypatch.setattr(PostgresStore, "_save", held)
    monkeypatch.setattr(ServerClock, "latest_ms", lambda _: None)  # no fast path
    call = asyncio.create_task(proxied.other.execute([submit("new", **quota_ids(), user=USER)]))
    await asyncio.wait_for(waiting.wait(), 60)
    assert await is_waiting(proxied.engine.barrier(TENANT))
    assert await is_waiting(proxied.engine.barrier(TENANT, USER))
    release.set()
    await call
    assert not await is_waiting(proxied.engine.barrier(TENANT, USER))


async def test_the_barrier_waits_for_no_transaction_of_another_program(
    proxied: ProxiedEngine, postgres_url: str
) -> None:
    another = await asyncpg.connect(postgres_url)
    await another.execute("BEGIN; UPDATE job SET labels = labels")
    assert not await is_waiting(proxied.engine.barrier(TENANT))
    assert not await is_waiting(proxied.engine.barrier(TENANT, USER))
    await another.close()


async def test_behind_a_pooler_the_barrier_waits_for_whom_it_names(
    proxied: ProxiedEngine, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pooled = await PostgresEngine.open(f"{postgres_url}?pooled=on")
    async with hold_write_open(pooled, [submit("new", **quota_ids(), user=USER)], monkeypatch):
        assert await is_waiting(proxied.engine.barrier(TENANT, USER))
        assert not await is_waiting(proxied.engine.barrier(OTHER))
        assert not await is_waiting(proxied.engine.barrier(TENANT, "somebody"))
    await pooled.barrier(TENANT)
    await pooled.aclose()


async def wait_for_blocked_statement(connection: Any) -> None:
    async with asyncio.timeout(10):
        while not await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            await asyncio.sleep(0.01)
