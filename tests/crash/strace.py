"""Running a victim under strace, which kills it at the n-th call of a kind or makes that call fail."""

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
# Everything that changes a file, or makes a change last, or opens one.
CALLS = (
    "write", "pwrite64", "writev", "pwritev", "fsync", "fdatasync", "sync_file_range", "openat", "ftruncate",
    "fallocate", "unlink", "unlinkat", "rename", "renameat", "renameat2", "link", "linkat", "mknod", "mknodat",
)  # fmt: skip
_TIMEOUT = 60.0


def skip_unless_traceable() -> None:
    """Skip where nothing can be traced, and say why."""
    reason = _reason_not_traceable()
    if reason is not None:
        print(reason)
        pytest.skip(reason)


def run_traced(
    folder: Path,
    part: str = "youth",
    *,
    inject: str,
    at: float = 0.0,
    patience: int = 0,
    store: Path | None = None,
) -> tuple[int, str]:
    """Live in a folder under some injections; returns the exit status (negative: the signal) and the calls seen."""
    path, log = (store or folder) / "j.db", folder / "trace"
    options = [f"--trace-path={path.parent}", *(f"--trace-path={path}{suffix}" for suffix in SUFFIXES)]
    options += [f"--trace={','.join(CALLS)}", *(f"--inject={one}" for one in inject.split())]
    zygote = _fork_server()
    assert zygote.stdin is not None
    assert zygote.stdout is not None
    print(part, path, folder / "acks", at, patience, sep="\t", file=zygote.stdin, flush=True)
    try:
        strace = subprocess.run(
            ["strace", "-f", "-qq", "-y", "-o", log, "-p", zygote.stdout.readline().strip(), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_TIMEOUT,
        )
    except BaseException:
        _fork_server.cache_clear()  # what it says next would be about this life
        raise
    status = int(zygote.stdout.readline())
    assert status not in (1, UNTRACED), strace.stdout
    return status, log.read_text(errors="replace")


def recover_all(folders: list[Path], *, at: float) -> int:
    """Let one fresh process recover every folder; returns how many answers it found to hold."""
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
    """One for each process that runs tests; it ends when its input does."""
    zygote = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.fork_server"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(_stop_fork_server, zygote)
    return zygote


def _stop_fork_server(zygote: "subprocess.Popen[str]") -> None:
    assert zygote.stdin is not None
    assert zygote.stdout is not None
    zygote.stdin.close()
    zygote.wait(timeout=_TIMEOUT)
    zygote.stdout.close()
