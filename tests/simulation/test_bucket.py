"""The bucket engine's protocol in the simulator, and deliberate bugs of it that the simulator must catch.

A batch that is put twice does no harm here, because the commands recognise their own effect; the rounds of
`tests/campaigns/bucket.py`, which have a counter, find that.
"""

import pytest
from msgspec.structs import replace

from onejob.engines.bucket import WriteCall
from onejob.engines.bucket.log import LogEntry
from tests.campaigns.simulation.bucket import ObservedBucketEngine, simulate_bucket
from tests.campaigns.simulation.plan import draw_plan

pytestmark = pytest.mark.long  # computes for seconds

SEEDS = 8
MUTANT_SEEDS_MAX = 40


def test_simulations_of_the_bucket_find_no_violation() -> None:
    entries = conflicts = 0
    for seed in range(SEEDS):
        result = simulate_bucket(draw_plan(seed))
        assert not result.violations, f"seed {seed}: {result.violations}"
        entries += result.counts.get("answer created", 0)
        conflicts += result.counts.get("version conflict", 0)
    assert entries > 50
    assert conflicts > 50


def test_a_seed_gives_the_same_simulation_of_the_bucket() -> None:
    assert simulate_bucket(draw_plan(5)).digest == simulate_bucket(draw_plan(5)).digest


class TakeAnothersEntryForOwn(ObservedBucketEngine):
    async def _append(self, entry: LogEntry, call: WriteCall) -> LogEntry | None:
        await super()._append(entry, call)
        return None


class ReadWithoutAsking(ObservedBucketEngine):
    async def _confirm(self) -> None:
        pass


class AnswerDuplicatesWithoutAsking(ObservedBucketEngine):
    async def _find_newer(self, position: int) -> bytes | None:
        return None


class LetTimeRunBackwards(ObservedBucketEngine):
    async def start(self) -> None:
        self._replica.now = lambda: self._time.latest_ms() - 1500 * (self._replica.state.position % 2)  # type: ignore[method-assign]
        await super().start()


class ForgetsWhatTheMachineHasSeen(ObservedBucketEngine):
    """Ours: a replica that did not fit the log was made anew."""

    def _open_replica(self) -> None:
        self._has_marks = True
        super()._open_replica()

    def _note_mark(self) -> None:
        pass


class AnswerBeforeThePut(ObservedBucketEngine):
    async def _append(self, entry: LogEntry, call: WriteCall) -> LogEntry | None:
        self.store.proposals[entry.digest] = self._decided
        self._spawn(super()._append(entry, call))
        return None


@pytest.mark.parametrize(
    "mutant",
    [
        TakeAnothersEntryForOwn,
        ReadWithoutAsking,
        AnswerDuplicatesWithoutAsking,
        LetTimeRunBackwards,
        AnswerBeforeThePut,
        ForgetsWhatTheMachineHasSeen,
    ],
    ids=lambda mutant: mutant.__name__,
)
def test_a_mutant_of_the_protocol_is_caught(mutant: type[ObservedBucketEngine]) -> None:
    for seed in range(MUTANT_SEEDS_MAX):
        plan = draw_plan(seed)
        # Older copies that are put back are for the mutant that does not notice them, and often: else few seeds catch it.
        roll_back = 2.0 if mutant is ForgetsWhatTheMachineHasSeen else 0.0
        plan = replace(plan, faults=replace(plan.faults, roll_back=roll_back))
        violations = simulate_bucket(plan, mutant).violations
        if violations:
            print(f"{mutant.__name__}: seed {seed}, {violations[0]}")
            return
    raise AssertionError(f"{mutant.__name__} passed {MUTANT_SEEDS_MAX} seeds")
