"""An engine in front of an engine that fails on cue, in the ways that real stores fail."""

import asyncio
from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, TypeVar

from onejob.core.receipt import AnyReply
from onejob.core.step import Command
from onejob.engine import Durability, Engine, Page, Query
from onejob.errors import Unavailable, Unknown

T = TypeVar("T")


class Fault(StrEnum):
    """What becomes of one batch of commands."""

    NONE = "none"
    BEFORE = "before"  # it is refused, and nothing was done
    AFTER = "after"  # it is committed, and the answer is lost


class FaultyEngine:
    """Behaves like the engine behind it, but for the faults that were queued; each is for one batch."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._faults: deque[Fault] = deque()
        self._delays: deque[float] = deque()
        self.batches = 0

    @property
    def durability(self) -> Durability:
        return self._engine.durability

    def fail_before(self, times: int = 1) -> None:
        """The next batches fail before anything is done."""
        self._faults.extend([Fault.BEFORE] * times)

    def fail_after(self, times: int = 1) -> None:
        """The next batches are committed, and then their answer is lost."""
        self._faults.extend([Fault.AFTER] * times)

    def succeed(self, times: int = 1) -> None:
        """The next batches are let alone, before later faults come."""
        self._faults.extend([Fault.NONE] * times)

    def delay(self, seconds: float, times: int = 1) -> None:
        """The next batches take so much longer."""
        self._delays.extend([seconds] * times)

    def clear_faults(self) -> None:
        """Forget every fault that has not come yet."""
        self._faults.clear()
        self._delays.clear()

    async def execute(self, commands: Sequence[Command[Any]], /) -> Sequence[AnyReply]:
        self.batches += 1
        if self._delays:
            await asyncio.sleep(self._delays.popleft())
        fault = self._faults.popleft() if self._faults else Fault.NONE
        if fault is Fault.BEFORE:
            raise Unavailable("a test made the store fail: nothing was done; repeat")
        replies = await self._engine.execute(commands)
        if fault is Fault.AFTER:
            raise Unknown("a test lost the answer: it is done; execute the same commands again")
        return replies

    async def scan(self, query: Query[T], /) -> Page[T]:
        return await self._engine.scan(query)

    async def aclose(self) -> None:
        await self._engine.aclose()
