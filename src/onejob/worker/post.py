"""Where the words of a worker go: to the ledger, and again while it is in trouble."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from onejob.core.receipt import AnyReply
from onejob.core.step import Command
from onejob.engines.gate import Gate
from onejob.errors import Unavailable, Unknown

PAUSE_FIRST = 0.02
PAUSE_MAX = 1.0


class AttemptReporter:
    def __init__(
        self,
        gate: Gate,
        *,
        actor: str,
        retention_ms: int,
        describe: Callable[[BaseException], str],
        threads_max: int,
    ) -> None:
        self.gate = gate
        self.actor = actor
        self.retention_ms = retention_ms
        self.describe = describe
        self.counts: Counter[str] = Counter()
        self._threads_max = threads_max
        self._thread_pool: ThreadPoolExecutor | None = None
        self._coalescing: list[asyncio.Future[None]] = []

    def thread_pool(self) -> ThreadPoolExecutor:
        """For plain functions; made when the first one runs."""
        if self._thread_pool is None:
            self._thread_pool = ThreadPoolExecutor(self._threads_max, "onejob-handler")
        return self._thread_pool

    def count(self, outcome: str) -> None:
        self.counts[outcome] += 1

    async def execute_with_retry(
        self, commands: Sequence[Command[Any]], *, until: float
    ) -> AnyReply | BaseException:
        """The reply to the last of these; they are repeated, all the same, until a moment of the loop's time."""
        loop = asyncio.get_running_loop()
        pause = PAUSE_FIRST
        while True:
            await self._coalesce()
            reply = (await self.gate.execute_each(commands))[-1]
            if not isinstance(reply, (Unavailable, Unknown)) or loop.time() + pause > until:
                return reply
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_MAX)

    def flush(self) -> None:
        """Let everything that is to be said go out now: whoever claims in the same moment shares its commit."""
        waiting, self._coalescing = self._coalescing, []
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)

    async def _coalesce(self) -> None:
        """Until others that end in this moment are here as well."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        if not self._coalescing:
            loop.call_soon(loop.call_soon, self.flush)
        self._coalescing.append(turn)
        await turn

    def close(self) -> None:
        if self._thread_pool is not None:
            self._thread_pool.shutdown(wait=False, cancel_futures=True)
