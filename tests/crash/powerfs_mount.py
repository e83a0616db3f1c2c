"""Mounts and unmounts `powerfs`, and skips tests where FUSE is not available."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from .strace import ROOT

_MOUNT_SECONDS_MAX = 10.0


class MountedPowerFs:
    def __init__(self, mount: Path, server: "subprocess.Popen[str]") -> None:
        self.path = mount
        self._server = server

    def send_command(self, *arguments: object) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(*arguments, file=self._server.stdin, flush=True)
        assert self._server.stdout.readline() == "ok\n"

    def cut_power(self, mode: str, seed: int) -> None:
        """Cut the power: from now on nothing reaches the disk, and every operation fails."""
        self.send_command("cut", mode, seed)


@contextmanager
def mount_powerfs(base: Path) -> Iterator[MountedPowerFs]:
    """Mount `base/disk` at `base/mount`."""
    disk, mount = base / "disk", base / "mount"
    disk.mkdir(exist_ok=True)
    mount.mkdir(exist_ok=True)
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.powerfs", mount, disk],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _wait_until_mounted(server, mount)
        yield MountedPowerFs(mount, server)
    finally:
        _unmount(mount)
        server.kill()
        server.communicate()


def skip_unless_mountable() -> None:
    reason = _reason_not_mountable()
    if reason is not None:
        print(reason)
        pytest.skip(reason)


def _wait_until_mounted(server: "subprocess.Popen[str]", mount: Path) -> None:
    until = time.monotonic() + _MOUNT_SECONDS_MAX
    while not os.path.ismount(mount):
        if server.poll() is not None:
            assert server.stderr is not None
            raise OSError(f"FUSE cannot be mounted here: {server.stderr.read().strip()}")
        assert time.monotonic() < until
        time.sleep(0.005)


def _unmount(mount: Path) -> None:
    for option in ("-u", "-uz"):
        done = subprocess.run(["fusermount3", option, mount], capture_output=True, check=False)
        if done.returncode == 0:
            return


@cache
def _reason_not_mountable() -> str | None:
    if shutil.which("fusermount3") is None:
        return "fusermount3 is not installed"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "FUSE cannot be mounted here: no access to /dev/fuse"
    with tempfile.TemporaryDirectory() as base:
        try:
            with mount_powerfs(Path(base)):
                return None
        except (OSError, ImportError) as error:
            return str(error)
