"""Slow clients soon get a 4xx or a closed connection, and other clients are not affected."""

import socket
import time
from collections.abc import Iterator

import pytest

from tests.server.short_timeouts import (
    BODY_SECONDS,
    DATA,
    HEAD_SECONDS,
    IDLE_SECONDS,
    POST,
    SLACK_SECONDS,
    check_still_healthy,
    is_key_unused,
    run_server_with_short_timeouts,
)
from tests.support.raw_http import Server, parse_responses, receive_all, request, submission


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, shared_settings: str) -> Iterator[Server]:
    with run_server_with_short_timeouts(tmp_path_factory.mktemp("deadlines"), shared_settings) as running:
        yield running


@pytest.fixture(autouse=True)
def _server_stays_healthy(server: Server) -> Iterator[None]:
    yield
    check_still_healthy(server)


def test_a_slow_head_is_cut_off(server: Server) -> None:
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
    assert [reply.status for reply in parse_responses(received)] == [408]


@pytest.mark.parametrize("first", [b"", request("GET", "/healthz", close=False)], ids=["first", "second"])
@pytest.mark.parametrize("piece", [b"x", b"\r\nX: y"], ids=["bytes", "lines"])
def test_a_head_has_one_time_limit_however_steadily_it_arrives(server: Server, first: bytes, piece: bytes) -> None:
    begin = time.monotonic()
    with server.connect() as connection:
        connection.settimeout(0.1)
        connection.sendall(first + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: x")
        received = b""
        while b" 408 " not in received and time.monotonic() < begin + HEAD_SECONDS + SLACK_SECONDS:
            try:
                connection.send(piece)
                received += connection.recv(65_536)
            except TimeoutError:
                continue
    assert HEAD_SECONDS * 0.9 < time.monotonic() - begin < HEAD_SECONDS + SLACK_SECONDS
    assert [reply.status for reply in parse_responses(received)] == ([200, 408] if first else [408])


@pytest.mark.parametrize("piece", [b" ", b"1\r\n \r\n"], ids=["length", "chunks"])
def test_a_body_has_one_time_limit_however_steadily_it_arrives(server: Server, piece: bytes) -> None:
    framing = b"Content-Length: 100000" if piece == b" " else b"Transfer-Encoding: chunked"
    begin = time.monotonic()
    with server.connect() as connection:
        connection.settimeout(0.1)
        connection.sendall(POST + b"Idempotency-Key: steady-%d\r\n" % len(piece) + framing + b"\r\n\r\n")
        received = b""
        while not received and time.monotonic() < begin + BODY_SECONDS + SLACK_SECONDS:
            try:
                connection.send(piece)
                received = connection.recv(65_536)
            except TimeoutError:
                continue
    assert BODY_SECONDS * 0.9 < time.monotonic() - begin < BODY_SECONDS + SLACK_SECONDS
    assert parse_responses(received)[0].status in (400, 408)
    assert is_key_unused(server, f"steady-{len(piece)}")


def test_a_silent_connection_is_closed(server: Server) -> None:
    for first, seconds in ((b"", HEAD_SECONDS), (b"\r\n\r\n", HEAD_SECONDS)):
        begin = time.monotonic()
        with server.connect() as connection:
            connection.sendall(first)
            assert receive_all(connection) == b""
        assert time.monotonic() - begin < seconds + SLACK_SECONDS


def test_an_idle_connection_is_closed_after_its_time_and_not_before(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(request("GET", "/healthz", close=False))
        begin = time.monotonic()
        assert [reply.status for reply in parse_responses(receive_all(connection))] == [200]
        assert IDLE_SECONDS * 0.9 < time.monotonic() - begin < IDLE_SECONDS + SLACK_SECONDS


@pytest.mark.parametrize("first", [b"", b'{"type"'])
def test_a_body_that_stalls_is_408_and_burns_no_key(server: Server, first: bytes) -> None:
    key = f"stalls-{len(first)}"
    begin = time.monotonic()
    (reply,) = server.send_raw(submission(key)[: -len(DATA)] + first)
    assert (reply.status, reply.code) == (408, "BAD_REQUEST")
    assert time.monotonic() - begin < BODY_SECONDS + SLACK_SECONDS
    assert is_key_unused(server, key)


def test_a_slow_body_is_cut_off_however_steady(server: Server) -> None:
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
    assert [reply.status for reply in parse_responses(received)] == [408]
    assert is_key_unused(server, "drips")


def test_a_body_that_no_handler_reads_is_not_waited_for(server: Server) -> None:
    begin = time.monotonic()
    (reply,) = server.send_raw(b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nabc")
    assert reply.status == 404
    assert reply.headers["connection"] == "close"
    assert time.monotonic() - begin < SLACK_SECONDS


def test_a_body_shorter_than_its_length_is_400_and_burns_no_key(server: Server) -> None:
    data = submission("short")[:-5]
    assert [reply.status for reply in server.send_raw(data, half_close=True)] == [400]
    assert is_key_unused(server, "short")
    with server.connect() as connection:
        connection.sendall(submission("cut")[:-5])
    assert is_key_unused(server, "cut")


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
    assert [reply.status for reply in parse_responses(received)] in ([400], [])


def test_a_client_that_does_not_read_is_given_up(server: Server) -> None:
    with server.connect(seconds=0.5) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        assert is_closed_within(connection, BODY_SECONDS + SLACK_SECONDS + 10)


def is_closed_within(connection: socket.socket, seconds: float) -> bool:
    """Send requests and never read a response, until the buffers of both sides are full."""
    begin = time.monotonic()
    while time.monotonic() < begin + seconds:
        try:
            connection.send(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
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
