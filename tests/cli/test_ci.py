"""The command in CI: a key from the commit, waiting, outputs and annotations."""

import os
import pty
import subprocess
from pathlib import Path
from threading import Thread

import pytest

from onejob import sync
from onejob.cli import wait
from onejob.cli.commands import submit
from onejob.cli.render import ERASE_LINE, annotate
from onejob.core.key import checked_key
from onejob.settings import CI_SYSTEMS, CiEnvironment
from tests.support.command_line import ONEJOB, CommandRunner

GITHUB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_REPOSITORY": "acme/shop",
    "GITHUB_SHA": "5f0c2a9d4b7e",
    "GITHUB_WORKFLOW": "Build: all",
    "GITHUB_JOB": "deploy",
}
GITLAB = {
    "GITLAB_CI": "true",
    "CI_PROJECT_PATH": "acme/shop",
    "CI_COMMIT_SHA": "5f0c",
    "CI_JOB_NAME": "deploy: [eu]",
}
JENKINS = {"JENKINS_URL": "https://ci/", "JOB_NAME": "shop/main", "GIT_COMMIT": "5f0c"}
SUBMIT = ("submit", "deploy", "--key-from-ci")

pytestmark = pytest.mark.usefixtures("clean_environment", "no_ci")


@pytest.fixture
def no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    signs = {name for sign, names in CI_SYSTEMS.values() for name in (sign, *names)}
    for name in signs | {"GITHUB_OUTPUT"}:
        monkeypatch.delenv(name, raising=False)


def set_environment(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("variables", "key"),
    [
        (GITHUB, "github:acme/shop:5f0c2a9d4b7e:Build%3A%20all:deploy"),
        (GITLAB, "gitlab:acme/shop:5f0c:deploy%3A%20%5Beu%5D"),
        (JENKINS, "jenkins:shop/main:5f0c"),
    ],
)
def test_a_rerun_of_the_same_commit_gets_the_same_job(
    run: CommandRunner, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], key: str
) -> None:
    set_environment(monkeypatch, variables | {"GITHUB_RUN_ID": "1", "CI_JOB_ID": "1", "BUILD_NUMBER": "1"})
    first = run(*SUBMIT)
    set_environment(
        monkeypatch, {"GITHUB_RUN_ID": "2", "GITHUB_RUN_ATTEMPT": "2", "CI_JOB_ID": "2", "BUILD_NUMBER": "2"}
    )
    again = run(*SUBMIT)
    assert first.code == again.code == 0
    assert first.out.startswith("created")
    assert again.out.startswith("replayed")
    assert first.out.splitlines()[-1] == again.out.splitlines()[-1]
    assert first.out.splitlines()[-1].startswith("JOB_ID=")
    assert run("explain", key, "--scope", "deploy").code == 0


def test_key_parts_distinguish_submissions_of_one_ci_job(run: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch, GITHUB)
    ids = {run(*SUBMIT, "--key-part", part, "--json").json["jobId"] for part in ("eu", "us", "eu")}
    assert len(ids) == 2
    assert run("submit", "t", "--key-part", "x").code == 2
    assert run(*SUBMIT, "--key", "x").code == 2


def test_a_missing_variable_is_named_and_no_key_is_made(run: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch, {name: value for name, value in GITHUB.items() if name != "GITHUB_SHA"})
    ran = run(*SUBMIT)
    assert ran.code == 2
    assert "GITHUB_SHA" in ran.err


def test_outside_of_ci_the_commit_is_the_key(run: CommandRunner, tmp_path: Path) -> None:
    ran = run(*SUBMIT)
    assert ran.code == 2
    assert "give --key" in ran.err
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", "first"], cwd=tmp_path, check=True)
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=tmp_path, text=True).strip()
    assert run(*SUBMIT, "--json").json["idempotency"]["key"] == f"git:{commit}"


def test_a_long_key_is_a_digest_that_still_fits() -> None:
    parts = ["x" * 200, "y" * 200]
    assert submit._join_key_parts("github", parts) != submit._join_key_parts("github", ["x" * 200, "y" * 201])
    assert checked_key(submit._join_key_parts("github", parts)).startswith("github:sha256:")
    assert submit._join_key_parts("a", ["b:c", "d"]) != submit._join_key_parts("a", ["b", "c:d"])


def test_github_gets_outputs_and_annotations(
    run: CommandRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    output = tmp_path / "output"
    set_environment(monkeypatch, GITHUB | {"GITHUB_OUTPUT": str(output)})
    ran = run(*SUBMIT, "--json")
    job_id = ran.json["jobId"]
    assert f"::notice::onejob: created job {job_id}\n" in ran.err
    assert output.read_text().splitlines() == [
        f"job_id={job_id}",
        "outcome=created",
        "key=github:acme/shop:5f0c2a9d4b7e:Build%3A%20all:deploy",
    ]
    ran = run(*SUBMIT, "--input", '{"other": "100%"}')
    assert ran.code == 3
    assert "::error::onejob: this key already made job" in ran.err
    assert len(output.read_text().splitlines()) == 3


def test_an_output_file_that_cannot_be_written_does_not_fail_the_command(
    run: CommandRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    set_environment(monkeypatch, {"GITHUB_OUTPUT": str(tmp_path / "missing" / "output")})
    ran = run("submit", "t", "--key", "k")
    assert ran.code == 0
    assert "cannot be written" in ran.err


def test_annotations_cannot_be_forged(capsys: pytest.CaptureFixture[str]) -> None:
    annotate("error", "100%\n::notice::forged")
    assert capsys.readouterr().err == "::error::100%25%0A::notice::forged\n"


def test_waiting_exits_with_the_code_of_the_job(run: CommandRunner, tmp_path: Path) -> None:
    made = run("submit", "t", "--key", "k", "--wait-for", "1s", "--json")
    assert made.code == 9
    assert "state of the job: pending" in made.err
    cancel = Thread(target=_cancel, args=(tmp_path / "onejob.db", made.json["jobId"]))
    cancel.start()
    ended = run("submit", "t", "--key", "k", "--wait", "--json")
    cancel.join()
    assert ended.code == 8
    assert ended.json["job"]["state"] == "cancelled"


def test_a_sequence_number_is_not_waited_for(run: CommandRunner) -> None:
    number = ("--client", "c", "--sequence", "1", "--scope", "s", "--key", "k")
    assert run("submit", "t", *number, "--wait").code == 2
    assert run("jobs").code != 0, "nothing was submitted, not even a store was made"


def test_a_terminal_shows_a_bar() -> None:
    bars = {wait._bar_text(tenths / 10) for tenths in range(200)}
    assert {len(bar) for bar in bars} == {wait.BAR_WIDTH}
    assert len(bars) > 10


def test_the_bar_is_erased_at_the_end(tmp_path: Path) -> None:
    main, other = pty.openpty()
    words = [*ONEJOB, "submit", "t", "--key", "k", "--wait", "--wait-for", "1s"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=other) as running:
        os.close(other)
        assert running.wait(60) == 9
    shown = os.read(main, 65536).decode()
    os.close(main)
    assert "] pending for " in shown
    assert shown.endswith(ERASE_LINE)


def test_an_unknown_ci_system_is_none() -> None:
    assert CiEnvironment.from_env({"GITHUB_ACTIONS": "false", "CI": "true"}).system == ""


def _cancel(store: Path, job_id: str) -> None:
    with sync.open(f"sqlite:///{store}", sweep=False) as ledger:
        ledger.cancel(job_id)
