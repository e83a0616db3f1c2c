"""The HTTP API and its wire behaviour on record: real processes, real sockets, byte by byte."""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import pytest

from onejob.cli import main
from tests.golden.exchanges import credentials, http1, jobs, pages, quotas, strict, submissions, work
from tests.golden.recording import Recorder, wait_until
from tests.http.test_tls import make_files
from tests.support.raw_http import ONEJOB, Server, receive_all, run_server

from .conftest import FILES, GoldenCheck

PLAIN_SETTINGS = """
callbacks = "any"
drain_seconds_max = 0.5
[providers]
ready = { prepare = "hooks:return_true" }
failing = { prepare = "hooks:fail" }
stuck = { prepare = "hooks:wait" }
"""
HOOKS = """
import asyncio

async def return_true(preparation):
    return True

async def fail(preparation):
    raise ValueError("the bucket is full")

async def wait(preparation):
    await asyncio.Event().wait()
"""
WORKER = """
from onejob.worker import App

app = App()

@app.job("report")
async def report(input):
    return input

app.every("0 3 1 1 *", report, name="nightly")
"""
AUTH_SETTINGS = f"""
auth = true
[jwt]
algorithms = ["HS256"]
secret = "{credentials.SECRET}"
issuer = "issuer"
audience = "onejob"
"""
STRICT_SETTINGS = """
auth = true
body_bytes_max = 600
head_bytes_max = 2000
failed_logins_per_minute = 2
rate_per_second = 0.001
rate_burst = 3
cors_origins = ["https://app.example"]
mismatch_status = 422
hide_payloads = true
metrics_open = true
providers_closed = true
callbacks = "public"
key_owner = "user"
window = "2h"
job_retention = "10d"
log_requests = "none"
preparation_wait_seconds = 0.2
drain_seconds_max = 0.5
"""
TABLES = """
[providers]
stuck = { prepare = "hooks:wait" }
[sites]
here = "fra"
[sites.ledgers.lon]
managers = "http://127.0.0.1:9"
"""
PLAIN_GROUPS: dict[str, Callable[[Recorder], None]] = {
    name.removeprefix("record_"): record
    for module in (jobs, submissions, quotas, work, pages, http1)
    for name, record in vars(module).items()
    if name.startswith("record_")
}


@pytest.fixture(scope="module")
def plain_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("plain")
    (folder / "hooks.py").write_text(HOOKS)
    with run_server(folder, PLAIN_SETTINGS, environ=environ()) as server:
        yield server


@pytest.fixture(scope="module")
def auth_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    folder = tmp_path_factory.mktemp("auth")
    root = create_admin(folder)
    with run_server(folder, AUTH_SETTINGS, environ=environ()) as server:
        yield server, root


def environ() -> dict[str, str]:
    """That of the tests without settings of onejob; a duplicate of a key in progress does not wait."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ONEJOB_", "IDEMPOTENCY_"))}
    return kept | {"IDEMPOTENCY_PENDING_WAIT_TIMEOUT": "0"}


def create_admin(folder: Path) -> str:
    """The first API key is created with the command, where the store is."""
    return str(json.loads(run_locally(folder, "apikey", "create", "root", "--role", "admin", "--json"))["secret"])


def run_locally(folder: Path, *words: str) -> str:
    """What a command prints that works on the store in this folder. It runs in this process, since that is fast."""
    printed = StringIO()
    with redirect_stdout(printed), patch.dict(os.environ, environ(), clear=True):
        assert main([*words, "--engine", f"sqlite:///{folder / 'onejob.db'}"]) == 0
    return printed.getvalue()


@pytest.mark.parametrize("group", PLAIN_GROUPS)
def test_a_server_without_authentication(plain_server: Server, golden: GoldenCheck, group: str) -> None:
    assert plain_server.ask("DELETE", "/api/tenants/default").status == 200
    api = Recorder(plain_server.connect)
    PLAIN_GROUPS[group](api)
    api.close()
    golden(f"http/{group}.txt", api.text)


@pytest.mark.parametrize("group", ["api_keys", "tokens", "sessions"])
def test_a_server_with_authentication(auth_server: tuple[Server, str], golden: GoldenCheck, group: str) -> None:
    server, root = auth_server
    api = Recorder(server.connect)
    if group == "tokens":
        credentials.record_tokens(api)
    else:
        getattr(credentials, f"record_{group}")(api, root)
    api.close()
    golden(f"http/{group}.txt", api.text)


def test_a_server_with_tls_and_strict_settings(tmp_path: Path, golden: GoldenCheck) -> None:
    root = create_admin(tmp_path)
    (tmp_path / "hooks.py").write_text(HOOKS)
    files = make_files(tmp_path / "tls")
    context = ssl.create_default_context(cafile=str(files.cert))
    with run_server(tmp_path, STRICT_SETTINGS + files.settings + TABLES, environ=environ()) as server:

        def connect() -> ssl.SSLSocket:
            return context.wrap_socket(server.connect(), server_hostname="127.0.0.1")

        api = Recorder(connect)
        strict.record_strict_server(api, root)
        record_handshakes(api, server, context)
        api.close()
    golden("http/strict_tls.txt", api.text)


def record_handshakes(api: Recorder, server: Server, context: ssl.SSLContext) -> None:
    for version in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2):
        context.minimum_version = context.maximum_version = version
        with context.wrap_socket(server.connect(), server_hostname="127.0.0.1") as connection:
            api.note(f"{connection.version()} is spoken, and ALPN agrees on {connection.selected_alpn_protocol()}")
    with server.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        api.note(f"plain HTTP is answered with {receive_all(connection).count(b'HTTP/')} responses")


def test_a_worker_that_shows_its_metrics(plain_server: Server, golden: GoldenCheck) -> None:
    folder = plain_server.log.parent
    assert plain_server.ask("DELETE", "/api/tenants/default").status == 200
    (folder / "reports.py").write_text(WORKER)
    command = [*ONEJOB, "worker", "reports:app", "--metrics", "0", "--engine", "sqlite:///onejob.db"]
    with subprocess.Popen(command, cwd=folder, env=environ(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        found = re.search(r"metrics at http://127\.0\.0\.1:([0-9]+)/", ready)
        assert found
        port = int(found[1])
        api = Recorder(lambda: socket.create_connection(("127.0.0.1", port), timeout=120))
        record_metrics_server(api, ready)
        record_worker(api, plain_server)
        process.send_signal(signal.SIGTERM)
        api.note_output(process.stdout.read(), f"exit code {process.wait(60)}")
    golden("http/worker.txt", api.text)


def record_metrics_server(api: Recorder, ready: str) -> None:
    api.note_output(ready)
    for title, data in {
        "the metrics": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "the metrics, in HTTP/1.0 and with a query": b"GET /metrics?name=x HTTP/1.0\r\n\r\n",
        "health": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n",
        "another path": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "another method": b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}",
        "HEAD": b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "nonsense": b"hello\r\n\r\n",
        "a head that is too long": b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 9000 + b"\r\n\r\n",
        "two requests at once": b"GET /healthz HTTP/1.1\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n",
    }.items():
        api.send(title, data)


def record_worker(api: Recorder, server: Server) -> None:
    """What the service shows of a worker and its schedule."""
    service = Recorder(server.connect, masks=api.masks)
    wait_until(lambda: bool(service.ask_unrecorded("GET /api/workers")["workers"]))
    wait_until(lambda: bool(service.ask_unrecorded("GET /api/schedules")["schedules"]))
    service.ask("the workers", "GET /api/workers")
    service.ask("the schedules", "GET /api/schedules")
    service.ask("pause a schedule", "POST /api/schedules/nightly/pause", "Idempotency-Key: p")
    service.ask("pause it again", "POST /api/schedules/nightly/pause", "Idempotency-Key: p")
    service.ask("resume it", "POST /api/schedules/nightly/resume")
    service.ask("with a body", "POST /api/schedules/nightly/resume", body={"now": True})
    service.close()
    api.add(service)


def test_every_operation_of_the_api_is_on_record(plain_server: Server) -> None:
    recorded = {
        tuple(line[2:].split(" ")[:2])
        for file in (FILES / "http").glob("*.txt")
        for line in file.read_text().splitlines()
        if re.match(r"> [A-Z]+ /\S* HTTP/1\.1$", line)
    }
    for path, operations in plain_server.ask("GET", "/openapi.json").body["paths"].items():
        pattern = re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)))
        for method in operations.keys() & {"get", "put", "post", "delete"}:
            found = [
                target
                for verb, target in recorded
                if verb == method.upper() and pattern.fullmatch(target.split("?")[0])
            ]
            assert found, f"{method.upper()} {path} is not on record"
