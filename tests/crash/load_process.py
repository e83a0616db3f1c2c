"""Starting a load in a process of its own, and ending it at a random moment."""

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .strace import ROOT

_WAIT = 30.0


class LoadProcess:
    def __init__(self, path: Path, acks: Path, name: str, synchronous: str, known: list[Path]) -> None:
        self.acks = acks
        words = (path, acks, name, synchronous, *known)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.load_program", *map(str, words)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def read_check_result(self) -> tuple[int, int]:
        """How many of the earlier answers it found to hold, and how many lost."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().split()
        if not line:
            _, errors = self.process.communicate()
            raise AssertionError(errors)
        return int(line[1]), int(line[3])

    def wait_until_busy(self, answers: int = 1) -> None:
        """Wait until it has got some answers."""
        until = time.monotonic() + _WAIT
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


def sleep_randomly(chance: random.Random, most: float) -> None:
    """Let the others run until some random moment."""
    time.sleep(chance.uniform(0.0, most))
