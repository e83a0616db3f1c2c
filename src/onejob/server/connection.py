"""One HTTP/1.1 connection: parses requests, enforces limits and deadlines, keeps responses in order.

httptools parses the bytes; `Connection` is the asyncio protocol between a socket and an application. A server of another
kind than the public API makes a subclass of it: the manager's says what else a head must not have.

**Reading.** Bytes are parsed as they arrive, in slices of SLICE_BYTES. When a parsed slice leaves a request waiting
behind the one being answered, the rest stays in `_unparsed` and the socket is not read: the memory of a connection is
bounded, however much a client pipelines. `_newest` is the request whose body the parser reads.

**Responding.** Requests are answered one after the other: `_active` has a task that runs the application, `_queue` has
the parsed requests behind it.

**Deadlines.** A connection is in one `Stage`, which has one deadline. One slow timer per connection compares it with
the clock, so that a request that arrives at once sets no timer. A timeout is noticed late by at most a quarter of the
shortest limit.

**Refusing.** A request that cannot be read is answered with a problem, after the responses to the requests before it.
Then the connection closes in two steps: it sends EOF and discards what the client still sends, for up to
LINGER_SECONDS. If it closed at once, the kernel would reset the connection, and the client could not read the problem.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import Enum, auto
from typing import Any, NamedTuple
from urllib.parse import unquote

import httptools

from onejob.logs import redacted_traceback

from .exchange import HIGH_WATER_BYTES, FlowControl, Header, HttpExchange, Refuse, RefusedRequest, Scope

CORKED_BYTES_MAX = 16_384  # more than this is written at once
SLICE_BYTES = 16_384
HEADERS_MAX = 100
LINGER_SECONDS = 5.0
SHUTDOWN_GRACE_SECONDS = 0.25  # for requests that are on their way when the server shuts down
CHECKS_PER_DEADLINE = 4

_NEVER = float("inf")
_ASGI = {"version": "3.0", "spec_version": "2.3"}
_LINE_BYTES = len("  HTTP/1.1\r\n\r\n")
_FIELD_BYTES = len(": \r\n")
_UPGRADE_HEADER = re.compile(rb"\r\nupgrade:", re.IGNORECASE)
_SINGLE_HEADERS = frozenset((b"host", b"content-type", b"origin"))
_CHECKED_HEADERS = _SINGLE_HEADERS | {b"expect", b"transfer-encoding"}
# RFC 3986, without the comma: a proxy writes one where it joins two headers.
_HOST = re.compile(
    rb"(?:\[[0-9A-F:.]+(?:%25[\w.~-]+)?\]|(?:[\w.~!$&'()*+;=-]|%[0-9A-F]{2})*)(?::[0-9]{0,5})?", re.IGNORECASE
)
_ORIGIN = re.compile(rb"[^\s,]+")

Application = Callable[[Any, Any, Any], Coroutine[Any, Any, None]]

log = logging.getLogger("onejob.http")


class ConnectionLimits(NamedTuple):
    """Of connections. In seconds: of a head, of a body, and between two requests."""

    head_bytes_max: int
    head_seconds_max: float
    body_seconds_max: float
    idle_seconds_max: float
    connections_max: float = _NEVER


class CorkedWrites:
    """A fast path: the responses of one event loop iteration are written together at its end.

    A write wakes up the process that reads at the other end, which costs more than the write itself. When many
    responses are written in a row, only the first one pays for it: 7 to 10 % of the cost of a duplicate (decision 14).
    The plain twin is the transport itself, which gets the same bytes in the same order (tests/server/test_corked.py).
    """

    def __init__(self) -> None:
        self._pending: list[CorkedTransport] = []

    def add(self, transport: "CorkedTransport") -> None:
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._flush_all)
        self._pending.append(transport)

    def _flush_all(self) -> None:
        pending, self._pending = self._pending, []
        for transport in pending:
            try:
                transport.flush()
            except Exception as error:  # noqa: BLE001 - a broken connection must not delay the others
                log.warning("writing a response failed; aborting the connection: %s", redacted_traceback(error))
                transport.abort()


class CorkedTransport(asyncio.Transport):
    """Buffers writes until the end of the loop iteration, or until EOF, closing or size require to flush them."""

    __slots__ = ("_buffer", "_corked_writes", "_eof_written", "_transport")

    def __init__(self, transport: asyncio.Transport, corked_writes: CorkedWrites) -> None:
        self._transport = transport
        self._corked_writes = corked_writes
        self._buffer = b""
        self._eof_written = False

    def write(self, data: Any) -> None:
        if self._eof_written:
            return
        if self._buffer:
            self._buffer += data
        else:
            self._buffer = data
            self._corked_writes.add(self)
        if len(self._buffer) > CORKED_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        data, self._buffer = self._buffer, b""
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def get_write_buffer_size(self) -> int:
        return len(self._buffer) + self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def can_write_eof(self) -> bool:
        return self._transport.can_write_eof()

    def write_eof(self) -> None:
        self.flush()
        self._eof_written = True
        self._transport.write_eof()

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        self._buffer = b""
        self._transport.abort()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()


class Stage(Enum):
    """What a connection is waiting for."""

    IDLE = auto()  # the next request
    HEAD = auto()
    BODY = auto()
    RESPONSE = auto()  # the application
    CLOSING = auto()  # the client, to read the last response and close


# Looking up an enum member is slow in Python 3.11; every request uses these.
_IDLE, _RESPONSE, _CLOSING = Stage.IDLE, Stage.RESPONSE, Stage.CLOSING


class UnreadableRequest(Exception):
    """The request is refused with this status, and nothing after it is read."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ConnectionContext:
    """What the connections of a server share."""

    def __init__(self, app: Application, limits: ConnectionLimits, refuse: Refuse) -> None:
        self.app = app
        self.limits = limits
        self.refuse = refuse
        self.default_headers = b""  # of every response of the application
        self.corked_writes = CorkedWrites()
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()


class HeadReader:
    """Collects the head of a request from the parser's callbacks, checks it and makes the ASGI scope of it."""

    limits: ConnectionLimits
    parser: httptools.HttpRequestParser
    scheme: str
    client: tuple[str, int] | None
    server: tuple[str, int | None] | None

    url = b""
    headers: list[Header]
    in_head = False
    expects_continue = False
    checked_headers: dict[bytes, list[bytes]]  # the values of _CHECKED_HEADERS
    slice = b""  # what is being parsed
    request_line = b""  # the slice in which the head began, and those that were received until its line was complete
    line_begin = 0  # not before this place in `request_line`; 0: there
    next_line_begin = 0  # of the next head, if it begins in this slice
    overhead_bytes = 0  # of the head, or since the last piece of the body; too high by one slice at most

    def begin_head(self) -> None:
        self.url = b""
        self.headers = []
        self.in_head = True
        self.expects_continue = False
        self.checked_headers = {}
        self.request_line = self.slice
        self.line_begin = self.next_line_begin
        self.overhead_bytes = len(self.slice)

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.in_head:
            return  # a trailer: the head was checked without it
        name = name.lower()
        if name in _CHECKED_HEADERS:
            self.checked_headers.setdefault(name, []).append(value.strip(b" \t"))
        self.headers.append((name, value))

    def end_head(self) -> Scope:
        """The ASGI scope of the request; raises UnreadableRequest."""
        self.in_head = False
        method = self.parser.get_method()
        if self.overhead_bytes > self.limits.head_bytes_max or len(self.headers) > HEADERS_MAX:
            self._check_head_size(len(method))
        self.overhead_bytes = 0
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise UnreadableRequest(400, f"HTTP/{version} is not supported; send HTTP/1.1")
        # The parser takes more than one space, and other protocols than HTTP. Where a request before it ends is not known.
        line = b"%b %b HTTP/%b\r\n" % (method, self.url, version.encode())
        found = self.request_line.find(line, self.line_begin)
        if found < 0 or (not self.line_begin and self.request_line[:found].strip(b"\r\n")):
            raise UnreadableRequest(400, "the request line is not `METHOD TARGET HTTP/1.1`; fix the client")
        self.next_line_begin = found + len(line) if self.request_line is self.slice else 1
        expectations = self.checked_headers.get(b"expect", [])
        self.expects_continue = len(expectations) == 1 and expectations[0].lower() == b"100-continue"
        self.check_head(version)
        path, query = self._parse_target()
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "method": method.decode("ascii"),
            "scheme": self.scheme,
            "path": unquote(path.decode("ascii")) if b"%" in path else path.decode("ascii"),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": self.headers,
            "client": self.client,
            "server": self.server,
        }
        return scope

    def head_limit_message(self) -> str:
        return f"a request head has at most {self.limits.head_bytes_max} bytes and {HEADERS_MAX} headers; send less"

    def _check_head_size(self, method_bytes: int) -> None:
        size = method_bytes + len(self.url) + _LINE_BYTES
        size += sum(len(name) + len(value) + _FIELD_BYTES for name, value in self.headers)
        if size > self.limits.head_bytes_max or len(self.headers) > HEADERS_MAX:
            raise UnreadableRequest(431, self.head_limit_message())

    def check_head(self, version: str) -> None:
        """A proxy that reads these in another way would see other requests than this server."""
        checked = self.checked_headers
        for name, values in checked.items():
            if len(values) > 1 and name in _SINGLE_HEADERS:
                raise UnreadableRequest(400, f"the request has two {name.decode().title()} headers; send one")
        if b"host" in checked:
            if not _HOST.fullmatch(checked[b"host"][0]):
                raise UnreadableRequest(400, "the Host header is malformed; send `Host: NAME` or `Host: NAME:PORT`")
        elif version == "1.1":
            raise UnreadableRequest(400, "the request has no Host header; send one")
        if b"origin" in checked and not _ORIGIN.fullmatch(checked[b"origin"][0]):
            raise UnreadableRequest(400, "the Origin header is malformed; send one origin, e.g. https://app.example")
        if b"transfer-encoding" in checked:
            if checked[b"transfer-encoding"] != [b"chunked"]:
                raise UnreadableRequest(400, "the only Transfer-Encoding is `chunked`; send that, or Content-Length")
            if version == "1.0":
                raise UnreadableRequest(400, "HTTP/1.0 has no Transfer-Encoding; send Content-Length, or HTTP/1.1")
        if any(checked.get(b"expect", ())) and not self.expects_continue:
            raise UnreadableRequest(417, "the only expectation is `100-continue`; send that, or no Expect header")

    def _parse_target(self) -> tuple[bytes, bytes]:
        """The path and the query. Nearly always the request target is just these two."""
        if self.url.startswith(b"/"):
            path, _, query = self.url.partition(b"?")
            return path, query
        target = httptools.parse_url(self.url)
        if target.path is None:
            raise UnreadableRequest(400, "the request target has no path; send one")
        return target.path, target.query or b""


class Connection(HeadReader, asyncio.Protocol):
    """See the module docstring."""

    is_pipelined = True  # False: a request that comes before the response to the last one is refused, instead of both

    transport: CorkedTransport
    flow: FlowControl
    stage = Stage.HEAD
    _deadline = _NEVER  # of the stage
    _write_deadline = _NEVER
    _timer: asyncio.TimerHandle | None = None
    _newest: HttpExchange | None = None
    _active: HttpExchange | None = None
    _unparsed = b""
    _discards_input = False
    _received_eof = False
    _pending_refusal = b""  # sent after the responses to the requests before it
    _shutting_down = False

    def __init__(self, context: ConnectionContext) -> None:
        self.app = context.app
        self.limits = context.limits
        self.loop = asyncio.get_running_loop()
        self.context = context
        self.tasks = context.tasks
        self.parser = httptools.HttpRequestParser(self)
        with suppress(AttributeError):  # httptools before 0.6.3
            # Bytes after the last request of a connection are discarded here; the parser need not fail on them.
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._queue: deque[HttpExchange] = deque()

    # Called by asyncio.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of sockets
        self.context.connections.add(self)
        self.transport = CorkedTransport(transport, self.context.corked_writes)
        self.flow = FlowControl(self.transport)
        self.server = _address(transport, "sockname")
        self.client = _address(transport, "peername")
        self.scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        if len(self.context.connections) > self.limits.connections_max:
            self.transport.abort()
        self._enter_stage(Stage.HEAD, self.limits.head_seconds_max)
        self._check_deadlines()

    def data_received(self, data: bytes) -> None:
        if not self._unparsed:
            self._feed(data)
            return
        self._unparsed += data
        if len(self._unparsed) > HIGH_WATER_BYTES:
            self.flow.pause_reading()

    def eof_received(self) -> bool:
        """A client may send EOF and still read its responses; True keeps the connection open for them."""
        self._received_eof = True
        self.transport.flush()  # asyncio may close the socket below
        if self.stage is Stage.CLOSING:
            return False
        if not self._unparsed:
            self._on_input_end()
        if self._active is None or not self._is_responding():
            return False
        self._active.mark_client_eof()
        # TLS connections cannot be half-closed.
        return not self._active.response_started and self.scheme == "http"

    def pause_writing(self) -> None:
        # A client that does not read its response has as long as one that does not send its body.
        self._write_deadline = self.loop.time() + self.limits.body_seconds_max
        self.flow.pause_writing()

    def resume_writing(self) -> None:
        self._write_deadline = _NEVER
        self.flow.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.context.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        active, self._active, self._newest = self._active, None, None
        if active is not None and not active.response_complete:
            active.mark_disconnected()
        self._stop_reading()
        self._queue.clear()
        self.flow.resume_writing()
        if exc is None:
            self.transport.close()
        del self.parser  # it refers to this object

    # Called by the server.

    def shutdown(self) -> None:
        self._shutting_down = True
        if self.stage is Stage.CLOSING:
            self.transport.close()
        elif self._active is not None and self._newest is not None and self._is_responding():
            self._newest.keep_alive = False
            self._active.cancel_stream()
        else:
            self.loop.call_later(SHUTDOWN_GRACE_SECONDS, self._close_if_idle)

    # Reading.

    def _feed(self, data: bytes) -> None:
        if self._discards_input:
            return
        if len(data) <= SLICE_BYTES and not self._queue:
            self._parse(data)
            return
        for start in range(0, len(data), SLICE_BYTES):
            if self._discards_input:
                return
            if self._queue:
                self._unparsed = data[start:]
                self.flow.pause_reading()
                self._update_stage()
                return
            self._parse(data[start : start + SLICE_BYTES])

    def _feed_unparsed(self) -> None:
        if self._unparsed and not self._queue:
            data, self._unparsed = self._unparsed, b""
            self._feed(data)
            if self._received_eof and not self._unparsed:
                self._on_input_end()

    def _parse(self, data: bytes) -> None:
        self.overhead_bytes += len(data)
        if (b"pgrade:" in data or b"PGRADE:" in data) and self.stage is not Stage.BODY:
            data = _without_upgrade(data)
        self.slice = data
        self.next_line_begin = int(self.in_head or (self._newest is not None and self._newest.more_body))
        if self.in_head and not self.headers:
            self.request_line += data
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # The request is answered in HTTP/1.1; the bytes after it are in the other protocol.
            self._discards_input = True
            if self._newest is not None:
                self._newest.keep_alive = False
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(cause, UnreadableRequest):
                self._refuse(cause.status, str(cause))
            elif isinstance(cause, MemoryError):
                self._refuse_out_of_memory()
            else:
                self._refuse(400, self.syntax_message(error))
            return
        except MemoryError:
            self._refuse_out_of_memory()
            return
        self.slice = b""
        if not self.in_head:
            self.request_line = b""
        newest = self._newest
        if newest is None or newest.more_body or newest.response_complete or self._queue or self.in_head:
            self._update_stage()
        else:  # the usual case: one complete request, which is being answered
            self._enter_stage(_RESPONSE)

    def syntax_message(self, error: httptools.HttpParserError) -> str:
        return "the request is not well-formed HTTP/1.1; fix the client"

    def on_message_begin(self) -> None:
        if not self.is_pipelined and self._is_responding():
            raise UnreadableRequest(400, "send one request at a time")
        self.begin_head()
        if self._newest is not None:  # the deadline of the first head began with the connection
            self.stage = _IDLE

    def on_headers_complete(self) -> None:
        scope = self.end_head()
        before = self._newest
        self._newest = exchange = HttpExchange(
            scope,
            self.transport,
            self.flow,
            on_complete=self._on_exchange_complete,
            default_headers=self.context.default_headers,
            refuse=self.context.refuse,
            expects_continue=self.expects_continue and scope["http_version"] != "1.0",
            keep_alive=not self._shutting_down and scope["http_version"] != "1.0" and self.parser.should_keep_alive(),
            resume_reading=self._resume_reading,
        )
        if before is None or before.response_complete:
            self._start_exchange(exchange)
        else:
            self.flow.pause_reading()
            self._queue.append(exchange)

    def on_body(self, body: bytes) -> None:
        assert self._newest is not None
        self.overhead_bytes = 0
        if self._newest.add_chunk(body) > HIGH_WATER_BYTES:
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        assert self._newest is not None
        self._newest.end_body()

    def _on_input_end(self) -> None:
        """All input was parsed, and no more will come: an incomplete request is refused."""
        if self.in_head or self._is_body_incomplete():
            self._refuse(400, "the request ended before it was complete; send it again")
        if self._newest is not None:
            self._newest.keep_alive = False

    def _resume_reading(self) -> None:
        """An exchange waits for its body, or for the client to disconnect: both are noticed by reading."""
        if len(self._unparsed) <= HIGH_WATER_BYTES:
            self.flow.resume_reading()

    def _stop_reading(self) -> None:
        self._discards_input = True
        self._unparsed = b""

    def _is_body_incomplete(self) -> bool:
        newest = self._newest
        return newest is not None and newest.more_body and not newest.response_complete

    # Stages and deadlines.

    def _enter_stage(self, stage: Stage, seconds: float = _NEVER) -> None:
        self.stage = stage
        self._deadline = _NEVER if seconds is _NEVER else self.loop.time() + seconds

    def _update_stage(self) -> None:
        """Find out what the connection is waiting for after some bytes were parsed."""
        if self._queue:
            self._enter_stage(Stage.RESPONSE)  # the client is not being read
        elif self.in_head:
            if self.stage is not Stage.HEAD:
                self._enter_stage(Stage.HEAD, self.limits.head_seconds_max)
            # If requests are pipelined, the slice may have begun with the rest of the request before.
            if self.overhead_bytes > self.limits.head_bytes_max + self.is_pipelined * SLICE_BYTES:
                self._refuse(431, self.head_limit_message())
        elif self._is_body_incomplete():
            if self.stage is not Stage.BODY:
                self._enter_stage(Stage.BODY, self.limits.body_seconds_max)
            if self.overhead_bytes > self.limits.head_bytes_max + SLICE_BYTES:
                self._refuse(400, "the chunk extensions or trailers of the body are too long; leave them out")
        elif self._is_responding():
            self._enter_stage(Stage.RESPONSE)

    def _check_deadlines(self) -> None:
        now = self.loop.time()
        if now >= self._write_deadline:
            self.transport.abort()
        elif now >= self._deadline:
            self._deadline = _NEVER
            self._on_stage_timeout()
        limits = self.limits
        shortest = min(limits.head_seconds_max, limits.body_seconds_max, limits.idle_seconds_max, LINGER_SECONDS)
        self._timer = self.loop.call_later(shortest / CHECKS_PER_DEADLINE, self._check_deadlines)

    def _on_stage_timeout(self) -> None:
        match self.stage:
            case Stage.HEAD if self.in_head:
                seconds = self.limits.head_seconds_max
                self._refuse(408, f"the request head did not arrive within {seconds:g} s; send it faster")
            case Stage.HEAD | Stage.IDLE:
                self._close()
            case Stage.BODY if self._newest is not None:
                self._newest.time_out_body()
            case Stage.CLOSING:
                self.transport.abort()

    # Responding.

    def _is_responding(self) -> bool:
        active = self._active
        return active is not None and not (active.response_complete or active.disconnected)

    def _start_exchange(self, exchange: HttpExchange) -> None:
        self._active = exchange
        exchange.task = self.loop.create_task(exchange.run(self.app, self.tasks))
        self.tasks.add(exchange.task)

    def _on_exchange_complete(self, exchange: HttpExchange) -> None:
        if self.stage is _CLOSING or self.transport.is_closing():
            return
        if not exchange.keep_alive:
            self._close(lingering=exchange.more_body)
        elif self._queue:
            self._start_exchange(self._queue.popleft())
            self._feed_unparsed()  # the rest of its body may be there
            self._update_stage()
        elif self._pending_refusal:
            self._send_refusal()
        else:
            self._read_next_request()

    def _read_next_request(self) -> None:
        if not self.in_head:
            self._enter_stage(_IDLE, self.limits.idle_seconds_max)
        elif self.stage is not Stage.HEAD:
            self._enter_stage(Stage.HEAD, self.limits.head_seconds_max)
        self.flow.resume_reading()
        if self._unparsed:
            self._feed_unparsed()
        if self._received_eof and not self._is_responding():
            self._close()

    # Refusing and closing.

    def _refuse(self, status: int, message: str) -> None:
        """Answer the newest request, or the bytes that were to become one, with a refusal, and read no more."""
        if self._discards_input:
            return
        self._stop_reading()
        self._pending_refusal = self.context.refuse(RefusedRequest(status, message))
        if not self.in_head and self._newest is not None and self._is_body_incomplete():
            self._abandon_exchange(self._newest)
        elif self._active is not None and not self.is_pipelined and self._is_responding():
            self._abandon_exchange(self._active)
        self._enter_stage(Stage.RESPONSE)
        if not self._is_responding():
            self._send_refusal()

    def _abandon_exchange(self, exchange: HttpExchange) -> None:
        """Its body will never be complete."""
        exchange.mark_disconnected()
        if exchange is not self._active:
            self._queue.pop()
        elif exchange.response_started:
            self._pending_refusal = b""  # it would stand in the middle of the response

    def _refuse_out_of_memory(self) -> None:
        self._refuse(503, "the server is out of memory: nothing was done; send the request again")

    def _send_refusal(self) -> None:
        self.transport.write(self._pending_refusal)
        self._close(lingering=True)

    def _close(self, *, lingering: bool = False) -> None:
        """Close after the last response; lingering: while the client may still be sending."""
        self._stop_reading()
        self._enter_stage(Stage.CLOSING, LINGER_SECONDS)
        if lingering and not self._received_eof and self.transport.can_write_eof():
            self.transport.write_eof()
            self.flow.resume_reading()
        else:
            self.transport.close()

    def _close_if_idle(self) -> None:
        if not self._is_responding() and not self.transport.is_closing():
            self._close()


def _without_upgrade(data: bytes) -> bytes:
    """The head without its request for another protocol, for which the parser would leave the body unread."""
    head, end, rest = data.partition(b"\r\n\r\n")
    return _UPGRADE_HEADER.sub(b"\r\nX-Asked:", head) + end + rest


def _address(transport: asyncio.Transport, name: str) -> tuple[str, int] | None:
    """Of one end of the connection; None: it has none, e.g. if the client is gone already."""
    info = transport.get_extra_info(name)
    return (str(info[0]), int(info[1])) if isinstance(info, tuple) else None
