"""Runs work under the lease of a held key: renews the lease meanwhile, then settles the key.

When the lease is lost the work is cancelled and not waited for. Work that ignores the cancellation is orphaned: the
fence (job id, token, holder) refuses whatever it may still try to settle.

A lease is lost when the store says so, and when it has run out on the clock of this process, counted from before the
request that began it was sent: a store that does not answer cannot say that another holder has the key.

Three classes renew leases, because they serve different loads:

- `LeaseRenewal` (here): one held key, one task beside the work. For work that may take long, such as an upload.
- `RenewalTimer` (here): the held keys of the middleware, one for each HTTP request. Most requests end long before
  their first renewal is due, so one timer watches all of them and none has a task until then.
- `worker.heartbeat.Heartbeat`: the job leases of a worker. One command for each job extends its lease and carries its
  progress and log lines, and all of them go in one batch.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeVar

from onejob.backoff import Backoff
from onejob.core.states import ENDED_STATES
from onejob.errors import LeaseExpired, LeaseLost, NotFound, OnejobError, Unknown
from onejob.ledger.base import runtime_of
from onejob.runtime import Runtime
from onejob.runtime.receipts import HeldKey, Receipt, build_held_key

from . import Ledger
from .held_keys import PreparedKeyHeld

T = TypeVar("T")
OnLeaseLost = Callable[[BaseException], None]
Settle = Callable[[], Coroutine[Any, Any, Receipt]]

RENEWALS_PER_LEASE = 3  # at least
RENEWAL_PAUSE_SECONDS_MAX = 5.0  # however long the lease: renewals show others that the holder is alive
JITTER = 0.2
SETTLE_ATTEMPTS_MAX = 5
PAUSE_FIRST = 0.02
SETTLE_PAUSE_SECONDS_MAX = 1.0

log = logging.getLogger("onejob")

# The event loop keeps only weak references to tasks.
_orphaned_tasks: set[asyncio.Task[Any]] = set()


class LeaseRenewal:
    """A held key whose lease is renewed while work is done under it."""

    def __init__(self, ledger: Ledger, held_key: HeldKey) -> None:
        self._ledger = ledger
        self.held_key = held_key
        self.is_over = False  # settled or lost: work that still runs can achieve nothing

    @property
    def runtime(self) -> Runtime:
        return runtime_of(self._ledger)

    @property
    def lease_until(self) -> datetime:
        """When the lease ends unless it is renewed again."""
        return self.held_key.lease_until

    async def run(self, work: Coroutine[Any, Any, T], *, is_settling: bool = False) -> T:
        """Run work while the lease is renewed."""
        return await run_while_renewing(
            work,
            self._renew_while_settling if is_settling else self._renew_unless_job_has_ended,
            interval_seconds=_renewal_interval_seconds(self.held_key.lease_ms),
            jitter_seed=self.held_key.holder,
            lease_end=self.held_key.lease_end,
        )

    async def commit(self, receipt: bytes) -> Receipt:
        return await self._ledger.commit(self.held_key, receipt)

    async def reject(self, receipt: bytes) -> Receipt:
        return await self._ledger.reject(self.held_key, receipt)

    async def fail(self, error: BaseException) -> None:
        """Release the key for another attempt. If this fails, it becomes free when its lease expires."""
        with suppress(OnejobError):
            await self._ledger.fail(self.held_key, describe_error(error))

    async def renew(self) -> float:
        """Renew the lease; returns when it ends, on the clock of the event loop."""
        self.held_key = await self._ledger.renew(self.held_key)
        return self.held_key.lease_end

    async def _renew_while_settling(self) -> float:
        """If the store says that the lease is lost, the key may be settled already: its settling will be told which."""
        with suppress(LeaseLost):
            await self.renew()
        return self.held_key.lease_end

    async def _renew_unless_job_has_ended(self) -> float:
        lease_end = await self.renew()
        if self.held_key.job_id and await self._job_has_ended():
            raise _JobEnded
        return lease_end

    async def _job_has_ended(self) -> bool:
        try:
            return (await self._ledger.job(self.held_key.job_id)).state in ENDED_STATES
        except NotFound:
            return False  # the caller may not see the job; the commit will report its end


class FinalRejection(Exception):
    """Raised by work to reject its key for good, with these bytes as the receipt."""

    def __init__(self, receipt: bytes) -> None:
        super().__init__(receipt)
        self.receipt = receipt


class _JobEnded(Exception):
    """The job was cancelled while its key was held."""


def describe_error(error: BaseException) -> str:
    """The exception's message as text that can always be encoded, or its class name if `str` fails."""
    try:
        return str(error).encode(errors="backslashreplace").decode()
    except Exception:  # noqa: BLE001 - `__str__` of a foreign class may raise anything
        return type(error).__name__


def orphaned_task_count() -> int:
    """How many cancelled tasks have not ended."""
    return len(_orphaned_tasks)


async def run_under_lease(
    ledger: Ledger, held_key: HeldKey, work: Callable[[LeaseRenewal], Coroutine[Any, Any, bytes]]
) -> Receipt:
    """Run work under a held key, then commit the key with the returned bytes.

    A failure releases the key for another attempt; FinalRejection rejects it. Once the work has ended, an outage of the store,
    or a cancelled caller, does not release the key: settling it is retried for as long as the lease can be renewed.
    """
    renewal = LeaseRenewal(ledger, held_key)
    if asyncio.get_running_loop().time() >= held_key.lease_end:
        raise _lease_expired()
    end = _WorkEnd()
    try:
        await renewal.run(end.record(work, renewal))
    except _JobEnded:
        # The commit makes submissions of this key answer with the cancelled job.
        end.settle = partial(renewal.commit, b"")
    except (LeaseLost, GeneratorExit):
        raise
    except BaseException as error:
        renewal.is_over = True
        if end.settle is None:
            await renewal.fail(error)
        else:  # the caller was cancelled in the moment in which the work ended
            _start_settling(renewal, end.settle).add_done_callback(_log_not_settled)
        raise
    finally:
        renewal.is_over = True
    assert end.settle is not None
    receipt = await _wait_until_settled(_start_settling(renewal, end.settle))
    if end.rejection is not None:
        raise end.rejection
    return receipt


class _WorkEnd:
    """How work has ended, and so how its key is settled."""

    settle: Settle | None = None  # None: it has not ended, or raised an exception
    rejection: FinalRejection | None = None

    async def record(self, work: Callable[[LeaseRenewal], Coroutine[Any, Any, bytes]], renewal: LeaseRenewal) -> None:
        try:
            self.settle = partial(renewal.commit, await work(renewal))
        except FinalRejection as rejection:
            self.rejection = rejection
            self.settle = partial(renewal.reject, rejection.receipt)


def _start_settling(renewal: LeaseRenewal, settle: Settle) -> "asyncio.Task[Receipt]":
    """Settle a key in a task of its own, which goes on when the caller is cancelled."""
    settling = asyncio.create_task(renewal.run(_settle_until_stored(renewal, settle), is_settling=True))
    renewal.runtime.settling_tasks.add(settling)
    settling.add_done_callback(renewal.runtime.settling_tasks.discard)
    return settling


async def _wait_until_settled(settling: "asyncio.Task[Receipt]") -> Receipt:
    try:
        return await asyncio.shield(settling)
    except LeaseExpired as error:
        raise _not_recorded("the lease expired") from error
    except asyncio.CancelledError:
        settling.add_done_callback(_log_not_settled)
        raise


async def _settle_until_stored(renewal: LeaseRenewal, settle: Settle) -> Receipt:
    backoff = Backoff(PAUSE_FIRST, SETTLE_PAUSE_SECONDS_MAX)
    while True:
        try:
            return await settle()
        except LeaseLost:
            raise
        except OnejobError as error:
            if not error.retryable:  # such as a receipt that is too large
                await renewal.fail(error)
                raise
            if renewal.runtime.is_closed:
                raise _not_recorded("the ledger was closed") from error
        await asyncio.sleep(next(backoff))


def _not_recorded(reason: str) -> Unknown:
    return Unknown(f"the work has ended, but {reason} before that was stored; a repetition may run it again")


class RenewalTimer:
    """Renews many held keys whose leases have the same length, each from the time its renewal is due.

    A key that ends before that costs one entry in a dict: a single timer is set for the oldest of all keys.
    """

    def __init__(self, ledger: Ledger, lease_ms: int) -> None:
        self._ledger = ledger
        self._lease_ms = lease_ms
        self._interval_seconds = _renewal_interval_seconds(lease_ms)
        self._not_yet_due: dict[bytes, tuple[float, PreparedKeyHeld, OnLeaseLost]] = {}  # by holder, the oldest first
        self._tasks: dict[bytes, asyncio.Task[Any]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self, held: PreparedKeyHeld, on_lost: OnLeaseLost) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # Timers and tasks of another loop, such as that of an earlier test, ended with it.
            self._loop, self._timer = loop, None
            self._not_yet_due.clear()
            self._tasks.clear()
        self._not_yet_due[held.holder] = (loop.time() + self._interval_seconds / 2, held, on_lost)
        if self._timer is None:
            self._timer = loop.call_later(self._interval_seconds / 2, self._renew_due)

    def end(self, holder: bytes) -> None:
        """Stop renewing a key. The timer stays set and then finds no key, or a younger one."""
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
        for holder, (due, held, on_lost) in tuple(self._not_yet_due.items()):
            if due > loop.time():
                self._timer = loop.call_at(due, self._renew_due)
                return
            del self._not_yet_due[holder]
            self._start_renewing(held, on_lost)

    def _start_renewing(self, held: PreparedKeyHeld, on_lost: OnLeaseLost) -> None:
        def on_done(task: "asyncio.Task[Any]") -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                on_lost(error)

        held_key = build_held_key(held, key="", scope="", lease_ms=self._lease_ms, lease_end=held.lease_end)
        renewal = LeaseRenewal(self._ledger, held_key)
        task = asyncio.create_task(
            _renew_until_lost(renewal.renew, self._interval_seconds, held.holder, held.lease_end)
        )
        self._tasks[held.holder] = task
        task.add_done_callback(on_done)


async def run_while_renewing(
    work: Coroutine[Any, Any, T],
    renew: Callable[[], Awaitable[float]],
    *,
    interval_seconds: float,
    jitter_seed: bytes,
    lease_end: float,
) -> T:
    """Run work while its lease is renewed. A refused renewal, or the end of the lease, cancels the work and is raised."""
    work_task = asyncio.create_task(_catch_exit(work))
    renewal_task = asyncio.create_task(_renew_until_lost(renew, interval_seconds, jitter_seed, lease_end))
    try:
        await asyncio.wait((work_task, renewal_task), return_when=asyncio.FIRST_COMPLETED)
        ended = await (work_task if work_task.done() else renewal_task)
    finally:
        renewal_task.cancel()
        if not work_task.done():
            _orphan_task(work_task)
    if isinstance(ended, _Exit):
        raise ended.error
    return ended


class _Exit(NamedTuple):
    """What ends an event loop if a task of its own raises it; so it is raised in the task of the caller."""

    error: BaseException


async def _catch_exit(work: Coroutine[Any, Any, T]) -> T | _Exit:
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        return _Exit(error)


async def _renew_until_lost(
    renew: Callable[[], Awaitable[float]], interval_seconds: float, jitter_seed: bytes, lease_end: float
) -> Any:
    """Renew until cancelled; ends only by raising. `renew` returns the new end of the lease."""
    renewed = True
    for turn in count():
        # Keys that were taken together should not renew together; the random bytes of the holder spread them.
        early = JITTER * jitter_seed[turn % len(jitter_seed)] / 255
        try:
            async with asyncio.timeout_at(lease_end):  # also while the store does not answer
                await asyncio.sleep(interval_seconds * (1 - early) if renewed else min(1.0, interval_seconds / 3))
                lease_end = await renew()
            renewed = True
        except TimeoutError:
            raise _lease_expired() from None
        except OnejobError as error:
            if not error.retryable:
                raise
            renewed = False


def _lease_expired() -> LeaseExpired:
    return LeaseExpired("the lease expired before the store answered, and the work was stopped; reserve the key again")


def _renewal_interval_seconds(lease_ms: int) -> float:
    return max(PAUSE_FIRST, min(lease_ms / 1000 / RENEWALS_PER_LEASE, RENEWAL_PAUSE_SECONDS_MAX))


async def settle_with_retries(settle: Callable[[], Awaitable[T]]) -> T:
    """Settle, with retries while the store fails: settling again with equal content succeeds."""
    backoff = Backoff(PAUSE_FIRST, SETTLE_PAUSE_SECONDS_MAX)
    for _ in range(SETTLE_ATTEMPTS_MAX - 1):
        try:
            return await settle()
        except OnejobError as error:
            if not error.retryable:
                raise
        await asyncio.sleep(next(backoff))
    return await settle()


def _orphan_task(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    _orphaned_tasks.add(task)
    task.add_done_callback(_on_orphan_done)


def _log_not_settled(task: "asyncio.Task[Receipt]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("work has ended, but its key could not be settled: %s", error)


def _on_orphan_done(task: "asyncio.Task[Any]") -> None:
    _orphaned_tasks.discard(task)
    if not task.cancelled() and task.exception() is not None:
        log.warning("cancelled work failed with %s", type(task.exception()).__name__)
