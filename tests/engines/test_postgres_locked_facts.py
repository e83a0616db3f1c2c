"""Another transaction holds a fact: only the commands that need it fail, soon, and every other one is answered."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from onejob.conformance.commands import FactsRead, IncrementCounter, write_facts
from onejob.conformance.samples import TENANT, USER, a_usage, key_id, quota_ids, reserve, settle, submit
from onejob.conformance.world import expect, list_facts
from onejob.core.command import Command
from onejob.core.facts import Kind
from onejob.core.maintenance import Purge
from onejob.core.replies import AnyReply, Created, Defect, KeyHeld, KeySettled, Maintained, Replayed
from onejob.engines import batcher, postgres
from onejob.engines.batcher import Batcher
from onejob.engines.postgres import PostgresEngine, connection
from onejob.engines.postgres.store import PostgresStore
from onejob.errors import FactsLocked, PartlyDone, Unavailable

LOCK_TIMEOUT_SECONDS = 0.3
LOCKED_SECONDS_MAX = 7.0


@pytest.fixture
async def engine(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PostgresEngine]:
    monkeypatch.setitem(connection._SESSION_SETTINGS, "lock_timeout", f"{LOCK_TIMEOUT_SECONDS * 1000:.0f}ms")
    engine = await PostgresEngine.open(postgres_url)
    await expect(engine, submit("first"), Created)  # now there is a sample of the server's clock
    yield engine
    await engine.aclose()


@pytest.fixture
async def db(postgres_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def hold_key(engine: PostgresEngine, db: Any, key: str = "held") -> None:
    """Another transaction locks the record of a key that exists."""
    await expect(engine, submit(key, ttl_ms=60_000), Created)
    await db.execute("BEGIN")
    await db.execute("SELECT FROM record WHERE id = $1 FOR UPDATE", key_id(key))


async def hold_expired_key(engine: PostgresEngine, db: Any, key: str = "held") -> None:
    """The same for a key that has expired: a submission of it creates a job, and needs the lock."""
    await expect(engine, submit(key), Created)
    await db.execute("UPDATE record SET expires_at = 1 WHERE id = $1", key_id(key))
    await db.execute("BEGIN")
    await db.execute("SELECT FROM record WHERE id = $1 FOR UPDATE", key_id(key))


async def hold_new_key(engine: PostgresEngine, db: Any, key: str = "held") -> None:
    """Another transaction inserts the record of a key that does not exist."""
    await expect(engine, submit(key), Created)
    await db.execute("CREATE TEMP TABLE copied AS SELECT * FROM record WHERE key = 'held'")
    assert (await expect(engine, Purge(tenant=TENANT, record_id=key_id(key)), Maintained)).changed
    await db.execute("BEGIN; INSERT INTO record SELECT * FROM copied")


async def execute_each(engine: PostgresEngine, commands: Sequence[Command[Any]]) -> Sequence[AnyReply | Exception]:
    try:
        return await engine.execute(commands)
    except PartlyDone as error:
        return error.results


@pytest.mark.parametrize("hold", [hold_key, hold_new_key])
@pytest.mark.parametrize("size", [2, 9, 200])
async def test_a_key_that_another_transaction_holds_fails_alone(
    engine: PostgresEngine, db: Any, hold: Any, size: int
) -> None:
    await hold(engine, db)
    commands = [submit(f"k{n}") for n in range(size)]
    held = submit("held")
    commands.insert(size // 3, held)
    with pytest.raises(PartlyDone) as raised:
        await engine.execute(commands)
    failed = [
        command for command, result in zip(commands, raised.value.results, strict=True) if type(result) is not Created
    ]
    assert failed == [held]
    assert isinstance(raised.value.results[size // 3], FactsLocked)
    await db.execute("ROLLBACK")
    (again,) = await engine.execute([held])
    assert type(again) is (Replayed if hold is hold_key else Created)
    # Whatever was executed knows its echo.
    assert {type(reply) for reply in await engine.execute(commands[:3])} <= {Created, Replayed}
    jobs = [job.key for job in await list_facts(engine, Kind.JOB)]
    assert len(set(jobs)) == len(jobs)
    assert set(jobs) == {"first", "held", *(f"k{n}" for n in range(size))}


@pytest.mark.parametrize("size", [2, 9, 200])
async def test_a_command_whose_statement_times_out_fails_alone(
    postgres_url: str, db: Any, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection._SESSION_SETTINGS, "statement_timeout", "500ms")
    engine = await PostgresEngine.open(postgres_url)
    await expect(engine, submit("first"), Created)
    await db.execute(
        """
        CREATE FUNCTION sleep_for_slow_keys() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN IF NEW.key = ''slow'' THEN PERFORM pg_sleep(5); END IF; RETURN NEW; END';
        CREATE TRIGGER slow BEFORE INSERT ON record FOR EACH ROW EXECUTE FUNCTION sleep_for_slow_keys()
        """
    )
    commands = [submit(f"k{n}") for n in range(size)]
    slow = submit("slow")
    commands.insert(size // 3, slow)
    try:
        results = await execute_each(engine, commands)
    finally:
        await db.execute("DROP FUNCTION sleep_for_slow_keys CASCADE")
    failed = [command for command, result in zip(commands, results, strict=True) if type(result) is not Created]
    assert failed == [slow]
    assert isinstance(results[size // 3], FactsLocked)
    assert "a statement timed out" in str(results[size // 3])
    assert type((await engine.execute([slow]))[0]) is Created
    await engine.aclose()


async def test_a_key_that_was_held_a_moment_ago_does_not_delay_the_next_batch(engine: PostgresEngine, db: Any) -> None:
    await hold_expired_key(engine, db)
    with pytest.raises(FactsLocked):
        await engine.execute([submit("held")])
    statements: list[str] = []
    write = PostgresStore.write

    async def recorded(*arguments: Any) -> Any:
        statements.append("all at once")
        return await write(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PostgresStore, "write", recorded)
        results = await execute_each(engine, [submit("a"), submit("held"), submit("b"), submit("held")])
    assert [type(result) for result in results] == [Created, FactsLocked, Created, FactsLocked]
    assert not statements, "the batch does not wait for the lock together"
    await db.execute("ROLLBACK")
    assert [type(reply) for reply in await engine.execute([submit("held"), submit("c")])] == [Created, Created]
    assert not engine._locked_facts


async def test_a_known_key_is_answered_while_another_transaction_holds_it(engine: PostgresEngine, db: Any) -> None:
    await hold_key(engine, db)
    await expect(engine, submit("held"), Replayed)
    await db.execute("ROLLBACK")


async def test_a_locked_user_fails_alone(engine: PostgresEngine, db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One wait is enough for all commands that name the same fact."""
    await expect(engine, write_facts(a_usage(live=0)), FactsRead)
    await db.execute("BEGIN")
    await db.execute("SELECT FROM usage WHERE id = $1 FOR UPDATE", a_usage().id)
    users = [USER if n % 3 == 0 else f"other-{n}" for n in range(90)]
    commands = [submit(f"k{n}", **quota_ids(TENANT, user), user=user) for n, user in enumerate(users)]
    waits: list[int] = []
    write = PostgresStore.write_locked

    async def recorded(*arguments: Any, lock_timeout_ms: int = 0) -> Any:
        try:
            return await write(*arguments, lock_timeout_ms=lock_timeout_ms)
        except asyncpg.LockNotAvailableError:
            waits.append(lock_timeout_ms)
            raise

    monkeypatch.setattr(PostgresStore, "write_locked", recorded)
    results = await execute_each(engine, commands)
    await db.execute("ROLLBACK")
    assert {user for user, result in zip(users, results, strict=True) if isinstance(result, FactsLocked)} == {USER}
    assert {type(result) for result in results} == {Created, FactsLocked}
    assert waits.count(postgres.SINGLE_LOCK_TIMEOUT_MS) == 1


async def test_an_update_that_is_held_fails_alone(engine: PostgresEngine, db: Any) -> None:
    held = [await expect(engine, reserve(f"r{n}", lease_ms=60_000), KeyHeld) for n in range(5)]
    await db.execute("BEGIN")
    await db.execute("UPDATE record SET hits = hits WHERE key = 'r2'")
    results = await execute_each(engine, [settle(one) for one in held])
    await db.execute("ROLLBACK")
    assert [type(result) for result in results] == [KeySettled, KeySettled, FactsLocked, KeySettled, KeySettled]


async def test_a_command_that_cannot_be_stored_and_a_held_one_fail_alone(engine: PostgresEngine, db: Any) -> None:
    await hold_expired_key(engine, db)
    results = await execute_each(engine, [submit("a"), submit("b", actor="\x00"), submit("held"), submit("c")])
    await db.execute("ROLLBACK")
    assert [type(result) for result in results] == [Created, Defect, FactsLocked, Created]


async def test_a_store_that_is_locked_as_a_whole_is_unavailable_in_time(
    engine: PostgresEngine, db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "SPLIT_SECONDS_MAX", 0.3)
    await db.execute("BEGIN; LOCK TABLE record IN EXCLUSIVE MODE")
    async with asyncio.timeout(20):  # one after the other, 200 commands would wait for 40 s
        with pytest.raises(Unavailable) as raised:
            await engine.execute([submit(f"k{n}") for n in range(200)])
    assert not isinstance(raised.value, FactsLocked)
    await db.execute("ROLLBACK")
    assert {type(reply) for reply in await engine.execute([submit(f"k{n}") for n in range(200)])} == {Created}


async def test_commands_queued_behind_a_held_key_are_not_refused(
    engine: PostgresEngine, db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batcher, "STALL_SECONDS", 0.1)
    monkeypatch.setattr(engine.__class__, "info", replace(engine.info, write_lanes=1))
    await hold_expired_key(engine, db)
    batching = Batcher(engine)
    held = asyncio.create_task(batching.execute([submit("held")]))
    await asyncio.sleep(0.05)
    queued = [asyncio.create_task(batching.execute([submit(f"k{n}")])) for n in range(20)]
    with pytest.raises(FactsLocked):
        await held
    assert {type(reply) for (reply,) in await asyncio.gather(*queued)} == {Created}
    assert batching.last_error is None, "the store works"
    await db.execute("ROLLBACK")


async def test_an_engine_behind_a_pooler_splits_too(
    postgres_url: str, engine: PostgresEngine, db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_local = f"; SET LOCAL application_name = 'onejob'; SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS * 1000}ms'"
    monkeypatch.setattr(connection, "_SET_LOCAL", set_local)
    pooled = await PostgresEngine.open(f"{postgres_url}?pooled=on")
    await hold_key(engine, db)
    await expect(pooled, submit("second"), Created)
    results = await execute_each(pooled, [submit("a"), submit("held"), submit("b")])
    await db.execute("ROLLBACK")
    assert [type(result) for result in results] == [Created, FactsLocked, Created]
    await pooled.aclose()


async def is_free(engine: PostgresEngine, command: Command[Any]) -> bool:
    try:
        await engine.execute([command])
    except FactsLocked:
        return False
    return True


def is_stopped(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    return state == "T"


async def test_a_process_that_was_stopped_inside_a_transaction_loses_its_locks_and_begins_again(
    engine: PostgresEngine, db: Any, postgres_url: str
) -> None:
    counter = IncrementCounter(tenant=TENANT)
    await engine.execute([counter])
    stopped = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.engines.stopped_transaction", postgres_url,
        cwd=Path(__file__).parents[2], stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(60):
            while not is_stopped(stopped.pid):
                await asyncio.sleep(0.02)
        async with asyncio.timeout(LOCKED_SECONDS_MAX):
            while not await is_free(engine, counter):
                pass
        stopped.send_signal(signal.SIGCONT)
        assert await asyncio.wait_for(stopped.wait(), 60) == 0
        (last,) = await engine.execute([counter])
        assert isinstance(last, FactsRead)
        assert last.policy is not None
        assert last.policy.version == 4, "before, meanwhile, the one that was stopped, and now"
    finally:
        if stopped.returncode is None:
            stopped.kill()
            await stopped.wait()
