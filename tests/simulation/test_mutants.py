"""The walks have teeth: a house with any one of these bugs is caught, and the house without it is not."""

import pytest

from .mutants import ALL_MUTANTS, SCENARIOS, find_catching_seed, plan_for
from .simulator import simulate

SEEDS_MAX = 500


def test_every_scenario_belongs_to_a_mutant() -> None:
    assert SCENARIOS.keys() <= ALL_MUTANTS.keys()


@pytest.mark.parametrize("bug", sorted(ALL_MUTANTS))
def test_mutant_is_caught(bug: str) -> None:
    caught = find_catching_seed(bug, range(SEEDS_MAX))
    assert caught is not None, f"{bug} went through {SEEDS_MAX} seeds unseen"
    print(f"{bug}: seed {caught.seed}, {caught.violations[0]}")
    assert simulate(plan_for(caught.seed, bug)).violations == ()
