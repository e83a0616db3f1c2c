"""Pipelined requests behind one that waits are answered in order, and their buffers are bounded."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.short_timeouts import check_still_healthy, run_server_with_short_timeouts
from tests.support.raw_http import Server, parse_responses, receive_all, request, submission

LARGE = b'{"type": "charge", "input": {"note": "' + b"x" * 20_000 + b'"}}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with run_server_with_short_timeouts(tmp_path_factory.mktemp("piped"), "") as running:
        yield running


@pytest.fixture(autouse=True)
def _server_stays_healthy(server: Server) -> Iterator[None]:
    yield
    check_still_healthy(server)


def long_poll_request(server: Server, seconds: float) -> bytes:
    """A request that is answered after this time."""
    job_id = server.submit("waits").body["job"]["id"]
    return request("GET", f"/api/jobs/{job_id}?wait={seconds:g}", close=False)


def large_submission(key: str) -> bytes:
    return request("POST", "/api/jobs", LARGE, {"Idempotency-Key": key}, close=False)


@pytest.mark.parametrize("half_close", [True, False])
def test_each_is_answered_in_its_place_though_the_client_has_stopped_sending(
    server: Server, *, half_close: bool
) -> None:
    nowhere = request("GET", "/api/nothing", close=False)
    last = request("POST", "/api/jobs", b'{"type": "charge"}', {"Idempotency-Key": "b"})
    found = server.send_raw(
        long_poll_request(server, 0.5) + nowhere + large_submission("a") + last, half_close=half_close
    )
    assert [reply.status for reply in found] == [200, 404, 202, 202]
    assert [reply.body["idempotency"]["key"] for reply in found[2:]] == ["a", "b"]


def test_a_client_that_stops_in_the_middle_of_a_pipelined_request_gets_an_error(server: Server) -> None:
    found = server.send_raw(long_poll_request(server, 0.3) + large_submission("cut")[:-1], half_close=True)
    assert [reply.status for reply in found] == [200, 400]
    assert server.submit("cut").headers.get("idempotent-replayed") is None


def test_no_deadline_runs_against_what_the_server_does_not_read(server: Server) -> None:
    """The limit is one second here, and the head and body wait for two seconds behind another request."""
    found = server.send_raw(long_poll_request(server, 2) + large_submission("late") + request("GET", "/healthz"))
    assert [reply.status for reply in found] == [200, 202, 200]


def test_pipelined_data_behind_a_waiting_request_is_bounded(server: Server) -> None:
    many = request("GET", "/healthz", close=False) * 20_000
    before = memory_mib(server)
    with server.connect() as connection:
        connection.settimeout(1)
        connection.sendall(long_poll_request(server, 4))
        assert bytes_accepted(connection, many, most=60_000_000) < 20_000_000
        assert server.ask("GET", "/healthz").status == 200
    assert memory_mib(server) - before < 20


def bytes_accepted(connection: socket.socket, data: bytes, *, most: int) -> int:
    """How many bytes can be sent before the server stops reading."""
    sent = 0
    try:
        while sent < most:
            sent += connection.send(data)
    except TimeoutError:
        pass
    return sent


def memory_mib(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) // 1024


def test_a_bad_chunk_after_a_promise_to_wait_harms_nobody(server: Server) -> None:
    bad = (
        b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n"
    )
    with server.connect() as patient:
        for n in range(20):
            patient.sendall(submission(f"patient-{n}"))
            with server.connect() as rude:
                rude.sendall(bad)
                assert [reply.status for reply in parse_responses(receive_all(rude))][-1:] == [400]
        patient.shutdown(socket.SHUT_WR)
        assert [reply.status for reply in parse_responses(receive_all(patient))] == [202] * 20
