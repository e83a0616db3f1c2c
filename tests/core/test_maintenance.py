"""Rules of cancelling, maintenance, forgetting and purging; of slots and of the event log."""

import pytest
from msgspec import json

from onejob.core.facts import AttachmentKind, Job
from onejob.core.maintenance import CountHits, Purge, is_abandoned_preparation
from onejob.core.replies import (
    Cancelled,
    Created,
    Forgotten,
    Found,
    InProgress,
    KeyHeld,
    Maintained,
    Missing,
    Reason,
    Refused,
    Replayed,
)
from onejob.core.reserve import Verdict
from onejob.core.states import Delivery, IdempotencyStatus, JobState
from onejob.core.work import FIRST_EVENTS_MAX, LAST_EVENTS_MAX, RETENTION_MS, Event, first_event
from tests.core.world import (
    BOB,
    DAY,
    HOUR,
    JOB,
    JOB2,
    LEASE,
    NOW,
    RECORD_ID,
    SECOND,
    TENANT,
    TTL,
    USAGE_ID,
    World,
    a_job,
    a_record,
    a_usage,
    cancel,
    expect_type,
    expire,
    forget,
    look_up,
    look_up_job,
    maintain,
    purge,
    reserve,
    settle,
    submit,
    take_over,
)

LIVE = [JobState.PREPARING, JobState.SCHEDULED, JobState.PENDING, JobState.RUNNING]
ENDED = [JobState.SUCCESS, JobState.FAILED, JobState.CANCELLED, JobState.LOST]


# Cancel


@pytest.mark.parametrize("state", LIVE)
def test_a_live_job_is_cancelled_once(state: JobState) -> None:
    world = World(a_job(state, holder=BOB, lease_until=NOW + LEASE, token=4, due_at=NOW + LEASE))
    job = expect_type(world.execute(cancel()), Cancelled).job
    assert (job.state, job.ended_at, job.events) == (JobState.CANCELLED, NOW, 2)
    assert (job.holder, job.lease_until, job.token) == (b"", 0, 4)
    again = expect_type(world.execute(cancel(), NOW + 1), Cancelled)
    assert (again.job, again.changed) == (job, False)
    assert not world.changes


@pytest.mark.parametrize("state", ENDED)
def test_a_job_that_has_ended_stays_as_it_is(state: JobState) -> None:
    world = World(a_job(state))
    assert world.execute(cancel()) == Cancelled(a_job(state), False, NOW)
    assert not world.changes


def test_a_job_goes_after_its_retention_and_never_before_its_record() -> None:
    for keep_until, due_at in ((NOW + HOUR, NOW + DAY), (NOW + 9 * DAY, NOW + 9 * DAY)):
        world = World(a_job(keep_until=keep_until))
        world.execute(cancel(retention_ms=DAY))
        assert world.job().due_at == due_at
        world.execute(maintain(), due_at)
        assert expect_type(world.execute(look_up_job(), due_at), Found)
        assert expect_type(world.execute(maintain(), due_at + 1), Maintained).changed
        assert (world.facts, world.attachments) == ({}, {})


def test_jobs_are_kept_seven_days_unless_said() -> None:
    assert RETENTION_MS == 7 * DAY


# Slots


@pytest.mark.parametrize("state", [state for state in LIVE if state is not JobState.PREPARING])
def test_a_slot_is_freed_exactly_once_in_the_step_that_ends_the_job(state: JobState) -> None:
    world = World(a_job(state, usage_id=USAGE_ID, cost_held=40), a_usage(live=3, cost_held=100))
    assert expect_type(world.execute(cancel()), Cancelled).job.usage_id == b""
    assert (world.usage().live, world.usage().cost_held, world.usage().version) == (2, 60, 8)
    world.execute(cancel())
    world.execute(maintain(), NOW + 8 * DAY)
    assert (world.usage().live, world.usage().cost_held, world.usage().version) == (2, 60, 8)
    assert world.jobs() == []


def test_two_jobs_of_a_user_ended_in_one_batch_free_two_slots() -> None:
    world = World(a_job(usage_id=USAGE_ID), a_job(id=JOB2, usage_id=USAGE_ID), a_usage(live=2))
    world.execute_batch(cancel(JOB), cancel(JOB2), cancel(JOB))
    assert (world.usage().live, world.usage().version) == (0, 9)


def test_a_job_without_a_slot_touches_no_usage() -> None:
    world = World(a_job(), a_usage())
    world.execute(cancel())
    assert world.usage() == a_usage()


def test_a_lost_job_frees_its_slot_and_keeps_the_money() -> None:
    lost = a_job(JobState.RUNNING, usage_id=USAGE_ID, cost_held=40, due_at=NOW, delivery=Delivery.AT_MOST_ONCE)
    world = World(lost, a_usage(live=3, cost_held=100))
    world.execute(maintain(), NOW + 1)
    assert (world.job().state, world.usage().live, world.usage().cost_held) == (JobState.LOST, 2, 100)


# Maintain


@pytest.mark.parametrize("state", list(JobState))
@pytest.mark.parametrize("due_at", [0, NOW, NOW + 1])
def test_what_is_not_due_is_left_alone(state: JobState, due_at: int) -> None:
    world = World(a_job(state, due_at=due_at))
    assert world.execute(maintain()) == Maintained(False, NOW)
    assert not world.changes


def test_an_abandoned_preparation_waits_for_whoever_takes_it_over_until_its_key_expires() -> None:
    world = World(a_job(JobState.PREPARING, due_at=NOW - 1, keep_until=NOW))
    assert is_abandoned_preparation(world.job(), NOW)
    assert world.execute(maintain()) == Maintained(False, NOW)
    assert world.execute(maintain(), NOW + 1) == Maintained(True, NOW + 1)


@pytest.mark.parametrize(
    "job",
    [
        a_job(JobState.PREPARING, due_at=NOW),  # it is being prepared
        a_job(JobState.PREPARING, due_at=NOW + HOUR, keep_until=NOW + HOUR),  # it was released
        a_job(JobState.PREPARING, due_at=NOW - 1, keep_until=NOW - 1),  # its key has expired
        a_job(JobState.PREPARING, due_at=NOW - 1, key=""),  # a callback
        a_job(JobState.RUNNING, due_at=NOW - 1),
    ],
)
def test_nothing_else_is_an_abandoned_preparation(job: Job) -> None:
    assert not is_abandoned_preparation(job, NOW)


def test_an_abandoned_preparation_fails_with_its_key() -> None:
    world = World(a_job(JobState.PREPARING, due_at=NOW - 1, keep_until=NOW - 1))
    assert world.execute(maintain()) == Maintained(True, NOW)
    assert world.job().state is JobState.FAILED
    assert "preparing" in world.job().error
    assert world.job().due_at == NOW + RETENTION_MS


def test_a_claim_that_was_never_started_is_released_whatever_the_delivery() -> None:
    for delivery in Delivery:
        claimed = a_job(due_at=NOW - 1, holder=BOB, lease_until=NOW - 1, token=3, delivery=delivery)
        world = World(claimed)
        world.execute(maintain())
        job = world.job()
        assert (job.state, job.holder, job.lease_until, job.due_at) == (JobState.PENDING, BOB, 0, 0)
        assert (job.token, job.attempts) == (3, 0)


@pytest.mark.parametrize(
    ("delivery", "attempts", "then"),
    [
        (Delivery.AT_LEAST_ONCE, 1, JobState.PENDING),
        (Delivery.AT_LEAST_ONCE, 2, JobState.FAILED),
        (Delivery.AT_MOST_ONCE, 1, JobState.LOST),
        (Delivery.AT_MOST_ONCE, 2, JobState.LOST),
    ],
)
def test_a_started_job_whose_lease_expired(delivery: Delivery, attempts: int, then: JobState) -> None:
    running = a_job(
        JobState.RUNNING, due_at=NOW - 1, lease_until=NOW - 1, holder=BOB, token=2,
        delivery=delivery, attempts=attempts, attempts_max=2,
    )  # fmt: skip
    world = World(running)
    reply = world.execute(maintain())
    job = world.job()
    assert reply == Maintained(True, NOW, expired_lease=job)
    holder = BOB if then is JobState.PENDING else b""  # who may come back before another claims it
    assert (job.state, job.token, job.attempts, job.holder, job.lease_until) == (then, 2, attempts, holder, 0)
    assert job.due_at == (NOW + RETENTION_MS if then is JobState.FAILED else 0)
    assert world.attachment_indexes(AttachmentKind.EVENT) == [1]


def test_a_scheduled_job_waits_for_its_time_not_for_maintenance() -> None:
    world = World(a_job(JobState.SCHEDULED, due_at=NOW - 1))
    assert world.execute(maintain()) == Maintained(False, NOW)


def test_a_late_or_repeated_maintenance_command_changes_nothing() -> None:
    world = World()
    assert world.execute(maintain()) == Maintained(False, NOW)
    assert world.execute(expire()) == Maintained(False, NOW)
    world.execute(submit())
    assert expect_type(world.execute(expire(), NOW + TTL), Maintained).changed is False
    assert expect_type(world.execute(expire(), NOW + TTL + 1), Maintained).changed is True
    assert expect_type(world.execute(expire(), NOW + TTL + 1), Maintained).changed is False
    assert world.jobs() == [JOB]


# Forget, count, purge


def test_a_forgotten_key_waits_until_every_gate_has_forgotten_it() -> None:
    world = World()
    world.execute(submit())
    assert world.execute(forget(HOUR)) == Forgotten(NOW + HOUR, NOW)
    assert expect_type(world.execute(submit(JOB2), NOW + HOUR), Replayed).expires_at == NOW + HOUR
    assert expect_type(world.execute(look_up(), NOW + HOUR + 1), Missing)
    assert world.job().state is JobState.PENDING


def test_forgetting_again_or_late_never_prolongs_the_window() -> None:
    world = World()
    world.execute(submit())
    world.execute(forget(HOUR))
    assert expect_type(world.execute(forget(HOUR), NOW + SECOND), Forgotten).expires_at == NOW + HOUR
    assert expect_type(world.execute(forget(DAY), NOW + SECOND), Forgotten).expires_at == NOW + HOUR
    assert expect_type(world.execute(forget(0), NOW + HOUR + 1), Missing)


def test_a_held_key_is_not_forgotten() -> None:
    world = World()
    held = expect_type(world.execute(reserve()), KeyHeld)
    assert expect_type(world.execute(forget(0), NOW + LEASE), Refused).reason is Reason.IN_PROGRESS
    assert not world.changes
    world.execute(settle(held, Verdict.FAIL))
    assert expect_type(world.execute(forget(SECOND)), Forgotten)
    assert world.job().due_at == world.record().expires_at == NOW + SECOND


def test_a_forgotten_preparation_may_still_be_taken_over_inside_its_window() -> None:
    world = World()
    world.execute(settle(expect_type(world.execute(reserve()), KeyHeld), Verdict.FAIL))
    world.execute(forget(SECOND))
    assert expect_type(world.execute(take_over(BOB), NOW + SECOND), KeyHeld).token == 2
    world.execute(maintain(), NOW + LEASE)
    assert expect_type(world.execute(submit(JOB2), NOW + LEASE), InProgress)


def test_hits_are_added_and_prolong_nothing() -> None:
    world = World(a_record(hits=5, conflicts=1, last_hit_at=NOW - HOUR), a_job())
    count = CountHits(tenant=TENANT, record_id=RECORD_ID, hits=3, conflicts=2)
    assert world.execute(count) == Maintained(True, NOW)
    record = world.record()
    assert (record.hits, record.conflicts, record.last_hit_at) == (8, 3, NOW)
    assert record.expires_at == a_record().expires_at
    world.execute(CountHits(tenant=TENANT, record_id=RECORD_ID, hits=0, conflicts=1), NOW + 9)
    assert world.record().last_hit_at == NOW


@pytest.mark.parametrize("status", list(IdempotencyStatus))
@pytest.mark.parametrize("state", list(JobState))
def test_purge_erases_whatever_the_state(status: IdempotencyStatus, state: JobState) -> None:
    record = a_record(status, job_ids=JOB + JOB2, lease_until=NOW + LEASE)
    world = World(record, a_job(state), a_job(state, id=JOB2), a_usage())
    assert world.execute(purge()) == Maintained(True, NOW)
    assert world.execute(Purge(tenant=TENANT, usage_id=USAGE_ID)) == Maintained(True, NOW)
    assert world.facts == {}
    assert world.execute(purge()) == Maintained(False, NOW)


# History


def test_history_keeps_the_first_8_and_the_last_24_and_counts_the_rest() -> None:
    assert (FIRST_EVENTS_MAX, LAST_EVENTS_MAX) == (8, 24)
    world = World()
    expect_type(world.execute(submit()), Created)
    for turn in range(1, 61):
        world.execute(forget(DAY), NOW + turn)
        stored = [0, *world.attachment_indexes(AttachmentKind.EVENT)]  # the first is implied by the job row
        total = turn + 1
        everything = list(range(total))
        assert world.job().events == total
        assert stored == (everything if total <= 32 else everything[:8] + everything[-24:])


def test_an_event_says_who_did_what_and_when_in_few_words() -> None:
    world = World()
    world.execute(submit())
    world.execute(cancel(actor="user:" + "x" * 50), NOW + 7)
    assert first_event(world.job()) == Event(NOW, "submitted", "user:ann")
    event = json.decode(world.attachments[JOB, AttachmentKind.EVENT, 1], type=Event)
    assert event == Event(NOW + 7, "cancelled", "user:" + "x" * 50)
