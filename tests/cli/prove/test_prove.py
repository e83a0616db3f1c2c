"""`onejob prove` finds nothing wrong with our servers, and finds a store that forgets. `make prove` runs it at full length."""

import sys
from argparse import ArgumentParser
from pathlib import Path

import pytest
from msgspec import json

from onejob.cli.commands import prove
from onejob.cli.commands.prove.campaign import Evidence, KeyEvidence, StoreContent, choose_fault, judge
from tests.support.command_line import CommandRunner
from tests.support.sqlite_files import RawConnection

FORGETFUL = (sys.executable, str(Path(__file__).parent / "forgetful_server.py"), "serve")


def evidence(told: dict[str, set[str]], jobs: dict[str, list[str]], records: dict[str, str] | None = None) -> Evidence:
    keys = {key: KeyEvidence(0.0, 1.0, ids) for key, ids in told.items()}
    named = records if records is not None else {key: ids[0] for key, ids in jobs.items()}
    return Evidence(keys=keys, content=StoreContent(jobs, named))


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (evidence({"a": {"1"}, "b": {"2"}}, {"a": ["1"], "b": ["2"]}), "2 keys, 2 jobs, 0 lost, 0 doubled"),
        (evidence({"a": {"1"}}, {}), "1 keys, 0 jobs, 1 lost, 0 doubled"),
        (evidence({"a": {"1"}}, {"a": ["2"]}), "1 keys, 1 jobs, 1 lost, 0 doubled"),
        (evidence({"a": {"1"}}, {"a": ["1"]}, {}), "1 keys, 1 jobs, 1 lost, 0 doubled"),
        (evidence({"a": {"1"}}, {"a": ["1", "2"]}), "1 keys, 2 jobs, 0 lost, 1 doubled"),
        (evidence({"a": {"1", "2"}}, {"a": ["1"]}), "1 keys, 1 jobs, 0 lost, 1 doubled"),
        (evidence({"a": set()}, {}), "1 keys, 0 jobs, 0 lost, 0 doubled, 1 unanswered"),
        (evidence({}, {}), "0 keys, 0 jobs, 0 lost, 0 doubled"),
        (evidence({"a": {"1"}}, {"a": ["1"], "z": ["9"]}), "1 keys, 2 jobs, 0 lost, 0 doubled"),
    ],
)
def test_what_callers_were_told_is_compared_with_the_store(found: Evidence, line: str) -> None:
    verdict = judge(found)
    assert str(verdict) == line
    assert verdict.is_kept is (line == "2 keys, 2 jobs, 0 lost, 0 doubled")


def test_the_faults_of_a_seed_are_the_same_and_end() -> None:
    kinds = [choose_fault("seed", f"k{n}", 0).kind for n in range(500)]
    assert kinds == [choose_fault("seed", f"k{n}", 0).kind for n in range(500)]
    assert set(kinds) == {"pass", "drop", "lose", "cut", "twice"}
    assert {choose_fault("seed", f"k{n}", 4).kind for n in range(500)} == {"pass"}


@pytest.mark.usefixtures("clean_environment")
def test_one_job_per_key_survives_kills_lost_answers_and_races(run: CommandRunner, tmp_path: Path) -> None:
    ran = run("prove", "sqlite:///mine.db", "--keys", "40", "--kills", "1", "--seed", "1")
    assert ran.out.splitlines()[-1] == "40 keys, 40 jobs, 0 lost, 0 doubled"
    assert ran.code == 0
    report = json.decode((tmp_path / "onejob-prove" / "report.json").read_bytes())
    assert report["kept"]
    assert report["engine"] == "sqlite:///mine.db"
    assert len(report["kills"]) == 1
    assert {"lose", "cut", "drop", "twice"} <= report["faults"].keys()
    assert report["outcomes"]["replayed"] > 40  # the copies of every key
    assert sum(report["answersOverTime"]) == 40
    assert report["line"] == "40 keys, 40 jobs, 0 lost, 0 doubled"
    with RawConnection("mine.db") as db:  # it deleted what it had made
        assert db.execute("SELECT (SELECT count(*) FROM record) + (SELECT count(*) FROM job)").get == 0


@pytest.mark.usefixtures("clean_environment")
def test_a_store_that_forgets_is_found_out(tmp_path: Path) -> None:
    command = ArgumentParser(epilog="")
    prove.add_arguments(command)
    options = command.parse_args(["--keys", "40", "--kills", "0"])
    verdict, _ = prove.prove(options, serve=FORGETFUL)
    assert not verdict.is_kept
    assert verdict.lost + verdict.doubled > 0, str(verdict)
    assert verdict.problems
    assert (tmp_path / "onejob-prove" / "prove.db").exists()  # the evidence is kept
    report = json.decode((tmp_path / "onejob-prove" / "report.json").read_bytes())
    assert report["verdict"]["problems"] == verdict.problems


def test_wrong_use_touches_nothing(run: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (("memory://",), ("--keys", "0"), ("--kills", "9999"), ("sqlite://",)):
        assert run("prove", *words).code == 2
    assert not list(tmp_path.iterdir())
