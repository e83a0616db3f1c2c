"""Sequence numbers on the command line: the same output on an engine and against a server."""

from contextlib import closing

import pytest

from onejob.cli import backend
from tests.support.command_line import CommandRunner, ScriptedServer, http_response, problem_response

CLIENT, SCOPE = "host1:billing/7", "acme/vault-1"
NUMBER = ("submit", "write", "--client", CLIENT, "--scope", SCOPE, "--input", '{"a": 1}')
STATE = ("client", "state", CLIENT, "--scope", SCOPE)


pytestmark = pytest.mark.usefixtures("clean_environment", "empty_store")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_PAUSE_MAX", 0.001)


def test_numbers_are_sent_and_shown(backend: CommandRunner) -> None:
    assert backend(*STATE, "--json").json["lastCommittedSequence"] == 0
    assert "never" in backend(*STATE).out
    first = backend(*NUMBER, "--sequence", "1", "--key", "k1", "--ttl", "2h", "--priority", "3", "--json")
    assert (first.code, first.json["outcome"], first.json["assignedSequence"]) == (0, "COMMITTED", 1)
    again = backend(*NUMBER, "--sequence", "1", "--key", "k1", "--json")
    assert (again.code, again.json["outcome"]) == (0, "ALREADY_COMMITTED")
    assert again.json["job"] == first.json["job"]
    text = backend(*NUMBER, "--sequence", "1", "--key", "k1")
    assert "ALREADY_COMMITTED number 1" in text.out
    assert first.json["job"]["id"] in text.out
    state = backend(*STATE)
    assert CLIENT in state.out
    assert "next" in state.out
    assert backend(*STATE, "--json").json["lastCommittedSequence"] == 1


def test_refusals_have_their_exit_codes(backend: CommandRunner) -> None:
    backend(*NUMBER, "--sequence", "1", "--key", "k1")
    gap = backend(*NUMBER, "--sequence", "3", "--key", "k3", "--json")
    assert "continue with 2" in gap.err
    assert (gap.code, gap.json["error"]["code"]) == (2, "SEQUENCE_GAP")
    assert gap.json["error"]["details"] == {"lastCommittedSequence": 1}
    used = backend(*NUMBER, "--sequence", "1", "--key", "other", "--json")
    assert (used.code, used.json["error"]["code"]) == (3, "ALREADY_COMMITTED")
    reused = backend("submit", "write", "--client", CLIENT, "--scope", SCOPE, "--sequence", "2", "--key", "k1")
    assert reused.code == 3


@pytest.mark.parametrize(
    "words",
    [
        ("--client", "c"),
        ("--sequence", "1"),
        ("--client", "c", "--sequence", "1", "--key", "k"),
        ("--client", "c", "--sequence", "1", "--scope", "s"),
        ("--client", "c", "--sequence", "0", "--scope", "s", "--key", "k"),
        ("--client", "", "--sequence", "1", "--scope", "s", "--key", "k"),
    ],
)
def test_an_incomplete_sequence_number_is_wrong_usage_and_sends_nothing(
    backend: CommandRunner, words: tuple[str, ...]
) -> None:
    before = backend("jobs", "--json").json["jobs"]
    assert backend("submit", "w", *words).code == 2
    assert backend("jobs", "--json").json["jobs"] == before


def test_a_sequence_number_is_retried_with_the_same_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    done = {
        "requestId": "r", "outcome": "COMMITTED", "clientId": CLIENT, "scope": SCOPE, "key": "k1",
        "assignedSequence": 1, "lastCommittedSequence": 1, "job": None, "jobs": [], "expiresAt": None,
        "warnings": [], "news": "from a newer server",
    }  # fmt: skip
    away = problem_response(503, "SERVICE_UNAVAILABLE", "Retry-After: 1", retryable=True)
    with closing(ScriptedServer(away, b"", http_response(202, done))) as server:
        ran = CommandRunner(capsys)(*NUMBER, "--sequence", "1", "--key", "k1", "--url", server.url)
        assert ran.code == 0
        assert len(server.requests) == 3
        assert len(set(server.requests)) == 1
        assert server.requests[0].startswith(b"POST /api/clients/host1%3Abilling%2F7/jobs ")
