"""Submissions in a caller's transaction are made under the settings that the ledger has when they are stored."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg
import pytest

import onejob
from onejob.core.identity import record_id
from onejob.core.ledger_settings import SETTINGS_POLICY_ID, decode_settings
from onejob.engines.postgres import PostgresEngine
from onejob.errors import Unavailable
from onejob.ledger.base import runtime_of
from onejob.runtime import settings as ledger_settings
from onejob.runtime.settings import change_settings
from onejob.transaction import InTransaction
from tests.support.ledger_settings import set_settings
from tests.support.postgres_server import Server
from tests.transaction.doors import Door

KEYS = 200


async def test_a_key_of_a_transaction_and_of_the_service_is_one_job(queue: onejob.Ledger, db: Any) -> None:
    await set_settings(queue, key_owner="user")
    in_transaction = InTransaction(user="ann", actor=onejob.Actor.user("ann"))
    ann = queue.acting_as(tenant="default", user="ann", actor=onejob.Actor.user("ann"))
    async with db.transaction():
        made = [(await in_transaction.asyncpg(db).submit("t", n, idempotency_key=f"k{n}")).job_id for n in range(KEYS)]
    assert [(await ann.submit("t", n, idempotency_key=f"k{n}")).job_id for n in range(KEYS)] == made
    assert (await queue.submit("t", 1, idempotency_key="k1")).created, "another user has its own"


async def test_a_new_ledger_gets_its_settings_in_the_callers_transaction(postgres_url: str) -> None:
    async with onejob.open(postgres_url, sweep=False):
        pass
    db = await asyncpg.connect(postgres_url)
    try:
        await db.execute("DELETE FROM policy")
        async with db.transaction():
            first = await InTransaction().asyncpg(db).submit("t", idempotency_key="k")
    finally:
        await db.close()
    async with onejob.open(postgres_url, sweep=False) as queue:
        assert (await queue.submit("t", idempotency_key="k")).job_id == first.job_id


async def test_a_change_that_was_not_noticed_refuses_one_transaction(queue: onejob.Ledger, plain_door: Door) -> None:
    await plain_door.begin()
    first = await plain_door.call("submit", "t", idempotency_key="before")
    await plain_door.commit()
    await queue.forget("before", scope="t")
    await set_settings(queue, window_ms=7_200_000)
    await plain_door.begin()
    with pytest.raises(Unavailable, match="settings of the ledger were changed"):
        await plain_door.call("submit", "t", idempotency_key="k")
    made = await plain_door.call(
        "submit", "t", idempotency_key="k"
    )  # the transaction goes on, with the settings of now
    await plain_door.commit()
    assert made.created
    assert made.job_id != first.job_id
    assert (await queue.submit("t", idempotency_key="k")).job_id == made.job_id


async def test_a_change_waits_for_an_open_transaction(
    queue: onejob.Ledger, db: Any, in_transaction: InTransaction
) -> None:
    """It was announced: its key is counted, or the change is refused because it takes too long."""
    transaction = db.transaction()
    await transaction.start()
    made = await in_transaction.asyncpg(db).submit("t", idempotency_key="k")
    change = asyncio.create_task(change_settings(runtime_of(queue).gate, {"key_owner": "user"}, actor="client:admin"))
    await asyncio.sleep(0.3)
    assert not change.done()
    await transaction.commit()
    done = await change
    assert not done.is_possible, "the key that it waited for is live"
    assert done.live.count == 1
    await runtime_of(queue).reload_settings()
    assert (await queue.submit("t", idempotency_key="k")).job_id == made.job_id


@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_a_snapshot_that_is_older_than_a_change_makes_nothing(
    queue: onejob.Ledger, db: Any, in_transaction: InTransaction, isolation: str
) -> None:
    async with db.transaction():
        await in_transaction.asyncpg(db).submit("warm-up", idempotency_key="w")
    await db.execute("DELETE FROM record")
    transaction = db.transaction(isolation=isolation)
    await transaction.start()
    await db.fetch("SELECT count(*) FROM orders")  # the snapshot
    await set_settings(queue, key_owner="user")
    with pytest.raises(asyncpg.SerializationError):
        await in_transaction.asyncpg(db).submit("t", idempotency_key="k")
    await transaction.rollback()
    assert [job.type for job in await queue.jobs()] == ["warm-up"]


async def test_a_transaction_that_begins_while_the_doors_are_closed_makes_nothing(
    queue: onejob.Ledger, db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The barrier did not wait for it, and its key would not be counted."""
    counts, may_count = 0, asyncio.Event()
    is_counting = asyncio.Event()

    async def count_slowly(engine: Any) -> Any:
        nonlocal counts
        counts += 1
        found = await count_live_keys(engine)
        if counts == 2:
            is_counting.set()
            await may_count.wait()
        return found

    count_live_keys = ledger_settings._count_live_keys
    monkeypatch.setattr(ledger_settings, "_count_live_keys", count_slowly)
    change = asyncio.create_task(change_settings(runtime_of(queue).gate, {"key_owner": "user"}, actor="client:admin"))
    await is_counting.wait()
    in_transaction = InTransaction(user="ann", actor=onejob.Actor.user("ann"))
    async with db.transaction():
        for _ in range(3):
            with pytest.raises(Unavailable, match="are being changed, and nothing was done"):
                await in_transaction.asyncpg(db).submit("t", idempotency_key="k")
    may_count.set()
    assert (await change).is_possible
    async with db.transaction():
        made = await in_transaction.asyncpg(db).submit("t", idempotency_key="k")
    await runtime_of(queue).reload_settings()
    ann = queue.acting_as(tenant="default", user="ann", actor=onejob.Actor.user("ann"))
    assert (await ann.submit("t", idempotency_key="k")).job_id == made.job_id


async def test_a_change_waits_for_a_transaction_that_settles_a_key_without_a_job(
    queue: onejob.Ledger, db: Any, in_transaction: InTransaction
) -> None:
    """It announces nobody, and makes the key live for longer."""
    second = timedelta(seconds=1)
    held = await queue.check_or_reserve("t", idempotency_key="k", job=False, lease=second, idempotency_ttl=second)
    assert isinstance(held, onejob.HeldKey)
    transaction = db.transaction()
    await transaction.start()
    await in_transaction.asyncpg(db).settle(held, b"done")
    await db.execute("SELECT pg_sleep(2.1)")
    change = asyncio.create_task(change_settings(runtime_of(queue).gate, {"key_owner": "user"}, actor="client:admin"))
    await asyncio.sleep(0.5)
    assert not change.done()
    await transaction.commit()
    assert (await change).is_possible, "the settled key has ended, too"


async def test_a_used_ledger_without_settings_gets_none_in_a_transaction(queue: onejob.Ledger, db: Any) -> None:
    """Who owns its keys must be looked at first."""
    await queue.submit("t", idempotency_key="k")
    await db.execute("DELETE FROM policy")
    async with db.transaction():
        with pytest.raises(Unavailable, match="onejob settings"):
            await InTransaction().asyncpg(db).submit("t", idempotency_key="k")


async def test_threads_that_share_one_inside_prove_the_settings_that_they_used(
    queue: onejob.Ledger, postgres_url: str
) -> None:
    """Each transaction compares the identity that it stored with the settings that the ledger has in it."""
    in_transaction, is_over = InTransaction(user="ann"), threading.Event()

    def submit(n: int) -> list[str | None]:
        owners: list[str | None] = []
        with psycopg.connect(postgres_url, autocommit=True) as db:
            while not is_over.is_set():
                key = f"k{n}-{len(owners)}"
                try:
                    with db.transaction():
                        in_transaction.psycopg(db).submit("t", idempotency_key=key)
                        # No key stays live, so that the settings can be changed again.
                        ((made,),) = db.execute("DELETE FROM record WHERE key = %s RETURNING id", (key,)).fetchall()
                        ((body,),) = db.execute(
                            "SELECT body FROM policy WHERE id = %s", (SETTINGS_POLICY_ID,)
                        ).fetchall()
                except Unavailable:
                    continue
                settings = decode_settings(body)
                assert made == record_id("default", "t", key, "ann" if settings.owns_keys else "")
                owners.append(settings.key_owner)
        return owners

    threads = [asyncio.to_thread(submit, n) for n in range(8)]
    made = asyncio.gather(*threads)
    try:
        for n in range(6):
            assert (await set_settings(queue, key_owner=("user", "tenant")[n % 2])).is_possible
            await asyncio.sleep(0.05)
    finally:
        is_over.set()
        owners = [owner for one in await made for owner in one]
    assert {"user", "tenant"} <= set(owners)
    assert len(await queue.jobs(limit=1000)) == min(len(owners), 1000)


async def test_a_ledger_that_a_caller_uses_first_opens_while_the_transaction_lasts(postgres: Server) -> None:
    """`onejob migrate` stores its first settings, so that the caller holds no lock that openers wait for."""
    postgres_url = postgres.database()
    await PostgresEngine.migrate(postgres_url)
    db = await asyncpg.connect(postgres_url)
    transaction = db.transaction()
    try:
        await transaction.start()
        made = await InTransaction().asyncpg(db).submit("t", idempotency_key="k")
        async with onejob.open(postgres_url, sweep=False) as queue:
            await queue.submit("t", idempotency_key="other")
            await transaction.commit()
            assert (await queue.submit("t", idempotency_key="k")).job_id == made.job_id
    finally:
        await db.close()


async def test_where_a_caller_makes_the_first_settings_an_opener_is_told_to_retry(postgres_url: str) -> None:
    async with onejob.open(postgres_url, sweep=False):
        pass
    db = await asyncpg.connect(postgres_url)
    await db.execute("DELETE FROM policy")
    transaction = db.transaction()
    try:
        await transaction.start()
        await InTransaction().asyncpg(db).submit("t", idempotency_key="k")
        async with asyncio.timeout(20):
            with pytest.raises(Unavailable):
                async with onejob.open(postgres_url, sweep=False):
                    raise AssertionError("it knows no settings")
    finally:
        await db.close()
