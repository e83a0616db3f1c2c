"""Rules of reservations, and of counting again: a slot with a deadline counts until it, and for one job."""

from typing import Any

import pytest
from msgspec.structs import replace

from onejob.core import limits
from onejob.core.facts import Job, Kind, Reservation, Usage
from onejob.core.identity import encode_reservation_id, policy_id
from onejob.core.limits import QUOTA_POLICY_NAME, Limits, encode_limits
from onejob.core.quota import current_counts
from onejob.core.replies import (
    Created,
    Maintained,
    Missing,
    Reason,
    Reconciled,
    Refused,
    SlotHeld,
    SlotSettled,
    UsageFound,
)
from onejob.core.slots import (
    Backfill,
    ConsumeSlot,
    LookUpUsage,
    Reconcile,
    ReleaseSlot,
    RenewSlot,
    ReserveSlot,
    SetLimits,
)
from onejob.core.states import IdempotencyStatus, JobState, SlotState
from tests.core.test_quota import limited, nth, tenant
from tests.core.world import (
    DAY,
    HOUR,
    JOB,
    NOW,
    RECORD_ID,
    SECOND,
    TALLY_ID,
    TENANT,
    USER,
    World,
    a_job,
    a_record,
    a_tally,
    cancel,
    the,
)

TTL = 300 * SECOND
NAMED: dict[str, Any] = {
    "tenant": TENANT,
    "usage_id": TALLY_ID,
    "policy_id": policy_id(TENANT, QUOTA_POLICY_NAME),
}
SLOT, SLOT2 = (encode_reservation_id(TALLY_ID, bytes([n]) * 16) for n in (1, 2))


def reserve(slot: str = SLOT, **changes: Any) -> ReserveSlot:
    return ReserveSlot(**NAMED, user=USER, reservation=slot, **changes)


def renew(slot: str = SLOT) -> RenewSlot:
    return RenewSlot(**NAMED, reservation=slot)


def release(slot: str = SLOT) -> ReleaseSlot:
    return ReleaseSlot(**NAMED, reservation=slot)


def consume(slot: str = SLOT, job_id: bytes = b"") -> ConsumeSlot:
    return ConsumeSlot(**NAMED, reservation=slot, job_id=job_id)


def recount(world: World, live: int, cost_held: int = 0, **changes: Any) -> Reconcile:
    return Reconcile(**NAMED, expected_version=world.tally().version, live=live, cost_held=cost_held, **changes)


def used(world: World, at: int = NOW) -> int:
    return current_counts(world.tally(), at).used


# Reservations


def test_a_reservation_counts_until_its_last_millisecond_and_never_after() -> None:
    world = World(limited(max_concurrent=1))
    held = the(world.do(reserve()), SlotHeld)
    assert held.expires_at == NOW + TTL
    assert (used(world, NOW + TTL), used(world, NOW + TTL + 1)) == (1, 0)
    assert the(world.do(reserve(SLOT2), NOW + TTL), Refused).reason is Reason.QUOTA_EXCEEDED
    the(world.do(reserve(SLOT2), NOW + TTL + 1), SlotHeld)


def test_the_smaller_of_argument_and_policy_holds() -> None:
    world = World(limited(max_concurrent=2))
    the(world.do(reserve(max_concurrent=9)), SlotHeld)
    assert "Maximum 1 concurrent" in the(world.do(reserve(SLOT2, max_concurrent=1)), Refused).message
    assert isinstance(World().do(reserve(max_concurrent=0)), Refused)


def test_the_same_reservation_repeated_is_the_same_slot() -> None:
    world = World(limited(max_concurrent=1))
    first = the(world.do(reserve()), SlotHeld)
    assert the(world.do(reserve(), NOW + SECOND), SlotHeld).expires_at == first.expires_at
    assert used(world) == 1


def test_an_expired_reservation_is_neither_renewed_nor_consumed() -> None:
    world = World(limited(max_concurrent=1))
    world.do(reserve())
    late = NOW + TTL + 1
    for command in (renew(), consume(), renew(SLOT2)):
        assert the(world.do(command, late), Refused).reason is Reason.SLOT_LOST
    assert the(world.do(release(), late), SlotSettled).state is SlotState.RELEASED


def test_a_released_slot_is_free_at_once_and_stays_so() -> None:
    world = World(limited(max_concurrent=1))
    world.do(reserve())
    for _ in range(2):
        the(world.do(release()), SlotSettled)
        assert used(world) == 0
    assert the(world.do(consume()), Refused).reason is Reason.SLOT_LOST


def test_two_jobs_cannot_consume_one_reservation() -> None:
    world = World(limited(max_concurrent=1), a_job(), a_job(id=b"another-job-0001", key=""))
    world.do(reserve())
    first, again, second = world.batch(consume(job_id=JOB), consume(job_id=JOB), consume(job_id=b"another-job-0001"))
    assert (type(first), type(again), the(second, Refused).reason) == (
        SlotSettled, SlotSettled, Reason.SLOT_LOST,
    )  # fmt: skip
    assert (used(world), world.tally().live, world.job().slot) == (1, 1, TALLY_ID)
    assert the(world.do(release()), Refused).reason is Reason.ALREADY_SETTLED


def test_a_reservation_is_consumed_only_by_a_job_of_its_user() -> None:
    """Counted on this tally, a job of another user would be looked for in vain when it is counted again."""
    world = World(limited(max_concurrent=1), a_job(user="eve"))
    world.do(reserve())
    assert the(world.do(consume(job_id=JOB)), Refused).reason is Reason.NOT_THE_OWNER
    assert (used(world), world.job().slot) == (1, b"")
    assert isinstance(world.do(consume(job_id=b"no-such-job-0001")), Missing)


@pytest.mark.parametrize("state", [JobState.SUCCESS, JobState.LOST])
def test_a_job_that_has_ended_takes_no_slot(state: JobState) -> None:
    world = World(limited(max_concurrent=1), a_job(state))
    world.do(reserve())
    the(world.do(consume(job_id=JOB)), SlotSettled)
    assert (used(world), world.job().slot) == (0, b"")


def test_a_submission_turns_its_reservation_into_its_slot() -> None:
    world = World(limited(max_concurrent=1))
    world.do(reserve())
    assert isinstance(world.do(nth(1)), Refused)
    the(world.do(nth(2, reservation=SLOT)), Created)
    assert (used(world), world.tally().live) == (1, 1)
    lost = the(world.do(nth(3, reservation=SLOT)), Refused)
    assert (lost.reason, "consumed" in lost.message) == (Reason.SLOT_LOST, True)


def test_an_expired_reservation_is_taken_again_or_the_slot_is_lost() -> None:
    late = NOW + TTL + 1
    free = World(limited(max_concurrent=1))
    free.do(reserve())
    the(free.do(nth(1, reservation=SLOT), late), Created)
    full = World(limited(max_concurrent=1))
    full.do(reserve())
    full.do(nth(1), late)
    lost = the(full.do(nth(2, reservation=SLOT), late), Refused)
    assert lost.reason is Reason.SLOT_LOST
    assert (lost.details["allowed"], lost.details["used"]) == (1, 1)


# Counting again


def test_a_right_tally_has_no_drift() -> None:
    world = World(limited(max_concurrent=3))
    world.batch(nth(1, cost=5), nth(2))
    assert the(world.do(recount(world, 2, 5)), Reconciled) == Reconciled(0, True, NOW)
    assert world.tally().due_at == 0


def test_a_drift_is_told_and_mended() -> None:
    world = World(a_tally(live=3, cost_held=7, limits=encode_limits(Limits(max_concurrent=9))))
    assert the(world.do(recount(world, 1, 5)), Reconciled).drift == 3
    assert (world.tally().live, world.tally().cost_held) == (1, 5)


def test_what_was_counted_under_another_version_changes_nothing() -> None:
    world = World(limited(max_concurrent=3))
    stale = recount(world, 0)
    world.do(nth(1))
    assert the(world.do(stale), Reconciled) == Reconciled(0, False, NOW)
    assert world.tally().live == 1


def test_a_tally_without_limits_is_looked_at_until_it_says_nothing_and_goes() -> None:
    world = World(tenant(default=Limits(max_concurrent=3)))
    world.do(nth(1))
    world.do(cancel(nth(1).job_id))
    the(world.do(recount(world, 0), NOW + HOUR), Reconciled)
    assert world.tally().due_at == NOW + HOUR + DAY
    the(world.do(recount(world, 0), world.tally().due_at + 1), Reconciled)
    assert not world.has(Kind.USAGE, TALLY_ID)


def test_a_tally_stays_while_a_job_bears_its_mark() -> None:
    """One that is being prepared counts nowhere once its lease ran out, but may still be committed."""
    world = World(a_tally(live=0))
    the(world.do(recount(world, 0, marked=1)), Reconciled)
    assert world.has(Kind.USAGE, TALLY_ID)


def test_limits_that_are_taken_away_leave_a_tally_that_upkeep_finds() -> None:
    world = World()
    set_limits = SetLimits(**NAMED, user=USER, limits=encode_limits(Limits(max_concurrent=1)))
    the(world.do(set_limits), UsageFound)
    the(world.do(SetLimits(**NAMED, user=USER, limits=b"")), UsageFound)
    assert world.tally().due_at
    the(world.do(recount(world, 0)), Reconciled)
    assert the(world.do(LookUpUsage(**NAMED)), UsageFound).usage is None


def test_a_job_is_adopted_once_and_only_where_there_are_limits() -> None:
    adopt = Backfill(**NAMED, user=USER, job_id=JOB)
    assert not the(World(a_job()).do(adopt), Maintained).changed
    world = World(a_job(cost_held=5), limited(max_concurrent=1))
    assert [the(reply, Maintained).changed for reply in world.batch(adopt, adopt)] == [True, False]
    job: Job = world.job()
    tally: Usage = world.tally()
    assert (job.slot, tally.live, tally.cost_held) == (TALLY_ID, 1, 5)


def test_a_preparing_job_is_adopted_until_its_lease_ends() -> None:
    adopt = Backfill(**NAMED, user=USER, job_id=JOB, record_id=RECORD_ID)
    preparing = a_job(JobState.PREPARING, cost_held=5)
    held = a_record(IdempotencyStatus.PENDING, lease_until=NOW + TTL)
    for record in (None, a_record(), replace(held, job_ids=b"\x07" * 16), replace(held, lease_until=NOW - 1)):
        there = () if record is None else (record,)
        world = World(preparing, limited(max_concurrent=1), *there)
        assert not the(world.do(adopt), Maintained).changed
    world = World(preparing, limited(max_concurrent=1), held)
    assert [the(reply, Maintained).changed for reply in world.batch(adopt, adopt)] == [True, False]
    assert world.job().slot == TALLY_ID
    assert current_counts(world.tally(), NOW)[:2] == (0, 1)
    assert current_counts(world.tally(), NOW).money_held == 5
    assert current_counts(world.tally(), NOW + TTL + 1).used == 0


def test_settled_reservations_make_room_for_new_ones() -> None:
    old = {f"r{n}": Reservation(NOW, NOW + TTL, SlotState.RELEASED) for n in range(1000)}
    world = World(a_tally(reservations=old))
    the(world.do(reserve()), SlotHeld)
    assert len(world.tally().reservations) == 1000
    active = {f"r{n}": Reservation(NOW, NOW + TTL, SlotState.ACTIVE) for n in range(1000)}
    assert the(World(a_tally(reservations=active)).do(reserve()), Refused).details["limit"] == "reservations"


@pytest.mark.parametrize(("sum", "micro"), [(0.1 + 0.2, 300_000), (1.1 * 3, 3_300_000), (1e9 - 1e-6, 10**15 - 1)])
def test_a_sum_of_floats_is_taken_without_its_noise(sum: float, micro: int) -> None:
    assert limits.to_micros("cost", sum) == micro
