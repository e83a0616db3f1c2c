"""What operators do on the command line, on an engine and against a server: lists, one act on many jobs, live screen."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from onejob import Delivery, sync
from onejob.cli.commands.completion import SHELLS
from tests.support.command_line import ONEJOB, CommandRunner, run_service

pytestmark = pytest.mark.usefixtures("clean_environment")


def lose_jobs(folder: Path, type: str, count: int) -> None:
    """At-most-once jobs whose worker died after the start."""
    with sync.open(f"sqlite:///{folder / 'onejob.db'}", sweep=False) as queue:
        for n in range(count):
            queue.submit(type, n, delivery=Delivery.AT_MOST_ONCE, labels={"n": str(n)})
        queue.claim(type, start=True, limit=count, lease=timedelta(milliseconds=100))
        time.sleep(0.15)
        queue.admin.sweep()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    folder = tmp_path_factory.mktemp("served")
    with run_service(folder) as url:
        yield folder, url


@pytest.fixture(params=["engine", "url"])
def target(request: pytest.FixtureRequest, served: tuple[Path, str], run: CommandRunner) -> CommandRunner:
    folder, url = served
    if request.param == "url":
        return run.with_arguments("--url", url)
    return run.with_arguments("--engine", f"sqlite:///{folder / 'onejob.db'}")


def test_lost_jobs_are_found_and_decided_together(run: CommandRunner, tmp_path: Path) -> None:
    lose_jobs(tmp_path, "charge", 4)
    with run_service(tmp_path) as url:
        for target in (("--url", url), ("--engine", "sqlite:///onejob.db")):
            lost = run("jobs", "--state", "lost", "--since", "1h", "--json", *target)
            assert {job["state"] for job in lost.json["jobs"]} == {"lost"}
        for words, code in {
            ("--rerun",): 2,  # nobody can be asked
            ("--rerun", "--yes", "--type", "none"): 0,
            ("--rerun", "--cancel"): 2,
            ("--yes",): 2,
        }.items():
            assert run("jobs", "--state", "lost", *words, "--url", url).code == code, words
        assert run("jobs", "--rerun", "--yes", "--url", url).code == 2  # every job
        assert run("jobs", "--rerun", "--yes", "--engine", "sqlite:///onejob.db").code == 2
        one = run("jobs", "--label", "n=1", "--resolve", "succeeded", "--yes", "--json", "--url", url)
        assert (one.code, one.json["matched"], one.json["changed"]) == (0, 1, 1)
        rest = run("jobs", "--state", "lost", "--rerun", "--yes", "--engine", "sqlite:///onejob.db")
        assert (rest.code, rest.out) == (0, "3 of 3 jobs run again\n")
        assert run("jobs", "--state", "lost", "--url", url).out == "no jobs\n"
        assert run("jobs", "--until", "1h", "--url", url).out == "no jobs\n"
        failed = run("jobs", "--state", "success", "--rerun", "--yes", "--url", url)
        assert failed.code == 1
        assert "0 of 1 jobs" in failed.out


def test_a_person_is_asked_and_told_how_many(
    run: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal:
        def __init__(self, answer: str) -> None:
            self.readline = lambda: answer

        def isatty(self) -> bool:
            return True

    for n in range(2):
        run("submit", "mail", "--key", f"k{n}")
    monkeypatch.setattr("sys.stdin", Terminal("\n"))
    refused = run("jobs", "--type", "mail", "--cancel")
    assert (refused.code, refused.out) == (1, "nothing was done; 2 jobs match\n")
    assert "cancel 2 jobs? [y/N]" in refused.err
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert run("jobs", "--type", "mail", "--cancel").out == "2 of 2 jobs cancelled\n"


def test_types_are_listed_paused_and_resumed(target: CommandRunner, request: pytest.FixtureRequest) -> None:
    type = "t-" + str(abs(hash(request.node.name)))
    target("submit", type)
    assert target("types", "pause", type, "--json").json == {"type": type, "paused": True}
    (listed,) = (one for one in target("types", "--json").json["types"] if one["type"] == type)
    assert listed["pausedBy"]
    assert re.search("(ago|now) by", target("types").out)
    assert "runs" in target("types", "resume", type).out
    assert target("types", "pause").code == 2


def test_statistics_and_workers_are_shown_once_where_there_is_no_terminal(target: CommandRunner) -> None:
    target("submit", "stat")
    for command in ("stats", "top"):
        shown = target(command)
        assert shown.code == 0
        assert "onejob on" in shown.out
        assert "\x1b" not in shown.out
    assert target("stats", "--json").json["states"]["pending"] >= 1
    assert "overview" in target("top", "--json").json
    assert "no workers" in target("workers").out
    assert target("workers", "--json").json == {"workers": []}


def test_the_url_comes_from_the_environment(
    run: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEJOB_URL", "http://127.0.0.1:1")
    monkeypatch.setattr("onejob.cli.backend._PAUSE_MAX", 0.001)
    away = run("jobs")
    assert away.code == 4
    assert "http://127.0.0.1:1" in away.err
    assert run("submit", "t", "--engine", "sqlite:///here.db").code == 0
    assert run("apikey", "create", "ci", "--engine", "sqlite:///here.db").code == 0


def test_a_command_on_an_engine_says_which_one_and_that_a_server_is_not_used(
    run: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEJOB_URL", "http://127.0.0.1:1")
    made = run("apikey", "create", "ci")
    assert "store" in made.out
    assert "sqlite:///onejob.db" in made.out
    assert "does not use ONEJOB_URL, it works on sqlite:///onejob.db" in made.err
    monkeypatch.setenv("ONEJOB_ENGINE", "sqlite:///named.db")
    assert run("apikey", "create", "ci").err == ""


def test_top_paints_a_live_screen_until_q(tmp_path: Path) -> None:
    with sync.open(f"sqlite:///{tmp_path / 'onejob.db'}", sweep=False) as queue:
        queue.submit("mail")
    here, there = pty.openpty()
    process = subprocess.Popen(
        [*ONEJOB, "top", "--interval", "1s"], cwd=tmp_path, stdin=there, stdout=there, stderr=there,
        env=os.environ | {"TERM": "xterm"},
    )  # fmt: skip
    try:
        os.close(there)
        shown = read_until(here, b"q: quit", 2)
        assert shown.startswith(b"\x1b[?1049h")
        assert b"mail" in shown
        os.write(here, b"q")
        assert b"\x1b[?1049l" in read_until(here, b"\x1b[?1049l", 1)
        assert process.wait(60) == 0
    finally:
        process.kill()
        os.close(here)


def read_until(descriptor: int, text: bytes, count: int) -> bytes:
    data, until = b"", time.monotonic() + 30
    while data.count(text) < count:
        assert time.monotonic() < until, data
        if select.select([descriptor], [], [], 1)[0]:
            try:
                data += os.read(descriptor, 65536)
            except OSError:  # the other side is closed
                assert data.count(text) >= count, data
    return data


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("onejob jo", {"job", "jobs"}),
        ("onejob jobs --sta", {"--state"}),
        ("onejob jobs --state l", {"lost"}),
        ("onejob types p", {"pause"}),
        ("onejob quota s", {"set", "show"}),
        ("onejob quota set 42 --per", {"--per-hour", "--per-day", "--period"}),
        ("onejob completion ", {"bash", "zsh", "fish"}),
    ],
)
def test_bash_completes_commands_options_and_choices(
    run: CommandRunner, tmp_path: Path, line: str, expected: set[str]
) -> None:
    (tmp_path / "script").write_text(run("completion", "bash").out)
    words = line.split(" ")
    program = (
        f"source ./script; COMP_WORDS=({' '.join(map(repr, words))}); COMP_CWORD={len(words) - 1}; "
        "$(complete -p onejob | sed 's/.*-F //; s/ .*//'); printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    ran = subprocess.run(["bash", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_is_in_the_script_of_every_shell(run: CommandRunner, shell: str) -> None:
    script = run("completion", shell)
    assert script.code == 0
    for word in ("serve", "worker", "jobs", "types", "apikey", "rotate", "state"):
        assert word in script.out
    assert sys.executable not in script.out
