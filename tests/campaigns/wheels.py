"""Tries the wheel as a user gets it: `python -m tests.campaigns.wheels [3.11 3.12 …]`.

Each Python and each extra has a clean environment.

`make wheels` builds it first. A Python that cannot be had here is left out, unless none can be had.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIST = ROOT / "build" / "dist"
PLACE = ROOT / "build" / "wheels"
NO_EXTRA = "none"
UV = Path(sys.executable).with_name("uv")
PYENV = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()

# What each extra is for, as a program that fails if it is not there. All run in an empty folder.
REPLAY = """
import onejob.sync
with onejob.sync.open({url!r}) as queue:
    first, again = [queue.submit("charge", {{"amount": 42}}, idempotency_key="k") for _ in range(2)]
assert (first.outcome, again.outcome, again.job_id) == ("created", "replayed", first.job_id)
"""
PROGRAMS = {
    NO_EXTRA: REPLAY.format(url="sqlite:///onejob.db"),
    "client": "import onejob; onejob.Client('http://127.0.0.1:1').close()",
    "service": "import jwt, onejob.http.serve",
    "gate": "import httptools, onejob.engines.remote.connection",
    "postgres": "import onejob.engines.postgres",
    "schedules": "import onejob; onejob.App().every('0 3 * * *', 'report')",
    "psycopg": "import psycopg, onejob.transaction",
    "sqlalchemy": "import sqlalchemy.ext.asyncio, onejob.transaction",
    "django": "import onejob.django",
    "flask": "import onejob.middleware.flask",
    "bucket": "import pathlib; pathlib.Path('bucket').mkdir()" + REPLAY.format(url="file://{folder}/bucket"),
    "relay": "import psycopg, pymysql, sqlalchemy, onejob.cli.commands.relay",
    "completion": "import shtab, onejob.cli.commands.completion",
    "otel": "import onejob.tracing; onejob.tracing.Tracing()",
}


def main(pythons: list[str]) -> int:
    (wheel,) = DIST.glob("onejob-*.whl")
    if wrong := [python for python in pythons if not re.fullmatch(r"3\.[0-9]+", python)]:
        raise SystemExit(f'{wrong[0]} is no version; write PYTHONS="3.11 3.12"')
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(PROGRAMS) == {NO_EXTRA, *extras}, "an extra has no program here"
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    tried = [python for python in pythons if try_python(python, wheel, [NO_EXTRA, *extras])]
    print(f"the wheel works on {', '.join(tried) or 'no Python that can be had here'}")
    return 0 if tried else 1


def find_python(version: str) -> str:
    """The path of a Python: installed, of pyenv, or one that uv downloads; empty: none of them."""
    names = [str(path) for path in sorted(PYENV.glob(f"versions/{version}*/bin/python"), reverse=True)]
    for python in [shutil.which(f"python{version}"), *names]:
        if python and not run(python, "-c", "pass", check=False).returncode:
            return python
    run(UV, "python", "install", "--quiet", version, check=False)
    return run(UV, "python", "find", "--no-project", version, check=False).stdout.strip()


def try_python(version: str, wheel: Path, extras: list[str]) -> bool:
    python = find_python(version)
    if not python:
        print(f"Python {version} cannot be had here")
        return False
    for extra in extras:
        venv = PLACE / f"{version}-{extra}"
        run(UV, "venv", "--quiet", "--no-project", "--python", python, venv)
        install(venv, wheel, extra)
        try_extra(venv, extra)
        print(f"Python {version}, extra {extra}: works", flush=True)
        shutil.rmtree(venv)
    return True


def install(venv: Path, wheel: Path, extra: str) -> None:
    wanted = str(wheel) if extra == NO_EXTRA else f"{wheel}[{extra}]"
    constraints = ROOT / "constraints.txt"
    run(UV, "pip", "install", "--quiet", "--python", venv / "bin" / "python", "-c", constraints, wanted)


def try_extra(venv: Path, extra: str) -> None:
    folder = venv / "empty"
    folder.mkdir()
    program = PROGRAMS[extra].replace("{folder}", str(folder))
    run(venv / "bin" / "python", "-I", "-W", "error", "-c", program, cwd=folder)
    onejob = venv / "bin" / "onejob"
    assert run(onejob, "--version", cwd=folder).stdout.startswith("onejob ")
    if extra == NO_EXTRA:
        for command in (["serve"], ["prove", "--keys", "1", "--kills", "0"]):
            missing = run(onejob, *command, cwd=folder, check=False)
            assert missing.returncode, missing
            assert "install onejob[service]" in missing.stderr, missing
    if extra == "service":
        proved = run(onejob, "prove", "--keys", "20", "--kills", "1", cwd=folder)
        assert proved.stdout.endswith("20 keys, 20 jobs, 0 lost, 0 doubled\n"), proved


def run(*command: object, cwd: Path = ROOT, check: bool = True) -> "subprocess.CompletedProcess[str]":
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "ONEJOB_"))
    }
    words = [str(word) for word in command]
    ran = subprocess.run(words, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    if check and ran.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{ran.stdout}{ran.stderr}")
    return ran


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or [f"{sys.version_info.major}.{sys.version_info.minor}"]))
