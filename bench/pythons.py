"""Interpreters that the benchmarks compare: the one that runs them, and another one with the same locked packages."""

import subprocess
import sys
from pathlib import Path

from .report import REPOSITORY

CHECK = (
    "import apsw, asyncpg, httptools, jwt, msgspec, prometheus_client, uvloop\n"
    "from importlib.metadata import version\nversion('onejob')"
)
INSTALL_SECONDS_MAX = 300


def find_pythons(other: str | None) -> dict[str, str]:
    """Programs by their version, this one first."""
    found = {f"{sys.version_info.major}.{sys.version_info.minor}": sys.executable}
    if other is not None:
        version = _run([other, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).strip()
        if version in found:
            sys.exit(f"--python: that is Python {version} too; give another version")
        found[version] = _prepare(other, version)
    return found


def _prepare(python: str, version: str) -> str:
    """An interpreter with the packages that serving needs: this one, or else a virtual environment of it below build/."""
    if subprocess.run([python, "-c", CHECK], capture_output=True, check=False).returncode == 0:
        return python
    folder = REPOSITORY / "build" / "bench" / f"python{version}"
    program = folder / "bin" / "python"
    if not program.exists():
        _run([python, "-m", "venv", str(folder)])
    install = [str(program), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    requirements = REPOSITORY / "requirements" / "serve.txt"
    _run([*install, "--require-hashes", "--only-binary", ":all:", "-r", str(requirements)])
    _run([*install, "--no-deps", "--no-build-isolation", "-e", str(REPOSITORY)])
    return str(program)


def _run(command: list[str]) -> str:
    program = Path(command[0]).name
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS_MAX)
    except OSError as error:
        sys.exit(f"--python: {program} cannot be run: {error.strerror}; give the path of an interpreter")
    if done.returncode:
        sys.exit(f"--python: {program} failed; is this a Python with pip? {done.stderr.strip()[-500:]}")
    return done.stdout
