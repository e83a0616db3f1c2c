"""What the middleware and the FastAPI routes share: acquiring keys, replaying responses, running tasks.

A store in memory is known to one process only. Of the processes that one server has started, the first may use such a
store, and the others are refused: they would run a request that the first has done.
"""

import asyncio
import logging
import multiprocessing
import os
import socket
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any

from onejob.core.key import checked_key
from onejob.core.reserve import Verdict
from onejob.engine import Durability
from onejob.errors import OnejobError, StoreRefused
from onejob.ledger import Ledger
from onejob.ledger import open as open_ledger
from onejob.ledger.base import runtime_of
from onejob.ledger.held_keys import PreparedKeyHeld
from onejob.ledger.leases import OnLeaseLost, RenewalTimer, settle_with_retries
from onejob.ledger.service import ServiceLedger

from .problems import LayerResponse, unavailable_response
from .request_fingerprint import RECORD_TYPE, scope_name
from .rules import IdempotencyRules, decode_replay, expires_header, window_ms

CLOSE_SECONDS = 10.0
COMMIT_RETRIES_MAX = 600
COMMIT_RETRY_SECONDS = 1.0

# Looked up once: access to an enum member is slow, and every request needs one of them.
_COMMIT, _FAIL = Verdict.COMMIT, Verdict.FAIL

_SECOND_PROCESS = (
    "another process of this server keeps its keys in memory, and this one cannot see them: a request could run twice; "
    "use sqlite:///keys.db or postgresql://…, or one process"
)

_SERVER_MODULES = frozenset({"gunicorn.arbiter", "uwsgi"})

log = logging.getLogger("onejob.middleware")


class IdempotencyLayer:
    """`rules` on a ledger, on one event loop."""

    def __init__(self, ledger: Ledger | str, rules: IdempotencyRules) -> None:
        self._ledger = ServiceLedger.of(ledger) if isinstance(ledger, Ledger) else None
        self._renewal_timer: RenewalTimer | None = None
        self._url = "" if isinstance(ledger, Ledger) else ledger
        self._open_lock = asyncio.Lock()
        self._is_checked = False  # that this process may use the store
        self.rules = rules
        self.tasks: set[asyncio.Task[None]] = set()

    async def ensure_open(self) -> ServiceLedger:
        if self._ledger is None:
            async with self._open_lock:
                if self._ledger is None:
                    self._ledger = ServiceLedger.of(await open_ledger(self._url))
        if not self._is_checked:
            if self._ledger.durability is Durability.PROCESS:
                refuse_second_process()
            self._is_checked = True
        return self._ledger

    async def aclose(self) -> None:
        """Let running requests finish for a while, then cancel them, which releases their keys before the leases expire."""
        if self.tasks:
            await asyncio.wait(tuple(self.tasks), timeout=CLOSE_SECONDS)
        for task in tuple(self.tasks):
            task.cancel()
        if self.tasks:
            await asyncio.wait(tuple(self.tasks), timeout=CLOSE_SECONDS)
        if self._renewal_timer is not None:
            self._renewal_timer.close()
            self._renewal_timer = None
        if self._url and self._ledger is not None:
            await self._ledger.aclose()
            self._ledger = None

    @property
    def ledger(self) -> ServiceLedger:
        assert self._ledger is not None
        return self._ledger

    @property
    def renewal_timer(self) -> RenewalTimer:
        if self._renewal_timer is None:
            self._renewal_timer = RenewalTimer(self.ledger, self.rules.lease_ms or runtime_of(self.ledger).lease_ms)
        return self._renewal_timer

    def start_task(
        self, work: Coroutine[Any, Any, None], on_end: "Callable[[asyncio.Task[None]], object] | None" = None
    ) -> "asyncio.Task[None]":
        """Run work that outlives its request. `on_end` replaces the default callback and must discard the task."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(on_end or self.tasks.discard)
        return task

    async def acquire_key(
        self, key: str, scope: str, fingerprint: bytes, window: timedelta | None
    ) -> PreparedKeyHeld | LayerResponse:
        """The held key, or the response for a duplicate or a failure."""
        try:
            ledger = self._ledger if self._ledger is not None and self._is_checked else await self.ensure_open()
            reserved = await ledger.reserve_prepared(
                type=RECORD_TYPE,
                scope=scope_name(scope),
                key=checked_key(key),
                fingerprint=fingerprint,
                ttl_ms=None if window is None else window_ms(window),
                lease_ms=self.rules.lease_ms or runtime_of(ledger).lease_ms,
            )
            return reserved if isinstance(reserved, PreparedKeyHeld) else decode_replay(reserved)
        except OnejobError as error:
            return self.rules.respond_to_error(error)


class HeldRequest:
    """A request whose key is held: the lease is renewed from now on, until the key is settled."""

    __slots__ = ("_layer", "_ledger", "_renewal_timer", "key")

    def __init__(self, layer: IdempotencyLayer, key: PreparedKeyHeld, on_lease_lost: OnLeaseLost) -> None:
        self._layer = layer
        self._ledger = layer.ledger
        self._renewal_timer = layer.renewal_timer
        self.key = key
        self._renewal_timer.begin(key, on_lease_lost)

    async def commit(self, receipt: bytes) -> tuple[bytes, bytes] | LayerResponse:
        """Store the response: its Idempotency-Expires header, or, if that failed, the response to send instead."""
        ledger, key = self._ledger, self.key
        is_retried = False
        try:
            try:
                settled = await ledger.settle_prepared(key, _COMMIT, receipt)
            except OnejobError as error:
                if not error.retryable:
                    raise
                settled = await settle_with_retries(lambda: ledger.settle_prepared(key, _COMMIT, receipt))
        except OnejobError as error:
            log.error("storing a response failed: %s", error)
            if is_retried := error.retryable:
                self._layer.start_task(self._retry_commit(receipt))
            return unavailable_response(error)
        finally:
            # Also after a cancellation: the commit goes on in the gate, and a FAIL sent now could overtake it.
            if not is_retried:
                self.stop_renewing()
        return expires_header(settled.record.expires_at)

    async def fail(self) -> None:
        """Release the key, so that the request can be retried."""
        self.stop_renewing()
        # If this fails, the lease expires by itself, only later.
        with suppress(OnejobError):
            await self._ledger.settle_prepared(self.key, _FAIL)

    def stop_renewing(self) -> None:
        self._renewal_timer.end(self.key.holder)

    async def _retry_commit(self, receipt: bytes) -> None:
        """Retry the commit of a request that has run, while its lease is renewed."""
        try:
            for _ in range(COMMIT_RETRIES_MAX):
                await asyncio.sleep(COMMIT_RETRY_SECONDS)
                try:
                    await self._ledger.settle_prepared(self.key, _COMMIT, receipt)
                    return
                except OnejobError as error:
                    if not error.retryable:
                        log.error("storing a response failed for good: %s", error)
                        return
        finally:
            self.stop_renewing()


def refuse_second_process() -> None:
    """Warn that keys are kept in memory; refuse if another process of the same server keeps its own."""
    if os.getpid() in _checked_processes:
        return
    _checked_processes[os.getpid()] = _mark_process() if _is_started_by_a_server() else None
    log.warning(
        "idempotency keys are kept in the memory of this process: a retry that reaches another process, or comes after a "
        "restart, runs again; use sqlite:///keys.db or postgresql://… unless this is a test"
    )


# This process, if it has passed the check, and the socket that shows it to the others; a fork inherits that of its parent.
_checked_processes: dict[int, socket.socket | None] = {}


def _is_started_by_a_server() -> bool:
    """True in the processes of `uvicorn --workers` and `--reload`, of hypercorn, of gunicorn and of uWSGI."""
    return multiprocessing.parent_process() is not None or not _SERVER_MODULES.isdisjoint(sys.modules)


def _mark_process() -> socket.socket | None:
    """Bind a name that only one of the processes with the same parent can have. The system frees it with the process."""
    if sys.platform != "linux":  # no abstract socket names; the warning has to do
        return None
    namespace = os.stat("/proc/self/ns/pid").st_ino
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        mark.bind(f"\0onejob-memory-{os.getuid()}-{namespace}-{os.getppid()}")
    except OSError:
        mark.close()
        log.error("refused: %s", _SECOND_PROCESS)  # a server may not show why its worker did not start
        raise StoreRefused(_SECOND_PROCESS) from None
    return mark
