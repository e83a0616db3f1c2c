"""The PostgreSQL engine: locks, the fast paths, the server's clock, migrations, the URL and poolers."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from onejob.clock import FakeClock, SystemClock
from onejob.conformance.commands import FactsRead, IncrementCounter, WriteFacts, read_facts, write_facts
from onejob.conformance.samples import (
    TENANT,
    a_policy,
    a_record,
    a_usage,
    key_id,
    reserve,
    settle,
    submit,
)  # fmt: skip
from onejob.conformance.world import dump_store, expect, list_facts
from onejob.core.errors import Invalid
from onejob.core.facts import Kind
from onejob.core.lookup import LookUpJob, LookUpKey
from onejob.core.maintenance import Expire, Purge
from onejob.core.replies import Created, Defect, Found, KeyHeld, KeySettled, Maintained, Missing, Replayed
from onejob.engines import open_engine
from onejob.engines import postgres as module
from onejob.engines.postgres import PostgresEngine, parts, schema, store, transaction
from onejob.engines.postgres.clock import ServerClock
from onejob.engines.postgres.connection import Connector
from onejob.engines.postgres.url import parse_postgres_url
from onejob.engines.sql import load_migrations
from onejob.errors import StoreRefused, Unavailable
from onejob.ids import new_job_id
from tests.support.postgres_server import Server, SharedDatabase, StoreClock

DAY_MS = 86_400_000


@pytest.fixture
async def engine(postgres_url: str) -> AsyncIterator[PostgresEngine]:
    engine = await PostgresEngine.open(postgres_url)
    yield engine
    await engine.aclose()


@pytest.fixture
async def other(postgres_url: str) -> AsyncIterator[PostgresEngine]:
    engine = await PostgresEngine.open(postgres_url)
    yield engine
    await engine.aclose()


@pytest.fixture
async def db(postgres_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def test_overlapping_batches_of_two_engines_never_deadlock(
    engine: PostgresEngine, other: PostgresEngine, db: Any
) -> None:
    """Keys, users and policies at random, in any order, from two engines at once."""
    rng = random.Random(5)
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    before = await db.fetchval(deadlocks)

    def command() -> Any:
        match rng.randrange(8):
            case 0:
                return IncrementCounter(tenant=TENANT, name=f"p{rng.randrange(3)}")
            case 1:
                return Purge(tenant=TENANT, record_id=key_id(f"k{rng.randrange(60)}"))
            case 2:
                return reserve(f"k{rng.randrange(60)}", lease_ms=1)
            case 3:
                return Expire(tenant=TENANT, record_id=key_id(f"k{rng.randrange(60)}"))
        return submit(f"k{rng.randrange(60)}")

    async def caller(its_engine: PostgresEngine) -> None:
        for _ in range(12):
            replies = await its_engine.execute([command() for _ in range(rng.randint(1, 30))])
            assert not [reply for reply in replies if isinstance(reply, Defect)]

    await asyncio.gather(*(caller(its_engine) for its_engine in (engine, other) for _ in range(4)))
    jobs = [job.key for job in await list_facts(engine, Kind.JOB) if job.state == "pending"]
    records = {record.key for record in await list_facts(engine, Kind.RECORD)}
    assert records <= {f"k{n}" for n in range(60)}
    assert jobs
    assert await db.fetchval(deadlocks) == before


# Each has its own form of the statement: one row per table, a few rows written out, many rows as arrays.
SIZES = pytest.mark.parametrize("size", [1, 3, 50])


@SIZES
async def test_new_keys_take_one_statement(
    postgres_url: str, store_clock: StoreClock, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    engine = await PostgresEngine.open(postgres_url, clock=store_clock)
    await expect(engine, submit("first"), Created)
    monkeypatch.setattr(store.PostgresStore, "_change_fast", forbidden)
    replies = await engine.execute([submit(f"k{n}") for n in range(size)])
    assert all(isinstance(reply, Created) for reply in replies)
    assert len(await list_facts(engine, Kind.JOB)) == size + 1
    await engine.aclose()


@SIZES
async def test_a_fast_insert_stores_the_same_as_the_locked_path(
    postgres_url: str,
    postgres_tables: SharedDatabase,
    store_clock: StoreClock,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
) -> None:
    first, *commands = [submit(f"k{n}") for n in range(size + 1)]
    commands[0] = replace(commands[0], policy_id=a_policy("limits").id)  # the statement verifies its absence

    async def never_applies(*_: Any) -> None:
        return None

    async def run(disabled: str, replacement: Any) -> Any:
        engine = await PostgresEngine.open(postgres_url, clock=store_clock)
        try:
            await expect(engine, first, Created)
            with monkeypatch.context() as patch:
                patch.setattr(store.PostgresStore, "_change_fast", never_applies)
                patch.setattr(store.PostgresStore, disabled, replacement)
                replies = await engine.execute(commands)
            return replies, await dump_store(engine)
        finally:
            await engine.aclose()
            postgres_tables.empty()

    fast = await run("_execute_locked", forbidden)
    assert fast == await run("_insert_fast", never_applies)
    assert [type(reply) for reply in fast[0]] == [Created] * size


@SIZES
async def test_columns_that_are_constants_have_the_values_that_would_be_sent(
    postgres_url: str,
    postgres_tables: SharedDatabase,
    store_clock: StoreClock,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
) -> None:
    """New records and jobs are stored without the columns that nearly always have their defaults."""
    commands = [replace(submit(f"k{n}"), cost=n % 2) for n in range(1, size)]  # a job with a cost is sent whole
    commands = [submit("k"), *commands]

    async def run() -> Any:
        engine = await PostgresEngine.open(postgres_url, clock=store_clock)
        try:
            await expect(engine, submit("first", job_id=bytes(16)), Created)
            for chunk in (commands[:1], commands[1:]):
                if chunk:
                    assert {type(reply) for reply in await engine.execute(chunk)} == {Created}
            return await dump_store(engine)
        finally:
            await engine.aclose()
            postgres_tables.empty()

    without = await run()
    monkeypatch.setattr(parts, "new_fact_rows", lambda *_: None)
    assert without == await run()


async def test_a_fast_read_replies_the_same_as_a_snapshot(
    postgres_url: str, store_clock: StoreClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await PostgresEngine.open(postgres_url, clock=store_clock)
    created = await expect(engine, submit(), Created)
    commands = [LookUpJob(tenant=TENANT, job_id=id) for id in (created.job.id, new_job_id())]
    await engine.execute(commands)  # connects
    with monkeypatch.context() as patch:
        patch.setattr(Connector, "begin_sql", forbidden)
        fast = await engine.execute(commands)
    monkeypatch.setattr(store.PostgresStore, "_read_fast", forbidden)
    monkeypatch.setattr(store, "_is_single_kind", lambda _: False)
    assert fast == await engine.execute(commands)
    assert [type(reply) for reply in fast] == [Found, Missing]
    await engine.aclose()


def forbidden(*_: Any, **__: Any) -> Any:
    raise AssertionError("the other path was taken")


async def test_a_batch_with_a_known_key_is_loaded_as_a_whole(engine: PostgresEngine, other: PostgresEngine) -> None:
    await expect(engine, submit("known"), Created)
    await expect(other, submit("first"), Created)
    replies = await other.execute([submit("a"), submit("known"), submit("z")])
    assert [type(reply) for reply in replies] == [Created, Replayed, Created]


async def test_a_batch_of_mixed_commands_is_decided_on_stored_facts(engine: PostgresEngine) -> None:
    """A command that changes nothing replies for the facts that exist, not for an assumed empty store."""
    created = await expect(engine, submit(), Created)
    replies = await engine.execute(
        [
            submit("new"),
            Purge(tenant=TENANT, record_id=key_id()),
            LookUpKey(tenant=TENANT, record_id=key_id()),
        ]
    )
    assert [type(reply) for reply in replies] == [Created, Maintained, Missing]
    assert isinstance(replies[1], Maintained)
    assert replies[1].changed
    assert created.job.id not in [job.id for job in await list_facts(engine, Kind.JOB)]


async def test_a_clock_that_is_a_day_off_changes_nothing(postgres_url: str) -> None:
    """The clock of the process is wrong by a day, forwards or backwards, and runs at another speed."""
    right = await PostgresEngine.open(postgres_url)
    wrong_clocks = [FakeClock(wall_ms=SystemClock().wall_ms() + sign * DAY_MS) for sign in (1, -1)]
    for n, clock in enumerate(wrong_clocks):
        wrong = await PostgresEngine.open(postgres_url, clock=clock)
        for turn in range(5):
            before = await expect(right, read_facts(a_record("now")), FactsRead)
            created = await expect(wrong, submit(f"{n}.{turn}"), Created)
            after = await expect(right, read_facts(a_record("now")), FactsRead)
            assert before.at <= created.at <= after.at
            clock.advance(3600)
        await wrong.aclose()
    await right.aclose()


async def test_no_reply_has_a_timestamp_before_an_earlier_reply(
    engine: PostgresEngine, other: PostgresEngine, db: Any
) -> None:
    """Whichever path a batch takes, timestamps of replies increase and follow the server's clock."""
    last = 0.0
    for n in range(120):
        one = (engine, other)[n % 2]
        reply: Any
        if n % 3:
            reply = await expect(one, submit(f"k{n}"), Created)
        else:
            reply = await expect(one, write_facts(a_policy(f"p{n}")), FactsRead)
        now = await db.fetchval("SELECT onejob_now()")
        assert last - 1 < reply.at <= now
        last = now


@SIZES
async def test_a_batch_with_a_future_timestamp_is_acknowledged_when_it_has_passed(
    engine: PostgresEngine, db: Any, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    await expect(engine, submit("first"), Created)
    latest = ServerClock.latest_ms
    monkeypatch.setattr(ServerClock, "latest_ms", lambda clock: (latest(clock) or 0) + 30)
    before = await db.fetchval("SELECT onejob_now()")
    reply, *_ = await engine.execute([submit(f"k{n}") for n in range(size)])
    assert isinstance(reply, Created)
    assert int(before) + 30 <= reply.at <= await db.fetchval("SELECT onejob_now()")


@SIZES
async def test_a_batch_whose_optimistic_insert_conflicts_is_decided_again(
    engine: PostgresEngine, other: PostgresEngine, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """It was decided as if there were no policy."""
    loaded: list[int] = []
    change = store.PostgresStore._change_fast

    async def recorded(self: store.PostgresStore, connection: Any, commands: Any, *rest: Any) -> Any:
        loaded.append(len(commands))
        return await change(self, connection, commands, *rest)

    monkeypatch.setattr(store.PostgresStore, "_change_fast", recorded)
    await expect(engine, submit("first"), Created)
    await expect(other, write_facts(a_policy()), FactsRead)
    policy = a_policy().id
    loaded.clear()
    replies = await engine.execute([replace(submit(f"k{n}"), policy_id=policy) for n in range(size)])
    assert [type(reply) for reply in replies] == [Created] * size
    assert loaded == [size]


@SIZES
async def test_a_batch_that_waited_for_a_lock_gets_a_new_timestamp(engine: PostgresEngine, db: Any, size: int) -> None:
    """It got its timestamp before it was sent, and then waited for a deletion of the same key."""
    await expect(engine, submit("warm"), Created)
    old = a_record(changed_at=1, expires_at=1)
    await expect(engine, write_facts(old), FactsRead)
    await expect(engine, submit("warm again"), Created)
    await db.execute("BEGIN")
    await db.execute("DELETE FROM record WHERE id = $1", old.id)
    call = asyncio.create_task(engine.execute([submit(), *(submit(f"k{n}") for n in range(size - 1))]))
    await asyncio.sleep(0.1)
    deleted_at = await db.fetchval("SELECT onejob_now()")
    await db.execute("COMMIT")
    reply, *_ = await call
    assert isinstance(reply, Created)
    assert reply.at >= int(deleted_at)


async def test_a_delete_waits_until_no_earlier_timestamp_is_possible(engine: PostgresEngine, db: Any) -> None:
    await expect(engine, write_facts(a_record(changed_at=1, expires_at=1)), FactsRead)
    expired = await expect(engine, Expire(tenant=TENANT, record_id=key_id()), Maintained)
    assert expired.changed
    assert await db.fetchval("SELECT onejob_now()") >= expired.at + transaction.STAMP_LAG_MS_MAX


async def test_engines_that_open_an_empty_database_at_once_create_one_schema(postgres: Server) -> None:
    url = postgres.database()
    engines = await asyncio.gather(*(PostgresEngine.open(url) for _ in range(4)))
    assert {type(await expect(engine, submit(f"k{n}"), Created)) for n, engine in enumerate(engines)} == {Created}
    await asyncio.gather(*(engine.aclose() for engine in engines))
    assert await PostgresEngine.migrate(url) == (schema.known_schema_version(), schema.known_schema_version())


async def test_a_schema_from_before_the_first_release_is_refused(postgres: Server) -> None:
    url = postgres.database()
    await PostgresEngine.migrate(url)
    db = await asyncpg.connect(url)
    await db.execute("ALTER TABLE usage RENAME TO tally; INSERT INTO onejob_schema (version) VALUES (99)")
    await db.close()
    with pytest.raises(StoreRefused, match=r"before the first release \(`tally`\).*choose another schema"):
        await PostgresEngine.open(url)


async def test_a_later_migration_is_applied_once(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    url = postgres.database()
    known = schema.known_schema_version()
    assert await PostgresEngine.migrate(url) == (0, known)
    steps = [*load_migrations(schema.__package__), "CREATE TABLE later (id integer)"]
    monkeypatch.setattr(schema, "load_migrations", lambda _: steps)
    assert await PostgresEngine.migrate(url) == (known, known + 1)
    assert await PostgresEngine.migrate(url) == (known + 1, known + 1)
    monkeypatch.setattr(schema, "load_migrations", lambda _: steps[:-1])
    with pytest.raises(StoreRefused, match=f"schema {known + 1}"):
        await PostgresEngine.open(url)


async def test_a_newer_schema_is_refused(postgres: Server) -> None:
    url = postgres.database()
    assert await PostgresEngine.migrate(url) == (0, schema.known_schema_version())
    db = await asyncpg.connect(url)
    await db.execute("INSERT INTO onejob_schema (version) VALUES (99)")
    await db.close()
    with pytest.raises(StoreRefused, match="schema 99"):
        await PostgresEngine.open(url)


async def test_tables_that_are_gone_are_not_created_again_by_a_process_that_has_served_them(postgres: Server) -> None:
    url = f"{postgres.database()}?schema=onejob"
    engine = await PostgresEngine.open(url)
    await expect(engine, submit(), Created)
    db = await asyncpg.connect(url.partition("?")[0])
    await db.execute("DROP SCHEMA onejob CASCADE")
    for match in ("does not exist", *["has no tables any more.*restart"] * 3):
        with pytest.raises(StoreRefused, match=match):
            await engine.execute([submit()])
    assert not await db.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = 'onejob'")

    restarted = await PostgresEngine.open(url)
    await expect(restarted, submit("other"), Created)
    assert restarted.info.ledger_id != engine.info.ledger_id
    for command in (submit(), LookUpKey(tenant=TENANT, record_id=key_id())) * 2:
        with pytest.raises(StoreRefused, match=r"holds another ledger .* restart"):
            await engine.execute([command])
    await restarted.aclose()
    await engine.aclose()
    await db.close()


async def test_tables_are_not_created_where_migrations_are_switched_off(postgres: Server) -> None:
    url = postgres.database()
    with pytest.raises(StoreRefused, match="onejob migrate"):
        await PostgresEngine.open(f"{url}?migrate=off")
    await PostgresEngine.migrate(f"{url}?migrate=off")
    engine = await PostgresEngine.open(f"{url}?migrate=off")
    await expect(engine, submit(), Created)
    await engine.aclose()


async def test_another_programs_tables_are_left_alone(postgres: Server) -> None:
    url = postgres.database()
    db = await asyncpg.connect(url)
    await db.execute("CREATE TABLE job (id int)")
    with pytest.raises(StoreRefused, match="schema="):
        await PostgresEngine.open(url)
    engine = await PostgresEngine.open(f"{url}?schema=onejob")
    await expect(engine, submit(), Created)
    assert await db.fetchval("SELECT count(*) FROM onejob.idempotency_keys") == 1
    assert await db.fetchval("SELECT count(*) FROM job") == 0
    await engine.aclose()
    await db.close()


async def test_an_ordinary_role_needs_no_more_than_its_tables(postgres: Server) -> None:
    """The owner creates the tables; the service reads and writes them, and has no other privilege."""
    url = postgres.database()
    await PostgresEngine.migrate(url)
    db = await asyncpg.connect(url)
    await db.execute(
        "CREATE ROLE service LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO service"
    )
    engine = await PostgresEngine.open(url.replace("postgres@", "service@") + "?migrate=off")
    held = await expect(engine, reserve(), KeyHeld)
    await expect(engine, settle(held), KeySettled)
    await expect(engine, submit(), Replayed)
    assert (await expect(engine, Purge(tenant=TENANT, record_id=key_id()), Maintained)).changed
    # It sees the writers of other roles.
    owner = await asyncpg.connect(url, server_settings={"application_name": "onejob"})
    await owner.execute("BEGIN; LOCK TABLE job IN ROW EXCLUSIVE MODE")
    barrier = asyncio.create_task(engine.barrier(TENANT))
    done, _ = await asyncio.wait([barrier], timeout=0.2)
    assert not done
    await owner.close()
    await asyncio.wait_for(barrier, 60)
    await db.execute("SELECT pg_logical_emit_message(true, 'onejob', '')")
    await engine.aclose()
    await db.execute("DROP OWNED BY service; DROP ROLE service")
    await db.close()


async def test_an_engine_works_behind_a_pooler(postgres_url: str) -> None:
    """No session state is used: every transaction may reach another server."""
    engine = await PostgresEngine.open(f"{postgres_url}?pooled=on")
    held = await expect(engine, reserve(), KeyHeld)
    await expect(engine, settle(held), KeySettled)
    replies = await engine.execute([submit(f"k{n}") for n in range(20)])
    assert all(isinstance(reply, Created) for reply in replies)
    replies = await engine.execute([submit(f"l{n}") for n in range(20)])
    assert all(isinstance(reply, Created) for reply in replies)
    await expect(engine, LookUpKey(tenant=TENANT, record_id=key_id()), Found)
    assert len(await list_facts(engine, Kind.JOB)) == 41
    for connector in engine._connectors:
        if connector._connection is not None:
            assert not connector._connection.is_in_transaction()
            assert await connector._connection.fetchval("SHOW lock_timeout") == "0"
    await engine.aclose()


async def test_the_first_host_that_accepts_writes_is_used(postgres_url: str, postgres: Server) -> None:
    dead = "127.0.0.1:1"
    url = postgres_url.replace("@127.0.0.1", f"@{dead},127.0.0.1")
    engine = await PostgresEngine.open(url)
    await expect(engine, submit(), Created)
    await engine.aclose()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://h/d?durability=best",
        "postgresql://h/d?schema=A;b",
        "postgresql://h/d?pooled=perhaps",
        "postgresql://h/d?direct=db:5432",
        "postgresql://h/d?pooled=on&direct=db/other",
        "postgresql://h/d?pooled=on&direct=me@db",
    ],
)
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(Invalid):
        parse_postgres_url(url)


def test_behind_a_pooler_the_listener_connects_to_the_servers() -> None:
    direct = parse_postgres_url("postgresql://h/d?sslmode=require")
    assert direct.listen_dsn == direct.dsn
    unlistened = parse_postgres_url("postgresql://h/d?pooled=on")
    assert (unlistened.listen_dsn, unlistened.dsn) == ("", "postgresql://h/d")
    pooled = parse_postgres_url("postgresql://me:secret@pool:6432/d?pooled=on&sslmode=require&direct=db1:5432,db2:5432")
    assert pooled.dsn == "postgresql://me:secret@pool:6432/d?sslmode=require"
    servers = "postgresql://me:secret@db1:5432,db2:5432/d?sslmode=require&target_session_attrs=read-write"
    assert pooled.listen_dsn == servers


def test_a_password_is_not_shown() -> None:
    parsed = parse_postgres_url("postgresql://me:secret@a:1,b:2/db?durability=quorum&sslmode=require")
    assert "secret" not in parsed.display_url
    assert parsed.display_url == "postgresql://a:1,b:2/db"
    assert parsed.dsn.endswith("?sslmode=require&target_session_attrs=read-write")


@pytest.mark.parametrize("wrong", ["postgresql://nobody_here@127.0.0.1:{port}/none", "postgresql://127.0.0.1:1/x"])
async def test_an_unreachable_server_is_reported(postgres: Server, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPEN_SECONDS", 0.3)
    with pytest.raises(Unavailable):
        await open_engine(wrong.format(port=postgres.port))


async def test_the_last_slot_is_never_denied_to_its_own_key(engine: PostgresEngine, other: PostgresEngine) -> None:
    """A fact that was absent is looked up again when all locks are held."""
    usage = a_usage(live=0)
    await expect(engine, write_facts(usage), FactsRead)
    for n in range(20):
        record = a_record(f"r{n}")
        both = write_facts(record, replace(usage, version=n + 2, live=n + 1))
        # It writes nothing, but takes the path of a command that writes.
        read = WriteFacts(tenant=TENANT, footprint_override=read_facts(record, usage).footprint)
        (written,), (reply,) = await asyncio.gather(engine.execute([both]), other.execute([read]))
        assert isinstance(written, FactsRead)
        assert isinstance(reply, FactsRead)
        assert reply.usage is not None
        # Both of one commit, or neither.
        assert (reply.record is not None) == (reply.usage.live == n + 1)
