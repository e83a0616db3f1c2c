"""One heartbeat for all attempts of a worker: it extends their leases and stores their pending updates together.

A refused extension means that the job was cancelled or claimed by another worker. While the store is unavailable, or does
not answer, each attempt stops when its lease has expired on the local clock (attempt.py).
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress

from onejob.core.replies import AnyReply, Extended, Reason, Refused
from onejob.core.work import Extend
from onejob.engines.gate import Gate

from .attempt import RunningAttempt, StopReason

BEATS_PER_LEASE = 3
# Independent of the lease, because a worker learns of a cancelled job from its heartbeat.
INTERVAL_SECONDS_MAX = 5.0
COALESCE_SECONDS = 0.02


class Heartbeat:
    def __init__(self, gate: Gate, runs: Collection[RunningAttempt], *, lease_seconds: float) -> None:
        self._gate = gate
        self._runs = runs
        self._interval = min(lease_seconds / BEATS_PER_LEASE, INTERVAL_SECONDS_MAX)
        self._wakeup = asyncio.Event()

    def wake(self, _: RunningAttempt) -> None:
        """Store pending updates soon."""
        self._wakeup.set()

    async def beat(self) -> None:
        """Run until cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._interval
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._wakeup.wait()
                    await asyncio.sleep(COALESCE_SECONDS)  # other attempts may have updates, too
            self._wakeup.clear()
            if loop.time() < due:
                await self._extend_leases(
                    [run for run in self._runs if run.context.pending_updates and run.needs_lease]
                )
                continue
            stored = await self._extend_leases([run for run in self._runs if run.needs_lease])
            due = loop.time() + (self._interval if stored else self._interval / BEATS_PER_LEASE)

    async def _extend_leases(self, runs: list[RunningAttempt]) -> bool:
        """Extend these leases; False if the store could not be reached."""
        if not runs:
            return True
        sent = asyncio.get_running_loop().time()
        extensions: list[tuple[RunningAttempt, Extend, Callable[[], None]]] = [
            (run, *run.build_extend()) for run in runs
        ]
        replies = await self._gate.execute_each([extend for _, extend, _ in extensions])
        for (run, _, on_stored), reply in zip(extensions, replies, strict=True):
            if isinstance(reply, Extended):
                run.set_lease_end(sent)
                on_stored()
                if run.context.pending_updates:
                    self._wakeup.set()  # more lines than one command takes
            else:
                _on_extend_failed(run, reply)
        return not any(isinstance(reply, BaseException) for reply in replies)


def _on_extend_failed(run: RunningAttempt, reply: AnyReply | BaseException) -> None:
    if isinstance(reply, Refused) and reply.reason is Reason.TIMED_OUT:
        run.stop(StopReason.TIMED_OUT)
    elif not isinstance(reply, BaseException):
        run.stop(StopReason.LEASE_LOST)
