"""Power cuts at random moments under load: every byte that was not synced is lost or torn."""

import asyncio
import os
import random
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest

import onejob

from . import powerfs_mount, strace, verification
from .load_process import run_load, sleep_randomly
from .load_program import count_changed_answers, open_ledger, submission_for

CUTS = int(os.environ.get("CRASH_CYCLES", "7"))  # of each mode
CONTROL_CUTS_MAX = 5
MODES = ("drop", "prefix", "sectors")
FAILED_SYNCS = range(1, 9)
ATTEMPTS_MAX = 40
SYNCS = range(5, 15)  # the first commits of a run


@pytest.mark.parametrize("mode", MODES)
def test_a_power_cut_loses_no_answer(mode: str, tmp_path: Path) -> None:
    powerfs_mount.skip_unless_mountable()
    seed = 1 + MODES.index(mode)
    rng = random.Random(seed)
    files: list[Path] = []
    confirmed = 0
    for cut in range(CUTS):
        acks = tmp_path / f"acks{cut}"
        confirmed += load_until_cut(tmp_path, acks, files[-1:], mode, rng)[0]
        files.append(acks)
    stored = verification.check_integrity(tmp_path / "disk" / "j.db")
    recorded = [verification.read_answers(file) for file in files]
    assert all(one.answers for one in recorded), "no caller got an answer: nothing was tested"
    lost = {key for one in recorded for key, job_id in one.answers.items() if stored.get(key) != job_id}
    answers = sum(one.total for one in recorded)
    print(f"{mode}, seed {seed}: {CUTS} cuts, {answers} answers, {confirmed} confirmed, {len(lost)} lost")
    assert not lost


def test_without_a_sync_before_the_answer_a_power_cut_loses_answers(tmp_path: Path) -> None:
    powerfs_mount.skip_unless_mountable()
    rng = random.Random(99)
    for cut in range(CONTROL_CUTS_MAX):
        base = tmp_path / f"{cut}"
        base.mkdir()
        acks = base / "acks"
        load_until_cut(base, acks, [], "drop", rng, synchronous="NORMAL")
        answers = verification.read_answers(acks).answers
        stored = verification.check_integrity(base / "disk" / "j.db")
        lost = {key for key, job_id in answers.items() if stored.get(key) != job_id}
        print(f"synchronous=NORMAL, cut {cut + 1}: {len(lost)} of {len(answers)} answered keys lost")
        if lost:
            return
    pytest.fail("nothing was lost: these cuts prove nothing about synchronous=FULL either")


def test_what_a_killed_process_left_unsynced_is_synced_before_it_is_answered(tmp_path: Path) -> None:
    """A kill between the write and the sync of a commit, then a restart, an answer, and a power cut."""
    powerfs_mount.skip_unless_mountable()
    strace.skip_unless_traceable()
    early_answers = 0
    for number in SYNCS:
        base = tmp_path / f"{number}"
        base.mkdir()
        acks, store = base / "acks", base / "mount"
        with powerfs_mount.mount_powerfs(base) as fs:
            status, _ = strace.run_traced(base, inject=f"fdatasync:signal=KILL:when={number}", store=store)
            assert status == -signal.SIGKILL
            before = verification.read_answers(acks).answers
            status, _ = strace.run_traced(base, "duplicates", inject="", at=30, store=store)
            assert status == -signal.SIGKILL
            fs.cut_power("drop", 0)
        answers = verification.read_answers(acks).answers
        early_answers += answers.keys() > before.keys()
        stored = verification.check_integrity(base / "disk" / "j.db")
        assert {key: stored.get(key) for key in answers} == answers
    print(f"{len(SYNCS)} kills before a sync, {early_answers} of them with an answer that only the restart gave")
    assert early_answers > 1, "nothing unsynced was answered: nothing was tested"


@pytest.mark.parametrize("reads", [False, True])
async def test_after_a_failed_sync_nothing_is_answered_that_a_power_cut_loses(reads: bool, tmp_path: Path) -> None:
    powerfs_mount.skip_unless_mountable()
    errors = 0
    for failures in FAILED_SYNCS:
        base = tmp_path / f"{failures}"
        base.mkdir()
        with powerfs_mount.mount_powerfs(base) as fs:
            ledger = await open_ledger(str(fs.path / "j.db"))
            answers = {key: (await submit_until_answered(ledger, key))[0] for key in ("a", "b")}
            if reads:
                await ledger.job(answers["a"])
            fs.send_command("fail", failures)
            for key in ("c", "d", "c", "a"):
                answers[key], failed = await submit_until_answered(ledger, key)
                errors += failed
                if reads:
                    await ledger.job(answers[key])
            fs.cut_power("drop", 0)
            with suppress(Exception):  # there is no disk any more
                await ledger.aclose()
        stored = verification.check_integrity(base / "disk" / "j.db")
        assert {key: stored.get(key) for key in answers} == answers, f"{failures} failed syncs"
    assert errors, "no caller noticed: nothing was tested"


async def submit_until_answered(ledger: onejob.Ledger, key: str) -> tuple[str, int]:
    """The job id, and how many attempts failed."""
    submission = submission_for(key)
    for attempt in range(ATTEMPTS_MAX):
        with suppress(onejob.Unavailable, onejob.Unknown):
            receipt = await ledger.submit(submission.type, submission.input, idempotency_key=key)
            return receipt.job_id, attempt
    pytest.fail("the store did not recover")


def load_until_cut(
    base: Path,
    acks: Path,
    known: list[Path],
    mode: str,
    rng: random.Random,
    *,
    synchronous: str = "FULL",
) -> tuple[int, int]:
    """Mount, confirm earlier answers, load, and cut the power; returns the confirmed and the lost answers."""
    with powerfs_mount.mount_powerfs(base) as fs:
        path = fs.path / "j.db"
        with run_load(path, acks, name=acks.name, synchronous=synchronous, known=known) as load:
            result = load.read_check_result()
            assert not result[1]
            load.wait_until_busy()
            sleep_randomly(rng, 0.5)
            fs.cut_power(mode, rng.getrandbits(32))
    return result


def test_the_file_system_loses_what_was_not_synced_and_keeps_what_was(tmp_path: Path) -> None:
    powerfs_mount.skip_unless_mountable()
    with powerfs_mount.mount_powerfs(tmp_path) as fs:
        write(fs.path / "durable", b"synced", sync=True)
        write(fs.path / "moved", b"x", sync=True)
        sync_names(fs.path)
        write(fs.path / "durable", b"SYNCED and more", sync=False)
        write(fs.path / "nameless", b"synced", sync=True)
        os.rename(fs.path / "moved", fs.path / "elsewhere")
        os.truncate(fs.path / "elsewhere", 0)
        assert (fs.path / "durable").read_bytes() == b"SYNCED and more"
        assert sorted(os.listdir(fs.path)) == ["durable", "elsewhere", "nameless"]
        fs.cut_power("drop", 0)
    with powerfs_mount.mount_powerfs(tmp_path) as fs:
        assert {path.name: path.read_bytes() for path in fs.path.iterdir()} == {
            "durable": b"synced",
            "moved": b"x",
        }


@pytest.mark.parametrize("mode", ["prefix", "sectors"])
def test_a_torn_write_has_only_old_and_new_bytes(mode: str, tmp_path: Path) -> None:
    powerfs_mount.skip_unless_mountable()
    old, new = b"o" * 8192, b"n" * 8192
    seen = set()
    for seed in range(6):
        shutil.rmtree(tmp_path / "disk", ignore_errors=True)
        with powerfs_mount.mount_powerfs(tmp_path) as fs:
            write(fs.path / "f", old, sync=True)
            sync_names(fs.path)
            write(fs.path / "f", new, sync=False)
            fs.cut_power(mode, seed)
        torn = (tmp_path / "disk" / "f").read_bytes()
        assert len(torn) == len(old)
        assert set(torn) <= set(old + new)
        seen.add(torn)
    assert len(seen) > 2


def test_a_store_that_survived_a_cut_can_be_used(tmp_path: Path) -> None:
    powerfs_mount.skip_unless_mountable()
    acks = tmp_path / "acks"
    load_until_cut(tmp_path, acks, [], "drop", random.Random(5))

    async def go_on(path: Path) -> int:
        ledger = await open_ledger(str(path))
        try:
            await ledger.submit("t", 1, idempotency_key="after the cut")
            return await count_changed_answers(ledger, verification.read_answers(acks).answers)
        finally:
            await ledger.aclose()

    with powerfs_mount.mount_powerfs(tmp_path) as fs:
        assert asyncio.run(go_on(fs.path / "j.db")) == 0


def write(path: Path, data: bytes, *, sync: bool) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        assert os.pwrite(file, data, 0) == len(data)
        if sync:
            os.fsync(file)
    finally:
        os.close(file)


def sync_names(folder: Path) -> None:
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
