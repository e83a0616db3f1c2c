"""A file is moved, replaced or emptied under an open engine, which then refuses instead of answering wrongly."""

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from onejob.clock import FakeClock
from onejob.conformance.samples import TENANT, submit
from onejob.conformance.world import expect, list_facts
from onejob.core.facts import Kind
from onejob.core.lookup import LookUpJob
from onejob.core.replies import Created, Found, Missing, Replayed
from onejob.engines.sqlite import SqliteEngine
from onejob.errors import StoreRefused, Unavailable
from tests.support.sqlite_files import RawConnection, exists, read_content, write_content


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "onejob.db")


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


async def test_a_restored_file_is_read_and_written_in_place_of_the_old(engine: SqliteEngine, path: str) -> None:
    created = await expect(engine, submit(), Created)
    with RawConnection(path) as db:
        db.execute("VACUUM INTO ?", (path + ".backup",))
    later = await expect(engine, submit("later"), Created)
    assert len(await list_facts(engine, Kind.JOB)) == 2
    for suffix in ("-wal", "-shm"):
        os.remove(path + suffix)
    os.replace(path + ".backup", path)
    for command in (submit(), LookUpJob(tenant=TENANT, job_id=created.job.id)):
        with pytest.raises(Unavailable):
            await engine.execute([command])
    assert (await expect(engine, submit(), Replayed)).job == created.job
    await expect(engine, LookUpJob(tenant=TENANT, job_id=later.job.id), Missing)
    assert await list_facts(engine, Kind.JOB) == [created.job]
    await expect(engine, submit("later"), Created)
