"""`onejob run-once`: one run per key, whatever happens to the process that runs it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import pytest

from onejob.cli import main
from onejob.cli.commands.run_once import exit_code_for
from onejob.errors import NotAllowed, OnejobError
from tests.support.command_line import ONEJOB

pytestmark = pytest.mark.usefixtures("clean_environment")

RUN = "echo ran >> runs; echo out; echo problem >&2"


def runs() -> int:
    return len(Path("runs").read_text(encoding="utf-8").splitlines()) if Path("runs").exists() else 0


def start(*words: str) -> "subprocess.Popen[str]":
    command = [*ONEJOB, "run-once", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = monotonic() + 20
    while not is_true():
        assert monotonic() < deadline
        sleep(0.02)


def is_running(pid_file: str) -> bool:
    """Whether the process that wrote its id runs; a zombie does not."""
    try:
        state = Path(f"/proc/{Path(pid_file).read_text(encoding='utf-8').strip()}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


def test_several_at_once_run_it_once_and_all_get_its_output_and_exit_code() -> None:
    racers = [start("k", "--output", "1k", "--", "sh", "-c", f"{RUN}; sleep 0.3") for _ in range(3)]
    told = [(*racer.communicate(timeout=120), racer.returncode) for racer in racers]
    assert told == [("out\n", "problem\n", 0)] * 3
    assert runs() == 1


def test_output_is_kept_only_on_request_and_no_more_than_that(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run-once", "plain", "--", "sh", "-c", RUN]) == 0
    assert capfd.readouterr() == ("out\n", "problem\n")
    assert main(["run-once", "plain", "--verbose", "--", "sh", "-c", RUN]) == 0
    out, err = capfd.readouterr()
    assert (out, runs()) == ("", 1)
    assert "not run again: it ended on " in err
    for _ in range(2):
        assert main(["run-once", "cut", "--output", "2", "--", "echo", "abc"]) == 0
    out, err = capfd.readouterr()
    assert out == "abc\nab"
    assert "only the beginning" in err


def test_a_failure_is_run_again_unless_failures_are_kept() -> None:
    for times in (1, 2):
        assert main(["run-once", "k", "--", "sh", "-c", "echo ran >> runs; exit 3"]) == 3
        assert runs() == times
    for _ in range(2):
        assert main(["run-once", "kept", "--keep-failures", "--", "sh", "-c", "echo ran >> runs; exit 4"]) == 4
    assert runs() == 3


def test_exit_codes_are_those_of_sysexits(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run-once", "k", "--", "true"]) == 0
    assert main(["run-once", "k", "--", "false"]) == 65
    assert main(["run-once", "k", "--at-most-once", "--", "true"]) == 65
    assert main(["run-once", "k", "--env", "PATH", "--", "true"]) == 65
    assert main(["run-once", "k"]) == 64
    assert main(["run-once", "", "--", "true"]) == 64
    assert main(["run-once", "k", "--output", "257k", "--", "true"]) == 64
    assert main(["run-once", "k2", "--", "no-such-command"]) == 127
    assert main(["run-once", "k2b", "--", "/"]) == 126
    assert main(["run-once", "k3", "--", "sh", "-c", "kill -TERM $$"]) == 128 + signal.SIGTERM
    assert main(["run-once", "k", "--engine", "sqlite:////no/such/folder/x.db", "--", "true"]) == 69
    assert exit_code_for(NotAllowed("")) == 77
    assert exit_code_for(OnejobError("")) == 70
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_killed_run_takes_its_command_along_and_is_run_again_after_the_lease() -> None:
    # The command leaves a process in the background, which must not survive either.
    script = "echo ran >> runs; sleep 60 & echo $! > background; echo $$ > pid; wait"
    words = ["k", "--lease", "2s", "--", "sh", "-c", f"[ -e pid ] || {{ {script}; }}"]
    first = start(*words)
    wait_until(Path("pid").exists)
    assert main(["run-once", "k", "--skip", *words[1:]]) == 75
    assert main(["run-once", "k", "--wait", "1s", *words[1:]]) == 75
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    wait_until(lambda: not is_running("pid") and not is_running("background"))
    assert main(["run-once", *words]) == 0
    assert runs() == 1  # this time it found the file


def test_at_most_once_never_starts_a_command_that_may_have_been_started(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["k", "--at-most-once", "--lease", "1s", "--", "sh", "-c", "echo ran >> runs; sleep 60"]
    first = start(*words)
    wait_until(lambda: runs() == 1)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    for _ in range(2):
        assert main(["run-once", *words]) == 70
        assert "how it ended is not known" in capfd.readouterr().err
    assert runs() == 1
    for _ in range(2):
        assert main(["run-once", "fails", "--at-most-once", "--", "sh", "-c", "echo ran >> runs; exit 1"]) == 1
    assert runs() == 2


def test_the_command_does_not_inherit_credentials(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in {
        "ONEJOB_API_KEY": "s3cret",
        "ONEJOB_GATE_KEY": "s3cret",
        "ONEJOB_ENGINE": "postgresql://me:s3cret@db.example/onejob",
        "ONEJOB_URL": "https://me:s3cret@onejob.example",
        "ONEJOB_WINDOW": "1h",
        "OTHER_API_KEY": "its own",
    }.items():
        monkeypatch.setenv(name, value)
    words = ["--engine", "sqlite:///keys.db", "--", "env"]
    assert main(["run-once", "k", *words]) == 0
    out = capfd.readouterr().out
    assert "s3cret" not in out
    assert "ONEJOB_ENGINE=postgresql://…" in out
    assert "ONEJOB_WINDOW=1h" in out
    assert "OTHER_API_KEY=its own" in out
    assert main(["run-once", "named", "--env", "ONEJOB_API_KEY", *words]) == 0
    assert "ONEJOB_API_KEY=s3cret" in capfd.readouterr().out


def test_a_signal_is_handed_on_and_the_command_may_clean_up() -> None:
    script = "trap 'echo cleaned; exit 7' TERM; echo ran >> runs; while :; do sleep 0.1; done"
    process = start("k", "--", "sh", "-c", script)
    wait_until(lambda: runs() == 1)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=120)[0] == "cleaned\n"
    assert process.returncode == 7
    stubborn = start("k2", "--grace", "1s", "--", "sh", "-c", "trap '' TERM; echo ran >> runs; while :; do :; done")
    wait_until(lambda: runs() == 2)
    stubborn.send_signal(signal.SIGTERM)
    stubborn.communicate(timeout=120)
    assert stubborn.returncode == 128 + signal.SIGKILL


def test_a_run_that_loses_its_lease_stops_its_command() -> None:
    words = ["k", "--lease", "1s", "--", "sh", "-c", "echo $$ > pid; [ -e again ] || exec sleep 60"]
    paused = start(*words)
    wait_until(lambda: Path("pid").exists() and is_running("pid"))
    paused.send_signal(signal.SIGSTOP)
    Path("again").touch()
    os.rename("pid", "first")
    assert main(["run-once", *words]) == 0  # takes the key over
    paused.send_signal(signal.SIGCONT)
    err = paused.communicate(timeout=120)[1]
    assert paused.returncode in (69, 75)
    assert "was stopped" in err
    assert not is_running("first")
