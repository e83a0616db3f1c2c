"""What servers say about themselves: OpenAPI documents, metrics, the line that says they are ready, commands over HTTP."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.golden.command_line import CommandLineSession, clean_environment, shift_wall_clock
from tests.golden.conftest import GoldenCheck
from tests.support.serve_process import ServeProcess

REPOSITORY = Path(__file__).parents[2]
SHOP = """
import onejob

app = onejob.App()


@app.job("add")
async def add(pair: list[int]) -> int:
    return sum(pair)
"""
AUTHENTICATED = """
auth = true
key_owner = "user"
mismatch_status = 422
rate_per_second = 100
metrics_open = true

[jwt]
algorithms = ["HS256"]
secret = "a-secret-that-two-parties-share-and-nobody-else"
"""
SITES = """
callbacks = "any"
hide_payloads = true
providers_closed = true
cors_origins = ["https://console.example"]

[providers.aws]

[sites]
here = "ams"

[sites.ledgers.fra]
managers = "http://127.0.0.1:1"
gate_key = "ojg_000000000000.nobody"
url = "https://jobs.fra.example"
"""


class Server:
    """A process of `onejob` in a folder; what it prints is kept."""

    def __init__(self, folder: Path, *words: str, clock_seconds: int = 0) -> None:
        self.words = words
        self._log = folder / f"{words[0]}.log"
        command = [sys.executable, "-m", "tests.support.wrong_clock", str(clock_seconds), *words]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("ONEJOB_")}
        environ["PYTHONPATH"] = os.pathsep.join([str(folder), str(REPOSITORY), environ.get("PYTHONPATH", "")])
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.printed = ""

    @property
    def url(self) -> str:
        found = re.findall(r"http://127\.0\.0\.1:\d+", self.printed)
        assert found, self.printed + self._log.read_text()
        return str(found[-1])

    def wait_until_ready(self) -> "Server":
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            self.printed += line
            if line != "{\n" and not line.startswith(" "):
                break
        return self

    def get(self, path: str) -> str:
        with urlopen(self.url + path, timeout=120) as response:
            return str(response.read().decode())

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        self.terminate()
        self._process.communicate(timeout=120)


class Servers(NamedTuple):
    plain: Server
    authenticated: Server
    sites: Server
    manager: Server
    gate: Server
    worker: Server


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Started beside each other, as far as none needs another."""
    folder = tmp_path_factory.mktemp("servers")
    for name, text in (("shop.py", SHOP), ("authenticated.toml", AUTHENTICATED), ("sites.toml", SITES)):
        (folder / name).write_text(text)
    with ExitStack() as stack:

        def start(*words: str) -> Server:
            server = Server(folder, *words)
            stack.callback(server.stop)
            return server

        plain = start("serve", "--port", "0")
        manager = start("manager", "--bind", "127.0.0.1:0", "--engine", "sqlite:///manager.db")
        authenticated = start("serve", "--port", "0", "--config", "authenticated.toml", "--engine", "sqlite:///auth.db")
        sites = start("serve", "--port", "0", "--config", "sites.toml", "--engine", "memory://", "--json")
        plain.wait_until_ready()
        worker = start("worker", "shop:app", "--metrics", "0")
        gate = start("gate", "--manager", manager.wait_until_ready().url, "--port", "0")
        started = Servers(plain, authenticated, sites, manager, gate, worker)
        for server in (authenticated, sites, worker, gate):
            server.wait_until_ready()
        yield started
        for server in started:
            server.terminate()


def test_lines_that_say_that_they_are_ready(servers: Servers, golden: GoldenCheck) -> None:
    records = [f"$ onejob {shlex.join(server.words)}\n{server.printed}" for server in servers]
    golden("cli/ready.txt", re.sub(r"(127\.0\.0\.1:)[1-9]\d*", r"\1<port>", "\n".join(records)))


@pytest.mark.parametrize(
    ("name", "file"), [("plain", "plain"), ("authenticated", "authenticated"), ("sites", "sites"), ("gate", "plain")]
)
def test_openapi_document(name: str, file: str, servers: Servers, golden: GoldenCheck) -> None:
    """A gate describes what a service on a store of its own does."""
    document = json.loads(getattr(servers, name).get("/openapi.json"))
    assert document["info"]["version"] == version("onejob")
    document["info"]["version"] = "<version>"
    golden(f"openapi/{file}.json", json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def test_metrics_of_a_service_and_a_worker(servers: Servers, golden: GoldenCheck) -> None:
    service = ServeProcess(int(servers.plain.url.rpartition(":")[2]))
    for pair in ([1, 2], [1, 2], [3, 4]):
        service.submit("add", pair, key="k")
    made = service.submit("add", [1, 2], key="k").json["job"]["id"]
    assert service.get(f"/api/jobs/{made}?wait=30").status == 200
    deadline = time.monotonic() + 60
    while service.get(f"/api/jobs/{made}").json["job"]["state"] != "success":
        assert time.monotonic() < deadline
    while "onejob_jobs{" not in service.get("/metrics").body.decode():
        assert time.monotonic() < deadline
    golden("metrics/service.txt", families(servers.plain.get("/metrics")))
    golden("metrics/worker.txt", families(servers.worker.get("/metrics")))


def families(text: str) -> str:
    """Name, type, help and labels of each, without values; those of Python and the process are not ours."""
    lines = list[str]()
    for family in sorted(text_string_to_metric_families(text), key=lambda family: family.name):
        lines.append(f"{family.name} ({family.type})")
        if family.name.startswith("onejob"):
            samples = {f"{sample.name}{{{', '.join(sorted(sample.labels))}}}" for sample in family.samples}
            lines += [f"  {text}" for text in (family.documentation, *sorted(samples))]
    return "\n".join([*lines, ""])


def test_commands_against_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], golden: GoldenCheck
) -> None:
    clean_environment(monkeypatch, tmp_path)
    server = Server(tmp_path, "serve", "--port", "0", clock_seconds=shift_wall_clock(monkeypatch)).wait_until_ready()
    try:
        monkeypatch.setenv("ONEJOB_URL", server.url)
        session = CommandLineSession(capfd)
        session.masker.name(server.url, "<server>")
        run_session(session)
    finally:
        server.stop()
    session.run("jobs")
    golden("cli/over_http.txt", session.text)


def test_commands_that_are_not_allowed(
    servers: Servers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    golden: GoldenCheck,
) -> None:
    clean_environment(monkeypatch, tmp_path)
    monkeypatch.setenv("ONEJOB_URL", servers.authenticated.url)
    session = CommandLineSession(capfd)
    session.masker.name(servers.authenticated.url, "<server>")
    session.show("jobs")
    session.run("""
        submit charge --key k --api-key oj_nonsense
        doctor
        doctor --production --json
    """)
    golden("cli/not_allowed.txt", session.text)


def run_session(session: CommandLineSession) -> None:
    session.show("""
        submit charge --key charge-1 --input '{"order": "ORD-1", "amount": 42}' --label shop=eu
        submit charge --key charge-1 --input '{"order": "ORD-1", "amount": 43}' --label shop=eu
    """)
    session.run("""
        submit mail --key later --run-at 2040-06-01T12:00:00Z --ttl 48h
        submit mail --key next --client host1:billing --sequence 1 --scope acme
        submit mail --key gap --client host1:billing --sequence 5 --scope acme
    """)
    session.show("""
        job <id-1>
        jobs --type charge
        explain later --scope mail
        keys --scope mail
        client state host1:billing --scope acme
        quota set 42 --max-concurrent 5 --cost 12.50
        usage --user 42
    """)
    session.run("""
        job <id-1> --input
        job <id-1> --sites
        job 01a1e305-b1fa-7420-b68b-a05f87952eb0 --json
        result <id-1>
        logs <id-1>
        quota show --ceiling
        reservations list
        workers
        types pause mail
        types resume mail --json
        cancel <id-1> --idempotency-key c1
        resolve <id-1> rerun --json
        jobs --type mail --cancel --yes --json
        schedules list --url <server>
        doctor --production
        check <server>/api/jobs --body '{"type": "checked", "input": {"n": 1}}' --id job.id
        check <server>/api/jobs --body '{"type": "checked", "input": {"n": 1}}' --id job.id --only replay --json
        check <server>/api/jobs --body '{"type": "checked", "input": {"n": 1}}' --id job.id --only misuse-status --junit
    """)
