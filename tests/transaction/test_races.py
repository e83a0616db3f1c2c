"""Transactions of four drivers and the service race for the same keys, and half of the transactions roll back."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import asyncpg
import httpx
import pytest

from onejob.transaction import InTransaction
from tests.support.command_line import run_service
from tests.support.postgres_server import Server
from tests.transaction.doors import ISOLATION_LEVELS, Door, RollBack, open_door, transaction
from tests.transaction.test_transactions import sqlstate

DRIVERS = ("asyncpg", "psycopg", "session", "django")
KEYS = 60
HOLD_SECONDS_MAX = 0.004
ATTEMPTS_MAX = 50


class Race:
    def __init__(self, isolation: str, seed: int) -> None:
        self.rng = random.Random(seed)
        self.isolation = isolation
        self.committed: dict[str, list[str]] = {f"{isolation}-{n}".replace(" ", "-"): [] for n in range(KEYS)}
        self.rolled_back = 0

    def shuffled_keys(self) -> list[str]:
        return self.rng.sample(sorted(self.committed), KEYS)

    async def run_door(self, door: Door) -> None:
        for key in self.shuffled_keys():
            rolls_back, hold = self.rng.random() < 0.5, self.rng.random() * HOLD_SECONDS_MAX
            rolls_back |= key.endswith("0")  # by all, and the service leaves these keys out
            job_id = await self._submit(door, key, hold, rolls_back=rolls_back)
            if rolls_back:
                self.rolled_back += 1
            else:
                self.committed[key].append(job_id)

    async def _submit(self, door: Door, key: str, hold: float, *, rolls_back: bool) -> str:
        for _ in range(ATTEMPTS_MAX):
            try:
                async with transaction(door, self.isolation):
                    await door.execute(f"INSERT INTO orders VALUES ('{key}')")
                    receipt = await door.call("submit", "charge", {"of": key}, idempotency_key=key)
                    await asyncio.sleep(hold)
                    if rolls_back:
                        raise RollBack
                return str(receipt.job.id)
            except Exception as error:
                if sqlstate(error) != "40001":  # what the application's own retry loop knows
                    raise
        raise AssertionError("serialization failures without end")

    async def run_service(self, client: httpx.AsyncClient) -> None:
        """Every second key, so that the others may have been rolled back by all."""
        for key in self.shuffled_keys():
            if int(key.rpartition("-")[2]) % 2:
                body = {"type": "charge", "input": {"of": key}}
                answer = await client.post("/api/jobs", json=body, headers={"Idempotency-Key": key}, timeout=120)
                assert answer.status_code == 202, answer.text
                self.committed[key].append(answer.json()["job"]["id"])


@pytest.fixture(scope="module")
def service(postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A server, and the database that it shares with the application."""
    database = postgres.database()
    with run_service(tmp_path_factory.mktemp("service"), "--engine", database) as url:
        yield url, database


@pytest.mark.parametrize("isolation", ISOLATION_LEVELS)
async def test_every_key_has_one_job_and_what_was_rolled_back_has_none(
    service: tuple[str, str], isolation: str
) -> None:
    url, database = service
    race, in_transaction = Race(isolation, seed=20), InTransaction()
    db: Any = await asyncpg.connect(database)
    await db.execute("CREATE TABLE IF NOT EXISTS orders (name text); DELETE FROM orders")
    doors = [await open_door(name, in_transaction, database) for name in DRIVERS]
    async with httpx.AsyncClient(base_url=url) as client:
        await asyncio.gather(*(race.run_door(door) for door in doors), race.run_service(client))
    for door in doors:
        await door.close()
    made: dict[str, list[str]] = {key: [] for key in race.committed}
    for key, job_id in await db.fetch(
        "SELECT key, encode(id, 'hex')::uuid::text FROM job WHERE key = ANY ($1)", [*made]
    ):
        made[key].append(job_id)
    orders = await db.fetchval("SELECT count(*) FROM orders")
    orphans = await db.fetchval(
        "SELECT (SELECT count(*) FROM record) - (SELECT count(*) FROM job) "
        "+ (SELECT count(*) FROM attachment WHERE kind = 0) - (SELECT count(*) FROM job)"
    )
    await db.close()
    assert {key: sorted(set(ids)) for key, ids in race.committed.items()} == made
    assert all(len(ids) <= 1 for ids in made.values())
    assert race.rolled_back > KEYS
    assert sum(not ids for ids in made.values()) >= KEYS // 10
    assert orders == len(DRIVERS) * KEYS - race.rolled_back
    assert orphans == 0
