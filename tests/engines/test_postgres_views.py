"""The queries printed in the seed, run as they are on PostgreSQL's views."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from onejob.clock import SystemClock
from onejob.conformance.commands import FactsRead, write_facts
from onejob.conformance.samples import OTHER, TENANT, TYPE, USER, a_record, a_usage, reserve, settle, submit
from onejob.conformance.world import expect
from onejob.core.facts import Reservation
from onejob.core.identity import format_job_id
from onejob.core.replies import Created, KeyHeld, KeySettled
from onejob.core.reserve import Verdict
from onejob.core.states import SlotState
from onejob.core.timestamps import to_utc
from onejob.engines.postgres import PostgresEngine

HOUR_MS = 3_600_000

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
SLOTS_PER_USER = """
SELECT user_id, COUNT(*) as active_reservations
FROM job_reservations
WHERE consumed = 0 AND expires_at > datetime('now')
GROUP BY user_id ORDER BY user_id;
"""


@pytest.fixture
async def engine(postgres_url: str) -> AsyncIterator[PostgresEngine]:
    engine = await PostgresEngine.open(postgres_url)
    yield engine
    await engine.aclose()


@pytest.fixture
async def operator(postgres_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def test_a_key_is_found_with_its_job_and_its_window(engine: PostgresEngine, operator: Any) -> None:
    created = await expect(engine, submit("your-key-here", ttl_ms=HOUR_MS), Created)
    await expect(engine, submit("another", ttl_ms=HOUR_MS), Created)
    ((key, job_id, created_at, expires_at),) = await operator.fetch(KEY_EXISTS)
    assert (key, job_id) == ("your-key-here", format_job_id(created.job.id))
    assert (created_at, expires_at) == (to_utc(created.job.created_at), to_utc(created.expires_at))


async def test_only_active_keys_are_listed(engine: PostgresEngine, operator: Any) -> None:
    now = SystemClock().wall_ms()
    for record in (
        a_record("expired", job_ids=bytes(16), expires_at=now - 1000),
        a_record("leased", job_ids=bytes(16), created_at=now - 3, expires_at=1, lease_until=now + 60_000),
        a_record("new", job_ids=bytes(16), created_at=now - 2, expires_at=now + 60_000, user="42"),
        a_record("foreign", external_id="job-7", created_at=now - 1, expires_at=now + 60_000),
        a_record("wraps a response", created_at=now, expires_at=now + 60_000),
    ):
        await expect(engine, write_facts(record), FactsRead)
    rows = await operator.fetch(ACTIVE_KEYS)
    assert [row["idempotency_key"] for row in rows] == ["foreign", "new", "leased"]
    assert [row["job_id"] for row in rows] == ["job-7", *["00000000-0000-0000-0000-000000000000"] * 2]
    assert (rows[1]["user_id"], rows[1]["user"]) == (42, "42")
    assert (rows[0]["user_id"], rows[0]["user"]) == (None, USER)


async def test_pending_and_rejected_keys_show_their_status(engine: PostgresEngine, operator: Any) -> None:
    await expect(engine, reserve("held", lease_ms=HOUR_MS), KeyHeld)
    held = await expect(engine, reserve("no", lease_ms=HOUR_MS), KeyHeld)
    await expect(engine, settle(held, Verdict.REJECT, ttl_ms=HOUR_MS), KeySettled)
    rows = await operator.fetch("SELECT idempotency_key, status, tenant, scope FROM idempotency_keys ORDER BY 1")
    assert [tuple(row) for row in rows] == [
        ("held", "pending", TENANT, TYPE),
        ("no", "rejected", TENANT, TYPE),
    ]


async def test_only_active_reservations_are_counted(engine: PostgresEngine, operator: Any) -> None:
    now = SystemClock().wall_ms()
    active = Reservation(now, now + 300_000, SlotState.ACTIVE)
    reservations = {
        "r-1": active,
        "r-2": active,
        "consumed": Reservation(now, now + 300_000, SlotState.CONSUMED),
        "released": Reservation(now, now + 300_000, SlotState.RELEASED),
        "expired": Reservation(now - 300_001, now - 1000, SlotState.ACTIVE),
    }
    await expect(engine, write_facts(a_usage("42", reservations=reservations)), FactsRead)
    await expect(engine, write_facts(a_usage("ann", OTHER, reservations={"r-3": active})), FactsRead)
    await expect(engine, write_facts(a_usage("nobody", reservations={})), FactsRead)
    assert [tuple(row) for row in await operator.fetch(SLOTS_PER_USER)] == [(42, 2), (None, 1)]
    count = "SELECT COUNT(*) FROM job_reservations WHERE user_id = $1 AND expires_at > $2 AND consumed = 0"
    assert await operator.fetchval(count, 42, to_utc(now)) == 2


async def test_the_views_begin_with_the_seeds_columns(engine: PostgresEngine, operator: Any) -> None:
    columns = (
        "SELECT column_name FROM information_schema.columns "
        "WHERE table_schema = 'public' AND table_name = $1 ORDER BY ordinal_position"
    )
    for view, first in (
        ("idempotency_keys", ["idempotency_key", "job_id", "user_id", "created_at", "expires_at"]),
        ("job_reservations", ["reservation_id", "user_id", "created_at", "expires_at", "consumed"]),
    ):
        names = [row[0] for row in await operator.fetch(columns, view)]
        assert names[: len(first)] == first
        assert "tenant" in names


async def test_datetime_is_a_moment_in_utc(engine: PostgresEngine, operator: Any) -> None:
    await operator.execute("SET TIME ZONE 'Asia/Tokyo'")
    row = await operator.fetchrow("SELECT datetime('now') = now() AS now, datetime('2026-01-02 03:04:05') AS then")
    assert row["now"]
    assert row["then"] == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
