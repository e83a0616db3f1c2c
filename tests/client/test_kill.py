"""Clients killed between write, send and receive: one job each, none lost."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.serve_process import run_serve_process

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("how", ["points", "random"])
def test_a_killed_client_loses_and_duplicates_nothing(tmp_path: Path, how: str) -> None:
    with run_serve_process(tmp_path) as server:
        command = [
            sys.executable,
            "-m",
            "tests.client.killed_client",
            server.base_url,
            str(tmp_path / "out.db"),
            how,
            "1",
        ]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert ran.returncode == 0, ran.stderr
    assert "none lost, none doubled" in ran.stdout
    print(ran.stdout)
