"""The command on an engine: input, stores, tenants, API keys and the environment."""

import io
from pathlib import Path

import pytest

from onejob import sync
from tests.support.command_line import CommandRunner

NOBODY = "01a1e2f5-39f9-73f8-930c-48a088963d1e"
ESCAPE = "\x1b"


pytestmark = pytest.mark.usefixtures("clean_environment")


def test_a_held_key_is_refused_for_now(
    on_engine: CommandRunner, durable_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sync.open(durable_url, sweep=False) as ledger:
        ledger.check_or_reserve("t", idempotency_key="k")
    monkeypatch.setenv("IDEMPOTENCY_PENDING_WAIT_TIMEOUT", "0")
    refused = on_engine("submit", "t", "--key", "k", "--json")
    assert refused.code == 6
    assert refused.json["error"]["code"] == "IN_PROGRESS"
    assert refused.json["error"]["retryable"]
    assert "the hold ends" in on_engine("explain", "k", "--scope", "t").out


def test_an_input_comes_from_arguments_a_file_or_standard_input(
    on_engine: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "input.json").write_bytes(b'{"name": "Gr\xc3\xb6\xc3\x9fe"}\n')
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"name": "Gr\\u00f6\\u00dfe"}')))
    submit = ("submit", "t", "--key", "k", "--json", "--input")
    ids = {on_engine(*submit, given).json["jobId"] for given in ('{"name":"Größe"}', "@input.json", "-")}
    assert len(ids) == 1
    (tmp_path / "large.json").write_bytes(b'"' + b"x" * (1 << 20) + b'"')
    assert on_engine(*submit, "@large.json").code == 2


def test_reading_creates_no_store(run: CommandRunner, tmp_path: Path) -> None:
    for words in (
        ("jobs",),
        ("keys",),
        ("job", NOBODY),
        ("explain", "k", "--scope", "t"),
        ("apikey", "list"),
    ):
        ran = run(*words)
        assert ran.code == 5
        assert "--engine" in ran.err
    assert not list(tmp_path.iterdir())


def test_a_store_that_must_be_fixed_is_a_failure_not_to_be_retried(run: CommandRunner, tmp_path: Path) -> None:
    (tmp_path / "onejob.db").write_bytes(b"this is not a database, whatever its name says" * 100)
    ran = run("submit", "t", "--json")
    assert ran.code == 1
    assert not ran.json["error"]["retryable"]


def test_the_engine_of_the_environment_is_used_unless_one_is_named(
    run: CommandRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ONEJOB_ENGINE", "sqlite:///environment.db")
    assert run("submit", "t").code == 0
    assert run("submit", "t", "--engine", "sqlite:///named.db").code == 0
    assert {path.suffix for path in tmp_path.iterdir() if path.stem in ("environment", "named")} >= {".db"}
    assert not (tmp_path / "onejob.db").exists()


def test_tenants_of_one_engine_do_not_meet(on_engine: CommandRunner) -> None:
    created = on_engine("submit", "t", "--key", "k", "--tenant", "acme", "--json").json
    assert on_engine("submit", "t", "--key", "k", "--json").json["jobId"] != created["jobId"]
    assert on_engine("job", created["jobId"]).code == 5
    assert on_engine("job", created["jobId"], "--tenant", "acme").code == 0


def test_an_api_key_for_an_empty_user_is_refused(on_engine: CommandRunner) -> None:
    assert on_engine("apikey", "create", "ci", "--user", "").code == 2
    assert on_engine("apikey", "list").out == "no API keys\n"


def test_an_api_key_is_printed_once_and_can_be_rotated_and_revoked(on_engine: CommandRunner) -> None:
    acme = ("--tenant", "acme")
    made = on_engine("apikey", "create", "ci", "--role", "submitter", "--user", "ann", *acme, "--json").json
    secret, key_id = made["secret"], made["apiKey"]["id"]
    assert made["apiKey"]["roles"] == ["submitter"]
    listed = on_engine("apikey", "list", *acme, "--json")
    assert [one["id"] for one in listed.json["apiKeys"]] == [key_id]
    assert secret not in listed.out
    rotated = on_engine("apikey", "rotate", key_id, *acme, "--overlap", "1h")
    assert secret not in rotated.out
    assert "cannot be shown again" in rotated.out
    assert "revoked" in on_engine("apikey", "revoke", key_id, *acme).out
    assert "revoked" in on_engine("apikey", "list", *acme).out
    assert on_engine("apikey", "list").out == "no API keys\n"
    assert on_engine("apikey", "revoke", "0" * 12, *acme).code == 5
