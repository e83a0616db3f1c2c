"""One request and its response on a connection; a complete response is sent in one write."""

import asyncio
import logging
from collections.abc import Callable, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any, NamedTuple

from onejob.logs import redacted_traceback

Scope = MutableMapping[str, Any]
Header = tuple[bytes, bytes]

HIGH_WATER_BYTES = 65_536  # of a request, buffered: above it the connection is not read
STATUS_LINES = {
    status: b"HTTP/1.1 %d %b\r\n" % (status, HTTPStatus(status).phrase.encode()) for status in map(int, HTTPStatus)
}
_BODILESS_STATUSES = (204, 304)

log = logging.getLogger("onejob.http")


class RefusedRequest(NamedTuple):
    """A request that gets no response of the application."""

    status: int
    message: str
    scope: Scope | None = None  # of a request that the application has begun: it may be done


# Renders the last response of a connection, head and body; empty: the connection is closed without one.
Refuse = Callable[[RefusedRequest], bytes]


class FlowControl:
    """Whether a connection is read, and whether what is written to it is waited for."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._read_paused = False
        self.write_paused = False
        self._writable = asyncio.Event()

    async def drain(self) -> None:
        """Wait until the client has read what was written."""
        await self._writable.wait()

    def pause_reading(self) -> None:
        if not self._read_paused:
            self._read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._read_paused:
            self._read_paused = False
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        self.write_paused = True
        self._writable.clear()

    def resume_writing(self) -> None:
        self.write_paused = False
        self._writable.set()


class HttpExchange:
    """The `receive` and, as a callable, the `send` of an ASGI application.

    `take_body_fast` and `send_response_fast` do the same without ASGI messages; our own applications use them.
    Equivalence test: tests/server/test_exchange.py.
    """

    more_body = True
    disconnected = False
    response_started = False
    response_complete = False
    _buffered_bytes = 0  # of the chunks
    _has_event = False  # since the last `receive`
    _waiter: asyncio.Future[None] | None = None
    _body_timed_out = False
    _body_received = False  # the application has all of it
    _client_sent_eof = False
    _head = b""  # of the response, not yet written
    _body_bytes_left: int | None = None  # of the response; None: its length is not known
    _is_chunked = False  # the response; one of unknown length that is not ends with the connection
    _stream_task: asyncio.Task[Any] | None = None
    task: asyncio.Task[None] | None = None

    def __init__(
        self,
        scope: Scope,
        transport: asyncio.Transport,
        flow: FlowControl,
        *,
        on_complete: Callable[["HttpExchange"], None],
        default_headers: bytes,
        refuse: Refuse,
        expects_continue: bool,
        keep_alive: bool,
        resume_reading: Callable[[], None],
    ) -> None:
        self.keep_alive = keep_alive
        self._chunks: list[bytes] = []  # of the body, not yet received by the application
        self._scope = scope
        self._transport = transport
        self._flow = flow
        self._on_complete = on_complete
        self._default_headers = default_headers
        self._refuse = refuse
        self._expects_continue = expects_continue  # the client sends the body after `100 Continue`
        self._resume_reading = resume_reading

    async def run(self, app: Any, tasks: set[asyncio.Task[None]]) -> None:
        """Run the application; afterwards remove the task from those that a shutdown waits for."""
        try:
            await app(self._scope, self.receive, self)
            if not (self.response_complete or self.disconnected):
                log.error("the application returned before its response was complete; closing the connection")
                self._transport.close()
        except asyncio.CancelledError:
            self._respond_shutting_down()
        except BaseException as error:
            log.error("sending a response failed; closing the connection: %s", redacted_traceback(error))
            self._transport.close()
            if isinstance(error, (SystemExit, KeyboardInterrupt, GeneratorExit)):
                raise
        finally:
            self._on_complete = _ignore_completion
            if self.task is not None:
                tasks.discard(self.task)

    async def receive(self) -> Any:
        if self._expects_continue and not (self.disconnected or self._transport.is_closing()):
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._expects_continue = False
        if not self._is_over():
            # A complete request needs no more bytes; pipelined requests behind it wait for its response.
            if self.more_body or not self._has_event:
                self._resume_reading()
            if not self._has_event:
                await self._wait_for_event()
            self._has_event = False
        if self._is_over():
            return {"type": "http.disconnect"}
        if self._body_timed_out:
            raise TimeoutError
        body = b"".join(self._chunks)
        self._chunks, self._buffered_bytes = [], 0
        self._body_received = not self.more_body
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    def take_body_fast(self) -> bytes | None:
        """The body, if all of it has arrived and `receive` has not returned it; else None."""
        if self.more_body or self._is_over() or self._body_timed_out or self._body_received:
            return None
        self._expects_continue = self._has_event = False
        self._body_received = True
        chunks, self._chunks, self._buffered_bytes = self._chunks, [], 0
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def __call__(self, message: Any) -> None:
        if self._flow.write_paused and not self.disconnected:
            await self._flow.drain()
        if self.disconnected:
            return
        if not self.response_started:
            headers = message["headers"]
            self._start_response(message["status"], encode_headers(headers), _content_length(headers))
        elif not self.response_complete:
            self._send_body(message.get("body", b""), more_body=message.get("more_body", False))
        else:
            raise RuntimeError("the response is already complete")

    async def send_response_fast(self, status: int, encoded_headers: bytes, body: bytes) -> None:
        """Send a complete response in one write; its length is not among the headers."""
        if self._flow.write_paused and not self.disconnected:
            await self._flow.drain()
        if self.disconnected:
            return
        assert not self.response_started
        length = b"" if status == 204 else b"content-length: %d\r\n" % len(body)
        if self._scope["method"] == "HEAD":
            body = b""
        self.response_started = True
        self._expects_continue = False
        parts = (STATUS_LINES[status], self._default_headers, encoded_headers, length, self._end_of_head(), body)
        self._transport.write(b"".join(parts))
        self._complete()

    def write_encoded(self, data: bytes, *, more: bool = False) -> None:
        """Write a response, or the next part of it, whose head the application has encoded itself."""
        if self.disconnected:
            return
        self.response_started = True
        self._transport.write(data)
        if not more:
            self._complete()

    def add_chunk(self, chunk: bytes) -> int:
        """Buffer a piece of the body; returns how many bytes are buffered."""
        self._chunks.append(chunk)
        self._buffered_bytes += len(chunk)
        self._has_event = True
        if self._waiter is not None:
            self.notify()
        return self._buffered_bytes

    def end_body(self) -> None:
        """All of the body is buffered."""
        self.more_body = False
        self._has_event = True
        if self._waiter is not None:
            self.notify()

    def notify(self) -> None:
        """Wake up a waiting `receive`."""
        self._has_event = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def time_out_body(self) -> None:
        self._body_timed_out = True
        self.notify()

    def mark_client_eof(self) -> None:
        """The client sends no more; if the application only waits for an event, it has most likely disconnected."""
        self._client_sent_eof = True
        self.notify()

    def mark_disconnected(self) -> None:
        self.disconnected = True
        self.notify()

    def cancel_stream(self) -> None:
        """A response without an end would delay the shutdown of the server."""
        if self._stream_task is not None:
            self._stream_task.cancel()

    def _is_over(self) -> bool:
        waits = self._body_received and not self.response_started
        return self.disconnected or self.response_complete or (self._client_sent_eof and waits)

    async def _wait_for_event(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _start_response(self, status: int, encoded_headers: bytes, content_length: int | None) -> None:
        self.response_started = True
        self._expects_continue = False
        if status in _BODILESS_STATUSES:
            content_length = content_length or 0
        if content_length is None:
            self._stream_task = asyncio.current_task()
            self._is_chunked = self._scope["http_version"] != "1.0"
            encoded_headers += b"transfer-encoding: chunked\r\n" if self._is_chunked else b""
        self._head = b"".join((STATUS_LINES[status], self._default_headers, encoded_headers, self._end_of_head()))
        self._body_bytes_left = content_length
        if content_length is None:
            self._write(b"")

    def _end_of_head(self) -> bytes:
        if self.more_body:
            self.keep_alive = False  # the rest of the body would be parsed as the next request
        return b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"

    def _send_body(self, body: bytes, *, more_body: bool) -> None:
        if self._scope["method"] == "HEAD":
            body, self._body_bytes_left = b"", 0
        elif self._is_chunked:
            body = _chunk(body, last=not more_body)
        elif self._body_bytes_left is not None:
            self._body_bytes_left -= len(body)
            if self._body_bytes_left < 0 or (self._body_bytes_left and not more_body):
                raise RuntimeError("the body of the response is not as long as its content-length")
        self._write(body)
        if not more_body:
            self._complete()

    def _write(self, data: bytes) -> None:
        head, self._head = self._head, b""
        if head or data:
            self._transport.write(head + data)

    def _complete(self) -> None:
        self.response_complete = True
        self._has_event = True
        if self._waiter is not None:
            self.notify()
        self._on_complete(self)

    def _respond_shutting_down(self) -> None:
        """The time for draining is over and the task was cancelled: answer with 503."""
        if self.disconnected or self.response_complete:
            return
        self.keep_alive = False
        if not self.response_started:
            self.response_started = True
            self._head = self._refuse(RefusedRequest(503, "this server is shutting down", self._scope))
            if not self._head:
                self._transport.abort()
            self._write(b"")
            self._complete()
        elif self._body_bytes_left is None:
            self._send_body(b"", more_body=False)
        else:
            self._transport.close()


def encode_headers(headers: Iterable[Header]) -> bytes:
    lines = [b"%b: %b\r\n" % header for header in headers]
    encoded = b"".join(lines)
    # A line break inside a header would begin another header, or another response.
    if encoded.count(b"\n") != len(lines):
        raise RuntimeError("a header contains a line break")
    return encoded


def _content_length(headers: Iterable[Header]) -> int | None:
    return next((int(value) for name, value in headers if name == b"content-length"), None)


def _chunk(body: bytes, *, last: bool) -> bytes:
    data = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
    return data + b"0\r\n\r\n" if last else data


def _ignore_completion(exchange: HttpExchange) -> None:
    pass
