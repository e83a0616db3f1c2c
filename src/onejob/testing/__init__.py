"""Test helpers for users: a fake clock, an engine with injected faults, kill points, an assertion, a ledger in memory.

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
from onejob.engine import Engine, EngineInfo, OnSettled, OnTimeout, Page, Query
from onejob.engines.memory import MemoryEngine
from onejob.errors import NotFound, Unavailable, Unknown
from onejob.ids import SystemIds
from onejob.ledger import Ledger
from onejob.resources.jobs import JobView
from onejob.runtime import Runtime
from onejob.runtime.callers import Caller
from onejob.settings import IdempotencyConfig

__all__ = ["FakeClock", "Fault", "FaultyEngine", "KillPoints", "assert_submitted_once", "open_ledger"]

T = TypeVar("T")


class Fault(StrEnum):
    """What happens to one batch of commands."""

    NONE = "none"
    BEFORE = "before"  # it fails, and nothing was done
    AFTER = "after"  # it is committed, and the reply is lost


class FaultyEngine:
    """Wraps an engine and injects the queued faults, one per batch."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._faults: deque[Fault] = deque()
        self._delays: deque[float] = deque()
        self._delays_after: deque[float] = deque()
        self.batches = 0

    @property
    def info(self) -> EngineInfo:
        return self._engine.info

    def fail_before(self, times: int = 1) -> None:
        """Let the next batches fail before anything is done."""
        self._faults.extend([Fault.BEFORE] * times)

    def fail_after(self, times: int = 1) -> None:
        """Let the next batches commit, and lose their replies."""
        self._faults.extend([Fault.AFTER] * times)

    def succeed(self, times: int = 1) -> None:
        """Let the next batches succeed, before the faults that are queued later."""
        self._faults.extend([Fault.NONE] * times)

    def delay(self, seconds: float, times: int = 1) -> None:
        """Let the next batches take so much longer."""
        self._delays.extend([seconds] * times)

    def delay_after(self, seconds: float, times: int = 1) -> None:
        """Let the next batches commit, and their replies come so much later."""
        self._delays_after.extend([seconds] * times)

    def clear_faults(self) -> None:
        """Drop all queued faults and delays."""
        self._faults.clear()
        self._delays.clear()
        self._delays_after.clear()

    async def execute(
        self, commands: Sequence[Command[Any]], /, *, on_timeout: OnTimeout | None = None
    ) -> Sequence[AnyReply]:
        self.batches += 1
        if self._delays:
            await asyncio.sleep(self._delays.popleft())
        fault = self._faults.popleft() if self._faults else Fault.NONE
        if fault is Fault.BEFORE:
            raise Unavailable("injected fault: nothing was done; retry")
        replies = await self._engine.execute(commands, on_timeout=on_timeout)
        if self._delays_after:
            await asyncio.sleep(self._delays_after.popleft())
        if fault is Fault.AFTER:
            raise Unknown("injected fault: committed, but the reply was lost; retry the same commands")
        return replies

    async def scan(self, query: Query[T], /) -> Page[T]:
        return await self._engine.scan(query)

    async def barrier(self, tenant: str | None, user: str | None = None) -> None:
        await self._engine.barrier(tenant, user)

    def read_now(self, commands: Sequence[Command[Any]], /) -> Sequence[AnyReply] | None:
        return None  # every read passes through `execute`, where faults are queued

    def subscribe(self, on_settled: OnSettled, /) -> None:
        self._engine.subscribe(on_settled)

    async def aclose(self) -> None:
        await self._engine.aclose()


Kill = Callable[[], None]


def die() -> None:
    """End this process as `kill -9` does: no handler runs, nothing is flushed."""
    os.kill(os.getpid(), signal.SIGKILL)


class KillPoints:
    """Named points in a program; reaching the chosen one kills the process. `at=None` only counts the points."""

    def __init__(self, at: int | None = None, *, kill: Kill = die) -> None:
        self._at = at
        self._kill = kill
        self.reached: list[str] = []

    def reach(self, name: str) -> None:
        self.reached.append(name)
        if self._at is not None and len(self.reached) == self._at:
            self._kill()


async def assert_submitted_once(ledger: Ledger, key: str, *, scope: str, type: str | None = None) -> JobView:
    """Assert that the key created exactly one job of its type; returns the job."""
    try:
        history = await ledger.explain(key, scope=scope)
    except NotFound:
        raise AssertionError(f"key {key!r} was never submitted in scope {scope!r}") from None
    assert history.job is not None, f"key {key!r} has no job: it is {history.status}"
    before: str | None = None
    job_ids: list[str] = []
    while True:
        page = await ledger.jobs(type=type or history.job.type, before=before, limit=1000)
        job_ids += [job.id for job in page if job.key == key and job.scope == history.job.scope]
        if page.next is None:
            break
        before = page.next
    assert job_ids == [history.job.id], f"key {key!r} created {len(job_ids)} jobs: {', '.join(job_ids)}"
    return history.job


def open_ledger(
    engine: Engine | None = None, *, clock: Clock | None = None, config: IdempotencyConfig | None = None
) -> Ledger:
    """A ledger on this engine, or on a new one in memory; a duplicate of a pending key does not wait."""
    clock = clock or FakeClock()
    engine = engine or FaultyEngine(MemoryEngine(clock))
    config = config or IdempotencyConfig(pending_wait_timeout=0)
    runtime = Runtime(engine, config, clock=clock, ids=SystemIds())
    return Ledger(runtime, Caller(actor=str(Actor.client("local"))))
