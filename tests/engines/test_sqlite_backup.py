"""Backup and restore of a SQLite store: online, verified, atomic; and a restored store is another ledger."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import onejob
from onejob.conformance.samples import submit
from onejob.engines.sql import load_migrations
from onejob.engines.sqlite import SqliteEngine, backup, schema
from onejob.errors import Invalid, StoreRefused, Unavailable
from tests.crash import strace
from tests.support.command_line import ONEJOB
from tests.support.sqlite_files import RawConnection, exists, pragma

PAGE = 4096


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A closed store with the keys k0 to k19."""
    path = str(tmp_path / "a.db")
    fill(path, 0, 20)
    return path


@pytest.fixture
def copy(tmp_path: Path) -> str:
    return str(tmp_path / "copy.db")


def fill(path: str, first: int, last: int) -> list[str]:
    """Submit keys; what they were answered with."""

    async def run() -> list[str]:
        async with onejob.open(f"sqlite:///{path}", sweep=False) as ledger:
            return [(await ledger.submit("t", {"n": n}, idempotency_key=f"k{n}")).outcome for n in range(first, last)]

    return asyncio.run(run())


def flip_bit(path: str, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        (old,) = file.read(1)
        file.seek(at)
        file.write(bytes([old ^ 1]))


def test_a_copy_is_of_one_moment_while_others_write(store: str, copy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "_STEP_PAGES", 1)
    pages: list[int] = []
    with RawConnection(store) as db:
        rows: list[Any] = db.execute("SELECT generation, (SELECT count(*) FROM policy) FROM ledger").fetchall()
        commits, policies = rows[0]

    def write_between(done: int, _: int) -> None:
        pages.append(done)
        with RawConnection(store) as db:
            db.execute("UPDATE ledger SET generation = generation + 1")
            db.execute("INSERT INTO policy SELECT ?, '', '', x'', 0, 1, 1, 0", (b"policy%d" % done,))

    made = backup.back_up(store, copy, on_progress=write_between)
    assert len(pages) > 10
    assert backup.verify_copy(copy) == made
    assert (made.keys, made.jobs, made.commits, made.counts["policy"]) == (20, 20, commits, policies)
    with RawConnection(store) as db:
        assert db.execute("SELECT generation FROM ledger").get == commits + len(pages)


def test_a_copy_opens_as_a_store_and_knows_its_keys(store: str, copy: str) -> None:
    backup.back_up(store, copy)
    assert os.stat(copy).st_mode & 0o777 == 0o600
    assert not exists(copy + "-wal")
    assert fill(copy, 0, 21) == ["replayed"] * 20 + ["created"]


def test_what_exists_is_replaced_only_by_force(store: str, copy: str) -> None:
    Path(copy).write_text("precious", encoding="utf-8")
    with pytest.raises(Invalid, match="--force"):
        backup.back_up(store, copy)
    assert Path(copy).read_text(encoding="utf-8") == "precious"
    backup.back_up(store, copy, force=True)
    assert backup.verify_copy(copy).keys == 20


def test_a_store_is_never_the_target_of_a_backup(store: str, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="the store itself"):
        backup.back_up(store, store, force=True)
    other = str(tmp_path / "other.db")
    fill(other, 0, 1)
    with pytest.raises(Invalid, match="is or was a store"):
        backup.back_up(store, other, force=True)
    with pytest.raises(Invalid, match="no folder"):
        backup.back_up(store, str(tmp_path / "none" / "copy.db"))
    with pytest.raises(Invalid, match="no store"):
        backup.back_up(str(tmp_path / "missing.db"), other)


def test_a_damaged_source_gives_no_copy(store: str, copy: str) -> None:
    flip_bit(store, os.stat(store).st_size // PAGE // 2 * PAGE + 4000)
    with pytest.raises(StoreRefused, match=r"damaged.*wrong checksum"):
        backup.back_up(store, copy)
    assert not [name for name in os.listdir(os.path.dirname(copy)) if name.startswith("copy")]


def test_a_store_that_lacks_acknowledged_commits_gives_no_copy(store: str, copy: str, tmp_path: Path) -> None:
    """A copy of it would take the place of the last good one, night after night."""
    shutil.copy(store, copy)
    fill(store, 20, 22)
    shutil.copy(store, store + ".newest")
    last_good = str(tmp_path / "good.db")
    made = backup.back_up(store, last_good)
    shutil.copy(copy, store)
    with pytest.raises(StoreRefused, match=r"lacks its last \d acknowledged commits.*--accept-loss"):
        backup.back_up(store, last_good, force=True)
    other = str(tmp_path / "other.db")
    fill(other, 0, 1)
    shutil.copy(other, store)
    with pytest.raises(StoreRefused, match=r"holds another ledger.*--accept-loss"):
        backup.back_up(store, last_good, force=True)
    assert backup.verify_copy(last_good) == made
    shutil.copy(store + ".newest", store)
    assert backup.back_up(store, last_good, force=True) == made


def test_commits_that_the_replaced_store_lacked_are_lost_too(store: str, copy: str) -> None:
    made = backup.back_up(store, copy)
    shutil.copy(copy, store + ".older")
    fill(store, 20, 22)
    later = read_ledger(store).generation - made.commits
    shutil.copy(store + ".older", store)
    assert backup.restore(copy, store).commits_lost == later >= 2
    again = backup.back_up(store, copy, force=True)
    assert again.ledger_id != made.ledger_id
    fill(store, 20, 23)
    later = read_ledger(store).generation - again.commits
    Path(store).write_bytes(b"rubbish" * 1000)
    assert backup.restore(copy, store).commits_lost == later >= 3
    assert (
        backup.restore(copy, store).commits_lost is None
    )  # the store that is replaced is another ledger than the copy


def test_two_runs_to_one_file_do_not_mix(store: str, copy: str) -> None:
    def run_second(*_: int) -> None:
        with pytest.raises(Unavailable, match="another run"):
            backup.back_up(store, copy)

    backup.back_up(store, copy, on_progress=run_second)
    assert backup.verify_copy(copy).keys == 20


def test_a_full_disk_leaves_neither_a_copy_nor_a_part_of_one(store: str, copy: str) -> None:
    strace.skip_unless_traceable()
    inject = "pwrite64:error=ENOSPC:when=9+"
    command = [
        "strace",
        "-f",
        "--seccomp-bpf",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=pwrite64",
        "-e",
        f"inject={inject}",
    ]
    full = subprocess.run(
        [*command, *ONEJOB, "backup", copy, "--engine", f"sqlite:///{store}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert full.returncode == 4, full.stderr
    assert "is full: nothing was done; free some space" in full.stderr
    assert not [name for name in os.listdir(os.path.dirname(copy)) if name.startswith("copy")]


def test_a_restored_store_is_another_ledger_and_the_old_one_is_kept(store: str, copy: str) -> None:
    made = backup.back_up(store, copy)
    fill(store, 20, 30)
    os.chmod(store, 0o640)
    done = backup.restore(copy, store)
    assert os.stat(store).st_mode & 0o777 == 0o640
    assert done.replaced is not None
    assert (done.replaced.keys, done.restored.keys) == (30, 20)
    assert done.commits_lost == done.replaced.commits - made.commits
    assert done.restored.ledger_id != made.ledger_id == done.replaced.ledger_id
    assert done.restored.commits == made.commits + 1
    assert fill(store, 19, 21) == ["replayed", "created"]
    assert fill(done.set_aside, 29, 31) == ["replayed", "created"]
    assert backup.verify_copy(copy) == made  # it can be restored again


def test_a_restore_needs_no_old_store_and_replaces_a_damaged_one(store: str, copy: str, tmp_path: Path) -> None:
    backup.back_up(store, copy)
    fresh = str(tmp_path / "fresh.db")
    done = backup.restore(copy, fresh)
    assert (done.replaced, done.set_aside, done.commits_lost) == (None, "", None)
    assert fill(fresh, 0, 1) == ["replayed"]
    Path(store).write_bytes(b"rubbish" * 1000)
    done = backup.restore(copy, store)
    assert done.replaced is None
    assert Path(done.set_aside).read_bytes() == b"rubbish" * 1000
    assert fill(store, 0, 1) == ["replayed"]


def test_what_is_no_backup_is_not_restored(store: str, copy: str, tmp_path: Path) -> None:
    foreign = str(tmp_path / "foreign.db")
    db = sqlite3.connect(foreign)
    db.execute("CREATE TABLE shop (id)")
    db.commit()
    db.close()
    backup.back_up(store, copy)
    flip_bit(copy, os.stat(copy).st_size - 100)
    for wrong in (foreign, copy, __file__):
        with pytest.raises(StoreRefused):
            backup.restore(wrong, store)
    with pytest.raises(Invalid, match="no file"):
        backup.restore(str(tmp_path / "missing.db"), store)
    backup.back_up(store, copy, force=True)
    with pytest.raises(Invalid, match="another program's database"):
        backup.restore(copy, foreign)
    with pytest.raises(Invalid, match="the store itself"):
        backup.restore(store, store)
    os.symlink(str(tmp_path / "missing.db"), str(tmp_path / "lost.db"))
    with pytest.raises(Unavailable, match="symbolic link"):
        backup.restore(copy, str(tmp_path / "lost.db"))
    assert fill(store, 0, 1) == ["replayed"]


def test_a_copy_by_another_program_is_refused(store: str, copy: str) -> None:
    """Its first page was changed without a new checksum. In a process of its own: two libraries break each other's locks."""
    code = "import sqlite3, sys; a, b = map(sqlite3.connect, sys.argv[1:]); a.backup(b); b.commit()"
    subprocess.run([sys.executable, "-c", code, store, copy], check=True)
    with pytest.raises(StoreRefused, match="`onejob backup`"):
        backup.restore(copy, store)


def test_a_copy_of_an_older_version_is_upgraded_and_a_newer_one_refused(
    tmp_path: Path, copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = str(tmp_path / "old.db")
    known = load_migrations("onejob.engines.sqlite")
    with monkeypatch.context() as older:
        older.setattr(schema, "load_migrations", lambda _: known[:1])
        schema.prepare_file(old, create=True)
        db = schema.connect(old)
        schema.migrate(db, old)
        db.close()
    assert backup.back_up(old, copy).schema_version == 1
    assert pragma(old, "user_version") == 1  # a backup upgrades nothing
    backup.restore(copy, old)
    assert fill(old, 0, 1) == ["created"]
    assert pragma(old, "user_version") == len(known)
    with RawConnection(old) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreRefused, match="upgrade the program"):
        backup.back_up(old, copy, force=True)
    with RawConnection(copy) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreRefused, match="upgrade the program"):
        backup.restore(copy, old)


async def test_a_store_that_is_replaced_while_it_is_opened_is_not_served(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the engine would write into the file that was moved aside, and believe that it is the new one."""
    connect = schema.connect

    def connect_then_replace(path: str, **options: Any) -> object:
        db = connect(path, **options)
        shutil.copy(store, store + ".new")
        os.rename(store, store + ".aside")
        os.rename(store + ".new", store)
        return db

    with monkeypatch.context() as patched:
        patched.setattr(schema, "connect", connect_then_replace)
        with pytest.raises(Unavailable, match="moved, replaced or removed"):
            await SqliteEngine.open(store)
    engine = await SqliteEngine.open(store)
    await engine.execute([submit("new")])
    await engine.aclose()


def test_the_mark_of_a_new_ledger_is_durable_before_its_file_has_the_name(
    store: str, copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power failure the mark of the old ledger would refuse the new one."""
    backup.back_up(store, copy)
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(file: int) -> None:
        done.append(os.path.basename(os.readlink(f"/proc/self/fd/{file}")))
        fsync(file)

    def record_replace(source: str, target: str) -> None:
        done.append(f"-> {os.path.basename(target)}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    backup.restore(copy, store)
    assert done.index("-> a.db-restore") < done.index("a.db-turn") < done.index("-> a.db")
    assert schema.read_mark(store) == read_ledger(store)
    done.clear()
    shutil.copy(copy, store)
    restored = backup.accept_loss(store).store
    assert "a.db-turn" in done
    assert schema.read_mark(store) == schema.LedgerState(restored.ledger_id, restored.commits) == read_ledger(store)


def read_ledger(path: str) -> schema.LedgerState:
    with RawConnection(path) as db:
        return schema.read_ledger(db)


def test_a_kill_at_any_moment_leaves_a_whole_store(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.crash.killed_backup", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for found in ("backup: nothing there", "backup: complete", "restore: as before", "restore: restored"):
        assert found in ran.stdout
    assert "restore: refused until it is repeated" in ran.stdout
    for found in ("restore over nothing: nothing there", "accept: refused until it is repeated", "accept: accepted"):
        assert found in ran.stdout
