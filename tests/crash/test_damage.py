"""Truncated, torn and overwritten files: a known key is answered as before, or not at all."""

import asyncio
import os
import random
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import onejob
from onejob.errors import StoreRefused

from . import verification
from .load_program import count_changed_answers, open_ledger, submission_for
from .other_process import SubmittedKey, submit_in_other_process

PAGE = 4096
FRAME = PAGE + 24
KEYS = [f"k{n}" for n in range(24)]
TEARS = 60
FLIPS = 600


@cache
def cleanly_closed_store() -> tuple[bytes, dict[str, str]]:
    """A file that was closed properly, and its answers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "j.db"
        answers = submit_in_other_process(path, *KEYS)
        assert not Path(f"{path}-wal").exists()
        return path.read_bytes(), {key: one.job_id for key, one in zip(KEYS, answers, strict=True)}


@cache
def killed_store() -> tuple[bytes, bytes, dict[str, SubmittedKey]]:
    """A file whose process was killed, its journal with all commits, and its answers in order."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "j.db"
        answers = submit_in_other_process(path, *KEYS, end="kill")
        journal = Path(f"{path}-wal").read_bytes()
        assert len(path.read_bytes()) == PAGE
        assert len(journal) == answers[-1].journal
        return path.read_bytes(), journal, dict(zip(KEYS, answers, strict=True))


def test_a_journal_cut_anywhere_keeps_every_answer_whose_frames_are_complete(tmp_path: Path) -> None:
    data, journal, answers = killed_store()
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    ends = [one.journal for one in answers.values()]
    # Around every commit, and anywhere.
    cuts = {end + by for end in ends for by in (-1, 0, 1)} | {rng.randrange(len(journal)) for _ in range(TEARS)}
    confirmed = 0
    for cut in sorted(cut for cut in cuts if cut <= len(journal)):
        path = place_store(tmp_path, data, journal[:cut])
        confirmed += check_store(path, {key: one.job_id for key, one in answers.items() if one.journal <= cut})
    print(f"seed {seed}: {len(cuts)} cuts, {confirmed} answers confirmed")


async def test_a_journal_that_lost_acknowledged_commits_is_refused_at_every_cut(tmp_path: Path) -> None:
    path, journal = tmp_path / "j.db", tmp_path / "j.db-wal"
    ends = [one.journal for one in submit_in_other_process(path, "a", "b", "c", end="kill")]
    whole = journal.read_bytes()
    for cut in (0, ends[0] - FRAME, ends[0], ends[0] + FRAME, ends[1], ends[-1] - 1):
        journal.write_bytes(whole[:cut])
        with pytest.raises(StoreRefused, match=r"commits were acknowledged|acknowledged commits"):
            await open_ledger(str(path))
    journal.write_bytes(whole)
    await (await open_ledger(str(path))).aclose()


def test_a_bit_flipped_in_the_journal_costs_no_answer_from_before_it(tmp_path: Path) -> None:
    data, journal, answers = killed_store()
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    confirmed = 0
    for _ in range(TEARS):
        at = rng.randrange(len(journal))
        path = place_store(tmp_path, data, flip_bit(journal, at, rng.randrange(8)))
        confirmed += check_store(path, {key: one.job_id for key, one in answers.items() if one.journal <= at})
    print(f"seed {seed}: {TEARS} flips, {confirmed} answers confirmed")


@pytest.mark.parametrize("garbage", [True, False])
def test_a_torn_commit_is_dropped_as_a_whole(garbage: bool, tmp_path: Path) -> None:
    """The last commit lacks one frame in its middle, as if the disk had reordered its sectors."""
    data, journal, answers = killed_store()
    before, last = (answers[key].journal for key in KEYS[-2:])
    for at in range(before, last, FRAME):
        noise = random.Random(at).randbytes(FRAME) if garbage else bytes(FRAME)
        torn = journal[:at] + noise + journal[at + FRAME : last]
        path = place_store(tmp_path, data, torn)
        check_store(path, {key: answers[key].job_id for key in KEYS[:-1]})


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "half is missing": lambda data: data[: len(data) // PAGE // 2 * PAGE],
    "all but a page is missing": lambda data: data[:PAGE],
    "all but the header is missing": lambda data: data[:100],
    "a byte is missing": lambda data: data[:-1],
    "the last page is missing": lambda data: data[:-PAGE],
    "the header is garbage": lambda data: random.Random(1).randbytes(100) + data[100:],
    "the first page is garbage": lambda data: random.Random(2).randbytes(PAGE) + data[PAGE:],
    "everything is garbage": lambda data: random.Random(3).randbytes(len(data)),
    "it is text": lambda data: b"this is not a database\n" * 200,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_with_the_next_act_and_usable_again_once_restored(
    damage: str, tmp_path: Path
) -> None:
    data, answers = cleanly_closed_store()
    path = place_store(tmp_path, DAMAGES[damage](data))
    result = asyncio.run(open_and_compare(path, answers))
    assert result != "same"
    assert result.startswith("StoreRefused"), result
    assert str(path) in result
    assert any(act in result for act in ("restore it", "choose another file"))
    place_store(tmp_path, data)
    assert asyncio.run(open_and_compare(path, answers)) == "same"


def test_a_truncated_file_with_its_journal_makes_no_second_job(tmp_path: Path) -> None:
    data, answers = cleanly_closed_store()
    path = place_store(tmp_path, data)
    (late,) = submit_in_other_process(path, "late", end="kill")
    journal = Path(f"{path}-wal").read_bytes()
    known = {**answers, "late": late.job_id}
    results: Counter[str] = Counter()
    for pages in range(1, len(data) // PAGE):
        path = place_store(tmp_path, data[: pages * PAGE], journal)
        result = asyncio.run(open_and_compare(path, known))
        assert result == "same" or str(path) in result, result
        results[result.split(":")[0]] += 1
    print(dict(results))
    assert results.keys() <= {"same", "StoreRefused"}


@pytest.mark.parametrize("content", ["zeros", "garbage"])
def test_a_lost_page_is_detected_or_not_needed(content: str, tmp_path: Path) -> None:
    data, answers = cleanly_closed_store()
    results: Counter[str] = Counter()
    for page in range(1, len(data) // PAGE):
        noise = bytes(PAGE) if content == "zeros" else random.Random(page).randbytes(PAGE)
        path = place_store(tmp_path, data[: page * PAGE] + noise + data[(page + 1) * PAGE :])
        results[asyncio.run(open_and_compare(path, answers)).split(":")[0]] += 1
    print(dict(results))
    assert "another job" not in results


def test_a_bit_flipped_in_the_file_never_makes_a_second_job(tmp_path: Path) -> None:
    data, answers = cleanly_closed_store()
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    results: Counter[str] = Counter()
    for _ in range(FLIPS):
        path = place_store(tmp_path, flip_bit(data, rng.randrange(len(data)), rng.randrange(8)))
        results[asyncio.run(open_and_compare(path, answers)).split(":")[0]] += 1
        assert "another job" not in results, f"seed {seed}: {dict(results)}"
    print(f"seed {seed}: {FLIPS} flips, {dict(results)}")


@pytest.mark.parametrize("main", ["empty", "missing"])
def test_a_journal_without_its_file_is_refused_and_usable_again_once_the_file_is_back(
    main: str, tmp_path: Path
) -> None:
    data, journal, answers = killed_store()
    path = place_store(tmp_path, b"", journal)
    if main == "missing":
        path.unlink()
    known = {key: one.job_id for key, one in answers.items()}
    result = asyncio.run(open_and_compare(path, known))
    assert result.startswith("StoreRefused")
    assert "Restore the database file" in result
    assert Path(f"{path}-wal").read_bytes() == journal
    path.write_bytes(data)
    assert asyncio.run(open_and_compare(path, known)) == "same"


async def test_a_file_truncated_under_a_running_ledger_is_refused_until_it_is_restored(tmp_path: Path) -> None:
    data, answers = cleanly_closed_store()
    path, backup = place_store(tmp_path, data), tmp_path / "backup"
    backup.write_bytes(data)
    ledger = await open_ledger(str(path))
    try:
        os.truncate(path, len(data) // PAGE // 2 * PAGE)
        for _ in range(3):
            assert await compare_answers(ledger, answers) != "another job"
        # In another process: closing the file in this one would drop the ledger's locks.
        subprocess.run(["dd", f"if={backup}", f"of={path}", "conv=notrunc", "status=none"], check=True)
        results = [await compare_answers(ledger, answers) for _ in range(3)]
        assert results[-1] == "same"
    finally:
        await ledger.aclose()


async def open_and_compare(path: Path, answers: dict[str, str]) -> str:
    """Open the store and repeat every known key: `same`, `another job`, or the first error."""
    try:
        ledger = await open_ledger(str(path))
    except onejob.OnejobError as error:
        return f"{type(error).__name__}: {error}"
    try:
        return await compare_answers(ledger, answers)
    finally:
        await ledger.aclose()


async def compare_answers(ledger: onejob.Ledger, answers: dict[str, str]) -> str:
    receipts = await ledger.submit_many([submission_for(key) for key in answers])
    for receipt, job_id in zip(receipts, answers.values(), strict=True):
        if isinstance(receipt, onejob.Receipt) and receipt.job_id != job_id:
            return "another job"
    errors = [receipt for receipt in receipts if not isinstance(receipt, onejob.Receipt)]
    return f"{type(errors[0]).__name__}: {errors[0]}" if errors else "same"


def check_store(path: Path, answers: dict[str, str]) -> int:
    """The store opens, is consistent, has these answers, and accepts every key."""

    async def use() -> None:
        ledger = await open_ledger(str(path))
        try:
            stored = verification.check_integrity(path)
            assert {key: stored.get(key) for key in answers} == answers
            assert await count_changed_answers(ledger, answers) == 0
            receipts = await ledger.submit_many([submission_for(key) for key in KEYS])
            assert all(isinstance(receipt, onejob.Receipt) for receipt in receipts)
        finally:
            await ledger.aclose()

    asyncio.run(use())
    assert verification.check_integrity(path).keys() == set(KEYS)
    return len(answers)


def place_store(folder: Path, data: bytes, journal: bytes = b"") -> Path:
    """Write a store into a folder where none is open, without the note of its commits: a power failure may lose it."""
    path = folder / "j.db"
    for suffix in ("-wal", "-shm", "-turn"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    path.write_bytes(data)
    if journal:
        Path(f"{path}-wal").write_bytes(journal)
    return path


def flip_bit(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]
