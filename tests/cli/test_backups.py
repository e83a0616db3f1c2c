"""`onejob backup` and `onejob restore` beside a running service."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from onejob import sync
from onejob.errors import StoreRefused, Unavailable
from tests.support.command_line import ONEJOB, CommandRunner, run_service

pytestmark = pytest.mark.usefixtures("clean_environment")


def test_a_service_is_backed_up_while_it_runs_and_restored_when_it_has_stopped(
    run: CommandRunner, tmp_path: Path
) -> None:
    with run_service(tmp_path) as url:
        run("submit", "t", "--key", "before", "--url", url)
        made = command("backup", "copy.db", "--json", cwd=tmp_path)
        assert made.returncode == 0
        assert '"keys": 1' in made.stdout
        run("submit", "t", "--key", "after", "--url", url)
        refused = command("restore", "copy.db", cwd=tmp_path)
        assert refused.returncode == 4
        assert "open in another process" in refused.stderr
        assert run("submit", "t", "--key", "before", "--url", url).out.startswith("replayed")
    restored = run("restore", "copy.db")
    assert restored.code == 0
    assert "first used after 20" in restored.out
    assert "restart the managers, gates and services" in restored.out
    assert run("submit", "t", "--key", "before").out.startswith("replayed")
    assert run("submit", "t", "--key", "after").out.startswith("created")
    (aside,) = [name for name in os.listdir() if name.startswith("onejob.db.before-restore-") and name.endswith("Z")]
    assert run("submit", "t", "--key", "after", "--engine", f"sqlite:///{aside}").out.startswith("replayed")


def test_the_keys_of_the_gap_are_carried_over(run: CommandRunner) -> None:
    run("submit", "t", "--key", "before")
    run("backup", "copy.db")
    lost = run("submit", "t", "--key", "after", "--json").json["jobId"]
    aside = run("restore", "copy.db", "--json").json["setAside"]
    assert run("export", "gap.jsonl", "--engine", f"sqlite:///{aside}").code == 0
    imported = run("import", "gap.jsonl", "--json").json["counts"]
    assert (imported["stored"], imported["known"]) == (1, 1)
    assert run("submit", "t", "--key", "after", "--json").json["jobId"] == lost


def test_a_process_that_has_served_the_old_ledger_refuses_the_restored_one(run: CommandRunner, tmp_path: Path) -> None:
    with sync.open("sqlite:///onejob.db", sweep=False) as ledger:
        ledger.submit("t", idempotency_key="k")
        assert command("backup", "copy.db", cwd=tmp_path).returncode == 0
        # As if it had lost its file: it must not go on with another ledger at the same place.
        os.rename("onejob.db", "gone.db")
        for suffix in ("-wal", "-shm"):
            os.rename(f"onejob.db{suffix}", f"gone.db{suffix}")
        assert command("restore", "copy.db", cwd=tmp_path).returncode == 0
        with pytest.raises(Unavailable, match="moved, replaced or removed"):
            ledger.submit("t", idempotency_key="k2")
        for _ in range(2):
            with pytest.raises(StoreRefused, match="another ledger"):
                ledger.submit("t", idempotency_key="k2")


@pytest.mark.parametrize("url", ["postgresql://db.example/jobs", "s3://bucket/prefix", "memory://", "http://m:8002"])
def test_other_engines_are_told_where_to_read_on(run: CommandRunner, url: str) -> None:
    for words in (("backup", "copy.db"), ("restore", "copy.db")):
        ran = run(*words, "--engine", url)
        assert ran.code == 2
        assert "docs/backup.md" in ran.err


def command(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """In a process of its own, as an operator runs it."""
    return subprocess.run([*ONEJOB, *words], cwd=cwd, capture_output=True, text=True, check=False)


def test_an_older_copy_is_refused_until_its_loss_is_accepted(run: CommandRunner) -> None:
    kept = run("submit", "charge", "--key", "kept", "--json").json
    shutil.copy("onejob.db", "older.db")
    assert run("submit", "charge", "--key", "lost").code == 0
    shutil.copy("older.db", "onejob.db")
    refused = run("submit", "charge", "--key", "lost")
    assert refused.code
    assert "acknowledged commits: its journal was cut off or removed, or it is an older copy" in refused.err
    assert "onejob restore --accept-loss" in refused.err
    examined = run("doctor")
    assert examined.code == 1
    assert "--accept-loss" in examined.out
    for words in ((), ("older.db", "--accept-loss")):
        assert run("restore", *words).code == 2
    assert run("restore", "older.db", "--force").code == 2
    accepted = run("restore", "--accept-loss")
    assert accepted.code == 0
    assert "acknowledged commits are not in it" in accepted.out
    assert "restart the managers, gates and services" in accepted.out
    assert run("doctor").code == 0
    again = run("submit", "charge", "--key", "kept", "--json").json
    assert again["job"]["id"] == kept["job"]["id"]
    assert run("submit", "charge", "--key", "lost").out.startswith("created")
    repeated = run("restore", "--accept-loss")
    assert repeated.code == 2
    assert "no commit is known to be missing" in repeated.err
    assert "--force" in repeated.err
    assert "acknowledged" not in run("restore", "--accept-loss", "--force").out
