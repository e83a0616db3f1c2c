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

from onejob.core.replies import KeyHeld
from onejob.core.states import ENDED_STATES
from onejob.core.views import HeldKey, Receipt
from onejob.errors import LeaseLost, NotFound, OnejobError

from . import Ledger
from .present import build_held_key

T = TypeVar("T")
OnLeaseLost = Callable[[BaseException], None]

RENEWALS_PER_LEASE = 3  # in the time of one lease, at least
# However long the lease: by its renewals others see that a holder lives.
RENEWAL_PAUSE_SECONDS_MAX = 5.0
JITTER = 0.2
SETTLE_ATTEMPTS_MAX = 5
PAUSE_FIRST = 0.02

log = logging.getLogger("onejob")

# The loop alone would let go of a task that nobody waits for.
_orphaned_tasks: set[asyncio.Task[Any]] = set()


class LeaseRenewal:
    """A held key while something is done under it."""

    def __init__(self, ledger: Ledger, held_key: HeldKey) -> None:
        self._ledger = ledger
        self.held_key = held_key
        self.is_over = False  # whatever is still being done under it is in vain

    @property
    def lease_until(self) -> datetime:
        """When the lease ends unless it is renewed once more."""
        return self.held_key.lease_until

    async def renew(self) -> None:
        self.held_key = await self._ledger.renew(self.held_key)
        if self.held_key.job_id and await self._job_has_ended():
            raise _JobEnded

    async def _job_has_ended(self) -> bool:
        try:
            return (await self._ledger.job(self.held_key.job_id)).state in ENDED_STATES
        except NotFound:
            return False  # not for this caller to see; the commit will tell


class FinalRejection(Exception):
    """Work that ended with a refusal for good: its key is rejected with these bytes, and is not tried again."""

    def __init__(self, receipt: bytes) -> None:
        super().__init__(receipt)
        self.receipt = receipt


class _JobEnded(Exception):
    """The job was cancelled while something was done for it."""


def describe_error(error: BaseException) -> str:
    """What an exception says of itself, if it can, as text that can be written anywhere."""
    try:
        return str(error).encode(errors="backslashreplace").decode()
    except Exception:  # noqa: BLE001 - somebody else's class, whose text fails
        return type(error).__name__


def orphaned_task_count() -> int:
    """How much work was told to stop, and has not."""
    return len(_orphaned_tasks)


async def run_under_lease(
    ledger: Ledger, held_key: HeldKey, work: Callable[[LeaseRenewal], Coroutine[Any, Any, bytes]]
) -> Receipt:
    """Do the work of a held key, then commit the key with what it gave. A failure gives it up, to be tried again."""
    keeping = LeaseRenewal(ledger, held_key)
    try:
        receipt = await run_while_renewing(
            work(keeping),
            keeping.renew,
            interval_seconds=_renewal_interval_seconds(held_key.lease_ms),
            jitter_seed=held_key.holder,
        )
        return await settle_with_retries(lambda: ledger.commit(keeping.held_key, receipt))
    except _JobEnded:
        # To commit it tells everybody who asks for the key what became of its job.
        return await settle_with_retries(lambda: ledger.commit(keeping.held_key))
    except FinalRejection as verdict:
        receipt = verdict.receipt
        await settle_with_retries(lambda: ledger.reject(keeping.held_key, receipt))
        raise
    except LeaseLost:
        raise
    except (Exception, BaseExceptionGroup, asyncio.CancelledError) as error:
        keeping.is_over = True
        # Where this fails the lease ends by itself, which only takes longer.
        with suppress(OnejobError):
            await ledger.fail(keeping.held_key, describe_error(error))
        raise
    finally:
        keeping.is_over = True


class RenewalTimer:
    """Held keys with leases of one length, each renewed once that becomes due.

    What is done sooner costs a place in a table: one timer watches over all of them, by the eldest.
    """

    def __init__(self, ledger: Ledger, lease_ms: int) -> None:
        self._ledger = ledger
        self._lease_ms = lease_ms
        self._interval_seconds = _renewal_interval_seconds(lease_ms)
        self._not_yet_due: dict[bytes, tuple[float, KeyHeld, OnLeaseLost]] = {}  # by holder, the eldest first
        self._tasks: dict[bytes, asyncio.Task[Any]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self, held: KeyHeld, on_lost: OnLeaseLost) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # What was held in another loop, such as that of an earlier test, went with it; its timer never rings.
            self._loop, self._timer = loop, None
            self._not_yet_due.clear()
            self._tasks.clear()
        self._not_yet_due[held.holder] = (loop.time() + self._interval_seconds / 2, held, on_lost)
        if self._timer is None:
            self._timer = loop.call_later(self._interval_seconds / 2, self._renew_due)

    def end(self, holder: bytes) -> None:
        """The timer stays: it finds nothing to do, or somebody younger."""
        if self._not_yet_due.pop(holder, None) is None and (task := self._tasks.pop(holder, None)) is not None:
            task.cancel()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for holder in (*self._not_yet_due, *self._tasks):
            self.end(holder)

    def _renew_due(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        for holder, (due, held, lost) in tuple(self._not_yet_due.items()):
            if due > loop.time():
                self._timer = loop.call_at(due, self._renew_due)
                return
            del self._not_yet_due[holder]
            self._start_renewing(held, lost)

    def _start_renewing(self, held: KeyHeld, on_lost: OnLeaseLost) -> None:
        def ended(task: "asyncio.Task[Any]") -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                on_lost(error)

        keeping = LeaseRenewal(self._ledger, build_held_key(held, key="", scope="", lease_ms=self._lease_ms))
        task = asyncio.create_task(_renew_forever(keeping.renew, self._interval_seconds, held.holder))
        self._tasks[held.holder] = task
        task.add_done_callback(ended)


async def run_while_renewing(
    work: Coroutine[Any, Any, T],
    renew: Callable[[], Awaitable[object]],
    *,
    interval_seconds: float,
    jitter_seed: bytes,
) -> T:
    """Do some work while what it stands on is renewed. The first refusal to renew stops the work and is raised."""
    working = asyncio.create_task(work)
    renewing = asyncio.create_task(_renew_forever(renew, interval_seconds, jitter_seed))
    try:
        await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
        return await (working if working.done() else renewing)
    finally:
        renewing.cancel()
        if not working.done():
            _orphan_task(working)


async def _renew_forever(renew: Callable[[], Awaitable[object]], interval_seconds: float, jitter_seed: bytes) -> Any:
    """Renew until told to stop; ends only by raising."""
    done = True
    for turn in count():
        # Holders that began together do not renew together. The name of a holder was drawn: it is chance enough.
        early = JITTER * jitter_seed[turn % len(jitter_seed)] / 255
        # A lease that ran out is still ours as long as nobody took it: while the store is away, keep asking.
        await asyncio.sleep(interval_seconds * (1 - early) if done else min(1.0, interval_seconds / 3))
        done = await _try_renew(renew)


def _renewal_interval_seconds(lease_ms: int) -> float:
    """The seconds from one renewal to the next."""
    return max(PAUSE_FIRST, min(lease_ms / 1000 / RENEWALS_PER_LEASE, RENEWAL_PAUSE_SECONDS_MAX))


async def _try_renew(renew: Callable[[], Awaitable[object]]) -> bool:
    try:
        await renew()
    except OnejobError as error:
        if not error.retryable:
            raise
        return False
    return True


async def settle_with_retries(settle: Callable[[], Awaitable[T]]) -> T:
    """Settle, and again while the store is in trouble: said twice with equal content it is done once."""
    for attempt in range(SETTLE_ATTEMPTS_MAX - 1):
        try:
            return await settle()
        except OnejobError as error:
            if not error.retryable:
                raise
        await asyncio.sleep(PAUSE_FIRST * 2**attempt)
    return await settle()


def _orphan_task(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    _orphaned_tasks.add(task)
    task.add_done_callback(_on_orphan_done)


def _on_orphan_done(task: "asyncio.Task[Any]") -> None:
    _orphaned_tasks.discard(task)
    if not task.cancelled() and task.exception() is not None:
        log.warning("work that was told to stop ended with %s", type(task.exception()).__name__)
