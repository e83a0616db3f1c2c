"""Connections: uvicorn's httptools protocol, which by itself takes heads of any size and waits for ever.

What cannot be taken is answered with a problem, after the requests before it. What the client still sends is then
thrown away for a moment, so that it gets to read the answer, and the connection is closed.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, ClassVar
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from onejob.http.config import ServiceConfig
from onejob.http.problems import problem
from onejob.http.request import Scope
from onejob.http.responses import problem_response
from onejob.ids import SystemIds

from .corked import CorkedTransport, CorkedWrites
from .exchange import HttpExchange, encode_final_response

# How long a connection may take for each stage of a request.
#
# It has one deadline, that of its stage, and one slow timer that looks at it: a request that arrives at once costs no
# timer. What is late is found late by at most a quarter of the shortest deadline.


LINGER_SECONDS = 5.0
TICKS_PER_DEADLINE = 4

_NEVER = float("inf")


class Stage(Enum):
    """What a connection is waiting for."""

    IDLE = auto()  # a request
    HEAD = auto()
    BODY = auto()
    RESPONSE = auto()  # ours
    CLOSING = auto()  # the client, to read the last answer and go


class TimeoutProtocol(HttpToolsProtocol):
    service_config: ClassVar[ServiceConfig] = ServiceConfig()

    stage = Stage.HEAD
    _deadline = _NEVER  # of the stage
    _write_deadline = _NEVER
    _timer: asyncio.TimerHandle | None = None

    def enter_stage(self, stage: Stage, seconds: float = _NEVER) -> None:
        self.stage = stage
        self._deadline = _NEVER if seconds is _NEVER else self.loop.time() + seconds

    def on_stage_timeout(self) -> None:
        """The stage took too long."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        super().connection_made(transport)
        self.enter_stage(Stage.HEAD, self.service_config.head_seconds_max)
        self._check_deadlines()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        # A client that does not read its answer is given as long as one that does not send its body.
        self._write_deadline = self.loop.time() + self.service_config.body_seconds_max
        super().pause_writing()

    def resume_writing(self) -> None:
        self._write_deadline = _NEVER
        super().resume_writing()

    def _check_deadlines(self) -> None:
        now = self.loop.time()
        if now >= self._write_deadline:
            self.transport.abort()
        elif now >= self._deadline:
            self._deadline = _NEVER
            self.on_stage_timeout()
        service = self.service_config
        shortest = min(service.head_seconds_max, service.body_seconds_max, service.idle_seconds_max)
        pause = min(shortest, LINGER_SECONDS) / TICKS_PER_DEADLINE
        self._timer = self.loop.call_later(pause, self._check_deadlines)


# The head of a request: measured, judged, and made into what applications read.


HEADERS_MAX = 100

_ASGI = {"version": "3.0", "spec_version": "2.3"}
_LINE_BYTES = len("  HTTP/1.1\r\n\r\n")
_FIELD_BYTES = len(": \r\n")


class UnacceptableRequest(Exception):
    """This request is not read on."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class HeadReader(TimeoutProtocol):
    url: bytes
    in_head = False
    _host_header_count = 0
    overhead_bytes = 0  # bytes of the head, or between two pieces of the body; up to a slice too many

    # What the parser calls.

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self._host_header_count = 0
        self.expect_100_continue = False
        self.in_head = True

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.in_head:
            return  # a trailer, which comes after everything was judged
        name = name.lower()
        if name == b"host":
            self._host_header_count += 1
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def head_limit_message(self) -> str:
        return f"a head has at most {self.service_config.head_bytes_max} bytes and {HEADERS_MAX} headers; send less"

    def build_scope(self) -> Scope:
        """The scope of the request whose head is complete."""
        self.in_head = False
        method = self.parser.get_method()
        if self.overhead_bytes > self.service_config.head_bytes_max or len(self.headers) > HEADERS_MAX:
            self._check_head_size(len(method))
        self.overhead_bytes = 0
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise UnacceptableRequest(400, "this server speaks HTTP/1.1; send that")
        if self._host_header_count > 1:
            raise UnacceptableRequest(400, "there are two Host headers; send one")
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

    def _check_head_size(self, size: int) -> None:
        size += len(self.url) + _LINE_BYTES
        size += sum(len(name) + len(value) + _FIELD_BYTES for name, value in self.headers)
        if size > self.service_config.head_bytes_max or len(self.headers) > HEADERS_MAX:
            raise UnacceptableRequest(431, self.head_limit_message())

    def _parse_target(self) -> tuple[bytes, bytes]:
        """The path and the query. Nearly always the target is just these two."""
        if self.url.startswith(b"/"):
            path, _, query = self.url.partition(b"?")
            return path, query
        target = httptools.parse_url(self.url)
        if target.path is None:
            raise UnacceptableRequest(400, "the request names no path; send one")
        return target.path, target.query or b""


# What a connection reads: parsed as it comes, but never far ahead of what is answered.


SLICE_BYTES = 16_384  # parsed at a time; what is piped behind an unanswered request is bounded by it

# Looking up a member of an enum takes its time: what every request passes has them at hand.
_IDLE, _RESPONSE = Stage.IDLE, Stage.RESPONSE
_UPGRADE_HEADER = re.compile(rb"\r\nupgrade:", re.IGNORECASE)


class RequestReader(HeadReader):
    # The newest; the one that is being answered may be older.
    cycle: HttpExchange | None = None  # type: ignore[assignment]  # all that uvicorn does with it is overridden here
    _queue: deque[HttpExchange]  # behind the one that is being answered
    _unparsed = b""  # received, and kept until the requests before it are answered
    _discards_input = False  # what comes is thrown away
    _eof = False
    _slice_bytes = 0

    def _is_responding(self) -> bool:
        """A request is being answered."""
        raise NotImplementedError

    def _refuse(self, status: int, message: str) -> None:
        """The newest request, or what was to become one, is not read on."""
        raise NotImplementedError

    def data_received(self, data: bytes) -> None:
        if not self._unparsed:
            self._feed(data)
            return
        self._unparsed += data
        if len(self._unparsed) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()

    # What the parser calls.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.overhead_bytes = self._slice_bytes
        self.stage = _IDLE  # each request has deadlines of its own

    def on_body(self, body: bytes) -> None:
        exchange = self.cycle
        assert exchange is not None
        self.overhead_bytes = 0
        if exchange.add_chunk(body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        assert self.cycle is not None
        self.cycle.more_body = False
        self.cycle.notify()

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
            held, self._unparsed = self._unparsed, b""
            self._feed(held)
            if self._eof and not self._unparsed:
                self._on_input_end()

    def _on_input_end(self) -> None:
        """The client sends no more: what is incomplete stays so, and the newest answer is the last."""
        if self.in_head or self._is_body_incomplete():
            self._refuse(400, "the request ended before it was complete; send it again")
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def _resume_reading(self) -> None:
        """An exchange waits for its client, who may also go away: that is seen only by reading."""
        if len(self._unparsed) <= HIGH_WATER_LIMIT:
            self.flow.resume_reading()

    def _parse(self, data: bytes) -> None:
        self._slice_bytes = len(data)
        self.overhead_bytes += self._slice_bytes
        if (b"pgrade:" in data or b"PGRADE:" in data) and self.stage is not Stage.BODY:
            data = _without_upgrade(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # The request is answered as if it had not asked for another protocol; what follows is in that one.
            self._discards_input = True
            if self.cycle is not None:
                self.cycle.keep_alive = False
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(cause, UnacceptableRequest):
                self._refuse(cause.status, str(cause))
            else:
                self._refuse(400, "this is not a well-formed HTTP/1.1 request; mend the client")
            return
        newest = self.cycle
        if newest is None or newest.more_body or newest.response_complete or self._queue or self.in_head:
            self._update_stage()
        else:  # as most often: a request is here, whole, and being answered
            self.enter_stage(_RESPONSE)

    def _update_stage(self) -> None:
        """Some bytes were parsed: what is the connection waiting for now?"""
        if self._queue:
            self.enter_stage(Stage.RESPONSE)  # what the client still sends is not read meanwhile
        elif self.in_head:
            if self.stage is not Stage.HEAD:
                self.enter_stage(Stage.HEAD, self.service_config.head_seconds_max)
            if self.overhead_bytes > self.service_config.head_bytes_max + SLICE_BYTES:
                self._refuse(431, self.head_limit_message())
        elif self._is_body_incomplete():
            if self.stage is not Stage.BODY:
                self.enter_stage(Stage.BODY, self.service_config.body_seconds_max)
            if self.overhead_bytes > self.service_config.head_bytes_max + SLICE_BYTES:
                self._refuse(400, "there is no end to the extensions and trailers of the body; leave them out")
        elif self._is_responding():
            self.enter_stage(Stage.RESPONSE)

    def _is_body_incomplete(self) -> bool:
        """The body of the newest request is still being sent."""
        newest = self.cycle
        return newest is not None and newest.more_body and not newest.response_complete


def _without_upgrade(data: bytes) -> bytes:
    """A head that asks for another protocol, as if it did not: the parser would leave its body unread."""
    head, end, rest = data.partition(b"\r\n\r\n")
    return _UPGRADE_HEADER.sub(b"\r\nX-Asked:", head) + end + rest


_IDLE, _CLOSING = Stage.IDLE, Stage.CLOSING
SHUTDOWN_GRACE_SECONDS = 0.25  # for requests that are on their way when the server is told to stop


class Connection(RequestReader):
    corked_writes: ClassVar[CorkedWrites] = CorkedWrites()
    _active_exchange: HttpExchange | None = None
    _corked_transport: CorkedTransport  # the transport
    _pending_refusal = b""  # said when the requests before it are answered
    _shutting_down = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        self._queue = deque()
        self._corked_transport = CorkedTransport(transport, self.corked_writes)
        super().connection_made(self._corked_transport)

    def connection_lost(self, exc: Exception | None) -> None:
        running, self._active_exchange, self.cycle = self._active_exchange, None, None
        if running is not None and not running.response_complete:
            running.mark_disconnected()
        self._discards_input = True
        self._unparsed = b""
        self._queue.clear()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn hangs up on whoever is done sending
        """A client may have said all it has to say, and still want its answer."""
        self._eof = True
        self._corked_transport.flush()  # the loop may close what lies below
        if self.stage is Stage.CLOSING:
            return False
        if not self._unparsed:
            self._on_input_end()
        if self._active_exchange is None or not self._is_responding():
            return False
        self._active_exchange.mark_client_eof()
        return not self._active_exchange.response_started

    def shutdown(self) -> None:
        self._shutting_down = True
        if self.stage is Stage.CLOSING:
            self.transport.close()
        elif self._active_exchange is not None and self.cycle is not None and self._is_responding():
            self.cycle.keep_alive = False
            self._active_exchange.cancel_stream()
        else:
            self.loop.call_later(SHUTDOWN_GRACE_SECONDS, self._close_if_idle)

    def on_stage_timeout(self) -> None:
        match self.stage:
            case Stage.HEAD if self.in_head:
                self._refuse(408, f"a head has {self.service_config.head_seconds_max:g} s to arrive; send it faster")
            case Stage.HEAD | Stage.IDLE:
                self._close_after_response()
            case Stage.BODY if self.cycle is not None:
                self.cycle.time_out_body()
            case Stage.CLOSING:
                self.transport.abort()

    def on_refused(self, request_id: str, status: int) -> None:
        """Called once for every refusal."""

    def on_headers_complete(self) -> None:
        scope = self.build_scope()
        before = self.cycle
        self.cycle = exchange = HttpExchange(
            scope,
            self.transport,
            self.flow,
            on_complete=self._on_exchange_complete,
            default_headers=self.server_state.default_headers,
            expects_continue=self.expect_100_continue,
            keep_alive=not self._shutting_down and scope["http_version"] != "1.0" and self.parser.should_keep_alive(),
            resume_reading=self._resume_reading,
        )
        if before is None or before.response_complete:
            self._start_exchange(exchange)
        else:
            self.flow.pause_reading()
            self._queue.append(exchange)

    # Answering.

    def _start_exchange(self, exchange: HttpExchange) -> None:
        self._active_exchange = exchange
        exchange.task = self.loop.create_task(exchange.run(self.app, self.tasks))
        self.tasks.add(exchange.task)

    def _on_exchange_complete(self, exchange: HttpExchange) -> None:
        self.server_state.total_requests += 1
        if self.stage is _CLOSING or self.transport.is_closing():
            return
        if not exchange.keep_alive:
            self._close_after_response(lingering=exchange.more_body)
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
            self.enter_stage(_IDLE, self.service_config.idle_seconds_max)
        elif self.stage is not Stage.HEAD:
            self.enter_stage(Stage.HEAD, self.service_config.head_seconds_max)
        self.flow.resume_reading()
        self._feed_unparsed()
        if self._eof and not self._is_responding():
            self._close_after_response()

    def _is_responding(self) -> bool:
        running = self._active_exchange
        return running is not None and not (running.response_complete or running.disconnected)

    def _refuse(self, status: int, message: str) -> None:
        if self._discards_input:
            return
        self._discards_input = True
        self._unparsed = b""
        request_id = SystemIds().request_id()
        self.on_refused(request_id, status)
        given = problem_response(problem("BAD_REQUEST", message)._replace(status=status), request_id)
        self._pending_refusal = encode_final_response(given, request_id)
        if not self.in_head and self.cycle is not None and self._is_body_incomplete():
            self._abandon_exchange(self.cycle)
        self.enter_stage(Stage.RESPONSE)
        if not self._is_responding():
            self._send_refusal()

    def _abandon_exchange(self, exchange: HttpExchange) -> None:
        """Its body will never be complete."""
        exchange.mark_disconnected()
        if exchange is not self._active_exchange:
            self._queue.pop()
        elif exchange.response_started:
            self._pending_refusal = b""  # half of an answer is out: nothing can be said any more

    def _send_refusal(self) -> None:
        self.transport.write(self._pending_refusal)
        self._close_after_response(lingering=True)

    def _close_after_response(self, *, lingering: bool = False) -> None:
        """The last answer is given."""
        self._discards_input = True
        self._unparsed = b""
        self.enter_stage(Stage.CLOSING, LINGER_SECONDS)
        if lingering and not self._eof and self.transport.can_write_eof():
            self.transport.write_eof()
            self.flow.resume_reading()
        else:
            self.transport.close()

    def _close_if_idle(self) -> None:
        if not self._is_responding() and not self.transport.is_closing():
            self._close_after_response()


def connection_class(config: ServiceConfig, on_refused: Callable[[str, int], None]) -> type[Connection]:
    """Connections within these limits, which tell of every request that they refuse: its id and the status."""

    class ConfiguredConnection(Connection):
        service_config = config
        corked_writes = CorkedWrites()

        def on_refused(self, request_id: str, status: int) -> None:
            on_refused(request_id, status)

    return ConfiguredConnection
