"""A file is moved, replaced or emptied under an open engine, which then refuses instead of answering wrongly."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from onejob.clock import FakeClock
from onejob.conformance.samples import TENANT, submit
from onejob.conformance.world import expect, list_facts
from onejob.core.facts import Kind
from onejob.core.lookup import LookUpJob
from onejob.core.replies import Created, Found, Replayed
from onejob.engines.sqlite import SqliteEngine
from onejob.engines.sqlite.backup import accept_loss, back_up, restore
from onejob.errors import Invalid, StoreRefused, Unavailable
from tests.support.sqlite_files import RawConnection, exists, read_content, write_content

PAGE_BYTES = 4096


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "onejob.db")


def crashed_copy(path: str) -> str:
    """A copy of a store as a process leaves it that was killed: with its journal."""
    for suffix in ("", "-wal", "-turn"):
        shutil.copy(path + suffix, path + ".copy" + suffix)
    return path + ".copy"


@pytest.fixture
async def engine(path: str) -> AsyncIterator[SqliteEngine]:
    engine = await SqliteEngine.open(path, clock=FakeClock())
    yield engine
    await engine.aclose()


async def test_a_journal_without_its_file_is_refused(engine: SqliteEngine, path: str) -> None:
    await expect(engine, submit(), Created)
    for suffix in ("", "-wal"):
        shutil.copy(path + suffix, path + ".copy" + suffix)
    await engine.aclose()
    shutil.copy(path + ".copy-wal", path + "-wal")
    for empty in (os.remove, lambda path: write_content(path, b"")):
        empty(path)
        with pytest.raises(StoreRefused, match="Restore the database file, or remove both"):
            await SqliteEngine.open(path)
    shutil.copy(path + ".copy", path)
    restored = await SqliteEngine.open(path, clock=FakeClock())
    await expect(restored, submit(), Replayed)
    await restored.aclose()


async def test_while_the_file_is_missing_every_call_is_unavailable(engine: SqliteEngine, path: str) -> None:
    created = await expect(engine, submit(), Created)
    read = LookUpJob(tenant=TENANT, job_id=created.job.id)
    await expect(engine, read, Found)
    os.rename(path, path + ".moved")
    for command in (submit(), submit("new"), read) * 2:
        with pytest.raises(Unavailable, match=r"onejob\.db"):
            await engine.execute([command])
    with pytest.raises(Unavailable):
        await list_facts(engine, Kind.JOB)
    # A new file in its place would treat every known key as new.
    assert not exists(path)
    os.rename(path + ".moved", path)
    assert (await expect(engine, submit(), Replayed)).job == created.job
    await expect(engine, read, Found)
    await expect(engine, submit("new"), Created)


async def test_an_empty_file_in_its_place_is_not_initialized_as_a_new_store(engine: SqliteEngine, path: str) -> None:
    await expect(engine, submit(), Created)
    os.rename(path, path + ".moved")
    for suffix in ("-wal", "-shm"):
        os.remove(path + suffix)
    write_content(path, b"")
    for _ in range(2):
        with pytest.raises(Unavailable):
            await engine.execute([submit()])
    assert read_content(path) == b""


@pytest.mark.parametrize("checkpoint", ["", "PASSIVE", "TRUNCATE"])
async def test_a_store_emptied_under_the_engine_is_refused_by_everyone(
    engine: SqliteEngine, path: str, checkpoint: str
) -> None:
    created = await expect(engine, submit(), Created)
    if checkpoint:
        with RawConnection(path) as db:
            db.execute(f"PRAGMA wal_checkpoint({checkpoint})").fetchall()
    os.truncate(path, 0)
    for command in (submit("new"), submit(), LookUpJob(tenant=TENANT, job_id=created.job.id)) * 2:
        with pytest.raises(Unavailable, match=r"onejob\.db"):
            await engine.execute([command])
    with pytest.raises(StoreRefused, match=r"onejob\.db is empty"):
        await SqliteEngine.open(path)
    await engine.aclose()
    with pytest.raises(StoreRefused, match=r"onejob\.db is empty.*[Rr]e(store|move)"):
        await SqliteEngine.open(path)
    assert not os.stat(path).st_size


async def test_an_emptied_store_is_usable_again_once_its_file_and_its_mark_are_removed(
    engine: SqliteEngine, path: str
) -> None:
    await expect(engine, submit(), Created)
    await engine.aclose()
    os.truncate(path, 0)
    with pytest.raises(StoreRefused, match=r"1 commits were acknowledged.*remove it and .*onejob\.db-turn"):
        await SqliteEngine.open(path)
    os.remove(path)
    os.remove(path + "-turn")
    other = await SqliteEngine.open(path)
    await expect(other, submit(), Created)
    await other.aclose()


async def test_another_ledger_in_its_place_is_refused(engine: SqliteEngine, path: str, tmp_path: Path) -> None:
    created = await expect(engine, submit(), Created)
    other = await SqliteEngine.open(str(tmp_path / "other.db"), clock=FakeClock())
    assert other.info.ledger_id != engine.info.ledger_id
    for number in range(3):
        await expect(other, submit(f"k{number}"), Created)
    await other.aclose()
    for suffix in ("-wal", "-shm"):
        os.remove(path + suffix)
    os.rename(path, path + ".moved")
    os.rename(tmp_path / "other.db", path)
    with pytest.raises(Unavailable, match="replaced"):
        await engine.execute([submit()])
    for command in (submit(), LookUpJob(tenant=TENANT, job_id=created.job.id)) * 2:
        with pytest.raises(Unavailable, match=r"replaced|holds another ledger .* put the right file back"):
            await engine.execute([command])
    with pytest.raises(StoreRefused, match="holds another ledger"):
        await engine.execute([submit()])
    await engine.aclose()
    noted = read_content(path + "-turn")
    for _ in range(2):  # after a restart, too, and the note of what was served here stays
        with pytest.raises(
            StoreRefused,
            match=rf"holds another ledger \({other.info.ledger_id}, 3 commits\) than was served here last "
            rf"\({engine.info.ledger_id}, 1 commits\).*`onejob restore --accept-loss`",
        ):
            await SqliteEngine.open(path, clock=FakeClock())
        assert read_content(path + "-turn") == noted
    assert accept_loss(path).commits_lost is None
    again = await SqliteEngine.open(path, clock=FakeClock())
    await expect(again, submit("k0"), Replayed)
    assert again.info.ledger_id not in (other.info.ledger_id, engine.info.ledger_id)
    await again.aclose()


async def test_a_file_from_before_an_accepted_loss_is_refused(path: str) -> None:
    """It has more commits than the ledger that replaced it had at first, and none of the keys that this one has answered."""
    await submit_and_close(path, "a")
    shutil.copy(path, path + ".older")
    await submit_and_close(path, "b", "c")
    shutil.copy(path, path + ".newest")
    shutil.copy(path + ".older", path)
    accept_loss(path)
    answered = await submit_and_close(path, "x")
    shutil.copy(path, path + ".served")
    for wrong in (".newest", ".older"):
        shutil.copy(path + wrong, path)
        for _ in range(2):
            with pytest.raises(StoreRefused, match=r"holds another ledger .* --accept-loss"):
                await SqliteEngine.open(path, clock=FakeClock())
    shutil.copy(path + ".served", path)
    assert await submit_and_close(path, "x") == answered


async def test_a_file_from_before_a_restore_is_refused(path: str) -> None:
    await submit_and_close(path, "a")
    shutil.copy(path, path + ".older")
    back_up(path, path + ".backup")
    restore(path + ".backup", path)
    shutil.copy(path, path + ".restored")
    shutil.copy(path + ".older", path)  # before anybody has opened the restored one
    with pytest.raises(StoreRefused, match=r"holds another ledger .* --accept-loss"):
        await SqliteEngine.open(path, clock=FakeClock())
    shutil.copy(path + ".restored", path)
    await submit_and_close(path, "b")
    shutil.copy(path + ".older", path)
    with pytest.raises(StoreRefused, match=r"holds another ledger .* --accept-loss"):
        await SqliteEngine.open(path, clock=FakeClock())


async def test_a_file_without_the_note_of_its_commits_is_served_and_noted(path: str) -> None:
    await submit_and_close(path, "a")
    shutil.copy(path, path + ".older")
    await submit_and_close(path, "b")
    os.remove(path + "-turn")
    await (await SqliteEngine.open(path, clock=FakeClock())).aclose()
    shutil.copy(path + ".older", path)
    with pytest.raises(StoreRefused, match="lacks its last 1 acknowledged commits"):
        await SqliteEngine.open(path, clock=FakeClock())


@pytest.mark.parametrize("replaced_by", ["an older copy", "another ledger", "another program's file"])
async def test_a_file_that_is_refused_stays_as_it_was(path: str, replaced_by: str) -> None:
    """Its journal mode, too: a copy of `onejob backup` has no journal."""
    await submit_and_close(path, "a")
    if replaced_by == "an older copy":
        back_up(path, path + ".copy")
    elif replaced_by == "another ledger":
        await submit_and_close(path + ".other", "a")
        back_up(path + ".other", path + ".copy")
    else:
        with RawConnection(path + ".copy") as db:
            db.execute("CREATE TABLE shop (id)")
    await submit_and_close(path, "b")
    shutil.copy(path + ".copy", path)
    for suffix in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.remove(path + suffix)
    content, noted = read_content(path), read_content(path + "-turn")
    with pytest.raises(StoreRefused, match=r"lacks its last 1|holds another ledger|another program's database"):
        await SqliteEngine.open(path, clock=FakeClock())
    assert (read_content(path), read_content(path + "-turn")) == (content, noted)
    assert not exists(path + "-wal")


async def test_a_file_may_replace_a_store_that_has_acknowledged_nothing(path: str) -> None:
    await submit_and_close(path, "a")
    shutil.copy(path, path + ".older")
    await submit_and_close(path, "b")
    place = path + ".place"
    await (await SqliteEngine.open(place, clock=FakeClock())).aclose()
    shutil.copy(path, place)
    await (await SqliteEngine.open(place, clock=FakeClock())).aclose()
    shutil.copy(path + ".older", place)
    with pytest.raises(StoreRefused, match="lacks its last 1 acknowledged commits"):
        await SqliteEngine.open(place, clock=FakeClock())


async def submit_and_close(path: str, *keys: str) -> list[Any]:
    """The ids of the jobs."""
    engine = await SqliteEngine.open(path, clock=FakeClock())
    replies: list[Any] = [(await engine.execute([submit(key)]))[0] for key in keys]
    await engine.aclose()
    assert all(isinstance(reply, Created | Replayed) for reply in replies)
    return [reply.job.id for reply in replies]


async def test_an_older_copy_in_its_place_is_refused_by_the_running_process_and_by_the_next(
    engine: SqliteEngine, path: str
) -> None:
    created = await expect(engine, submit(), Created)
    with RawConnection(path) as db:
        db.execute("VACUUM INTO ?", (path + ".backup",))
    await expect(engine, submit("later"), Created)
    for suffix in ("-wal", "-shm"):
        os.remove(path + suffix)
    os.replace(path + ".backup", path)
    for command in (submit("later"), LookUpJob(tenant=TENANT, job_id=created.job.id)) * 2:
        with pytest.raises(
            Unavailable, match=r"replaced|is an older copy: it has 1 commits, .* seen 2.* --accept-loss"
        ):
            await engine.execute([command])
    await engine.aclose()
    for _ in range(2):
        with pytest.raises(StoreRefused, match=r"lacks its last 1 acknowledged commits.* older copy.* --accept-loss"):
            await SqliteEngine.open(path, clock=FakeClock())


@pytest.mark.parametrize("cut", ["the last commit", "all"])
async def test_a_journal_cut_below_acknowledged_commits_is_refused_until_it_is_put_back(
    engine: SqliteEngine, path: str, cut: str
) -> None:
    jobs, ends = [], []
    for key in ("a", "b", "c"):
        jobs.append((await expect(engine, submit(key), Created)).job)
        ends.append(os.stat(path + "-wal").st_size)
    copy = crashed_copy(path)
    await engine.aclose()
    journal = read_content(copy + "-wal")
    kept = journal[: ends[-2]] if cut == "the last commit" else b""
    write_content(copy + "-wal", kept)
    for _ in range(2):
        with pytest.raises(StoreRefused, match=r"acknowledged commits: its journal was cut off|without its journal"):
            await SqliteEngine.open(copy, clock=FakeClock())
        assert read_content(copy + "-wal") == kept  # what is left is evidence
    write_content(copy + "-wal", journal)
    again = await SqliteEngine.open(copy, clock=FakeClock())
    for key, job in zip("abc", jobs, strict=True):
        assert (await expect(again, submit(key), Replayed)).job == job
    await again.aclose()


async def test_an_accepted_loss_makes_the_store_another_ledger(engine: SqliteEngine, path: str) -> None:
    created = await expect(engine, submit("a"), Created)
    end = os.stat(path + "-wal").st_size
    await expect(engine, submit("b"), Created)
    copy, lossy = crashed_copy(path), engine.info
    await engine.aclose()
    os.truncate(copy + "-wal", end)
    result = accept_loss(copy)
    assert result.commits_lost == 1
    assert result.store.ledger_id != lossy.ledger_id
    served = await SqliteEngine.open(copy, clock=FakeClock())
    assert served.info.ledger_id == result.store.ledger_id
    assert (await expect(served, submit("a"), Replayed)).job == created.job
    await expect(served, submit("b"), Created)
    await served.aclose()
    noted = read_content(copy + "-turn")
    with pytest.raises(Invalid, match=r"no commit is known to be missing.* --force"):
        accept_loss(copy)
    assert read_content(copy + "-turn") == noted
    forced = accept_loss(copy, force=True)
    assert forced.commits_lost == 0
    assert forced.store.ledger_id != result.store.ledger_id
    os.remove(copy + "-turn")
    with pytest.raises(Invalid, match="no commit is known to be missing"):
        accept_loss(copy)


async def test_the_loss_of_a_damaged_store_is_not_accepted(path: str) -> None:
    await submit_and_close(path, "a")
    shutil.copy(path, path + ".older")
    await submit_and_close(path, "b")
    shutil.copy(path + ".older", path)
    with RawConnection(path) as db:  # a page that nothing but a check of all pages reads
        page: Any = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'memo'").get
    damaged = bytearray(read_content(path))
    damaged[(page - 1) * PAGE_BYTES + 2000] ^= 1
    write_content(path, bytes(damaged))
    noted = read_content(path + "-turn")
    for force in (False, True):
        with pytest.raises(StoreRefused, match="damaged"):
            accept_loss(path, force=force)
        assert (read_content(path + "-turn"), read_content(path)) == (noted, bytes(damaged))


async def test_the_loss_of_a_store_that_is_open_is_not_accepted(engine: SqliteEngine, path: str) -> None:
    await expect(engine, submit(), Created)
    code = "import sys; from onejob.engines.sqlite.backup import accept_loss; accept_loss(sys.argv[1])"
    ran = subprocess.run([sys.executable, "-c", code, path], check=False, capture_output=True, text=True)
    assert "is open in another process" in ran.stderr
    await expect(engine, submit(), Replayed)


async def test_a_file_that_was_removed_is_not_created_again(engine: SqliteEngine, path: str) -> None:
    await engine.aclose()
    os.remove(path)
    engine = await SqliteEngine.open(path)  # nothing was ever acknowledged there
    await expect(engine, submit(), Created)
    await engine.aclose()
    os.remove(path)
    for attempt in (SqliteEngine.open(path), asyncio.to_thread(accept_loss, path)):
        with pytest.raises(StoreRefused, match=r"is missing, but 1 commits were acknowledged.*remove .*-turn"):
            await attempt
    assert not exists(path)


async def test_a_file_that_is_put_back_is_served_again(engine: SqliteEngine, path: str) -> None:
    created = await expect(engine, submit(), Created)
    assert await list_facts(engine, Kind.JOB) == [created.job]
    with RawConnection(path) as db:
        db.execute("VACUUM INTO ?", (path + ".backup",))
    for suffix in ("-wal", "-shm"):
        os.remove(path + suffix)
    os.replace(path + ".backup", path)
    for command in (submit(), LookUpJob(tenant=TENANT, job_id=created.job.id)):
        with pytest.raises(Unavailable):
            await engine.execute([command])
    assert (await expect(engine, submit(), Replayed)).job == created.job
    assert await list_facts(engine, Kind.JOB) == [created.job]
    await expect(engine, submit("later"), Created)


async def test_content_replaced_in_place_makes_no_job(engine: SqliteEngine, path: str, tmp_path: Path) -> None:
    """Of another ledger, in the same file: SQLite itself does not notice."""
    await expect(engine, submit(), Created)
    with RawConnection(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    other = await SqliteEngine.open(str(tmp_path / "other.db"), clock=FakeClock())
    for number in range(3):
        await expect(other, submit(f"k{number}"), Created)
    await other.aclose()
    # In another process: closing the file in this one would drop the locks of the engine.
    subprocess.run(["dd", f"if={tmp_path / 'other.db'}", f"of={path}", "conv=notrunc", "status=none"], check=True)
    engine._writer.call(engine._close_writer)
    for _ in range(2):
        with pytest.raises(StoreRefused, match="holds another ledger"):
            await engine.execute([submit("new")])
