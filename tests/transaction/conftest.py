"""A ledger on PostgreSQL, a door of each driver, and a table of the application."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

import onejob
from onejob.transaction import InTransaction
from tests.transaction.doors import DOORS, Door, open_door

OpenDoor = Callable[..., Any]


@pytest.fixture
def in_transaction() -> InTransaction:
    return InTransaction()


@pytest.fixture
async def queue(postgres_url: str) -> AsyncIterator[onejob.Ledger]:
    config = onejob.IdempotencyConfig(pending_wait_timeout=0)
    async with onejob.open(postgres_url, config=config, sweep=False) as ledger:
        yield ledger


@pytest.fixture
async def db(postgres_url: str) -> AsyncIterator[Any]:
    """A connection of the application, with its empty table of orders."""
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("CREATE TABLE IF NOT EXISTS orders (name text); DELETE FROM orders")
    yield connection
    await connection.close()


@pytest.fixture
async def open_another(postgres_url: str, in_transaction: InTransaction) -> AsyncIterator[OpenDoor]:
    async with AsyncExitStack() as stack:

        async def open_one(name: str = "asyncpg", url: str = postgres_url, by: InTransaction = in_transaction) -> Door:
            door = await open_door(name, by, url)
            stack.push_async_callback(door.close)
            return door

        yield open_one


@pytest.fixture(params=DOORS)
async def door(request: pytest.FixtureRequest, queue: onejob.Ledger, db: Any, open_another: OpenDoor) -> Door:
    return await open_another(request.param)  # type: ignore[no-any-return]  # it is a Door


@pytest.fixture
async def plain_door(queue: onejob.Ledger, db: Any, open_another: OpenDoor) -> Door:
    """One driver, where a test is about the statements."""
    return await open_another("asyncpg")  # type: ignore[no-any-return]  # it is a Door
