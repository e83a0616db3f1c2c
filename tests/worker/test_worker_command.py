"""Worker processes: the command, its signals, and the service that runs jobs in process."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from onejob import sync
from onejob.errors import Invalid
from onejob.http.metrics_server import parse_metrics_address
from tests.support.serve_process import run_serve_process

SHOP = """
import asyncio, os, time
import onejob

app = onejob.App()


@app.job("add")
async def add(pair: list[int]) -> int:
    return sum(pair)


@app.job("slow")
async def slow(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return os.getpid()


@app.job("deaf")
def deaf(seconds: float) -> None:
    time.sleep(seconds)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


@contextmanager
def run_worker(folder: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "onejob.cli", "worker", "shop:app", *arguments]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            assert "onejob runs the jobs of shop:app in sqlite:///onejob.db, " in running.stdout.readline()
            yield running
        finally:
            if running.poll() is None:
                running.send_signal(signal.SIGTERM)
            running.wait(60)


def wait_until_running(queue: sync.SyncLedger, job_id: str) -> None:
    until = time.monotonic() + 20
    while queue.job(job_id).state != "running":
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_worker_process_runs_what_others_submit_and_shuts_down_gracefully(shop: Path) -> None:
    with sync.open(f"sqlite:///{shop / 'onejob.db'}") as queue:
        with run_worker(shop, "--concurrency", "4", "--types", "add,slow", "--drain", "10s") as running:
            made = queue.submit("add", [1, 2])
            assert queue.wait(made.job_id, timedelta(seconds=20)).state == "success"
            assert queue.result(made.job_id) == 3
            slow = queue.submit("slow", 1.0)
            wait_until_running(queue, slow.job_id)
            running.send_signal(signal.SIGTERM)
            assert running.wait(60) == 0
            assert running.stdout is not None
            assert "2 success" in running.stdout.read()
        assert queue.job(slow.job_id).state == "success"
        deaf = queue.submit("deaf", 0)
        assert queue.job(deaf.job_id).state == "pending"


def test_a_worker_process_releases_what_it_cannot_finish(shop: Path) -> None:
    with sync.open(f"sqlite:///{shop / 'onejob.db'}") as queue:
        jobs = [queue.submit("slow", 60).job_id, queue.submit("deaf", 60).job_id]
        with run_worker(shop, "--drain", "1s") as running:
            for job_id in jobs:
                wait_until_running(queue, job_id)
            running.send_signal(signal.SIGTERM)
            assert running.wait(60) == 0
        for job_id in jobs:
            job = queue.job(job_id)
            assert (job.state, job.attempts) == ("pending", 0)


def test_a_second_signal_ends_a_worker_at_once(shop: Path) -> None:
    with sync.open(f"sqlite:///{shop / 'onejob.db'}") as queue:
        job_id = queue.submit("slow", 60).job_id
        with run_worker(shop, "--drain", "60s") as running:
            wait_until_running(queue, job_id)
            running.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            running.send_signal(signal.SIGTERM)
            assert running.wait(30) == 130


def test_an_app_that_cannot_be_imported_is_named(shop: Path) -> None:
    for name in ("shop", "shop:nothing", "none:app", "shop:add"):
        command = [sys.executable, "-m", "onejob.cli", "worker", name]
        ran = subprocess.run(command, cwd=shop, capture_output=True, text=True, check=False, timeout=120)
        assert ran.returncode == 2
        assert name in ran.stderr


def test_the_service_runs_jobs_in_process(shop: Path) -> None:
    with run_serve_process(shop, "--app", "shop:app", "--concurrency", "3") as served:
        made = served.submit("add", [20, 22], "k").json["job"]["id"]
        until = time.monotonic() + 20
        while served.get(f"/api/jobs/{made}").json["job"]["state"] != "success":
            assert time.monotonic() < until
            time.sleep(0.02)
        slow = served.submit("slow", 1.0, "slow").json["job"]["id"]
        while served.get(f"/api/jobs/{slow}").json["job"]["state"] != "running":
            time.sleep(0.02)
    with sync.open(f"sqlite:///{shop / 'onejob.db'}") as queue:
        assert queue.result(made) == 42
        assert queue.job(slow).state == "success"
        assert queue.result(slow) != os.getpid()


def test_a_worker_shows_its_metrics_on_a_port_of_its_own(shop: Path) -> None:
    with sync.open(f"sqlite:///{shop / 'onejob.db'}") as queue:
        command = [sys.executable, "-m", "onejob.cli", "worker", "shop:app", "--json", "--metrics", "0"]
        with subprocess.Popen(command, cwd=shop, stdout=subprocess.PIPE, text=True) as running:
            try:
                assert running.stdout is not None
                lines = iter(running.stdout.readline, "}\n")
                url = json.loads("".join(lines) + "}")["metrics"]
                made = queue.submit("add", [1, 2])
                queue.wait(made.job_id, timedelta(seconds=20))
                with urlopen(url, timeout=120) as answer:
                    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                    text = answer.read().decode()
                assert 'onejob_attempts_total{end="success",type="add"} 1.0' in text
                assert "onejob_worker_concurrency 10.0" in text
                assert 'onejob_lease_expiries_total{end="lost",type="add"} 0.0' in text
                assert "onejob_jobs{" not in text  # of the whole store: for the service
                assert "onejob_http_" not in text
                for path, method, status in (("healthz", "GET", 200), ("other", "GET", 404), ("metrics", "POST", 405)):
                    assert request_status(url.replace("metrics", path), method) == status
            finally:
                running.send_signal(signal.SIGTERM)
                assert running.wait(60) == 0


def request_status(url: str, method: str) -> int:
    try:
        with urlopen(Request(url, method=method), timeout=120) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize("text", ["", "host", "host:", ":-1", ":99999999", "1.5"])
def test_a_wrong_metrics_address_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="HOST:PORT"):
        parse_metrics_address(text)


def test_metrics_are_on_the_loopback_address_unless_a_host_is_named() -> None:
    assert parse_metrics_address("9101") == parse_metrics_address(":9101") == ("127.0.0.1", 9101)
    assert parse_metrics_address("[::1]:9101") == ("::1", 9101)
    assert parse_metrics_address("0.0.0.0:1") == ("0.0.0.0", 1)
