"""The slice of the walks that every test run takes; `make prove` takes the long one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .plan import draw
from .run import Report, broken_law, smallest, walk_some
from .shrink import size
from .world import walk

HERE = Path(__file__).parent
SLICES = 8
SLICE_STEPS = 200_000  # eight of them are more than a million and a half
SLICE_SEEDS_MAX = 1_000

# A run in which nothing happens proves nothing: the least that a slice must have met.
LEAST = {
    "answer created": 500, "answer replayed": 600, "answer conflict": 60, "answer inprogress": 30,
    "answer rejected": 10, "answer refused": 60, "answer held": 150, "answer settled": 40,
    "answer unavailable": 100, "unknown raised": 150, "no answer": 300,
    "expired": 150, "re-created": 300, "take-overs": 40, "abandoned": 5, "retained": 500, "purged": 100,
    "evicted": 80, "version conflict": 100,
    "numbers": 50, "SubmitSequence already": 50, "SubmitSequence refused": 30, "LookUpStream stream": 20,
    "ReserveSlot slot": 20, "ReserveSlot refused": 10, "ConsumeSlot slot settled": 1, "RenewSlot slot": 4,
    "ReleaseSlot slot settled": 4, "SetLimits tally": 3, "Recount recounted": 4,
    "Claim claimed": 60, "Claim refused": 5, "Start started": 20, "Start refused": 20, "Extend extended": 10,
    "Finish finished": 20, "finished": 15,
    "unavailable": 80, "request_lost": 40, "reply_lost": 60, "late": 30, "slow": 250, "wire_lost": 40,
    "hang_up": 50, "crash": 60, "roll": 25, "pause": 80, "back": 10, "forward": 1,
}  # fmt: skip


def known_seeds() -> list[int]:
    lines = (HERE / "seeds.txt").read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def test_seeds_that_once_failed_hold() -> None:
    report = Report()
    for seed in known_seeds():
        report.add(walk(draw(seed)))
    assert not report.failures


@pytest.mark.parametrize("part", range(SLICES))
def test_walks_hold(part: int) -> None:
    start = 1_000_000 * (part + 1)
    report = walk_some(start, SLICE_SEEDS_MAX, steps=SLICE_STEPS)
    print(f"seeds {start} to {start + report.seeds - 1}: {report.steps:,} steps, {report.faults:,} faults")
    assert not report.failures, f"python -m tests.walks --replay {report.failures[0][0]}"
    assert report.steps >= SLICE_STEPS
    thin = {name: report.counts[name] for name, least in LEAST.items() if report.counts[name] < least}
    assert not thin


def test_one_seed_is_one_walk() -> None:
    for seed in range(5):
        assert walk(draw(seed)).digest == walk(draw(seed)).digest
    assert walk(draw(1)).digest != walk(draw(2)).digest


def test_a_walk_is_the_same_in_every_process() -> None:
    code = "from tests.walks.plan import draw; from tests.walks.world import walk; print(walk(draw(3)).digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=HERE.parent.parent,
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in (1, 2)
    }
    assert digests == {walk(draw(3)).digest + "\n"}


def test_a_failing_plan_shrinks_and_still_fails() -> None:
    bug = "timed_out_waiter_is_new"
    plan = next(plan for plan in map(draw, range(100)) if broken_law(plan, bug))
    small = smallest(plan, bug)
    assert broken_law(small, bug) == broken_law(plan, bug)
    assert size(small) <= 12
    assert broken_law(small) is None
