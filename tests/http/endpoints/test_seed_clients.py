"""The client programs of the seed, unchanged, against a real server; only what they leave open is filled in.

Some of them have the fixed address localhost:8001; then the resolver of this process is patched to lead to the server
under test.
"""

import ast
import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.support.raw_http import Server, run_server

from .cloud_service import wait_until

CLIENTS = Path(__file__).parent / "seed_clients"
UPLOADS = """
import asyncio
from pathlib import Path


async def upload(preparation):
    Path("started").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.01)
"""

UPLOADING = '[providers.replicate]\nprepare = "uploads:upload"\n'

needs_shell = pytest.mark.skipif(
    not all(map(shutil.which, ("bash", "curl", "jq"))),
    reason="the shell clients need bash, curl and jq on this machine",
)


class QuotaExceededError(Exception):
    pass


class TransientError(Exception):
    pass


class MaxRetriesExceeded(Exception):
    pass


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory, shared_settings: str) -> Iterator[Server]:
    with run_server(tmp_path_factory.mktemp("seeds"), shared_settings) as server:
        yield server


@pytest.fixture
def server(shared_server: Server) -> Server:
    """A server with an empty store."""
    assert shared_server.ask("DELETE", "/api/tenants/default").status == 200
    return shared_server


class LossyProxy:
    """A proxy that drops the responses of the first connections."""

    def __init__(self, port: int, losses: int) -> None:
        self._port = port
        self._losses = losses
        self.seen = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(60)

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            self.seen += 1
            with caller, socket.create_connection(("127.0.0.1", self._port)) as inner:
                inner.sendall(_message(caller))
                answer = _message(inner)
                if self.seen > self._losses:
                    caller.sendall(answer)


def _message(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65_536)
    headers, _, body = data.partition(b"\r\n\r\n")
    found = re.search(rb"(?i)content-length: *(\d+)", headers)
    while found and len(body) < int(found[1]):
        chunk = connection.recv(65_536)
        body, data = body + chunk, data + chunk
    return data


@pytest.fixture
def lossy_proxy(server: Server) -> Iterator[LossyProxy]:
    proxy = LossyProxy(server.port, losses=1)
    yield proxy
    proxy.close()


def redirect_localhost(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """Resolve localhost:8001 to this port."""
    real = socket.getaddrinfo

    def resolve(host: Any, service: Any, *args: Any, **options: Any) -> Any:
        if (host, service) == ("localhost", 8001):
            return real("127.0.0.1", port, *args, **options)
        return real(host, service, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def run_printed_program(name: str) -> dict[str, Any]:
    """The names that a printed program defines; this module supplies the exceptions that it leaves open."""
    names: dict[str, Any] = {
        "__name__": __name__,  # dataclasses look their module up
        **{one.__name__: one for one in (QuotaExceededError, TransientError, MaxRetriesExceeded)},
    }
    exec(compile((CLIENTS / name).read_text(), name, "exec"), names)
    return names


def set_limits(server: Server, **limits: object) -> None:
    assert server.ask("PUT", "/api/quotas/local", limits).status == 200


def jobs(server: Server) -> list[Any]:
    found: list[Any] = server.ask("GET", "/api/jobs").body["jobs"]
    return found


class TestRequests:
    def test_it_submits(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        redirect_localhost(monkeypatch, server.port)
        reply = run_printed_program("with_requests.py")["submit_job_with_retry"]("flux-lora")
        (job,) = jobs(server)
        assert (reply["job_id"], job["type"]) == (job["id"], "cloud.replicate")

    def test_a_lost_response_is_retried_and_creates_no_second_job(
        self,
        server: Server,
        lossy_proxy: LossyProxy,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        redirect_localhost(monkeypatch, lossy_proxy.port)
        reply = run_printed_program("with_requests.py")["submit_job_with_retry"]("flux-lora")
        (job,) = jobs(server)
        assert (reply["job_id"], reply["idempotent_hit"], lossy_proxy.seen) == (job["id"], True, 2)
        assert f"Retry matched existing job: {job['id']}" in capsys.readouterr().out

    async def test_a_full_quota_is_raised_and_not_retried(
        self, server: Server, lossy_proxy: LossyProxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_limits(server, maxConcurrent=5)
        lossy_proxy._losses = 0
        redirect_localhost(monkeypatch, lossy_proxy.port)
        submit = run_printed_program("with_requests.py")["submit_job_with_retry"]
        for _ in range(5):
            await asyncio.to_thread(submit, "flux-lora")
        with pytest.raises(QuotaExceededError, match="Quota exceeded: Maximum 5 concurrent jobs allowed"):
            await asyncio.to_thread(submit, "flux-lora")
        assert (lossy_proxy.seen, len(jobs(server))) == (6, 5)


async def test_responses_are_handled_as_printed(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    handle = run_printed_program("handle_response.py")["handle_submission_response"]

    def submit(key: str, **members: Any) -> Any:
        body = {"config_name_to_load": "c", "idempotency_key": key, **members}
        return server.ask("POST", "/api/cloud/jobs/submit?provider=replicate", body).body

    warning = {"amount": 10, "period": "day", "action": "warn"}
    set_limits(server, maxConcurrent=2, costLimit=warning)
    handle(submit("a", estimated_cost=9))
    assert "Cost warning: Cost limit" in capsys.readouterr().out
    handle(submit("b"))
    assert "Warning: 2 of 2 concurrent jobs" in capsys.readouterr().out
    handle(submit("c"))
    assert "Cannot submit: Quota exceeded" in capsys.readouterr().out
    set_limits(server, costLimit=warning | {"action": "block"})
    handle(submit("d", estimated_cost=2))
    assert "Spending limit reached: Cost limit" in capsys.readouterr().out
    with pytest.raises(TransientError):
        handle(submit("a", config_name_to_load="other"))


class TestAiohttp:
    async def test_it_submits_and_matches(self, server: Server) -> None:
        submit = run_printed_program("with_aiohttp.py")["submit_cloud_job"]
        url = f"http://127.0.0.1:{server.port}"
        first = await submit(url, "flux", idempotency_key="batch", tracker_run_name="exp-1")
        again = await submit(url, "flux", idempotency_key="batch", tracker_run_name="exp-2")
        assert (first.success, first.was_duplicate) == (True, False)
        assert (again.job_id, again.was_duplicate) == (first.job_id, True)

    async def test_its_main_runs(
        self, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        redirect_localhost(monkeypatch, server.port)
        main = run_printed_program("with_aiohttp.py")["main"]
        await main()
        await main()
        (job,) = jobs(server)
        assert capsys.readouterr().out.splitlines() == [
            f"Created new job: {job['id']}",
            f"Matched existing job: {job['id']}",
        ]

    async def test_a_lost_response_is_an_error_and_the_same_key_finds_the_job(
        self, server: Server, lossy_proxy: LossyProxy
    ) -> None:
        submit = run_printed_program("with_aiohttp.py")["submit_cloud_job"]
        url = f"http://127.0.0.1:{lossy_proxy.port}"
        # aiohttp retries idempotent methods only, so not this POST.
        first = await submit(url, "flux", idempotency_key="batch")
        assert "Connection error" in first.error
        again = await submit(url, "flux", idempotency_key="batch")
        (job,) = jobs(server)
        assert (again.job_id, again.was_duplicate) == (job["id"], True)

    async def test_a_full_quota_is_reported(self, server: Server) -> None:
        set_limits(server, maxConcurrent=0)
        submit = run_printed_program("with_aiohttp.py")["submit_cloud_job"]
        reply = await submit(f"http://127.0.0.1:{server.port}", "flux")
        assert not reply.success
        assert "Quota exceeded" in reply.error

    async def test_it_waits_for_an_upload_and_a_second_one_does_not(self, tmp_path: Path, settings: str) -> None:
        (tmp_path / "uploads.py").write_text(UPLOADS)
        with run_server(tmp_path, settings + UPLOADING) as server:
            submit = run_printed_program("with_aiohttp.py")["submit_cloud_job"]
            url = f"http://127.0.0.1:{server.port}"
            first = asyncio.create_task(submit(url, "flux", idempotency_key="batch"))
            await wait_until((tmp_path / "started").exists)
            again = await submit(url, "flux", idempotency_key="batch")
            assert (again.success, again.was_duplicate) == (True, True)
            assert not first.done()
            (tmp_path / "go").touch()
            assert (await first).job_id == again.job_id


def run_shell(text: str, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        ["bash", "-c", text, "bash", *arguments],
        env={**environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def run_ci_script(port: int, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    text = (CLIENTS / "ci.sh").read_text()
    return run_shell(text, *arguments, SIMPLETUNER_URL=f"http://127.0.0.1:{port}", **variables)


GITHUB = {"GITHUB_SHA": "abc123", "GITHUB_REPOSITORY": "acme/models"}


@needs_shell
class TestShell:
    def test_it_submits_and_a_rerun_matches(self, server: Server) -> None:
        first, again = run_ci_script(server.port, "flux", **GITHUB), run_ci_script(server.port, "flux", **GITHUB)
        (job,) = jobs(server)
        assert job["key"] == "github-acme/models-abc123"
        assert (first.returncode, again.returncode) == (0, 0)
        assert f"Created new job: {job['id']}" in first.stdout
        assert f"Matched existing job: {job['id']}" in again.stdout
        assert f"JOB_ID={job['id']}" in again.stdout

    def test_a_lost_response_is_retried_and_creates_no_second_job(
        self, server: Server, lossy_proxy: LossyProxy
    ) -> None:
        ran = run_ci_script(lossy_proxy.port, "flux", **GITHUB)
        (job,) = jobs(server)
        assert "Request failed, retrying in 2s" in ran.stdout
        assert f"Matched existing job: {job['id']}" in ran.stdout
        assert ran.returncode == 0

    async def test_a_full_quota_is_not_retried(self, server: Server) -> None:
        set_limits(server, maxConcurrent=5)
        for n in range(5):
            assert run_ci_script(server.port, "flux", CI_COMMIT_SHA=str(n), CI_PROJECT_PATH="p").returncode == 0
        ran = run_ci_script(server.port, "flux", **GITHUB)
        assert ran.returncode == 1
        assert "Quota exceeded: Quota exceeded: Maximum 5 concurrent jobs allowed" in ran.stdout
        assert "Attempt 2" not in ran.stdout
        # A duplicate of an accepted submission gets its job although the quota is full.
        again = run_ci_script(server.port, "flux", CI_COMMIT_SHA="0", CI_PROJECT_PATH="p")
        assert "Matched existing job" in again.stdout

    def test_the_documented_command_submits(self, server: Server) -> None:
        # The address is fixed in the text, so curl is redirected.
        curl_function = f'curl() {{ command curl --connect-to localhost:8001:127.0.0.1:{server.port} -s "$@"; }}\n'
        ran = run_shell(curl_function + (CLIENTS / "submit.sh").read_text())
        (job,) = jobs(server)
        assert job["id"] in ran.stdout
        assert job["key"] == "ci-build-abc123"


def run_github_step(number: int, folder: Path, port: int) -> "subprocess.CompletedProcess[str]":
    """Run the step as GitHub does: expressions are replaced before the shell sees the text."""
    text = (CLIENTS / "actions.yml").read_text()
    step = textwrap.dedent(text.split("run: |\n", 1)[1])
    expressions = {
        "github.repository": "acme/models",
        "github.sha": "abc123",
        "github.run_number": str(number),
    }
    for name, value in expressions.items():
        step = step.replace("${{ " + name + " }}", value)
    assert "${{" not in step
    return run_shell(
        f"set -eo pipefail\n{step}",
        SIMPLETUNER_URL=f"http://127.0.0.1:{port}",
        GITHUB_OUTPUT=str(folder / "output"),
    )


@needs_shell
class TestActions:
    def test_a_rerun_under_another_number_matches(self, server: Server, tmp_path: Path) -> None:
        first, again = run_github_step(7, tmp_path, server.port), run_github_step(8, tmp_path, server.port)
        (job,) = jobs(server)
        assert (first.returncode, again.returncode, first.stdout) == (0, 0, "")
        assert "::notice::Matched existing job from previous run" in again.stdout
        assert (tmp_path / "output").read_text() == f"job_id={job['id']}\n" * 2
        assert job["labels"] == {"tracker_run_name": "gh-7"}

    async def test_a_full_quota_is_an_error_of_the_step(self, server: Server, tmp_path: Path) -> None:
        set_limits(server, maxConcurrent=0)
        ran = run_github_step(7, tmp_path, server.port)
        assert ran.returncode == 1
        assert "::error::Job submission failed: Quota exceeded" in ran.stdout

    def test_an_unreachable_server_is_an_error_of_the_step(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        ran = run_github_step(7, tmp_path, port)
        assert (ran.returncode, "Request failed" in ran.stdout) == (1, True)


def printed_queries(name: str) -> list[str]:
    text = re.sub(r"--.*", "", (CLIENTS / name).read_text())
    return [one.strip() for one in text.split(";") if one.strip()]


async def test_the_printed_queries_work_during_an_upload_and_after(
    tmp_path: Path, durable_url: str, settings: str
) -> None:
    read = partial(query_rows, durable_url)
    (tmp_path / "uploads.py").write_text(UPLOADS)
    with run_server(tmp_path, settings + UPLOADING) as server:
        set_limits(server, maxConcurrent=5)
        submit = run_printed_program("with_aiohttp.py")["submit_cloud_job"]
        task = asyncio.create_task(submit(f"http://127.0.0.1:{server.port}", "c", "your-key-here"))
        await wait_until((tmp_path / "started").exists)
        one_key, keys = printed_queries("keys.sql")
        active, slots = printed_queries("reservations.sql")
        assert [row[:1] for row in await read(one_key)] == [("your-key-here",)]
        assert len(await read(keys)) == 1
        # On PostgreSQL `user_id` is a number, as the seed has it, where the name of the user is one.
        user_id = None if durable_url.startswith("postgresql") else "local"
        assert [row[1] for row in await read(active)] == [user_id]
        assert await read(slots) == [(user_id, 1)]
        (tmp_path / "go").touch()
        job_id = (await task).job_id
        assert [row[:2] for row in await read(one_key)] == [("your-key-here", job_id)]
        assert (await read(active), await read(slots)) == ([], [])


async def query_rows(url: str, query: str) -> list[Any]:
    if url.startswith("postgresql"):
        connection = await asyncpg.connect(url)
        found = await connection.fetch(query.replace("datetime('now')", "now()"))
        await connection.close()
        return [tuple(row) for row in found]
    return await asyncio.to_thread(_query_sqlite_file, url.removeprefix("sqlite:///"), query)


def _query_sqlite_file(file: str, query: str) -> list[Any]:
    """Query in another process: a second SQLite library in this process would drop the locks of the first."""
    opened = f"sqlite3.connect('file:{file}?mode=ro', uri=True)"
    script = f"import sqlite3; print({opened}.execute({query!r}).fetchall())"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    found: list[Any] = ast.literal_eval(ran.stdout)
    return found
