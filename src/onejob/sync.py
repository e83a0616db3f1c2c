"""The ledger for callers without an event loop: `onejob.sync.open(url)`, the same names, no `await`.

A background thread runs one event loop for all threads of the process, so their submissions share commits.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, InvalidStateError, wait
from contextlib import suppress
from datetime import timedelta
from functools import wraps
from threading import Lock, Thread
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast

from .core.credentials import Role
from .core.identity import Actor
from .engine import Durability
from .engines.gate import CacheStats
from .errors import OnejobError, StoreRefused, Unavailable, Unknown
from .ledger import Ledger as AsyncLedger
from .ledger import LedgerOpener, api_keys
from .ledger import open as open_async
from .ledger.admin import Admin
from .ledger.api_keys import ApiKeyView, NewKey
from .ledger.leases import FinalRejection, LeaseRenewal, run_under_lease
from .runtime.receipts import HeldKey, Receipt
from .runtime.stats import Stats

P = ParamSpec("P")
R = TypeVar("R")

CANCEL_SECONDS_MAX = 5.0


def _blocking(
    method: Callable[Concatenate[AsyncLedger, P], Coroutine[Any, Any, R]], /
) -> Callable[Concatenate["SyncLedger", P], R]:
    @wraps(method)
    def call(self: "SyncLedger", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.run(method(self._ledger, *args, **kwargs))

    return call


def _blocking_admin(
    method: Callable[Concatenate[Admin, P], Coroutine[Any, Any, R]], /
) -> Callable[Concatenate["SyncAdmin", P], R]:
    @wraps(method)
    def call(self: "SyncAdmin", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.run(method(self.async_admin, *args, **kwargs))

    return call


def _refuse_green_threads() -> None:
    """Refuse gevent and eventlet where they have replaced threads: an event loop in a green thread blocks all others."""
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    is_patched = (gevent is not None and gevent.is_module_patched("threading")) or (
        eventlet is not None and eventlet.is_monkey_patched("thread")
    )
    if is_patched:
        raise StoreRefused(
            "gevent or eventlet has replaced the threads of this process, and the ledger needs a real one: "
            "use a server with threads, such as gunicorn --worker-class gthread"
        )


class LoopThread:
    """An event loop in a thread of its own, for coroutines of all other threads."""

    def __init__(self) -> None:
        _refuse_green_threads()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="onejob-loop", daemon=True)
        self._pid = os.getpid()
        self._lock = Lock()
        self._is_closed = False
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, R]) -> "Future[R]":
        if os.getpid() != self._pid:  # where another thread may have held the lock
            work.close()
            raise Unavailable("this ledger was opened before a fork: nothing was done; open one in this process")
        with self._lock:
            if not self._is_closed:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise Unavailable("this ledger is closed: nothing was done; open another one")

    def result(self, future: "Future[R]") -> R:
        try:
            return future.result()
        except CancelledError:
            if not self._is_closed:
                raise
            raise Unknown("the ledger was closed during this call: it may be done; retry it with another one") from None

    @property
    def is_open(self) -> bool:
        return not self._is_closed and os.getpid() == self._pid

    def close(self, last_work: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Do the last work, cancel what still runs, and end the thread. From now on everything else is refused."""
        with self._lock:
            self._is_closed = True
        try:
            if last_work is not None:
                asyncio.run_coroutine_threadsafe(last_work(), self._loop).result()
        finally:
            asyncio.run_coroutine_threadsafe(_cancel_other_tasks(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


async def _cancel_other_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=CANCEL_SECONDS_MAX)


class SyncAdmin:
    """The verbs of operators, blocking."""

    def __init__(self, admin: Admin, loop: LoopThread) -> None:
        self.async_admin = admin
        self._loop = loop

    sweep = _blocking_admin(Admin.sweep)
    purge = _blocking_admin(Admin.purge)
    overview = _blocking_admin(Admin.overview)
    users = _blocking_admin(Admin.users)
    clients = _blocking_admin(Admin.clients)
    all_reservations = _blocking_admin(Admin.all_reservations)
    callbacks = _blocking_admin(Admin.callbacks)
    search = _blocking_admin(Admin.search)
    job_details = _blocking_admin(Admin.job_details)
    bulk_action = _blocking_admin(Admin.bulk_action)
    count_jobs = _blocking_admin(Admin.count_jobs)
    pause_type = _blocking_admin(Admin.pause_type)
    paused_types = _blocking_admin(Admin.paused_types)
    resume_type = _blocking_admin(Admin.resume_type)
    workers = _blocking_admin(Admin.workers)
    set_tenant_quota = _blocking_admin(Admin.set_tenant_quota)
    tenant_quota = _blocking_admin(Admin.tenant_quota)
    schedules = _blocking_admin(Admin.schedules)
    pause_schedule = _blocking_admin(Admin.pause_schedule)
    resume_schedule = _blocking_admin(Admin.resume_schedule)
    delete_schedule = _blocking_admin(Admin.delete_schedule)
    register_schedule = _blocking_admin(Admin.register_schedule)

    def cache_stats(self) -> CacheStats:
        return self.async_admin.cache_stats()

    def runtime_stats(self) -> Stats:
        return self.async_admin.runtime_stats()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        return self._loop.result(self._loop.start(work))


class SyncLedger:
    """The ledger whose methods block until they have their result. Safe to use from any number of threads."""

    def __init__(self, ledger: AsyncLedger, loop: LoopThread, *, owns_loop: bool) -> None:
        self._ledger = ledger
        self._loop = loop
        self._owns_loop = owns_loop  # False: a view for another caller; the ledger that was opened stops the loop

    submit = _blocking(AsyncLedger.submit)
    begin_step = _blocking(AsyncLedger.begin_step)
    finish_step = _blocking(AsyncLedger.finish_step)
    steps = _blocking(AsyncLedger.steps)
    submit_many = _blocking(AsyncLedger.submit_many)
    submit_prepared = _blocking(AsyncLedger.submit_prepared)
    dry_run = _blocking(AsyncLedger.dry_run)
    dry_run_prepared = _blocking(AsyncLedger.dry_run_prepared)
    submit_sequence = _blocking(AsyncLedger.submit_sequence)
    submit_sequence_prepared = _blocking(AsyncLedger.submit_sequence_prepared)
    get_client_state = _blocking(AsyncLedger.get_client_state)
    check_or_reserve = _blocking(AsyncLedger.check_or_reserve)
    reserve = _blocking(AsyncLedger.reserve)
    renew = _blocking(AsyncLedger.renew)
    commit = _blocking(AsyncLedger.commit)
    reject = _blocking(AsyncLedger.reject)
    fail = _blocking(AsyncLedger.fail)
    job = _blocking(AsyncLedger.job)
    jobs = _blocking(AsyncLedger.jobs)
    input = _blocking(AsyncLedger.input)
    cancel = _blocking(AsyncLedger.cancel)
    explain = _blocking(AsyncLedger.explain)
    keys = _blocking(AsyncLedger.keys)
    forget = _blocking(AsyncLedger.forget)
    reserve_job_slot = _blocking(AsyncLedger.reserve_job_slot)
    reserve_job_slot_or_raise = _blocking(AsyncLedger.reserve_job_slot_or_raise)
    consume_reservation = _blocking(AsyncLedger.consume_reservation)
    consume_reservation_or_raise = _blocking(AsyncLedger.consume_reservation_or_raise)
    release_reservation = _blocking(AsyncLedger.release_reservation)
    release_reservation_or_raise = _blocking(AsyncLedger.release_reservation_or_raise)
    renew_reservation = _blocking(AsyncLedger.renew_reservation)
    reservations = _blocking(AsyncLedger.reservations)
    usage = _blocking(AsyncLedger.usage)
    quota = _blocking(AsyncLedger.quota)
    set_quota = _blocking(AsyncLedger.set_quota)
    store_idempotency_key = _blocking(AsyncLedger.store_idempotency_key)
    claim = _blocking(AsyncLedger.claim)
    start = _blocking(AsyncLedger.start)
    extend = _blocking(AsyncLedger.extend)
    finish = _blocking(AsyncLedger.finish)
    release = _blocking(AsyncLedger.release)
    resolve = _blocking(AsyncLedger.resolve)
    rerun = _blocking(AsyncLedger.rerun)
    result = _blocking(AsyncLedger.result)
    result_json = _blocking(AsyncLedger.result_json)
    wait = _blocking(AsyncLedger.wait)
    wait_at_most = _blocking(AsyncLedger.wait_at_most)
    log_lines = _blocking(AsyncLedger.log_lines)
    sites = _blocking(AsyncLedger.sites)
    failures = _blocking(AsyncLedger.failures)

    def run_under_lease(self, held_key: HeldKey, work: Callable[[], bytes]) -> Receipt:
        """Run work in this thread while the key's lease is renewed, then commit the key with the returned bytes."""
        begun: Future[None] = Future()
        result: Future[bytes] = Future()

        async def wait_for_result(_: LeaseRenewal) -> bytes:
            begun.set_result(None)
            return await asyncio.wrap_future(result)

        settled = self._loop.start(run_under_lease(self._ledger, held_key, wait_for_result))
        wait((begun, cast("Future[None]", settled)), return_when=FIRST_COMPLETED)
        if not begun.done():  # the lease was over
            return self._loop.result(settled)
        try:
            returned = work()
            with suppress(InvalidStateError):  # the lease was lost, and nobody waits for the result
                result.set_result(returned)
        except FinalRejection as rejection:
            with suppress(InvalidStateError):
                result.set_exception(rejection)
        except BaseException:
            result.cancel()  # the exception is raised in this thread, not in the loop
            with suppress(CancelledError, OnejobError):
                settled.result()
            raise
        return self._loop.result(settled)

    @property
    def admin(self) -> "SyncAdmin":
        """The verbs of operators."""
        return SyncAdmin(self._ledger.admin, self._loop)

    @property
    def durability(self) -> Durability:
        return self._ledger.durability

    @property
    def async_ledger(self) -> AsyncLedger:
        return self._ledger

    def run(self, work: Coroutine[Any, Any, R], *, on_abandoned: Callable[[R], object] | None = None) -> R:
        """Run a coroutine of the asynchronous ledger on its loop, and block until it has ended.

        If this thread is interrupted meanwhile, the coroutine goes on, and `on_abandoned` is called on the loop with its
        result.
        """
        if on_abandoned is None:
            return self._loop.result(self._loop.start(work))
        call = _AbandonableCall(work, on_abandoned)
        try:
            return self._loop.result(self._loop.start(call.run()))
        except Unavailable:
            work.close()  # it was refused before it began, or it has ended
            raise
        except (KeyboardInterrupt, SystemExit):
            with suppress(Unavailable):  # the loop has ended, and the coroutine with it
                self._loop.start(call.abandon())
            raise

    def acting_as(self, *, tenant: str, user: str, actor: Actor) -> "SyncLedger":
        other = self._ledger.acting_as(tenant=tenant, user=user, actor=actor)
        return SyncLedger(other, self._loop, owns_loop=False)

    def close(self) -> None:
        if self._owns_loop and self._loop.is_open:
            self._loop.close(self._ledger.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _AbandonableCall(Generic[R]):
    """A coroutine whose result is given to `on_abandoned` if nobody waits for it any more, before or after its end."""

    def __init__(self, work: Coroutine[Any, Any, R], on_abandoned: Callable[[R], object]) -> None:
        self._work = work
        self._on_abandoned = on_abandoned
        self._is_abandoned = False
        self._results: list[R] = []

    async def run(self) -> R:
        result = await self._work
        self._results.append(result)
        if self._is_abandoned:
            self._on_abandoned(result)
        return result

    async def abandon(self) -> None:
        self._is_abandoned = True
        for result in self._results:
            self._on_abandoned(result)


class SyncApiKeys:
    """The API keys of a ledger's tenant; see onejob.ledger.api_keys."""

    def __init__(self, ledger: SyncLedger) -> None:
        self._ledger = ledger
        self._keys = api_keys.ApiKeys(ledger.async_ledger)

    def create(self, name: str, *, roles: Iterable[Role | str], user: str = "") -> NewKey:
        return self._ledger.run(self._keys.create(name, roles=roles, user=user))

    def list(self) -> Sequence[ApiKeyView]:
        return self._ledger.run(self._keys.list())

    def rotate(self, key_id: str, *, overlap: timedelta = api_keys.OVERLAP_DEFAULT) -> NewKey:
        return self._ledger.run(self._keys.rotate(key_id, overlap=overlap))

    def revoke(self, key_id: str) -> ApiKeyView:
        return self._ledger.run(self._keys.revoke(key_id))


def _blocking_open(opener: Callable[P, LedgerOpener], /) -> Callable[P, SyncLedger]:
    @wraps(opener)
    def open(*args: P.args, **kwargs: P.kwargs) -> SyncLedger:
        loop = LoopThread()

        async def open_ledger() -> AsyncLedger:
            return await opener(*args, **kwargs)

        try:
            ledger = loop.result(loop.start(open_ledger()))
        except BaseException:
            loop.close()
            raise
        return SyncLedger(ledger, loop, owns_loop=True)

    return open


open = _blocking_open(open_async)
