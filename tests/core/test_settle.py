"""Rules of Settle: what each verdict stores, and how an unsettled key is finished."""

from typing import Any

import pytest

from onejob.core.command import Command
from onejob.core.replies import Conflict, Created, InProgress, KeyHeld, KeySettled, Reason, Refused, Rejected, Replayed
from onejob.core.reserve import Verdict
from onejob.core.states import IdempotencyStatus, JobState
from onejob.core.work import RETENTION_MS
from tests.core.world import (
    BOB,
    DAY,
    HOUR,
    JOB,
    JOB2,
    JOB3,
    LEASE,
    NOW,
    OTHER_FINGERPRINT,
    SECOND,
    TTL,
    World,
    cancel,
    expect_type,
    maintain,
    renew,
    reserve,
    settle,
    submit,
    take_over,
)

AFTER_LEASE = NOW + LEASE + 1
PENDING, COMMITTED, REJECTED = IdempotencyStatus


def reserved_world() -> tuple[World, KeyHeld]:
    world = World()
    return world, expect_type(world.execute(reserve()), KeyHeld)


# Verdicts


def test_commit_makes_the_job_ready_and_the_window_counts_from_there() -> None:
    world, held = reserved_world()
    done = expect_type(world.execute(settle(held, Verdict.COMMIT, b"ok"), NOW + HOUR), KeySettled)
    assert (done.record, done.job) == (world.record(), world.job())
    assert (world.job().state, world.job().due_at) == (JobState.PENDING, 0)
    assert (world.record().status, world.record().lease_until) == (COMMITTED, 0)
    assert world.record().expires_at == world.job().keep_until == NOW + HOUR + TTL
    assert expect_type(world.execute(submit(JOB2), NOW + HOUR + TTL), Replayed).receipt == b"ok"
    assert expect_type(world.execute(submit(JOB2), NOW + HOUR + TTL + 1), Created).job.id == JOB2


def test_commit_may_name_its_own_window_and_keeps_a_later_start() -> None:
    world = World()
    held = expect_type(world.execute(reserve(run_at=NOW + HOUR)), KeyHeld)
    world.execute(settle(held, Verdict.COMMIT, ttl_ms=DAY))
    assert (world.job().state, world.record().expires_at) == (JobState.SCHEDULED, NOW + DAY)


def test_a_failure_keeps_fingerprint_and_job_id_and_may_be_tried_again() -> None:
    world, held = reserved_world()
    failed = expect_type(world.execute(settle(held, Verdict.FAIL, b"no route"), NOW + 1), KeySettled)
    assert (failed.record.status, failed.record.lease_until, failed.record.receipt) == (
        PENDING,
        0,
        b"no route",
    )
    assert failed.record.expires_at == world.job().due_at == NOW + 1 + TTL
    assert world.job().state is JobState.PREPARING
    assert expect_type(world.execute(reserve(JOB2, holder=BOB, fingerprint=OTHER_FINGERPRINT), NOW + 2), Conflict)
    again = expect_type(world.execute(reserve(JOB2, holder=BOB), NOW + 2), KeyHeld)
    assert (again.job_id, again.token) == (JOB, 2)
    assert expect_type(world.execute(settle(held, Verdict.FAIL, b"no route"), NOW + 3), Refused).reason is Reason.STALE


def test_a_rejection_is_remembered_only_for_its_ttl() -> None:
    world, held = reserved_world()
    world.execute(settle(held, Verdict.REJECT, b"bad card", ttl_ms=SECOND))
    assert (world.record().status, world.job().state) == (REJECTED, JobState.FAILED)
    for command in (submit(JOB2), reserve(JOB2, holder=BOB), take_over(BOB)):
        rejected = expect_type(world.execute(command, NOW + SECOND), Rejected)
        assert (rejected.job_id, rejected.receipt, rejected.expires_at) == (JOB, b"bad card", NOW + SECOND)
    assert expect_type(world.execute(submit(JOB2), NOW + SECOND + 1), Created).job.id == JOB2


# Cancelled while preparing


@pytest.mark.parametrize(("verdict", "status"), [(Verdict.COMMIT, COMMITTED), (Verdict.REJECT, REJECTED)])
def test_a_job_cancelled_while_preparing_stays_cancelled(verdict: Verdict, status: IdempotencyStatus) -> None:
    world, held = reserved_world()
    world.execute(cancel())
    assert expect_type(world.execute(reserve()), KeyHeld)
    assert expect_type(world.execute(submit(JOB2)), InProgress)
    done = expect_type(world.execute(settle(held, verdict)), KeySettled)
    assert done.job == world.job()
    assert (world.job().state, world.record().status) == (JobState.CANCELLED, status)


@pytest.mark.parametrize("released", [True, False])
def test_a_pending_key_whose_job_was_cancelled_is_closed_by_the_next_caller(released: bool) -> None:
    for command in (reserve(JOB2, holder=BOB), submit(JOB2), take_over(BOB)):
        world, held = reserved_world()
        world.execute(cancel())
        if released:
            world.execute(settle(held, Verdict.FAIL))
        assert expect_type(world.execute(command, AFTER_LEASE), Replayed).job == world.job()
        assert (world.record().status, world.record().expires_at) == (COMMITTED, AFTER_LEASE + TTL)
        assert world.job().state is JobState.CANCELLED


# Once a cancelled job was deleted after its retention although its record was still renewed, and its replay failed.
@pytest.mark.parametrize("end", ["renewed", "committed", "rejected", "released", "closed"])
def test_a_job_cancelled_while_preparing_outlives_its_record(end: str) -> None:
    ttl = 2 * RETENTION_MS
    world = World()
    held = expect_type(world.execute(reserve(ttl_ms=ttl)), KeyHeld)
    world.execute(cancel())
    then = NOW + RETENTION_MS + DAY
    moves: dict[str, Command[Any]] = {
        "renewed": renew(held),
        "committed": settle(held, Verdict.COMMIT),
        "rejected": settle(held, Verdict.REJECT),
        "released": settle(held, Verdict.FAIL),
        "closed": submit(JOB2, ttl_ms=ttl),
    }
    world.execute(moves[end], then)
    end_of_window = world.record().expires_at
    assert end_of_window >= then + ttl
    world.execute(maintain(), end_of_window)
    answer = world.execute(submit(JOB3), end_of_window)
    assert isinstance(answer, Rejected if end == "rejected" else Replayed)
    last = world.record().expires_at
    assert world.job().state is JobState.CANCELLED
    world.execute(maintain(), last)
    assert world.jobs() == [JOB]
    world.execute(maintain(), last + 1)
    assert world.jobs() == []


def test_settling_shortens_no_retention() -> None:
    world, held = reserved_world()
    world.execute(cancel())
    world.execute(settle(held, Verdict.COMMIT, ttl_ms=SECOND))
    world.execute(maintain(), NOW + RETENTION_MS)
    assert world.jobs() == [JOB]


def test_a_rejected_job_outlives_its_record() -> None:
    world, held = reserved_world()
    world.execute(settle(held, Verdict.REJECT, ttl_ms=2 * RETENTION_MS))
    assert world.job().due_at == world.record().expires_at == NOW + 2 * RETENTION_MS


# Submit over a reservation


def test_submit_waits_for_a_lease_and_says_when_to_come_again() -> None:
    world = World()
    world.execute(reserve())
    waiting = expect_type(world.execute(submit(JOB2), NOW + 10), InProgress)
    assert (waiting.job_id, waiting.retry_after_ms) == (JOB, LEASE - 10 + 1)
    assert expect_type(world.execute(submit(JOB2), NOW + LEASE), InProgress).retry_after_ms == 1


def test_submit_finishes_a_key_with_an_expired_lease_and_keeps_the_job_id() -> None:
    world = World()
    held = expect_type(world.execute(reserve()), KeyHeld)
    then = NOW + LEASE + 1
    created = expect_type(world.execute(submit(JOB2), then), Created)
    assert (created.job.id, created.job.state) == (JOB, JobState.PENDING)
    assert world.jobs() == [JOB]
    assert (world.record().token, world.record().holder) == (held.token + 1, JOB2)
    assert world.record().expires_at == world.job().keep_until == then + TTL
    assert expect_type(world.execute(submit(JOB2), then + 1), Created).job == created.job  # its echo
    assert expect_type(world.execute(submit(JOB3), then + 1), Replayed).job == created.job
    assert expect_type(world.execute(settle(held, Verdict.COMMIT), then + 1), Refused).reason is Reason.STALE


def test_submit_finishes_a_released_key_and_returns_a_cancelled_job_as_it_is() -> None:
    world = World()
    held = expect_type(world.execute(reserve()), KeyHeld)
    world.execute(settle(held, Verdict.FAIL))
    world.execute(cancel())
    assert expect_type(world.execute(submit(JOB2)), Replayed).job == world.job()
    assert world.job().state is JobState.CANCELLED
    assert expect_type(world.execute(submit(JOB2)), Replayed)


def test_a_scheduled_reservation_is_scheduled_when_finished() -> None:
    world = World()
    world.execute(reserve(run_at=NOW + HOUR))
    assert expect_type(world.execute(submit(JOB2), NOW + LEASE + 1), Created).job.state is JobState.SCHEDULED
