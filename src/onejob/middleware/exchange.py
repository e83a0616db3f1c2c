"""One request under a held key: its answer leaves only after the key is settled.

1. What is answered is durable first: a duplicate that comes with the first byte finds the answer.
2. The application runs in a task of the layer: a client that hangs up, or a server that cancels, stops nothing, and
   the verdict is recorded. The application hears of a disconnect only once its answer has been settled.
3. An answer of unknown length in several parts is a stream. It cannot be kept, so the key is settled when it begins.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from typing import Any

from onejob.core.replies import KeyHeld
from onejob.core.reserve import Verdict
from onejob.errors import OnejobError
from onejob.ledger import Ledger
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

# Looked up once: a member of an enum costs more than a small fact.
_COMMIT, _FAIL = Verdict.COMMIT, Verdict.FAIL

COMMIT_RETRIES_MAX = 600
COMMIT_RETRY_SECONDS = 1.0

log = logging.getLogger("onejob.middleware")


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
    )  # fmt: skip

    def __init__(self, layer: IdempotencyLayer, receive: Receive, send: Send, body: bytes) -> None:
        self._layer = layer
        self._receive = receive
        self._send = send
        self.body = body
        self._body_given = False
        self._key_released: asyncio.Future[None] | None = None
        self._held_key: KeyHeld | None = None  # None: messages go through as they are
        self._ledger: Ledger  # these two from the time a key is held
        self._renewal_timer: RenewalTimer
        self._done: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._lease_lost = False
        self._ignores_app = False
        self._start_message: Message = {}
        self._parts: list[bytes] = []
        self._size = 0

    async def run(self, app: AsgiApp, scope: Scope) -> None:
        """Let the application answer; whoever waits may stop waiting before it is done."""
        self._done = asyncio.get_running_loop().create_future()
        task = self._task = self._layer.start_task(self._run(app, scope), self._on_task_end)
        try:
            # Not the task itself: whoever cancels this wait does not cancel what is waited for.
            await self._done
        except asyncio.CancelledError:
            if self._held_key is None:  # settled: the rest is not ours to save
                task.cancel()
            raise

    def hold(self, held_key: KeyHeld) -> None:
        """From now on the answer is kept back until this key is settled."""
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
            self._start_message = message
        elif kind == "http.response.body":
            await self._on_body_part(message.get("body", b""), more=message.get("more_body", False))
        else:
            await self._send(message)

    def _on_task_end(self, task: "asyncio.Task[None]") -> None:
        """How it ended is told to whoever still waits for it."""
        self._layer.tasks.discard(task)
        ended = self._done
        assert ended is not None
        error = None if task.cancelled() else task.exception()
        if ended.done():
            return
        if task.cancelled():
            ended.cancel()
        elif error is not None:
            ended.set_exception(error)
        else:
            ended.set_result(None)

    async def _run(self, app: AsgiApp, scope: Scope) -> None:
        try:
            await app(scope, self.receive, self.send)
        except asyncio.CancelledError:
            if not self._lease_lost:
                raise
            await self.respond(unavailable_response(RuntimeError("the lease was lost")))
        finally:
            # An error, a stop, or an answer without its end: the key may be tried again.
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
        status, headers = start["status"], tuple(start.get("headers", ()))
        until: Headers = ()
        if verdict_of(self._layer.verdicts, status) is _FAIL:
            await self._fail()
        else:
            kept = StoredResponse(status)
            if not more and len(part) <= self._layer.answer_bytes_max:
                kept = StoredResponse(status, self._layer.replayable_headers(headers), part)
            told = await self._commit(pack_response(kept))
            if told is None:
                return
            until = told
        await self._send({**start, "headers": [*headers, *until]})
        await self._send({"type": "http.response.body", "body": part, "more_body": more})

    def _has_small_length(self) -> bool:
        """Whether the whole answer is known to be small enough to wait for it."""
        for name, value in self._start_message.get("headers", ()):
            if name.lower() == b"content-length" and value.isdigit():
                return int(value) <= self._layer.answer_bytes_max
        return False

    async def _commit(self, receipt: bytes) -> Headers | None:
        """Make the answer durable; the header that tells until when, or None when the client was told otherwise."""
        assert self._held_key is not None
        ledger, held = self._ledger, self._held_key
        try:
            try:
                settled = await ledger.settle_prepared(held, _COMMIT, receipt)
            except OnejobError as error:
                if not error.retryable:
                    raise
                settled = await settle_with_retries(lambda: ledger.settle_prepared(held, _COMMIT, receipt))
        except asyncio.CancelledError:
            # What was said goes on by itself; to say now that it failed could overtake it.
            self._release_key()
            raise
        except OnejobError as error:
            log.error("an answer could not be kept: %s", error)
            if error.retryable:
                self._layer.start_task(_retry_commit(ledger, held, receipt, self._renewal_timer))
            self._release_key(keep_renewing=error.retryable)
            await self.respond(unavailable_response(error))
            return None
        self._release_key()
        return ((b"idempotency-expires", iso_timestamp(settled.record.expires_at)),)

    async def _fail(self) -> None:
        assert self._held_key is not None
        held = self._held_key
        self._release_key()
        # Where this fails the lease ends by itself, which only takes longer.
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
        """The key is no longer ours: whatever the application still does is in vain."""
        log.error("a key was lost while its request was being done: %s", error)
        self._lease_lost = True
        if self._task is not None:
            self._task.cancel()

    async def respond(self, response: LayerResponse) -> None:
        """Answer in place of the application, which is not heard any more."""
        self._ignores_app = True
        await send_response(self._send, response)


async def _retry_commit(ledger: Ledger, held_key: KeyHeld, receipt: bytes, renewal_timer: RenewalTimer) -> None:
    """It was done, and only the store does not know: as long as the key is ours it can be told."""
    try:
        for _ in range(COMMIT_RETRIES_MAX):
            await asyncio.sleep(COMMIT_RETRY_SECONDS)
            try:
                await ledger.settle_prepared(held_key, _COMMIT, receipt)
                return
            except OnejobError as error:
                if not error.retryable:
                    log.error("an answer was lost: %s", error)
                    return
    finally:
        renewal_timer.end(held_key.holder)


async def send_response(send: Send, response: LayerResponse) -> None:
    await send({"type": "http.response.start", "status": response.status, "headers": list(response.headers)})
    await send({"type": "http.response.body", "body": response.body, "more_body": False})


async def read_body(
    receive: Receive, headers: Iterable[tuple[bytes, bytes]], *, bytes_max: int
) -> bytes | LayerResponse | None:
    """The whole body; a refusal for a larger one; None when the client left before it was sent."""
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
    return problem_response("PAYLOAD_TOO_LARGE", f"a request with a key has at most {bytes_max} bytes; send less")


def without_response_extensions(scope: Scope) -> Scope:
    """The scope without the ways to answer that pass by what we can keep: files sent by the server, trailers."""
    extensions = scope.get("extensions") or {}
    if not any(name.startswith("http.response.") for name in extensions):
        return scope
    left = {name: value for name, value in extensions.items() if not name.startswith("http.response.")}
    return {**scope, "extensions": left}
