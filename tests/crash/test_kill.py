"""SIGKILL at random moments under load: no answer is lost, and each key has one job."""

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
    rng = random.Random(seed)
    path = tmp_path / "j.db"
    files: list[Path] = []
    confirmed = 0
    for cycle in range(CYCLES):
        with run_load(path, tmp_path / f"acks{cycle}", name=f"c{cycle}", known=files[-1:]) as load:
            count, lost = load.read_check_result()
            assert not lost
            confirmed += count
            load.wait_until_busy()
            sleep_randomly(rng, 0.4)
        files.append(load.acks)
    print(f"seed {seed}: {CYCLES} kills, {check_all_answers(path, files)} answers, {confirmed} confirmed")


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_when_one_of_two_processes_is_killed_the_other_goes_on(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
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
                sleep_randomly(rng, 0.3)
            before = survivor.acks.stat().st_size
            survivor.wait_until_busy(before // 40 + 50)
            files.append(load.acks)
    print(f"seed {seed}: {CYCLES} kills next to a survivor, {check_all_answers(path, files)} answers")


def check_all_answers(path: Path, files: list[Path]) -> int:
    """Compare all recorded answers with the store; returns how many there are."""
    stored = verification.check_integrity(path)
    count = 0
    for file in files:
        recorded = verification.read_answers(file)
        assert recorded.answers, "no caller got an answer: nothing was tested"
        wrong = {key: job_id for key, job_id in recorded.answers.items() if stored.get(key) != job_id}
        assert not wrong
        count += recorded.total
    return count
