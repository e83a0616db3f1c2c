"""A gate in front of a watched engine, for the tests of the gate."""

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

from onejob.clock import FakeClock
from onejob.conformance.samples import ACTOR, TENANT
from onejob.conformance.world import expect
from onejob.core.command import Command
from onejob.core.replies import AnyReply, Cancelled, Reply
from onejob.core.work import Cancel
from onejob.engines.batcher import Batcher
from onejob.engines.gate import Gate
from onejob.settings import IdempotencyConfig
from tests.support.recording_engine import RecordingEngine, run_ready_callbacks

R = TypeVar("R", bound=Reply)


class RecordingGate(Gate):
    def __init__(self, clock: FakeClock, *, engine: RecordingEngine | None = None, **config: Any) -> None:
        self.clock = clock
        self.engine = engine or RecordingEngine(clock)
        super().__init__(Batcher(self.engine), IdempotencyConfig(**config), clock.monotonic)

    async def ask(self, command: Command[Any], kind: type[R]) -> R:
        return await expect(self, command, kind)

    def start_call(self, *commands: Command[Any]) -> "asyncio.Task[list[AnyReply | BaseException]]":
        return asyncio.get_running_loop().create_task(self.execute_each(commands))

    async def cancel_behind_the_gate(self, job_id: bytes) -> None:
        """End a job behind the gate's back, as another process would."""
        await expect(self.engine.store, Cancel(tenant=TENANT, job_id=job_id, actor=ACTOR), Cancelled)

    async def start_and_hold(
        self, commands: Sequence[Command[Any]], *, decided: bool = False
    ) -> "list[asyncio.Task[list[Any]]]":
        """Each command in a call of its own, none answered yet."""
        self.engine.hold_writes(after_deciding=decided)
        tasks = [self.start_call(command) for command in commands]
        await run_ready_callbacks()
        assert not any(task.done() for task in tasks)
        return tasks

    async def release_and_collect(self, tasks: "Sequence[asyncio.Task[list[Any]]]") -> list[Any]:
        self.engine.release_writes()
        return [result for (result,) in await asyncio.gather(*tasks)]
