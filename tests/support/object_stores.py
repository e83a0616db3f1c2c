"""Object stores for tests: one in memory with a clock, and wrappers that count requests, lose them or delay them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

from onejob.clock import Clock, make_engine_clock, wall_offset_ms
from onejob.engines.bucket.objects import ObjectInfo, ObjectStore, RequestFailed, SlowDown, StoreDate

T = TypeVar("T")


class MemoryObjects:
    """Objects in a dictionary, which several engines may share."""

    def __init__(self, clock: Clock) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}
        self._now = make_engine_clock(clock, wall_offset_ms(clock))

    async def create(self, name: str, data: bytes) -> bool:
        await asyncio.sleep(0)
        if name in self.objects:
            return False
        self.objects[name] = data, self._now()
        return True

    async def put(self, name: str, data: bytes) -> None:
        await asyncio.sleep(0)
        self.objects[name] = data, self._now()

    async def get(self, name: str) -> bytes | None:
        await asyncio.sleep(0)
        return self.objects[name][0] if name in self.objects else None

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        await asyncio.sleep(0)
        names = sorted(name for name in self.objects if name.startswith(f"{prefix}/") and name > after)
        yield [ObjectInfo(name, len(self.objects[name][0]), self.objects[name][1]) for name in names]

    async def delete(self, names: Sequence[str]) -> None:
        await asyncio.sleep(0)
        for name in names:
            self.objects.pop(name, None)

    async def upload(self, name: str, file: Path) -> None:
        await self.put(name, file.read_bytes())  # noqa: ASYNC240 - small files of tests

    async def download(self, name: str, file: Path) -> bool:
        data = await self.get(name)
        if data is not None:
            file.write_bytes(data)  # noqa: ASYNC240 - the same
        return data is not None

    async def read_date(self) -> StoreDate:
        await asyncio.sleep(0)
        return StoreDate(self._now(), 1)

    async def aclose(self) -> None:
        pass


class WrappedObjects:
    """Passes every request through `intercept`, which subclasses change."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner

    async def intercept(self, kind: str, name: str, ask: Callable[[], Awaitable[T]]) -> T:
        return await ask()

    async def create(self, name: str, data: bytes) -> bool:
        return await self.intercept("create", name, lambda: self.inner.create(name, data))

    async def put(self, name: str, data: bytes) -> None:
        await self.intercept("put", name, lambda: self.inner.put(name, data))

    async def get(self, name: str) -> bytes | None:
        return await self.intercept("get", name, lambda: self.inner.get(name))

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        async def collect() -> Sequence[ObjectInfo]:
            return [one async for page in self.inner.list(prefix, after) for one in page]

        yield await self.intercept("list", prefix, collect)

    async def delete(self, names: Sequence[str]) -> None:
        await self.intercept("delete", names[0] if names else "", lambda: self.inner.delete(names))

    async def upload(self, name: str, file: Path) -> None:
        await self.intercept("put", name, lambda: self.inner.upload(name, file))

    async def download(self, name: str, file: Path) -> bool:
        return await self.intercept("get", name, lambda: self.inner.download(name, file))

    async def read_date(self) -> StoreDate:
        return await self.intercept("date", "", self.inner.read_date)

    async def aclose(self) -> None:
        await self.inner.aclose()


class CountingObjects(WrappedObjects):
    """Counts requests by kind and folder."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.counts: Counter[tuple[str, str]] = Counter()

    async def intercept(self, kind: str, name: str, ask: Callable[[], Awaitable[T]]) -> T:
        self.counts[kind, name.partition("/")[0]] += 1
        return await ask()


class DyingObjects(WrappedObjects):
    """After some requests have been executed, the process hears nothing more."""

    def __init__(self, inner: ObjectStore, requests: int) -> None:
        super().__init__(inner)
        self.requests_left = requests
        self.died = asyncio.Event()

    async def intercept(self, kind: str, name: str, ask: Callable[[], Awaitable[T]]) -> T:
        if self.requests_left > 0:
            self.requests_left -= 1
            answer = await ask()
            if self.requests_left > 0:
                return answer
        self.died.set()
        await asyncio.Event().wait()
        raise AssertionError


class FaultyObjects(WrappedObjects):
    """Loses requests and answers, delivers puts late and twice, and asks to slow down."""

    def __init__(self, inner: ObjectStore, rng: Random, weight: float = 0.05) -> None:
        super().__init__(inner)
        self._rng = rng
        self.weight = weight
        self.late: set[asyncio.Task[object]] = set()

    async def intercept(self, kind: str, name: str, ask: Callable[[], Awaitable[T]]) -> T:
        await asyncio.sleep(self._rng.random() * 0.002)
        drawn = self._rng.random() / self.weight if self.weight else 9.0
        if drawn < 1:
            raise RequestFailed("the request was lost")
        if drawn < 2:
            await ask()
            raise RequestFailed("the answer was lost")
        if drawn < 3 and kind in ("create", "put"):
            self._deliver_late(ask)
            raise RequestFailed("no answer yet")
        if drawn < 4 and kind == "create":
            self._deliver_late(ask)
            return await ask()
        if drawn < 5:
            raise SlowDown("503 SlowDown")
        return await ask()

    def _deliver_late(self, ask: Callable[[], Awaitable[object]]) -> None:
        async def later() -> object:
            await asyncio.sleep(self._rng.random() * 0.04)
            return await ask()

        task = asyncio.get_running_loop().create_task(later())
        self.late.add(task)
        task.add_done_callback(self.late.discard)


class CarelessObjects(WrappedObjects):
    """A store that ignores If-None-Match, as some do."""

    async def create(self, name: str, data: bytes) -> bool:
        await self.inner.put(name, data)
        return True
