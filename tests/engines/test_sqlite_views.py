"""The queries printed in the seed, run on the views for operators."""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import onejob
from onejob.clock import SystemClock
from onejob.conformance.commands import FactsRead, write_facts
from onejob.conformance.samples import OTHER, TENANT, TYPE, a_record, a_usage, reserve, settle, submit
from onejob.conformance.world import expect
from onejob.core.facts import Reservation
from onejob.core.identity import format_job_id
from onejob.core.replies import Created, KeyHeld, KeySettled
from onejob.core.reserve import Verdict
from onejob.core.states import SlotState
from onejob.core.timestamps import to_utc
from onejob.engines.sqlite import SqliteEngine

HOUR_MS = 3_600_000
USER_ID = 42

# Printed in the seed.
KEY_EXISTS = """
SELECT idempotency_key, job_id, created_at, expires_at
FROM idempotency_keys
WHERE idempotency_key = 'your-key-here';
"""
ACTIVE_KEYS = """
SELECT * FROM idempotency_keys
WHERE expires_at > datetime('now')
ORDER BY created_at DESC;
"""
ACTIVE_RESERVATIONS = """
SELECT reservation_id, user_id, created_at, expires_at
FROM job_reservations
WHERE consumed = 0 AND expires_at > datetime('now');
"""
SLOTS_PER_USER = """
SELECT user_id, COUNT(*) as active_reservations
FROM job_reservations
WHERE consumed = 0 AND expires_at > datetime('now')
GROUP BY user_id;
"""
SLOTS_OF_USER = """
    SELECT COUNT(*) FROM job_reservations
    WHERE user_id = ? AND expires_at > ? AND consumed = 0
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "onejob.db")


@pytest.fixture
async def engine(path: str) -> AsyncIterator[SqliteEngine]:
    engine = await SqliteEngine.open(path)
    yield engine
    await engine.aclose()


async def test_a_key_is_found_with_its_job_and_its_window(engine: SqliteEngine, path: str) -> None:
    created = await expect(engine, submit("your-key-here", ttl_ms=HOUR_MS), Created)
    await expect(engine, submit("another", ttl_ms=HOUR_MS), Created)
    ((key, job_id, created_at, expires_at),) = await query_results(engine, path, KEY_EXISTS)
    assert (key, job_id) == ("your-key-here", format_job_id(created.job.id))
    assert datetime.fromisoformat(created_at) == to_utc(created.job.created_at)
    assert datetime.fromisoformat(expires_at) == to_utc(created.expires_at)


async def test_an_expired_key_is_not_found_although_it_was_not_swept(engine: SqliteEngine, path: str) -> None:
    now = SystemClock().wall_ms()
    await expect(engine, write_facts(a_record("your-key-here", job_ids=bytes(16), expires_at=now - 1)), FactsRead)
    assert await query_results(engine, path, KEY_EXISTS) == []


async def test_the_active_keys_are_listed_newest_first(engine: SqliteEngine, path: str) -> None:
    now = SystemClock().wall_ms()
    records = [
        a_record("old", job_ids=bytes(16), created_at=now - HOUR_MS, expires_at=now + 60_000),
        # Expired today: as a text it sorts after datetime('now') because of its T, so the view must not contain it.
        a_record("expired", job_ids=bytes(16), created_at=now - HOUR_MS, expires_at=now - 1),
        a_record("leased", job_ids=bytes(16), created_at=now - 3, expires_at=now - 1, lease_until=now + 60_000),
        a_record("new", job_ids=bytes(16), created_at=now - 2, expires_at=now + 60_000, user=str(USER_ID)),
        a_record("foreign", external_id="job-7", created_at=now - 1, expires_at=now + 60_000),
        a_record("wraps a response", created_at=now, expires_at=now + 60_000),
    ]
    for record in records:
        await expect(engine, write_facts(record), FactsRead)
    rows = await query_results(engine, path, ACTIVE_KEYS)
    assert [row[0] for row in rows] == ["foreign", "new", "leased", "old"]
    assert [row[1] for row in rows] == ["job-7", *["00000000-0000-0000-0000-000000000000"] * 3]
    assert rows[1][2] == str(USER_ID)


async def test_the_views_begin_with_the_seeds_columns(engine: SqliteEngine, path: str) -> None:
    await engine.aclose()
    with closing(sqlite3.connect(path)) as db:
        for view, columns in (
            ("idempotency_keys", ["idempotency_key", "job_id", "user_id", "created_at", "expires_at"]),
            ("job_reservations", ["reservation_id", "user_id", "created_at", "expires_at", "consumed"]),
        ):
            names = [row[1] for row in db.execute(f"PRAGMA table_info({view})")]
            assert names[: len(columns)] == columns
            assert "tenant" in names


async def test_pending_and_rejected_keys_show_their_status(engine: SqliteEngine, path: str) -> None:
    await expect(engine, reserve("held", lease_ms=HOUR_MS), KeyHeld)
    held = await expect(engine, reserve("no", lease_ms=HOUR_MS), KeyHeld)
    await expect(engine, settle(held, Verdict.REJECT, ttl_ms=HOUR_MS), KeySettled)
    rows = await query_results(
        engine, path, "SELECT idempotency_key, status, tenant, scope FROM idempotency_keys ORDER BY 1"
    )
    assert rows == [("held", "pending", TENANT, TYPE), ("no", "rejected", TENANT, TYPE)]


async def test_only_active_reservations_are_counted(engine: SqliteEngine, path: str) -> None:
    now = await store_reservations(engine)
    rows = sorted(await query_results(engine, path, ACTIVE_RESERVATIONS))
    assert [row[:2] for row in rows] == [("r-1", str(USER_ID)), ("r-2", str(USER_ID)), ("r-3", "ann")]
    for _, _, created_at, expires_at in rows[:2]:
        assert datetime.fromisoformat(created_at) == to_utc(now)
        assert datetime.fromisoformat(expires_at) == to_utc(now + 300_000)
    assert sorted(await query_results(engine, path, SLOTS_PER_USER)) == [(str(USER_ID), 2), ("ann", 1)]


def times_and_slots(now: datetime) -> Iterator[tuple[datetime, int]]:
    """Values that a program may pass as the current time, with the slots that user 42 holds then."""
    yield now, 2
    yield now.replace(tzinfo=None), 2
    yield now.replace(microsecond=0), 2
    yield now + timedelta(seconds=240), 2
    yield now + timedelta(seconds=301), 0
    yield now + timedelta(days=40), 0


async def test_the_slots_of_an_integer_user_are_counted_by_an_iso_time(engine: SqliteEngine, path: str) -> None:
    now = to_utc(await store_reservations(engine))
    await engine.aclose()
    with closing(sqlite3.connect(path)) as conn:
        for moment, slots in times_and_slots(now):
            cursor = conn.execute(SLOTS_OF_USER, (USER_ID, moment.isoformat()))
            assert cursor.fetchone() == (slots,), moment
        assert conn.execute(SLOTS_OF_USER, (7, datetime.now(UTC).isoformat())).fetchone() == (0,)


async def test_a_job_that_is_being_prepared_is_shown_with_its_slot(path: str) -> None:
    async with onejob.open(f"sqlite:///{path}", user=str(USER_ID), sweep=False) as queue:
        await queue.set_quota(USER_ID, onejob.Limits(max_concurrent=5))
        held = await queue.check_or_reserve("upload", idempotency_key="k")
        slot = await queue.reserve_job_slot(USER_ID)
    with closing(sqlite3.connect(path)) as db:
        reservations = {row[0] for row in db.execute(ACTIVE_RESERVATIONS)}
        assert reservations == {slot, held.job_id.replace("-", "")}
        assert db.execute(SLOTS_PER_USER).fetchall() == [(str(USER_ID), 2)]


async def store_reservations(engine: SqliteEngine) -> int:
    """Two users with reservations in every state; returns the time of their creation."""
    now = SystemClock().wall_ms()
    active = Reservation(now, now + 300_000, SlotState.ACTIVE)
    reservations = {
        "r-1": active,
        "r-2": active,
        "consumed": Reservation(now, now + 300_000, SlotState.CONSUMED),
        "released": Reservation(now, now + 300_000, SlotState.RELEASED),
        "expired": Reservation(now - 300_001, now - 1, SlotState.ACTIVE),
    }
    await expect(engine, write_facts(a_usage(str(USER_ID), reservations=reservations)), FactsRead)
    await expect(engine, write_facts(a_usage("ann", OTHER, reservations={"r-3": active})), FactsRead)
    await expect(engine, write_facts(a_usage("nobody", reservations={})), FactsRead)
    return now


async def query_results(engine: SqliteEngine, path: str, query: str) -> list[tuple[Any, ...]]:
    """Query with another SQLite library. The engine is closed first: two libraries in one process break each other's locks."""
    await engine.aclose()
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()
