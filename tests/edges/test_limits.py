"""What hostile, broken and slow clients get: an answer of 4xx or a closed connection, soon; and nobody else notices."""

import asyncio
import inspect
import json
import random
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from zlib import crc32

import pytest
import uvicorn
from uvicorn import Config
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

from onejob.http.config import BODY_BYTES_MAX, ServiceConfig
from onejob.http.heads import HeadReader
from onejob.http.protocol import Connection, guarded

from .sockets import BODY, Server, everything, replies, request, serving, submission

HEAD_SECONDS = 1.0
BODY_SECONDS = 1.5
IDLE_SECONDS = 2.0
# A deadline is noticed a little late, on a busy machine a little more.
SLACK_SECONDS = 4.0
SETTINGS = f"""
head_seconds_max = {HEAD_SECONDS}
body_seconds_max = {BODY_SECONDS}
idle_seconds_max = {IDLE_SECONDS}
"""
POST = b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\n"
DATA = json.dumps(BODY).encode()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("limits"), SETTINGS) as running:
        yield running


@pytest.fixture(autouse=True)
def unharmed(server: Server) -> Iterator[None]:
    """Whatever was sent: the same process serves on, has not failed, and has complained of nothing."""
    yield
    assert server.ask("GET", "/healthz").status == 200
    log = server.log.read_text()
    assert " error " not in log
    assert "Traceback" not in log


def fresh(server: Server, key: str) -> bool:
    """The key was not burnt."""
    return bool(server.submit(key).body["idempotency"]["outcome"] == "created")


def test_a_head_beyond_the_limit_is_431(server: Server) -> None:
    for data in (
        b"GET /healthz HTTP/1.1\r\nX-Large: " + b"x" * 2_000_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 2_000_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nX-Large: " + b"x" * 16_400 + b"\r\n\r\n",
        POST + b"Idempotency-Key: " + b"k" * 20_000 + b"\r\nContent-Length: 2\r\n\r\n{}",
    ):
        (reply,) = server.say(data)
        assert reply.status == 431
        assert reply.code == "BAD_REQUEST"
        assert reply.headers["connection"] == "close"
        assert reply.headers["x-request-id"]


def test_a_head_within_the_limit_is_taken(server: Server) -> None:
    assert server.ask("GET", "/healthz", x_large="x" * 16_000).status == 200
    hundred = {f"x_{n}": "y" for n in range(97)}  # and three that are always there
    assert server.ask("GET", "/healthz", None, **hundred).status == 200


def test_too_many_headers_are_431(server: Server) -> None:
    lines = b"".join(b"X-%d: y\r\n" % n for n in range(1000))
    assert [reply.status for reply in server.say(b"GET /healthz HTTP/1.1\r\n" + lines + b"\r\n")] == [431]


def test_a_head_that_drips_is_cut_off(server: Server) -> None:
    begin = time.monotonic()
    with server.connect() as connection:
        connection.settimeout(0.05)
        received = b""
        connection.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
        while time.monotonic() < begin + HEAD_SECONDS + SLACK_SECONDS:
            try:
                connection.send(b"x")
                piece = connection.recv(65_536)
            except TimeoutError:
                continue
            except OSError:
                break
            received += piece
            if not piece:
                break
    assert time.monotonic() < begin + HEAD_SECONDS + SLACK_SECONDS
    assert [reply.status for reply in replies(received)] == [408]


def test_a_connection_on_which_nothing_is_said_is_closed(server: Server) -> None:
    for first, seconds in ((b"", HEAD_SECONDS), (b"\r\n\r\n", HEAD_SECONDS)):
        begin = time.monotonic()
        with server.connect() as connection:
            connection.sendall(first)
            assert everything(connection) == b""
        assert time.monotonic() - begin < seconds + SLACK_SECONDS


def test_an_idle_connection_is_closed_after_its_time_and_not_before(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(request("GET", "/healthz", close=False))
        begin = time.monotonic()
        assert [reply.status for reply in replies(everything(connection))] == [200]
        assert IDLE_SECONDS * 0.9 < time.monotonic() - begin < IDLE_SECONDS + SLACK_SECONDS


@pytest.mark.parametrize("first", [b"", b'{"type"'])
def test_a_body_that_stalls_is_400_and_burns_no_key(server: Server, first: bytes) -> None:
    key = f"stalls-{len(first)}"
    begin = time.monotonic()
    (reply,) = server.say(submission(key)[: -len(DATA)] + first)
    assert (reply.status, reply.code) == (400, "VALIDATION_ERROR")
    assert time.monotonic() - begin < BODY_SECONDS + SLACK_SECONDS
    assert fresh(server, key)


def test_a_body_that_drips_is_cut_off_however_steadily(server: Server) -> None:
    begin = time.monotonic()
    with server.connect() as connection:
        connection.settimeout(0.05)
        connection.sendall(POST + b"Idempotency-Key: drips\r\nContent-Length: 100000\r\n\r\n")
        received = b""
        while not received and time.monotonic() < begin + BODY_SECONDS + SLACK_SECONDS:
            try:
                connection.send(b" ")
                received = connection.recv(65_536)
            except TimeoutError:
                continue
    assert [reply.status for reply in replies(received)] == [400]
    assert fresh(server, "drips")


def test_a_body_that_nobody_wants_is_not_waited_for(server: Server) -> None:
    begin = time.monotonic()
    (reply,) = server.say(b"POST /nowhere HTTP/1.1\r\nContent-Length: 100000\r\n\r\nabc")
    assert reply.status == 404
    assert reply.headers["connection"] == "close"
    assert time.monotonic() - begin < SLACK_SECONDS


def test_a_body_shorter_than_its_length_is_400_and_burns_no_key(server: Server) -> None:
    data = submission("short")[:-5]
    assert [reply.status for reply in server.say(data, half_close=True)] == [400]
    assert fresh(server, "short")
    with server.connect() as connection:
        connection.sendall(submission("cut")[:-5])
    assert fresh(server, "cut")


def test_what_follows_a_body_is_the_next_request(server: Server) -> None:
    first, second = server.say(submission("long") + b"and more\r\n\r\n")
    assert (first.status, second.status) == (202, 400)
    assert server.submit("long").body["job"]["id"] == first.body["job"]["id"]


@pytest.mark.parametrize(
    "lines",
    [
        b"Content-Length: 43\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 43\r\n",
        b"Transfer-Encoding: identity\r\nContent-Length: 43\r\n",
        b"Content-Length: 43\r\nContent-Length: 43\r\n",
        b"Content-Length: 43, 43\r\n",
        b"Content-Length: +43\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 0x2b\r\n",
        b"Content-Length: 99999999999999999999999999\r\n",
        b"Content-Length:\r\n",
        b"Transfer-Encoding: chunked, gzip\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding:\x0bchunked\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Content-Length : 43\r\n",
        b"X: y\r\n folded\r\nContent-Length: 43\r\n",
        b"X: a\x00b\r\nContent-Length: 43\r\n",
        b"X: a\x01b\r\nContent-Length: 43\r\n",
        b"X\x00: a\r\nContent-Length: 43\r\n",
        b": a\r\nContent-Length: 43\r\n",
        b"no colon\r\nContent-Length: 43\r\n",
    ],
)
def test_framing_that_can_be_read_in_two_ways_is_refused(server: Server, lines: bytes) -> None:
    key, other = f"framing-{crc32(lines)}", f"smuggled-{crc32(lines)}"
    found = server.say(
        POST
        + b"Idempotency-Key: %b\r\n%b\r\n" % (key.encode(), lines)
        + DATA
        + b"0\r\n\r\n"
        + submission(other)
    )
    assert [reply.status for reply in found] == [400]
    assert fresh(server, key)
    assert fresh(server, other)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET /\x00 HTTP/1.1", 400),
        (b"GET /a\x01b HTTP/1.1", 400),
        (b"GET /\xff HTTP/1.1", 400),
        (b"GET /healthz\tHTTP/1.1", 400),
        (b"GET healthz HTTP/1.1", 400),
        (b"GET * HTTP/1.1", 404),
        (b"GET /healthz HTTP/9.9", 400),
        (b"GET /healthz HTTP/2.0", 400),
        (b"GET /healthz HTTP/0.9", 400),
        (b"GET /healthz", 400),
        (b"GET /healthz HTTPS/1.1", 400),
        (b"get /healthz HTTP/1.1", 400),
        (b"MAKE /api/jobs HTTP/1.1", 400),
        (b"A" * 5000 + b" / HTTP/1.1", 400),
        (b"\x00" * 10, 400),
        (b"CONNECT localhost:443 HTTP/1.1", 400),
        (b"PRI * HTTP/2.0", 400),
        (b"TRACE /healthz HTTP/1.1", 405),
        (b"PROPFIND /healthz HTTP/1.1", 405),
        (b"GET /%00 HTTP/1.1", 404),
        (b"GET /api/jobs/%ff HTTP/1.1", 400),
        (b"GET /api/jobs?limit=%00 HTTP/1.1", 400),
        (b"GET http://elsewhere/healthz HTTP/1.1", 200),
    ],
)
def test_a_request_line_is_judged(server: Server, line: bytes, status: int) -> None:
    (reply, *more) = server.say(line + b"\r\nConnection: close\r\n\r\n")
    assert not more
    assert reply.status == status


def test_garbage_is_400(server: Server) -> None:
    chance = random.Random(7)
    for data in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        *(chance.randbytes(400) for _ in range(20)),
    ):
        found = server.say(data + b"\r\n\r\n", half_close=True)
        assert [reply.status for reply in found] in ([400], [])


def test_chunked_bodies_are_taken(server: Server) -> None:
    head = POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\nIdempotency-Key: "
    pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in DATA)
    (whole,) = server.say(head + b"chunks\r\n\r\n%x;a=b\r\n%b\r\n0\r\n\r\n" % (len(DATA), DATA))
    (again,) = server.say(head + b"chunks\r\n\r\n" + pieces + b"0\r\n\r\n")
    assert (whole.status, again.status) == (202, 202)
    assert whole.body["job"]["id"] == again.body["job"]["id"]


def test_a_trailer_is_not_a_header(server: Server) -> None:
    head = POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"%x\r\n%b\r\n0\r\nIdempotency-Key: trailer\r\n\r\n" % (len(DATA), DATA)
    (reply,) = server.say(head + body)
    assert reply.status == 202
    assert reply.body["idempotency"]["key"] is None
    assert fresh(server, "trailer")


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("over", b"%x\r\n%b\r\n0\r\n\r\n" % (2 << 20, b" " * (2 << 20)), 413),
        ("many", (b"1000\r\n" + b" " * 0x1000 + b"\r\n") * 400, 413),
        ("tiny", b"1\r\n \r\n" * (BODY_BYTES_MAX + 1), 413),
        ("no-size", b"\r\n\r\n", 400),
        ("bad-size", b"zz\r\n\r\n", 400),
        ("huge-size", b"fffffffffffffffffff\r\n", 400),
        ("negative", b"-1\r\n\r\n", 400),
        ("wrong-end", b"1\r\nabc\r\n", 400),
    ],
)
def test_chunks_beyond_the_limit_or_reason_are_refused(
    server: Server, name: str, body: bytes, status: int
) -> None:
    head = POST + b"Transfer-Encoding: chunked\r\nIdempotency-Key: chunks-%b\r\n\r\n" % name.encode()
    assert [reply.status for reply in server.say(head + body)] == [status]
    assert fresh(server, f"chunks-{name}")


@pytest.mark.parametrize("piece", [b"1;" + b"a" * 50_000 + b"\r\n \r\n", b"0\r\nX: " + b"a" * 50_000])
def test_framing_without_end_is_cut_off(server: Server, piece: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(POST + b"Transfer-Encoding: chunked\r\nIdempotency-Key: framing-1\r\n\r\n" + piece)
        connection.setblocking(False)
        sent = 0
        received = b""
        begin = time.monotonic()
        while not received and time.monotonic() < begin + SLACK_SECONDS + BODY_SECONDS:
            try:
                sent += connection.send(piece if b";" in piece else b"a" * 50_000)
            except BlockingIOError:
                pass
            except OSError:
                break
            try:
                received = connection.recv(65_536)
            except BlockingIOError:
                continue
            except OSError:
                break
    assert time.monotonic() < begin + SLACK_SECONDS + BODY_SECONDS
    assert [reply.status for reply in replies(received)] in ([400], [])


def test_a_body_beyond_the_limit_is_413_whatever_else_is_sent(server: Server) -> None:
    (reply,) = server.say(submission("large", "x" * (3 << 20)))
    assert (reply.status, reply.code) == (413, "PAYLOAD_TOO_LARGE")
    assert fresh(server, "large")


def test_http_1_0_is_answered_and_closed(server: Server) -> None:
    (reply,) = server.say(b"POST /api/jobs HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (len(DATA), DATA))
    assert reply.status == 202
    assert reply.headers["connection"] == "close"


def test_whoever_expects_to_be_asked_for_the_body_is(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(submission("expects", expect="100-continue", connection="close")[: -len(DATA)])
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(DATA)
        assert [reply.status for reply in replies(everything(connection))] == [202]
    (reply,) = server.say(b"POST /nowhere HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
    assert reply.status == 404


def test_another_protocol_is_not_spoken(server: Server) -> None:
    for name in ("h2c", "websocket"):
        lines = {"connection": "Upgrade, HTTP2-Settings", "upgrade": name, "http2_settings": "AAMAAABk"}
        data = request("GET", "/healthz", b"", lines, close=False)
        answered, refused = server.say(data + b"\x00\x00\x12\x04\x00\x00\x00\x00\x00")
        assert (answered.status, refused.status) == (200, 400)
        assert refused.headers["connection"] == "close"


def test_piped_requests_are_answered_in_order(server: Server) -> None:
    data = b"".join(submission(f"piped-{n}") for n in range(50))
    found = server.say(data + request("GET", "/healthz"))
    assert [reply.status for reply in found] == [202] * 50 + [200]
    assert [reply.body["idempotency"]["key"] for reply in found[:50]] == [f"piped-{n}" for n in range(50)]


def test_thousands_of_piped_requests_are_answered(server: Server) -> None:
    data = b"GET /healthz HTTP/1.1\r\n\r\n" * 5_000 + request("GET", "/nowhere")
    with server.connect() as connection, ThreadPoolExecutor(1) as thread:
        sending = thread.submit(connection.sendall, data)
        found = replies(everything(connection))
        sending.result()
    assert [reply.status for reply in found] == [200] * 5_000 + [404]


def test_a_request_before_garbage_is_answered_before_the_garbage(server: Server) -> None:
    found = server.say(submission("before") + submission("before-2") + b"\x00\x01garbage\r\n\r\n")
    assert [reply.status for reply in found] == [202, 202, 400]


def test_a_client_that_is_done_sending_gets_its_answer(server: Server) -> None:
    (reply,) = server.say(submission("half"), half_close=True)
    assert reply.status == 202
    assert [reply.status for reply in server.say(submission("half") * 3, half_close=True)] == [202] * 3
    many = b"GET /healthz HTTP/1.1\r\n\r\n" * 2000
    assert [reply.status for reply in server.say(many, half_close=True)] == [200] * 2000


def test_a_client_that_does_not_read_is_given_up(server: Server) -> None:
    with server.connect(seconds=0.5) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        assert gone_within(connection, BODY_SECONDS + SLACK_SECONDS + 10)


def gone_within(connection: socket.socket, seconds: float) -> bool:
    """Ask and never read: neither side's buffers are endless, so at some point there is no sending any more."""
    begin = time.monotonic()
    while time.monotonic() < begin + seconds:
        try:
            connection.send(b"GET /openapi.json HTTP/1.1\r\n\r\n" * 1000)
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


def test_many_bad_clients_at_once_leave_the_others_alone(server: Server) -> None:
    slow = [server.connect() for _ in range(100)]
    try:
        for connection in slow:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        assert server.submit("others").status == 202
    finally:
        for connection in slow:
            connection.close()


async def test_head_and_body_leave_in_one_write() -> None:
    made = await written(ServiceConfig(), [b"GET / HTTP/1.1\r\n\r\n"])
    assert made == [b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nGET / 0"]


async def test_however_the_bytes_are_cut_the_answers_are_the_same() -> None:
    chance = random.Random(seed := random.randrange(1 << 32))
    print("seed", seed)
    data = b"".join(
        (
            b"GET /a?b=c HTTP/1.1\r\nX: y\r\n\r\n",
            b"POST /b HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
            b"\r\nPOST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: r\r\n\r\n",
            b"POST /d HTTP/1.1\r\nContent-Length: 30000\r\n\r\n" + b"z" * 30_000,
            b"GET /e HTTP/1.1\r\n\r\n" * 1000,
            b"GET /f HTTP/1.1\r\nConnection: close\r\n\r\n",
        )
    )
    told = [b"GET /a 0", b"POST /b 5", b"POST /c 5", b"POST /d 30000", *[b"GET /e 0"] * 1000, b"GET /f 0"]
    for _ in range(30):
        cuts = sorted(chance.sample(range(1, len(data)), chance.randrange(40)))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        found = replies(b"".join(await written(ServiceConfig(), pieces)))
        assert [reply.content for reply in found] == told


async def written(config: ServiceConfig, pieces: list[bytes]) -> list[bytes]:
    """What a connection writes when it receives these pieces; its application tells what it was asked."""
    made: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message["body"]), message["more_body"]
        body = f"{scope['method']} {scope['path']} {size}".encode()
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    class Transport(asyncio.Transport):
        closed = False
        reading = asyncio.Event()

        def write(self, data: bytes | bytearray | memoryview) -> None:
            made.append(bytes(data))

        def is_closing(self) -> bool:
            return self.closed

        def close(self) -> None:
            self.closed = True

        def pause_reading(self) -> None:
            self.reading.clear()

        def resume_reading(self) -> None:
            self.reading.set()

    settings = Config(app, interface="asgi3", log_config=None, proxy_headers=False)
    connection = guarded(config, lambda request_id, status: None)(settings, ServerState(), {})
    transport = Transport()
    transport.resume_reading()
    connection.connection_made(transport)
    for piece in pieces:
        await transport.reading.wait()
        connection.data_received(piece)
    while connection.tasks:
        await asyncio.gather(*connection.tasks)
    connection.connection_lost(ConnectionError())
    return made


def test_what_we_lean_on_in_uvicorn_is_there() -> None:
    protocol = httptools_impl.HttpToolsProtocol
    assert list(inspect.signature(protocol).parameters) == ["config", "server_state", "app_state", "_loop"]
    loop = asyncio.new_event_loop()
    made = protocol(Config(lambda: None, log_config=None), ServerState(), {}, loop)
    loop.close()
    for name in (
        "app",
        "loop",
        "parser",
        "flow",
        "server",
        "client",
        "scheme",
        "transport",
        "cycle",
        "headers",
    ):
        assert hasattr(made, name)
    assert made.tasks is made.server_state.tasks
    assert made.connections is made.server_state.connections
    assert made.server_state.default_headers == []
    assert made.server_state.total_requests == 0
    for name in ("connection_made", "connection_lost", "pause_writing", "resume_writing", "shutdown"):
        assert callable(getattr(protocol, name))
    for name in ("pause_reading", "resume_reading", "drain"):
        assert callable(getattr(FlowControl, name))
    for name in ("startup", "shutdown", "handle_exit", "serve"):
        assert callable(getattr(uvicorn.Server, name))
    assert STATUS_LINE[431] == b"HTTP/1.1 431 Request Header Fields Too Large\r\n"


def test_everything_that_the_parser_may_call_is_ours() -> None:
    called = [name for name in vars(httptools_impl.HttpToolsProtocol) if name.startswith("on_")]
    ours = {name for room in (Connection, HeadReader) for name in vars(room)}
    assert set(called) - ours == {"on_response_complete"}  # which nobody calls here
