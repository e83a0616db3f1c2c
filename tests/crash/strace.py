"""Runs a program under strace, which kills it at the n-th call of a kind or makes that call fail."""

import atexit
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

from .fork_server import UNTRACED

ROOT = Path(__file__).resolve().parent.parent.parent
SUFFIXES = ("", "-wal", "-shm", "-journal", "-turn", "-next")
# All calls that change, sync or open a file.
CALLS = (
    "write", "pwrite64", "writev", "pwritev", "fsync", "fdatasync", "sync_file_range", "openat", "ftruncate",
    "fallocate", "unlink", "unlinkat", "rename", "renameat", "renameat2", "link", "linkat", "mknod", "mknodat",
)  # fmt: skip
_TIMEOUT = 60.0


def skip_unless_traceable() -> None:
    reason = _reason_not_traceable()
    if reason is not None:
        print(reason)
        pytest.skip(reason)


def run_traced(
    folder: Path,
    part: str = "first_run",
    *,
    inject: str,
    at: float = 0.0,
    retries: int = 0,
    store: Path | None = None,
) -> tuple[int, str]:
    """Run with fault injections; returns the exit status (negative: a signal) and the trace."""
    path, log = (store or folder) / "j.db", folder / "trace"
    options = [f"--trace-path={path.parent}", *(f"--trace-path={path}{suffix}" for suffix in SUFFIXES)]
    options += [f"--trace={','.join(CALLS)}", *(f"--inject={one}" for one in inject.split())]
    server = _fork_server()
    assert server.stdin is not None
    assert server.stdout is not None
    print(part, path, folder / "acks", at, retries, sep="\t", file=server.stdin, flush=True)
    try:
        strace = subprocess.run(
            ["strace", "-f", "-qq", "-y", "-o", log, "-p", server.stdout.readline().strip(), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_TIMEOUT,
        )
    except BaseException:
        _fork_server.cache_clear()  # its next line would belong to this run
        raise
    status = int(server.stdout.readline())
    assert status not in (1, UNTRACED), strace.stdout
    return status, log.read_text(errors="replace")


def recover_all(folders: list[Path], *, at: float) -> int:
    """Recover every folder in a new process; returns how many answers were confirmed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.recover", str(at), *map(str, folders)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT * 5,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@cache
def _reason_not_traceable() -> str | None:
    if shutil.which("strace") is None:
        return "strace is not installed"
    with tempfile.TemporaryDirectory() as folder:
        try:
            run_traced(Path(folder), inject="")
        except AssertionError as error:
            return f"strace cannot trace here: {error}"
    return None


@cache
def _fork_server() -> "subprocess.Popen[str]":
    """One per test process; it ends at the end of its input."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.fork_server"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(_stop_fork_server, server)
    return server


def _stop_fork_server(server: "subprocess.Popen[str]") -> None:
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.close()
    server.wait(timeout=_TIMEOUT)
    server.stdout.close()
