"""A gate's connections to one manager: kept open, one request at a time on each, and watched for silence."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from onejob.addresses import Address

from .codec import Malformed, decode_struct
from .messages import BODY_BYTES_MAX, FAILURE, KEEPALIVE_FRAME, RESULT, SILENCE_SECONDS_MAX, STATUS_OK, Failure

HEAD_BYTES_MAX = 16_384
IDLE_CONNECTIONS_MAX = 16
_LATE_TIMER_SECONDS = 0.25

HeaderLines = Sequence[tuple[bytes, bytes]]


class NotSent(Exception):
    """Nothing of the request reached the manager. `is_silent`: it said nothing at all, for as long as it may."""

    def __init__(self, message: str, *, is_silent: bool = False) -> None:
        super().__init__(message)
        self.is_silent = is_silent


class NoAnswer(Exception):
    """The request was sent and has no answer: it may have been executed."""

    def __init__(self, message: str, *, is_silent: bool = False) -> None:
        super().__init__(message)
        self.is_silent = is_silent


class RequestRefused(Exception):
    """The manager answered with a failure."""

    def __init__(self, status: int, failure: Failure) -> None:
        super().__init__(failure.message)
        self.status = status
        self.failure = failure


class ProtocolError(Exception):
    """The other side does not answer as a manager does."""


class ManagerAnswer(NamedTuple):
    status: int
    body: bytes
    is_last: bool  # of its connection


class WireConnection(asyncio.Protocol):
    """One connection. A caller that abandons a request closes it, so that a late response never answers the next request."""

    def __init__(self, host: str, silence_seconds_max: float) -> None:
        self._host = host
        self._silence_seconds_max = silence_seconds_max
        self._parser = AnswerParser(BODY_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[ManagerAnswer] | None = None
        self._loop = asyncio.get_running_loop()
        self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._end_reason = "the connection was closed"

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def request(self, path: str, headers: HeaderLines, body: bytes) -> bytes:
        """Send a request; returns its result. Raises NotSent, NoAnswer or RequestRefused."""
        if not self.is_open:
            raise NotSent(self._end_reason)
        assert self._transport is not None
        assert self._answer is None
        self._answer = self._loop.create_future()
        self._heard_at = self._loop.time()
        self._set_timer(self._silence_seconds_max)
        try:
            self._transport.write(write_request(path, self._host, headers, body))
            return _result_of(await self._answer)
        except (ProtocolError, Malformed) as error:
            self.close()
            raise NoAnswer(str(error)) from error
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._answer = None
            if self._timer is not None:
                self._timer.cancel()

    async def stream(self, path: str, headers: HeaderLines, on_frame: Callable[[bytes], None]) -> None:
        """Send a request whose answer never ends by itself, and call back with its frames."""

        def forward(chunk: bytes) -> None:
            if chunk != KEEPALIVE_FRAME:
                on_frame(chunk)

        self._parser.on_chunk = forward
        await self.request(path, headers, b"")

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # those of uvloop have no common base class

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        try:
            answers = self._parser.feed(data)
            # Also the beginning of an answer: the rest would answer the next request.
            if (
                self._answer is None
                or self._answer.done()
                or (answers and (len(answers) > 1 or self._parser.has_begun))
            ):
                raise ProtocolError("an answer to no question")
        except ProtocolError as error:
            self._fail(str(error))
            return
        if answers:
            if answers[0].is_last:
                self._end_reason = "the manager closes the connection"
                self.close()
            self._answer.set_result(answers[0])

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(self._end_reason if error is None else str(error))

    def _fail(self, reason: str, *, is_silent: bool = False) -> None:
        self._end_reason = reason
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(NoAnswer(reason, is_silent=is_silent))

    def _set_timer(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._on_timer, self._loop.time() + seconds)

    def _on_timer(self, due: float) -> None:
        """Silence is counted from the last byte. If this process itself was late, the bytes may be waiting: look again."""
        now = self._loop.time()
        silent = now - self._heard_at
        if now - due > _LATE_TIMER_SECONDS:
            self._set_timer(_LATE_TIMER_SECONDS)
        elif silent < self._silence_seconds_max:
            self._set_timer(self._silence_seconds_max - silent)
        else:
            self._fail(f"no sign of life for {self._silence_seconds_max:g} s", is_silent=True)


async def open_connection(
    address: Address, tls: ssl.SSLContext | None, *, silence_seconds_max: float = SILENCE_SECONDS_MAX
) -> WireConnection:
    """Connect, or raise NotSent. A connection takes no longer than half of the silence that a manager may keep."""
    loop = asyncio.get_running_loop()
    connect_seconds_max = silence_seconds_max / 2
    try:
        async with asyncio.timeout(connect_seconds_max):
            _, connection = await loop.create_connection(
                lambda: WireConnection(str(address), silence_seconds_max), address.host, address.port, ssl=tls
            )
    except TimeoutError as error:
        raise NotSent(f"no connection within {connect_seconds_max:g} s", is_silent=True) from error
    except (OSError, ssl.SSLError) as error:
        raise NotSent(str(error)) from error
    return connection


class AnswerParser:
    """Cuts a stream of bytes into answers.

    With `on_chunk` the chunks of a body are handed over as they come, and the body of the answer is empty.
    """

    def __init__(self, body_bytes_max: int) -> None:
        self.on_chunk: Callable[[bytes], None] | None = None
        self._body_bytes_max = body_bytes_max
        import httptools  # late: this module is also imported where no manager is ever asked

        self._parser = httptools.HttpResponseParser(self)
        self._parser_errors = (httptools.HttpParserError, httptools.HttpParserUpgrade)
        self.has_begun = False  # an answer that is not complete
        self._head_bytes = 0  # since the end of the last answer; 0: no head is being read
        self._has_length = False
        self._body = bytearray()
        self._answers: list[ManagerAnswer] = []

    def feed(self, data: bytes) -> list[ManagerAnswer]:
        """The answers that are complete now. Raises ProtocolError."""
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except self._parser_errors as error:
            if isinstance(error.__context__, ProtocolError):
                raise error.__context__ from None
            raise ProtocolError(f"this is not a manager: it does not answer in HTTP/1.1 ({error})") from None
        if self._head_bytes > HEAD_BYTES_MAX:
            raise ProtocolError("the head of an answer is too large")
        answers, self._answers = self._answers, []
        return answers

    # Called by the parser.

    def on_message_begin(self) -> None:
        self.has_begun = True
        self._has_length = False
        self._body.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        name, value = name.lower(), value.strip(b" \t")
        if name == b"content-length":
            if self._has_length or int(value) > self._body_bytes_max:
                raise ProtocolError("the body of an answer is too large, or has two lengths")
            self._has_length = True
        elif name == b"transfer-encoding" and value == b"chunked":
            self._has_length = True

    def on_headers_complete(self) -> None:
        self._head_bytes = -1 << 62
        if self._parser.get_http_version() != "1.1" or not self._has_length:
            raise ProtocolError("this is not a manager: it does not answer in HTTP/1.1, or without a length")

    def on_body(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > self._body_bytes_max:
            raise ProtocolError("the body of an answer is too large")

    def on_chunk_complete(self) -> None:
        if self.on_chunk is not None and self._body:
            chunk = bytes(self._body)
            self._body.clear()
            self.on_chunk(chunk)

    def on_message_complete(self) -> None:
        self.has_begun = False
        self._head_bytes = 0
        is_last = not self._parser.should_keep_alive()
        self._answers.append(ManagerAnswer(self._parser.get_status_code(), bytes(self._body), is_last))


def write_request(path: str, host: str, headers: HeaderLines, body: bytes) -> bytes:
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    head = b"POST %b HTTP/1.1\r\nhost: %b\r\n%bcontent-length: %d\r\n\r\n"
    return head % (path.encode(), host.encode(), lines, len(body)) + body


def _result_of(answer: ManagerAnswer) -> bytes:
    body = answer.body.lstrip(KEEPALIVE_FRAME)
    if answer.status == STATUS_OK and body[:1] == RESULT:
        return body[1:]
    if body[:1] != FAILURE:
        raise ProtocolError("this is not a manager: its answer has no frames")
    raise RequestRefused(answer.status, decode_struct(body[1:], Failure))
