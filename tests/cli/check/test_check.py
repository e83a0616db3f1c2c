"""`onejob check`: our own APIs keep every rule, and wrong ones are told apart."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from onejob.cli.commands.check.rules import RULES
from tests.cli.check.broken_servers import (
    ANY_BODY,
    CHECK_THEN_ACT,
    FORGETFUL,
    NO_KEYS,
    REFUSING,
    RIGHT,
    SHARED_KEYS,
    OrderServer,
    run_order_server,
)
from tests.middleware.servers import APPS, REPOSITORY, THREADS, WSGI_APPS
from tests.support.command_line import ONEJOB, CommandRunner
from tests.support.postgres_server import free_port

pytestmark = pytest.mark.usefixtures("clean_environment")

# Which rules of level MUST a server breaks; racing duplicates of a lost request may show, or not.
MISTAKES: dict[str, tuple[set[str], set[str]]] = {
    RIGHT: (set(), set()),
    NO_KEYS: (
        {"replay", "race", "misuse", "bare-key", "header-name", "lost-answer", "other-user", "restart"},
        {"other-user"},
    ),
    CHECK_THEN_ACT: ({"race"}, {"lost-answer"}),
    ANY_BODY: ({"misuse"}, set()),
    FORGETFUL: ({"restart"}, set()),
    SHARED_KEYS: ({"other-user"}, set()),
}


def check_orders(run: CommandRunner, server: OrderServer, *words: str) -> Any:
    restart = f"{sys.executable} -c \"from urllib.request import urlopen; urlopen('{server.url}/restart')\""
    return run(
        "check", f"{server.url}/orders", "--body", '{"amount": 5}', "--id", "id", "--count", "GET /orders total",
        "--header", "X-User: ann", "--as", "X-User: bob", "--restart", restart, "--required", "--racers", "5", *words,
    )  # fmt: skip


def failed_musts(report: Any) -> set[str]:
    return {one["rule"] for one in report["verdicts"] if one["status"] == "failed" and one["level"] == "MUST"}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_wrong_servers_are_told_apart(mistake: str, run: CommandRunner) -> None:
    expected, possible = MISTAKES[mistake]
    with run_order_server(mistake) as server:
        result = check_orders(run, server, "--json")
    assert result.json["verdicts"]
    assert expected - possible <= failed_musts(result.json) <= expected | possible
    assert result.code == (1 if expected else 0)


def test_a_rule_of_level_should_fails_the_check_only_if_it_is_strict(run: CommandRunner) -> None:
    with run_order_server(RIGHT) as server:
        server.mismatch_status = 409
        assert check_orders(run, server, "--only", "misuse,misuse-status").code == 0
        assert check_orders(run, server, "--only", "misuse,misuse-status", "--strict").code == 1
        assert "<system-out>" in check_orders(run, server, "--only", "misuse-status", "--junit").out


def test_reports_are_text_json_and_junit(run: CommandRunner) -> None:
    with run_order_server(ANY_BODY) as server:
        text = check_orders(run, server, "--only", "replay,misuse").out
        assert "1 passed, 1 failed, 0 skipped, 0 unjudged" in text
        suite = ET.fromstring(check_orders(run, server, "--only", "replay,misuse", "--junit").out)
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "2", "failures": "1", "errors": "0", "skipped": "0",
    }  # fmt: skip
    assert [case.find("failure") is not None for case in suite.findall("testcase")] == [False, True]


def test_what_cannot_be_judged_is_no_failure_and_no_success(
    run: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onejob.cli.commands.check.rules.RETRY_SECONDS", 0.2)
    with run_order_server(RIGHT) as server:
        assert run("check", server.url, "--body", '{"a": 1}', "--id", "no.such", "--only", "replay").code == 2
        url = server.url
    result = run("check", url, "--body", '{"a": 1}', "--only", "replay", "--json")
    assert (result.code, result.json["verdicts"][0]["status"]) == (2, "unjudged")


def test_an_api_that_refuses_the_request_is_not_judged(run: CommandRunner) -> None:
    with run_order_server(REFUSING) as server:
        result = run("check", server.url, "--body", '{"a": 1}')
    assert result.code == 2
    assert "answered with 401, so that nothing can be judged" in result.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["https://shop.example/orders", "--body", '{"a": 1}'], "--yes-this-makes-real-orders"),
        (["ftp://127.0.0.1/"], "not that of an HTTP API"),
        (["http://127.0.0.1:1/"], "give one with --body"),
        (["http://127.0.0.1:1/", "--body", '{"a": 1}', "--vary", "b"], "no member b"),
        (["http://127.0.0.1:1/", "--body", "{"], "not JSON"),
        (["http://127.0.0.1:1/", "--body", '{"a": 1}', "--only", "x"], "there is no rule x"),
        (["http://127.0.0.1:1/", "--body", '{"a": 1}', "--header", "x"], "a colon"),
        (["http://127.0.0.1:1/", "--body", '{"a": 1}', "--racers", "1"], "2 to 100"),
    ],
)
def test_a_wrong_use_is_refused_before_anything_is_sent(words: list[str], message: str, run: CommandRunner) -> None:
    result = run("check", *words)
    assert result.code == 2
    assert message in result.err


@contextmanager
def run_restartable(folder: Path, *command: str, **environment: str) -> Iterator[str]:
    """Run a server that starts again whenever it is killed; the command that kills it."""
    loop = 'while :; do setsid "$@" & echo $! > pid; wait; done'
    process = subprocess.Popen(
        ["sh", "-c", loop, "sh", *command],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{REPOSITORY}/src:{REPOSITORY}"} | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"sh -c 'kill -s KILL -- -$(cat {folder}/pid)'"
    finally:
        process.kill()
        process.wait()
        with suppress(ProcessLookupError):
            os.killpg(int((folder / "pid").read_text(encoding="utf-8")), signal.SIGKILL)


def server_words(name: str, port: int) -> list[str]:
    if name == "service":
        return [*ONEJOB, "serve", "--port", str(port)]
    if name in WSGI_APPS:
        gunicorn = [
            sys.executable,
            "-m",
            "gunicorn",
            APPS[name],
            "--worker-class",
            "gthread",
            "--threads",
            str(THREADS),
        ]
        return [*gunicorn, "--bind", f"127.0.0.1:{port}", "--log-level", "critical"]
    return [sys.executable, "-m", "uvicorn", APPS[name], "--port", str(port), "--log-level", "critical"]


OPTIONS = {
    "service": ["/api/jobs", "--body", '{"type": "charge", "input": {"amount": 5}}', "--id", "job.id"],
    "fastapi": ["/api/plainly", "--body", '{"item": "x"}', "--id", "n", "--required"],
} | {name: ["/needed", "--body", '{"amount": 5}', "--id", "n", "--required"] for name in ("asgi", "wsgi", "django")}
USERS = {"fastapi": "Authorization"}


@pytest.mark.parametrize("name", OPTIONS)
def test_our_service_and_middlewares_keep_every_rule(name: str, tmp_path: Path, run: CommandRunner) -> None:
    port, (path, *words) = free_port(), OPTIONS[name]
    variables = {"COUNTED_FOLDER": str(tmp_path), "COUNTED_STORE": f"sqlite:///{tmp_path / 'keys.db'}"}
    skipped = {"service": {"required-key", "other-user"}}.get(name, set())
    if name != "service":
        header = USERS.get(name, "X-User")
        words += ["--header", f"{header}: ann", "--as", f"{header}: bob"]
    with run_restartable(tmp_path, *server_words(name, port), ONEJOB_MISMATCH_STATUS="422", **variables) as restart:
        result = run("check", f"http://127.0.0.1:{port}{path}", *words, "--restart", restart, "--strict", "--json")
    told = {one["rule"]: (one["status"], one["found"]) for one in result.json["verdicts"]}
    wrong = {rule: verdict for rule, verdict in told.items() if verdict[0] != "passed" and rule not in skipped}
    assert not wrong
    assert set(told) == {rule.name for rule in RULES}
    assert result.code == 0
