"""Full disks and missing permissions: a clear error, nothing stored by half, usable again once fixed."""

from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

import onejob
from onejob import runtime

from . import powerfs_mount, verification
from .load_program import count_changed_answers, open_ledger, submission_for
from .other_process import OtherProcessFailed, submit_in_other_process

KEYS_MAX = 2000


async def test_a_full_disk_is_reported_and_the_same_process_goes_on_once_there_is_space(tmp_path: Path) -> None:
    powerfs_mount.skip_unless_mountable()
    with powerfs_mount.mount_powerfs(tmp_path) as fs:
        path = fs.path / "j.db"
        ledger = await open_ledger(str(path))
        try:
            await submit(ledger, "first")
            fs.send_command("room", bytes_used(fs.path) + 1_500_000)
            answers, refused, error = await submit_until_refused(ledger)
            assert "free some space, then retry" in str(error)
            assert str(path) in str(error)
            # Known keys are answered while the disk is full, and new ones are refused.
            assert await count_changed_answers(ledger, answers) == 0
            with pytest.raises(onejob.Unavailable):
                await submit(ledger, refused)
            fs.send_command("room", -1)
            answers[refused] = await submit(ledger, refused)
            assert await count_changed_answers(ledger, answers) == 0
        finally:
            await ledger.aclose()
        stored = verification.check_integrity(path)
        assert stored == {**answers, "first": stored["first"]}
        print(f"{len(answers)} answers before and after the disk was full")


async def test_a_store_cannot_be_made_on_a_full_disk_and_can_once_there_is_space(tmp_path: Path) -> None:
    powerfs_mount.skip_unless_mountable()
    with powerfs_mount.mount_powerfs(tmp_path) as fs:
        path = fs.path / "j.db"
        for room in (0, 1_000, 10_000, 40_000, 70_000):
            fs.send_command("room", room)
            with pytest.raises(onejob.Unavailable, match=r"j\.db .* then retry"):
                await open_ledger(str(path))
        fs.send_command("room", -1)
        ledger = await open_ledger(str(path))
        try:
            await submit(ledger, "first")
        finally:
            await ledger.aclose()
        assert verification.check_integrity(path).keys() == {"first"}


async def test_a_store_restarted_on_a_full_disk_loses_no_answer(tmp_path: Path) -> None:
    powerfs_mount.skip_unless_mountable()
    with powerfs_mount.mount_powerfs(tmp_path) as fs:
        path = fs.path / "j.db"
        known = submit_in_other_process(path, "a", "b", end="kill")
        fs.send_command("room", bytes_used(fs.path))
        with suppress(onejob.Unavailable):  # if it opens on a full disk, it has every answer
            ledger = await open_ledger(str(path))
            try:
                assert await submit(ledger, "a") == known[0].job_id
            finally:
                await ledger.aclose()
        fs.send_command("room", -1)
        assert [one.job_id for one in submit_in_other_process(path, "a", "b")] == [one.job_id for one in known]


@pytest.mark.parametrize("reading", [True, False])
async def test_a_read_only_disk_is_reported_and_the_same_process_goes_on_once_it_is_not(
    reading: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "PROBE_INTERVAL_SECONDS", 0.0)
    powerfs_mount.skip_unless_mountable()
    with powerfs_mount.mount_powerfs(tmp_path) as fs:
        path = fs.path / "j.db"
        ledger = await open_ledger(str(path))
        try:
            answers = {"before": await submit(ledger, "before")}
            if reading:
                await ledger.jobs()
            fs.send_command("frozen", 1)
            for _ in range(3):
                with pytest.raises((onejob.Unavailable, onejob.Unknown), match="retry"):
                    await submit(ledger, "during")
            with nullcontext() if reading else suppress(onejob.Unavailable):
                assert await submit(ledger, "before") == answers["before"]
            with pytest.raises(onejob.Unavailable, match=r"j\.db .* then retry"):
                await open_ledger(str(path))
            for _ in range(2):
                with pytest.raises((onejob.Unavailable, onejob.Unknown), match="retry"):
                    await ledger._runtime.readiness.check()
            fs.send_command("frozen", 0)
            await ledger._runtime.readiness.check()
            answers["during"] = await submit(ledger, "during")
            assert await count_changed_answers(ledger, answers) == 0
        finally:
            await ledger.aclose()
        assert verification.check_integrity(path) == answers


def test_an_unwritable_folder_is_reported_and_works_again_once_it_is_writable(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    tmp_path.chmod(0o555)
    with pytest.raises(OtherProcessFailed, match=r"Unavailable: .*j\.db cannot be written .* fix its permissions"):
        submit_in_other_process(path, "a", bound=True)
    assert not list(tmp_path.iterdir())
    tmp_path.chmod(0o777)
    (known,) = submit_in_other_process(path, "a", bound=True)
    tmp_path.chmod(0o555)
    with pytest.raises(OtherProcessFailed, match=r"Unavailable: .*j\.db cannot be written .* fix its permissions"):
        submit_in_other_process(path, "a", bound=True)
    tmp_path.chmod(0o777)
    assert submit_in_other_process(path, "a", bound=True)[0].job_id == known.job_id


@pytest.mark.parametrize("end", ["close", "kill"])
def test_an_unwritable_file_is_reported_and_works_again_once_it_is_writable(end: str, tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    (known,) = submit_in_other_process(path, "a", end=end, bound=True)
    for file in tmp_path.iterdir():
        file.chmod(0o444)
    with pytest.raises(OtherProcessFailed, match=r"Unavailable: .*j\.db cannot be written .* fix its permissions"):
        submit_in_other_process(path, "a", bound=True)
    for file in tmp_path.iterdir():
        file.chmod(0o600)
    assert submit_in_other_process(path, "a", bound=True)[0].job_id == known.job_id


def test_a_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    submit_in_other_process(tmp_path / "j.db", "a", end="kill", bound=True)
    assert {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {
        f"j.db{suffix}": 0o600 for suffix in ("", "-wal", "-shm", "-turn", "-next")
    }


async def submit(ledger: onejob.Ledger, key: str) -> str:
    submission = submission_for(key)
    return (await ledger.submit(submission.type, submission.input, idempotency_key=key)).job_id


async def submit_until_refused(ledger: onejob.Ledger) -> tuple[dict[str, str], str, onejob.Unavailable]:
    answers: dict[str, str] = {}
    for number in range(KEYS_MAX):
        key = f"k{number}"
        try:
            answers[key] = await submit(ledger, key)
        except onejob.Unavailable as error:
            return answers, key, error
    pytest.fail("the disk was never full")


def bytes_used(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())
