"""The command on PostgreSQL: migrate, doctor and submit."""

import json
from pathlib import Path

import pytest

from onejob.cli import main
from onejob.engines.postgres.schema import known_schema_version
from tests.support.postgres_server import Server


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(words)
    return code, capsys.readouterr().out


def test_tables_are_created_once(postgres: Server, capsys: pytest.CaptureFixture[str]) -> None:
    url = postgres.database()
    code, text = run(capsys, "migrate", "--engine", url, "--json")
    assert (code, json.loads(text)["before"], json.loads(text)["schema"]) == (0, 0, known_schema_version())
    code, text = run(capsys, "migrate", "--engine", url)
    assert (code, "newest" in text) == (0, True)


def test_a_sqlite_file_is_migrated_too(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(capsys, "migrate", "--engine", f"sqlite:///{tmp_path}/jobs.db", "--json")
    assert (code, json.loads(text)["before"]) == (0, 0)
    code, text = run(capsys, "migrate", "--engine", f"sqlite:///{tmp_path}/jobs.db", "--json")
    assert json.loads(text)["before"] == json.loads(text)["schema"]


def test_the_doctor_says_what_a_failover_may_lose(postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(capsys, "doctor", "--engine", postgres_url, "--json")
    findings = {one["check"]: one for one in json.loads(text)["findings"]}
    assert code == 0
    assert findings["durability"]["verdict"] == "ok"
    assert findings["failover"]["verdict"] == "warn"
    assert "quorum" in findings["failover"]["act"]


def run_doctor(capsys: pytest.CaptureFixture[str], url: str) -> tuple[int, dict[str, dict[str, str]]]:
    code, text = run(capsys, "doctor", "--engine", url, "--json")
    return code, {one["check"]: one for one in json.loads(text)["findings"]}


def test_the_doctor_checks_what_the_durability_needs(postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run_doctor(capsys, postgres_url)
    assert code == 0
    assert {name: one["verdict"] for name, one in found.items()} == {
        "server": "ok", "promise": "ok", "schema": "ok", "role": "warn", "connections": "ok",
        "engine": "ok", "settings": "ok", "durability": "ok", "failover": "warn", "clock": "ok",
    }  # fmt: skip
    assert "superuser" in found["role"]["found"]


def test_the_doctor_says_which_setting_breaks_a_promise(postgres: Server, capsys: pytest.CaptureFixture[str]) -> None:
    url = postgres.database()
    assert run(capsys, "migrate", "--engine", url)[0] == 0
    name = url.rpartition("/")[2]
    code, found = run_doctor(capsys, f"{url}?durability=quorum")
    assert (code, found["promise"]["verdict"]) == (1, "fail")
    assert "synchronous_standby_names" in found["promise"]["found"]
    psql(postgres, f"ALTER DATABASE {name} SET synchronous_commit = off")
    code, found = run_doctor(capsys, url)
    assert (code, found["promise"]["verdict"]) == (1, "fail")
    assert "synchronous_commit" in found["promise"]["found"]


GRANTS = (
    "GRANT USAGE ON SCHEMA public TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}",
)


def test_a_role_with_the_grants_of_the_production_page_can_serve(
    postgres: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without them, the doctor names what the role lacks."""
    page = (Path(__file__).parents[2] / "docs" / "production.md").read_text(encoding="utf-8")
    url = postgres.database()
    role, name = f"service_{url.rpartition('/')[2]}", url.rpartition("/")[2]
    assert run(capsys, "migrate", "--engine", url)[0] == 0
    psql(postgres, f"CREATE ROLE {role} LOGIN", name)
    role_url = url.replace("postgres@", f"{role}@")
    code, found = run_doctor(capsys, role_url)
    assert (code, found["role"]["verdict"]) == (1, "fail")
    for grant in GRANTS:
        assert grant.format(role="onejob") in page
        psql(postgres, grant.format(role=role), name)
    code, found = run_doctor(capsys, role_url)
    assert (code, found["role"]["verdict"]) == (0, "ok")
    assert main(["submit", "t", "--key", "k", "--engine", role_url]) == 0


def psql(postgres: Server, sql: str, database: str = "postgres") -> None:
    postgres.run("psql", "-h", "127.0.0.1", "-p", str(postgres.port), "-U", "postgres", "-d", database, "-c", sql)


def test_the_doctor_creates_no_tables(postgres: Server, capsys: pytest.CaptureFixture[str]) -> None:
    url = postgres.database()
    code, text = run(capsys, "doctor", "--engine", url)
    assert code == 1
    assert "onejob migrate" in text


def test_a_password_is_not_printed(postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    url = postgres_url.replace("postgres@", "postgres:hunter2@")
    for words in (("doctor",), ("migrate",), ("jobs",)):
        run_words = (*words, "--engine", url)
        code = main(run_words)
        printed = capsys.readouterr()
        assert code == 0
        assert "hunter2" not in printed.out + printed.err
