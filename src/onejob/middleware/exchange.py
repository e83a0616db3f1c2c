"""One request under a held key: its response is sent only after the key is settled.

1. The response is durable before its first byte is sent: a duplicate that arrives with that byte finds it.
2. The application runs in a task of the layer: a client that disconnects, or a server that cancels the request, does not stop it,
   and its verdict is stored. The application sees a disconnect only after its response is settled.
3. A response of unknown length in several parts is a stream. It cannot be stored, so the key is settled when the stream begins.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping
from typing import Any, Protocol

from onejob.ledger.held_keys import PreparedKeyHeld
from onejob.runtime.receipts import Receipt

from .layer import HeldRequest, IdempotencyLayer
from .problems import LayerResponse, unavailable_response
from .request_fingerprint import compute_fingerprint
from .rules import IdempotencyRules, ResponseBuffer, expires_header

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

ON_LOOP_BYTES_MAX = 64 << 10

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
        "_buffer",
        "_done",
        "_held",
        "_ignores_app",
        "_key_released",
        "_layer",
        "_lease_lost",
        "_receive",
        "_send",
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
        self._held: HeldRequest | None = None  # None: messages pass through unchanged
        self._done: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._lease_lost = False
        self._ignores_app = False
        self._start_message: Message = {}
        self._buffer = ResponseBuffer(layer.rules)
        self.transaction: RequestTransaction | None = None  # in which the key is settled, with the request's effects

    async def run(self, app: AsgiApp, scope: Scope) -> None:
        """Run the application to its end, even if the caller is cancelled before."""
        self._done = asyncio.get_running_loop().create_future()
        task = self._task = self._layer.start_task(self._run(app, scope), self._on_task_end)
        try:
            # Awaiting the task itself would pass a cancellation on to it.
            await self._done
        except asyncio.CancelledError:
            if self._held is None:  # settled: nothing is left to store
                task.cancel()
            raise

    def hold(self, held_key: PreparedKeyHeld) -> None:
        """Hold the response back from now on, until this key is settled."""
        self._held = HeldRequest(self._layer, held_key, self._on_lease_lost)

    async def receive(self) -> Message:
        if not self._body_given:
            self._body_given = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        if self._held is not None:
            self._key_released = self._key_released or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._key_released)
        return await self._receive()

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if self._ignores_app:
            return
        if self._held is None:
            await self._send(message)
        elif kind == "http.response.start":
            self._start_message = message
            self._buffer.status = message["status"]
            # Read more than once, and some applications send a generator.
            self._buffer.headers = tuple(message.get("headers", ()))
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
            if self._held is not None:
                await self._fail()

    async def _on_body_part(self, part: bytes, *, more: bool) -> None:
        buffer = self._buffer
        collected = buffer.add(part, more=more)
        if collected is None:
            return
        receipt = buffer.receipt(collected, more=more)
        headers = list(buffer.headers)
        if receipt is None:
            await self._fail()
        else:
            committed = await self._commit(receipt)
            if isinstance(committed, LayerResponse):
                await self.respond(committed)
                return
            headers.append(committed)
        await self._send({**self._start_message, "headers": headers})
        await self._send({"type": "http.response.body", "body": collected, "more_body": more})

    async def _commit(self, receipt: bytes) -> tuple[bytes, bytes] | LayerResponse:
        """Store the response: its Idempotency-Expires header, or, if that failed, the response to send instead."""
        assert self._held is not None
        if self.transaction is not None:
            if self.transaction.is_open:
                return await self._commit_transaction(self.transaction, self._held, receipt)
            await self.transaction.roll_back()
        try:
            return await self._held.commit(receipt)
        finally:
            self._release()

    async def _commit_transaction(
        self, transaction: "RequestTransaction", held: HeldRequest, receipt: bytes
    ) -> tuple[bytes, bytes] | LayerResponse:
        """Settle the key in the request's own transaction, then commit it. A failure undoes the request."""
        held.stop_renewing()  # a renewal would wait for the lock of the transaction
        try:
            settled = await transaction.settle_and_commit(held.key, receipt)
        except Exception as error:
            log.exception("the transaction of a request was not committed; the request was not done")
            await self._fail()
            return unavailable_response(error)
        self._release()
        return expires_header(settled.expires_ms)

    async def _fail(self) -> None:
        assert self._held is not None
        held = self._held
        if self.transaction is not None:
            await self.transaction.roll_back()  # first: whoever gets the key next must not meet these effects
        self._release()
        await held.fail()

    def _release(self) -> None:
        """The key is settled, or will be without this exchange: from now on messages pass through."""
        self._held = None
        if self._key_released is not None and not self._key_released.done():
            self._key_released.set_result(None)

    def _on_lease_lost(self, error: BaseException) -> None:
        """Stop the application: another request with this key may run."""
        if self._held is None:
            return  # the application has ended, and its response is still being stored
        log.error("lease lost while the request was running; cancelling it: %s", error)
        self._lease_lost = True
        if self._task is not None:
            self._task.cancel()

    async def respond(self, response: LayerResponse) -> None:
        """Respond in place of the application, and ignore what it still sends."""
        self._ignores_app = True
        await send_response(self._send, response)


async def send_response(send: Send, response: LayerResponse) -> None:
    await send({"type": "http.response.start", "status": response.status, "headers": list(response.headers)})
    await send({"type": "http.response.body", "body": response.body, "more_body": False})


async def read_body(
    receive: Receive, headers: Iterable[tuple[bytes, bytes]], rules: IdempotencyRules
) -> bytes | LayerResponse | None:
    """The whole body; a 413 if it is too large; None if the client disconnected before its end."""
    bytes_max = rules.body_bytes_max
    for name, value in headers:
        if name == b"content-length" and value.isdigit() and int(value) > bytes_max:
            return rules.refuse_large_body()
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body = message.get("body", b"")
        size += len(body)
        if size > bytes_max:
            return rules.refuse_large_body()
        if not message.get("more_body", False):
            return b"".join((*parts, body)) if parts else bytes(body)
        parts.append(body)


def request_fingerprint(scope: Scope, body: bytes) -> bytes | Coroutine[Any, Any, bytes]:
    """The fingerprint of a request; for a large body a coroutine that computes it in a thread."""
    args = scope["method"], scope["path"], scope.get("query_string", b""), scope["headers"], body
    if len(body) <= ON_LOOP_BYTES_MAX:
        return compute_fingerprint(*args)
    return asyncio.to_thread(compute_fingerprint, *args)


def without_response_extensions(scope: Scope) -> Scope:
    """The scope without `http.response.*`: such responses (files sent by path, trailers) could not be stored."""
    extensions = scope.get("extensions") or {}
    if not any(name.startswith("http.response.") for name in extensions):
        return scope
    others = {name: value for name, value in extensions.items() if not name.startswith("http.response.")}
    return {**scope, "extensions": others}
