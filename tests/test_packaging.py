"""What a user installs, and what `make` installs for whom."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]


def requirement_names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9_.-]", one)[0].lower().replace("_", "-") for one in requirements}


def commands_of(target: str) -> str:
    """What `make target` would run in a fresh clone."""
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", target]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return ran.stdout


def test_development_kits_are_dependency_groups_and_no_public_extras() -> None:
    assert set(PROJECT["optional-dependencies"]) == {"client", "service", "postgres", "schedules"}
    assert set(PYPROJECT["dependency-groups"]) == {"dev", "bench"}


def test_make_serve_installs_only_what_serving_needs() -> None:
    commands = commands_of("serve")
    assert "'.[postgres,service]'" in commands
    assert "dev" not in re.sub(r"/dev/\S+", "", commands)
    assert "onejob serve" in commands


@pytest.mark.parametrize("target", ["setup", "test", "check", "format", "docs"])
def test_make_installs_the_development_kit_where_it_is_needed(target: str) -> None:
    commands = commands_of(target)
    assert "'.[client,postgres,service]' -r .venv/dev.txt" in commands


@pytest.mark.parametrize("group", ["dev", "bench"])
def test_make_prints_a_group_as_requirements_for_any_pip(group: str) -> None:
    (line,) = [
        line for line in commands_of("bench").splitlines() if line.endswith(f".venv/{group}.txt") and ">" in line
    ]
    program = re.search(r"-c '(.*)' ", line)
    assert program is not None
    ran = subprocess.run(
        [sys.executable, "-c", program[1], group], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines() == PYPROJECT["dependency-groups"][group]


def test_every_requirement_is_pinned() -> None:
    pinned = requirement_names((ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines())
    lists = [
        PROJECT["dependencies"],
        *PROJECT["optional-dependencies"].values(),
        *PYPROJECT["dependency-groups"].values(),
    ]
    assert requirement_names([one for requirements in lists for one in requirements]) <= pinned


def test_a_library_whose_internals_are_used_has_an_upper_bound() -> None:
    (uvicorn,) = [one for one in PROJECT["optional-dependencies"]["service"] if one.startswith("uvicorn")]
    assert "<" in uvicorn


def test_the_classifiers_name_the_python_that_the_tests_run_on() -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]


def test_the_repository_says_how_to_report_a_vulnerability() -> None:
    assert "Reporting a vulnerability" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
