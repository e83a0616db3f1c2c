"""The part of HTTP/1.1 that gates and managers speak: a parser for both sides, without I/O, and how messages are written.

Bodies have a Content-Length, or (only in responses) are chunked. Everything else is refused: no other program speaks
on these connections, and two readings of one message must not exist.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

HEAD_BYTES_MAX = 16_384
_CHUNK_LINE_BYTES_MAX = 16
_HEX_DIGITS = frozenset(b"0123456789abcdefABCDEF")

HeaderLines = Sequence[tuple[bytes, bytes]]


class ProtocolError(Exception):
    """The other side does not speak this part of HTTP/1.1."""


class Message(NamedTuple):
    start: bytes  # the request line or the status line
    headers: dict[bytes, bytes]
    body: bytes


class MessageParser:
    """Cuts a stream of bytes into messages.

    With `on_chunk` the chunks of a body are handed over as they come, and the body of the message is empty.
    """

    def __init__(self, body_bytes_max: int) -> None:
        self.body_bytes_max = body_bytes_max
        self.on_chunk: Callable[[bytes], None] | None = None
        self._buffer = bytearray()
        self._head: tuple[bytes, dict[bytes, bytes]] | None = None
        self._length = 0
        self._is_chunked = False
        self._chunks = bytearray()

    @property
    def is_between_messages(self) -> bool:
        return self._head is None and not self._buffer

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now."""
        self._buffer += data
        messages: list[Message] = []
        while (message := self._next_message()) is not None:
            messages.append(message)
        return messages

    def _next_message(self) -> Message | None:
        if self._head is None and not self._read_head():
            return None
        assert self._head is not None
        if self._is_chunked:
            if not self._read_chunks():
                return None
            body = bytes(self._chunks)
            self._chunks.clear()
        elif len(self._buffer) < self._length:
            return None
        else:
            body = bytes(self._buffer[: self._length])
            del self._buffer[: self._length]
        start, headers = self._head
        self._head = None
        return Message(start, headers, body)

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > HEAD_BYTES_MAX:
                raise ProtocolError("the head of a message is too large")
            return False
        start, *lines = bytes(self._buffer[:end]).split(b"\r\n")
        del self._buffer[: end + 4]
        headers: dict[bytes, bytes] = {}
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon or name.lower() in headers:
                raise ProtocolError("a header is malformed, or sent twice")
            headers[name.lower()] = value.strip(b" \t")
        self._is_chunked = headers.get(b"transfer-encoding") == b"chunked"
        length = headers.get(b"content-length", b"0")
        if (not self._is_chunked and b"transfer-encoding" in headers) or not length.isdigit() or len(length) > 12:
            raise ProtocolError("the length of a body is not given")
        self._length = int(length)
        if self._length > self.body_bytes_max or (self._is_chunked and b"content-length" in headers):
            raise ProtocolError("the body of a message is too large, or has two lengths")
        self._head = start, headers
        return True

    def _read_chunks(self) -> bool:
        """True when the last chunk was read."""
        while True:
            line_end = self._buffer.find(b"\r\n")
            if line_end < 0:
                if len(self._buffer) > _CHUNK_LINE_BYTES_MAX:
                    raise ProtocolError("a chunk has no size")
                return False
            digits = bytes(self._buffer[:line_end])
            if not 1 <= len(digits) <= 8 or not _HEX_DIGITS.issuperset(digits):
                raise ProtocolError("the size of a chunk is malformed")
            begin, size = line_end + 2, int(digits, 16)
            if len(self._buffer) < begin + size + 2:
                return False
            chunk = bytes(self._buffer[begin : begin + size])
            if self._buffer[begin + size : begin + size + 2] != b"\r\n":
                raise ProtocolError("a chunk does not end where it should")
            del self._buffer[: begin + size + 2]
            if not size:
                return True
            if self.on_chunk is not None:
                self.on_chunk(chunk)
            else:
                self._chunks += chunk
                if len(self._chunks) > self.body_bytes_max:
                    raise ProtocolError("the body of a message is too large")


def write_request(path: str, host: str, headers: HeaderLines, body: bytes) -> bytes:
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    head = b"POST %b HTTP/1.1\r\nhost: %b\r\n%bcontent-length: %d\r\n\r\n"
    return head % (path.encode(), host.encode(), lines, len(body)) + body


def write_response(status: int, body: bytes, headers: HeaderLines = ()) -> bytes:
    return _response_head(status, (*headers, (b"content-length", b"%d" % len(body)))) + body


def begin_chunked_response(status: int) -> bytes:
    return _response_head(status, ((b"transfer-encoding", b"chunked"),))


def write_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"


def parse_status(start: bytes) -> int:
    version, _, rest = start.partition(b" ")
    if version != b"HTTP/1.1" or not rest[:3].isdigit():
        raise ProtocolError("this is not a manager: it does not answer in HTTP/1.1")
    return int(rest[:3])


def parse_request_path(start: bytes) -> str:
    method, _, rest = start.partition(b" ")
    path, _, version = rest.partition(b" ")
    if method != b"POST" or version != b"HTTP/1.1":
        raise ProtocolError("a manager takes POST requests of gates in HTTP/1.1, and nothing else")
    return path.decode("latin-1")


def _response_head(status: int, headers: HeaderLines) -> bytes:
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    return b"HTTP/1.1 %d -\r\ncontent-type: application/msgpack\r\ncache-control: no-store\r\n%b\r\n" % (status, lines)
