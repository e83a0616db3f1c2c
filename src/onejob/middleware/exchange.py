"""One request under a held key: its response is sent only after the key is settled.

1. The response is durable before its first byte is sent: a duplicate that arrives with that byte finds it.
2. The application runs in a task of the layer: a client that disconnects, or a server that cancels the request, does not stop it,
   and its verdict is stored. The application sees a disconnect only after its response is settled.
3. A response of unknown length in several parts is a stream. It cannot be stored, so the key is settled when the stream begins.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from typing import Any, Protocol

from onejob.core.reserve import Verdict
from onejob.core.views import Receipt
from onejob.errors import OnejobError
from onejob.ledger import Ledger
from onejob.ledger.held_keys import PreparedKeyHeld
from onejob.ledger.leases import RenewalTimer, settle_with_retries

from .layer import IdempotencyLayer, iso_timestamp
from .problems import LayerResponse, problem_response, unavailable_response
from .rules import verdict_of
from .stored_response import Headers, StoredResponse, pack_response

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

# Looked up once: access to an enum member is slow, and every request needs one of them.
_COMMIT, _FAIL = Verdict.COMMIT, Verdict.FAIL

COMMIT_RETRIES_MAX = 600
COMMIT_RETRY_SECONDS = 1.0

log = logging.getLogger("onejob.middleware")


class RequestTransaction(Protocol):
    """A database transaction of the request, which the exchange ends."""

    @property
    def is_open(self) -> bool:
        """True if the application has returned normally, so that its effects are to be committed."""

    async def settle_and_commit(self, held: PreparedKeyHeld, receipt: bytes) -> Receipt: ...

    async def roll_back(self) -> None: ...


class MiddlewareExchange:
    __slots__ = (
        "_body_given",
        "_done",
        "_held_key",
        "_ignores_app",
        "_key_released",
        "_layer",
        "_lease_lost",
        "_ledger",
        "_parts",
        "_receive",
        "_renewal_timer",
        "_send",
        "_size",
        "_start_message",
        "_task",
        "body",
        "transaction",
    )  # fmt: skip

    def __init__(self, layer: IdempotencyLayer, receive: Receive, send: Send, body: bytes) -> None:
        self._layer = layer
        self._receive = receive
        self._send = send
        self.body = body
        self._body_given = False
        self._key_released: asyncio.Future[None] | None = None
        self._held_key: PreparedKeyHeld | None = None  # None: messages pass through unchanged
        self._ledger: Ledger  # set in `hold`, like the timer
        self._renewal_timer: RenewalTimer
        self._done: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._lease_lost = False
        self._ignores_app = False
        self._start_message: Message = {}
        self._parts: list[bytes] = []
        self._size = 0
        self.transaction: RequestTransaction | None = None  # in which the key is settled, with the request's effects

    async def run(self, app: AsgiApp, scope: Scope) -> None:
        """Run the application to its end, even if the caller is cancelled before."""
        self._done = asyncio.get_running_loop().create_future()
        task = self._task = self._layer.start_task(self._run(app, scope), self._on_task_end)
        try:
            # Awaiting the task itself would pass a cancellation on to it.
            await self._done
        except asyncio.CancelledError:
            if self._held_key is None:  # settled: nothing is left to store
                task.cancel()
            raise

    def hold(self, held_key: PreparedKeyHeld) -> None:
        """Hold the response back from now on, until this key is settled."""
        self._held_key = held_key
        self._ledger = self._layer.ledger
        self._renewal_timer = self._layer.renewal_timer
        self._renewal_timer.begin(held_key, self._on_lease_lost)

    async def receive(self) -> Message:
        if not self._body_given:
            self._body_given = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        if self._held_key is not None:
            self._key_released = self._key_released or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._key_released)
        return await self._receive()

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if self._ignores_app:
            return
        if self._held_key is None:
            await self._send(message)
        elif kind == "http.response.start":
            # Read more than once, and some applications send a generator.
            self._start_message = {**message, "headers": tuple(message.get("headers", ()))}
        elif kind == "http.response.body":
            await self._on_body_part(message.get("body", b""), more=message.get("more_body", False))
        else:
            await self._send(message)

    def _on_task_end(self, task: "asyncio.Task[None]") -> None:
        self._layer.tasks.discard(task)
        done = self._done
        assert done is not None
        error = None if task.cancelled() else task.exception()
        if done.done():
            return
        if task.cancelled():
            done.cancel()
        elif error is not None:
            done.set_exception(error)
        else:
            done.set_result(None)

    async def _run(self, app: AsgiApp, scope: Scope) -> None:
        try:
            await app(scope, self.receive, self.send)
        except asyncio.CancelledError:
            if not self._lease_lost:
                raise
            await self.respond(unavailable_response(RuntimeError("the lease was lost")))
        finally:
            # An exception, a cancellation or an incomplete response: the request may be retried with this key.
            if self._held_key is not None:
                await self._fail()

    async def _on_body_part(self, part: bytes, *, more: bool) -> None:
        if more or self._parts:
            self._parts.append(part)
            self._size += len(part)
            if more and self._size <= self._layer.answer_bytes_max and self._has_small_length():
                return
            part = b"".join(self._parts)
            self._parts = []
        start = self._start_message
        status, headers = start["status"], start["headers"]
        expires: Headers = ()
        if verdict_of(self._layer.verdicts, status) is _FAIL:
            await self._fail()
        else:
            stored = StoredResponse(status)  # a tombstone
            if not more and len(part) <= self._layer.answer_bytes_max:
                stored = StoredResponse(status, self._layer.replayable_headers(headers), part)
            committed = await self._commit(pack_response(stored))
            if committed is None:
                return
            expires = committed
        await self._send({**start, "headers": [*headers, *expires]})
        await self._send({"type": "http.response.body", "body": part, "more_body": more})

    def _has_small_length(self) -> bool:
        """True if Content-Length says that the whole response is small enough to store."""
        for name, value in self._start_message["headers"]:
            if name.lower() == b"content-length" and value.isdigit():
                return int(value) <= self._layer.answer_bytes_max
        return False

    async def _commit(self, receipt: bytes) -> Headers | None:
        """Store the response and return its Idempotency-Expires header; on failure send a 503 and return None."""
        assert self._held_key is not None
        ledger, held = self._ledger, self._held_key
        if self.transaction is not None:
            if self.transaction.is_open:
                return await self._commit_transaction(self.transaction, held, receipt)
            await self.transaction.roll_back()
        try:
            try:
                settled = await ledger.settle_prepared(held, _COMMIT, receipt)
            except OnejobError as error:
                if not error.retryable:
                    raise
                settled = await settle_with_retries(lambda: ledger.settle_prepared(held, _COMMIT, receipt))
        except asyncio.CancelledError:
            # The commit goes on in the gate; a FAIL sent now could overtake it.
            self._release_key()
            raise
        except OnejobError as error:
            log.error("storing a response failed: %s", error)
            if error.retryable:
                self._layer.start_task(_retry_commit(ledger, held, receipt, self._renewal_timer))
            self._release_key(keep_renewing=error.retryable)
            await self.respond(unavailable_response(error))
            return None
        self._release_key()
        return ((b"idempotency-expires", iso_timestamp(settled.record.expires_at)),)

    async def _commit_transaction(
        self, transaction: "RequestTransaction", held: PreparedKeyHeld, receipt: bytes
    ) -> Headers | None:
        """Settle the key in the request's own transaction, then commit it. A failure undoes the request."""
        # From now on the transaction holds the record; a renewal would wait for it, and then find the key settled.
        self._renewal_timer.end(held.holder)
        try:
            settled = await transaction.settle_and_commit(held, receipt)
        except Exception as error:
            log.exception("the transaction of a request was not committed; the request was not done")
            await self._fail()
            await self.respond(unavailable_response(error))
            return None
        self._release_key()
        return ((b"idempotency-expires", iso_timestamp(settled.expires_ms)),)

    async def _fail(self) -> None:
        assert self._held_key is not None
        held = self._held_key
        if self.transaction is not None:
            await self.transaction.roll_back()  # first: whoever gets the key next must not meet these effects
        self._release_key()
        # If this fails, the lease expires by itself, only later.
        with suppress(OnejobError):
            await self._ledger.settle_prepared(held, _FAIL)

    def _release_key(self, *, keep_renewing: bool = False) -> None:
        assert self._held_key is not None
        if not keep_renewing:
            self._renewal_timer.end(self._held_key.holder)
        self._held_key = None
        if self._key_released is not None and not self._key_released.done():
            self._key_released.set_result(None)

    def _on_lease_lost(self, error: BaseException) -> None:
        """Stop the application: another request with this key may run."""
        if self._held_key is None:
            return  # the application has ended, and its response is still being stored
        log.error("lease lost while the request was running; cancelling it: %s", error)
        self._lease_lost = True
        if self._task is not None:
            self._task.cancel()

    async def respond(self, response: LayerResponse) -> None:
        """Respond in place of the application, and ignore what it still sends."""
        self._ignores_app = True
        await send_response(self._send, response)


async def _retry_commit(ledger: Ledger, held_key: PreparedKeyHeld, receipt: bytes, renewal_timer: RenewalTimer) -> None:
    """Retry the commit of a request that has run, while its lease is renewed."""
    try:
        for _ in range(COMMIT_RETRIES_MAX):
            await asyncio.sleep(COMMIT_RETRY_SECONDS)
            try:
                await ledger.settle_prepared(held_key, _COMMIT, receipt)
                return
            except OnejobError as error:
                if not error.retryable:
                    log.error("storing a response failed for good: %s", error)
                    return
    finally:
        renewal_timer.end(held_key.holder)


async def send_response(send: Send, response: LayerResponse) -> None:
    await send({"type": "http.response.start", "status": response.status, "headers": list(response.headers)})
    await send({"type": "http.response.body", "body": response.body, "more_body": False})


async def read_body(
    receive: Receive, headers: Iterable[tuple[bytes, bytes]], *, bytes_max: int
) -> bytes | LayerResponse | None:
    """The whole body; a 413 if it is too large; None if the client disconnected before its end."""
    for name, value in headers:
        if name == b"content-length" and value.isdigit() and int(value) > bytes_max:
            return _too_large(bytes_max)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body = message.get("body", b"")
        size += len(body)
        if size > bytes_max:
            return _too_large(bytes_max)
        if not message.get("more_body", False):
            return b"".join((*parts, body)) if parts else bytes(body)
        parts.append(body)


def _too_large(bytes_max: int) -> LayerResponse:
    return problem_response(
        "PAYLOAD_TOO_LARGE", f"the body of a request with a key has at most {bytes_max} bytes; send less"
    )


def without_response_extensions(scope: Scope) -> Scope:
    """The scope without `http.response.*`: such responses (files sent by path, trailers) could not be stored."""
    extensions = scope.get("extensions") or {}
    if not any(name.startswith("http.response.") for name in extensions):
        return scope
    others = {name: value for name, value in extensions.items() if not name.startswith("http.response.")}
    return {**scope, "extensions": others}
