"""Isolation levels, waiting, limits that are set meanwhile, sessions that cannot keep the promise, and round trips."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

import onejob
from onejob.clock import SystemClock
from onejob.core.limits import Limits
from onejob.engines.postgres import callers_transaction
from onejob.engines.postgres.callers_transaction import CallersTransaction
from onejob.errors import FactsLocked, StoreRefused, SubmissionInProgress, SubmissionRefused, Unavailable
from onejob.ledger.parse import Submission
from onejob.transaction import InTransaction
from tests.engines.postgres_proxy import PostgresProxy, run_postgres_proxy
from tests.transaction.conftest import OpenDoor
from tests.transaction.doors import DOORS, ISOLATION_LEVELS, REPEATABLE_READ, SERIALIZABLE, Door, RollBack, transaction
from tests.transaction.test_inside import count, counts

FIXED = (REPEATABLE_READ, SERIALIZABLE)
SNAPSHOT = "SELECT 1 FROM orders"  # the snapshot of a transaction is taken with its first statement


def sqlstate(error: BaseException) -> str:
    """The state that the driver reports, wherever the driver or the framework keeps it."""
    for one in (error, getattr(error, "orig", None), error.__cause__):
        if state := getattr(one, "sqlstate", None):
            return str(state)
    return ""


async def begin_with_snapshot(door: Door, isolation: str) -> None:
    await door.begin(isolation)
    await door.execute(SNAPSHOT)


@pytest.mark.parametrize("isolation", ISOLATION_LEVELS)
async def test_every_isolation_level_creates_replays_and_rolls_back(
    door: Door, db: Any, queue: onejob.Ledger, isolation: str
) -> None:
    first = await queue.submit("a", 1, idempotency_key="known")
    async with transaction(door, isolation):
        assert (await door.call("submit", "a", 1, idempotency_key="new")).outcome == "created"
        assert (await door.call("submit", "a", 1, idempotency_key="known")).job_id == first.job_id
    async with transaction(door, isolation):
        await door.call("submit", "a", 1, idempotency_key="undone")
        raise RollBack
    assert sorted(await db.fetchval("SELECT array_agg(key) FROM job")) == ["known", "new"]


@pytest.mark.parametrize("isolation", FIXED)
async def test_a_key_from_after_the_snapshot_is_a_serialization_failure_and_then_replayed(
    door: Door, db: Any, queue: onejob.Ledger, isolation: str
) -> None:
    await begin_with_snapshot(door, isolation)
    first = await queue.submit("a", 1, idempotency_key="one")
    with pytest.raises(Exception, match="could not serialize") as raised:
        await door.call("submit", "a", 1, idempotency_key="one")
    assert sqlstate(raised.value) == "40001"
    await door.rollback()
    async with transaction(door, isolation):
        assert (await door.call("submit", "a", 1, idempotency_key="one")).job_id == first.job_id
    assert await count(db, "job") == 1


@pytest.mark.parametrize("isolation", FIXED)
@pytest.mark.parametrize("level", ["user", "tenant", "tenant of a counted user"])
async def test_a_limit_from_after_the_snapshot_is_a_serialization_failure(
    plain_door: Door, db: Any, queue: onejob.Ledger, isolation: str, level: str
) -> None:
    """The snapshot does not show the limit, so that an uncounted job would slip through."""
    if level == "tenant of a counted user":
        await queue.set_quota("local", Limits(jobs_per_day=5))
    await begin_with_snapshot(plain_door, isolation)
    if level == "user":
        await queue.set_quota("local", Limits(max_concurrent=0))
    else:
        await queue.admin.set_tenant_quota(onejob.TenantLimits(default=Limits(max_concurrent=0)))
    with pytest.raises(asyncpg.SerializationError):
        await plain_door.call("submit", "a", 1, idempotency_key="one")
    await plain_door.rollback()
    assert await count(db, "job") == 0


async def test_read_committed_sees_a_limit_that_was_set_after_its_first_statement(
    plain_door: Door, queue: onejob.Ledger
) -> None:
    async with transaction(plain_door):
        await plain_door.execute(SNAPSHOT)
        await queue.set_quota("local", Limits(max_concurrent=0))
        with pytest.raises(SubmissionRefused):
            await plain_door.call("submit", "a", 1, idempotency_key="one")


async def until_waiting(db: Any) -> None:
    for _ in range(1000):
        if await db.fetchval("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
            return
        await asyncio.sleep(0.005)
    raise AssertionError("nobody waits")


@pytest.mark.parametrize("name", DOORS)
@pytest.mark.parametrize("counted", [False, True])
async def test_a_waiter_creates_when_the_winner_rolls_back_and_replays_when_it_commits(
    name: str, counted: bool, queue: onejob.Ledger, db: Any, plain_door: Door, open_another: OpenDoor
) -> None:
    waiter = await open_another(name, by=InTransaction(user="other"))
    if counted:
        await queue.set_quota("other", Limits(max_concurrent=5))
    for winner_commits in (False, True):
        await plain_door.begin()
        first = await plain_door.call("submit", "a", 1, idempotency_key="one")
        await waiter.begin()
        call = asyncio.create_task(waiter.call("submit", "a", 1, idempotency_key="one"))
        await until_waiting(db)
        await (plain_door.commit() if winner_commits else plain_door.rollback())
        second = await call
        assert second.outcome == ("replayed" if winner_commits else "created")
        assert (second.job_id == first.job_id) == winner_commits
        await (waiter.commit() if winner_commits else waiter.rollback())
    assert await counts(db) == (0, 1, 1, 1)
    if counted:
        assert await db.fetchval("SELECT live FROM usage") == 0


async def test_a_submission_that_waited_is_dated_when_it_was_stored(
    plain_door: Door, queue: onejob.Ledger, db: Any, open_another: OpenDoor
) -> None:
    waiter = await open_another()
    await plain_door.begin()
    await plain_door.call("submit", "a", 1, idempotency_key="one")
    await waiter.begin()
    call = asyncio.create_task(waiter.call("submit", "a", 1, idempotency_key="one"))
    await until_waiting(db)
    await asyncio.sleep(0.1)
    end = await db.fetchval("SELECT onejob_now()")
    await plain_door.rollback()
    receipt = await call
    await waiter.commit()
    assert receipt.job.created_at.timestamp() * 1000 >= end - 1
    record = await db.fetchrow("SELECT created_at, expires_at, ttl_ms, version FROM record")
    assert record["created_at"] >= end - 1
    assert record["expires_at"] == record["created_at"] + record["ttl_ms"]
    assert await db.fetchval("SELECT created_at FROM job") == record["created_at"]
    assert (await queue.submit("a", 1, idempotency_key="one")).job_id == receipt.job_id


@pytest.mark.parametrize("error_ms", [-3_600_000, -100, 100, 3_600_000])
async def test_a_wrong_estimate_of_the_clock_is_corrected(
    plain_door: Door, db: Any, in_transaction: InTransaction, error_ms: float
) -> None:
    async with transaction(plain_door):
        await plain_door.call("submit", "a", 1, idempotency_key="first")
    estimate = in_transaction._transaction
    assert estimate._offset_ms is not None
    estimate._offset_ms += error_ms
    before = await db.fetchval("SELECT onejob_now()")
    async with transaction(plain_door):
        await plain_door.call("submit", "a", 1, idempotency_key="one")
    stamp = await db.fetchval("SELECT created_at FROM job WHERE key = 'one'")
    assert before - 41 <= stamp <= await db.fetchval("SELECT onejob_now()")


async def test_a_lock_timeout_is_raised_as_the_driver_raises_it(
    door: Door, plain_door: Door, db: Any, queue: onejob.Ledger
) -> None:
    await plain_door.begin()
    await plain_door.call("submit", "a", 1, idempotency_key="one")
    await door.begin()
    await door.execute("SET LOCAL lock_timeout = '20ms'")
    with pytest.raises(Exception, match="lock timeout") as raised:
        await door.call("submit", "a", 1, idempotency_key="one")
    assert sqlstate(raised.value) == "55P03"
    await door.rollback()
    await plain_door.rollback()


async def test_two_calls_with_the_same_keys_in_opposite_order_do_not_deadlock(
    plain_door: Door, queue: onejob.Ledger, db: Any, open_another: OpenDoor
) -> None:
    other = await open_another()
    for turn in range(10):
        keys = [f"{turn}-{n}" for n in range(8)]

        async def submit_all(door: Door, names: list[str]) -> None:
            async with transaction(door):
                await door.call("submit_many", [Submission(type="a", idempotency_key=name) for name in names])

        await asyncio.gather(submit_all(plain_door, keys), submit_all(other, keys[::-1]))
    assert await count(db, "job") == 80


# A key that is held by a transaction that does not end.


async def test_a_key_in_an_open_transaction_harms_nobody_else(
    plain_door: Door, db: Any, queue: onejob.Ledger, open_another: OpenDoor
) -> None:
    await plain_door.begin()
    await plain_door.call("submit", "a", 1, idempotency_key="held")
    loop = asyncio.get_running_loop()

    async def retry_held() -> list[Exception]:
        errors: list[Exception] = []
        for _ in range(3):
            began = loop.time()
            with pytest.raises((SubmissionInProgress, Unavailable)) as raised:
                await queue.submit("a", 1, idempotency_key="held")
            assert loop.time() - began < 25
            assert raised.value.retryable
            errors.append(raised.value)
        return errors

    async def submit_others() -> None:
        for n in range(40):
            assert (await queue.submit("a", 1, idempotency_key=f"k{n}")).outcome == "created"
            await asyncio.sleep(0.02)

    errors, _ = await asyncio.gather(retry_held(), submit_others())
    assert {type(error) for error in errors} <= {SubmissionInProgress, FactsLocked}
    await plain_door.commit()
    assert (await queue.submit("a", 1, idempotency_key="held")).outcome == "replayed"


async def test_a_limit_waits_for_open_transactions_of_its_user_and_for_no_other(
    plain_door: Door, db: Any, queue: onejob.Ledger, open_another: OpenDoor
) -> None:
    """A transaction that concerns several users announces each of them."""
    other = await open_another(by=InTransaction(user="other"))
    await plain_door.begin()
    await plain_door.call("submit", "a", 1, idempotency_key="mine")
    plain_door.commands = other_commands = InTransaction(user="second").asyncpg(plain_door.connection)  # type: ignore[attr-defined]
    assert (await other_commands.submit("a", 1, idempotency_key="second")).outcome == "created"
    await asyncio.wait_for(queue.set_quota("other", Limits(max_concurrent=3)), 60)
    mine = asyncio.create_task(queue.set_quota("local", Limits(max_concurrent=3)))
    second = asyncio.create_task(queue.set_quota("second", Limits(max_concurrent=3)))
    await asyncio.sleep(0.3)
    assert not mine.done()
    assert not second.done()
    async with transaction(other):
        assert (await other.call("submit", "a", 1, idempotency_key="others")).outcome == "created"
    await plain_door.commit()
    await asyncio.gather(mine, second)
    # The jobs of the open transaction are counted.
    assert dict(await db.fetch('SELECT "user", live FROM usage')) == {"local": 1, "second": 1, "other": 1}


# Sessions that cannot keep the promise.


@pytest.mark.parametrize("name", ["asyncpg", "django"])
@pytest.mark.parametrize("known", [False, True])
async def test_synchronous_commit_off_is_refused_and_stores_nothing(
    name: str, known: bool, queue: onejob.Ledger, db: Any, open_another: OpenDoor
) -> None:
    door = await open_another(name)
    jobs = 0
    if known:
        await queue.submit("a", 1, idempotency_key="one")
        jobs = 1
    async with transaction(door):
        await door.execute("SET LOCAL synchronous_commit = off")
        with pytest.raises(StoreRefused, match="synchronous_commit is off"):
            await door.call("submit", "a", 1, idempotency_key="one")
        await door.execute("INSERT INTO orders VALUES ('one')")
    assert await counts(db) == (1, jobs, jobs, jobs)


async def test_a_counted_user_and_a_held_key_are_refused_with_synchronous_commit_off(
    plain_door: Door, queue: onejob.Ledger, db: Any
) -> None:
    await queue.set_quota("local", Limits(max_concurrent=5))
    held = await queue.check_or_reserve("a", 1, idempotency_key="held", job=False)
    async with transaction(plain_door):
        await plain_door.execute("SET LOCAL synchronous_commit = off")
        with pytest.raises(StoreRefused, match="synchronous_commit is off"):
            await plain_door.call("submit", "a", 1)
        with pytest.raises(StoreRefused, match="synchronous_commit is off"):
            await plain_door.call("settle", held, b"")
    assert await count(db, "job") == 0
    assert await db.fetchval("SELECT status FROM record") == "pending"


@pytest.fixture
async def quorum(postgres_url: str, db: Any, queue: onejob.Ledger) -> AsyncIterator[Any]:
    """The schema says that a service has declared durability=quorum."""
    await db.execute("UPDATE ledger SET durability = 'quorum'")
    yield db
    await db.execute("UPDATE ledger SET durability = ''")


@pytest.mark.parametrize(("level", "cause"), [("local", "waits for no standby"), ("on", "standby_names is empty")])
async def test_under_quorum_a_session_that_waits_for_no_standby_is_refused(
    quorum: Any, plain_door: Door, level: str, cause: str
) -> None:
    async with transaction(plain_door):
        await plain_door.execute(f"SET LOCAL synchronous_commit = {level}")
        with pytest.raises(StoreRefused, match=cause):
            await plain_door.call("submit", "a", 1, idempotency_key="one")
    assert await count(quorum, "job") == 0


async def test_without_quorum_local_is_enough(plain_door: Door) -> None:
    async with transaction(plain_door):
        await plain_door.execute("SET LOCAL synchronous_commit = local")
        assert (await plain_door.call("submit", "a", 1, idempotency_key="one")).outcome == "created"


@pytest.mark.parametrize("when", ["before the first call", "after it"])
async def test_another_version_of_the_schema_is_refused(plain_door: Door, db: Any, when: str) -> None:
    jobs = 0
    if when == "after it":
        async with transaction(plain_door):
            await plain_door.call("submit", "a", 1, idempotency_key="first")
        jobs = 1
    await db.execute("INSERT INTO onejob_schema VALUES (99)")
    try:
        async with transaction(plain_door):
            with pytest.raises(StoreRefused, match="another version"):
                await plain_door.call("submit", "a", 1, idempotency_key="one")
            await plain_door.execute("INSERT INTO orders VALUES ('one')")
    finally:
        await db.execute("DELETE FROM onejob_schema WHERE version = 99")
    assert await counts(db) == (1, jobs, jobs, jobs)


async def test_another_schema_is_used_when_it_is_named(
    postgres_url: str, plain_door: Door, open_another: OpenDoor
) -> None:
    async with onejob.open(f"{postgres_url}?schema=elsewhere", sweep=False) as queue:
        door = await open_another(by=InTransaction(schema="elsewhere"))
        async with transaction(door):
            receipt = await door.call("submit", "a", 1, idempotency_key="one")
        assert (await queue.submit("a", 1, idempotency_key="one")).job_id == receipt.job_id
        await queue.admin.purge()


# What it costs, and that the single statement decides nothing.


class RoundTrips:
    """Counts the messages that ask the server for an answer."""

    def __init__(self, proxy: PostgresProxy) -> None:
        self.count = 0
        proxy.cut_rule = self._count

    def _count(self, side: str, kind: bytes, _: bytes) -> bool:
        self.count += side == "query" and kind in (b"S", b"Q")
        return False


async def test_round_trips(postgres_url: str, queue: onejob.Ledger, db: Any, open_another: OpenDoor) -> None:
    async with run_postgres_proxy(postgres_url) as (proxy, url):
        plain, counted = await open_another(url=url), await open_another(url=url, by=InTransaction(user="counted"))
        trips = RoundTrips(proxy)
        await queue.set_quota("counted", Limits(max_concurrent=1000))

        async def measure(door: Door, key: str) -> int:
            async with transaction(door):
                await door.execute(SNAPSHOT)
                before = trips.count
                await door.call("submit", "a", 1, idempotency_key=key)
                return trips.count - before

        for door in (plain, counted):  # the first of each prepares its statements
            for key in ("warm", "warmer", "warm"):
                await measure(door, key + door.commands._inside._caller.user)
        assert await measure(plain, "new") == 1
        assert await measure(plain, "new") == 2
        assert await measure(counted, "counted") == 3
        counted.commands._inside._transaction._counted_until.clear()
        assert await measure(counted, "again") == 4
        assert await measure(counted, "counted") == 1


async def stored_rows(db: Any) -> list[Any]:
    """All rows, without what two submissions never share: ids and times."""
    names = ("record", "job", "attachment", "usage")
    rows = [dict(row) for name in names for row in await db.fetch(f"SELECT * FROM {name}")]
    for row in rows:
        for name, value in row.items():
            if isinstance(value, int) and value > 10**12:
                row[name] = "time"
        for name in ("id", "job_ids", "holder", "job_id"):
            row.pop(name, None)
    return sorted(map(repr, rows))


@pytest.mark.parametrize("key", [None, "one"])
async def test_a_new_key_is_stored_the_same_with_and_without_the_single_statement(
    plain_door: Door, db: Any, queue: onejob.Ledger, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"idempotency_key": key, "labels": {"a": "b"}, "priority": 3}
    await queue.submit("a", {"n": 1}, **options)
    expected = await stored_rows(db)

    def never_inserts(*_: Any) -> Any:
        return None
        yield

    for fast in (True, False):
        await db.execute("DELETE FROM record; DELETE FROM job; DELETE FROM attachment")
        if not fast:
            monkeypatch.setattr(CallersTransaction, "_insert", never_inserts)
        async with transaction(plain_door):
            assert (await plain_door.call("submit", "a", {"n": 1}, **options)).outcome == "created"
        assert await stored_rows(db) == expected


def test_what_is_remembered_of_users_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers_transaction, "COUNTED_MAX", 10)
    transaction = CallersTransaction("public", SystemClock().monotonic)
    for n in range(25):
        transaction._remember_counted(bytes([n]))
    assert len(transaction._counted_until) <= 10


async def test_quota_is_exact_among_racing_transactions(queue: onejob.Ledger, db: Any, open_another: OpenDoor) -> None:
    await queue.set_quota("local", Limits(max_concurrent=5))
    doors = [await open_another(name) for name in ("asyncpg", "psycopg", "session", "django", "asession", "apsycopg")]
    outcomes: list[str] = []

    async def race(number: int, door: Door) -> None:
        for turn in range(4):
            async with transaction(door):
                try:
                    await door.call("submit", "a", 1, idempotency_key=f"{number}-{turn}")
                except SubmissionRefused:
                    outcomes.append("refused")
                else:
                    if (number + turn) % 2:
                        raise RollBack
                    outcomes.append("created")

    await asyncio.gather(*(race(number, door) for number, door in enumerate(doors)))
    assert outcomes.count("created") == 5
    assert await count(db, "job") == 5
    assert await db.fetchval("SELECT live FROM usage") == 5


def test_an_inside_may_be_used_by_many_threads(postgres_url: str, in_transaction: InTransaction) -> None:
    import psycopg

    asyncio.run(open_and_close(postgres_url))
    failures: list[Exception] = []

    def work(number: int) -> None:
        try:
            with psycopg.connect(postgres_url) as connection:
                for turn in range(5):
                    in_transaction.psycopg(connection).submit("a", 1, idempotency_key=f"{number % 2}-{turn}")
                    connection.commit()
        except Exception as error:  # noqa: BLE001 - reported below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM job").fetchone() == (10,)


async def open_and_close(url: str) -> None:
    async with onejob.open(url, sweep=False):
        pass


async def test_no_limit_waits_for_a_transaction_that_only_settles_a_key(plain_door: Door, queue: onejob.Ledger) -> None:
    held = await queue.check_or_reserve("a", 1, idempotency_key="held", job=False)
    await plain_door.begin()
    await plain_door.call("settle", held, b"")
    await asyncio.wait_for(queue.set_quota("local", Limits(max_concurrent=3)), 60)
    await plain_door.commit()


async def test_the_durability_that_a_url_declares_stands_in_the_schema(postgres_url: str, db: Any) -> None:
    async with onejob.open(f"{postgres_url}?durability=disk", sweep=False):
        assert await db.fetchval("SELECT durability FROM ledger") == "disk"
    async with onejob.open(postgres_url, sweep=False):
        assert await db.fetchval("SELECT durability FROM ledger") == "disk"
    await db.execute("UPDATE ledger SET durability = ''")
