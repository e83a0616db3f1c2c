"""Several processes on one port behave as one service, also when some of them are killed."""

import asyncio
import os
import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.http.test_several_servers import all_job_ids
from tests.support.raw_http import ONEJOB, KeepAliveClient, Server, request, run_server, submission, submitted_job_id

WORKERS = 3
TIMEOUT_SECONDS = 60.0
KILLS = 10


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> str:
    """The engines that support several processes."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return "sqlite:///onejob.db"


@pytest.fixture
def settings(engine: str) -> str:
    return f'workers = {WORKERS}\nengine = "{engine}"\n'


@pytest.fixture(name="server")
def _server(tmp_path: Path, settings: str) -> Iterator[Server]:
    with run_server(tmp_path, settings) as running:
        yield running


def worker_pids(server: Server) -> list[int]:
    pid = server.process.pid
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(true: Callable[[], bool], seconds: float = TIMEOUT_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def scrape(server: Server) -> dict[tuple[str, ...], float]:
    text = server.ask("GET", "/metrics").content.decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if family.type in ("counter", "histogram") or family.name.startswith("onejob")
    }


def created_count(server: Server) -> float:
    return scrape(server)["onejob_submissions_total", "created"]


def test_all_are_ready_when_the_one_line_says_so(server: Server) -> None:
    assert f"(durability: disk, workers: {WORKERS})" in server.ready_line
    assert len(worker_pids(server)) == WORKERS
    assert server.ask("GET", "/readyz").status == 200
    assert scrape(server)["onejob_workers",] == WORKERS
    server.process.send_signal(signal.SIGTERM)
    assert server.process.stdout is not None
    assert server.process.stdout.read() == ""
    assert server.process.wait(TIMEOUT_SECONDS) == 0


async def test_one_key_raced_through_all_workers_makes_one_job(tmp_path: Path, settings: str) -> None:
    with run_server(tmp_path, settings + 'log_requests = "all"\nlog_format = "json"') as server:
        async with asyncio.timeout(60):
            for n in range(3):
                assert len(set(await asyncio.gather(*(submitted_job_id(server, f"one-{n}") for _ in range(200))))) == 1
        assert len(all_job_ids(server)) == 3
        assert created_count(server) == 3
        server.stop()
        served = set(re.findall(r'"route":"/api/jobs".*"worker":(\d)', server.log.read_text()))
    assert served == {"1", "2", "3"}, "the log names the worker, and each had requests"


def test_every_process_reports_the_aggregated_metrics(server: Server) -> None:
    for n in range(30):
        server.submit(f"k{n}")
        server.submit(f"k{n}")
    for _ in range(12):
        found = scrape(server)
        assert found["onejob_submissions_total", "created"] == 30
        assert found["onejob_submissions_total", "replayed"] == 30
        assert found["onejob_http_request_seconds_count", "POST", "/api/jobs", "2xx"] == 60
        stats = server.ask("GET", "/api/stats").body
        assert [stats["outcomes"][word] for word in ("created", "replayed")] == [30, 30]
        assert stats["process"]["outcomes"] == stats["outcomes"]
        assert stats["process"]["queues"]["write"]["commands"] >= 30


async def test_many_concurrent_scrapes_are_answered(server: Server) -> None:
    async def asked(path: str) -> int:
        client = await KeepAliveClient.connect(server.port)
        reply = await client.ask(request("GET", path, close=False))
        client.close()
        return reply.status if reply else 0

    async with asyncio.timeout(60):
        paths = ["/metrics", "/api/stats"] * 100
        assert set(await asyncio.gather(*map(asked, paths))) == {200}


def test_without_the_supervisor_there_are_no_metrics_but_jobs_are_taken(server: Server) -> None:
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        assert server.submit("k").status == 202
        refused = server.ask("GET", "/metrics")
        assert (refused.status, refused.code) == (503, "SERVICE_UNAVAILABLE")
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    wait_until(lambda: server.ask("GET", "/metrics").status == 200)
    assert created_count(server) == 1


def test_what_was_shown_is_never_taken_back_when_workers_die(server: Server) -> None:
    shown: dict[tuple[str, ...], float] = {}
    rng = random.Random(7)
    for n in range(6):
        for m in range(20):
            server.submit(f"k{n}-{m}")
        found = {name: value for name, value in scrape(server).items() if name[0] not in GAUGES}
        assert all(found[name] >= value for name, value in shown.items())
        shown = found
        os.kill(rng.choice(worker_pids(server)), signal.SIGKILL)
    assert created_count(server) >= 120
    assert scrape(server)["onejob_worker_restarts_total",] >= 5


GAUGES = ("onejob_workers", "onejob_waiters", "onejob_preparations", "onejob_gate_entries", "onejob_gate_entries_limit",
          "onejob_queue_commands")  # fmt: skip


def test_a_worker_that_is_asked_to_leave_leaves_its_counts_and_another_comes(server: Server) -> None:
    for n in range(30):
        server.submit(f"k{n}")
    before = set(worker_pids(server))
    for pid in before:
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: len(set(worker_pids(server)) - before) == WORKERS)
    assert created_count(server) == 30
    wait_until(lambda: scrape(server)["onejob_workers",] == WORKERS)
    assert "worker 2 " in server.log.read_text()


class LoadGenerator:
    """Clients that repeat until they get a response."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.answers: dict[str, str] = {}
        self.broken = 0
        self.over = False

    async def call(self, name: int) -> None:
        client = None
        for number in range(100_000):
            if self.over:
                break
            key = f"{name}-{number // 2}"  # each is sent a second time, perhaps to another worker
            reply = None
            for _ in range(200):
                client = client or await KeepAliveClient.connect(self._server.port)  # never refused
                reply = await client.ask(submission(key))
                if reply is not None:
                    break
                self.broken += 1
                client.close()
                client = None
            assert reply is not None
            assert reply.status == 202, reply
            job_id = reply.body["job"]["id"]
            assert self.answers.setdefault(key, job_id) == job_id
            if reply.headers.get("connection") == "close" and client is not None:
                client.close()
                client = None
        if client is not None:
            client.close()


@pytest.mark.timeout(900)
async def test_while_workers_are_killed_every_request_is_answered_in_the_end(server: Server) -> None:
    rng = random.Random(seed := random.randrange(1 << 32))
    print("seed", seed)
    load = LoadGenerator(server)
    async with asyncio.timeout(180), asyncio.TaskGroup() as group:
        for name in range(16):
            group.create_task(load.call(name))
        for _ in range(KILLS):
            before = len(load.answers)
            while len(load.answers) < before + 100:
                await asyncio.sleep(0.01)
            if workers := worker_pids(server):
                os.kill(rng.choice(workers), signal.SIGKILL)
        load.over = True
    assert load.broken, "some requests were lost with the killed workers"
    assert len(set(load.answers.values())) == len(load.answers)
    assert all_job_ids(server) == set(load.answers.values())


async def test_on_sigterm_under_load_nothing_that_was_asked_is_lost(tmp_path: Path, settings: str) -> None:
    answers: dict[str, str] = {}
    asked: list[str] = []

    async def load(name: str) -> None:
        client = await KeepAliveClient.connect(server.port)
        for number in range(100_000):
            asked.append(key := f"{name}-{number}")
            reply = await client.ask(submission(key))
            assert reply is not None
            assert reply.status == 202, reply
            answers[key] = reply.body["job"]["id"]
            if reply.headers.get("connection") == "close":
                break
        client.close()

    with run_server(tmp_path, settings) as server:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for number in range(16):
                group.create_task(load(str(number)))
            while len(answers) < 300:
                await asyncio.sleep(0.01)
            server.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(server.process.wait, TIMEOUT_SECONDS) == 0
    assert set(asked) == set(answers)
    with run_server(tmp_path, settings) as server:
        assert all_job_ids(server) == set(answers.values())


def test_a_killed_supervisor_takes_its_workers_along_and_frees_the_port(tmp_path: Path, settings: str) -> None:
    with run_server(tmp_path, settings) as server:
        workers = worker_pids(server)
        with start_partial_submission(server) as slow:
            server.kill()
            wait_until(lambda: is_port_refused(server.port))
            time.sleep(1.5)  # the workers report every second, to a supervisor that is gone
            slow.sendall(submission("slow")[-3:])
            assert slow.recv(65_536).startswith(b"HTTP/1.1 202 "), "a request in progress is answered"
        wait_until(lambda: not any(map(is_alive, workers)))
        assert "failed" not in server.log.read_text()
        again = subprocess.Popen(
            [*ONEJOB, "serve", "--port", str(server.port), "--workers", "2"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        with again:
            assert again.stdout is not None
            assert f":{server.port} " in again.stdout.readline()
            again.send_signal(signal.SIGTERM)
            assert again.wait(TIMEOUT_SECONDS) == 0


def test_a_worker_that_is_starting_does_not_keep_the_port_of_a_killed_supervisor(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys, time\n"
        "if any('run_worker' in word for word in sys.orig_argv) and os.path.exists('slow'):\n"
        "    time.sleep(6)\n"
    )
    environ = os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    with run_server(tmp_path, "workers = 2", environ=environ) as server:
        before = set(worker_pids(server))
        (tmp_path / "slow").touch()
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: len(set(worker_pids(server)) - before) == 2)
        starting = worker_pids(server)
        server.kill()
        wait_until(lambda: is_port_refused(server.port), seconds=1)
        assert all(map(is_alive, starting)), "they had not even begun to listen"
        wait_until(lambda: not any(map(is_alive, starting)))
        assert "failed" not in server.log.read_text()


def start_partial_submission(server: Server) -> socket.socket:
    """A submission whose last three bytes are missing, after a worker has read its head."""
    head, end, body = submission("slow", expect="100-continue").partition(b"\r\n\r\n")
    connection = server.connect()
    connection.sendall(head + end)
    assert connection.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.sendall(body[:-3])
    return connection


def is_port_refused(port: int) -> bool:
    try:
        Server.connect(_ServerAtPort(port)).close()
    except ConnectionRefusedError:
        return True
    return False


class _ServerAtPort(Server):
    def __init__(self, port: int) -> None:
        self.port = port


def test_a_hanging_process_is_replaced(server: Server) -> None:
    hung = worker_pids(server)[0]
    os.kill(hung, signal.SIGSTOP)
    try:
        for n in range(12):
            assert server.submit(f"k{n}").status == 202, "no request waits until it continues"
        wait_until(lambda: scrape(server)["onejob_workers",] == WORKERS - 1)
    finally:
        os.kill(hung, signal.SIGCONT)
    wait_until(lambda: scrape(server)["onejob_workers",] == WORKERS)


def test_a_process_that_hangs_for_ten_seconds_is_killed(tmp_path: Path) -> None:
    with run_server(tmp_path, "workers = 2") as server:
        hung = worker_pids(server)[0]
        os.kill(hung, signal.SIGSTOP)
        begin = time.monotonic()
        wait_until(lambda: not is_alive(hung), seconds=20)
        assert time.monotonic() - begin >= 9
        assert server.submit("after").status == 202
        wait_until(lambda: scrape(server)["onejob_workers",] == 2)
        assert f"(process {hung}) has been silent" in server.log.read_text()


def test_a_second_signal_means_at_once(tmp_path: Path, settings: str) -> None:
    with run_server(tmp_path, settings + "drain_seconds_max = 600") as server, start_partial_submission(server):
        workers = worker_pids(server)
        # A terminal signals all processes.
        for pid in (server.process.pid, *workers):
            os.kill(pid, signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(2)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(TIMEOUT_SECONDS) == 0
        assert not any(map(is_alive, workers))


def test_a_request_that_outlasts_the_drain_gets_a_repeatable_503(tmp_path: Path, settings: str) -> None:
    with (
        run_server(tmp_path, settings + "drain_seconds_max = 0.5") as server,
        start_partial_submission(server) as connection,
    ):
        assert server.stop() == 0
        assert connection.recv(65_536).startswith(b"HTTP/1.1 503 ")


async def test_a_rate_is_one_for_all_workers(tmp_path: Path, settings: str) -> None:
    async def status(n: int) -> int:
        client = await KeepAliveClient.connect(server.port)
        reply = await client.ask(submission(f"k{n}"))
        client.close()
        assert reply is not None
        return reply.status

    with run_server(tmp_path, settings + "rate_per_second = 0.001\nrate_burst = 20") as server:
        found = await asyncio.gather(*(status(n) for n in range(90)))
        assert (found.count(202), found.count(429)) == (20, 70)
        # If a worker is slow to report, its last report counts.
        wait_until(lambda: server.ask("GET", "/api/stats").body["outcomes"]["created"] == 20)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--engine", "memory://", "--workers", "2"], 2, "memory:// supports one process only"),
        (["--workers", "0"], 2, "--workers"),
        (["--workers", "many"], 2, "--workers"),
        (["--workers", "2", "--host", "0.0.0.0"], 2, "auth = true"),
        (["--workers", "2", "--engine", "sqlite:///no.db"], 2, "no.db"),
    ],
)
def test_invalid_settings_are_reported_once(tmp_path: Path, options: list[str], code: int, message: str) -> None:
    (tmp_path / "no.db").write_bytes(b"this is no database, whatever its name says" * 100)
    done = subprocess.run(
        [*ONEJOB, "serve", "--port", "0", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == code
    assert message in done.stderr
    assert done.stdout == ""


def test_a_port_that_another_service_has_is_not_shared_with_it(tmp_path: Path, server: Server) -> None:
    for workers in ("1", "2"):
        done = subprocess.run(
            [*ONEJOB, "serve", "--port", str(server.port), "--workers", workers],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 4
        assert f"127.0.0.1:{server.port}" in done.stderr


def test_idle_connections_do_not_hold_up_the_end(server: Server) -> None:
    with server.connect() as idle:
        idle.sendall(request("GET", "/healthz", close=False))
        assert idle.recv(65_536)
        begin = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begin < TIMEOUT_SECONDS


def test_without_a_reader_of_the_ready_line_nothing_is_left_running(tmp_path: Path, settings: str) -> None:
    (tmp_path / "onejob.toml").write_text(settings)
    read, write = os.pipe()
    os.close(read)
    command = [*ONEJOB, "serve", "--port", "0", "--config", "onejob.toml"]
    with (tmp_path / "log").open("wb") as log, os.fdopen(write) as stdout:
        running = subprocess.Popen(command, cwd=tmp_path, stdout=stdout, stderr=log)
    seen: set[int] = set()
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    while running.poll() is None:
        with suppress(OSError):
            seen |= set(map(int, children.read_text().split()))
        time.sleep(0.02)
    assert running.wait(TIMEOUT_SECONDS) == 4
    assert len(seen) == WORKERS
    wait_until(lambda: not any(map(is_alive, seen)))
