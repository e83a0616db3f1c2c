"""Changes of a ledger's settings in the simulator, and deliberate bugs of them that the simulator must catch."""

from collections.abc import Callable
from typing import Any

import pytest

from onejob.core import batch
from onejob.engine import LiveKeyCount
from onejob.runtime import settings as settings_module
from tests.campaigns.simulation.settings import SnapshotEngine, simulate_settings

pytestmark = pytest.mark.long  # computes for seconds

SEEDS = 12
MUTANT_SEEDS_MAX = 60


def test_simulations_of_settings_find_no_violation() -> None:
    changed = refused = died = 0
    for seed in range(SEEDS):
        result = simulate_settings(seed)
        assert not result.violations, f"seed {seed}: {result.violations}"
        changed += result.counts.get("changed", 0)
        refused += result.counts.get("refused", 0)
        died += result.counts.get("died", 0)
    assert changed > 10
    assert refused > 10
    assert died > 3


class WaitForNobody(SnapshotEngine):
    async def barrier(self, tenant: str | None, user: str | None = None) -> None:
        pass


def prove_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch.WorkingSet, "has_settings", lambda self, footprint: True)


def leave_the_doors_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(settings_module, "closed_settings", lambda stored, now, *, by: stored)


def count_no_keys(patch: pytest.MonkeyPatch) -> None:
    async def count(engine: Any) -> LiveKeyCount:
        return LiveKeyCount()

    patch.setattr(settings_module, "_count_live_keys", count)


def prove_closed_settings(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch, "CLOSED_MARK", b"never")


def do_nothing(patch: pytest.MonkeyPatch) -> None:
    pass


@pytest.mark.parametrize(
    ("break_it", "engine"),
    [
        (do_nothing, WaitForNobody),
        (prove_nothing, SnapshotEngine),
        (leave_the_doors_open, SnapshotEngine),
        (count_no_keys, SnapshotEngine),
        (prove_closed_settings, SnapshotEngine),
    ],
    ids=["wait_for_nobody", "prove_nothing", "leave_the_doors_open", "count_no_keys", "prove_closed_settings"],
)
def test_a_bug_is_caught(
    break_it: Callable[[pytest.MonkeyPatch], None], engine: type[SnapshotEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    assert any(simulate_settings(seed, engine).violations for seed in range(MUTANT_SEEDS_MAX))
