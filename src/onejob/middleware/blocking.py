"""The layer for requests that are handled in threads: by WSGI servers, Flask and Django.

The layer itself runs on the event loop of a `SyncLedger`, which all threads of the process share. A thread cannot be
stopped when the lease of its key is lost: its response is then not sent, and the fence refuses whatever it settles.

Servers fork their workers after the application was imported, and a ledger does not survive a fork. So a store that is
given by its URL is opened in each process, by its first request.
"""

import atexit
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from threading import Lock
from typing import NamedTuple, TypeVar

from onejob import sync
from onejob.core.replies import KeyHeld
from onejob.errors import LeaseLost, OnejobError, Unavailable

from .layer import HeldRequest, IdempotencyLayer
from .problems import LayerResponse, unavailable_response
from .rules import IdempotencyRules
from .stored_response import Headers

R = TypeVar("R")

log = logging.getLogger("onejob.middleware")


class _OpenLayer(NamedTuple):
    ledger: sync.SyncLedger
    layer: IdempotencyLayer


class BlockingLayer:
    """`rules` on a ledger, for threads. The URL may be a function that returns it, called when the store is opened."""

    def __init__(self, ledger: sync.SyncLedger | str | Callable[[], str], rules: IdempotencyRules) -> None:
        self._ledger = ledger
        self.rules = rules
        # By process id. What a fork inherited stays referenced: to finalize it would close connections of the parent.
        self._open_layers: dict[int, _OpenLayer] = {}
        self._locks: dict[int, Lock] = {}

    @property
    def ledger(self) -> sync.SyncLedger:
        """The ledger of this process, opened if need be."""
        return self._ensure_open().ledger

    def acquire_key(
        self, key: str, scope: str, fingerprint: bytes, window: timedelta | None
    ) -> "BlockingRequest | LayerResponse":
        """The held key, or the response for a duplicate or a failure."""
        try:
            ledger, layer = self._ensure_open()
            request = BlockingRequest(ledger)
            response = ledger.run(
                request.acquire(layer, key, scope, fingerprint, window), on_abandoned=partial(request.abandon, layer)
            )
        except OnejobError as error:
            return self.rules.respond_to_error(error)
        return request if response is None else response

    def close(self) -> None:
        """Close the store if it was opened here, in this process."""
        opened = self._open_layers.pop(os.getpid(), None)
        if opened is not None:
            with suppress(Unavailable):  # whoever opened the ledger has closed it
                opened.ledger.run(opened.layer.aclose())
            if opened.ledger is not self._ledger:
                opened.ledger.close()
                atexit.unregister(self.close)

    def _ensure_open(self) -> _OpenLayer:
        pid = os.getpid()
        opened = self._open_layers.get(pid)
        if opened is not None:
            return opened
        # A lock of the parent may have been held by another of its threads at the fork, and stay held.
        with self._locks.setdefault(pid, Lock()):
            if pid not in self._open_layers:
                ledger = self._open_ledger()
                self._open_layers[pid] = _OpenLayer(ledger, IdempotencyLayer(ledger.async_ledger, self.rules))
            return self._open_layers[pid]

    def _open_ledger(self) -> sync.SyncLedger:
        given = self._ledger
        if isinstance(given, sync.SyncLedger):
            return given
        ledger = sync.open(given if isinstance(given, str) else given())
        atexit.register(self.close)
        return ledger


class BlockingRequest:
    """A request of one thread whose key is held."""

    def __init__(self, ledger: sync.SyncLedger) -> None:
        self._ledger = ledger
        self._held: HeldRequest
        self._lease_lost: BaseException | None = None
        self.is_settled = False  # also if it was released

    async def acquire(
        self, layer: IdempotencyLayer, key: str, scope: str, fingerprint: bytes, window: timedelta | None
    ) -> LayerResponse | None:
        """Hold the key; or the response for a duplicate or a failure."""
        acquired = await layer.acquire_key(key, scope, fingerprint, window)
        if isinstance(acquired, LayerResponse):
            return acquired
        self._held = HeldRequest(layer, acquired, self._on_lease_lost)
        return None

    def abandon(self, layer: IdempotencyLayer, refused: LayerResponse | None) -> None:
        """Release the key: the thread that asked for it was interrupted."""
        if refused is None:
            layer.start_task(self._held.fail())

    def settle(self, receipt: bytes | None) -> Headers | LayerResponse:
        """Store the response, or release the key if there is no receipt.

        Returns the headers to add to the response; or the response to send in its place.
        """
        self.is_settled = True
        return self._ledger.run(self._settle(receipt))

    def settle_elsewhere(self, settle: Callable[[KeyHeld], R]) -> R:
        """Settle the key by a function of yours, in a transaction. Raises LeaseLost if that can achieve nothing.

        The lease is not renewed any more: a renewal would wait for the lock of your transaction. If that fails to commit,
        release the key.
        """
        self.is_settled = True
        self._ledger.run(self._stop_renewing())
        if self._lease_lost is not None:
            raise LeaseLost("the lease was lost while the request was running: roll back") from self._lease_lost
        return settle(self._held.key)

    def release(self) -> None:
        """Release the key: the request raised an exception, and can be retried."""
        self.is_settled = True
        self._ledger.run(self._held.fail())

    async def _settle(self, receipt: bytes | None) -> Headers | LayerResponse:
        if self._lease_lost is not None:
            await self._held.fail()
            return unavailable_response(self._lease_lost)
        if receipt is None:
            await self._held.fail()
            return ()
        committed = await self._held.commit(receipt)
        return committed if isinstance(committed, LayerResponse) else (committed,)

    async def _stop_renewing(self) -> None:
        self._held.stop_renewing()

    def _on_lease_lost(self, error: BaseException) -> None:
        if self.is_settled:
            return  # the application has ended, and its response is still being stored
        log.error("lease lost while the request was running; its response will not be sent: %s", error)
        self._lease_lost = error
