"""Waiting for work. What this process commits is heard at once; what others commit is seen by looking.

All who wait for the same types look together: 20 ms doubling to 1 s, earlier where a job's time comes earlier. While
nobody waits, nobody looks.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress

from .core.facts import Job
from .core.receipt import AnyReply, Committed, Created, Finished, Released, Resolved, Settled
from .core.states import CLAIMABLE
from .engine import Waiting
from .engines.gate import Gate
from .errors import OnejobError
from .ids import Ids

PAUSE_FIRST = 0.02
PAUSE_MAX = 1.0
JITTER = 0.25
LINES_MAX = 1000

log = logging.getLogger("onejob")

Line = tuple[tuple[str, ...], str | None]  # types, and the tenant if it is one


class Lookout:
    def __init__(self, gate: Gate, ids: Ids) -> None:
        self._gate = gate
        self._ids = ids
        self._lines: OrderedDict[Line, _Watch] = OrderedDict()
        self.closed = False

    def listen(self, types: tuple[str, ...], tenant: str | None) -> "Ear":
        """From now on hear of jobs that become free; to claim only then misses none of them."""
        return Ear(self, (types, tenant))

    def found(self, types: tuple[str, ...], tenant: str | None) -> None:
        """Something was claimed: where there was one, the next may come soon."""
        self._watch((types, tenant)).pause = PAUSE_FIRST

    def told(self, replies: Sequence[AnyReply | Exception]) -> None:
        """Wake one who waits for each job that has become free."""
        if not any(watch.waiters for watch in self._lines.values()):
            return
        for job in (job for reply in replies for job in _freed(reply)):
            for (types, tenant), watch in self._lines.items():
                if watch.waiters and job.type in types and tenant in (None, job.tenant):
                    watch.wake(1)
                    break

    def close(self) -> None:
        """Nobody waits any more."""
        self.closed = True
        for watch in self._lines.values():
            watch.wake(len(watch.waiters))

    def _watch(self, line: Line) -> "_Watch":
        watch = self._lines.get(line)
        if watch is None:
            watch = self._lines[line] = _Watch()
            idle = [key for key, known in self._lines.items() if known is not watch and not known.waiters]
            for key in idle[: max(len(self._lines) - LINES_MAX, 0)]:
                del self._lines[key]
        return watch

    async def _look(self, line: Line, watch: "_Watch") -> None:
        types, tenant = line
        due = PAUSE_MAX
        failing = False
        while True:
            early = JITTER * self._ids.holder()[0] / 255
            await asyncio.sleep(min(watch.pause * (1 - early), due))
            watch.pause = min(watch.pause * 2, PAUSE_MAX)
            try:
                page = await self._gate.scan(Waiting(types=types, tenant=tenant))
                due = min((one.wait_ms / 1000 for one in page.items), default=PAUSE_MAX)
                failing = False
            except OnejobError as error:  # whoever claims will be told; here it is only not known
                if not failing:
                    log.warning("whoever waits for jobs must wait longer: %s", error)
                due, failing = PAUSE_MAX, True
            if due <= 0:
                # A job that was claimed and not started looks like a free one, so the pause goes on growing.
                due = PAUSE_MAX
                watch.wake(len(watch.waiters))


class Ear:
    """One who claims, and waits where there is nothing."""

    def __init__(self, lookout: Lookout, line: Line) -> None:
        self._lookout = lookout
        self._line = line
        self._watch = lookout._watch(line)
        self._signal: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watch.waiters[self._signal] = None
        self._waited = False

    async def wait(self, seconds: float) -> None:
        """Until there may be something to claim, or the time is up."""
        self._waited = True
        watch = self._watch
        if self._lookout.closed or self._signal.done():
            return
        watch.waiting += 1
        if watch.task is None:
            looking = self._lookout._look(self._line, watch)
            watch.task = asyncio.get_running_loop().create_task(looking)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._signal
        finally:
            watch.waiting -= 1
            if not watch.waiting and watch.task is not None:
                watch.task.cancel()
                watch.task = None

    def close(self) -> None:
        self._watch.waiters.pop(self._signal, None)
        if self._signal.done() and not self._signal.cancelled() and not self._waited:
            self._watch.wake(1)  # what was heard in vain is for the next


class _Watch:
    """Who waits on one line, and the look-out that they share."""

    def __init__(self) -> None:
        self.waiters: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self.waiting = 0  # of the waiters: the others are claiming
        self.task: asyncio.Task[None] | None = None
        self.pause = PAUSE_FIRST

    def wake(self, most: int) -> None:
        for _ in range(min(most, len(self.waiters))):
            signal, _ = self.waiters.popitem(last=False)
            if not signal.done():
                signal.set_result(None)


def _freed(reply: AnyReply | Exception) -> Iterator[Job]:
    """The jobs that somebody may claim now, or could from a time on."""
    jobs: tuple[Job | None, ...] = ()
    if isinstance(reply, (Created, Settled, Released, Finished, Resolved)):
        jobs = (reply.job,)
    elif isinstance(reply, Committed):
        jobs = reply.jobs
    return (job for job in jobs if job is not None and job.state in CLAIMABLE and not job.lease_until)
