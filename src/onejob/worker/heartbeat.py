"""One heart for all attempts of a worker: their leases are prolonged together, and what they say travels along.

A refusal tells that a job is not ours any more: it was cancelled, or somebody else has it. While the store cannot be
asked, a lease that has run out by this machine's clock is as good as lost.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress

from onejob.core.receipt import AnyReply, Extended, Reason, Refused
from onejob.core.work import Extend
from onejob.engines.gate import Gate

from .run import Run, Why

BEATS = 3  # in the time of one lease
# However long the lease: by its beats a worker sees that a job was cancelled.
PAUSE_MAX = 5.0
GATHER_SECONDS = 0.02


class Heartbeat:
    def __init__(self, gate: Gate, runs: Collection[Run], *, lease: float) -> None:
        self._gate = gate
        self._runs = runs
        self._every = min(lease / BEATS, PAUSE_MAX)
        self._stirred = asyncio.Event()

    def stir(self, _: Run) -> None:
        """Somebody has something to tell."""
        self._stirred.set()

    async def beat(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._every
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._stirred.wait()
                    await asyncio.sleep(GATHER_SECONDS)  # others may have something to tell, too
            self._stirred.clear()
            if loop.time() < due:
                await self._tell([run for run in self._runs if run.context.untold and not run.settling])
                continue
            well = await self._tell([run for run in self._runs if not run.settling])
            due = loop.time() + (self._every if well else self._every / BEATS)

    async def _tell(self, runs: list[Run]) -> bool:
        """Extend these leases; False where the store could not be asked."""
        if not runs:
            return True
        sent = asyncio.get_running_loop().time()
        words: list[tuple[Run, Extend, Callable[[], None]]] = [(run, *run.news()) for run in runs]
        replies = await self._gate.results([extend for _, extend, _ in words])
        for (run, _, heard), reply in zip(words, replies, strict=True):
            if isinstance(reply, Extended):
                run.heard(sent)
                heard()
                if run.context.untold:
                    self._stirred.set()  # more than one word could carry
            else:
                _take_badly(run, reply)
        return not any(isinstance(reply, BaseException) for reply in replies)


def _take_badly(run: Run, reply: AnyReply | BaseException) -> None:
    if isinstance(reply, Refused) and reply.reason is Reason.TIMED_OUT:
        run.stop(Why.LATE)
    elif not isinstance(reply, BaseException) or asyncio.get_running_loop().time() > run.lease_end:
        run.stop(Why.OUTDONE)
