"""Connections: uvicorn's httptools protocol, which by itself takes heads of any size and waits for ever.

What cannot be taken is answered with a problem, after the requests before it. What the client still sends is then
thrown away for a moment, so that it gets to read the answer, and the connection is closed.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable
from typing import ClassVar

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from onejob.ids import SystemIds

from .answers import refusal
from .config import ServiceConfig
from .deadlines import LINGER_SECONDS, Stage
from .departures import Departing, Departures
from .exchange import Exchange, on_the_wire
from .heads import HeadReader, Unacceptable
from .problems import problem

_UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)
SLICE_BYTES = 16_384  # parsed at a time; what is piped behind an unanswered request is bounded by it
LEAVE_SECONDS = 0.25  # for requests that are on their way when the server is told to stop


class Connection(HeadReader):
    departures: ClassVar[Departures] = Departures()
    # The newest; the one that is being answered may be older.
    cycle: Exchange | None = None  # type: ignore[assignment]  # all that uvicorn does with it is overridden here
    _running: Exchange | None = None
    _queue: deque[Exchange]
    _departing: Departing  # the transport
    _held = b""  # received, and kept until the requests before it are answered
    _refusal = b""  # said when the requests before it are answered
    _deaf = False  # what comes is thrown away
    _eof = False
    _leaving = False
    _slice = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        self._queue = deque()
        self._departing = Departing(transport, self.departures)
        super().connection_made(self._departing)

    def connection_lost(self, exc: Exception | None) -> None:
        running, self._running, self.cycle = self._running, None, None
        if running is not None and not running.response_complete:
            running.abandon()
        self._deaf = True
        self._held = b""
        self._queue.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._held:
            self._held += data
        elif not self._deaf:
            self._feed(data)

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn hangs up on whoever is done sending
        """A client may have said all it has to say, and still want its answer."""
        self._eof = True
        self._departing.flush()  # the loop may close what lies below
        if self.stage is Stage.PARTED:
            return False
        if self.in_head or self._unfinished():
            self._refuse(400, "the request ended before it was complete; send it again")
        if self._running is None or not self._busy():
            return False
        if self.cycle is not None and not self._held:
            self.cycle.keep_alive = False
        self._running.hang_up()
        return not self._running.response_started

    def shutdown(self) -> None:
        self._leaving = True
        if self.stage is Stage.PARTED:
            self.transport.close()
        elif self._running is not None and self.cycle is not None and self._busy():
            self.cycle.keep_alive = False
            self._running.end_stream()
        else:
            self.loop.call_later(LEAVE_SECONDS, self._leave)

    def expire(self) -> None:
        match self.stage:
            case Stage.HEAD if self.in_head:
                self._refuse(408, f"a head has {self.service.head_seconds_max:g} s to arrive; send it faster")
            case Stage.HEAD | Stage.IDLE:
                self._part()
            case Stage.BODY if self.cycle is not None:
                self.cycle.overdue()
            case Stage.PARTED:
                self.transport.abort()

    def told(self, request_id: str, status: int) -> None:
        """Called once for every refusal."""

    # What the parser calls.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.fed = self._slice
        self.stage = Stage.IDLE  # each request has deadlines of its own

    def on_headers_complete(self) -> None:
        scope = self.read_head()
        before = self.cycle
        self.cycle = exchange = Exchange(
            scope,
            self.transport,
            self.flow,
            done=self._answered,
            standing=self.server_state.default_headers,
            expects=self.expect_100_continue,
            keep_alive=not self._leaving
            and scope["http_version"] != "1.0"
            and self.parser.should_keep_alive(),
        )
        if before is None or before.response_complete:
            self._start(exchange)
        else:
            self.flow.pause_reading()
            self._queue.append(exchange)

    def on_body(self, body: bytes) -> None:
        exchange = self.cycle
        assert exchange is not None
        self.fed = 0
        if exchange.take(body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        assert self.cycle is not None
        self.cycle.more_body = False
        self.cycle.tell()

    # Reading.

    def _feed(self, data: bytes) -> None:
        if len(data) <= SLICE_BYTES and not self._queue:
            self._parse(data)
            return
        for start in range(0, len(data), SLICE_BYTES):
            if self._deaf:
                return
            if self._queue:
                self._held = data[start:]
                self.flow.pause_reading()
                return
            self._parse(data[start : start + SLICE_BYTES])

    def _feed_held(self) -> None:
        if self._held and not self._queue:
            held, self._held = self._held, b""
            self._feed(held)

    def _parse(self, data: bytes) -> None:
        self._slice = len(data)
        self.fed += self._slice
        if (b"pgrade:" in data or b"PGRADE:" in data) and self.stage is not Stage.BODY:
            data = _without_upgrade(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # The request is answered as if it had not asked for another protocol; what follows is in that one.
            self._deaf = True
            if self.cycle is not None:
                self.cycle.keep_alive = False
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(cause, Unacceptable):
                self._refuse(cause.status, str(cause))
            else:
                self._refuse(400, "this is not a well-formed HTTP/1.1 request; mend the client")
            return
        self._look_on()

    def _look_on(self) -> None:
        """Some bytes were parsed: what is the connection waiting for now?"""
        if self.in_head:
            if self.stage is not Stage.HEAD:
                self.enter(Stage.HEAD, self.service.head_seconds_max)
            if self.fed > self.service.head_bytes_max + SLICE_BYTES:
                self._refuse(431, self.head_message())
        elif self._unfinished():
            if self.stage is not Stage.BODY:
                self.enter(Stage.BODY, self.service.body_seconds_max)
            if self.fed > self.service.head_bytes_max + SLICE_BYTES:
                self._refuse(
                    400, "there is no end to the extensions and trailers of the body; leave them out"
                )
        elif self._busy():
            self.enter(Stage.ANSWER)

    # Answering.

    def _start(self, exchange: Exchange) -> None:
        self._running = exchange
        task = self.loop.create_task(exchange.run(self.app))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _answered(self, exchange: Exchange) -> None:
        self.server_state.total_requests += 1
        if self.stage is Stage.PARTED or self.transport.is_closing():
            return
        if not exchange.keep_alive:
            self._part(lingering=exchange.more_body)
        elif self._queue:
            self._start(self._queue.popleft())
            self._feed_held()  # the rest of its body may be there
        elif self._refusal:
            self._say_refusal()
        else:
            self._go_on_reading()

    def _go_on_reading(self) -> None:
        if not self.in_head:
            self.enter(Stage.IDLE, self.service.idle_seconds_max)
        self.flow.resume_reading()
        self._feed_held()
        if self._eof and not self._busy():
            self._part()

    def _busy(self) -> bool:
        running = self._running
        return running is not None and not (running.response_complete or running.disconnected)

    def _unfinished(self) -> bool:
        """The body of the newest request is still being sent."""
        newest = self.cycle
        return newest is not None and newest.more_body and not newest.response_complete

    def _refuse(self, status: int, message: str) -> None:
        if self._deaf:
            return
        self._deaf = True
        request_id = SystemIds().request_id()
        self.told(request_id, status)
        given = refusal(problem("BAD_REQUEST", message)._replace(status=status), request_id)
        self._refusal = on_the_wire(given, request_id)
        if not self.in_head and self.cycle is not None and self._unfinished():
            self._give_up(self.cycle)
        self.enter(Stage.ANSWER)
        if not self._busy():
            self._say_refusal()

    def _give_up(self, exchange: Exchange) -> None:
        """Its body will never be complete."""
        exchange.abandon()
        if exchange is not self._running:
            self._queue.pop()
        elif exchange.response_started:
            self._refusal = b""  # half of an answer is out: nothing can be said any more

    def _say_refusal(self) -> None:
        self.transport.write(self._refusal)
        self._part(lingering=True)

    def _part(self, *, lingering: bool = False) -> None:
        """The last answer is given."""
        self._deaf = True
        self._held = b""
        self.enter(Stage.PARTED, LINGER_SECONDS)
        if lingering and not self._eof and self.transport.can_write_eof():
            self.transport.write_eof()
            self.flow.resume_reading()
        else:
            self.transport.close()

    def _leave(self) -> None:
        if not self._busy() and not self.transport.is_closing():
            self._part()


def guarded(config: ServiceConfig, refused: Callable[[str, int], None]) -> type[Connection]:
    """Connections within these limits, which tell of every request that they refuse: its id and the status."""

    class Guarded(Connection):
        service = config
        departures = Departures()

        def told(self, request_id: str, status: int) -> None:
            refused(request_id, status)

    return Guarded


def _without_upgrade(data: bytes) -> bytes:
    """A head that asks for another protocol, as if it did not: the parser would leave its body unread."""
    head, end, rest = data.partition(b"\r\n\r\n")
    return _UPGRADE.sub(b"\r\nX-Asked:", head) + end + rest
