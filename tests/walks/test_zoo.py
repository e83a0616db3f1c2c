"""The walks have teeth: a house with any one of these bugs is caught, and the house without it is not."""

import pytest

from .world import walk
from .zoo import ZOO, hunt, plan_of

SEEDS_MAX = 500


@pytest.mark.parametrize("bug", sorted(ZOO))
def test_bug_is_caught(bug: str) -> None:
    caught = hunt(bug, range(SEEDS_MAX))
    assert caught is not None, f"{bug} went through {SEEDS_MAX} seeds unseen"
    print(f"{bug}: seed {caught.seed}, {caught.violations[0]}")
    assert walk(plan_of(caught.seed, bug)).violations == ()
