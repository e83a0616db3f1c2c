"""Rules of ending, forgetting, purging and upkeep; of slots and of history."""

import pytest
from msgspec import json

from onejob.core.facts import AttachmentKind
from onejob.core.maintenance import CountHits, Purge
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
    TALLY_ID,
    TENANT,
    TTL,
    World,
    a_job,
    a_record,
    a_tally,
    cancel,
    expire,
    forget,
    look_up,
    look_up_job,
    purge,
    reserve,
    settle,
    submit,
    take_over,
    tend,
    the,
)

LIVE = [JobState.PREPARING, JobState.SCHEDULED, JobState.PENDING, JobState.RUNNING]
ENDED = [JobState.SUCCESS, JobState.FAILED, JobState.CANCELLED, JobState.LOST]


# Cancel


@pytest.mark.parametrize("state", LIVE)
def test_a_live_job_is_cancelled_once(state: JobState) -> None:
    world = World(a_job(state, holder=BOB, lease_until=NOW + LEASE, token=4, due_at=NOW + LEASE))
    job = the(world.do(cancel()), Cancelled).job
    assert (job.state, job.ended_at, job.events) == (JobState.CANCELLED, NOW, 2)
    assert (job.holder, job.lease_until, job.token) == (b"", 0, 4)
    again = the(world.do(cancel(), NOW + 1), Cancelled)
    assert (again.job, again.changed) == (job, False)
    assert not world.changes


@pytest.mark.parametrize("state", ENDED)
def test_a_job_that_has_ended_stays_as_it_is(state: JobState) -> None:
    world = World(a_job(state))
    assert world.do(cancel()) == Cancelled(a_job(state), False, NOW)
    assert not world.changes


def test_a_job_goes_after_its_retention_and_never_before_its_record() -> None:
    for keep_until, due_at in ((NOW + HOUR, NOW + DAY), (NOW + 9 * DAY, NOW + 9 * DAY)):
        world = World(a_job(keep_until=keep_until))
        world.do(cancel(retention_ms=DAY))
        assert world.job().due_at == due_at
        world.do(tend(), due_at)
        assert the(world.do(look_up_job(), due_at), Found)
        assert the(world.do(tend(), due_at + 1), Maintained).changed
        assert (world.facts, world.beside) == ({}, {})


def test_jobs_are_kept_seven_days_unless_said() -> None:
    assert RETENTION_MS == 7 * DAY


# Slots


@pytest.mark.parametrize("state", [state for state in LIVE if state is not JobState.PREPARING])
def test_a_slot_is_freed_exactly_once_in_the_step_that_ends_the_job(state: JobState) -> None:
    world = World(a_job(state, slot=TALLY_ID, cost_held=40), a_tally(live=3, cost_held=100))
    assert the(world.do(cancel()), Cancelled).job.slot == b""
    assert (world.tally().live, world.tally().cost_held, world.tally().version) == (2, 60, 8)
    world.do(cancel())
    world.do(tend(), NOW + 8 * DAY)
    assert (world.tally().live, world.tally().cost_held, world.tally().version) == (2, 60, 8)
    assert world.jobs() == []


def test_two_jobs_of_a_user_ended_in_one_batch_free_two_slots() -> None:
    world = World(a_job(slot=TALLY_ID), a_job(id=JOB2, slot=TALLY_ID), a_tally(live=2))
    world.batch(cancel(JOB), cancel(JOB2), cancel(JOB))
    assert (world.tally().live, world.tally().version) == (0, 9)


def test_a_job_without_a_slot_touches_no_tally() -> None:
    world = World(a_job(), a_tally())
    world.do(cancel())
    assert world.tally() == a_tally()


def test_a_lost_job_frees_its_slot_and_keeps_the_money() -> None:
    lost = a_job(JobState.RUNNING, slot=TALLY_ID, cost_held=40, due_at=NOW, delivery=Delivery.AT_MOST_ONCE)
    world = World(lost, a_tally(live=3, cost_held=100))
    world.do(tend(), NOW + 1)
    assert (world.job().state, world.tally().live, world.tally().cost_held) == (JobState.LOST, 2, 100)


# Tend


@pytest.mark.parametrize("state", list(JobState))
@pytest.mark.parametrize("due_at", [0, NOW, NOW + 1])
def test_what_is_not_due_is_left_alone(state: JobState, due_at: int) -> None:
    world = World(a_job(state, due_at=due_at))
    assert world.do(tend()) == Maintained(False, NOW)
    assert not world.changes


def test_an_abandoned_preparation_fails() -> None:
    world = World(a_job(JobState.PREPARING, due_at=NOW - 1))
    assert world.do(tend()) == Maintained(True, NOW)
    assert world.job().state is JobState.FAILED
    assert "preparing" in world.job().error
    assert world.job().due_at == NOW + RETENTION_MS


def test_a_claim_that_was_never_started_is_handed_back_whatever_the_delivery() -> None:
    for delivery in Delivery:
        claimed = a_job(due_at=NOW - 1, holder=BOB, lease_until=NOW - 1, token=3, delivery=delivery)
        world = World(claimed)
        world.do(tend())
        job = world.job()
        assert (job.state, job.holder, job.lease_until, job.due_at) == (JobState.PENDING, b"", 0, 0)
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
def test_a_started_job_whose_lease_lapsed(delivery: Delivery, attempts: int, then: JobState) -> None:
    running = a_job(
        JobState.RUNNING, due_at=NOW - 1, lease_until=NOW - 1, holder=BOB, token=2,
        delivery=delivery, attempts=attempts, attempts_max=2,
    )  # fmt: skip
    world = World(running)
    assert world.do(tend()) == Maintained(True, NOW)
    job = world.job()
    assert (job.state, job.token, job.attempts, job.holder, job.lease_until) == (then, 2, attempts, b"", 0)
    assert job.due_at == (NOW + RETENTION_MS if then is JobState.FAILED else 0)
    assert world.indexes(AttachmentKind.EVENT) == [1]


def test_a_scheduled_job_waits_for_its_time_not_for_upkeep() -> None:
    world = World(a_job(JobState.SCHEDULED, due_at=NOW - 1))
    assert world.do(tend()) == Maintained(False, NOW)


def test_a_late_or_repeated_proposal_does_no_harm() -> None:
    world = World()
    assert world.do(tend()) == Maintained(False, NOW)
    assert world.do(expire()) == Maintained(False, NOW)
    world.do(submit())
    assert the(world.do(expire(), NOW + TTL), Maintained).changed is False
    assert the(world.do(expire(), NOW + TTL + 1), Maintained).changed is True
    assert the(world.do(expire(), NOW + TTL + 1), Maintained).changed is False
    assert world.jobs() == [JOB]


# Forget, count, purge


def test_a_forgotten_key_waits_until_every_gate_has_forgotten_it() -> None:
    world = World()
    world.do(submit())
    assert world.do(forget(HOUR)) == Forgotten(NOW + HOUR, NOW)
    assert the(world.do(submit(JOB2), NOW + HOUR), Replayed).expires_at == NOW + HOUR
    assert the(world.do(look_up(), NOW + HOUR + 1), Missing)
    assert world.job().state is JobState.PENDING


def test_forgetting_again_or_late_never_prolongs_the_window() -> None:
    world = World()
    world.do(submit())
    world.do(forget(HOUR))
    assert the(world.do(forget(HOUR), NOW + SECOND), Forgotten).expires_at == NOW + HOUR
    assert the(world.do(forget(DAY), NOW + SECOND), Forgotten).expires_at == NOW + HOUR
    assert the(world.do(forget(0), NOW + HOUR + 1), Missing)


def test_a_held_key_is_not_forgotten() -> None:
    world = World()
    held = the(world.do(reserve()), KeyHeld)
    assert the(world.do(forget(0), NOW + LEASE), Refused).reason is Reason.IN_PROGRESS
    assert not world.changes
    world.do(settle(held, Verdict.FAIL))
    assert the(world.do(forget(SECOND)), Forgotten)
    assert world.job().due_at == world.record().expires_at == NOW + SECOND


def test_a_forgotten_preparation_may_still_be_taken_over_inside_its_window() -> None:
    world = World()
    world.do(settle(the(world.do(reserve()), KeyHeld), Verdict.FAIL))
    world.do(forget(SECOND))
    assert the(world.do(take_over(BOB), NOW + SECOND), KeyHeld).token == 2
    world.do(tend(), NOW + LEASE)
    assert the(world.do(submit(JOB2), NOW + LEASE), InProgress)


def test_hits_are_added_and_prolong_nothing() -> None:
    world = World(a_record(hits=5, conflicts=1, last_hit_at=NOW - HOUR), a_job())
    count = CountHits(tenant=TENANT, record_id=RECORD_ID, hits=3, conflicts=2)
    assert world.do(count) == Maintained(True, NOW)
    record = world.record()
    assert (record.hits, record.conflicts, record.last_hit_at) == (8, 3, NOW)
    assert record.expires_at == a_record().expires_at
    world.do(CountHits(tenant=TENANT, record_id=RECORD_ID, hits=0, conflicts=1), NOW + 9)
    assert world.record().last_hit_at == NOW


@pytest.mark.parametrize("status", list(IdempotencyStatus))
@pytest.mark.parametrize("state", list(JobState))
def test_purge_erases_whatever_the_state(status: IdempotencyStatus, state: JobState) -> None:
    record = a_record(status, job_ids=JOB + JOB2, lease_until=NOW + LEASE)
    world = World(record, a_job(state), a_job(state, id=JOB2), a_tally())
    assert world.do(purge()) == Maintained(True, NOW)
    assert world.do(Purge(tenant=TENANT, usage_id=TALLY_ID)) == Maintained(True, NOW)
    assert world.facts == {}
    assert world.do(purge()) == Maintained(False, NOW)


# History


def test_history_keeps_the_first_8_and_the_last_24_and_counts_the_rest() -> None:
    assert (FIRST_EVENTS_MAX, LAST_EVENTS_MAX) == (8, 24)
    world = World()
    the(world.do(submit()), Created)
    for turn in range(1, 61):
        world.do(forget(DAY), NOW + turn)
        kept = [0, *world.indexes(AttachmentKind.EVENT)]  # the first is implied by the head
        total = turn + 1
        everything = list(range(total))
        assert world.job().events == total
        assert kept == (everything if total <= 32 else everything[:8] + everything[-24:])


def test_an_event_says_who_did_what_and_when_in_few_words() -> None:
    world = World()
    world.do(submit())
    world.do(cancel(actor="user:" + "x" * 50), NOW + 7)
    assert first_event(world.job()) == Event(NOW, "submitted", "user:ann")
    told = json.decode(world.beside[JOB, AttachmentKind.EVENT, 1], type=Event)
    assert told == Event(NOW + 7, "cancelled", "user:" + "x" * 50)
