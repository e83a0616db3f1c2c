"""An engine to stand behind what is tried: it can be held up, made to fail, and asked what it was given."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeVar

from onejob.clock import FakeClock
from onejob.core.command import Command
from onejob.core.replies import AnyReply
from onejob.engine import Durability, EngineBase, EngineInfo, OnTimeout, Page, Query
from onejob.engines.batcher import Batcher
from onejob.engines.memory import MemoryEngine

T = TypeVar("T")


class RecordingEngine(EngineBase):
    def __init__(self, clock: FakeClock) -> None:
        self.info = EngineInfo(name="recording", ledger_id="recorded", durability=Durability.PROCESS)
        self.clock = clock
        self.store = MemoryEngine(clock)
        self.batches: list[list[Command[Any]]] = []
        self.times: list[float] = []
        self.fail_before: deque[Exception] = deque()  # failures before anything is done
        self.fail_after: deque[Exception] = deque()  # … and after it is done: the answer is lost
        self.close_count = 0
        self._released = asyncio.Event()
        self._released.set()
        self._hold_after_deciding = False

    def hold_writes(self, *, after_deciding: bool = False) -> None:
        """Let no batch of writes pass; once `decided`, it is the answer that is held back."""
        self._released.clear()
        self._hold_after_deciding = after_deciding

    def release_writes(self) -> None:
        self._released.set()

    @property
    def commands(self) -> list[Command[Any]]:
        return [command for batch in self.batches for command in batch]

    def commands_of_type(self, kind: type[T]) -> list[T]:
        return [command for command in self.commands if isinstance(command, kind)]

    async def execute(
        self, commands: Sequence[Command[Any]], /, *, on_timeout: OnTimeout | None = None
    ) -> Sequence[AnyReply]:
        self.batches.append(list(commands))
        self.times.append(self.clock.monotonic())
        writes = any(command.writes for command in commands)
        if writes and not self._hold_after_deciding:
            await self._released.wait()
        if self.fail_before:
            raise self.fail_before.popleft()
        replies = await self.store.execute(commands)
        if writes:
            await self._released.wait()
        if self.fail_after:
            raise self.fail_after.popleft()
        return replies

    async def scan(self, query: Query[T], /) -> Page[T]:
        return await self.store.scan(query)

    async def barrier(self, tenant: str | None, user: str | None = None) -> None:
        await self.store.barrier(tenant, user)

    async def aclose(self) -> None:
        self.close_count += 1
        await self.store.aclose()


async def run_ready_callbacks() -> None:
    """Let everything run that can run without anybody's help."""
    for _ in range(20):
        await asyncio.sleep(0)


def start_call(combined: Batcher, *commands: Command[Any]) -> "asyncio.Task[Sequence[AnyReply]]":
    return asyncio.get_running_loop().create_task(_call(combined, commands))


async def _call(combined: Batcher, commands: Sequence[Command[Any]]) -> Sequence[AnyReply]:
    return await combined.execute(commands)
