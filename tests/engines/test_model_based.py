"""Quotas and sequences against the model: no difference, no drift, no limit exceeded."""

from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest

from onejob.clock import FakeClock
from onejob.core import work
from onejob.engines.sqlite import SqliteEngine
from tests.campaigns.model_based import STEPS, ModelMismatch, draw_steps, fails, run_in_memory, run_steps, shrink_steps

pytestmark = pytest.mark.long  # computes for seconds

SEEDS = 24  # of 500 steps each

# Minimum of each outcome over all seeds.
COUNTS_MIN = {
    "created": 800, "replayed": 100, "held": 300, "settled": 100, "slot": 200, "slot settled": 100,
    "committed": 150, "already": 3, "cancelled": 300, "reconciled": 400, "in_progress": 20, "conflict": 20,
    "QUOTA_EXCEEDED": 300, "SLOT_LOST": 100, "RATE_LIMITED": 30, "COST_LIMIT_EXCEEDED": 30,
    "SEQUENCE_GAP": 50, "IDEMPOTENCY_KEY_REUSED": 20, "NOT_THE_OWNER": 20, "STALE": 100,
    "ALREADY_COMMITTED": 100,
}  # fmt: skip


async def test_12_000_steps_in_memory_never_differ_from_the_model() -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        counts += (await run_in_memory(seed, draw_steps(seed))).counts
    print(f"seeds 0 to {SEEDS - 1}, {SEEDS * STEPS:,} steps: {dict(counts)}")
    assert not {outcome: counts[outcome] for outcome, minimum in COUNTS_MIN.items() if counts[outcome] < minimum}


@pytest.mark.parametrize("seed", range(3))
async def test_steps_on_sqlite_never_differ_from_the_model(seed: int, tmp_path: Path) -> None:
    clock = FakeClock()
    engine = await SqliteEngine.open(str(tmp_path / "paces.db"), clock=clock)
    try:
        await run_steps(engine, clock, seed, draw_steps(seed, 250))
    finally:
        await engine.aclose()


async def test_a_mismatch_is_found_and_shrunk() -> None:
    with patch.object(work, "_usage_without_job", lambda *_: ()):
        seed, *_ = [seed for seed in range(4) if await fails(seed, draw_steps(seed))]
        small = await shrink_steps(seed, draw_steps(seed))
        assert len(small) <= 4
        with pytest.raises(ModelMismatch):
            await run_in_memory(seed, small)
    assert not await fails(seed, small)
