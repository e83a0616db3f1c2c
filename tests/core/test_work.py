"""Rules of running jobs: tokens only grow, one start for each token, and a stale worker changes nothing."""

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
    VERB_KEYS_MAX,
    Claim,
    Extend,
    Finish,
    FinishOutcome,
    Release,
    Resolution,
    Resolve,
    Start,
    backoff_ms,
    verb_key_digest,
)
from tests.core.test_quota import POLICY_ID, nth_submit, usage_with_limits
from tests.core.world import (
    ACTOR,
    ANN,
    BOB,
    DAY,
    EVE,
    JOB,
    LEASE,
    NOW,
    TENANT,
    USAGE_ID,
    USER,
    World,
    a_job,
    a_usage,
    cancel,
    expect_type,
    maintain,
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


def finish(
    token: int = 1, holder: bytes = ANN, outcome: FinishOutcome = FinishOutcome.SUCCESS, **changes: Any
) -> Finish:
    given: dict[str, Any] = {
        "tenant": TENANT,
        "job_id": JOB,
        "token": token,
        "holder": holder,
        "outcome": outcome,
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


def running_world(**changes: Any) -> World:
    world = World(a_job(**changes))
    expect_type(world.execute(claim()), Claimed)
    expect_type(world.execute(start()), Started)
    return world


def is_stale(reply: AnyReply) -> bool:
    return expect_type(reply, Refused).reason is Reason.STALE


# Claiming and starting


def test_a_claim_raises_the_token_and_gives_a_lease() -> None:
    world = World(a_job())
    job = expect_type(world.execute(claim()), Claimed).job
    assert (job.token, job.holder, job.lease_until, job.state) == (1, ANN, NOW + LEASE, JobState.PENDING)
    assert expect_type(world.execute(claim()), Claimed).job == job
    assert expect_type(world.execute(claim(BOB)), Refused).reason is Reason.NOT_READY
    assert expect_type(world.execute(claim(BOB), LATE), Claimed).job.token == 2


def test_a_claim_can_start_in_the_same_step() -> None:
    world = World(a_job())
    job = expect_type(world.execute(claim(start=True)), Started).job
    assert (job.state, job.token, job.attempts, job.version) == (JobState.RUNNING, 1, 1, 6)
    assert expect_type(world.execute(claim(start=True)), Started).job == job


def test_a_job_is_not_claimed_before_its_time() -> None:
    world = World(a_job(JobState.SCHEDULED, run_at=NOW + 5))
    assert expect_type(world.execute(claim(), NOW + 4), Refused).reason is Reason.NOT_READY
    assert expect_type(world.execute(claim(), NOW + 5), Claimed).job.state is JobState.PENDING


@pytest.mark.parametrize(
    "state",
    [state for state in JobState if state not in (JobState.PENDING, JobState.SCHEDULED)],
)
def test_only_a_waiting_job_is_claimed(state: JobState) -> None:
    assert expect_type(World(a_job(state)).execute(claim()), Refused).reason is Reason.NOT_READY


def test_of_two_deliveries_of_one_token_one_starts() -> None:
    world = World(a_job())
    world.execute(claim())
    replies = world.execute_batch(start(holder=BOB), start(holder=EVE), start(holder=BOB))
    assert [type(reply) for reply in replies] == [Started, Refused, Started]
    assert world.job().attempts == 1


def test_a_start_after_its_lease_or_with_an_old_token_does_nothing() -> None:
    world = World(a_job())
    world.execute(claim())
    assert is_stale(world.execute(start(), LATE))
    world.execute(claim(BOB), LATE)
    assert is_stale(world.execute(start(token=1), LATE))
    assert expect_type(world.execute(start(token=2, holder=BOB), LATE), Started).job.token == 2


def test_a_lease_that_ends_before_the_start_is_a_safe_retry() -> None:
    world = World(a_job(delivery=Delivery.AT_MOST_ONCE))
    world.execute(claim())
    assert expect_type(world.execute(maintain(), LATE), Maintained).changed
    assert expect_type(world.execute(claim(BOB), LATE), Claimed).job.attempts == 0


# Running


def test_a_lease_is_extended_by_its_holder_alone() -> None:
    world = running_world()
    job = expect_type(world.execute(extend(), NOW + LEASE), Extended).job
    assert job.lease_until == NOW + 2 * LEASE
    assert is_stale(world.execute(extend(holder=BOB), NOW + LEASE))


MUCH_LATER = NOW + 10 * LEASE
LATE_REPORTS: list[tuple[Any, JobState]] = [
    (extend(), JobState.RUNNING),
    (release(), JobState.PENDING),
    (finish(), JobState.SUCCESS),
    (finish(outcome=FinishOutcome.FAILED, final=True), JobState.FAILED),
]


@pytest.mark.parametrize("swept", [False, True])
@pytest.mark.parametrize(("report", "state"), LATE_REPORTS)
def test_a_late_holder_is_heard_while_nobody_else_has_the_job(report: Any, state: JobState, *, swept: bool) -> None:
    world = running_world(attempts_max=3)
    if swept:
        assert expect_type(world.execute(maintain(), LATE), Maintained).changed
    reply = world.execute(report, MUCH_LATER)
    assert isinstance(reply, (Extended, Released, Finished)), reply
    assert reply.job.state is state
    if state is JobState.RUNNING:
        job = world.job()
        assert (job.lease_until, job.due_at, job.attempts) == (MUCH_LATER + LEASE, MUCH_LATER + LEASE, 1)
        assert expect_type(world.execute(claim(BOB), MUCH_LATER), Refused).reason is Reason.NOT_READY
        assert expect_type(world.execute(finish(), MUCH_LATER), Finished).job.state is JobState.SUCCESS


@pytest.mark.parametrize("swept", [False, True])
@pytest.mark.parametrize(("report", "_state"), LATE_REPORTS)
def test_nobody_else_means_no_other_claim(report: Any, _state: JobState, *, swept: bool) -> None:
    world = running_world(attempts_max=3)
    world.execute(maintain(), LATE)
    expect_type(world.execute(claim(BOB), LATE), Claimed)
    if swept:
        world.execute(maintain(), LATE + LEASE + 1)
    before = world.job()
    assert is_stale(world.execute(report, MUCH_LATER))
    assert world.job() == before


@pytest.mark.parametrize("end", ["lost", "failed", "cancelled", "run again"])
@pytest.mark.parametrize(("report", "_state"), LATE_REPORTS)
def test_a_job_that_ended_is_never_revived(report: Any, _state: JobState, end: str) -> None:
    world = running_world(delivery=Delivery.AT_MOST_ONCE if end == "lost" else Delivery.AT_LEAST_ONCE, attempts_max=1)
    world.execute(cancel() if end == "cancelled" else maintain(), LATE)
    if end == "run again":
        expect_type(world.execute(resolve(Resolution.RERUN), LATE), Resolved)
    before = world.job()
    assert is_stale(world.execute(report, MUCH_LATER))
    assert world.job() == before


def test_a_job_that_failed_and_runs_again_is_not_revived_by_who_reported_the_failure() -> None:
    world = running_world()
    world.execute(finish(outcome=FinishOutcome.FAILED, final=True))
    world.execute(resolve(Resolution.RERUN))
    for report, _ in LATE_REPORTS:
        assert is_stale(world.execute(report))


def test_a_claim_that_expired_before_its_start_is_revived_by_an_extension() -> None:
    for swept in (False, True):
        world = World(a_job())
        world.execute(claim())
        if swept:
            world.execute(maintain(), LATE)
        assert is_stale(world.execute(start(), LATE))
        assert is_stale(world.execute(finish(), LATE))
        assert expect_type(world.execute(extend(), LATE), Extended).job.state is JobState.PENDING
        assert expect_type(world.execute(start(), LATE), Started).job.attempts == 1


@pytest.mark.parametrize("swept", [False, True])
def test_after_its_deadline_an_attempt_neither_succeeds_nor_goes_on(*, swept: bool) -> None:
    world = running_world(timeout_ms=LEASE, attempts_max=2)
    assert expect_type(world.execute(finish(), NOW + LEASE), Finished).job.state is JobState.SUCCESS
    world = running_world(timeout_ms=LEASE, attempts_max=2)
    if swept:
        world.execute(maintain(), LATE)
    for report in (finish(result=b"1"), extend()):
        assert expect_type(world.execute(report, LATE), Refused).reason is Reason.TIMED_OUT
    failed = expect_type(world.execute(finish(outcome=FinishOutcome.FAILED, error="slow"), LATE), Finished).job
    assert (failed.state, failed.error) == (JobState.SCHEDULED, "slow")


def test_log_lines_are_appended_once() -> None:
    world = running_world()
    world.execute(extend(logs=("a", "b")))
    world.execute(extend(logs=("a", "b", "c")))
    assert (world.job().logs, world.attachment_indexes(AttachmentKind.LOG)) == (3, [0, 1, 2])
    refused = expect_type(world.execute(extend(logs=("x",), offset=5)), Refused)
    assert refused.details == {"logs": 3}


def test_the_newest_log_lines_are_kept() -> None:
    world = running_world()
    for n in range(LOG_LINES_MAX + 5):
        world.execute(extend(logs=(f"{n}",), offset=n))
    assert world.attachment_indexes(AttachmentKind.LOG) == list(range(5, LOG_LINES_MAX + 5))


def test_an_attempt_has_its_time_and_no_more() -> None:
    world = running_world(timeout_ms=LEASE + 10)
    assert expect_type(world.execute(extend(), NOW + LEASE), Extended).job.lease_until == NOW + LEASE + 10
    assert expect_type(world.execute(extend(), NOW + LEASE + 10), Refused).reason is Reason.TIMED_OUT


def test_a_released_job_is_ready_at_once_and_its_start_was_no_attempt() -> None:
    world = running_world()
    job = expect_type(world.execute(release()), Released).job
    assert (job.state, job.attempts, job.lease_until) == (JobState.PENDING, 0, 0)
    expect_type(world.execute(release()), Released)
    assert expect_type(world.execute(claim(BOB)), Claimed).job.token == 2
    assert is_stale(world.execute(release()))


def test_an_at_most_once_job_that_started_is_not_released() -> None:
    world = running_world(delivery=Delivery.AT_MOST_ONCE)
    assert expect_type(world.execute(release()), Refused).reason is Reason.NOT_ALLOWED


# Finishing


def test_success_keeps_the_result_and_frees_slot_and_money() -> None:
    world = World(a_job(usage_id=USAGE_ID, cost_held=40), a_usage(live=3, cost_held=100))
    world.execute(claim(start=True))
    done = finish(result=b'{"ok":1}', cost=30)
    job = expect_type(world.execute(done), Finished).job
    assert (job.state, job.usage_id) == (JobState.SUCCESS, b"")
    usage = world.usage()
    assert (usage.live, usage.cost_held, usage.spent) == (2, 60, (30, 30, 30))
    assert world.attachments[JOB, AttachmentKind.RESULT, 1] == b'{"ok":1}'
    assert expect_type(world.execute(done), Finished).job == job
    assert is_stale(world.execute(finish(result=b"other")))
    assert world.usage() == usage


def test_a_zombie_finishes_nothing() -> None:
    world = running_world(attempts_max=3)
    world.execute(maintain(), LATE)
    world.execute(claim(BOB, start=True), LATE)
    assert is_stale(world.execute(finish(), LATE))
    assert is_stale(world.execute(extend(), LATE))
    assert expect_type(world.execute(finish(token=2, holder=BOB), LATE), Finished).job.state is JobState.SUCCESS


def test_a_failure_is_tried_again_later_while_attempts_are_left() -> None:
    world = running_world(attempts_max=2)
    failed = finish(outcome=FinishOutcome.FAILED, error="no luck")
    job = expect_type(world.execute(failed), Finished).job
    assert (job.state, job.error) == (JobState.SCHEDULED, "no luck")
    assert NOW + 500 <= job.run_at <= NOW + 1000
    assert expect_type(world.execute(failed), Finished).job == job
    again = expect_type(world.execute(claim(BOB, start=True), job.run_at), Started).job
    assert (again.token, again.attempts) == (2, 2)
    last = expect_type(
        world.execute(finish(token=2, holder=BOB, outcome=FinishOutcome.FAILED), job.run_at), Finished
    ).job
    assert last.state is JobState.FAILED


@pytest.mark.parametrize("changes", [{"final": True}, {"delivery": Delivery.AT_MOST_ONCE}, {"attempts_max": 1}])
def test_a_final_failure_ends_the_job(changes: dict[str, Any]) -> None:
    final = changes.pop("final", False)
    given: dict[str, Any] = {"attempts_max": 5}
    world = running_world(**given | changes)
    failed = finish(outcome=FinishOutcome.FAILED, final=final)
    assert expect_type(world.execute(failed), Finished).job.state is JobState.FAILED


def test_backing_off_doubles_up_to_an_hour() -> None:
    waits = [backoff_ms(a_job(attempts=n, token=n)) for n in range(1, 40)]
    for n, wait in enumerate(waits):
        longest = min(1000 * 2**n, BACKOFF_MS_MAX)
        assert longest / 2 <= wait <= longest


def test_of_cancel_and_finish_one_wins() -> None:
    world = running_world()
    replies = world.execute_batch(cancel(), finish())
    assert expect_type(replies[0], Cancelled).changed
    assert is_stale(replies[1])
    world = running_world()
    replies = world.execute_batch(finish(), cancel())
    assert expect_type(replies[0], Finished).job.state is JobState.SUCCESS
    assert not expect_type(replies[1], Cancelled).changed


# Lost


def lost_world(**changes: Any) -> World:
    world = World(a_job(delivery=Delivery.AT_MOST_ONCE, **changes), usage_with_limits(max_concurrent=9))
    world.execute(claim(start=True))
    expect_type(world.execute(maintain(), LATE), Maintained)
    assert world.job().state is JobState.LOST
    return world


def test_an_at_most_once_job_whose_worker_went_silent_is_lost_and_stays_so() -> None:
    world = lost_world()
    assert is_stale(world.execute(finish(), LATE))
    assert expect_type(world.execute(claim(BOB), LATE + DAY), Refused).reason is Reason.NOT_READY
    assert not expect_type(world.execute(maintain(), LATE + 400 * DAY), Maintained).changed


@pytest.mark.parametrize(
    ("resolution", "state"),
    [
        (Resolution.SUCCEEDED, JobState.SUCCESS),
        (Resolution.FAILED, JobState.FAILED),
        (Resolution.RERUN, JobState.PENDING),
    ],
)
def test_an_operator_resolves_a_lost_job(resolution: Resolution, state: JobState) -> None:
    world = lost_world()
    assert expect_type(world.execute(resolve(resolution), LATE), Resolved).job.state is state


def test_a_job_that_runs_again_has_the_same_id_and_a_larger_token() -> None:
    world = lost_world()
    world.execute(resolve(Resolution.RERUN), LATE)
    job: Job = expect_type(world.execute(claim(BOB, start=True), LATE), Started).job
    assert (job.id, job.token, job.attempts) == (JOB, 2, 1)
    assert is_stale(world.execute(finish(token=1), LATE))


K1, K2 = verb_key_digest("k1"), verb_key_digest("k2")


@pytest.mark.parametrize("resolution", list(Resolution))
def test_a_repeated_resolution_with_its_key_gets_the_same_answer_and_changes_nothing(resolution: Resolution) -> None:
    world = lost_world()
    first = expect_type(world.execute(resolve(resolution, verb_key=K1), LATE), Resolved).job
    assert expect_type(world.execute(resolve(resolution, verb_key=K1), LATE + 1), Resolved).job == first
    assert expect_type(world.execute(resolve(resolution, verb_key=K2), LATE), Refused).reason is Reason.NOT_ALLOWED
    other = Resolution.FAILED if resolution is not Resolution.FAILED else Resolution.RERUN
    reused = expect_type(world.execute(resolve(other, verb_key=K1), LATE), Refused)
    assert reused.reason is Reason.IDEMPOTENCY_KEY_REUSED
    assert expect_type(world.execute(cancel(verb_key=K1), LATE), Refused).reason is Reason.IDEMPOTENCY_KEY_REUSED


def test_a_late_copy_of_a_rerun_does_not_run_the_job_a_third_time() -> None:
    world = lost_world()
    world.execute(resolve(Resolution.RERUN, verb_key=K1), LATE)
    world.execute(claim(BOB, start=True), LATE)
    failed = expect_type(world.execute(finish(2, BOB, FinishOutcome.FAILED, final=True), LATE), Finished).job
    assert expect_type(world.execute(resolve(Resolution.RERUN, verb_key=K1), LATE), Resolved).job == failed
    assert (
        expect_type(world.execute(resolve(Resolution.RERUN, verb_key=K2), LATE), Resolved).job.state is JobState.PENDING
    )


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.FAILED])
def test_a_late_copy_of_a_cancel_does_not_cancel_a_job_that_runs_again(state: JobState) -> None:
    world = World(a_job(state))
    first = expect_type(world.execute(cancel(verb_key=K1)), Cancelled)
    assert first.changed is (state is JobState.PENDING)
    world.execute(resolve(Resolution.RERUN, verb_key=K2))
    again = expect_type(world.execute(cancel(verb_key=K1)), Cancelled)
    assert (again.changed, again.job.state) == (first.changed, world.job().state)
    assert again.job.state is (JobState.CANCELLED if first.changed else JobState.PENDING)


def test_a_refused_verb_does_not_use_up_its_key() -> None:
    world = running_world(delivery=Delivery.AT_MOST_ONCE)
    rerun = resolve(Resolution.RERUN, verb_key=K1)
    assert expect_type(world.execute(rerun), Refused).reason is Reason.NOT_ALLOWED
    world.execute(maintain(), LATE)
    assert expect_type(world.execute(rerun, LATE), Resolved).job.state is JobState.PENDING


def test_a_job_remembers_its_last_eight_verb_keys() -> None:
    world = World(a_job(JobState.FAILED))
    keys = [verb_key_digest(f"c{n}") for n in range(VERB_KEYS_MAX + 1)]
    for key in keys:
        world.execute(cancel(verb_key=key))
    expect_type(world.execute(resolve(Resolution.RERUN)), Resolved)
    for key in keys[1:]:
        assert not expect_type(world.execute(cancel(verb_key=key)), Cancelled).changed
    assert expect_type(world.execute(cancel(verb_key=keys[0])), Cancelled).changed


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.RUNNING, JobState.SUCCESS, JobState.CANCELLED])
def test_nothing_else_is_resolved(state: JobState) -> None:
    for resolution in Resolution:
        world = World(a_job(state))
        assert expect_type(world.execute(resolve(resolution)), Refused).reason is Reason.NOT_ALLOWED


def test_a_lost_job_frees_its_slot_keeps_its_money_and_runs_again_only_with_a_slot() -> None:
    world = World(usage_with_limits(max_concurrent=1))
    job = nth_submit(1, cost=40, delivery=Delivery.AT_MOST_ONCE)
    world.execute(job)
    job_field: dict[str, Any] = {"job_id": job.job_id}
    world.execute(claim(start=True, **job_field))
    world.execute(maintain(job.job_id), LATE)
    assert (world.usage().live, world.usage().cost_held) == (0, 40)
    world.execute(nth_submit(2), LATE)
    counted: dict[str, Any] = {"usage_id": USAGE_ID, "policy_id": POLICY_ID}
    refused = expect_type(world.execute(resolve(Resolution.RERUN, **job_field, **counted), LATE), Refused)
    assert refused.reason is Reason.QUOTA_EXCEEDED
    world.execute(cancel(nth_submit(2).job_id), LATE)
    expect_type(world.execute(resolve(Resolution.RERUN, **job_field, **counted), LATE), Resolved)
    usage = world.usage()
    assert (usage.live, usage.cost_held, usage.spent) == (1, 40, (40, 40, 40))  # the lost attempt ran


def test_a_failed_job_that_runs_again_costs_again() -> None:
    world = World(usage_with_limits(cost_limit=CostLimit(100, Period.DAY)))
    job = nth_submit(1, cost=60)
    world.execute(job)
    job_field: dict[str, Any] = {"job_id": job.job_id}
    counted: dict[str, Any] = {"usage_id": USAGE_ID, "policy_id": POLICY_ID}
    world.execute(claim(start=True, **job_field))
    world.execute(finish(outcome=FinishOutcome.FAILED, final=True, **job_field))
    assert world.usage().spent == (60, 60, 60)
    refused = expect_type(world.execute(resolve(Resolution.RERUN, **job_field, **counted)), Refused)
    assert refused.reason is Reason.COST_LIMIT_EXCEEDED


def test_a_job_that_is_not_there_is_missing() -> None:
    for command in (claim(), start(), extend(), finish(), release(), resolve(Resolution.RERUN)):
        assert isinstance(World().execute(command), Missing)
