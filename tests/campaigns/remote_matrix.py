"""What `make prove` adds to test_remote_conformance.py: the suite on bare engines `http://`, against SQLite and PostgreSQL."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from onejob.clock import FakeClock
from onejob.conformance import World
from onejob.engine import Engine
from onejob.engines.postgres import PostgresEngine
from onejob.engines.sqlite import SqliteEngine
from tests.engines.test_conformance import ExactContract, wrapped_world
from tests.support.managers import open_remote, running_manager
from tests.support.postgres_server import StoreClock


class TestBareRemoteSqlite(ExactContract):
    @pytest.fixture
    async def world(self, tmp_path: Path) -> AsyncIterator[World]:
        clock = FakeClock()
        async with running_manager(await SqliteEngine.open(str(tmp_path / "onejob.db"), clock=clock)) as url:

            async def opened() -> Engine:
                return await open_remote(url)

            async with wrapped_world("bare", opened, clock) as world:
                yield world


class TestBareRemotePostgres(ExactContract):
    @pytest.fixture
    async def world(self, postgres_url: str, store_clock: StoreClock) -> AsyncIterator[World]:
        async with AsyncExitStack() as managers:

            async def opened() -> Engine:
                engine = await PostgresEngine.open(postgres_url, clock=store_clock)
                return await open_remote(await managers.enter_async_context(running_manager(engine)))

            async with wrapped_world("bare", opened, store_clock) as world:
                yield world
