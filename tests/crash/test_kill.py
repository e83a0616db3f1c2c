"""kill -9 at random moments, with many callers at work: what was answered stays, and each key has one job."""

import os
import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from . import verification
from .load_process import run_load, sleep_randomly

CYCLES = int(os.environ.get("CRASH_CYCLES", "5"))
SEEDS = (11, 22, 33, 44)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_process_loses_no_answer(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    path = tmp_path / "j.db"
    files: list[Path] = []
    held = 0
    for cycle in range(CYCLES):
        with run_load(path, tmp_path / f"acks{cycle}", name=f"c{cycle}", known=files[-1:]) as load:
            kept, lost = load.read_check_result()
            assert not lost
            held += kept
            load.wait_until_busy()
            sleep_randomly(chance, 0.4)
        files.append(load.acks)
    print(f"seed {seed}: {CYCLES} kills, {check_all_answers(path, files)} answers, {held} asked for again")


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_when_one_of_two_processes_is_killed_the_other_goes_on(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    path = tmp_path / "j.db"
    files: list[Path] = []
    with ExitStack() as stack:
        survivor = stack.enter_context(run_load(path, tmp_path / "survivor", name="s"))
        survivor.wait_until_busy()
        files.append(survivor.acks)
        for cycle in range(CYCLES):
            with run_load(path, tmp_path / f"acks{cycle}", name=f"c{cycle}", known=files[-1:]) as load:
                assert load.read_check_result()[1] == 0
                load.wait_until_busy()
                sleep_randomly(chance, 0.3)
            before = survivor.acks.stat().st_size
            survivor.wait_until_busy(before // 40 + 50)
            files.append(load.acks)
    print(f"seed {seed}: {CYCLES} kills beside a survivor, {check_all_answers(path, files)} answers")


def check_all_answers(path: Path, files: list[Path]) -> int:
    """All files of answers against the store; returns how many there were."""
    kept = verification.check_integrity(path)
    count = 0
    for file in files:
        told = verification.read_answers(file)
        assert told.answers, "nobody got an answer: nothing was tested"
        wrong = {key: job_id for key, job_id in told.answers.items() if kept.get(key) != job_id}
        assert not wrong
        count += told.total
    return count
