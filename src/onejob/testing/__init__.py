"""For the tests of those who submit: a clock that is moved, an engine that fails on cue, deaths at named points.

The pytest plugin comes with the package; its fixtures are `onejob_clock`, `onejob_faults` and `onejob_ledger`.
"""

import asyncio
import os
import signal
from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from onejob.clock import Clock, FakeClock
from onejob.core.command import Command
from onejob.core.identity import Actor
from onejob.core.replies import AnyReply
from onejob.core.views import JobView
from onejob.engine import Engine, EngineInfo, OnSettled, OnTimeout, Page, Query
from onejob.engines.memory import MemoryEngine
from onejob.errors import NotFound, Unavailable, Unknown
from onejob.ids import SystemIds
from onejob.ledger import Ledger
from onejob.ledger.parse import Caller
from onejob.ledger.runtime import Runtime
from onejob.settings import IdempotencyConfig

__all__ = ["FakeClock", "Fault", "FaultyEngine", "KillPoints", "assert_submitted_once", "open_ledger"]

# An engine in front of an engine that fails on cue, in the ways that real stores fail.


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
    def info(self) -> EngineInfo:
        return self._engine.info

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

    async def execute(
        self, commands: Sequence[Command[Any]], /, *, on_timeout: OnTimeout | None = None
    ) -> Sequence[AnyReply]:
        self.batches += 1
        if self._delays:
            await asyncio.sleep(self._delays.popleft())
        fault = self._faults.popleft() if self._faults else Fault.NONE
        if fault is Fault.BEFORE:
            raise Unavailable("a test made the store fail: nothing was done; repeat")
        replies = await self._engine.execute(commands, on_timeout=on_timeout)
        if fault is Fault.AFTER:
            raise Unknown("a test lost the answer: it is done; execute the same commands again")
        return replies

    async def scan(self, query: Query[T], /) -> Page[T]:
        return await self._engine.scan(query)

    async def barrier(self, tenant: str, user: str | None = None) -> None:
        await self._engine.barrier(tenant, user)

    def read_now(self, commands: Sequence[Command[Any]], /) -> Sequence[AnyReply] | None:
        return None  # every read passes through `execute`, where faults are queued

    def subscribe(self, on_settled: OnSettled, /) -> None:
        self._engine.subscribe(on_settled)

    async def aclose(self) -> None:
        await self._engine.aclose()


# Deaths at named points: a process ends itself as `kill -9` would, so that a test can look at what is left.


Kill = Callable[[], None]


def die() -> None:
    """End this process now: no handler runs, nothing is flushed."""
    os.kill(os.getpid(), signal.SIGKILL)


class KillPoints:
    """Reached points are counted; the one that was chosen kills. `at=None` only counts, to learn how many there are."""

    def __init__(self, at: int | None = None, *, kill: Kill = die) -> None:
        self._at = at
        self._kill = kill
        self.reached: list[str] = []

    def reach(self, name: str) -> None:
        self.reached.append(name)
        if self._at is not None and len(self.reached) == self._at:
            self._kill()


# The one assertion that matters.


async def assert_submitted_once(ledger: Ledger, key: str, *, scope: str, type: str | None = None) -> JobView:
    """The key made a job, and no other job of its type has that key; returns the job."""
    try:
        story = await ledger.explain(key, scope=scope)
    except NotFound:
        raise AssertionError(f"key {key!r} was never submitted in scope {scope!r}") from None
    assert story.job is not None, f"key {key!r} has no job: it is {story.status}"
    before: str | None = None
    same: list[str] = []
    while True:
        page = await ledger.jobs(type=type or story.job.type, before=before, limit=1000)
        same += [job.id for job in page if job.key == key and job.scope == story.job.scope]
        if page.next is None:
            break
        before = page.next
    assert same == [story.job.id], f"key {key!r} made {len(same)} jobs: {', '.join(same)}"
    return story.job


# A ledger for tests: in memory, on a clock that is moved, in front of faults.


def open_ledger(
    engine: Engine | None = None, *, clock: Clock | None = None, config: IdempotencyConfig | None = None
) -> Ledger:
    """A ledger on this engine, or on a new one in memory; a duplicate of what is held is told so at once."""
    clock = clock or FakeClock()
    engine = engine or FaultyEngine(MemoryEngine(clock))
    config = config or IdempotencyConfig(pending_wait_timeout=0)
    host = Runtime(engine, config, clock=clock, ids=SystemIds())
    return Ledger(host, Caller(actor=str(Actor.client("local"))))
