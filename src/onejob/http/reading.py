"""What a connection reads: parsed as it comes, but never far ahead of what is answered."""

import re
from collections import deque

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from .deadlines import Stage
from .exchange import HttpExchange
from .heads import HeadReader, UnacceptableRequest

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
                self._refuse(
                    400, "there is no end to the extensions and trailers of the body; leave them out"
                )
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
