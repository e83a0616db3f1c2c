"""Runs `load_program` in a process, and kills it."""

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .strace import ROOT

_BUSY_SECONDS_MAX = 30.0


class LoadProcess:
    def __init__(self, path: Path, acks: Path, name: str, synchronous: str, known: list[Path]) -> None:
        self.acks = acks
        arguments = (path, acks, name, synchronous, *known)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.load_program", *map(str, arguments)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def read_check_result(self) -> tuple[int, int]:
        """How many earlier answers were confirmed, and how many were lost."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().split()
        if not line:
            _, errors = self.process.communicate()
            raise AssertionError(errors)
        return int(line[1]), int(line[3])

    def wait_until_busy(self, answers: int = 1) -> None:
        """Wait until the program has some answers."""
        until = time.monotonic() + _BUSY_SECONDS_MAX
        while not self.acks.exists() or self.acks.stat().st_size < answers * 40:
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < until
            time.sleep(0.002)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def run_load(
    path: Path, acks: Path, *, name: str, synchronous: str = "FULL", known: list[Path] | None = None
) -> Iterator[LoadProcess]:
    load = LoadProcess(path, acks, name, synchronous, known or [])
    try:
        yield load
    finally:
        load.kill()


def sleep_randomly(rng: random.Random, seconds_max: float) -> None:
    time.sleep(rng.uniform(0.0, seconds_max))
