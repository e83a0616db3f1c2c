"""Files that hold keys and inputs are their owner's alone, whatever the umask."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import onejob


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes_below(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mode & 0o7777 for path in (folder, *folder.rglob("*"))}


async def submit_to(url: str) -> None:
    async with onejob.open(url) as queue:
        await queue.submit("charge", {"card": "x" * 100_000}, idempotency_key="k-1")
        await queue.submit("charge", {"card": "x"}, idempotency_key="k-2")


@pytest.mark.parametrize("url", ["file://{}/jobs?replica={}/replica", "sqlite:///{}/jobs.db"])
async def test_a_store_is_its_owners_alone(tmp_path: Path, url: str) -> None:
    folder = tmp_path / "store"
    folder.mkdir(mode=0o755)
    await submit_to(url.replace("{}", str(folder)))
    found = modes_below(folder)
    del found["."]
    assert len(found) >= 2
    assert {name: oct(mode) for name, mode in found.items() if mode & 0o077} == {}


async def test_a_bucket_in_an_existing_folder_is_its_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    folder.chmod(0o755)
    await submit_to(f"file://{folder}?replica={tmp_path}/replica")
    found = modes_below(folder)
    del found["."]
    assert {name: oct(mode) for name, mode in found.items() if mode & 0o077} == {}


async def test_a_bucket_whose_folder_the_group_may_write_is_shared_with_the_group(tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    folder.chmod(0o2770)
    await submit_to(f"file://{folder}?replica={tmp_path}/replica")
    for path in folder.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o770 if path.is_dir() else 0o660), path
