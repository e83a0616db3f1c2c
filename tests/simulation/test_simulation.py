"""The simulations that every test run includes; `make prove` runs a long campaign."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaigns.simulation.campaign import Report, first_violation, shrink_failing_plan, simulate_seeds
from tests.campaigns.simulation.plan import draw_plan
from tests.campaigns.simulation.shrink import size
from tests.campaigns.simulation.simulator import simulate

pytestmark = pytest.mark.long  # computes for seconds

HERE = Path(__file__).parent
SLICES = 8
SLICE_STEPS = 300_000  # eight slices have more than two million
SLICE_SEEDS_MAX = 1_000

# A slice in which nothing happens proves nothing: the minimum of each counter.
COUNTS_MIN = {
    "answer created": 500, "answer replayed": 600, "answer conflict": 60, "answer inprogress": 30,
    "answer rejected": 10, "answer refused": 60, "answer keyheld": 150, "answer keysettled": 40,
    "answer unavailable": 100, "unknown raised": 150, "no answer": 300,
    "expired": 150, "re-created": 300, "take-overs": 40, "abandoned": 5, "retained": 500, "purged": 100,
    "evicted": 80, "version conflict": 100, "inserted without loading": 50,
    "numbers": 50, "SubmitSequence already": 10, "SubmitSequence refused": 60, "LookUpStream stream": 20,
    "ReserveSlot slot": 20, "ReserveSlot refused": 10, "ConsumeSlot slot settled": 1, "RenewSlot slot": 4,
    "ReleaseSlot slot settled": 4, "SetLimits usage": 3, "Reconcile reconciled": 4,
    "Claim claimed": 60, "Claim refused": 5, "Start started": 20, "Start refused": 20, "Extend extended": 10,
    "Finish finished": 20, "finished": 15,
    "unavailable": 80, "request_lost": 40, "reply_lost": 60, "late": 30, "slow": 250, "wire_lost": 40,
    "hang_up": 50, "crash": 60, "roll": 25, "pause": 80, "back": 10, "forward": 1, "roll_back": 20,
    "new ledger": 10,
}  # fmt: skip


def known_seeds() -> list[int]:
    lines = (HERE / "seeds.txt").read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def test_seeds_that_once_failed_pass() -> None:
    report = Report()
    for seed in known_seeds():
        report.add(simulate(draw_plan(seed)))
    assert not report.failures


@pytest.mark.parametrize("part", range(SLICES))
def test_seeded_simulations_find_no_violation(part: int) -> None:
    start = 1_000_000 * (part + 1)
    report = simulate_seeds(start, SLICE_SEEDS_MAX, steps=SLICE_STEPS)
    print(f"seeds {start} to {start + report.seeds - 1}: {report.steps:,} steps, {report.faults:,} faults")
    assert not report.failures, f"python -m tests.campaigns.simulation --replay {report.failures[0][0]}"
    assert report.steps >= SLICE_STEPS
    too_few = {name: report.counts[name] for name, minimum in COUNTS_MIN.items() if report.counts[name] < minimum}
    assert not too_few


def test_a_seed_gives_the_same_simulation() -> None:
    for seed in range(5):
        assert simulate(draw_plan(seed)).digest == simulate(draw_plan(seed)).digest
    assert simulate(draw_plan(1)).digest != simulate(draw_plan(2)).digest


def test_a_simulation_is_the_same_in_every_process() -> None:
    code = (
        "from tests.campaigns.simulation.plan import draw_plan; from tests.campaigns.simulation.simulator import simulate; "
        "print(simulate(draw_plan(3)).digest)"
    )
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
    assert digests == {simulate(draw_plan(3)).digest + "\n"}


def test_a_failing_plan_shrinks_and_still_fails() -> None:
    mutant = "timed_out_waiter_is_new"
    direct = "the reply names the key's job"  # other violations may be late consequences, which shrink less
    plan = next(plan for plan in map(draw_plan, range(100)) if first_violation(plan, mutant) == direct)
    small = shrink_failing_plan(plan, mutant)
    assert first_violation(small, mutant) == first_violation(plan, mutant)
    assert size(small) <= 16
    assert first_violation(small) is None
