"""The shipped suite on our engines: each bare, wrapped, behind the batcher, and behind the gate. Nothing is skipped.

`make test` runs every rule on every bare engine, and on the engine in memory behind each wrapper; `make test-matrix` runs the
other engines behind each wrapper.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from onejob.clock import FakeClock
from onejob.conformance import EngineContract, World
from onejob.conformance.commands import FactsRead, IncrementCounter
from onejob.conformance.samples import TENANT
from onejob.conformance.world import expect
from onejob.core.command import Command
from onejob.core.errors import Invalid
from onejob.core.facts import Kind
from onejob.core.replies import AnyReply
from onejob.engine import PAGE_MAX, Durability, Engine, EngineInfo, ListFacts, OnSettled, OnTimeout, Page, Query
from onejob.engines import sqlite
from onejob.engines.batcher import Batcher
from onejob.engines.bucket import BucketEngine
from onejob.engines.bucket.objects import LocalDates, ObstoreObjects
from onejob.engines.bucket.replica import ReplicaFile
from onejob.engines.bucket.url import ViewMode, open_store, parse_bucket_url
from onejob.engines.gate import Gate
from onejob.engines.memory import MemoryEngine
from onejob.engines.postgres import PostgresEngine
from onejob.engines.sqlite import SqliteEngine
from onejob.settings import IdempotencyConfig
from tests.support.postgres_server import StoreClock

T = TypeVar("T")

# The suite wants to hear that a key is held, not to wait for it.
CONFIG = IdempotencyConfig(wait_for_pending=False)


class PlainWrapper:
    """Forwards the methods of an engine and drops its hints: wrapping an engine changes no answer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def info(self) -> EngineInfo:
        info = self._engine.info
        return EngineInfo(name=info.name, ledger_id=info.ledger_id, durability=info.durability)

    async def execute(
        self, commands: Sequence[Command[Any]], /, *, on_timeout: OnTimeout | None = None
    ) -> Sequence[AnyReply]:
        return await self._engine.execute(commands, on_timeout=on_timeout)

    async def scan(self, query: Query[T], /) -> Page[T]:
        return await self._engine.scan(query)

    async def barrier(self, tenant: str | None, user: str | None = None) -> None:
        await self._engine.barrier(tenant, user)

    def read_now(self, commands: Sequence[Command[Any]], /) -> Sequence[AnyReply] | None:
        return None

    def subscribe(self, on_settled: OnSettled, /) -> None:
        pass

    async def aclose(self) -> None:
        await self._engine.aclose()


WRAPPERS: dict[str, Callable[[Engine, FakeClock], Engine]] = {
    "bare": lambda engine, clock: engine,
    "batched": lambda engine, clock: Batcher(engine),
    "gated": lambda engine, clock: Gate(Batcher(engine), CONFIG, clock.monotonic),
    "wrapped": lambda engine, clock: Gate(Batcher(PlainWrapper(engine)), CONFIG, clock.monotonic),
}
WRAPPERS_AS_MATRIX = [pytest.param(name, marks=[] if name == "bare" else pytest.mark.matrix) for name in WRAPPERS]


class ExactContract(EngineContract):
    """Our clocks stand still, so the suite's milliseconds are exact."""

    async def test_time_moves_only_when_advanced(self, world: World) -> None:
        moments = []
        for ms in (0, 1, 999):
            await world.advance(ms)
            moments.append((await expect(world.engine, IncrementCounter(tenant=TENANT), FactsRead)).at)
        assert [moment - moments[0] for moment in moments] == [0, 1, 1000]


class TestMemory(ExactContract):
    @pytest.fixture(params=WRAPPERS)
    async def world(self, request: pytest.FixtureRequest) -> AsyncIterator[World]:
        clock = FakeClock()
        store = MemoryEngine(clock)

        async def opened() -> Engine:
            # Another engine on the same dictionaries is what another process would be to a file.
            engine = MemoryEngine(clock)
            engine.facts, engine.attachments, engine.info = store.facts, store.attachments, store.info
            return engine

        async with wrapped_world(request.param, opened, clock) as world:
            yield world

    async def test_durability_is_the_process(self, world: World) -> None:
        assert world.engine.info.durability is Durability.PROCESS


class TestSqlite(ExactContract):
    @pytest.fixture(params=WRAPPERS_AS_MATRIX)
    async def world(
        self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[World]:
        monkeypatch.setattr(sqlite, "FAST_PATH_PAUSE_BATCHES", 0)  # every batch tries it
        clock = FakeClock()

        async def opened() -> Engine:
            return await SqliteEngine.open(str(tmp_path / "onejob.db"), clock=clock)

        async with wrapped_world(request.param, opened, clock) as world:
            yield world

    async def test_durability_is_the_disk(self, world: World) -> None:
        assert world.engine.info.durability is Durability.DISK


class TestPostgres(ExactContract):
    @pytest.fixture(params=WRAPPERS_AS_MATRIX)
    async def world(
        self, request: pytest.FixtureRequest, postgres_url: str, store_clock: StoreClock
    ) -> AsyncIterator[World]:
        async def opened() -> Engine:
            return await PostgresEngine.open(postgres_url, clock=store_clock)

        async with wrapped_world(request.param, opened, store_clock) as world:
            yield world

    async def test_durability_is_the_disk(self, world: World) -> None:
        assert world.engine.info.durability is Durability.DISK


class TestBucketFolder(ExactContract):
    """The clock of a folder is that of its machine, so the tests have it in hand. Its wrappers are in `make prove`."""

    @pytest.fixture
    async def world(self, tmp_path: Path) -> AsyncIterator[World]:
        clock = FakeClock()

        async def opened() -> Engine:
            return await BucketEngine.open(f"file://{tmp_path / 'bucket'}?replica={tmp_path}", clock=clock)

        async with World(opened, advance=lambda ms: clock.advance(ms / 1000)) as world:
            yield world

    async def test_durability_is_the_process(self, world: World) -> None:
        assert world.engine.info.durability is Durability.PROCESS


class TestBucket(ExactContract):
    """A real S3 server, whose time is that of the tests."""

    @pytest.fixture
    async def world(self, bucket_url: str, tmp_path: Path) -> AsyncIterator[World]:
        clock = FakeClock()

        async def opened() -> Engine:
            url = parse_bucket_url(bucket_url)
            objects = ObstoreObjects(open_store(url), LocalDates(clock))
            engine = BucketEngine(objects, ReplicaFile(str(tmp_path), url.place), clock=clock, view=ViewMode.OFF)
            await engine.start()
            return engine

        async with World(opened, advance=lambda ms: clock.advance(ms / 1000)) as world:
            yield world

    async def test_durability_is_the_disk(self, world: World) -> None:
        assert world.engine.info.durability is Durability.DISK


@pytest.mark.parametrize("limit", [0, -1, PAGE_MAX + 1, 10**9])
def test_no_query_asks_for_an_unbounded_page(limit: Any) -> None:
    with pytest.raises(Invalid):
        ListFacts(tenant=TENANT, kind=Kind.JOB, limit=limit)


def wrapped_world(front: str, opened: Callable[[], Awaitable[Engine]], clock: FakeClock) -> World:
    async def fronted() -> Engine:
        return WRAPPERS[front](await opened(), clock)

    return World(fronted, advance=lambda ms: clock.advance(ms / 1000))
