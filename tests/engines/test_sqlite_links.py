"""One file under several names: through a symbolic link it is the same store, with the same journal, note and locks."""

import os
from pathlib import Path

import pytest

from onejob.clock import FakeClock
from onejob.conformance.samples import submit
from onejob.conformance.world import expect
from onejob.core.replies import Created, Replayed
from onejob.engines.sqlite import SqliteEngine
from onejob.engines.sqlite.backup import accept_loss, back_up, restore
from onejob.engines.sqlite.schema import diagnose, read_mark
from onejob.errors import StoreRefused, Unavailable
from tests.support.sqlite_files import exists, read_content, write_content


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "data").mkdir()
    return str(tmp_path / "data" / "onejob.db")


@pytest.fixture
def link(path: str, tmp_path: Path) -> str:
    """A symbolic link in another folder. It may lead nowhere yet."""
    os.symlink(path, tmp_path / "link.db")
    return str(tmp_path / "link.db")


async def submit_and_close(path: str, *keys: str) -> None:
    engine = await SqliteEngine.open(path, clock=FakeClock())
    for key in keys:
        await expect(engine, submit(key), Created)
    await engine.aclose()


async def test_a_link_to_a_file_or_to_its_folder_leads_to_one_note_and_one_lock(
    path: str, link: str, tmp_path: Path
) -> None:
    os.symlink(tmp_path / "data", tmp_path / "folder")
    await submit_and_close(path, "a")
    for number, name in enumerate((link, str(tmp_path / "folder" / "onejob.db"), path)):
        await submit_and_close(name, f"key-{number}")
        mark = read_mark(path)
        assert mark is not None
        assert mark.generation == number + 2
    assert sorted(os.listdir(tmp_path)) == ["data", "folder", "link.db"]


async def test_a_loss_is_noticed_and_accepted_through_a_link(path: str, link: str) -> None:
    await submit_and_close(path, "a")
    older = read_content(path)
    await submit_and_close(link, "b")
    write_content(path, older)
    assert "lacks its last 1" in diagnose(link).loss
    with pytest.raises(StoreRefused, match="lacks its last 1 acknowledged commits"):
        await SqliteEngine.open(link, clock=FakeClock())
    assert accept_loss(link).commits_lost == 1
    await submit_and_close(path, "b")


async def test_a_backup_through_a_link_is_of_the_store_and_a_restore_keeps_the_link(path: str, link: str) -> None:
    await submit_and_close(path, "a")
    back_up(link, path + ".copy")
    await submit_and_close(path, "b")
    done = restore(path + ".copy", link)
    assert os.readlink(link) == path
    assert done.commits_lost == 1
    assert os.path.dirname(done.set_aside) == os.path.dirname(path)
    await submit_and_close(path, "b")


async def test_a_link_that_leads_nowhere_makes_no_store(path: str, link: str) -> None:
    """Its disk may not be mounted: an empty store there would know no key."""
    with pytest.raises(Unavailable, match=r"link\.db is a symbolic link to .*onejob\.db, which is missing"):
        await SqliteEngine.open(link, clock=FakeClock())
    assert not exists(path)
    await submit_and_close(path, "a")
    await submit_and_close(link, "b")


async def test_a_link_that_is_changed_under_an_engine_is_noticed(path: str, link: str, tmp_path: Path) -> None:
    other = str(tmp_path / "other.db")
    await submit_and_close(path, "a")
    await submit_and_close(other, "b")
    engine = await SqliteEngine.open(link, clock=FakeClock())
    os.remove(link)
    os.symlink(other, link)
    for _ in range(2):
        with pytest.raises(Unavailable, match="moved, replaced or removed"):
            await engine.execute([submit("c")])
    os.remove(link)
    os.symlink(path, link)
    await expect(engine, submit("a"), Replayed)
    await engine.aclose()


async def test_a_file_with_two_names_is_refused_by_everything_that_opens_it(path: str, tmp_path: Path) -> None:
    """SQLite looks for the journal beside the name that it was given: each name would have its own."""
    engine = await SqliteEngine.open(path, clock=FakeClock())
    await expect(engine, submit("a"), Created)
    second = str(tmp_path / "second.db")
    os.link(path, second)
    await expect(engine, submit("b"), Created)  # it has one journal, which nobody else can open
    for name in (path, second):
        with pytest.raises(StoreRefused, match=r"has 2 names \(hard links\).*remove the others"):
            await SqliteEngine.open(name, clock=FakeClock())
    for refused in (diagnose, accept_loss, lambda name: back_up(name, path + ".copy")):
        with pytest.raises(StoreRefused, match="hard links"):
            refused(second)
    os.remove(second)
    await engine.aclose()
    await submit_and_close(path, "c")
    back_up(path, path + ".copy")
    os.link(path, second)
    with pytest.raises(StoreRefused, match="hard links"):
        restore(path + ".copy", path)
