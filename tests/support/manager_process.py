"""`onejob manager` as a process: killed, stopped and started again as machines are."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class ManagerProcess:
    def __init__(self, *words: str, bind: str = "127.0.0.1:0", **environment: str) -> None:
        command = [sys.executable, "-m", "onejob.cli", "manager", "--bind", bind, *words]
        environ = {name: value for name, value in os.environ.items() if name != "ONEJOB_GATE_KEY"} | environment
        self._process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        found = re.search(r"https?://\S+:\d+", self._process.stdout.readline().rpartition(" at ")[2])
        assert found, "the manager did not start"
        self.url = found[0]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        if self._process.poll() is None:
            self.wake()
            self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


@contextmanager
def run_manager_process(*words: str, **environment: str) -> Iterator[ManagerProcess]:
    manager = ManagerProcess(*words, **environment)
    try:
        yield manager
    finally:
        manager.stop()
