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

from onejob.core.receipt import Held
from onejob.core.reservation import Verdict
from onejob.errors import OnejobError
from onejob.keeping import Renewals, repeated
from onejob.ledger import Ledger

from .layer import Layer, moment
from .refusals import Told, refusal, unavailable
from .retained import Headers, Retained, packed
from .rules import verdict_of

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# Looked up once: a member of an enum costs more than a small fact.
_COMMIT, _FAIL = Verdict.COMMIT, Verdict.FAIL

INSISTS_MAX = 600
INSIST_SECONDS = 1.0

log = logging.getLogger("onejob.middleware")


class Exchange:
    __slots__ = (
        "_body_given", "_ended", "_held", "_layer", "_ledger", "_lost", "_mute", "_open", "_parts", "_receive",
        "_renewals", "_send", "_size", "_start", "_task", "body",
    )  # fmt: skip

    def __init__(self, layer: Layer, receive: Receive, send: Send, body: bytes) -> None:
        self._layer = layer
        self._receive = receive
        self._send = send
        self.body = body
        self._body_given = False
        self._open: asyncio.Future[None] | None = None
        self._held: Held | None = None  # None: messages go through as they are
        self._ledger: Ledger  # these two from the time a key is held
        self._renewals: Renewals
        self._ended: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._lost = False
        self._mute = False
        self._start: Message = {}
        self._parts: list[bytes] = []
        self._size = 0

    async def run(self, app: App, scope: Scope) -> None:
        """Let the application answer; whoever waits may stop waiting before it is done."""
        self._ended = asyncio.get_running_loop().create_future()
        task = self._task = self._layer.begun(self._run(app, scope), self._told)
        try:
            # Not the task itself: whoever cancels this wait does not cancel what is waited for.
            await self._ended
        except asyncio.CancelledError:
            if self._held is None:  # settled: the rest is not ours to save
                task.cancel()
            raise

    def hold(self, held: Held) -> None:
        """From now on the answer is kept back until this key is settled."""
        self._held = held
        self._ledger = self._layer.ledger
        self._renewals = self._layer.renewals
        self._renewals.begin(held, self._stop)

    async def receive(self) -> Message:
        if not self._body_given:
            self._body_given = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        if self._held is not None:
            self._open = self._open or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._open)
        return await self._receive()

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if self._mute:
            return
        if self._held is None:
            await self._send(message)
        elif kind == "http.response.start":
            self._start = message
        elif kind == "http.response.body":
            await self._answered(message.get("body", b""), more=message.get("more_body", False))
        else:
            await self._send(message)

    def _told(self, task: "asyncio.Task[None]") -> None:
        """How it ended is told to whoever still waits for it."""
        self._layer.tasks.discard(task)
        ended = self._ended
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

    async def _run(self, app: App, scope: Scope) -> None:
        try:
            await app(scope, self.receive, self.send)
        except asyncio.CancelledError:
            if not self._lost:
                raise
            await self.tell(unavailable(RuntimeError("the lease was lost")))
        finally:
            # An error, a stop, or an answer without its end: the key may be tried again.
            if self._held is not None:
                await self._fail()

    async def _answered(self, part: bytes, *, more: bool) -> None:
        if more or self._parts:
            self._parts.append(part)
            self._size += len(part)
            if more and self._size <= self._layer.answer_bytes_max and self._has_length():
                return
            part = b"".join(self._parts)
            self._parts = []
        start = self._start
        status, headers = start["status"], tuple(start.get("headers", ()))
        until: Headers = ()
        if verdict_of(self._layer.verdicts, status) is _FAIL:
            await self._fail()
        else:
            kept = Retained(status)
            if not more and len(part) <= self._layer.answer_bytes_max:
                kept = Retained(status, self._layer.shown(headers), part)
            told = await self._commit(packed(kept))
            if told is None:
                return
            until = told
        await self._send({**start, "headers": [*headers, *until]})
        await self._send({"type": "http.response.body", "body": part, "more_body": more})

    def _has_length(self) -> bool:
        """Whether the whole answer is known to be small enough to wait for it."""
        for name, value in self._start.get("headers", ()):
            if name.lower() == b"content-length" and value.isdigit():
                return int(value) <= self._layer.answer_bytes_max
        return False

    async def _commit(self, receipt: bytes) -> Headers | None:
        """Make the answer durable; the header that tells until when, or None when the client was told otherwise."""
        assert self._held is not None
        ledger, held = self._ledger, self._held
        try:
            try:
                settled = await ledger.settle(held, _COMMIT, receipt)
            except OnejobError as error:
                if not error.retryable:
                    raise
                settled = await repeated(lambda: ledger.settle(held, _COMMIT, receipt))
        except asyncio.CancelledError:
            # What was said goes on by itself; to say now that it failed could overtake it.
            self._let_go()
            raise
        except OnejobError as error:
            log.error("an answer could not be kept: %s", error)
            if error.retryable:
                self._layer.begun(_insist(ledger, held, receipt, self._renewals))
            self._let_go(renewed=error.retryable)
            await self.tell(unavailable(error))
            return None
        self._let_go()
        return ((b"idempotency-expires", moment(settled.record.expires_at)),)

    async def _fail(self) -> None:
        assert self._held is not None
        held = self._held
        self._let_go()
        # Where this fails the lease ends by itself, which only takes longer.
        with suppress(OnejobError):
            await self._ledger.settle(held, _FAIL)

    def _let_go(self, *, renewed: bool = False) -> None:
        assert self._held is not None
        if not renewed:
            self._renewals.end(self._held.holder)
        self._held = None
        if self._open is not None and not self._open.done():
            self._open.set_result(None)

    def _stop(self, error: BaseException) -> None:
        """The key is no longer ours: whatever the application still does is in vain."""
        log.error("a key was lost while its request was being done: %s", error)
        self._lost = True
        if self._task is not None:
            self._task.cancel()

    async def tell(self, told: Told) -> None:
        """Answer in place of the application, which is not heard any more."""
        self._mute = True
        await tell(self._send, told)


async def _insist(ledger: Ledger, held: Held, receipt: bytes, renewals: Renewals) -> None:
    """It was done, and only the store does not know: as long as the key is ours it can be told."""
    try:
        for _ in range(INSISTS_MAX):
            await asyncio.sleep(INSIST_SECONDS)
            try:
                await ledger.settle(held, _COMMIT, receipt)
                return
            except OnejobError as error:
                if not error.retryable:
                    log.error("an answer was lost: %s", error)
                    return
    finally:
        renewals.end(held.holder)


async def tell(send: Send, told: Told) -> None:
    await send({"type": "http.response.start", "status": told.status, "headers": list(told.headers)})
    await send({"type": "http.response.body", "body": told.body, "more_body": False})


async def body_of(
    receive: Receive, headers: Iterable[tuple[bytes, bytes]], *, most: int
) -> bytes | Told | None:
    """The whole body; a refusal for a larger one; None when the client left before it was sent."""
    for name, value in headers:
        if name == b"content-length" and value.isdigit() and int(value) > most:
            return _too_large(most)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body = message.get("body", b"")
        size += len(body)
        if size > most:
            return _too_large(most)
        if not message.get("more_body", False):
            return b"".join((*parts, body)) if parts else bytes(body)
        parts.append(body)


def _too_large(most: int) -> Told:
    return refusal("PAYLOAD_TOO_LARGE", f"a request with a key has at most {most} bytes; send less")


def plain(scope: Scope) -> Scope:
    """The scope without the ways to answer that pass by what we can keep: files sent by the server, trailers."""
    extensions = scope.get("extensions") or {}
    if not any(name.startswith("http.response.") for name in extensions):
        return scope
    left = {name: value for name, value in extensions.items() if not name.startswith("http.response.")}
    return {**scope, "extensions": left}
