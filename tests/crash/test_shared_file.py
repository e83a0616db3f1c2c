"""Several ledgers on one file, in one process and in others: none removes the journal of another."""

from contextlib import suppress
from pathlib import Path

import pytest

import onejob
from onejob.core.identity import parse_job_id
from onejob.engines.sqlite import schema

from .load_program import open_ledger, submission_for
from .other_process import submit_in_other_process


async def test_a_second_ledger_in_one_process_costs_the_first_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    first = await open_ledger(str(path))
    second = await open_ledger(str(path))
    try:
        await submit(first, "before")
        # The other process closes the file; if it believes to be the last one, it removes the journal.
        submit_in_another_process(path, "there")
        answers = {key: await submit(first, key) for key in ("before", "there", "after")}
        assert submit_in_another_process(path, *answers) == list(answers.values())
    finally:
        await first.aclose()
        await second.aclose()


async def test_a_ledger_that_was_reopened_after_an_error_loses_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    ledger = await open_ledger(str(path))
    try:
        await submit(ledger, "before")
        await ledger.jobs()  # the reading connection stays open during the error
        path.rename(tmp_path / "moved")
        with pytest.raises(onejob.Unavailable, match="fix it, then retry"):
            await submit(ledger, "during the error")
        (tmp_path / "moved").rename(path)
        await submit(ledger, "during the error")
        submit_in_another_process(path, "there")
        answers = {key: await submit(ledger, key) for key in ("before", "during the error", "after")}
        assert submit_in_another_process(path, *answers) == list(answers.values())
    finally:
        await ledger.aclose()


async def test_a_ledger_closed_in_one_process_costs_the_other_ledger_there_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    first = await open_ledger(str(path))
    second = await open_ledger(str(path))
    await submit(second, "before")
    await second.aclose()
    try:
        submit_in_another_process(path, "there")
        answers = {key: await submit(first, key) for key in ("before", "there", "after")}
        assert submit_in_another_process(path, *answers) == list(answers.values())
    finally:
        await first.aclose()


async def test_opening_a_file_again_leaves_the_locks_on_it_alone(tmp_path: Path) -> None:
    """POSIX locks belong to the process, and are dropped when it closes any descriptor of the file."""
    path = tmp_path / "j.db"
    first = await open_ledger(str(path))
    before = locks(path)
    print(f"{len(before)} locks are visible")
    second = await open_ledger(str(path))
    try:
        assert before <= locks(path)
    finally:
        await second.aclose()
        await first.aclose()


async def test_reads_follow_a_file_that_was_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup replaces the file under a running ledger: writes detect it, and reads must not use the old file."""
    monkeypatch.setattr(schema, "_CHECKPOINT_PAGES", 1)
    path, copy = tmp_path / "j.db", tmp_path / "copy"
    submit_in_another_process(path, "before")
    copy.write_bytes(path.read_bytes())
    ledger = await open_ledger(str(path))
    try:
        await ledger.jobs()
        copy.rename(path)
        with pytest.raises(onejob.Unavailable, match="fix it, then retry"):
            await submit(ledger, "after")
        with suppress(onejob.Unavailable):  # a submission reads before it writes, and each may find it
            await submit(ledger, "after")
        for key in ("after", "later", "at last"):
            job_id = await submit(ledger, key)
            with suppress(onejob.Unavailable):  # at most once: then it has reopened the file
                await ledger.jobs()
            assert (await ledger.job(job_id)).id == job_id
            assert job_id in {job.id for job in await ledger.jobs()}
    finally:
        await ledger.aclose()


async def submit(ledger: onejob.Ledger, key: str) -> str:
    submission = submission_for(key)
    receipt = await ledger.submit(submission.type, submission.input, idempotency_key=key)
    assert parse_job_id(receipt.job_id)
    return receipt.job_id


def submit_in_another_process(path: Path, *keys: str) -> list[str]:
    """Submit keys in another process; returns the job of each."""
    return [one.job_id for one in submit_in_other_process(path, *keys)]


def locks(path: Path) -> set[str]:
    """The kernel's locks on a file, as far as /proc shows them."""
    number = path.stat().st_ino
    lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    return {line.partition(": ")[2] for line in lines if f":{number} " in line}
