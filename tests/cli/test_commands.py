"""The interface for scripts: exit codes, JSON and arguments, on an engine and against a server."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

import onejob
from onejob import sync
from onejob.cli import main
from onejob.cli.exit_codes import EXIT_CODE_MEANINGS
from onejob.codes import CODES, ExitCode
from onejob.core.states import JobState
from tests.support.command_line import ONEJOB, CommandRunner

NOBODY = "01a1e2f5-39f9-73f8-930c-48a088963d1e"
ESCAPE = "\x1b"


pytestmark = pytest.mark.usefixtures("clean_environment")


def test_every_problem_has_an_exit_code_that_the_help_explains() -> None:
    assert EXIT_CODE_MEANINGS.keys() == set(ExitCode)
    assert {row.exit_code for row in CODES.values()} < EXIT_CODE_MEANINGS.keys()


def test_exit_codes_are_the_same_on_an_engine_and_against_a_server(
    backend: CommandRunner, request: pytest.FixtureRequest
) -> None:
    key = request.node.name
    submit = ("submit", "charge", "--key", key, "--input")
    first, again = backend(*submit, '{"a": 1}', "--json"), backend(*submit, ' {"a":1.0}', "--json")
    assert (first.code, again.code) == (0, 0)
    assert first.json["jobId"] == again.json["jobId"] == again.json["job"]["id"]
    assert (first.json["idempotency"]["outcome"], again.json["idempotency"]["outcome"]) == (
        "created",
        "replayed",
    )
    expected = {
        (*submit, '{"a": 2}'): 3,
        (*submit, "{"): 2,
        (*submit, '1, "priority": 5'): 2,
        (*submit, "@missing.json"): 2,
        ("submit", "", "--key", "x"): 2,
        ("submit", "t", "--key", ""): 2,
        ("submit", "t", "--key", "k" * 256): 2,
        ("submit", "t", "--ttl", "400d", "--key", key + "x"): 2,
        ("submit", "t", "--priority", "1001"): 2,
        ("job", NOBODY): 5,
        ("job", "nothing"): 2,
        ("job", ""): 2,
        ("cancel", NOBODY): 5,
        ("explain", "nobody", "--scope", "charge"): 5,
        ("explain", key, "--scope", ""): 2,
        ("jobs", "--cursor", "nothing"): 2,
        ("keys", "--cursor", "!"): 2,
    }
    met = {words: backend(*words).code for words in expected}
    assert met == expected


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("nothing",),
        ("submit",),
        ("explain", "k"),
        ("jobs", "--limit", "0"),
        ("jobs", "--state", "done"),
        ("submit", "t", "--ttl", "24"),
        ("submit", "t", "--run-at", "2030-01-01T00:00:00"),
        ("submit", "t", "--label", "x"),
        ("submit", "t", "--prio", "1"),
        ("jobs", "--engine", "memory://", "--url", "http://127.0.0.1:1"),
        ("jobs", "--engine", "mysql://x"),
        ("jobs", "--engine", "memory://", "--api-key", "k"),
        ("jobs", "--url", "http://127.0.0.1:1", "--tenant", "acme"),
        ("jobs", "--url", "ftp://x"),
        ("jobs", "--url", "http://user@127.0.0.1:1"),
        ("jobs", "--url", "http://127.0.0.1:1", "--api-key", "a\nb"),
        ("submit", "t", "--input", "\udcff"),
        ("apikey", "create", "ci", "--role", "king"),
        ("apikey", "create", "ci", "--tenant", ""),
        ("submit", "t", "--tenant", ""),
        ("jobs", "--tenant", ""),
        ("webhook-secret", "create", "--tenant", ""),
        ("apikey", "list", "--url", "http://127.0.0.1:1"),
    ],
)
def test_wrong_usage_exits_with_2_and_touches_nothing(
    run: CommandRunner, words: tuple[str, ...], tmp_path: Path
) -> None:
    ran = run(*words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err
    assert not list(tmp_path.iterdir())


def test_json_is_the_same_on_an_engine_and_against_a_server(
    run: CommandRunner, server_and_engine: tuple[str, str]
) -> None:
    url, engine = (
        run.with_arguments("--url", server_and_engine[0], "--json"),
        run.with_arguments("--engine", server_and_engine[1], "--json"),
    )
    key = "größe/1 %2F?"
    job = url("submit", "t", "--key", key, "--label", "a=b", "--priority", "-3", "--ttl", "90s").json
    assert job["job"]["labels"] == {"a": "b"}
    assert job["job"]["priority"] == -3
    again = url("submit", "t", "--key", key)
    assert again.json == engine("submit", "t", "--key", key).json
    for words in (
        ("job", job["jobId"]),
        ("jobs", "--type", "t"),
        ("jobs", "--state", "pending", "--limit", "1"),
        ("jobs", "--user", "local", "--limit", "1"),
        ("keys", "--user", "local"),
        ("cancel", job["jobId"]),
        ("keys", "--scope", "t"),
        ("explain", key, "--scope", "t"),
    ):
        there, here = (
            url(*words),
            engine(*words),
        )  # in this order, because the server first stores the hits that it counted in memory
        assert (here.code, here.json) == (0, there.json), words
        assert "requestId" not in here.json
    conflict = ("submit", "t", "--key", key, "--input", "1")
    assert engine(*conflict).json == url(*conflict).json
    assert engine(*conflict).json["error"]["code"] == "CONFLICT"


def test_pages_follow_each_other_by_their_cursor(backend: CommandRunner) -> None:
    for index in range(3):
        assert backend("submit", "paged", "--key", f"p{index}").code == 0
    for command, name in ((("jobs", "--type", "paged"), "jobs"), (("keys", "--scope", "paged"), "keys")):
        seen: list[Any] = []
        cursor: tuple[str, ...] = ()
        while True:
            page = backend(*command, "--limit", "2", *cursor, "--json").json
            seen += [one["key"] for one in page[name]]
            if page["next"] is None:
                break
            cursor = ("--cursor", page["next"])
        assert sorted(seen)[:3] == ["p0", "p1", "p2"]
        assert len(seen) == len(set(seen)) or name == "jobs"


def test_states_are_choices_of_the_parser(run: CommandRunner) -> None:
    run("submit", "t")
    for state in JobState:
        assert run("jobs", "--state", state).code == 0


def test_main_returns_its_code_and_never_exits() -> None:
    assert main(["--version"]) == 0
    assert main(["nothing"]) == 2


def test_json_output_is_valid_json(run: CommandRunner) -> None:
    raw = run("submit", "t", "--json").out
    assert msgspec.json.decode(raw) == json.loads(raw)
    assert raw.endswith("}\n")


@pytest.mark.parametrize(
    ("words", "known"),
    [
        (("apikey", "create", "ci", "--role", "king"), "'submitter', 'worker', 'operator', 'admin'"),
        (("jobs", "--state", "done"), "'preparing', "),
        (("submit", "t", "--delivery", "twice"), "'at_least_once', 'at_most_once'"),
    ],
)
def test_a_wrong_choice_is_answered_with_the_valid_ones(run: CommandRunner, words: tuple[str, ...], known: str) -> None:
    ran = run(*words)
    assert ran.code == 2
    assert known in ran.err
    assert "<" not in ran.err


def test_jobs_can_be_listed_by_user(backend: CommandRunner) -> None:
    backend("submit", "t")
    assert backend("jobs", "--user", "local", "--json").json["jobs"]
    assert not backend("jobs", "--user", "nobody", "--json").json["jobs"]


def test_the_history_of_a_key_in_the_reserved_scope_is_shown_by_both_backends(backend: CommandRunner) -> None:
    made = backend("submit", "queue", "--key", "reserved", "--json").json
    assert made["idempotency"]["scope"] == "type:queue"
    explained = backend("explain", "reserved", "--scope", "type:queue", "--json")
    assert (explained.code, explained.json["job"]["id"]) == (0, made["jobId"])
    assert backend("submit", "t", "--scope", "type:queue", "--key", "k").code == 2


def test_the_key_of_a_user_is_found_on_the_engine_by_the_name_of_the_user(
    on_engine: CommandRunner, durable_url: str
) -> None:
    with sync.open(durable_url, sweep=False, key_owner="user") as ledger:
        own = ledger.acting_as(tenant="default", user="ann", actor=onejob.Actor.user("ann"))
        job_id = own.submit("t", idempotency_key="anns").job_id
    assert on_engine("explain", "anns", "--scope", "t").code == 5
    assert on_engine("explain", "anns", "--scope", "t", "--user", "bob").code == 5
    assert on_engine("explain", "anns", "--scope", "t", "--user", "ann", "--json").json["job"]["id"] == job_id
    assert [one["key"] for one in on_engine("keys", "--user", "ann", "--json").json["keys"]] == ["anns"]
    assert not on_engine("keys", "--user", "bob", "--json").json["keys"]


def test_a_server_prints_in_json_that_it_is_ready_or_why_not(tmp_path: Path) -> None:
    serve = [*ONEJOB, "serve", "--port", "0", "--json"]
    with subprocess.Popen(serve, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert ready["address"].startswith("http://127.0.0.1:")
    assert (ready["engine"], ready["durability"]) == ("sqlite:///onejob.db", "disk")
    for words in (("--host", "0.0.0.0"), ("--host", "203.0.113.1"), ("--engine", "mysql://x")):
        ran = subprocess.run([*serve, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert ran.returncode == 2
        assert json.loads(ran.stdout)["error"]["code"] == "VALIDATION_ERROR"
    (tmp_path / "diary.db").write_bytes(b"dear diary, " * 1000)
    ran = subprocess.run([*serve, "--engine", "sqlite:///diary.db"], cwd=tmp_path, capture_output=True, text=True,
                         timeout=120, check=False)  # fmt: skip
    assert ran.returncode == 2
    assert json.loads(ran.stdout)["error"]["code"] == "SERVICE_UNAVAILABLE"


def test_a_misspelt_variable_stops_the_command(run: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEJOB_ENGIN", "memory://")
    ran = run("jobs", "--json")
    assert ran.code == 2
    assert "did you mean ONEJOB_ENGINE" in ran.err
    assert ran.json["error"]["code"] == "VALIDATION_ERROR"
