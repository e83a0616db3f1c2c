"""Connections: uvicorn's httptools protocol, which by itself takes heads of any size and waits for ever.

What cannot be taken is answered with a problem, after the requests before it. What the client still sends is then
thrown away for a moment, so that it gets to read the answer, and the connection is closed.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import ClassVar

from onejob.ids import SystemIds

from .answers import problem_response
from .config import ServiceConfig
from .deadlines import LINGER_SECONDS, Stage
from .departures import CorkedTransport, CorkedWrites
from .exchange import HttpExchange, encode_final_response
from .problems import problem
from .reading import RequestReader

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
                self._refuse(
                    408, f"a head has {self.service_config.head_seconds_max:g} s to arrive; send it faster"
                )
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
            keep_alive=not self._shutting_down
            and scope["http_version"] != "1.0"
            and self.parser.should_keep_alive(),
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
