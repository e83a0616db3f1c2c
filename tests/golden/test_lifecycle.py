"""The begin and the end of server processes on record: what they print and log, how they drain, their exit codes."""

import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.golden.exchanges.credentials import bearer
from tests.golden.recording import Pending, Recorder, encode_request, read_response, wait_until
from tests.golden.test_http_exchanges import HOOKS, create_admin, environ
from tests.support.raw_http import ONEJOB, Server, run_server

from .conftest import GoldenCheck

JOB = {"type": "t", "input": 1}
HALF_SENT = (
    b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: slow\r\nContent-Length: 13\r\n\r\n" + b'{"type"'
)
REST = b': "t"}'
DRAIN_SETTINGS = """
drain_seconds_max = 3
[providers]
stuck = { prepare = "hooks:wait" }
"""


def test_what_a_server_logs_as_text(tmp_path: Path, golden: GoldenCheck) -> None:
    with run_server(tmp_path, 'engine = "memory://"\nlog_requests = "all"\n', environ=environ()) as server:
        api = Recorder(server.connect)
        api.note_output(server.ready_line)
        api.ask("a job", "POST /api/jobs", "Idempotency-Key: k", body=JOB)
        api.ask("a hit", "POST /api/jobs", "Idempotency-Key: k", body=JOB)
        api.ask("a conflict", "POST /api/jobs", "Idempotency-Key: k", body=JOB | {"input": 2})
        api.ask("the durability of a ledger in memory", "GET /readyz")
        api.ask("a secret in a path stays out of the log", "GET /api/keys/secret?scope=t")
        api.ask("no such path", "GET /secret")
        api.send("not HTTP", b"hello\r\n\r\n")
        api.close()
        code = server.stop()
    api.note_output(normalise_log(server.log.read_text()), f"exit code {code}")
    golden("http/log_text.txt", api.text)


def test_what_a_server_logs_as_json(tmp_path: Path, golden: GoldenCheck) -> None:
    root = create_admin(tmp_path)
    settings = 'auth = true\nlog_format = "json"\n[jwt]\nalgorithms = ["HS256"]\nsecret = "' + "s" * 32 + '"\n'
    (tmp_path / "onejob.toml").touch()
    (tmp_path / "onejob.toml").chmod(0o644)  # everybody may read the secret in it
    with run_server(tmp_path, settings, environ=environ()) as server:
        api = Recorder(server.connect, bearer(root))
        api.note_output(server.ready_line)
        key = api.ask("an audited change", "POST /api/api-keys", body={"name": "ci", "roles": ["submitter"]})["apiKey"]
        api.ask("another one", f"POST /api/api-keys/{key['id']}/revoke")
        api.ask("a job leaves no line", "POST /api/jobs", "Idempotency-Key: k", body=JOB)
        api.ask("a failed request", "POST /api/jobs", body={})
        api.close()
        server.process.send_signal(signal.SIGINT)
        code = server.process.wait(60)
    api.note_output(normalise_log(server.log.read_text().replace(str(tmp_path), "<folder>")), f"exit code {code}")
    golden("http/log_json.txt", api.text)


def test_a_server_that_drains(tmp_path: Path, golden: GoldenCheck) -> None:
    with run_server(tmp_path, environ=environ()) as server, ExitStack() as stack:
        api = Recorder(server.connect)
        job = api.ask("a job", "POST /api/jobs", body=JOB)["job"]["id"]
        begun: dict[str, Pending] = {}
        for title, request in {
            "a body that is half sent": HALF_SENT,
            "a wait for the end of the job": encode_request(f"GET /api/jobs/{job}?wait=30"),
            "a stream of events": encode_request(f"GET /api/jobs/{job}/events"),
            "a claim that waits": encode_request("POST /api/work/claim", (), {"types": ["x"], "wait": 30}),
            "a head that is half sent": b"GET /healthz HTTP/1.1\r\nX: ",
        }.items():
            api.note_title(title)
            begun[title] = stack.enter_context(api.open(request))
        api.ask("by now the server has read them, and this connection is idle", "GET /healthz")
        stream = begun["a stream of events"].connection
        wait_until(lambda: b"submitted" in stream.recv(65_536, socket.MSG_PEEK))
        server.process.send_signal(signal.SIGTERM)
        api.note("SIGTERM")
        wait_until(lambda: is_refused(server))
        api.note("new connections are refused")
        api.note_request(REST)
        begun["a body that is half sent"].connection.sendall(REST)
        for title, pending in begun.items():
            note_end(api, f"the end of {title}", pending)
        api.close()
        api.note_output(f"exit code {server.process.wait(60)}", normalise_log(server.log.read_text()))
    golden("http/drain.txt", api.text)


def test_requests_that_outlast_the_drain(tmp_path: Path, golden: GoldenCheck) -> None:
    (tmp_path / "hooks.py").write_text(HOOKS)
    waiting = environ() | {"IDEMPOTENCY_PENDING_WAIT_TIMEOUT": "30"}
    with run_server(tmp_path, DRAIN_SETTINGS, environ=waiting) as server, ExitStack() as stack:
        api = Recorder(server.connect)
        upload = {"config": 1, "idempotency_key": "k"}
        begun = {
            "an upload": stack.enter_context(
                api.begin("an upload", "POST /api/cloud/jobs/submit?provider=stuck", body=upload)
            )
        }
        wait_until(lambda: bool(api.ask_unrecorded("GET /api/jobs?state=preparing")["jobs"]))
        title = "a submission with its key, which waits for it"
        same = {"type": "cloud.stuck", "input": {"config": 1}}
        begun[title] = stack.enter_context(api.begin(title, "POST /api/jobs", "Idempotency-Key: k", body=same))
        wait_until(lambda: api.ask_unrecorded("GET /api/stats")["waiting"] == 1)
        api.note_title("a body that never ends")
        begun["a body that never ends"] = stack.enter_context(api.open(HALF_SENT))
        api.ask("by now the server has read them", "GET /healthz")
        server.process.send_signal(signal.SIGTERM)
        api.note("SIGTERM")
        for title, pending in begun.items():
            note_end(api, f"the end of {title}", pending)
        api.close()
        api.note_output(f"exit code {server.process.wait(60)}", normalise_log(server.log.read_text()))
    golden("http/drain_timeout.txt", api.text)


def test_a_server_of_two_processes(tmp_path: Path, golden: GoldenCheck) -> None:
    with run_server(tmp_path, "workers = 2\n", environ=environ()) as server:
        api = Recorder(server.connect)
        api.note_output(server.ready_line)
        api.send("a connection", encode_request("GET /healthz", ("Connection: close",)))
        api.ask("a job", "POST /api/jobs", "Idempotency-Key: k", body=JOB)
        api.ask("a hit", "POST /api/jobs", "Idempotency-Key: k", body=JOB)
        api.ask("both processes are counted", "GET /api/stats")
        api.send("a request that is refused is in the log of its process", b"hello\r\n\r\n")
        api.close()
        code = server.stop()
    log = re.sub(r"worker [12]", "worker <number>", normalise_log(server.log.read_text()))
    api.note_output(log, f"exit code {code}")
    golden("http/two_processes.txt", api.text)


def test_starts_that_fail(tmp_path: Path, golden: GoldenCheck) -> None:
    api = Recorder(socket.socket)
    with socket.create_server(("127.0.0.1", 0)) as taken, ExitStack() as stack:
        port = str(taken.getsockname()[1])
        started = {
            line: stack.enter_context(run_command(tmp_path, *line.replace("PORT", port).split(" ")))
            for line in (
                "serve --port PORT",
                "serve --port PORT --json",
                "serve --host 0.0.0.0",
                "serve --tls-cert none.pem --tls-key none.pem",
                "serve --tls-cert none.pem",
                "manager --bind 0.0.0.0:0",
            )
        }
        for line, process in started.items():
            out, err = process.communicate(timeout=120)
            api.note_title(f"onejob {line}")
            api.note_output(out, err, f"exit code {process.returncode}")
    golden("http/failed_starts.txt", api.text.replace(port, "<port>"))


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_what_a_manager_prints(tmp_path: Path, golden: GoldenCheck, options: tuple[str, ...]) -> None:
    api = Recorder(socket.socket)
    with run_command(
        tmp_path, "manager", "--bind", "127.0.0.1:0", "--engine", "sqlite:///onejob.db", *options
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        if options:
            first += "".join(process.stdout.readline() for _ in range(4))
        process.send_signal(signal.SIGTERM)
        api.note_output(first, process.stdout.read(), process.stderr.read(), f"exit code {process.wait(60)}")
    golden(f"http/manager_log{'_json' if options else ''}.txt", api.text)


@contextmanager
def run_command(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [*ONEJOB, *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=folder, env=environ(), text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def note_end(api: Recorder, title: str, pending: Pending) -> None:
    api.note_title(title)
    response = read_response(pending.stream, "GET")
    is_closed = read_response(pending.stream, "GET") is None
    api.note_responses([response] if response is not None else [], is_closed=is_closed)


def is_refused(server: Server) -> bool:
    try:
        server.connect().close()
    except ConnectionRefusedError:
        return True
    return False


def normalise_log(text: str) -> str:
    """Request ids and durations; times and ids that all texts may have are masked elsewhere."""
    text = re.sub(r"\b[0-9.]+ms\b", "<ms>", text)
    text = re.sub(r'"ms":[0-9.e-]+', '"ms":<ms>', text)
    return re.sub(r"\bpid [0-9]+", "pid <pid>", text)
