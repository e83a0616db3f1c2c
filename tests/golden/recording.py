"""Writes down what goes over the wire: each request as it was sent, each response with its headers in their order.

Times, ids and secrets are masked. Of the ids each has a number, in the order of their first appearance in a recording, so
that equal ones stay visibly equal; `<request>` is the X-Request-Id of the response that it stands in. A Content-Length that
is that of the body is shown as `<length>`, since a timestamp may be a few characters shorter.
"""

import json
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import Any, NamedTuple

NUMBERED = {
    "api-key": r"oj_[A-Za-z0-9_-]+\.[0-9a-f]{12}\.[A-Za-z0-9_-]{43}",
    "gate-key": r"ojg_[0-9a-f]{12}\.[A-Za-z0-9_-]{43}",
    "token": r"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+",
    "job": r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
    "reservation": r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{48}(?![A-Za-z0-9_-])",
    "session": r"(?<=onejob-session=)[A-Za-z0-9_.-]{20,}",
    "holder": r"(?<=\"holder\": \")[0-9a-f]{32}(?=\")",
    "id": r"(?<![0-9a-f.])(?:[0-9a-f]{12}|[0-9a-f]{16}|[0-9a-f]{32})(?![0-9a-f])",
}
PLAIN = {
    r"(?<=127\.0\.0\.1:)[0-9]{4,5}": "<port>",
    r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT": "<date>",
    r"(?<=/assets/)[0-9a-f]{16}": "<version>",
    r"(?<='sha256-)[A-Za-z0-9+/=]{44}": "<digest>",
    r"(?<=\"uptimeSeconds\": )[0-9.]+": "<seconds>",
    r"(?<=\"version\": \")[0-9][0-9a-z.+]*": "<version>",
    r"(?<=onejob/)[0-9][0-9a-z.+]*": "<version>",
    r"(?<=\"pid\": )[0-9]+": "<pid>",
    r"(?<=\"host\": \")[^\"]+": "<host>",
    r"(?<=\"commands\": )[0-9]+": "<number>",
    r"(?<=\"batches\": )[0-9]+": "<number>",
    r"(?<=\"beganAt\": )[0-9]{13}": "<milliseconds>",
    r"(?<=\"retryAfterMs\": )[0-9]+": "<milliseconds>",
    r"(?<=retry-after: )(?!1\b)[0-9]+": "<seconds>",
    r"(?<=webhook-timestamp: )[0-9]+": "<seconds>",
    r"(?<=webhook-signature: v1,)[A-Za-z0-9+/=]{44}": "<signature>",
    r"(?<=Onejob-Signature: )t=[0-9]+,v1=[0-9a-f]{64}": "t=<seconds>,v1=<signature>",
    r"(?<=same key in )(?!1\.0)[0-9.]+(?= s)": "<seconds>",
    r"(?<=HTTP/1\.1 413 ).*": "<reason>",  # Python 3.13 has other words for these two
    r"(?<=HTTP/1\.1 422 ).*": "<reason>",
    r"(?<=wait )[0-9]+(?= s)": "<seconds>",
    r"(?<=\"countedAt\": )(?:null|\"<time>\")": "<time or null>",
}
TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(?:\.[0-9]+)?(?:Z|\+00:00)")
HOST = "localhost"
MARKED_TYPES = {"text/html": "<html>", "text/javascript": "<script>", "text/css": "<style>"}


class Masks:
    """Replaces what differs between two recordings of one session."""

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._sent_times: set[str] = set()  # chosen by the test, so that they are the same each time

    def keep_times(self, request: bytes) -> None:
        self._sent_times.update(TIME.findall(request.decode("latin-1")))

    def mask(self, text: str) -> str:
        text = TIME.sub(lambda found: found[0] if found[0] in self._sent_times else "<time>", text)
        for pattern, label in PLAIN.items():
            text = re.sub(pattern, label, text)
        for kind, pattern in NUMBERED.items():
            text = re.sub(pattern, lambda found, kind=kind: self._label(kind, found[0]), text)  # type: ignore[misc]
        return text

    def _label(self, kind: str, value: str) -> str:
        if value not in self._labels:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._labels[value] = f"<{kind}-{self._counts[kind]}>"
        return self._labels[value]


class Response(NamedTuple):
    head: bytes  # with the empty line
    body: bytes  # without the framing of chunks

    @property
    def status(self) -> int:
        return int(self.head.split(b" ", 2)[1])

    def header(self, name: str) -> str:
        found = re.search(rf"^{name}: ?(.*?)\r$", self.head.decode("latin-1"), re.MULTILINE | re.IGNORECASE)
        return found[1] if found else ""


class Pending(NamedTuple):
    """A connection whose response is still to be read."""

    connection: socket.socket
    stream: BufferedReader


class Recorder:
    """One session with a server. `ask` uses one connection while it is kept alive, `send` a new one each time."""

    def __init__(self, connect: Callable[[], socket.socket], *headers: str, masks: Masks | None = None) -> None:
        self.masks = masks or Masks()
        self.always = headers
        self._connect = connect
        self._socket: socket.socket | None = None
        self._stream: BufferedReader | None = None
        self._parts: list[str] = []
        self._latest = Response(b"", b"")

    @property
    def text(self) -> str:
        return "\n".join(self._parts)

    def ask(self, title: str, line: str, *headers: str, body: object = None, until: bytes = b"") -> Any:
        """Send a request of the API; the JSON of its response. With `until` only the begin of a stream is read."""
        self.note_title(title)
        request = encode_request(line, (*self.always, *headers), body)
        if self._socket is None or self._stream is None:
            self._socket = self._connect()
            self._stream = self._socket.makefile("rb")
        self.note_request(request)
        self._socket.sendall(request)
        response = read_response(self._stream, line.split(" ")[0], until)
        assert response is not None, f"{title}: the server closed the connection"
        self._latest = response
        is_closed = response.header("connection") == "close"
        self.note_responses([response], is_closed=is_closed)
        if is_closed or until:
            self.close()
        is_json = response.body and "json" in response.header("content-type")
        return json.loads(response.body) if is_json else response

    def ask_unrecorded(self, line: str, *headers: str) -> Any:
        """For what a session waits for."""
        with self._connect() as connection, connection.makefile("rb") as stream:
            connection.sendall(encode_request(line, (*self.always, *headers)))
            response = read_response(stream, "GET")
        return None if response is None else json.loads(response.body)

    @contextmanager
    def begin(self, title: str, line: str, *headers: str, body: object = None) -> Iterator[Pending]:
        """Send a request on a connection of its own, and do not wait for its response."""
        self.note_title(title)
        request = encode_request(line, (*self.always, *headers), body)
        with self.open(request) as pending:
            yield pending

    @contextmanager
    def open(self, request: bytes) -> Iterator[Pending]:
        self.note_request(request)
        with self.open_unrecorded() as pending:
            pending.connection.sendall(request)
            yield pending

    @contextmanager
    def open_unrecorded(self) -> Iterator[Pending]:
        with self._connect() as connection, connection.makefile("rb") as stream:
            yield Pending(connection, stream)

    def cookie(self) -> str:
        """The header that sends back the cookie of the latest response."""
        return f"Cookie: {self._latest.header('set-cookie').partition(';')[0]}"

    def send(
        self, title: str, *pieces: bytes, half_close: bool = False, responses: int | None = None
    ) -> list[Response]:
        """Send these bytes on a connection of their own, and read until the server closes it, or this many responses."""
        self.note_title(title)
        found: list[Response] = []
        with self._connect() as connection, connection.makefile("rb") as stream:
            for number, piece in enumerate(pieces):
                if number:  # the next piece is sent after a response to this one
                    found += filter(None, [read_response(stream, "")])
                    self.note_responses(found[-1:])
                self.note_request(piece)
                connection.sendall(piece)
            if half_close:
                self.note("the client sends EOF")
                connection.shutdown(socket.SHUT_WR)
            rest: list[Response] = []
            while len(rest) != responses and (response := read_response(stream, "")) is not None:
                rest.append(response)
            self.note_responses(rest, is_closed=responses is None)
        return found + rest

    def note(self, text: str) -> None:
        self._parts.append(f"({text})\n")

    def note_output(self, *texts: str) -> None:
        """Lines that a process has printed."""
        self._parts.append(self.masks.mask("".join(quote_lines("|", text) for text in texts if text)))

    def add(self, other: "Recorder") -> None:
        self._parts += other._parts

    def close(self) -> None:
        if self._stream is not None and self._socket is not None:
            self._stream.close()
            self._socket.close()
        self._stream = self._socket = None

    def note_title(self, title: str) -> None:
        self._parts.append(f"=== {title}\n")

    def note_request(self, request: bytes) -> None:
        self.masks.keep_times(request)
        self._parts.append(self.masks.mask(quote_lines(">", render_request(request))))

    def note_received(self, request: bytes) -> None:
        """A request of the service itself: shown as a response is, since the service has chosen what is in it."""
        head, end, body = request.partition(b"\r\n\r\n")
        self._parts.append(self.masks.mask(quote_lines(">", render_response(Response(head + end, body)))))

    def note_responses(self, responses: Iterable[Response], *, is_closed: bool = False) -> None:
        for response in responses:
            text = render_response(response)
            if request_id := response.header("x-request-id"):
                text = text.replace(request_id, "<request>")
            self._parts.append(self.masks.mask(quote_lines("<", text)))
        if is_closed:
            self.note("the server closes the connection")


def wait_until(is_true: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def encode_request(line: str, headers: Iterable[str] = (), body: object = None) -> bytes:
    data: Any = body.encode() if isinstance(body, str) else body
    lines = [f"{line} HTTP/1.1", f"Host: {HOST}", *headers]
    if isinstance(data, (dict, list)):
        data = json.dumps(data).encode()
        lines.append("Content-Type: application/json")
    if data is not None:
        lines.append(f"Content-Length: {len(data)}")
    return "\r\n".join([*lines, "", ""]).encode() + (data if isinstance(data, bytes) else b"")


def read_response(stream: BufferedReader, method: str, until: bytes = b"") -> Response | None:
    """The next response; None: the connection has ended. Without a method a body is expected if one follows at once."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        try:
            line = stream.readline()
        except ConnectionResetError:
            line = b""
        if not line:
            return Response(head, b"") if head else None
        head += line
    response = Response(head, b"")
    if method == "HEAD" or response.status < 200 or response.status in (204, 304):
        return response
    if response.header("transfer-encoding") == "chunked":
        return response._replace(body=read_chunks(stream, until))
    length = int(response.header("content-length") or 0)
    if not method and stream.peek(9)[:9] in (b"HTTP/1.1 ", b""):
        length = 0  # of a HEAD request
    return response._replace(body=stream.read(length))


def read_chunks(stream: BufferedReader, until: bytes = b"") -> bytes:
    body = b""
    while size := int(stream.readline() or b"0", 16):
        body += stream.read(size + 2)[:-2]
        if until and until in body:
            return body
    stream.readline()
    return body


def render_request(request: bytes) -> str:
    """Lines end with CRLF; every other byte that is not printable ASCII is escaped, and repetition is counted."""
    text = "\n".join(map(escape, request.decode("latin-1").split("\r\n")))
    return re.sub(r"(.)\1{39,}", lambda found: f"{found[1]}<{len(found[0])} times>", text)


def render_response(response: Response) -> str:
    lines = response.head.decode("latin-1").replace("\r\n", "\n").rstrip("\n")
    length = response.header("content-length")
    if (
        length.isdigit() and length != "0" and (not response.body or int(length) == len(response.body))
    ):  # to HEAD, or right
        lines = re.sub(r"(?<=\ncontent-length: )[0-9]+", "<length>", lines, flags=re.IGNORECASE)
    media_type = response.header("content-type").partition(";")[0]
    return f"{lines}\n\n{MARKED_TYPES.get(media_type) or render_body(response.body)}" if response.body else lines


def render_body(body: bytes) -> str:
    """JSON with indents, if nothing is lost by them. Other golden files have the description of the API, and the metrics."""
    text = body.decode()
    if text.startswith('{"openapi":'):
        return "<openapi>"
    if text.startswith("# HELP"):
        return "\n".join(re.findall(r"^# TYPE onejob\w* \w+$", text, re.MULTILINE))
    try:
        value = json.loads(text)
    except ValueError:
        return text
    is_compact = json.dumps(value, separators=(",", ":"), ensure_ascii=False) == text
    return json.dumps(value, indent=2, ensure_ascii=False) if is_compact else text


def escape(text: str) -> str:
    return text.encode("unicode_escape").decode().replace("\\\\", "\\")


def quote_lines(mark: str, text: str) -> str:
    return "".join(f"{mark} {line}".rstrip() + "\n" for line in text.removesuffix("\n").split("\n"))
