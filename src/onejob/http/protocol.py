"""Connections: uvicorn's httptools protocol, which by itself takes heads of any size and waits for ever.

What cannot be taken is answered with a problem, after the requests before it. What the client still sends is then
thrown away for a moment, so that it gets to read the answer, and the connection is closed.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import ClassVar

from onejob.ids import SystemIds

from .answers import refusal
from .config import ServiceConfig
from .deadlines import LINGER_SECONDS, Stage
from .departures import Departing, Departures
from .exchange import Exchange, on_the_wire
from .problems import problem
from .reading import Reading

_IDLE, _PARTED = Stage.IDLE, Stage.PARTED
LEAVE_SECONDS = 0.25  # for requests that are on their way when the server is told to stop


class Connection(Reading):
    departures: ClassVar[Departures] = Departures()
    _running: Exchange | None = None
    _departing: Departing  # the transport
    _refusal = b""  # said when the requests before it are answered
    _leaving = False

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

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn hangs up on whoever is done sending
        """A client may have said all it has to say, and still want its answer."""
        self._eof = True
        self._departing.flush()  # the loop may close what lies below
        if self.stage is Stage.PARTED:
            return False
        if not self._held:
            self._heard_all()
        if self._running is None or not self._busy():
            return False
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
            read_on=self._read_on,
        )
        if before is None or before.response_complete:
            self._start(exchange)
        else:
            self.flow.pause_reading()
            self._queue.append(exchange)

    # Answering.

    def _start(self, exchange: Exchange) -> None:
        self._running = exchange
        exchange.task = self.loop.create_task(exchange.run(self.app, self.tasks))
        self.tasks.add(exchange.task)

    def _answered(self, exchange: Exchange) -> None:
        self.server_state.total_requests += 1
        if self.stage is _PARTED or self.transport.is_closing():
            return
        if not exchange.keep_alive:
            self._part(lingering=exchange.more_body)
        elif self._queue:
            self._start(self._queue.popleft())
            self._feed_held()  # the rest of its body may be there
            self._look_on()
        elif self._refusal:
            self._say_refusal()
        else:
            self._go_on_reading()

    def _go_on_reading(self) -> None:
        if not self.in_head:
            self.enter(_IDLE, self.service.idle_seconds_max)
        elif self.stage is not Stage.HEAD:
            self.enter(Stage.HEAD, self.service.head_seconds_max)
        self.flow.resume_reading()
        self._feed_held()
        if self._eof and not self._busy():
            self._part()

    def _busy(self) -> bool:
        running = self._running
        return running is not None and not (running.response_complete or running.disconnected)

    def _refuse(self, status: int, message: str) -> None:
        if self._deaf:
            return
        self._deaf = True
        self._held = b""
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
