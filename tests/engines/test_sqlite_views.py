"""The seed's queries, as printed, on the views that operators read."""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import onejob
from onejob.clock import SystemClock
from onejob.conformance.commands import Seen, written
from onejob.conformance.samples import OTHER, TENANT, TYPE, a_record, a_tally, reserve, settle, submit
from onejob.conformance.world import ask
from onejob.core.facts import Reservation
from onejob.core.ids import text_of
from onejob.core.moment import utc
from onejob.core.receipt import Created, Held, Settled
from onejob.core.reservation import Verdict
from onejob.core.states import SlotState
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
    created = await ask(engine, submit("your-key-here", ttl_ms=HOUR_MS), Created)
    await ask(engine, submit("another", ttl_ms=HOUR_MS), Created)
    ((key, job_id, created_at, expires_at),) = await answers(engine, path, KEY_EXISTS)
    assert (key, job_id) == ("your-key-here", text_of(created.job.id))
    assert datetime.fromisoformat(created_at) == utc(created.job.created_at)
    assert datetime.fromisoformat(expires_at) == utc(created.expires_at)


async def test_an_expired_key_is_not_found_although_it_was_not_swept(engine: SqliteEngine, path: str) -> None:
    now = SystemClock().wall_ms()
    await ask(engine, written(a_record("your-key-here", job_ids=bytes(16), expires_at=now - 1)), Seen)
    assert await answers(engine, path, KEY_EXISTS) == []


async def test_the_active_keys_are_listed_newest_first(engine: SqliteEngine, path: str) -> None:
    now = SystemClock().wall_ms()
    records = [
        a_record("old", job_ids=bytes(16), created_at=now - HOUR_MS, expires_at=now + 60_000),
        # Expired today: as a text it is greater than datetime('now') for its T, so it may not be there at all.
        a_record("expired", job_ids=bytes(16), created_at=now - HOUR_MS, expires_at=now - 1),
        a_record(
            "leased", job_ids=bytes(16), created_at=now - 3, expires_at=now - 1, lease_until=now + 60_000
        ),
        a_record("new", job_ids=bytes(16), created_at=now - 2, expires_at=now + 60_000, user=str(USER_ID)),
        a_record("foreign", foreign_id="job-7", created_at=now - 1, expires_at=now + 60_000),
        a_record("wraps a response", created_at=now, expires_at=now + 60_000),
    ]
    for record in records:
        await ask(engine, written(record), Seen)
    rows = await answers(engine, path, ACTIVE_KEYS)
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
            found = [row[1] for row in db.execute(f"PRAGMA table_info({view})")]
            assert found[: len(columns)] == columns
            assert "tenant" in found


async def test_pending_and_rejected_keys_show_their_status(engine: SqliteEngine, path: str) -> None:
    await ask(engine, reserve("held", lease_ms=HOUR_MS), Held)
    held = await ask(engine, reserve("no", lease_ms=HOUR_MS), Held)
    await ask(engine, settle(held, Verdict.REJECT, ttl_ms=HOUR_MS), Settled)
    rows = await answers(
        engine, path, "SELECT idempotency_key, status, tenant, scope FROM idempotency_keys ORDER BY 1"
    )
    assert rows == [("held", "pending", TENANT, TYPE), ("no", "rejected", TENANT, TYPE)]


async def test_only_what_is_held_counts_as_a_reservation(engine: SqliteEngine, path: str) -> None:
    now = await reserved(engine)
    rows = sorted(await answers(engine, path, ACTIVE_RESERVATIONS))
    assert [row[:2] for row in rows] == [("r-1", str(USER_ID)), ("r-2", str(USER_ID)), ("r-3", "ann")]
    for _, _, created_at, expires_at in rows[:2]:
        assert datetime.fromisoformat(created_at) == utc(now)
        assert datetime.fromisoformat(expires_at) == utc(now + 300_000)
    assert sorted(await answers(engine, path, SLOTS_PER_USER)) == [(str(USER_ID), 2), ("ann", 1)]


def moments(now: datetime) -> Iterator[tuple[datetime, int]]:
    """What a program may hand in as now, with the slots that user 42 holds then."""
    yield now, 2
    yield now.replace(tzinfo=None), 2
    yield now.replace(microsecond=0), 2
    yield now + timedelta(seconds=240), 2
    yield now + timedelta(seconds=301), 0
    yield now + timedelta(days=40), 0


async def test_the_slots_of_an_integer_user_are_counted_by_an_iso_time(
    engine: SqliteEngine, path: str
) -> None:
    now = utc(await reserved(engine))
    await engine.aclose()
    with closing(sqlite3.connect(path)) as conn:
        for moment, slots in moments(now):
            cursor = conn.execute(SLOTS_OF_USER, (USER_ID, moment.isoformat()))
            assert cursor.fetchone() == (slots,), moment
        assert conn.execute(SLOTS_OF_USER, (7, datetime.now(UTC).isoformat())).fetchone() == (0,)


async def test_a_job_that_is_being_prepared_is_shown_with_its_slot(path: str) -> None:
    async with onejob.open(f"sqlite:///{path}", user=str(USER_ID), sweep=False) as queue:
        await queue.set_quota(USER_ID, onejob.Limits(max_concurrent=5))
        held = await queue.check_or_reserve("upload", idempotency_key="k")
        slot = await queue.reserve_job_slot(USER_ID)
    with closing(sqlite3.connect(path)) as db:
        found = {row[0] for row in db.execute(ACTIVE_RESERVATIONS)}
        assert found == {slot, held.job_id.replace("-", "")}
        assert db.execute(SLOTS_PER_USER).fetchall() == [(str(USER_ID), 2)]


async def reserved(engine: SqliteEngine) -> int:
    """Two users with reservations of every sort; returns the moment they were made."""
    now = SystemClock().wall_ms()
    held = Reservation(now, now + 300_000, SlotState.ACTIVE)
    mine = {
        "r-1": held,
        "r-2": held,
        "consumed": Reservation(now, now + 300_000, SlotState.CONSUMED),
        "released": Reservation(now, now + 300_000, SlotState.RELEASED),
        "expired": Reservation(now - 300_001, now - 1, SlotState.ACTIVE),
    }
    await ask(engine, written(a_tally(str(USER_ID), reservations=mine)), Seen)
    await ask(engine, written(a_tally("ann", OTHER, reservations={"r-3": held})), Seen)
    await ask(engine, written(a_tally("nobody", reservations={})), Seen)
    return now


async def answers(engine: SqliteEngine, path: str, query: str) -> list[tuple[Any, ...]]:
    """As an operator's own SQLite sees it; ours lets go first, for two in one process break each other's locks."""
    await engine.aclose()
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()
