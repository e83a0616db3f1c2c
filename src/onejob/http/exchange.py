"""One request and its answer on a connection. Head and body of a complete answer leave in one write."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from onejob.ids import SystemIds
from onejob.key_header import NAME as KEY_HEADER

from .answers import Answer, Header, header_lines, refusal
from .logs import trail
from .problems import RETRY_AFTER_STORE, problem
from .request import Scope

log = logging.getLogger("onejob.http")

_BODILESS = (204, 304)


class Exchange:
    """What uvicorn calls a cycle: `receive` and, by being called, `send` of an application."""

    more_body = True
    disconnected = False
    response_started = False
    response_complete = False
    _bytes = 0  # of those pieces
    _news = False  # something happened that nobody has received
    _waiter: asyncio.Future[None] | None = None
    _late = False
    _heard_out = False  # the whole body was received
    _hung_up = False  # the client sends no more
    _head = b""  # composed, and not yet written
    _left: int | None = None  # bytes of the answer to come; None: it has no stated length
    _stream: asyncio.Task[Any] | None = None
    task: asyncio.Task[None] | None = None

    def __init__(
        self,
        scope: Scope,
        transport: asyncio.Transport,
        flow: FlowControl,
        *,
        done: Callable[["Exchange"], None],
        standing: Iterable[Header],
        expects: bool,
        keep_alive: bool,
        read_on: Callable[[], None],
    ) -> None:
        self.keep_alive = keep_alive
        self._pieces: list[bytes] = []  # of the body, which nobody has received
        self._scope = scope
        self._transport = transport
        self._flow = flow
        self._done = done
        self._standing = standing  # headers of every answer
        self._expects = expects  # to be asked for the body
        self._read_on = read_on

    async def run(self, app: Any, tasks: set[asyncio.Task[None]]) -> None:
        """To the end; then its task leaves those that a server waits for when it stops."""
        try:
            await app(self._scope, self.receive, self)
            if not (self.response_complete or self.disconnected):
                log.error("an answer was left incomplete")
                self._transport.close()
        except asyncio.CancelledError:
            self._leave()
        except BaseException as error:
            log.error("an answer could not be sent: %s", trail(error))
            self._transport.close()
            if isinstance(error, (SystemExit, KeyboardInterrupt, GeneratorExit)):
                raise
            # Of anything else there is nobody above to tell.
        finally:
            self._done = _nothing
            if self.task is not None:
                tasks.discard(self.task)

    async def receive(self) -> Any:
        if self._expects and not (self.disconnected or self._transport.is_closing()):
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._expects = False
        if not self._over():
            # A complete request asks for no more bytes: whatever is piped behind it can wait for its answer.
            if self.more_body or not self._news:
                self._read_on()
            if not self._news:
                await self._wait()
            self._news = False
        if self._over():
            return {"type": "http.disconnect"}
        if self._late:
            raise TimeoutError
        body = b"".join(self._pieces)
        self._pieces, self._bytes = [], 0
        self._heard_out = not self.more_body
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def __call__(self, message: Any) -> None:
        if self._flow.write_paused and not self.disconnected:
            await self._flow.drain()
        if self.disconnected:
            return
        if not self.response_started:
            headers = message["headers"]
            self._begin(message["status"], header_lines(headers), _stated(headers))
        elif not self.response_complete:
            self._go_on(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError("the answer is already complete")

    async def give(self, given: Answer, request_id: str) -> None:
        """A whole answer without messages, as our own application gives it."""
        if self._flow.write_paused and not self.disconnected:
            await self._flow.drain()
        if self.disconnected:
            return
        assert not self.response_started
        status, body = given.status, given.body
        lines = given.lines or header_lines(given.headers)
        length = b"" if status == 204 else b"content-length: %d\r\n" % len(body)
        if self._scope["method"] == "HEAD":
            body = b""
        self.response_started = True
        self._expects = False
        parts = STATUS_LINE[status], _standing_lines(self._standing), lines, request_id.encode(), length
        head = b"%b%b%bcache-control: no-store\r\nx-request-id: %b\r\n%b" % parts
        self._transport.write(head + self._end_of_head() + body)
        self._complete()

    def whole_body(self) -> bytes | None:
        """The body without messages, if all of it is here."""
        if self.more_body or self._over() or self._late or self._heard_out:
            return None
        self._expects = self._news = False
        self._heard_out = True
        pieces, self._pieces, self._bytes = self._pieces, [], 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def take(self, piece: bytes) -> int:
        """A piece of the body came; returns how many bytes wait to be received."""
        self._pieces.append(piece)
        self._bytes += len(piece)
        self.tell()
        return self._bytes

    def tell(self) -> None:
        """Something happened: whoever waits to receive it goes on."""
        self._news = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def overdue(self) -> None:
        """The body took too long."""
        self._late = True
        self.tell()

    def hang_up(self) -> None:
        """The client sends no more: one that waits for something to happen has most likely gone."""
        self._hung_up = True
        self.tell()

    def abandon(self) -> None:
        """Nothing can be read from or said to the client any more."""
        self.disconnected = True
        self.tell()

    def end_stream(self) -> None:
        """An answer without an end would hold up a server that wants to leave."""
        if self._stream is not None:
            self._stream.cancel()

    def _over(self) -> bool:
        waits = self._heard_out and not self.response_started
        return self.disconnected or self.response_complete or (self._hung_up and waits)

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _begin(self, status: int, lines: bytes, left: int | None) -> None:
        self.response_started = True
        self._expects = False
        if status in _BODILESS:
            left = left or 0
        if left is None:
            self._stream = asyncio.current_task()
            lines += b"transfer-encoding: chunked\r\n"
        standing = _standing_lines(self._standing)
        self._head = b"".join((STATUS_LINE[status], standing, lines, self._end_of_head()))
        self._left = left
        if left is None:
            self._write(b"")

    def _end_of_head(self) -> bytes:
        if self.more_body:
            self.keep_alive = False  # the rest of the body would be taken for the next request
        return b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"

    def _go_on(self, body: bytes, *, more: bool) -> None:
        if self._scope["method"] == "HEAD":
            body, self._left = b"", 0
        elif self._left is None:
            body = _chunk(body, last=not more)
        else:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("the answer has not the length that it states")
        self._write(body)
        if not more:
            self._complete()

    def _write(self, data: bytes) -> None:
        head, self._head = self._head, b""
        if head or data:
            self._transport.write(head + data)

    def _complete(self) -> None:
        self.response_complete = True
        self.tell()
        self._done(self)

    def _leave(self) -> None:
        """The server goes and cannot wait any longer: the caller hears so, and may repeat."""
        if self.disconnected or self.response_complete:
            return
        self.keep_alive = False
        if not self.response_started:
            self.response_started = True
            named = any(name == KEY_HEADER for name, _ in self._scope["headers"])
            self._head = leaving(repeatable=named or self._scope["method"] in ("GET", "HEAD"))
            self._write(b"")
            self._complete()
        elif self._left is None:
            self._go_on(b"", more=False)
        else:
            self._transport.close()


class _Known:
    """The headers of every answer, which change once in a second, as they are sent."""

    headers: Iterable[Header] = ()
    lines = b""


def _standing_lines(headers: Iterable[Header]) -> bytes:
    if headers is not _Known.headers:
        _Known.headers, _Known.lines = headers, header_lines(headers)
    return _Known.lines


def leaving(*, repeatable: bool) -> bytes:
    request_id = SystemIds().request_id()
    if repeatable:
        found = problem(
            "SERVICE_UNAVAILABLE", "this server is being stopped; repeat with the same key", RETRY_AFTER_STORE
        )
    else:
        found = problem(
            "SERVICE_UNAVAILABLE", "this server is being stopped; it may be done, so look before you repeat"
        )
    given = refusal(found, request_id)
    return on_the_wire(given, request_id)


def on_the_wire(given: Answer, request_id: str) -> bytes:
    """The last answer of a connection."""
    headers = (
        *given.headers,
        (b"cache-control", b"no-store"),
        (b"x-request-id", request_id.encode()),
        (b"content-length", b"%d" % len(given.body)),
        (b"connection", b"close"),
    )
    return b"".join((STATUS_LINE[given.status], header_lines(headers), b"\r\n", given.body))


def _stated(headers: Iterable[Header]) -> int | None:
    """The length that an answer states."""
    return next((int(value) for name, value in headers if name == b"content-length"), None)


def _chunk(body: bytes, *, last: bool) -> bytes:
    data = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
    return data + b"0\r\n\r\n" if last else data


def _nothing(exchange: Exchange) -> None:
    pass
