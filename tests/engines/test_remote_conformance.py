"""The shipped suite on the engine `http://`, against managers of each store. Nothing is skipped.

`make test` runs every rule on the bare engine, whose manager has a store in memory. Behind the gate, with a manager of each
store, is in `make test-matrix`; bare, with managers of SQLite and PostgreSQL, in `make prove`
(`tests/campaigns/remote_matrix.py`).
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from onejob.clock import FakeClock
from onejob.conformance import World
from onejob.engine import Engine
from onejob.engines.memory import MemoryEngine
from onejob.engines.postgres import PostgresEngine
from onejob.engines.sqlite import SqliteEngine
from tests.engines.test_conformance import ExactContract, wrapped_world
from tests.support.managers import open_remote, running_manager
from tests.support.postgres_server import StoreClock


class TestRemoteMemory(ExactContract):
    @pytest.fixture(params=["bare", pytest.param("gated", marks=pytest.mark.matrix)])
    async def world(self, request: pytest.FixtureRequest) -> AsyncIterator[World]:
        clock = FakeClock()
        async with running_manager(MemoryEngine(clock)) as url:

            async def opened() -> Engine:
                return await open_remote(url)

            async with wrapped_world(request.param, opened, clock) as world:
                yield world


@pytest.mark.matrix
class TestRemoteSqlite(ExactContract):
    @pytest.fixture(params=["gated"])
    async def world(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
        clock = FakeClock()
        async with running_manager(await SqliteEngine.open(str(tmp_path / "onejob.db"), clock=clock)) as url:

            async def opened() -> Engine:
                return await open_remote(url)

            async with wrapped_world(request.param, opened, clock) as world:
                yield world


@pytest.mark.matrix
class TestRemotePostgres(ExactContract):
    """Each engine reaches the database through a manager of its own."""

    @pytest.fixture(params=["gated"])
    async def world(
        self, request: pytest.FixtureRequest, postgres_url: str, store_clock: StoreClock
    ) -> AsyncIterator[World]:
        async with AsyncExitStack() as managers:

            async def opened() -> Engine:
                engine = await PostgresEngine.open(postgres_url, clock=store_clock)
                return await open_remote(await managers.enter_async_context(running_manager(engine)))

            async with wrapped_world(request.param, opened, store_clock) as world:
                yield world
