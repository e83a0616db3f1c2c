"""The command against unavailable, faulty and strict servers: it retries the same bytes, or sends them once."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Protocol

import pytest

from onejob.cli import backend
from tests.support.command_line import CommandRunner, ScriptedServer, http_response, problem_response, run_service

JOB_ID = "01a1e305-b1fa-7420-b68b-a05f87952eb0"
ACCEPTED = http_response(
    202,
    {
        "requestId": "r",
        "job": None,
        "idempotency": {"key": "k", "scope": "t", "outcome": "replayed", "expiresAt": None},
        "jobId": JOB_ID,
        "news": "from a newer server",
    },
)
NO_JOBS = http_response(200, {"requestId": "r", "jobs": [], "next": None})
AWAY = problem_response(503, "SERVICE_UNAVAILABLE", "Retry-After: 1", retryable=True)
HUNG_UP = b""
KEYED = ("submit", "t", "--key", "k", "--input", '{"a": 1}')
KEYLESS = ("submit", "t")


class MakeScriptedServer(Protocol):
    def __call__(self, *answers: bytes) -> ScriptedServer: ...


@pytest.fixture(autouse=True)
def _clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ONEJOB_API_KEY", "GITHUB_ACTIONS", "GITHUB_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(backend, "_PAUSE_MAX", 0.001)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandRunner:
    return CommandRunner(capsys)


@pytest.fixture
def make_scripted_server() -> Iterator[MakeScriptedServer]:
    with ExitStack() as stack:
        yield lambda *answers: stack.enter_context(closing(ScriptedServer(*answers)))


@pytest.mark.parametrize(
    "failure",
    [AWAY, HUNG_UP, http_response(502, "<html>"), *(ACCEPTED[:cut] for cut in (5, 17, 27, 40, -60, -1))],
)
def test_a_submission_with_a_key_is_retried_with_the_same_bytes(
    run: CommandRunner, make_scripted_server: MakeScriptedServer, failure: bytes
) -> None:
    server = make_scripted_server(failure, failure, ACCEPTED)
    ran = run(*KEYED, "--url", server.url, "--json")
    assert ran.code == 0
    assert ran.json["jobId"] == JOB_ID
    assert len(server.requests) == 3
    assert len(set(server.requests)) == 1
    assert b'"idempotencyKey":"k"' in server.requests[0]


@pytest.mark.parametrize("failure", [AWAY, HUNG_UP, http_response(502, "<html>")])
def test_a_submission_without_a_key_is_sent_once(
    run: CommandRunner, make_scripted_server: MakeScriptedServer, failure: bytes
) -> None:
    server = make_scripted_server(failure, ACCEPTED)
    ran = run(*KEYLESS, "--url", server.url)
    assert ran.code == 4
    assert len(server.requests) == 1


@pytest.mark.parametrize("words", [KEYED, ("jobs",), ("job", JOB_ID), ("cancel", JOB_ID)])
def test_retries_are_limited(
    run: CommandRunner, make_scripted_server: MakeScriptedServer, words: tuple[str, ...]
) -> None:
    server = make_scripted_server(*[AWAY] * (backend.ATTEMPTS_MAX + 1))
    ran = run(*words, "--url", server.url, "--json")
    assert ran.code == 4
    assert ran.json["error"]["code"] == "SERVICE_UNAVAILABLE"
    assert ran.json["error"]["retryable"]
    assert len(server.requests) == backend.ATTEMPTS_MAX


def test_an_unreachable_server_is_unavailable(run: CommandRunner, make_scripted_server: MakeScriptedServer) -> None:
    server = make_scripted_server()
    server.close()
    for words in (KEYED, KEYLESS, ("jobs",)):
        ran = run(*words, "--url", server.url)
        assert ran.code == 4
        assert "nothing was done" in ran.err


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (problem_response(400, "VALIDATION_ERROR"), 2),
        (problem_response(401, "UNAUTHORIZED"), 7),
        (problem_response(403, "FORBIDDEN"), 7),
        (problem_response(404, "NOT_FOUND"), 5),
        (problem_response(409, "CONFLICT"), 3),
        (problem_response(422, "CONFLICT"), 3),
        (problem_response(409, "IN_PROGRESS", "Retry-After: 3", retryable=True), 6),
        (problem_response(429, "QUOTA_EXCEEDED"), 6),
        (problem_response(429, "RATE_LIMITED", "Retry-After: 3", retryable=True), 6),
        (problem_response(418, "A_CODE_OF_A_NEWER_SERVER"), 1),
        (http_response(401, "<html>"), 7),
        (http_response(302, "", "Location: http://127.0.0.1:1/"), 2),
        (http_response(202, "<html>"), 1),
        (http_response(202, {"job": {}}), 1),
    ],
)
def test_the_code_of_a_problem_decides_the_exit(
    run: CommandRunner, make_scripted_server: MakeScriptedServer, answer: bytes, code: int
) -> None:
    server = make_scripted_server(answer)
    ran = run(*KEYED, "--url", server.url)
    assert ran.code == code
    assert ran.err.startswith("onejob: ")
    assert len(server.requests) == 1


@pytest.mark.parametrize("answer", [problem_response(500, "INTERNAL_ERROR"), http_response(500, "<html>")])
def test_an_internal_error_of_the_server_is_retried_a_few_times(
    run: CommandRunner, make_scripted_server: MakeScriptedServer, answer: bytes
) -> None:
    server = make_scripted_server(*[answer] * backend.ATTEMPTS_MAX)
    assert run(*KEYED, "--url", server.url).code == 1
    assert len(server.requests) == backend.ATTEMPTS_MAX
    assert len(set(server.requests)) == 1


def test_after_a_lost_response_a_refusal_that_another_attempt_may_not_get_is_not_definite(
    run: CommandRunner, make_scripted_server: MakeScriptedServer
) -> None:
    for refusal in (problem_response(401, "UNAUTHORIZED"), problem_response(429, "QUOTA_EXCEEDED")):
        server = make_scripted_server(HUNG_UP, refusal)
        ran = run(*KEYED, "--url", server.url)
        assert ran.code == 4
        assert "it may be done" in ran.err
    server = make_scripted_server(HUNG_UP, problem_response(422, "REJECTED"))
    assert run(*KEYED, "--url", server.url).code == 1
    server = make_scripted_server(HUNG_UP)
    assert "it may be done" in run(*KEYED, "--url", server.url).err


@pytest.mark.parametrize("words", [("resolve", JOB_ID, "rerun"), ("cancel", JOB_ID)])
def test_all_attempts_of_a_verb_have_one_key_that_a_lost_response_names(
    run: CommandRunner, make_scripted_server: MakeScriptedServer, words: tuple[str, ...]
) -> None:
    server = make_scripted_server(HUNG_UP, HUNG_UP, HUNG_UP, HUNG_UP)
    ran = run(*words, "--url", server.url)
    (key,) = {re.findall(rb"(?im)^idempotency-key: (.+?)\r$", request)[0].decode() for request in server.requests}
    assert len(server.requests) > 1
    assert f"it may be done; retry with --idempotency-key {key}" in ran.err
    second = make_scripted_server(HUNG_UP, HUNG_UP, HUNG_UP, HUNG_UP)
    run(*words, "--url", second.url)
    assert key.encode() not in second.requests[0]
    third = make_scripted_server(HUNG_UP, HUNG_UP, HUNG_UP, HUNG_UP)
    run(*words, "--url", third.url, "--idempotency-key", "mine")
    assert b'"mine"' in third.requests[-1]


def test_retry_for_also_waits_for_temporary_refusals(
    run: CommandRunner, make_scripted_server: MakeScriptedServer
) -> None:
    busy = problem_response(409, "IN_PROGRESS", "Retry-After: 0", retryable=True)
    server = make_scripted_server(*[busy] * 3, *[AWAY.replace(b"Retry-After: 1", b"Retry-After: 0")] * 3, ACCEPTED)
    assert run(*KEYED, "--url", server.url, "--retry-for", "30s").code == 0
    assert len(server.requests) == 7
    assert len(set(server.requests)) == 1


def test_a_server_is_used_without_httpx(make_scripted_server: MakeScriptedServer) -> None:
    server = make_scripted_server(AWAY, ACCEPTED)
    words = [*KEYED, "--url", server.url, "--json"]
    program = f"import sys; sys.modules['httpx'] = None; from onejob.cli import main; sys.exit(main({words!r}))"
    printed = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert json.loads(printed)["jobId"] == JOB_ID
    assert len(set(server.requests)) == 1


def test_an_api_key_is_sent_as_a_bearer_token_and_the_argument_comes_first(
    run: CommandRunner, make_scripted_server: MakeScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_scripted_server(NO_JOBS, NO_JOBS, NO_JOBS)
    run("jobs", "--url", server.url)
    monkeypatch.setenv("ONEJOB_API_KEY", "oj_environment")
    run("jobs", "--url", server.url)
    run("jobs", "--url", server.url, "--api-key", "oj_argument")
    assert b"Authorization" not in server.requests[0]
    assert b"\r\nAuthorization: Bearer oj_environment\r\n" in server.requests[1]
    assert b"\r\nAuthorization: Bearer oj_argument\r\n" in server.requests[2]


def test_a_server_may_be_mounted_below_a_path(run: CommandRunner, make_scripted_server: MakeScriptedServer) -> None:
    server = make_scripted_server(NO_JOBS)
    assert run("jobs", "--url", f"{server.url}/queue/").out == "no jobs\n"
    assert server.requests[0].startswith(b"GET /queue/api/jobs?limit=20 ")


def test_the_message_of_a_server_cannot_move_the_cursor(
    run: CommandRunner, make_scripted_server: MakeScriptedServer
) -> None:
    error = {"code": "FORBIDDEN", "message": "no\x1b[2J\nonejob: done", "retryable": False, "details": {}}
    body = {"type": "", "title": "", "status": 403, "detail": "", "requestId": "r", "error": error}
    server = make_scripted_server(http_response(403, body))
    ran = run(*KEYED, "--url", server.url)
    assert ran.err == "onejob: no?[2J?onejob: done\n"


def test_a_server_with_authentication_accepts_a_key_created_here(run: CommandRunner, tmp_path: Path) -> None:
    secret = run("apikey", "create", "ci", "--tenant", "acme", "--json").json["secret"]
    (tmp_path / "service.toml").write_text("auth = true\n")
    with run_service(tmp_path, "--config", "service.toml") as url:
        assert run("jobs", "--url", url).code == 7
        assert run(*KEYED, "--url", url, "--api-key", secret[:-1] + "_").code == 7
        made = run(*KEYED, "--url", url, "--api-key", secret, "--json").json
        assert made["job"]["actor"] == "client:ci"
        assert run("job", made["jobId"], "--tenant", "acme").code == 0
        assert run("doctor", "--url", url, "--api-key", secret).code == 0
        assert "fail  credential" in run("doctor", "--url", url).out
        key_id = run("apikey", "list", "--tenant", "acme", "--json").json["apiKeys"][0]["id"]
        assert run("apikey", "revoke", key_id, "--tenant", "acme").code == 0
        assert run(*KEYED, "--url", url, "--api-key", secret).code == 7


@pytest.mark.parametrize(("words", "told"), [((), "needs an API key"), (("--api-key", "oj_x"), "does not accept this")])
def test_an_unauthorized_command_says_whether_a_key_was_given(
    run: CommandRunner, make_scripted_server: MakeScriptedServer, words: tuple[str, ...], told: str
) -> None:
    server = make_scripted_server(problem_response(401, "UNAUTHORIZED"))
    ran = run("jobs", "--url", server.url, *words)
    assert ran.code == 7
    assert told in ran.err
    assert "--api-key" in ran.err
