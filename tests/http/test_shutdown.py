"""Start and graceful shutdown of a server: no accepted request is lost."""

import asyncio
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import onejob
from onejob.engines import redact_password
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.http.serve import build_context
from onejob.logs import Log
from onejob.server.listener import HttpServer, bind_socket
from tests.support.raw_http import (
    BODY,
    ONEJOB,
    KeepAliveClient,
    Server,
    parse_responses,
    receive_all,
    request,
    run_server,
    submission,
)

TIMEOUT_SECONDS = 25.0  # less than a request may wait for


@pytest.fixture
def server(tmp_path: Path, settings: str) -> Iterator[Server]:
    with run_server(tmp_path, settings) as running:
        yield running


async def load(server: Server, name: str, answers: dict[str, str], asked: list[str]) -> None:
    """Submit new keys until the server closes the connection."""
    client = await KeepAliveClient.connect(server.port)
    for number in range(100_000):
        key = f"{name}-{number}"
        asked.append(key)
        reply = await client.ask(submission(key))
        if reply is None:
            break
        assert reply.status == 202, reply
        answers[key] = reply.body["job"]["id"]
        if reply.headers.get("connection") == "close":
            break
    client.close()


async def test_on_sigterm_every_request_is_answered_and_no_acknowledged_job_is_lost(
    tmp_path: Path, settings: str
) -> None:
    answers: dict[str, str] = {}
    asked: list[str] = []
    with run_server(tmp_path, settings) as server:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for number in range(16):
                group.create_task(load(server, str(number), answers, asked))
            while len(answers) < 300:
                await asyncio.sleep(0.01)
            server.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(server.process.wait, TIMEOUT_SECONDS) == 0
    assert set(asked) == set(answers)
    assert len(set(answers.values())) == len(answers)
    with run_server(tmp_path, settings) as server:
        client = await KeepAliveClient.connect(server.port)
        for key, job_id in answers.items():
            reply = await client.ask(submission(key))
            assert reply is not None
            assert reply.body["job"]["id"] == job_id
        client.close()


async def test_connections_that_nobody_has_accepted_yet_are_answered(tmp_path: Path) -> None:
    config = ServiceConfig(port=0)

    async with onejob.open("memory://") as ledger:
        with bind_socket("127.0.0.1", 0) as listener:
            server = HttpServer(
                build_context(config, HttpApp(ledger, config=config), Log("text", write=lambda data: None)),
                drain_seconds_max=TIMEOUT_SECONDS,
            )
            await server.start([listener])
            # The event loop does not run in between, so these wait in the queue of the kernel.
            connections = [socket.create_connection(listener.getsockname()) for _ in range(20)]
            for number, connection in enumerate(connections):
                connection.sendall(submission(f"k{number}"))
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await server.shut_down()
        for connection in connections:
            with connection:
                (reply,) = parse_responses(receive_all(connection))
                assert (reply.status, reply.headers["connection"]) == (202, "close")


async def test_requests_waiting_for_a_key_end_with_a_retryable_error(durable_url: str, server: Server) -> None:
    async with onejob.open(durable_url) as ledger:
        held = await ledger.check_or_reserve("charge", BODY["input"], idempotency_key="held")
        assert isinstance(held, onejob.HeldKey)
        clients = [await KeepAliveClient.connect(server.port) for _ in range(20)]
        waiting = [asyncio.create_task(client.ask(submission("held"))) for client in clients]
        await wait_for_waiters(server, 20)
        server.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            for reply in await asyncio.gather(*waiting):
                assert reply is not None
                assert (reply.status, reply.code) == (409, "IN_PROGRESS")
                assert reply.body["error"]["retryable"]
                assert reply.headers["retry-after"] == "1"
                assert reply.body["error"]["details"]["jobId"] == held.job_id
        assert await asyncio.to_thread(server.process.wait, TIMEOUT_SECONDS) == 0
        assert (await ledger.commit(held)).job_id == held.job_id
        for client in clients:
            client.close()


async def wait_for_waiters(server: Server, count: int) -> None:
    client = await KeepAliveClient.connect(server.port)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            reply = await client.ask(request("GET", "/api/stats", close=False))
            assert reply is not None
            if reply.body["waiting"] == count:
                break
            await asyncio.sleep(0.01)
    client.close()


def test_a_request_that_outlasts_the_drain_gets_a_repeatable_503(tmp_path: Path, settings: str) -> None:
    with run_server(tmp_path, f"{settings}drain_seconds_max = 0.5") as server, server.connect() as connection:
        connection.sendall(submission("slow")[:-3])
        server.ask("GET", "/healthz")  # by now the server has read the sent part of the other request
        begin = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begin < TIMEOUT_SECONDS
        (reply,) = parse_responses(receive_all(connection))
        assert (reply.status, reply.code) == (503, "SERVICE_UNAVAILABLE")
        assert reply.headers["retry-after"] == "1"
    with run_server(tmp_path, settings) as server:
        assert server.submit("slow").body["idempotency"]["outcome"] == "created"


def test_an_event_stream_ends_well(server: Server) -> None:
    job_id = server.submit("watched").body["job"]["id"]
    with server.connect() as connection:
        connection.sendall(request("GET", f"/api/jobs/{job_id}/events", close=False))
        received = connection.recv(65_536)
        begin = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begin < TIMEOUT_SECONDS
        received += receive_all(connection)
    assert received.startswith(b"HTTP/1.1 200 ")
    assert received.endswith(b"0\r\n\r\n")


def test_idle_and_half_sent_requests_do_not_hold_it_up(server: Server) -> None:
    idle, half = server.connect(), server.connect()
    with idle, half:
        idle.sendall(request("GET", "/healthz", close=False))
        assert idle.recv(65_536)
        half.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        begin = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begin < TIMEOUT_SECONDS
        assert receive_all(idle) == b""
        assert receive_all(half) == b""


def test_an_interrupt_is_as_good_and_a_second_one_means_at_once(tmp_path: Path, settings: str) -> None:
    with run_server(tmp_path, settings) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(TIMEOUT_SECONDS) == 0
    with run_server(tmp_path, f"{settings}drain_seconds_max = 600") as server, server.connect() as connection:
        connection.sendall(submission("slow")[:-3])
        server.ask("GET", "/healthz")
        server.process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(1)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(TIMEOUT_SECONDS) == 0


def test_it_prints_one_line_when_it_is_ready_and_nothing_else(tmp_path: Path, durable_url: str, settings: str) -> None:
    with run_server(tmp_path, settings) as server:
        assert server.ready_line.startswith(f"onejob serves {redact_password(durable_url)} at http://127.0.0.1:")
        assert server.submit("k").status == 202  # at once
        server.process.send_signal(signal.SIGTERM)
        assert server.process.stdout is not None
        assert server.process.stdout.read() == ""


def serve_fails(folder: Path, *options: str) -> tuple[int, str]:
    done = subprocess.run(
        [*ONEJOB, "serve", *options], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout == ""
    assert done.stderr.startswith("onejob: ")
    assert done.stderr.count("\n") == 1
    return done.returncode, done.stderr


def test_a_port_in_use_is_a_one_line_error(tmp_path: Path, server: Server) -> None:
    code, line = serve_fails(tmp_path, "--port", str(server.port))
    assert code == 4
    assert f"127.0.0.1:{server.port}" in line


def test_an_unusable_store_is_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "no.db").write_bytes(b"this is no database, whatever its name says" * 100)
    code, line = serve_fails(tmp_path, "--port", "0", "--engine", "sqlite:///no.db")
    assert code == 2
    assert "no.db" in line
    assert serve_fails(tmp_path, "--port", "0", "--engine", "mysql://x")[0] == 2


def test_invalid_settings_are_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text('port = "x"')
    code, line = serve_fails(tmp_path, "--config", "wrong.toml")
    assert code == 2
    assert "port in wrong.toml" in line
    assert serve_fails(tmp_path, "--config", "missing.toml")[0] == 2
    assert serve_fails(tmp_path, "--port", "70000")[0] == 2


def test_what_is_configured_holds(tmp_path: Path, settings: str) -> None:
    environ = {"ONEJOB_MISMATCH_STATUS": "422", "ONEJOB_BODY_SECONDS_MAX": "0.5"}
    with run_server(tmp_path, f"{settings}body_bytes_max = 100", environ=environ) as server:
        assert server.submit("k").status == 202
        other = server.submit("k", {"type": "charge", "input": {"amount": 43}})
        assert (other.status, other.code, other.body["status"]) == (422, "CONFLICT", 422)
        large = server.submit("large", {"type": "charge", "input": "x" * 100})
        assert (large.status, large.code) == (413, "PAYLOAD_TOO_LARGE")
        assert "100 bytes" in large.body["detail"]
        (slow,) = server.send_raw(submission("slow")[:-3])
        assert "0.5 s" in slow.body["detail"]


def test_the_password_of_a_store_is_not_shown() -> None:
    assert redact_password("sqlite:///onejob.db") == "sqlite:///onejob.db"
    assert redact_password("postgresql://me:secret@host/db") == "postgresql://me:…@host/db"
    assert redact_password("postgresql://me@a:1,[::1]:2/db?password=secret") == "postgresql://me@a:1,[::1]:2/db"
