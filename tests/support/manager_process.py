"""`onejob manager` and `onejob gate` as processes: killed, stopped and started again as machines are."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
_ONEJOB = (sys.executable, "-m", "onejob.cli")


class RoleProcess:
    """A command that says where it serves. Its wall clock is off by `clock_seconds`."""

    def __init__(self, role: str, *words: str, clock_seconds: int = 0, quiet: bool = False) -> None:
        wrong_clock = (sys.executable, "-m", "tests.support.wrong_clock", str(clock_seconds))
        environ = {name: value for name, value in os.environ.items() if name != "ONEJOB_GATE_KEY"}
        self._process = subprocess.Popen(
            [*(wrong_clock if clock_seconds else _ONEJOB), role, *words],
            cwd=REPOSITORY if clock_seconds else None,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if quiet else None,
            text=True,
        )
        assert self._process.stdout is not None
        found = re.search(r"https?://\S+:\d+", self._process.stdout.readline().rpartition(" at ")[2])
        if found is None:
            self.kill()
        assert found, f"the {role} did not start"
        self.url = found[0]

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def address(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(60)
        self._close_output()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        if self._process.poll() is None:
            self.wake()
            self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(60)
        self._close_output()
        return code

    def _close_output(self) -> None:
        assert self._process.stdout is not None
        self._process.stdout.close()


class ManagerProcess(RoleProcess):
    def __init__(self, *words: str, bind: str = "127.0.0.1:0", clock_seconds: int = 0, quiet: bool = False) -> None:
        super().__init__("manager", "--bind", bind, *words, clock_seconds=clock_seconds, quiet=quiet)


class GateProcess(RoleProcess):
    def __init__(self, *managers: str, port: int = 0, clock_seconds: int = 0, quiet: bool = False) -> None:
        words = ("--manager", ",".join(managers), "--port", str(port))
        super().__init__("gate", *words, clock_seconds=clock_seconds, quiet=quiet)


@contextmanager
def run_manager_process(*words: str) -> Iterator[ManagerProcess]:
    manager = ManagerProcess(*words)
    try:
        yield manager
    finally:
        manager.stop()
