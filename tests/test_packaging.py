"""What a user installs, and what `make` installs for whom."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from msgspec import yaml
from packaging.requirements import Requirement

from tests.campaigns import wheels

ROOT = Path(__file__).parents[1]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
LOCKS = ["serve", "dev", "bench", "release", "docs"]


def commands_of(target: str) -> str:
    """What `make target` would run in a fresh clone."""
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", target]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return ran.stdout


def locked_versions(name: str) -> dict[str, str]:
    """The packages of `requirements/NAME.txt` and their versions; a line without a hash fails."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    found = {}
    for line in lines:
        pinned = re.fullmatch(r"(\S+)==(\S+)( ; [^\\]+?)?((\s+--hash=sha256:[0-9a-f]{64})+)\s*", line)
        assert pinned is not None, f"requirements/{name}.txt: {line[:80]} has no version or no hash"
        found[normalized(pinned[1])] = pinned[2]
    return found


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.split("==") for line in lines if not line.startswith("#")]
    return {normalized(name): version for name, version in pins}


def test_development_kits_are_dependency_groups_and_no_public_extras() -> None:
    assert not {"dev", "bench", "build", "release", "docs"} & set(PROJECT["optional-dependencies"])
    assert set(PYPROJECT["dependency-groups"]) == {"build", "dev", "bench", "release", "docs"}


def test_make_serve_installs_only_what_serving_needs() -> None:
    commands = commands_of("serve")
    assert "-r requirements/serve.txt" in commands
    assert not re.search(r"requirements/(?!serve)", commands)
    assert "onejob serve" in commands


@pytest.mark.parametrize("target", ["setup", "test", "check", "format", "docs"])
def test_make_installs_the_development_kit_where_it_is_needed(target: str) -> None:
    assert "-r requirements/dev.txt" in commands_of(target)


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_version_has_a_hash(name: str) -> None:
    assert locked_versions(name)


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_names_no_index(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text


def test_the_constraints_and_the_locks_agree() -> None:
    locked: dict[str, str] = {}
    for name in LOCKS:
        for package, version in locked_versions(name).items():
            assert locked.setdefault(package, version) == version, f"{package} is locked twice; run: make lock"
    for package, version in constraints().items():
        assert locked.get(package) == version, f"{package} is not locked at {version}; run: make lock"


@pytest.mark.parametrize(
    ("name", "groups", "extras"),
    [
        ("serve", ["build"], ["postgres", "service"]),
        ("dev", ["build", "dev"], list(PROJECT["optional-dependencies"])),
        ("bench", ["bench"], []),
        ("release", ["release"], []),
        ("docs", ["docs"], []),
    ],
)
def test_a_lock_satisfies_what_the_project_requires(name: str, groups: list[str], extras: list[str]) -> None:
    locked, pinned = locked_versions(name), constraints()
    wanted = [*PROJECT["dependencies"]]
    for group in groups:
        wanted += PYPROJECT["dependency-groups"][group]
    for extra in extras:
        wanted += PROJECT["optional-dependencies"][extra]
    for requirement in map(Requirement, wanted):
        package = normalized(requirement.name)
        assert package in pinned, f"pin {package} in constraints.txt, then run: make lock"
        assert package in locked, f"{package} is not locked in requirements/{name}.txt; run: make lock"
        assert requirement.specifier.contains(locked[package]), f"{requirement}: run: make lock"


def test_the_build_backend_is_locked_too() -> None:
    assert PYPROJECT["dependency-groups"]["build"] == PYPROJECT["build-system"]["requires"]
    assert "--no-build-isolation" in commands_of("serve")


@pytest.mark.parametrize("target", ["serve", "bench", "sbom", "site", "dist"])
def test_make_installs_nothing_that_is_not_verified(target: str) -> None:
    installs = [line for line in commands_of(target).splitlines() if "pip" in line and " install " in line]
    assert installs
    for line in installs:
        verified = "--require-hashes --only-binary :all: -r requirements/" in line
        assert verified or line.endswith("--no-deps --no-build-isolation -e .")


def write_wheel(folder: Path) -> str:
    """Write a wheel of a package without content; its SHA-256."""
    folder.mkdir()
    info = "locked_example-1.0.dist-info"
    wheel = folder / "locked_example-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("locked_example.py", "")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: locked-example\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


@pytest.mark.parametrize("tampered", [False, True])
def test_the_installer_refuses_a_file_with_another_hash(tmp_path: Path, tampered: bool) -> None:
    digest = write_wheel(tmp_path / "wheels")
    shutil.copy(ROOT / "Makefile", tmp_path)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    (tmp_path / "requirements").mkdir()
    locked = "0" * 64 if tampered else digest
    (tmp_path / "requirements" / "release.txt").write_text(f"locked-example==1.0 --hash=sha256:{locked}\n")
    places = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels"), "PIP_TARGET": str(tmp_path / "target")}
    ran = subprocess.run(
        ["make", ".venv/.release"], cwd=tmp_path, env=os.environ | places, capture_output=True, text=True, check=False
    )
    assert (ran.returncode != 0) is tampered, ran.stderr
    assert ("DO NOT MATCH THE HASHES" in ran.stderr) is tampered
    assert (tmp_path / "target" / "locked_example.py").exists() is not tampered


def test_the_documents_of_a_release_name_its_version() -> None:
    citation = yaml.decode((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    heading = f"## {PROJECT['version']} ({citation['date-released']})"
    assert heading in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()


def test_issue_templates_are_forms_with_a_question() -> None:
    forms = [path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"]
    assert forms
    for form in forms:
        content = yaml.decode(form.read_text(encoding="utf-8"))
        assert {"name", "description", "body"} <= content.keys()
        assert any(part.get("validations", {}).get("required") for part in content["body"])


def test_ci_builds_and_checks_the_wheel() -> None:
    assert "make dist" in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    commands = commands_of("dist")
    assert "python -m build --no-isolation" in commands
    assert "twine check --strict" in commands
    assert "-r requirements/release.txt" in commands


def test_every_extra_is_tried_in_a_clean_environment() -> None:
    assert set(wheels.PROGRAMS) == {wheels.NO_EXTRA, *PROJECT["optional-dependencies"]}


def test_the_classifiers_name_the_python_that_the_tests_run_on() -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]


def test_the_repository_says_how_to_report_a_vulnerability() -> None:
    assert "Reporting a vulnerability" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_without_extras_the_default_engine_works_and_the_others_say_what_they_need(tmp_path: Path) -> None:
    program = """
import sys
for name in ("asyncpg", "httptools", "httpx", "jwt", "obstore", "prometheus_client", "uvloop"):
    sys.modules[name] = None
from onejob.cli import main
print(*(main(line.split(" ")) for line in sys.argv[1:]))
"""
    lines = ("submit charge --key k --engine sqlite:///onejob.db", "jobs --engine http://127.0.0.1:1")
    done = subprocess.run(
        [sys.executable, "-c", program, *lines], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("\n0 2\n")
    assert "install onejob[gate]" in done.stderr


def test_no_page_installs_onejob_by_its_name_on_an_index() -> None:
    """Somebody else may own the name there: a clone, a path or a built wheel is installed."""
    command = re.compile(r"pip install [^`\n]*?(?<![\w./-])onejob(?![\w./-])")
    places = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("examples/**/*"),
        *ROOT.glob("ops/**/*"),
        ROOT / "action.yml",
    ]
    files = [place for place in places if place.suffix in {".md", ".py", ".sh", ".yml", ".yaml", ".service", ".env"}]
    assert len(files) > 50
    assert not [str(file) for file in files if command.search(file.read_text(encoding="utf-8"))]
