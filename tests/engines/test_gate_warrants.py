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
from onejob.engine import Unavailable, Unknown
from onejob.ids import new_job_id
from tests.engines.gated import Gated
from tests.engines.watched import settle_down


@pytest.fixture
def gate() -> Gated:
    return Gated(FakeClock(), wait_for_pending=False)


async def opened(gate: Gated, body: bytes = PRECONDITION.expected_body) -> None:
    """Set the policy behind the gate's back, as another process would."""
    await expect(gate.engine.store, set_credential(body), PolicyFound)


def is_lapsed(reply: AnyReply | BaseException) -> bool:
    return isinstance(reply, Refused) and reply.reason is Reason.CREDENTIAL_CHANGED


async def test_a_new_submission_asks_the_engine_and_nothing_else(gate: Gated) -> None:
    await opened(gate)
    await gate.ask(submit_with_precondition(), Created)
    assert [type(command) for command in gate.engine.given] == [Submit]


async def test_what_is_remembered_is_told_to_whose_warrant_stands(gate: Gated) -> None:
    await opened(gate)
    first = await gate.ask(submit_with_precondition(), Created)
    assert (await gate.ask(submit_with_precondition(), Replayed)).job == first.job
    assert len(gate.engine.of(Submit)) == 1
    assert gate.engine.of(LookUpPolicy)


async def test_what_is_remembered_is_not_told_to_whose_warrant_has_lapsed(gate: Gated) -> None:
    await opened(gate)
    await gate.ask(submit_with_precondition(), Created)
    await opened(gate, CHANGED_BODY)
    assert is_lapsed(await gate.ask(submit_with_precondition(), Refused))


async def test_whoever_joins_a_flight_has_a_warrant_of_its_own_that_stands(gate: Gated) -> None:
    await opened(gate)
    gate.engine.hold(decided=True)
    leader = gate.call(submit_with_precondition())
    while not gate.engine.of(Submit):
        await gate.execute_each([LookUpPolicy(tenant=TENANT, policy_id=b"none")])
    await opened(gate, CHANGED_BODY)
    assert is_lapsed((await gate.call(submit_with_precondition()))[0]), (
        "the leader was decided before the change, this one was not"
    )
    gate.engine.free()
    assert isinstance((await leader)[0], Created)
    assert len(await list_facts(gate.engine.store, Kind.JOB)) == 1


async def test_followers_share_the_answer_of_a_leader_whose_warrant_stands(gate: Gated) -> None:
    await opened(gate)
    replies = await gate.landed(await gate.in_flight([submit_with_precondition() for _ in range(20)]))
    assert [type(reply) for reply in replies] == [Created] + [Replayed] * 19
    assert len(gate.engine.of(Submit)) == 1


async def test_a_warrant_that_cannot_be_looked_at_is_no_verdict(gate: Gated) -> None:
    await opened(gate)
    await gate.ask(submit_with_precondition(), Created)
    gate.engine.before.append(Unavailable("away"))
    with pytest.raises(Unavailable):
        await gate.ask(submit_with_precondition(), Replayed)


async def test_what_was_not_looked_at_is_not_counted(gate: Gated) -> None:
    await gate.ask(submit_with_precondition(), Refused)
    assert not gate.outcomes.total()
    assert not gate.refusals


async def test_a_lapse_after_a_doubt_leaves_the_doubt(gate: Gated) -> None:
    """What was sent before may yet be done: that it would not be let through now says nothing about it."""
    await opened(gate)
    for failures in (gate.engine.before, gate.engine.after):
        failures.append(Unknown("lost"))
        task = gate.call(
            submit_with_precondition(f"{len(gate.engine.given)}"),
            submit_with_precondition("", job_id=new_job_id()),
        )
        while not gate.engine.batches:
            await settle_down()
        await opened(gate, CHANGED_BODY)
        results = await task
        await opened(gate)
        if failures is gate.engine.before:
            assert [type(result) for result in results] == [Unknown, Unknown]
        else:
            assert [type(result) for result in results] == [Created, Created], "they know their own echo"
        gate.engine.batches.clear()
    assert len(await list_facts(gate.engine.store, Kind.JOB)) == 2
