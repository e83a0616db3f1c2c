"""`onejob settings` shows the settings of a ledger and who changed them, and changes them."""

import json
from pathlib import Path

import pytest

from onejob.cli import main
from onejob.cli.exit_codes import DONE, FAILED, USAGE_ERROR


@pytest.fixture
def store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    url = f"sqlite:///{tmp_path / 'onejob.db'}"
    assert main(["submit", "t", "--key", "k", "--engine", url]) == DONE
    capsys.readouterr()
    return url


def test_settings_are_shown_changed_and_their_changes_noted(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "set", "window=2h", "--engine", store, "--dry-run"]) == DONE
    assert "window: 1d -> 2h\nnothing was changed" in capsys.readouterr().out
    assert main(["settings", "set", "window=2h", "--engine", store]) == DONE
    assert "window: 1d -> 2h\nchanged" in capsys.readouterr().out
    assert main(["settings", "set", "window=2h", "--engine", store]) == DONE
    assert capsys.readouterr().out == "nothing was changed: it is so already\n"
    assert main(["settings", "--engine", store, "--json"]) == DONE
    shown = json.loads(capsys.readouterr().out)
    assert shown["version"] == 2
    assert {"name": "window", "value": "2h", "isDefault": False} in shown["settings"]
    (noted,) = shown["changes"]
    assert (noted["version"], noted["actor"], noted["settings"]) == (2, "client:local", "window = 2h")
    assert main(["settings", "--engine", store]) == DONE
    assert "client:local" in capsys.readouterr().out


def test_an_owner_is_not_changed_while_a_key_is_live(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "set", "key_owner=user", "--engine", store, "--json"]) == FAILED
    change = json.loads(capsys.readouterr().out)
    assert (change["changed"], change["liveKeys"]) == (False, 1)
    assert change["lastKeyEndsAt"]
    assert "1 live key would be new under it; the last one ends at" in change["message"]


@pytest.mark.parametrize("pair", ["window", "owner=user", "window=", "key_owner=all", "committed_ttl=-1s"])
def test_a_wrong_setting_is_refused(store: str, pair: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "set", pair, "--engine", store]) == USAGE_ERROR
    assert capsys.readouterr().err.startswith("onejob: ")


def test_a_command_that_looks_sets_nothing(
    store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the variables of this shell say; a contradiction can be repaired from there."""
    monkeypatch.setenv("ONEJOB_WINDOW", "2h")
    assert main(["jobs", "--engine", store]) == DONE
    capsys.readouterr()
    assert main(["settings", "--engine", store, "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["version"] == 1
    assert main(["settings", "set", "window=3h", "--engine", store]) == DONE
    assert main(["submit", "t", "--key", "k2", "--engine", store]) == DONE, "a window of this submission alone"
    capsys.readouterr()
    assert main(["settings", "--engine", store, "--json"]) == DONE
    assert {"name": "window", "value": "3h", "isDefault": False} in json.loads(capsys.readouterr().out)["settings"]
