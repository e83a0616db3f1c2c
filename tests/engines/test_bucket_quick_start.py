"""The quick start of docs/bucket.md, as it is printed except for its ports."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import pytest

from tests.support.postgres_server import free_port
from tests.support.seaweedfs import PORTS
from tests.support.serve_process import ServeProcess

BUCKET_PAGE = Path(__file__).parents[2] / "docs" / "bucket.md"
START_SECONDS = 600


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServeProcess]:
    printed = re.search(r"```sh\n(.*?)```", BUCKET_PAGE.read_text(), re.DOTALL)
    assert printed
    ports = {name: free_port() for name in PORTS}
    options = " ".join(f"-{name}={port}" for name, port in ports.items())
    commands = (
        printed[1]
        .replace("8333", str(ports["s3.port"]))
        .replace("--retry 60", f"--retry {START_SECONDS}")
        .replace(" -s3 ", f" -s3 -s3.port.iceberg=0 -s3.port.lance=0 {options} ")
    )
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": programs, "XDG_CACHE_HOME": str(tmp_path / "cache"), "ONEJOB_PORT": "0"}
    with (tmp_path / "log").open("w") as log:
        shell = subprocess.Popen(
            ["sh", "-ec", commands], stdout=subprocess.PIPE, stderr=log, cwd=tmp_path, env=environment, text=True,
            start_new_session=True,
        )  # fmt: skip
    watchdog = Timer(START_SECONDS, os.killpg, (shell.pid, signal.SIGKILL))
    watchdog.start()
    try:
        assert shell.stdout is not None
        said = re.search(r"serves s3://jobs/queue at http://127\.0\.0\.1:(\d+)", shell.stdout.readline())
        assert said, (tmp_path / "log").read_text()[-3000:]
        yield ServeProcess(int(said[1]))
    finally:
        watchdog.cancel()
        os.killpg(shell.pid, signal.SIGKILL)
        shell.communicate()


def test_the_commands_of_the_quick_start_serve_a_bucket(server: ServeProcess) -> None:
    answers = [server.submit("charge", {"order": "ORD-123"}, "charge-ORD-123") for _ in range(2)]
    assert [answer.status for answer in answers] == [202, 202]
    assert answers[0].json["job"]["id"] == answers[1].json["job"]["id"]
