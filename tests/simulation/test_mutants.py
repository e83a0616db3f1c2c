"""The simulation catches every mutant, and the same plan without the mutant passes."""

import pytest

from tests.campaigns.simulation.mutants import ALL_MUTANTS, SCENARIOS, find_catching_seed, plan_for
from tests.campaigns.simulation.simulator import simulate

pytestmark = pytest.mark.long  # computes for seconds

SEEDS_MAX = 500


def test_every_scenario_belongs_to_a_mutant() -> None:
    assert SCENARIOS.keys() <= ALL_MUTANTS.keys()


@pytest.mark.parametrize("mutant", sorted(ALL_MUTANTS))
def test_mutant_is_caught(mutant: str) -> None:
    caught = find_catching_seed(mutant, range(SEEDS_MAX))
    assert caught is not None, f"{mutant} passed {SEEDS_MAX} seeds"
    print(f"{mutant}: seed {caught.seed}, {caught.violations[0]}")
    assert simulate(plan_for(caught.seed, mutant)).violations == ()
