"""The command on PostgreSQL: migrate, doctor, and work as on any engine."""

import json

import pytest

from onejob.cli import main
from onejob.engines.postgres.schema import known
from tests.postgres_server import Server


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(words)
    return code, capsys.readouterr().out


def test_tables_are_made_once(postgres: Server, capsys: pytest.CaptureFixture[str]) -> None:
    url = postgres.database()
    code, text = run(capsys, "migrate", "--engine", url, "--json")
    assert (code, json.loads(text)["before"], json.loads(text)["schema"]) == (0, 0, known())
    code, text = run(capsys, "migrate", "--engine", url)
    assert (code, "newest" in text) == (0, True)


def test_a_file_is_brought_forward_too(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(capsys, "migrate", "--engine", f"sqlite:///{tmp_path}/jobs.db", "--json")
    assert (code, json.loads(text)["before"]) == (0, 0)
    code, text = run(capsys, "migrate", "--engine", f"sqlite:///{tmp_path}/jobs.db", "--json")
    assert json.loads(text)["before"] == json.loads(text)["schema"]


def test_the_doctor_says_what_a_failover_may_lose(
    postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = run(capsys, "doctor", "--engine", postgres_url, "--json")
    findings = {one["check"]: one for one in json.loads(text)["findings"]}
    assert code == 0
    assert findings["durability"]["verdict"] == "ok"
    assert findings["failover"]["verdict"] == "warn"
    assert "quorum" in findings["failover"]["act"]


def test_the_doctor_makes_no_tables(postgres: Server, capsys: pytest.CaptureFixture[str]) -> None:
    url = postgres.database()
    code, text = run(capsys, "doctor", "--engine", url)
    assert code == 1
    assert "onejob migrate" in text


def test_a_password_is_not_printed(postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    url = postgres_url.replace("postgres@", "postgres:hunter2@")
    for words in (("doctor",), ("migrate",), ("jobs",)):
        run_words = (*words, "--engine", url)
        code = main(run_words)
        said = capsys.readouterr()
        assert code == 0
        assert "hunter2" not in said.out + said.err
