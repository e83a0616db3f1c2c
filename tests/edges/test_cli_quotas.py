"""The commands about quotas, on an engine and against a server: the same words, the same answers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from onejob import sync
from tests.edges.command_line import Command, service


@pytest.fixture(params=["engine", "server"])
def run(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Command]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONEJOB_API_KEY", raising=False)
    if request.param == "engine":
        yield Command(capsys)
        return
    with service(tmp_path) as url:
        yield Command(capsys, "--url", url)


def test_limits_of_a_user_are_set_shown_and_cleared(run: Command) -> None:
    told = run(
        "quota", "set", "local", "--max-concurrent", "1", "--cost", "12.50", "--action", "warn", "--json"
    )
    assert told.json["limits"] == {
        "maxConcurrent": 1,
        "costLimit": {"amount": 12.5, "period": "month", "action": "warn"},
    }
    assert "12.5 a month, then warn" in run("quota", "show", "local").out
    assert "1 of 1 concurrent jobs" in run("submit", "t", "--key", "1").out
    refused = run("submit", "t", "--key", "2")
    assert (refused.code, "Maximum 1 concurrent jobs allowed" in refused.err) == (6, True)
    assert "1 of 1: 1 live, 0 reserved" in run("usage").out
    assert run("quota", "clear", "local", "--json").json["limits"] == {}
    assert run("submit", "t", "--key", "2", "--cost", "0.25").code == 0
    assert run("usage", "--json").json["money"]["held"] == 0.25


def test_a_tenants_halves_are_set_one_by_one(run: Command) -> None:
    run("quota", "set", "--default", "--per-hour", "5")
    both = run("quota", "set", "--ceiling", "--per-day", "9", "--json").json
    assert both == {"default": {"jobsPerHour": 5}, "ceiling": {"jobsPerDay": 9}}
    assert run("quota", "show", "anybody", "--json").json["effective"] == {"jobsPerHour": 5, "jobsPerDay": 9}
    assert run("quota", "clear", "--default", "--json").json == {"default": {}, "ceiling": {"jobsPerDay": 9}}
    assert "per day    9" in run("quota", "show", "--ceiling").out


def test_reservations_are_listed_and_released(run: Command, tmp_path: Path) -> None:
    run("quota", "set", "42", "--max-concurrent", "1")
    with sync.open(f"sqlite:///{tmp_path / 'onejob.db'}", sweep=False) as queue:
        slot = queue.reserve_job_slot(42)
    assert slot is not None
    assert slot in run("reservations", "list", "--user", "42").out
    assert run("reservations", "list").out == "no reservations\n"
    assert run("reservations", "release", slot).out == f"released {slot}\n"
    assert (
        run("reservations", "list", "--user", "42", "--json").json["reservations"][0]["state"] == "released"
    )
    assert run("reservations", "release", "x").code == 2


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
def test_what_cannot_be_meant_is_refused(run: Command, words: tuple[str, ...]) -> None:
    assert run(*words).code == 2
