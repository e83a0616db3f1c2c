"""Rules of steps: begun only in the running attempt, bounded in number, finished by the run that began last."""

from typing import Any

import pytest

from onejob.core.facts import Kind, Memo
from onejob.core.identity import memo_id
from onejob.core.memo import MEMOS_MAX, BeginStep, FinishStep, LookUpMemo
from onejob.core.replies import Missing, Reason, Refused, StepBegun, StepFinished
from onejob.core.states import Delivery, JobState
from tests.core.world import ANN, BOB, EVE, JOB, LEASE, NOW, TENANT, World, a_job, expect_type

MEMO_ID = memo_id(TENANT, JOB, "pay")
RUNNING: dict[str, Any] = {"token": 3, "holder": ANN, "lease_until": NOW + LEASE, "attempts": 1, "started_at": NOW}


def begin(call: bytes = BOB, **changes: Any) -> BeginStep:
    fields: dict[str, Any] = {"token": 3, "holder": ANN, "name": "pay", "fingerprint": b"f", "step_holder": call}
    return BeginStep(tenant=TENANT, job_id=JOB, **fields | changes)


def finish(call: bytes = BOB, result: bytes = b"1", token: int = 3) -> FinishStep:
    return FinishStep(tenant=TENANT, job_id=JOB, name="pay", token=token, step_holder=call, result=result)


def reason(world: World, command: Any, at: int = NOW) -> Reason:
    before = dict(world.facts)
    refused = expect_type(world.execute(command, at), Refused)
    assert world.facts == before
    return refused.reason


def memo(world: World) -> Memo:
    return expect_type(world.facts.get((Kind.MEMO, MEMO_ID)), Memo)


@pytest.mark.parametrize("state", sorted(set(JobState) - {JobState.RUNNING}))
def test_a_job_that_does_not_run_begins_no_step(state: JobState) -> None:
    assert reason(World(a_job(state, **RUNNING)), begin()) is Reason.STALE


@pytest.mark.parametrize("changes", [{"token": 2}, {"token": 4}, {"holder": EVE}], ids=str)
def test_only_the_attempt_that_runs_begins_a_step(changes: dict[str, Any]) -> None:
    world = World(a_job(JobState.RUNNING, **RUNNING))
    assert reason(world, begin(**changes)) is Reason.STALE
    world.execute_batch(begin(), finish())
    assert reason(world, begin(EVE, **changes)) is Reason.STALE  # not even the answer of a finished one


def test_a_late_holder_that_nobody_has_replaced_begins_a_step() -> None:
    world = World(a_job(JobState.RUNNING, **RUNNING))
    expect_type(world.execute(begin(), NOW + 10 * LEASE), StepBegun)


def test_no_step_begins_after_the_timeout_of_the_attempt() -> None:
    world = World(a_job(JobState.RUNNING, **RUNNING, timeout_ms=500))
    assert reason(world, begin(), NOW + 501) is Reason.TIMED_OUT
    expect_type(world.execute(begin(), NOW + 500), StepBegun)


def test_a_job_has_a_bounded_number_of_steps() -> None:
    world = World(a_job(JobState.RUNNING, **RUNNING, memos=MEMOS_MAX - 1))
    world.execute(begin())
    assert world.job().memos == MEMOS_MAX
    assert reason(world, begin(name="other")) is Reason.NOT_ALLOWED
    expect_type(world.execute(begin(EVE)), StepBegun)  # one that is there already can be run again


def test_a_step_changes_its_job_only_when_it_is_new() -> None:
    world = World(a_job(JobState.RUNNING, **RUNNING))
    world.execute(begin())
    job = world.job()
    assert (job.memos, job.lease_until, job.state) == (1, NOW + LEASE, JobState.RUNNING)
    world.execute_batch(begin(), begin(EVE), finish(EVE), begin())
    assert world.job() == job


def test_begin_and_finish_are_recognised_when_they_come_again() -> None:
    world = World(a_job(JobState.RUNNING, **RUNNING))
    first = expect_type(world.execute(begin(delivery=Delivery.AT_MOST_ONCE)), StepBegun)
    assert expect_type(world.execute(begin(delivery=Delivery.AT_MOST_ONCE), NOW + 5), StepBegun).memo == first.memo
    end = expect_type(world.execute(finish(), NOW + 9), StepFinished)
    assert (end.memo.ended_at, end.memo.result) == (NOW + 9, b"1")
    assert expect_type(world.execute(finish(), NOW + 20), StepFinished).memo == end.memo
    assert expect_type(world.execute(begin(), NOW + 30), StepFinished).memo == end.memo
    assert reason(world, finish(result=b"2")) is Reason.STALE


def test_an_interrupted_step_is_taken_over_and_its_first_run_cannot_finish() -> None:
    world = World(a_job(JobState.RUNNING, **RUNNING))
    world.execute(begin())
    assert reason(world, begin(EVE, delivery=Delivery.AT_MOST_ONCE)) is Reason.STEP_INTERRUPTED
    again = expect_type(world.execute(begin(EVE), NOW + 7), StepBegun).memo
    assert (again.runs, again.began_at, again.holder) == (2, NOW + 7, EVE)
    assert reason(world, finish(BOB)) is Reason.STALE
    assert reason(world, finish(EVE, token=2)) is Reason.STALE
    expect_type(world.execute(finish(EVE)), StepFinished)


def test_other_arguments_are_a_conflict_before_and_after_the_end() -> None:
    world = World(a_job(JobState.RUNNING, **RUNNING))
    world.execute(begin())
    assert reason(world, begin(EVE, fingerprint=b"g")) is Reason.STEP_CONFLICT
    world.execute(finish())
    assert reason(world, begin(fingerprint=b"g")) is Reason.STEP_CONFLICT


def test_a_step_of_a_job_that_is_gone_is_missing() -> None:
    for command in (begin(), finish(), LookUpMemo(tenant=TENANT, job_id=JOB, name="pay")):
        expect_type(World().execute(command), Missing)


def test_only_a_finished_step_is_looked_up() -> None:
    world = World(a_job(JobState.RUNNING, **RUNNING))
    look_up = LookUpMemo(tenant=TENANT, job_id=JOB, name="pay")
    world.execute(begin())
    expect_type(world.execute(look_up), Missing)
    world.execute(finish())
    assert expect_type(world.execute(look_up), StepFinished).memo == memo(world)
