"""The quota commands: the same output on an engine and against a server."""

import pytest

from onejob import sync
from tests.support.command_line import CommandRunner

pytestmark = pytest.mark.usefixtures("clean_environment", "empty_store")


def test_limits_of_a_user_are_set_shown_and_cleared(backend: CommandRunner) -> None:
    response = backend(
        "quota", "set", "local", "--max-concurrent", "1", "--cost", "12.50", "--action", "warn", "--json"
    )
    assert response.json["limits"] == {
        "maxConcurrent": 1,
        "costLimit": {"amount": 12.5, "period": "month", "action": "warn"},
    }
    assert "12.5 a month, then warn" in backend("quota", "show", "local").out
    assert "1 of 1 concurrent jobs" in backend("submit", "t", "--key", "1").out
    refused = backend("submit", "t", "--key", "2")
    assert (refused.code, "Maximum 1 concurrent jobs allowed" in refused.err) == (6, True)
    assert "1 of 1: 1 live, 0 reserved" in backend("usage").out
    assert backend("quota", "clear", "local", "--json").json["limits"] == {}
    assert backend("submit", "t", "--key", "2", "--cost", "0.25").code == 0
    assert backend("usage", "--json").json["money"]["held"] == 0.25


def test_a_tenants_halves_are_set_one_by_one(backend: CommandRunner) -> None:
    backend("quota", "set", "--default", "--per-hour", "5")
    both = backend("quota", "set", "--ceiling", "--per-day", "9", "--json").json
    assert both == {"default": {"jobsPerHour": 5}, "ceiling": {"jobsPerDay": 9}}
    assert backend("quota", "show", "anybody", "--json").json["effective"] == {"jobsPerHour": 5, "jobsPerDay": 9}
    assert backend("quota", "clear", "--default", "--json").json == {"default": {}, "ceiling": {"jobsPerDay": 9}}
    assert "per day    9" in backend("quota", "show", "--ceiling").out


def test_reservations_are_listed_and_released(backend: CommandRunner, server_and_engine: tuple[str, str]) -> None:
    backend("quota", "set", "42", "--max-concurrent", "1")
    with sync.open(server_and_engine[1], sweep=False) as queue:
        slot = queue.reserve_job_slot(42)
    assert slot is not None
    assert slot in backend("reservations", "list", "--user", "42").out
    assert backend("reservations", "list").out == "no reservations\n"
    assert backend("reservations", "release", slot).out == f"released {slot}\n"
    assert backend("reservations", "list", "--user", "42", "--json").json["reservations"][0]["state"] == "released"
    assert backend("reservations", "release", "x").code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("quota", "set", "42"),
        ("quota", "set", "--max-concurrent", "1"),
        ("quota", "set", "42", "--default", "--max-concurrent", "1"),
        ("quota", "set", "42", "--max-concurrent", "-1"),
        ("quota", "set", "42", "--max-concurrent", "1.5"),
        ("quota", "set", "42", "--cost", "much"),
        ("quota", "set", "42", "--cost", "1", "--period", "year"),
        ("quota", "show"),
        ("submit", "t", "--cost", "-1"),
    ],
)
def test_invalid_arguments_are_refused(backend: CommandRunner, words: tuple[str, ...]) -> None:
    assert backend(*words).code == 2
