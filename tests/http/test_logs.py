"""The log: what it says about requests, and that it contains no keys, payloads or credentials."""

import asyncio
import json
import logging
import subprocess
from pathlib import Path
from typing import Any

import pytest

import onejob
from onejob.clock import FakeClock
from onejob.core.credentials import Permission
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.http.request import Request
from onejob.http.responses import Response
from onejob.http.routing import Route
from onejob.http.serve import observer
from onejob.logs import BUFFER_BYTES_MAX, Log, LogHandler, log_loop_exception, redacted_traceback
from tests.support.raw_http import ONEJOB, Server, engine_line, run_server

KEY = "canary-key-4711"
PAYLOAD = "canary-payload-0815"
SECRET = "canary-credential-2342"
SUBMISSION = {"type": "charge", "input": {"card": PAYLOAD}, "labels": {"note": PAYLOAD}}


def create_api_key(*where: str) -> str:
    command = [*ONEJOB, "apikey", "create", "ci", "--role", "operator", "--role", "metrics", "--json", *where]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return str(json.loads(output)["secret"])


def send_every_kind_of_request(server: Server, credential: str) -> None:
    """Cause every kind of response, with a canary in every part of the request."""
    known = {"authorization": f"Bearer {credential}"}
    job_id = server.submit(KEY, SUBMISSION, **known).body["job"]["id"]
    assert server.submit(KEY, SUBMISSION, **known).headers["idempotent-replayed"] == "true"
    assert server.submit(KEY, {"type": "charge", "input": PAYLOAD}, **known).status == 409
    assert server.submit(KEY, {"type": PAYLOAD * 100}, **known).status == 400
    assert server.submit(KEY, PAYLOAD.encode(), **known).status == 400
    assert server.submit(f'"{KEY}', SUBMISSION, **known).status == 400
    assert server.submit(KEY, SUBMISSION, authorization=f"Bearer {SECRET}").status == 401
    assert server.submit(KEY, SUBMISSION, x_api_key=SECRET).status == 401
    assert server.ask("GET", f"/api/keys/{KEY}?scope=charge", **known).status == 200
    assert server.ask("GET", f"/api/jobs/{job_id}", **known).status == 200
    assert server.ask("GET", f"/api/jobs/{KEY}", **known).status == 400
    assert server.ask("GET", f"/{KEY}/{PAYLOAD}", **known).status == 404
    assert server.ask("GET", f"/api/jobs?type={PAYLOAD}", **known).status == 200
    assert server.send_raw(f"GET /{KEY} HTTP/9.9\r\nX: {SECRET}\r\n\r\n".encode())[0].status == 400
    assert server.ask("DELETE", f"/api/keys/{KEY}?scope=charge", **known).status == 200


@pytest.fixture(scope="module", params=["text", "json"])
def log_output(
    request: pytest.FixtureRequest, shared_url: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The output of a server for these requests, of a tenant that has no jobs yet."""
    folder = tmp_path_factory.mktemp("logs")
    credential = create_api_key("--engine", shared_url, "--tenant", f"{request.param}-{folder.name}")
    asked = f'{engine_line(shared_url)}auth = true\nlog_requests = "all"\nlog_format = "{request.param}"'
    with run_server(folder, asked) as server:
        send_every_kind_of_request(server, credential)
        metrics = server.ask("GET", "/metrics", authorization=f"Bearer {credential}").content.decode()
        assert server.stop() == 0
    return {
        "form": request.param,
        "engine": shared_url.partition(":")[0],
        "log": server.log.read_text(),
        "metrics": metrics,
        "secret": credential,
    }


@pytest.mark.parametrize("where", ["log", "metrics"])
def test_no_key_payload_or_credential_is_logged(log_output: dict[str, str], where: str) -> None:
    for canary in (KEY, PAYLOAD, SECRET, log_output["secret"], log_output["secret"].rpartition(".")[2]):
        assert canary not in log_output[where]
    assert len(log_output[where]) > 500


def test_each_request_has_a_line(log_output: dict[str, str]) -> None:
    # What a failover may lose is logged at the start, in the format of all lines.
    lines = [
        line for line in log_output["log"].splitlines() if "audit" not in line and "durability warning" not in line
    ]
    assert ("durability warning: durability is disk" in log_output["log"]) == (log_output["engine"] == "postgresql")
    if log_output["form"] == "json":
        found = [json.loads(line) for line in lines]
        assert all(set(line) == {"at", "level", "requestId", "method", "route", "status", "ms", "outcome"}
                   for line in found)  # fmt: skip
        logged = {(line["method"], line["route"], line["status"], line["outcome"]) for line in found}
        assert len({line["requestId"] for line in found}) == len(found)
    else:
        logged = {(words[3], words[4], int(words[2]), words[5]) for words in (line.split() for line in lines)}
    assert logged >= {
        ("POST", "/api/jobs", 202, "created"),
        ("POST", "/api/jobs", 202, "replayed"),
        ("POST", "/api/jobs", 409, "conflict"),
        ("POST", "/api/jobs", 400, "validation_error"),
        ("POST", "/api/jobs", 401, "unauthorized"),
        ("GET", "/api/keys/{key}", 200, "ok"),
        ("GET", "/api/jobs/{id}", 200, "ok"),
        ("GET", "-", 404, "not_found"),
        ("-", "-", 400, "bad_request"),
        ("GET", "/metrics", 200, "ok"),
    }
    assert len(lines) == 16


async def test_an_unexpected_error_is_logged_by_place_and_never_by_message(url: str) -> None:
    lines: list[bytes] = []
    log = Log("text", write=lines.append)

    async def broken(request: Request) -> Response:
        body = await request.body()
        try:
            raise KeyError(KEY)
        except KeyError as error:
            raise ValueError(body.decode()) from error

    route = Route("POST", "/broken", broken, Permission.SUBMIT, "Fails")
    handler = LogHandler(log)
    logging.getLogger("onejob.http").addHandler(handler)
    try:
        async with onejob.open(url) as ledger:
            app = HttpApp(ledger, extra_routes=(route,), observe=observer(ServiceConfig(log_requests="all"), log))
            assert await call_app(app, "/broken", PAYLOAD.encode()) == 500
    finally:
        logging.getLogger("onejob.http").removeHandler(handler)
        log.flush()
    text = b"".join(lines).decode()
    assert "ValueError at " in text
    assert "after KeyError at " in text
    assert "500 POST /broken internal_error" in text
    assert KEY not in text
    assert PAYLOAD not in text


async def call_app(app: HttpApp, path: str, body: bytes) -> int:
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        statuses.append(message.get("status", 0))

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"idempotency-key", KEY.encode())],
    }
    await app(scope, receive, send)
    return statuses[0]


async def test_messages_of_the_loop_and_of_libraries_are_scrubbed_too() -> None:
    lines: list[bytes] = []
    handler = LogHandler(Log("json", write=lines.append, clock=FakeClock()))
    logger = logging.getLogger("onejob.http")
    logger.addHandler(handler)
    try:
        future = asyncio.get_running_loop().create_future()
        future.set_result(PAYLOAD)
        log_loop_exception(
            asyncio.get_running_loop(),
            {"message": "never retrieved", "exception": ValueError(KEY), "future": future},
        )
        try:
            raise ValueError(KEY)
        except ValueError:
            logger.exception("something failed\nas it may")
    finally:
        logger.removeHandler(handler)
    first, second = (json.loads(line) for line in lines)
    assert first["message"] == "never retrieved: ValueError at unknown place"
    assert second["message"].startswith("something failed\nas it may: ValueError at tests.http.test_logs:")
    assert first["at"] == "2023-11-14T22:13:20.000+00:00"


def test_a_traceback_summary_is_bounded() -> None:
    def deeper(left: int) -> None:
        if left:
            deeper(left - 1)
        raise ValueError(KEY)

    error: BaseException = ValueError()
    for _ in range(100):
        try:
            try:
                deeper(100)
            finally:
                pass
        except ValueError as caught:
            caught.__cause__ = error
            error = caught
    assert len(redacted_traceback(error)) < 4000
    assert KEY not in redacted_traceback(error)


async def test_lines_are_buffered_and_flushed_soon() -> None:
    written: list[bytes] = []
    log = Log("text", write=written.append)
    log.write_refusal("first", 400)
    assert not written
    async with asyncio.timeout(10):
        while not written:
            await asyncio.sleep(0.01)
    while len(written) == 1:
        log.write_refusal("x" * 100, 431)
    assert len(written[1]) > BUFFER_BYTES_MAX
    log.write_refusal("last", 400)
    log.flush()
    assert written[2].count(b"\n") == 1


async def test_a_log_that_nobody_reads_stops_nothing() -> None:
    def broken(data: bytes) -> None:
        raise BrokenPipeError

    log = Log("text", write=broken)
    log.write_refusal("x", 400)
    log.flush()
    log.write_message("error", "x")


def test_by_default_only_what_failed_has_a_line(tmp_path: Path, settings: str) -> None:
    with run_server(tmp_path, settings) as server:
        assert server.submit(KEY, SUBMISSION).status == 202
        assert server.submit(KEY, b"{").status == 400
        assert server.stop() == 0
    (line,) = (one for one in server.log.read_text().splitlines() if "durability warning" not in one)
    assert line.split()[2:6] == ["400", "POST", "/api/jobs", "bad_request"]


def test_no_request_has_a_line_where_none_is_wanted(tmp_path: Path) -> None:
    with run_server(tmp_path, 'log_requests = "none"') as server:
        assert server.submit(KEY, b"{").status == 400
        assert server.send_raw(b"GET / HTTP/9.9\r\n\r\n")[0].status == 400
        assert server.stop() == 0
    assert server.log.read_text() == ""
