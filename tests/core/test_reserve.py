"""Rules of Reserve, Renew and TakeOver: leases, repetitions, fences, take-over."""

from typing import Any

import pytest
from msgspec.structs import replace

from onejob.core.command import Command, Footprint
from onejob.core.facts import AttachmentKind
from onejob.core.replies import Conflict, InProgress, KeyHeld, KeySettled, Missing, Reason, Refused, Replayed
from onejob.core.reserve import UNANSWERED_MAX, UnansweredReservations, Verdict
from onejob.core.states import IdempotencyStatus, JobState
from tests.core.world import (
    ANN,
    BOB,
    DAY,
    EVE,
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
    a_job,
    a_record,
    expect_type,
    expire,
    maintain,
    renew,
    reserve,
    settle,
    submit,
    take_over,
)

AFTER_LEASE = NOW + LEASE + 1
PENDING, COMMITTED, REJECTED = IdempotencyStatus
VERDICTS = list(Verdict)


def reserved_world() -> tuple[World, KeyHeld]:
    world = World()
    return world, expect_type(world.execute(reserve()), KeyHeld)


def holders_commands(held: KeyHeld) -> list[Command[Any]]:
    return [renew(held), *(settle(held, verdict) for verdict in VERDICTS)]


def refusal_reason(reply: object) -> Reason:
    return expect_type(reply, Refused).reason


def test_a_reservation_stores_a_preparing_job_and_a_lease() -> None:
    world, held = reserved_world()
    assert (held.job_id, held.token, held.holder, held.taken_over) == (JOB, 1, ANN, False)
    assert held.lease_until == NOW + LEASE
    record, job = world.record(), world.job()
    assert (record.status, record.lease_until) == (PENDING, NOW + LEASE)
    assert record.expires_at == job.keep_until == NOW + LEASE + TTL
    assert record.lease_until == job.due_at == NOW + LEASE
    assert job.state is JobState.PREPARING
    assert world.attachment_indexes(AttachmentKind.INPUT) == [0]


def test_a_reservation_without_a_job_stores_only_a_record() -> None:
    world = World()
    held = expect_type(world.execute(reserve(b"")), KeyHeld)
    assert (held.job_id, world.jobs(), world.attachments) == (b"", [], {})
    done = expect_type(world.execute(settle(held, Verdict.COMMIT, b"201 Created")), KeySettled)
    assert (done.record.status, done.job) == (COMMITTED, None)
    replayed = expect_type(world.execute(reserve(b"", holder=BOB)), Replayed)
    assert (replayed.job, replayed.receipt) == (None, b"201 Created")


# Leases


def test_a_held_key_is_in_progress_for_every_other_caller() -> None:
    world, _ = reserved_world()
    for command in (reserve(JOB2, holder=BOB), submit(JOB2), take_over(BOB)):
        waiting = expect_type(world.execute(command, NOW + 1), InProgress)
        assert (waiting.job_id, waiting.retry_after_ms) == (JOB, LEASE)
        assert not world.changes


def test_a_lease_lives_to_the_exact_millisecond() -> None:
    world, _ = reserved_world()
    assert expect_type(world.execute(take_over(BOB), NOW + LEASE), InProgress)
    assert expect_type(world.execute(take_over(BOB), NOW + LEASE + 1), KeyHeld).token == 2


def test_a_renewed_lease_and_its_window_count_from_the_renewal() -> None:
    world, held = reserved_world()
    longer = expect_type(world.execute(renew(held), NOW + SECOND), KeyHeld)
    assert longer == replace(held, lease_until=NOW + SECOND + LEASE, at=NOW + SECOND)
    assert world.record().expires_at == world.job().keep_until == NOW + SECOND + LEASE + TTL
    assert (world.job().due_at, world.job().keep_until) == (world.record().lease_until, world.record().expires_at)


def test_an_expired_lease_that_was_not_taken_over_can_be_renewed_and_settled() -> None:
    world, held = reserved_world()
    assert expect_type(world.execute(renew(held), AFTER_LEASE), KeyHeld).token == 1
    assert expect_type(world.execute(settle(held, Verdict.COMMIT), AFTER_LEASE + LEASE + 1), KeySettled)


def test_a_pending_record_never_expires_while_its_lease_lives() -> None:
    world = World()
    held = expect_type(world.execute(reserve(ttl_ms=1, lease_ms=HOUR)), KeyHeld)
    world.execute(expire(), NOW + HOUR)
    world.execute(maintain(), NOW + HOUR)
    assert expect_type(world.execute(submit(JOB2), NOW + HOUR), InProgress)
    assert expect_type(world.execute(settle(held, Verdict.COMMIT), NOW + HOUR), KeySettled)
    past = World(a_record(PENDING, lease_until=NOW, expires_at=NOW - DAY), a_job(JobState.PREPARING))
    past.execute(expire())
    assert expect_type(past.execute(submit(JOB2)), InProgress).job_id == JOB


def test_a_pending_record_expires_after_its_window_and_the_key_makes_a_new_job() -> None:
    world, held = reserved_world()
    end = NOW + LEASE + TTL
    again = expect_type(world.execute(reserve(JOB2, holder=BOB), end + 1), KeyHeld)
    assert (again.job_id, again.token, again.taken_over) == (JOB2, 1, False)
    world.execute(maintain(), end + 1)
    assert world.job().state is JobState.FAILED
    assert refusal_reason(world.execute(settle(held, Verdict.COMMIT), end + 2)) is Reason.STALE


# Echo


def test_the_same_holder_gets_the_same_answer() -> None:
    world, held = reserved_world()
    assert world.execute(reserve(), NOW + 5) == replace(held, at=NOW + 5)
    assert not world.changes
    taken = expect_type(world.execute(take_over(BOB), AFTER_LEASE), KeyHeld)
    assert world.execute(take_over(BOB), AFTER_LEASE + 5) == replace(taken, at=AFTER_LEASE + 5)
    assert world.execute(reserve(JOB2, holder=BOB), AFTER_LEASE + 5) == replace(taken, at=AFTER_LEASE + 5)
    assert not world.changes


def test_the_same_holder_after_the_settling_gets_the_settled_answer() -> None:
    world, held = reserved_world()
    world.execute(settle(held, Verdict.COMMIT))
    assert expect_type(world.execute(reserve()), Replayed).job == world.job()


def test_a_reservation_repeated_after_its_record_has_gone_makes_no_second_job() -> None:
    world, _ = reserved_world()
    assert refusal_reason(world.execute(reserve(), NOW + LEASE + TTL + 1)) is Reason.STALE
    assert not world.changes


@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_settling_repeated_with_equal_content_succeeds(verdict: Verdict) -> None:
    world, held = reserved_world()
    first = expect_type(world.execute(settle(held, verdict, b"so")), KeySettled)
    again = expect_type(world.execute(settle(held, verdict, b"so"), NOW + 9), KeySettled)
    assert again == replace(first, at=NOW + 9)
    assert not world.changes


@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_settling_repeated_with_other_content_is_refused(verdict: Verdict) -> None:
    world, held = reserved_world()
    world.execute(settle(held, verdict, b"so"))
    others = [settle(held, other, b"so") for other in VERDICTS if other is not verdict]
    for command in (settle(held, verdict, b"not so"), *others):
        assert refusal_reason(world.execute(command)) is Reason.ALREADY_SETTLED
        assert not world.changes
    assert refusal_reason(world.execute(renew(held))) is Reason.ALREADY_SETTLED


# Fences


def test_after_a_take_over_everything_from_before_is_stale() -> None:
    world, held = reserved_world()
    taken = expect_type(world.execute(take_over(BOB), AFTER_LEASE), KeyHeld)
    for command in holders_commands(held):
        refused = expect_type(world.execute(command, AFTER_LEASE + 1), Refused)
        assert (refused.reason, refused.details) == (Reason.STALE, {"token": held.token})
        assert not world.changes
    assert expect_type(world.execute(settle(taken, Verdict.COMMIT), AFTER_LEASE + 1), KeySettled)
    assert refusal_reason(world.execute(settle(held, Verdict.COMMIT), AFTER_LEASE + 2)) is Reason.STALE


def test_an_equal_token_of_a_recreated_record_does_not_pass_the_fence() -> None:
    world, held = reserved_world()
    end = NOW + LEASE + TTL + 1
    fresh = expect_type(world.execute(reserve(JOB2, holder=BOB), end), KeyHeld)
    assert fresh.token == held.token
    same_holder = replace(held, holder=BOB)  # even a nonce drawn twice does not help: the job id differs
    for stale in (held, same_holder):
        for command in holders_commands(stale):
            assert refusal_reason(world.execute(command, end)) is Reason.STALE
    assert expect_type(world.execute(settle(fresh, Verdict.COMMIT), end), KeySettled).job == world.job(JOB2)


@pytest.mark.parametrize("wrong", [{"job_id": JOB2}, {"token": 2}, {"token": 0}, {"holder": EVE}, {"holder": b""}])
def test_job_id_token_and_holder_must_all_be_right(wrong: dict[str, object]) -> None:
    world, held = reserved_world()
    other = replace(held, **wrong)
    for command in holders_commands(other):
        assert refusal_reason(world.execute(command)) is Reason.STALE


# Take-over


def test_take_over_keeps_the_job_id_and_raises_the_token() -> None:
    world, _ = reserved_world()
    then = AFTER_LEASE
    turns: list[tuple[bytes, Command[Any]]] = [
        (BOB, take_over(BOB)),
        (EVE, reserve(JOB3, holder=EVE)),
        (ANN, take_over(ANN)),
    ]
    for token, (holder, command) in enumerate(turns, start=2):
        taken = expect_type(world.execute(command, then), KeyHeld)
        assert (taken.job_id, taken.token, taken.holder, taken.taken_over) == (JOB, token, holder, True)
        assert world.record().expires_at == world.job().keep_until == then + LEASE + TTL
        assert world.record().lease_until == world.job().due_at == then + LEASE
        then += LEASE + 1
    assert world.jobs() == [JOB]


def test_take_over_never_makes_a_key() -> None:
    world, _ = reserved_world()
    assert expect_type(World().execute(take_over()), Missing)
    assert expect_type(world.execute(take_over(), NOW + LEASE + TTL + 1), Missing)


def test_a_mismatch_comes_before_take_over() -> None:
    world, _ = reserved_world()
    assert (
        expect_type(
            world.execute(reserve(JOB2, holder=BOB, fingerprint=OTHER_FINGERPRINT), AFTER_LEASE), Conflict
        ).job_id
        == JOB
    )


def test_a_key_without_a_job_touches_nothing_but_its_record() -> None:
    world = World()
    command = reserve(b"", usage_id=b"usage", policy_id=b"policy")
    record_only = Footprint(command.tenant, command.record_id)
    assert command.footprint == record_only
    held = world.execute(command)
    assert isinstance(held, KeyHeld)
    assert renew(held).footprint == record_only
    assert settle(held, Verdict.COMMIT, policy_id=b"policy").footprint == record_only
    assert isinstance(world.execute(settle(held, Verdict.COMMIT, b"answer")), KeySettled)
    assert isinstance(world.execute(reserve(JOB2)), Conflict)


def test_a_reservation_without_an_answer_is_repeated_as_the_same_holder() -> None:
    unanswered, first = UnansweredReservations(), reserve(holder=BOB)
    unanswered.add(first)
    world = World()
    expect_type(world.execute(first), KeyHeld)
    for other in ({"record_id": b"other"}, {"fingerprint": b"other"}, {"user": "other"}):
        assert unanswered.resume(replace(first, holder=ANN, **other)).holder == ANN
    again = unanswered.resume(replace(first, holder=ANN))
    assert expect_type(world.execute(again), KeyHeld).holder == BOB
    assert unanswered.resume(replace(first, holder=ANN)).holder == ANN, "of several repetitions one is the same holder"


def test_the_oldest_reservation_without_an_answer_is_forgotten() -> None:
    unanswered = UnansweredReservations()
    ids = [n.to_bytes(4, "big") for n in range(UNANSWERED_MAX + 1)]
    for id in ids:
        unanswered.add(reserve(holder=BOB, record_id=id))
    holders = [unanswered.resume(reserve(holder=ANN, record_id=id)).holder for id in ids[:2]]
    assert holders == [ANN, BOB]
