"""A duplicate that is answered at once gets the same reply, and is counted in the same way, as by a batch of reads."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from onejob.clock import FakeClock
from onejob.conformance.preconditions import PRECONDITION, set_credential, submit_with_precondition
from onejob.conformance.samples import ACTOR, OTHER, TENANT, reserve, settle, submit
from onejob.conformance.world import expect
from onejob.core.lookup import LookUpJob
from onejob.core.maintenance import CountHits, Purge
from onejob.core.replies import Cancelled, Created, KeyHeld, KeySettled, PolicyFound, Replayed
from onejob.core.reserve import Verdict
from onejob.core.states import JobState
from onejob.core.submit import Submit
from onejob.core.work import Cancel
from onejob.engines.batcher import Batcher
from onejob.engines.gate import Gate
from onejob.engines.sqlite import SqliteEngine
from onejob.ids import new_job_id
from onejob.settings import IdempotencyConfig

from .recording_gate import RecordingGate


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def engine(tmp_path: Path, clock: FakeClock) -> AsyncIterator[SqliteEngine]:
    engine = await SqliteEngine.open(str(tmp_path / "replays.db"), clock=clock)
    await engine.execute([LookUpJob(tenant=TENANT, job_id=new_job_id())])  # opens the connection for synchronous reads
    yield engine
    await engine.aclose()


@pytest.fixture
def gate(engine: SqliteEngine, clock: FakeClock) -> Gate:
    return Gate(Batcher(engine), IdempotencyConfig(wait_for_pending=False), clock.monotonic)


def duplicate(submission: Submit) -> Submit:
    return replace(submission, job_id=new_job_id())


def counts(gate: Gate) -> tuple[Counter[str], list[CountHits]]:
    return Counter(gate.outcomes.total()), gate.hits.take()


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_duplicate_is_answered_at_once_as_by_a_batch(
    engine: SqliteEngine, gate: Gate, is_cancelled: bool
) -> None:
    first = submit()
    made = await expect(gate, first, Created)
    if is_cancelled:  # as another process would
        await expect(engine, Cancel(tenant=TENANT, job_id=made.job.id, actor=ACTOR), Cancelled)
    created = counts(gate)[0]
    at_once = gate.replay_now(first)
    outcomes, hits = counts(gate)
    by_a_batch = await gate.execute_one(duplicate(first))
    assert isinstance(at_once, Replayed)
    assert isinstance(by_a_batch, Replayed)
    assert replace(at_once, at=0) == replace(by_a_batch, at=0)
    assert at_once.job is not None
    assert at_once.job.state == (JobState.CANCELLED if is_cancelled else JobState.PENDING)
    outcomes_of_both, hits_of_batch = counts(gate)
    assert outcomes_of_both - outcomes == outcomes - created == Counter(replayed=1)
    assert hits == hits_of_batch


async def test_what_must_be_decided_is_not_answered_at_once(gate: Gate, clock: FakeClock) -> None:
    first = submit()
    assert gate.replay_now(first) is None, "nothing is known of it"
    await expect(gate, first, Created)
    for other in (
        submit(input=b'{"n":2}'),
        replace(first, user="bob"),
        replace(first, tenant=OTHER),
        submit("", job_id=new_job_id()),
    ):
        assert gate.replay_now(other) is None
    held = await expect(gate, reserve("held", job_id=b""), KeyHeld)
    await expect(gate, settle(held, Verdict.COMMIT), KeySettled)
    assert gate.replay_now(submit("held")) is None, "its key has no job"
    assert gate.replay_now(first) is not None
    clock.advance(3600)
    assert gate.replay_now(first) is None, "the receipt is too old"


async def test_a_job_that_is_gone_is_not_answered_at_once(engine: SqliteEngine, gate: Gate) -> None:
    first = submit()
    made = await expect(gate, first, Created)
    await engine.execute([Purge(tenant=TENANT, record_id=first.record_id, job_ids=(made.job.id,))])
    assert gate.replay_now(first) is None
    assert isinstance(await gate.execute_one(duplicate(first)), Created)


async def test_the_credential_and_the_job_of_a_duplicate_are_read_in_one_batch() -> None:
    gate = RecordingGate(FakeClock(), wait_for_pending=False)
    await expect(gate.engine.store, set_credential(PRECONDITION.expected_body), PolicyFound)
    await gate.ask(submit_with_precondition(), Created)
    gate.engine.batches.clear()
    await gate.ask(submit_with_precondition(), Replayed)
    (batch,) = gate.engine.batches
    assert sorted(type(command).__name__ for command in batch) == ["LookUpJob", "LookUpPolicy"]
