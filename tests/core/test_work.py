"""Rules of running jobs: tokens only grow, one start for each, and a stale worker finishes nothing."""

from typing import Any

import pytest

from onejob.core.facts import AttachmentKind, Job
from onejob.core.limits import CostLimit, Period
from onejob.core.replies import (
    AnyReply,
    Cancelled,
    Claimed,
    Extended,
    Finished,
    Maintained,
    Missing,
    Reason,
    Refused,
    Released,
    Resolved,
    Started,
)
from onejob.core.states import Delivery, JobState
from onejob.core.work import (
    BACKOFF_MS_MAX,
    LOG_LINES_MAX,
    Claim,
    Extend,
    Finish,
    FinishOutcome,
    Release,
    Resolution,
    Resolve,
    Start,
    backoff_ms,
)
from tests.core.test_quota import POLICY_ID, limited, nth
from tests.core.world import (
    ACTOR,
    ANN,
    BOB,
    DAY,
    EVE,
    JOB,
    LEASE,
    NOW,
    TALLY_ID,
    TENANT,
    USER,
    World,
    a_job,
    a_tally,
    cancel,
    tend,
    the,
)

LATE = NOW + LEASE + 1


def claim(holder: bytes = ANN, **changes: Any) -> Claim:
    given: dict[str, Any] = {"tenant": TENANT, "job_id": JOB, "holder": holder, "lease_ms": LEASE}
    return Claim(**given | changes)


def start(token: int = 1, holder: bytes = ANN, **changes: Any) -> Start:
    given: dict[str, Any] = {
        "tenant": TENANT,
        "job_id": JOB,
        "token": token,
        "holder": holder,
        "lease_ms": LEASE,
    }
    return Start(**given | changes)


def extend(token: int = 1, holder: bytes = ANN, **changes: Any) -> Extend:
    given: dict[str, Any] = {
        "tenant": TENANT,
        "job_id": JOB,
        "token": token,
        "holder": holder,
        "lease_ms": LEASE,
    }
    return Extend(**given | changes)


def finish(token: int = 1, holder: bytes = ANN, ends: FinishOutcome = FinishOutcome.SUCCESS, **changes: Any) -> Finish:
    given: dict[str, Any] = {
        "tenant": TENANT,
        "job_id": JOB,
        "token": token,
        "holder": holder,
        "ends": ends,
        "actor": ACTOR,
    }
    return Finish(**given | changes)


def release(token: int = 1, holder: bytes = ANN, **changes: Any) -> Release:
    given: dict[str, Any] = {"tenant": TENANT, "job_id": JOB, "token": token, "holder": holder}
    return Release(**given | changes)


def resolve(resolution: Resolution, **changes: Any) -> Resolve:
    given: dict[str, Any] = {
        "tenant": TENANT,
        "job_id": JOB,
        "resolution": resolution,
        "actor": ACTOR,
        "user": USER,
    }
    return Resolve(**given | changes)


def running(**changes: Any) -> World:
    world = World(a_job(**changes))
    the(world.do(claim()), Claimed)
    the(world.do(start()), Started)
    return world


def stale(reply: AnyReply) -> bool:
    return the(reply, Refused).reason is Reason.STALE


# Claiming and starting


def test_a_claim_raises_the_token_and_gives_a_lease() -> None:
    world = World(a_job())
    job = the(world.do(claim()), Claimed).job
    assert (job.token, job.holder, job.lease_until, job.state) == (1, ANN, NOW + LEASE, JobState.PENDING)
    assert the(world.do(claim()), Claimed).job == job
    assert the(world.do(claim(BOB)), Refused).reason is Reason.NOT_READY
    assert the(world.do(claim(BOB), LATE), Claimed).job.token == 2


def test_a_claim_can_start_in_the_same_step() -> None:
    world = World(a_job())
    job = the(world.do(claim(start=True)), Started).job
    assert (job.state, job.token, job.attempts, job.version) == (JobState.RUNNING, 1, 1, 6)
    assert the(world.do(claim(start=True)), Started).job == job


def test_a_job_is_not_claimed_before_its_time() -> None:
    world = World(a_job(JobState.SCHEDULED, run_at=NOW + 5))
    assert the(world.do(claim(), NOW + 4), Refused).reason is Reason.NOT_READY
    assert the(world.do(claim(), NOW + 5), Claimed).job.state is JobState.PENDING


@pytest.mark.parametrize(
    "state",
    [state for state in JobState if state not in (JobState.PENDING, JobState.SCHEDULED)],
)
def test_only_a_waiting_job_is_claimed(state: JobState) -> None:
    assert the(World(a_job(state)).do(claim()), Refused).reason is Reason.NOT_READY


def test_of_two_deliveries_of_one_token_one_starts() -> None:
    world = World(a_job())
    world.do(claim())
    replies = world.batch(start(holder=BOB), start(holder=EVE), start(holder=BOB))
    assert [type(reply) for reply in replies] == [Started, Refused, Started]
    assert world.job().attempts == 1


def test_a_start_after_its_lease_or_with_an_old_token_does_nothing() -> None:
    world = World(a_job())
    world.do(claim())
    assert stale(world.do(start(), LATE))
    world.do(claim(BOB), LATE)
    assert stale(world.do(start(token=1), LATE))
    assert the(world.do(start(token=2, holder=BOB), LATE), Started).job.token == 2


def test_a_lease_that_ends_before_the_start_is_a_safe_retry() -> None:
    world = World(a_job(delivery=Delivery.AT_MOST_ONCE))
    world.do(claim())
    assert the(world.do(tend(), LATE), Maintained).changed
    assert the(world.do(claim(BOB), LATE), Claimed).job.attempts == 0


# Running


def test_a_lease_is_extended_by_its_holder_alone() -> None:
    world = running()
    job = the(world.do(extend(), NOW + LEASE), Extended).job
    assert job.lease_until == NOW + 2 * LEASE
    assert stale(world.do(extend(holder=BOB), NOW + LEASE))
    assert stale(world.do(extend(), NOW + 2 * LEASE + 1))


def test_log_lines_are_appended_once() -> None:
    world = running()
    world.do(extend(logs=("a", "b")))
    world.do(extend(logs=("a", "b", "c")))
    assert (world.job().logs, world.indexes(AttachmentKind.LOG)) == (3, [0, 1, 2])
    refused = the(world.do(extend(logs=("x",), offset=5)), Refused)
    assert refused.details == {"logs": 3}


def test_the_newest_log_lines_are_kept() -> None:
    world = running()
    for n in range(LOG_LINES_MAX + 5):
        world.do(extend(logs=(f"{n}",), offset=n))
    assert world.indexes(AttachmentKind.LOG) == list(range(5, LOG_LINES_MAX + 5))


def test_an_attempt_has_its_time_and_no_more() -> None:
    world = running(timeout_ms=LEASE + 10)
    assert the(world.do(extend(), NOW + LEASE), Extended).job.lease_until == NOW + LEASE + 10
    assert the(world.do(extend(), NOW + LEASE + 10), Refused).reason is Reason.TIMED_OUT


def test_a_released_job_is_ready_at_once_and_its_start_was_no_attempt() -> None:
    world = running()
    job = the(world.do(release()), Released).job
    assert (job.state, job.attempts, job.lease_until) == (JobState.PENDING, 0, 0)
    the(world.do(release()), Released)
    assert the(world.do(claim(BOB)), Claimed).job.token == 2
    assert stale(world.do(release()))


def test_an_at_most_once_job_that_started_is_not_handed_back() -> None:
    world = running(delivery=Delivery.AT_MOST_ONCE)
    assert the(world.do(release()), Refused).reason is Reason.NOT_ALLOWED


# Finishing


def test_success_keeps_the_result_and_frees_slot_and_money() -> None:
    world = World(a_job(slot=TALLY_ID, cost_held=40), a_tally(live=3, cost_held=100))
    world.do(claim(start=True))
    done = finish(result=b'{"ok":1}', cost=30)
    job = the(world.do(done), Finished).job
    assert (job.state, job.slot) == (JobState.SUCCESS, b"")
    tally = world.tally()
    assert (tally.live, tally.cost_held, tally.spent) == (2, 60, (30, 30, 30))
    assert world.beside[JOB, AttachmentKind.RESULT, 1] == b'{"ok":1}'
    assert the(world.do(done), Finished).job == job
    assert stale(world.do(finish(result=b"other")))
    assert world.tally() == tally


def test_a_zombie_finishes_nothing() -> None:
    world = running(attempts_max=3)
    world.do(tend(), LATE)
    assert stale(world.do(finish(), LATE))
    world.do(claim(BOB, start=True), LATE)
    assert stale(world.do(finish(), LATE))
    assert stale(world.do(extend(), LATE))
    assert the(world.do(finish(token=2, holder=BOB), LATE), Finished).job.state is JobState.SUCCESS


def test_a_failure_is_tried_again_later_while_attempts_are_left() -> None:
    world = running(attempts_max=2)
    failed = finish(ends=FinishOutcome.FAILED, error="no luck")
    job = the(world.do(failed), Finished).job
    assert (job.state, job.error) == (JobState.SCHEDULED, "no luck")
    assert NOW + 500 <= job.run_at <= NOW + 1000
    assert the(world.do(failed), Finished).job == job
    again = the(world.do(claim(BOB, start=True), job.run_at), Started).job
    assert (again.token, again.attempts) == (2, 2)
    last = the(world.do(finish(token=2, holder=BOB, ends=FinishOutcome.FAILED), job.run_at), Finished).job
    assert last.state is JobState.FAILED


@pytest.mark.parametrize("changes", [{"final": True}, {"delivery": Delivery.AT_MOST_ONCE}, {"attempts_max": 1}])
def test_a_final_failure_ends_the_job(changes: dict[str, Any]) -> None:
    final = changes.pop("final", False)
    given: dict[str, Any] = {"attempts_max": 5}
    world = running(**given | changes)
    failed = finish(ends=FinishOutcome.FAILED, final=final)
    assert the(world.do(failed), Finished).job.state is JobState.FAILED


def test_backing_off_doubles_up_to_an_hour() -> None:
    waits = [backoff_ms(a_job(attempts=n, token=n)) for n in range(1, 40)]
    for n, wait in enumerate(waits):
        whole = min(1000 * 2**n, BACKOFF_MS_MAX)
        assert whole / 2 <= wait <= whole


def test_of_cancel_and_finish_one_wins() -> None:
    world = running()
    replies = world.batch(cancel(), finish())
    assert the(replies[0], Cancelled).changed
    assert stale(replies[1])
    world = running()
    replies = world.batch(finish(), cancel())
    assert the(replies[0], Finished).job.state is JobState.SUCCESS
    assert not the(replies[1], Cancelled).changed


# Lost


def lost(**changes: Any) -> World:
    world = World(a_job(delivery=Delivery.AT_MOST_ONCE, **changes), limited(max_concurrent=9))
    world.do(claim(start=True))
    the(world.do(tend(), LATE), Maintained)
    assert world.job().state is JobState.LOST
    return world


def test_an_at_most_once_job_whose_worker_went_silent_is_lost_and_stays_so() -> None:
    world = lost()
    assert stale(world.do(finish(), LATE))
    assert the(world.do(claim(BOB), LATE + DAY), Refused).reason is Reason.NOT_READY
    assert not the(world.do(tend(), LATE + 400 * DAY), Maintained).changed


@pytest.mark.parametrize(
    ("resolution", "state"),
    [
        (Resolution.SUCCEEDED, JobState.SUCCESS),
        (Resolution.FAILED, JobState.FAILED),
        (Resolution.RERUN, JobState.PENDING),
    ],
)
def test_an_operator_resolves_a_lost_job(resolution: Resolution, state: JobState) -> None:
    world = lost()
    assert the(world.do(resolve(resolution), LATE), Resolved).job.state is state


def test_a_job_that_runs_again_has_the_same_id_and_a_larger_token() -> None:
    world = lost()
    world.do(resolve(Resolution.RERUN), LATE)
    job: Job = the(world.do(claim(BOB, start=True), LATE), Started).job
    assert (job.id, job.token, job.attempts) == (JOB, 2, 1)
    assert stale(world.do(finish(token=1), LATE))


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.RUNNING, JobState.SUCCESS, JobState.CANCELLED])
def test_nothing_else_is_resolved(state: JobState) -> None:
    for resolution in Resolution:
        world = World(a_job(state))
        assert the(world.do(resolve(resolution)), Refused).reason is Reason.NOT_ALLOWED


def test_a_lost_job_frees_its_slot_keeps_its_money_and_runs_again_only_with_a_slot() -> None:
    world = World(limited(max_concurrent=1))
    job = nth(1, cost=40, delivery=Delivery.AT_MOST_ONCE)
    world.do(job)
    mine: dict[str, Any] = {"job_id": job.job_id}
    world.do(claim(start=True, **mine))
    world.do(tend(job.job_id), LATE)
    assert (world.tally().live, world.tally().cost_held) == (0, 40)
    world.do(nth(2), LATE)
    counted: dict[str, Any] = {"usage_id": TALLY_ID, "policy_id": POLICY_ID}
    refused = the(world.do(resolve(Resolution.RERUN, **mine, **counted), LATE), Refused)
    assert refused.reason is Reason.QUOTA_EXCEEDED
    world.do(cancel(nth(2).job_id), LATE)
    the(world.do(resolve(Resolution.RERUN, **mine, **counted), LATE), Resolved)
    tally = world.tally()
    assert (tally.live, tally.cost_held, tally.spent) == (1, 40, (40, 40, 40))  # the lost attempt ran


def test_a_failed_job_that_runs_again_costs_again() -> None:
    world = World(limited(cost_limit=CostLimit(100, Period.DAY)))
    job = nth(1, cost=60)
    world.do(job)
    mine: dict[str, Any] = {"job_id": job.job_id}
    counted: dict[str, Any] = {"usage_id": TALLY_ID, "policy_id": POLICY_ID}
    world.do(claim(start=True, **mine))
    world.do(finish(ends=FinishOutcome.FAILED, final=True, **mine))
    assert world.tally().spent == (60, 60, 60)
    refused = the(world.do(resolve(Resolution.RERUN, **mine, **counted)), Refused)
    assert refused.reason is Reason.COST_LIMIT_EXCEEDED


def test_a_job_that_is_not_there_is_missing() -> None:
    for command in (claim(), start(), extend(), finish(), release(), resolve(Resolution.RERUN)):
        assert isinstance(World().do(command), Missing)
