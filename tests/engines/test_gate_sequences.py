"""Numbers of a sequence pass the gate as they are: nothing shared, nothing remembered, doubt resolved."""

import pytest

from onejob.clock import FakeClock
from onejob.core.facts import U64, JobSpec
from onejob.core.identity import record_id, stream_id
from onejob.core.replies import SequenceAlreadyCommitted, SequenceCommitted
from onejob.core.sequence import SubmitSequence
from onejob.engines.batcher import UNKNOWN_ATTEMPTS_MAX
from onejob.errors import Unavailable, Unknown

from .recording_gate import RecordingGate
from .virtual_time import in_virtual_time

TENANT, SCOPE, CLIENT = "acme", "s", "c"


def send(sequence: int, *, copy: int = 0, jobs: int = 2) -> SubmitSequence:
    key = f"k{sequence}"
    return SubmitSequence(
        tenant=TENANT,
        stream_id=stream_id(TENANT, SCOPE, CLIENT),
        record_id=record_id(TENANT, SCOPE, key),
        scope=SCOPE,
        client_id=CLIENT,
        sequence=U64(sequence),
        key=key,
        fingerprint=b"same",
        items=tuple(JobSpec(f"{sequence:05}-{copy:05}-{n:04}".encode(), "w", b"1") for n in range(jobs)),
        actor="client:c",
        user="ann",
        owner="client:c",
        ttl_ms=3_600_000,
    )


@in_virtual_time
async def test_copies_in_flight_are_each_decided_by_the_engine(clock: FakeClock) -> None:
    gate = RecordingGate(clock)
    copies = [send(1, copy=n) for n in range(20)]
    results = await gate.release_and_collect(await gate.start_and_hold(copies))
    assert [type(result) for result in results].count(SequenceCommitted) == 1
    assert [type(result) for result in results].count(SequenceAlreadyCommitted) == 19
    assert len(gate.engine.commands_of_type(SubmitSequence)) == 20
    assert len({result.jobs for result in results}) == 1


@in_virtual_time
async def test_nothing_is_remembered_of_a_number(clock: FakeClock) -> None:
    gate = RecordingGate(clock)
    await gate.ask(send(1), SequenceCommitted)
    await gate.ask(send(1, copy=1), SequenceAlreadyCommitted)
    assert gate.cache.stats(waiters=0).total == 0
    assert len(gate.engine.commands_of_type(SubmitSequence)) == 2


@pytest.mark.parametrize("times", range(1, UNKNOWN_ATTEMPTS_MAX))
def test_a_lost_answer_is_asked_for_again_and_stays_committed(times: int) -> None:
    @in_virtual_time
    async def run(clock: FakeClock) -> None:
        gate = RecordingGate(clock)
        gate.engine.fail_after.extend(Unknown("lost") for _ in range(times))
        committed = await gate.ask(send(1), SequenceCommitted)
        assert (committed.sequence, len(committed.jobs)) == (1, 2)
        assert (await gate.ask(send(2), SequenceCommitted)).sequence == 2
        again = await gate.ask(send(1, copy=1), SequenceAlreadyCommitted)
        assert (again.jobs, again.last) == (committed.jobs, 2)

    run()


@in_virtual_time
async def test_a_failure_before_anything_is_done_leaves_the_number_free(clock: FakeClock) -> None:
    gate = RecordingGate(clock)
    gate.engine.fail_before.append(Unavailable("away"))
    (failed,) = await gate.execute_each([send(1)])
    assert isinstance(failed, Unavailable)
    assert (await gate.ask(send(1, copy=1, jobs=3), SequenceCommitted)).sequence == 1


@in_virtual_time
async def test_a_number_of_unknown_outcome_is_reported_and_answered_later(clock: FakeClock) -> None:
    gate = RecordingGate(clock)
    gate.engine.fail_after.extend(Unknown("lost") for _ in range(UNKNOWN_ATTEMPTS_MAX))
    (doubt,) = await gate.execute_each([send(1)])
    assert isinstance(doubt, Unknown)
    again = await gate.ask(send(1, copy=1), SequenceAlreadyCommitted)
    assert (again.sequence, len(again.jobs)) == (1, 2)
