"""A gate and warrants: what the engine is not asked for, it cannot prove, so the gate looks before it answers."""

import pytest

from onejob.clock import FakeClock
from onejob.conformance.preconditions import CHANGED_BODY, PRECONDITION, set_credential, submit_with_precondition
from onejob.conformance.samples import TENANT
from onejob.conformance.world import expect, list_facts
from onejob.core.credentials import LookUpPolicy
from onejob.core.facts import Kind
from onejob.core.replies import AnyReply, Created, PolicyFound, Reason, Refused, Replayed
from onejob.core.submit import Submit
from onejob.errors import Unavailable, Unknown
from onejob.ids import new_job_id
from tests.support.recording_engine import run_ready_callbacks

from .recording_gate import RecordingGate


@pytest.fixture
def gate() -> RecordingGate:
    return RecordingGate(FakeClock(), wait_for_pending=False)


async def set_policy_behind_the_gate(gate: RecordingGate, body: bytes = PRECONDITION.expected_body) -> None:
    """Set the policy behind the gate's back, as another process would."""
    await expect(gate.engine.store, set_credential(body), PolicyFound)


def is_precondition_failure(reply: AnyReply | BaseException) -> bool:
    return isinstance(reply, Refused) and reply.reason is Reason.CREDENTIAL_CHANGED


async def test_a_new_submission_is_one_engine_call(gate: RecordingGate) -> None:
    await set_policy_behind_the_gate(gate)
    await gate.ask(submit_with_precondition(), Created)
    assert [type(command) for command in gate.engine.commands] == [Submit]


async def test_a_cached_reply_is_given_if_the_precondition_is_met(gate: RecordingGate) -> None:
    await set_policy_behind_the_gate(gate)
    first = await gate.ask(submit_with_precondition(), Created)
    assert (await gate.ask(submit_with_precondition(), Replayed)).job == first.job
    assert len(gate.engine.commands_of_type(Submit)) == 1
    assert gate.engine.commands_of_type(LookUpPolicy)


async def test_a_cached_reply_is_refused_if_the_precondition_fails(gate: RecordingGate) -> None:
    await set_policy_behind_the_gate(gate)
    await gate.ask(submit_with_precondition(), Created)
    await set_policy_behind_the_gate(gate, CHANGED_BODY)
    assert is_precondition_failure(await gate.ask(submit_with_precondition(), Refused))


async def test_a_follower_in_flight_needs_its_own_precondition_met(gate: RecordingGate) -> None:
    await set_policy_behind_the_gate(gate)
    gate.engine.hold_writes(after_deciding=True)
    leader = gate.start_call(submit_with_precondition())
    while not gate.engine.commands_of_type(Submit):
        await gate.execute_each([LookUpPolicy(tenant=TENANT, policy_id=b"none")])
    await set_policy_behind_the_gate(gate, CHANGED_BODY)
    assert is_precondition_failure((await gate.start_call(submit_with_precondition()))[0]), (
        "the leader was decided before the change, this one was not"
    )
    gate.engine.release_writes()
    assert isinstance((await leader)[0], Created)
    assert len(await list_facts(gate.engine.store, Kind.JOB)) == 1


async def test_followers_share_the_reply_of_a_leader_whose_precondition_is_met(gate: RecordingGate) -> None:
    await set_policy_behind_the_gate(gate)
    replies = await gate.release_and_collect(await gate.start_and_hold([submit_with_precondition() for _ in range(20)]))
    assert [type(reply) for reply in replies] == [Created] + [Replayed] * 19
    assert len(gate.engine.commands_of_type(Submit)) == 1


async def test_a_precondition_that_cannot_be_read_is_no_verdict(gate: RecordingGate) -> None:
    await set_policy_behind_the_gate(gate)
    await gate.ask(submit_with_precondition(), Created)
    gate.engine.fail_before.append(Unavailable("away"))
    with pytest.raises(Unavailable):
        await gate.ask(submit_with_precondition(), Replayed)


async def test_a_reply_withheld_by_a_precondition_is_not_counted(gate: RecordingGate) -> None:
    await gate.ask(submit_with_precondition(), Refused)
    assert not gate.outcomes.total()
    assert not gate.refusals


async def test_a_failed_precondition_after_an_unknown_outcome_stays_unknown(gate: RecordingGate) -> None:
    """What was sent before may yet be done: that it would not be let through now says nothing about it."""
    await set_policy_behind_the_gate(gate)
    for failures in (gate.engine.fail_before, gate.engine.fail_after):
        failures.append(Unknown("lost"))
        task = gate.start_call(
            submit_with_precondition(f"{len(gate.engine.commands)}"),
            submit_with_precondition("", job_id=new_job_id()),
        )
        while not gate.engine.batches:
            await run_ready_callbacks()
        await set_policy_behind_the_gate(gate, CHANGED_BODY)
        results = await task
        await set_policy_behind_the_gate(gate)
        if failures is gate.engine.fail_before:
            assert [type(result) for result in results] == [Unknown, Unknown]
        else:
            assert [type(result) for result in results] == [Created, Created], "they know their own echo"
        gate.engine.batches.clear()
    assert len(await list_facts(gate.engine.store, Kind.JOB)) == 2
