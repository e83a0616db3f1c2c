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


class Post:
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
        self._threads: ThreadPoolExecutor | None = None
        self._waiting: list[asyncio.Future[None]] = []

    def threads(self) -> ThreadPoolExecutor:
        """For plain functions; made when the first one runs."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._threads_max, "onejob-handler")
        return self._threads

    def count(self, word: str) -> None:
        self.counts[word] += 1

    async def insist(self, words: Sequence[Command[Any]], *, until: float) -> AnyReply | BaseException:
        """The reply to the last of these; they are repeated, all the same, until a moment of the loop's time."""
        loop = asyncio.get_running_loop()
        pause = PAUSE_FIRST
        while True:
            await self._together()
            reply = (await self.gate.results(words))[-1]
            if not isinstance(reply, (Unavailable, Unknown)) or loop.time() + pause > until:
                return reply
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_MAX)

    def collect(self) -> None:
        """Let everything that is to be said go out now: whoever claims in the same moment shares its commit."""
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)

    async def _together(self) -> None:
        """Until others that end in this moment are here as well."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        if not self._waiting:
            loop.call_soon(loop.call_soon, self.collect)
        self._waiting.append(turn)
        await turn

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
