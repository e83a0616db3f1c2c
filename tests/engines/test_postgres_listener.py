"""Callers that wait for a key are woken when another process settles it; without notifications they poll."""

import asyncio
from typing import Any

import asyncpg
import pytest

import onejob
from onejob.conformance.samples import reserve, settle, submit
from onejob.conformance.world import expect
from onejob.core.replies import Created, KeyHeld, KeySettled
from onejob.engines import gate
from onejob.engines.postgres import PostgresEngine


async def test_a_waiter_is_woken_by_another_process(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before it would have polled again."""
    monkeypatch.setattr(gate, "POLL_SECONDS_FIRST", 60.0)
    async with onejob.open(postgres_url) as mine, onejob.open(postgres_url) as theirs:
        held = await theirs.check_or_reserve("train", 1, idempotency_key="k")
        assert isinstance(held, onejob.HeldKey)
        waiting = asyncio.create_task(mine.submit("train", 1, idempotency_key="k"))
        await wait_until_listening(postgres_url)
        await theirs.commit(held)
        async with asyncio.timeout(10):
            receipt = await waiting
    assert receipt.job_id == held.job_id
    assert not receipt.created


async def test_only_settled_keys_that_were_held_are_notified(postgres_url: str) -> None:
    payloads: list[str] = []
    listener: Any = await asyncpg.connect(postgres_url)
    await listener.add_listener("onejob_public", lambda *notification: payloads.append(notification[-1]))
    engine = await PostgresEngine.open(postgres_url)
    await expect(engine, submit("plain"), Created)
    await engine.execute([submit(f"k{n}") for n in range(20)])
    held = await expect(engine, reserve(), KeyHeld)
    await listener.fetchval("SELECT 1")
    assert payloads == []
    await expect(engine, settle(held), KeySettled)
    await expect(engine, settle(held), KeySettled)  # repeated: it was notified before
    await listener.fetchval("SELECT 1")
    await asyncio.sleep(0)
    assert payloads == [held.record_id.hex()]
    await engine.aclose()
    await listener.close()


async def test_without_notifications_waiters_poll(postgres_url: str) -> None:
    """Behind a pooler there is no listener."""
    url = f"{postgres_url}?pooled=on"
    async with onejob.open(url) as mine, onejob.open(url) as theirs:
        held = await theirs.check_or_reserve("train", 1, idempotency_key="k")
        assert isinstance(held, onejob.HeldKey)
        waiting = asyncio.create_task(mine.submit("train", 1, idempotency_key="k"))
        await asyncio.sleep(0.05)
        await theirs.commit(held)
        async with asyncio.timeout(10):
            assert (await waiting).job_id == held.job_id


async def wait_until_listening(url: str) -> None:
    watcher: Any = await asyncpg.connect(url)
    async with asyncio.timeout(10):
        while not await watcher.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"
        ):
            await asyncio.sleep(0.01)
    await watcher.close()
