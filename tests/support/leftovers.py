"""What an interrupted run leaves behind is ended: its servers, and their folders in /tmp.

Fixtures end what they start. A run that is interrupted may have no time for them: pytest-xdist kills its workers. So every
program of a run inherits a name, and so does every folder; the process that started the run looks for both when it ends.
"""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_VARIABLE = "TEST_RUN"
_PROCESSES = Path("/proc")  # Linux has it; elsewhere the fixtures must do
_POLITE_SECONDS = 5.0
_END_SECONDS_MAX = 30.0


def name_run() -> None:
    """Also make SIGTERM, e.g. of a time limit of CI, an interrupt: pytest then ends in order."""
    os.environ[_VARIABLE] = f"{os.getpid()}-{time.time_ns():x}"
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def new_folder(kind: str) -> Path:
    """A folder in /tmp that `end_leftovers` removes if its owner cannot. A Unix socket in it has a short path."""
    return Path(tempfile.mkdtemp(prefix=f"onejob-{kind}-{os.environ.get(_VARIABLE, 'alone')}-", dir="/tmp"))


def end_leftovers() -> list[str]:
    """End the programs of this run that still run, and remove its folders; returns what the programs were."""
    found = {pid: _command_line(pid) for pid in _programs_of_this_run()}
    began = time.monotonic()
    while (left := _programs_of_this_run()) and (waited := time.monotonic() - began) < _END_SECONDS_MAX:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGTERM if waited < _POLITE_SECONDS else signal.SIGKILL)
        time.sleep(0.1)
    for folder in Path("/tmp").glob(f"onejob-*-{os.environ[_VARIABLE]}-*"):
        shutil.rmtree(folder, ignore_errors=True)
    return list(found.values())


def _programs_of_this_run() -> list[int]:
    mark = f"{_VARIABLE}={os.environ[_VARIABLE]}".encode()
    return [pid for pid, environ in _environments() if pid != os.getpid() and mark in environ.split(b"\0")]


def _environments() -> Iterator[tuple[int, bytes]]:
    for process in _PROCESSES.glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile, or belongs to another user
            yield int(process.name), (process / "environ").read_bytes()


def _command_line(pid: int) -> str:
    with suppress(OSError):
        return (_PROCESSES / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return str(pid)
