"""Work under a lease: what it stands on is renewed while it runs, and what was lost is never settled.

A loss tells the work to stop, and does not wait for it: work that will not hear is left alone, for the fence
(job id, token, holder) refuses whatever it might still settle.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import datetime
from itertools import count
from typing import Any, TypeVar

from .core.receipt import Held
from .core.states import ENDED
from .core.views import Receipt, Reservation
from .errors import LeaseLost, NotFound, OnejobError
from .ledger import Ledger
from .outcome import reservation_of

T = TypeVar("T")
Lost = Callable[[BaseException], None]

RENEWALS = 3  # in the time of one lease, at least
# However long the lease: by its renewals others see that a holder lives.
PAUSE_SECONDS_MAX = 5.0
JITTER = 0.2
ATTEMPTS_MAX = 5
PAUSE_FIRST = 0.02

log = logging.getLogger("onejob")

# The loop alone would let go of a task that nobody waits for.
_left_alone: set[asyncio.Task[Any]] = set()


class Keeping:
    """A held key while something is done under it."""

    def __init__(self, ledger: Ledger, held: Reservation) -> None:
        self._ledger = ledger
        self.held = held
        self.over = False  # whatever is still being done under it is in vain

    @property
    def until(self) -> datetime:
        """When the lease ends unless it is renewed once more."""
        return self.held.lease_until

    async def renew(self) -> None:
        self.held = await self._ledger.renew(self.held)
        if self.held.job_id and await self._has_ended():
            raise _JobEnded

    async def _has_ended(self) -> bool:
        try:
            return (await self._ledger.job(self.held.job_id)).state in ENDED
        except NotFound:
            return False  # not for this caller to see; the commit will tell


class Final(Exception):
    """Work that ended with a refusal for good: its key is rejected with these bytes, and is not tried again."""

    def __init__(self, receipt: bytes) -> None:
        super().__init__(receipt)
        self.receipt = receipt


class _JobEnded(Exception):
    """The job was cancelled while something was done for it."""


def told(error: BaseException) -> str:
    """What an exception says of itself, if it can, as text that can be written anywhere."""
    try:
        return str(error).encode(errors="backslashreplace").decode()
    except Exception:  # noqa: BLE001 - somebody else's class, whose text fails
        return type(error).__name__


def left_alone() -> int:
    """How much work was told to stop, and has not."""
    return len(_left_alone)


async def carried_out(
    ledger: Ledger, held: Reservation, work: Callable[[Keeping], Coroutine[Any, Any, bytes]]
) -> Receipt:
    """Do the work of a held key, then commit the key with what it gave. A failure gives it up, to be tried again."""
    keeping = Keeping(ledger, held)
    try:
        receipt = await kept(work(keeping), keeping.renew, every=_pause(held.lease_ms), chance=held.holder)
        return await repeated(lambda: ledger.commit(keeping.held, receipt))
    except _JobEnded:
        # To commit it tells everybody who asks for the key what became of its job.
        return await repeated(lambda: ledger.commit(keeping.held))
    except Final as verdict:
        receipt = verdict.receipt
        await repeated(lambda: ledger.reject(keeping.held, receipt))
        raise
    except LeaseLost:
        raise
    except (Exception, BaseExceptionGroup, asyncio.CancelledError) as error:
        keeping.over = True
        # Where this fails the lease ends by itself, which only takes longer.
        with suppress(OnejobError):
            await ledger.fail(keeping.held, told(error))
        raise
    finally:
        keeping.over = True


class Renewals:
    """Held keys with leases of one length, each renewed once that becomes due.

    What is done sooner costs a place in a table: one timer watches over all of them, by the eldest.
    """

    def __init__(self, ledger: Ledger, lease_ms: int) -> None:
        self._ledger = ledger
        self._lease_ms = lease_ms
        self._every = _pause(lease_ms)
        self._young: dict[bytes, tuple[float, Held, Lost]] = {}  # by holder, the eldest first
        self._tasks: dict[bytes, asyncio.Task[Any]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self, held: Held, lost: Lost) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # What was held in another loop, such as that of an earlier test, went with it; its timer never rings.
            self._loop, self._timer = loop, None
            self._young.clear()
            self._tasks.clear()
        self._young[held.holder] = (loop.time() + self._every / 2, held, lost)
        if self._timer is None:
            self._timer = loop.call_later(self._every / 2, self._look)

    def end(self, holder: bytes) -> None:
        """The timer stays: it finds nothing to do, or somebody younger."""
        if self._young.pop(holder, None) is None and (task := self._tasks.pop(holder, None)) is not None:
            task.cancel()

    def aclose(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for holder in (*self._young, *self._tasks):
            self.end(holder)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        for holder, (due, held, lost) in tuple(self._young.items()):
            if due > loop.time():
                self._timer = loop.call_at(due, self._look)
                return
            del self._young[holder]
            self._renew(held, lost)

    def _renew(self, held: Held, lost: Lost) -> None:
        def ended(task: "asyncio.Task[Any]") -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                lost(error)

        keeping = Keeping(self._ledger, reservation_of(held, key="", scope="", lease_ms=self._lease_ms))
        task = asyncio.create_task(_renewed(keeping.renew, self._every, held.holder))
        self._tasks[held.holder] = task
        task.add_done_callback(ended)


async def kept(
    work: Coroutine[Any, Any, T], renew: Callable[[], Awaitable[object]], *, every: float, chance: bytes
) -> T:
    """Do some work while what it stands on is renewed. The first refusal to renew stops the work and is raised."""
    working = asyncio.create_task(work)
    renewing = asyncio.create_task(_renewed(renew, every, chance))
    try:
        await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
        return await (working if working.done() else renewing)
    finally:
        renewing.cancel()
        if not working.done():
            _leave_alone(working)


async def _renewed(renew: Callable[[], Awaitable[object]], every: float, chance: bytes) -> Any:
    """Renew until told to stop; ends only by raising."""
    done = True
    for turn in count():
        # Holders that began together do not renew together. The name of a holder was drawn: it is chance enough.
        early = JITTER * chance[turn % len(chance)] / 255
        # A lease that ran out is still ours as long as nobody took it: while the store is away, keep asking.
        await asyncio.sleep(every * (1 - early) if done else min(1.0, every / 3))
        done = await _was_done(renew)


def _pause(lease_ms: int) -> float:
    """The seconds from one renewal to the next."""
    return max(PAUSE_FIRST, min(lease_ms / 1000 / RENEWALS, PAUSE_SECONDS_MAX))


async def _was_done(renew: Callable[[], Awaitable[object]]) -> bool:
    try:
        await renew()
    except OnejobError as error:
        if not error.retryable:
            raise
        return False
    return True


async def repeated(settle: Callable[[], Awaitable[T]]) -> T:
    """Settle, and again while the store is in trouble: said twice with equal content it is done once."""
    for attempt in range(ATTEMPTS_MAX - 1):
        try:
            return await settle()
        except OnejobError as error:
            if not error.retryable:
                raise
        await asyncio.sleep(PAUSE_FIRST * 2**attempt)
    return await settle()


def _leave_alone(working: "asyncio.Task[Any]") -> None:
    working.cancel()
    _left_alone.add(working)
    working.add_done_callback(_ended_alone)


def _ended_alone(working: "asyncio.Task[Any]") -> None:
    _left_alone.discard(working)
    if not working.cancelled() and working.exception() is not None:
        log.warning("work that was told to stop ended with %s", type(working.exception()).__name__)
