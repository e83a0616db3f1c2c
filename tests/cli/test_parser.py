"""Commands are found in their folder, and imported when they are used."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from onejob.cli.parser import FOLDER, GROUPS, find_commands
from tests.support.command_line import CommandRunner

HELLO = '''\
"""Greet somebody."""

from argparse import ArgumentParser, Namespace

from onejob.cli.render import write

EXAMPLE = "onejob say-hello Ada"


def add_arguments(command: ArgumentParser) -> None:
    command.add_argument("name", metavar="NAME", help="who is greeted")


def run(options: Namespace) -> int:
    write(f"hello {options.name}")
    return 0
'''
EXTRAS = [
    "apsw.bestpractice",
    "asyncpg",
    "httptools",
    "httpx",
    "jwt",
    "obstore",
    "prometheus_client",
    "psycopg",
    "pymysql",
]
EXTRAS += ["shtab", "sqlalchemy", "uvicorn", "uvloop"]


def test_every_group_names_commands_that_exist_and_every_command_has_a_group() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(find_commands())
    assert list(find_commands()) == grouped


def test_the_text_of_a_command_is_one_sentence() -> None:
    for name, text in find_commands().items():
        assert re.fullmatch(r"[A-Z].{5,}\.", text), name


def test_a_command_is_one_file_or_folder(tmp_path: Path) -> None:
    """It is there as soon as its file is, listed under the last title, and gone with it."""
    package = FOLDER.parents[1]
    shutil.copytree(package, tmp_path / "onejob", ignore=shutil.ignore_patterns("__pycache__", "console"))
    commands = tmp_path / "onejob" / "cli" / "commands"
    (commands / "say_hello.py").write_text(HELLO)
    (commands / "cancel.py").unlink()
    shutil.rmtree(commands / "doctor")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "onejob.cli", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)

    assert run("say-hello", "Ada").stdout == "hello Ada\n"
    text = run("--help").stdout
    assert "  say-hello         Greet somebody.\n" in text.partition("other commands:")[2]
    assert "\n  cancel " not in text
    assert "\n  doctor " not in text
    assert "invalid choice: 'cancel'" in run("cancel", "x").stderr
    assert run("jobs", "--help").returncode == 0


@pytest.mark.parametrize(
    ("words", "imported"), [(["--help"], []), (["--version"], []), (["job", "--help"], ["job", "result"])]
)
def test_only_the_command_that_is_used_is_imported(words: list[str], imported: list[str]) -> None:
    program = (
        f"import sys; from onejob.cli import main; main({words!r}); "
        "print(sorted(n.rpartition('.')[2] for n in sys.modules if n.startswith('onejob.cli.commands.')))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.splitlines()[-1] == str(imported)


def test_the_arguments_of_all_commands_are_known_without_any_extra() -> None:
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({EXTRAS!r}));"
        "from onejob.cli.parser import build_parser; build_parser()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_wrong_usage_of_run_once_has_the_exit_code_of_its_own_list(run: CommandRunner) -> None:
    for words in (
        ["run-once"],
        ["run-once", "k", "--nonsense", "--", "true"],
        ["run-once", "k", "--output", "x", "--", "true"],
    ):
        assert run(*words).code == 64, words
    assert run("jobs", "--nonsense").code == 2
