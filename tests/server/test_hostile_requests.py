"""Hostile and broken clients get a 4xx or a closed connection, and other clients are not affected."""

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from zlib import crc32

import pytest

from onejob.http.config import BODY_BYTES_MAX
from tests.server.short_timeouts import DATA, POST, check_still_healthy, is_key_unused, run_server_with_short_timeouts
from tests.support.raw_http import Server, parse_responses, receive_all, request, submission


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, shared_settings: str) -> Iterator[Server]:
    # Some of what is sent is long.
    with run_server_with_short_timeouts(tmp_path_factory.mktemp("limits"), shared_settings, body_seconds=10) as running:
        yield running


@pytest.fixture(autouse=True)
def _server_stays_healthy(server: Server) -> Iterator[None]:
    yield
    check_still_healthy(server)


def test_a_head_beyond_the_limit_is_431(server: Server) -> None:
    for data in (
        b"GET /healthz HTTP/1.1\r\nX-Large: " + b"x" * 2_000_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 2_000_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nX-Large: " + b"x" * 16_400 + b"\r\n\r\n",
        POST + b"Idempotency-Key: " + b"k" * 20_000 + b"\r\nContent-Length: 2\r\n\r\n{}",
    ):
        (reply,) = server.send_raw(data)
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
    assert [reply.status for reply in server.send_raw(b"GET /healthz HTTP/1.1\r\n" + lines + b"\r\n")] == [431]


def test_what_follows_a_body_is_the_next_request(server: Server) -> None:
    first, second = server.send_raw(submission("long") + b"and more\r\n\r\n")
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
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding: identity, chunked\r\n",
        b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked, chunked\r\n",
        b"Transfer-Encoding: Chunked\r\n",
        b"Transfer-Encoding: chunked;q=1\r\n",
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
    found = server.send_raw(
        POST + b"Idempotency-Key: %b\r\n%b\r\n" % (key.encode(), lines) + DATA + b"0\r\n\r\n" + submission(other)
    )
    assert [reply.status for reply in found] == [400]
    assert is_key_unused(server, key)
    assert is_key_unused(server, other)


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
        (b"GET  /healthz HTTP/1.1", 400),
        (b"GET /healthz  HTTP/1.1", 400),
        (b"GET /healthz HTTP/1.1 ", 400),
        (b"SETUP /healthz RTSP/1.0", 400),
        (b"SOURCE /healthz ICE/1.1", 400),
        (b"\r\nGET /healthz HTTP/1.1", 200),
    ],
)
def test_a_malformed_request_line_is_refused(server: Server, line: bytes, status: int) -> None:
    (reply, *more) = server.send_raw(line + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert not more
    assert reply.status == status


def test_a_malformed_line_behind_another_request_is_refused_too(server: Server) -> None:
    first = request("GET", "/healthz", close=False)
    data = first + b"GET  /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert [reply.status for reply in server.send_raw(data)] == [200, 400]


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (b"Host: a b\r\n", 400),
        (b"Host: a, b\r\n", 400),
        (b"Host: localhost,localhost\r\n", 400),
        (b"Host: http://localhost\r\n", 400),
        (b"Host: user@localhost\r\n", 400),
        (b"Host: localhost/path\r\n", 400),
        (b"Host: localhost?query\r\n", 400),
        (b"Host: localhost:port\r\n", 400),
        (b"Host: localhost:80:80\r\n", 400),
        (b"Host: ::1\r\n", 400),
        (b"Host: [::1\r\n", 400),
        (b"Host: local%host\r\n", 400),
        (b"Host: local\xffhost\r\n", 400),
        (b"Host: localhost\r\nHost: localhost\r\n", 400),
        (b"Host: localhost\r\nContent-Type: application/json\r\nContent-Type: text/plain\r\n", 400),
        (b"Host: localhost\r\nOrigin: http://localhost\r\nOrigin: http://elsewhere\r\n", 400),
        (b"Host: localhost\r\nOrigin: http://localhost, http://elsewhere\r\n", 400),
        (b"Host: localhost\r\nOrigin: http://localhost http://elsewhere\r\n", 400),
        (b"Host: localhost\r\nExpect: 200-ok\r\n", 417),
        (b"Host: localhost\r\nExpect: 100-continue, 200-ok\r\n", 417),
        (b"Host: localhost\r\nExpect: 100-continue\r\nExpect: 200-ok\r\n", 417),
    ],
)
def test_a_head_that_can_be_read_in_two_ways_is_refused(server: Server, lines: bytes, status: int) -> None:
    key = b"head-%d" % crc32(lines)
    head = b"POST /api/jobs HTTP/1.1\r\nIdempotency-Key: %b\r\nContent-Length: %d\r\n" % (key, len(DATA))
    (reply,) = server.send_raw(head + lines + b"\r\n" + DATA)
    assert (reply.status, reply.code) == (status, "BAD_REQUEST")
    assert is_key_unused(server, key.decode())


@pytest.mark.parametrize(
    "lines",
    [b"Host: localhost:\r\n", b"Host: [::1]:8000\r\n", b"Host: 127.0.0.1:80\r\n", b"Host: localhost\r\nExpect:\r\n"],
)
def test_a_head_with_unusual_values_is_taken(server: Server, lines: bytes) -> None:
    (reply,) = server.send_raw(b"GET /healthz HTTP/1.1\r\nConnection: close\r\n" + lines + b"\r\n")
    assert reply.status == 200


def test_garbage_is_400(server: Server) -> None:
    chance = random.Random(7)
    for data in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        *(chance.randbytes(400) for _ in range(20)),
    ):
        found = server.send_raw(data + b"\r\n\r\n", half_close=True)
        assert [reply.status for reply in found] in ([400], [])


def test_chunked_bodies_are_taken(server: Server) -> None:
    head = POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\nIdempotency-Key: "
    pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in DATA)
    (first,) = server.send_raw(head + b"chunks\r\n\r\n%x;a=b\r\n%b\r\n0\r\n\r\n" % (len(DATA), DATA))
    (again,) = server.send_raw(head + b"chunks\r\n\r\n" + pieces + b"0\r\n\r\n")
    assert (first.status, again.status) == (202, 202)
    assert first.body["job"]["id"] == again.body["job"]["id"]


def test_a_trailer_is_not_a_header(server: Server) -> None:
    head = POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"%x\r\n%b\r\n0\r\nIdempotency-Key: trailer\r\n\r\n" % (len(DATA), DATA)
    (reply,) = server.send_raw(head + body)
    assert reply.status == 202
    assert reply.body["idempotency"]["key"] is None
    assert is_key_unused(server, "trailer")


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
def test_chunks_beyond_the_limit_or_reason_are_refused(server: Server, name: str, body: bytes, status: int) -> None:
    head = POST + b"Transfer-Encoding: chunked\r\nIdempotency-Key: chunks-%b\r\n\r\n" % name.encode()
    assert [reply.status for reply in server.send_raw(head + body)] == [status]
    assert is_key_unused(server, f"chunks-{name}")


def test_a_body_beyond_the_limit_is_413_whatever_else_is_sent(server: Server) -> None:
    (reply,) = server.send_raw(submission("large", "x" * (3 << 20)))
    assert (reply.status, reply.code) == (413, "PAYLOAD_TOO_LARGE")
    assert is_key_unused(server, "large")


@pytest.mark.parametrize("line", [b"", b"X: y\r\n", b"X-Host: localhost\r\n"])
def test_http_1_1_without_a_host_is_400(server: Server, line: bytes) -> None:
    (reply,) = server.send_raw(b"GET /healthz HTTP/1.1\r\n" + line + b"\r\n")
    assert (reply.status, reply.code) == (400, "BAD_REQUEST")
    assert "no Host header" in reply.body["detail"]


def test_http_1_0_needs_no_host(server: Server) -> None:
    assert [reply.status for reply in server.send_raw(b"GET /healthz HTTP/1.0\r\n\r\n")] == [200]


def test_http_1_0_with_a_transfer_encoding_is_400(server: Server) -> None:
    data = b"POST /api/jobs HTTP/1.0\r\nTransfer-Encoding: chunked\r\nIdempotency-Key: old\r\n\r\n"
    (reply,) = server.send_raw(data + b"%x\r\n%b\r\n0\r\n\r\n" % (len(DATA), DATA))
    assert reply.status == 400
    assert is_key_unused(server, "old")


def test_http_1_0_gets_no_100_continue(server: Server) -> None:
    head = b"POST /api/jobs HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(DATA)
    with server.connect() as connection:
        connection.sendall(head)
        time.sleep(0.2)  # a `100 Continue` would be here by now
        connection.sendall(DATA)
        assert [reply.status for reply in parse_responses(receive_all(connection))] == [202]


def test_http_1_0_gets_a_stream_without_chunks(server: Server) -> None:
    job_id = server.submit("streamed").body["job"]["id"]
    server.ask("POST", f"/api/jobs/{job_id}/cancel")
    with server.connect() as connection:
        connection.sendall(f"GET /api/jobs/{job_id}/events HTTP/1.0\r\n\r\n".encode())
        head, _, body = receive_all(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"transfer-encoding" not in head.lower()
    assert b"connection: close" in head.lower()
    lines = body.decode().splitlines()
    assert "event: submitted" in lines
    assert all(not line or line.startswith((":", "id: ", "event: ", "data: ", "retry: ")) for line in lines)


def test_a_declared_length_over_the_limit_is_413_before_100_continue(server: Server) -> None:
    head = b"Idempotency-Key: declared\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1)
    begin = time.monotonic()
    (reply,) = server.send_raw(POST + head)
    assert (reply.status, reply.code) == (413, "PAYLOAD_TOO_LARGE")
    assert time.monotonic() - begin < 25, "it is refused before its body is waited for"
    assert is_key_unused(server, "declared")


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "GZIP", "identity, gzip"])
def test_a_content_encoding_that_is_not_decoded_is_415(server: Server, encoding: str) -> None:
    key = f"encoded-{crc32(encoding.encode())}"
    reply = server.submit(key, content_encoding=encoding)
    assert (reply.status, reply.code) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert reply.headers["accept-encoding"] == "identity"
    assert is_key_unused(server, key)
    assert server.ask("POST", "/api/jobs/batch", {"jobs": []}, content_encoding=encoding).status == 415


def test_the_content_encoding_identity_is_none(server: Server) -> None:
    assert server.submit("identity", content_encoding="identity").status == 202


def test_every_response_forbids_to_guess_its_type(server: Server) -> None:
    for reply in (
        server.submit("sniffed"),
        server.ask("GET", "/healthz"),
        server.ask("GET", "/"),
        server.ask("GET", "/metrics"),
        server.ask("GET", "/nowhere"),
        server.ask("PUT", "/healthz"),
        server.send_raw(b"garbage\r\n\r\n")[0],
        server.send_raw(b"GET /healthz HTTP/1.1\r\n\r\n")[0],
    ):
        assert reply.headers["x-content-type-options"] == "nosniff"
    job_id = server.submit("sniffed").body["job"]["id"]
    with server.connect() as connection:
        connection.sendall(f"HEAD /api/jobs/{job_id}/events HTTP/1.0\r\n\r\n".encode())
        assert b"x-content-type-options: nosniff\r\n" in receive_all(connection)


def test_http_1_0_is_answered_and_closed(server: Server) -> None:
    (reply,) = server.send_raw(b"POST /api/jobs HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (len(DATA), DATA))
    assert reply.status == 202
    assert reply.headers["connection"] == "close"


def test_expect_100_continue_is_answered(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(submission("expects", expect="100-continue", connection="close")[: -len(DATA)])
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(DATA)
        assert [reply.status for reply in parse_responses(receive_all(connection))] == [202]
    (reply,) = server.send_raw(
        b"POST /nowhere HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    )
    assert reply.status == 404


def test_another_protocol_is_refused(server: Server) -> None:
    for name in ("h2c", "websocket"):
        lines = {"connection": "Upgrade, HTTP2-Settings", "upgrade": name, "http2_settings": "AAMAAABk"}
        data = request("GET", "/healthz", b"", lines, close=False)
        answered, refused = server.send_raw(data + b"\x00\x00\x12\x04\x00\x00\x00\x00\x00")
        assert (answered.status, refused.status) == (200, 400)
        assert refused.headers["connection"] == "close"


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    data = b"".join(submission(f"piped-{n}") for n in range(50))
    found = server.send_raw(data + request("GET", "/healthz"))
    assert [reply.status for reply in found] == [202] * 50 + [200]
    assert [reply.body["idempotency"]["key"] for reply in found[:50]] == [f"piped-{n}" for n in range(50)]


def test_thousands_of_pipelined_requests_are_answered(server: Server) -> None:
    data = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5_000 + request("GET", "/nowhere")
    with server.connect() as connection, ThreadPoolExecutor(1) as thread:
        sending = thread.submit(connection.sendall, data)
        found = parse_responses(receive_all(connection))
        sending.result()
    assert [reply.status for reply in found] == [200] * 5_000 + [404]


def test_a_request_before_garbage_is_answered_before_the_garbage(server: Server) -> None:
    found = server.send_raw(submission("before") + submission("before-2") + b"\x00\x01garbage\r\n\r\n")
    assert [reply.status for reply in found] == [202, 202, 400]


def test_a_client_that_is_done_sending_gets_its_answer(server: Server) -> None:
    (reply,) = server.send_raw(submission("half"), half_close=True)
    assert reply.status == 202
    assert [reply.status for reply in server.send_raw(submission("half") * 3, half_close=True)] == [202] * 3
    many = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2000
    assert [reply.status for reply in server.send_raw(many, half_close=True)] == [200] * 2000
