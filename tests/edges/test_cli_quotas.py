"""The commands about quotas, on an engine and against a server: the same words, the same answers."""

import pytest

from onejob import sync
from tests.edges.command_line import Command

pytestmark = pytest.mark.usefixtures("bare_surroundings", "emptied")


def test_limits_of_a_user_are_set_shown_and_cleared(door: Command) -> None:
    told = door("quota", "set", "local", "--max-concurrent", "1", "--cost", "12.50", "--action", "warn", "--json")
    assert told.json["limits"] == {
        "maxConcurrent": 1,
        "costLimit": {"amount": 12.5, "period": "month", "action": "warn"},
    }
    assert "12.5 a month, then warn" in door("quota", "show", "local").out
    assert "1 of 1 concurrent jobs" in door("submit", "t", "--key", "1").out
    refused = door("submit", "t", "--key", "2")
    assert (refused.code, "Maximum 1 concurrent jobs allowed" in refused.err) == (6, True)
    assert "1 of 1: 1 live, 0 reserved" in door("usage").out
    assert door("quota", "clear", "local", "--json").json["limits"] == {}
    assert door("submit", "t", "--key", "2", "--cost", "0.25").code == 0
    assert door("usage", "--json").json["money"]["held"] == 0.25


def test_a_tenants_halves_are_set_one_by_one(door: Command) -> None:
    door("quota", "set", "--default", "--per-hour", "5")
    both = door("quota", "set", "--ceiling", "--per-day", "9", "--json").json
    assert both == {"default": {"jobsPerHour": 5}, "ceiling": {"jobsPerDay": 9}}
    assert door("quota", "show", "anybody", "--json").json["effective"] == {"jobsPerHour": 5, "jobsPerDay": 9}
    assert door("quota", "clear", "--default", "--json").json == {"default": {}, "ceiling": {"jobsPerDay": 9}}
    assert "per day    9" in door("quota", "show", "--ceiling").out


def test_reservations_are_listed_and_released(door: Command, store: tuple[str, str]) -> None:
    door("quota", "set", "42", "--max-concurrent", "1")
    with sync.open(store[1], sweep=False) as queue:
        slot = queue.reserve_job_slot(42)
    assert slot is not None
    assert slot in door("reservations", "list", "--user", "42").out
    assert door("reservations", "list").out == "no reservations\n"
    assert door("reservations", "release", slot).out == f"released {slot}\n"
    assert door("reservations", "list", "--user", "42", "--json").json["reservations"][0]["state"] == "released"
    assert door("reservations", "release", "x").code == 2


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
def test_what_cannot_be_meant_is_refused(door: Command, words: tuple[str, ...]) -> None:
    assert door(*words).code == 2
