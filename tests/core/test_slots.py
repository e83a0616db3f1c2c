"""Rules of reservations, of reconciling and of backfilling: a slot counts until its deadline, and for one job."""

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
from tests.core.test_quota import nth_submit, tenant_policy, usage_with_limits
from tests.core.world import (
    DAY,
    HOUR,
    JOB,
    NOW,
    RECORD_ID,
    SECOND,
    TENANT,
    USAGE_ID,
    USER,
    World,
    a_job,
    a_record,
    a_usage,
    cancel,
    expect_type,
)

TTL = 300 * SECOND
USAGE_FIELDS: dict[str, Any] = {
    "tenant": TENANT,
    "usage_id": USAGE_ID,
    "policy_id": policy_id(TENANT, QUOTA_POLICY_NAME),
}
SLOT, SLOT2 = (encode_reservation_id(USAGE_ID, bytes([n]) * 16) for n in (1, 2))


def reserve(slot: str = SLOT, **changes: Any) -> ReserveSlot:
    return ReserveSlot(**USAGE_FIELDS, user=USER, reservation=slot, **changes)


def renew(slot: str = SLOT) -> RenewSlot:
    return RenewSlot(**USAGE_FIELDS, reservation=slot)


def release(slot: str = SLOT) -> ReleaseSlot:
    return ReleaseSlot(**USAGE_FIELDS, reservation=slot)


def consume(slot: str = SLOT, job_id: bytes = b"") -> ConsumeSlot:
    return ConsumeSlot(**USAGE_FIELDS, reservation=slot, job_id=job_id)


def reconcile(world: World, live: int, cost_held: int = 0, **changes: Any) -> Reconcile:
    return Reconcile(**USAGE_FIELDS, expected_version=world.usage().version, live=live, cost_held=cost_held, **changes)


def used_slots(world: World, at: int = NOW) -> int:
    return current_counts(world.usage(), at).used


# Reservations


def test_a_reservation_counts_until_its_last_millisecond_and_never_after() -> None:
    world = World(usage_with_limits(max_concurrent=1))
    held = expect_type(world.execute(reserve()), SlotHeld)
    assert held.expires_at == NOW + TTL
    assert (used_slots(world, NOW + TTL), used_slots(world, NOW + TTL + 1)) == (1, 0)
    assert expect_type(world.execute(reserve(SLOT2), NOW + TTL), Refused).reason is Reason.QUOTA_EXCEEDED
    expect_type(world.execute(reserve(SLOT2), NOW + TTL + 1), SlotHeld)


def test_the_smaller_of_argument_and_policy_holds() -> None:
    world = World(usage_with_limits(max_concurrent=2))
    expect_type(world.execute(reserve(max_concurrent=9)), SlotHeld)
    assert "Maximum 1 concurrent" in expect_type(world.execute(reserve(SLOT2, max_concurrent=1)), Refused).message
    assert isinstance(World().execute(reserve(max_concurrent=0)), Refused)


def test_the_same_reservation_repeated_is_the_same_slot() -> None:
    world = World(usage_with_limits(max_concurrent=1))
    first = expect_type(world.execute(reserve()), SlotHeld)
    assert expect_type(world.execute(reserve(), NOW + SECOND), SlotHeld).expires_at == first.expires_at
    assert used_slots(world) == 1


def test_an_expired_reservation_is_neither_renewed_nor_consumed() -> None:
    world = World(usage_with_limits(max_concurrent=1))
    world.execute(reserve())
    late = NOW + TTL + 1
    for command in (renew(), consume(), renew(SLOT2)):
        assert expect_type(world.execute(command, late), Refused).reason is Reason.SLOT_LOST
    assert expect_type(world.execute(release(), late), SlotSettled).state is SlotState.RELEASED


def test_a_released_slot_is_free_at_once_and_stays_so() -> None:
    world = World(usage_with_limits(max_concurrent=1))
    world.execute(reserve())
    for _ in range(2):
        expect_type(world.execute(release()), SlotSettled)
        assert used_slots(world) == 0
    assert expect_type(world.execute(consume()), Refused).reason is Reason.ALREADY_SETTLED


def test_two_jobs_cannot_consume_one_reservation() -> None:
    world = World(usage_with_limits(max_concurrent=1), a_job(), a_job(id=b"another-job-0001", key=""))
    world.execute(reserve())
    first, again, second = world.execute_batch(
        consume(job_id=JOB), consume(job_id=JOB), consume(job_id=b"another-job-0001")
    )
    assert (type(first), type(again), expect_type(second, Refused).reason) == (
        SlotSettled, SlotSettled, Reason.ALREADY_SETTLED,
    )  # fmt: skip
    assert (used_slots(world), world.usage().live, world.job().usage_id) == (1, 1, USAGE_ID)
    assert expect_type(world.execute(release()), Refused).reason is Reason.ALREADY_SETTLED


def test_a_reservation_is_consumed_only_by_a_job_of_its_user() -> None:
    """A job counts towards its own user only."""
    world = World(usage_with_limits(max_concurrent=1), a_job(user="eve"))
    world.execute(reserve())
    assert expect_type(world.execute(consume(job_id=JOB)), Refused).reason is Reason.NOT_THE_OWNER
    assert (used_slots(world), world.job().usage_id) == (1, b"")
    assert isinstance(world.execute(consume(job_id=b"no-such-job-0001")), Missing)


@pytest.mark.parametrize("state", [JobState.SUCCESS, JobState.LOST])
def test_a_job_that_has_ended_takes_no_slot(state: JobState) -> None:
    world = World(usage_with_limits(max_concurrent=1), a_job(state))
    world.execute(reserve())
    expect_type(world.execute(consume(job_id=JOB)), SlotSettled)
    assert (used_slots(world), world.job().usage_id) == (0, b"")


def test_a_submission_turns_its_reservation_into_its_slot() -> None:
    world = World(usage_with_limits(max_concurrent=1))
    world.execute(reserve())
    assert isinstance(world.execute(nth_submit(1)), Refused)
    expect_type(world.execute(nth_submit(2, reservation=SLOT)), Created)
    assert (used_slots(world), world.usage().live) == (1, 1)
    lost = expect_type(world.execute(nth_submit(3, reservation=SLOT)), Refused)
    assert (lost.reason, "consumed" in lost.message) == (Reason.SLOT_LOST, True)


def test_an_expired_reservation_is_taken_again_or_the_slot_is_lost() -> None:
    late = NOW + TTL + 1
    free = World(usage_with_limits(max_concurrent=1))
    free.execute(reserve())
    expect_type(free.execute(nth_submit(1, reservation=SLOT), late), Created)
    full = World(usage_with_limits(max_concurrent=1))
    full.execute(reserve())
    full.execute(nth_submit(1), late)
    lost = expect_type(full.execute(nth_submit(2, reservation=SLOT), late), Refused)
    assert lost.reason is Reason.SLOT_LOST
    assert (lost.details["allowed"], lost.details["used"]) == (1, 1)


# Reconciling


def test_correct_usage_has_no_drift() -> None:
    world = World(usage_with_limits(max_concurrent=3))
    world.execute_batch(nth_submit(1, cost=5), nth_submit(2))
    assert expect_type(world.execute(reconcile(world, 2, 5)), Reconciled) == Reconciled(0, True, NOW)
    assert world.usage().due_at == 0


def test_a_drift_is_reported_and_corrected() -> None:
    world = World(a_usage(live=3, cost_held=7, limits=encode_limits(Limits(max_concurrent=9))))
    assert expect_type(world.execute(reconcile(world, 1, 5)), Reconciled).drift == 3
    assert (world.usage().live, world.usage().cost_held) == (1, 5)


def test_what_was_counted_under_another_version_changes_nothing() -> None:
    world = World(usage_with_limits(max_concurrent=3))
    stale = reconcile(world, 0)
    world.execute(nth_submit(1))
    assert expect_type(world.execute(stale), Reconciled) == Reconciled(0, False, NOW)
    assert world.usage().live == 1


def test_usage_without_limits_is_reconciled_until_it_is_empty_and_deleted() -> None:
    world = World(tenant_policy(default=Limits(max_concurrent=3)))
    world.execute(nth_submit(1))
    world.execute(cancel(nth_submit(1).job_id))
    expect_type(world.execute(reconcile(world, 0), NOW + HOUR), Reconciled)
    assert world.usage().due_at == NOW + HOUR + DAY
    expect_type(world.execute(reconcile(world, 0), world.usage().due_at + 1), Reconciled)
    assert not world.has(Kind.USAGE, USAGE_ID)


def test_usage_stays_while_a_job_is_counted_in_it() -> None:
    """A job that is being prepared no longer counts once its lease has expired, but may still be committed."""
    world = World(a_usage(live=0))
    expect_type(world.execute(reconcile(world, 0, jobs_counted=1)), Reconciled)
    assert world.has(Kind.USAGE, USAGE_ID)


def test_removed_limits_leave_a_usage_that_maintenance_finds() -> None:
    world = World()
    set_limits = SetLimits(**USAGE_FIELDS, user=USER, limits=encode_limits(Limits(max_concurrent=1)))
    expect_type(world.execute(set_limits), UsageFound)
    expect_type(world.execute(SetLimits(**USAGE_FIELDS, user=USER, limits=b"")), UsageFound)
    assert world.usage().due_at
    expect_type(world.execute(reconcile(world, 0)), Reconciled)
    assert expect_type(world.execute(LookUpUsage(**USAGE_FIELDS)), UsageFound).usage is None


def test_a_job_is_backfilled_once_and_only_where_there_are_limits() -> None:
    backfill = Backfill(**USAGE_FIELDS, user=USER, job_id=JOB)
    assert not expect_type(World(a_job()).execute(backfill), Maintained).changed
    world = World(a_job(cost_held=5), usage_with_limits(max_concurrent=1))
    assert [expect_type(reply, Maintained).changed for reply in world.execute_batch(backfill, backfill)] == [
        True,
        False,
    ]
    job: Job = world.job()
    usage: Usage = world.usage()
    assert (job.usage_id, usage.live, usage.cost_held) == (USAGE_ID, 1, 5)


def test_a_preparing_job_is_backfilled_until_its_lease_ends() -> None:
    backfill = Backfill(**USAGE_FIELDS, user=USER, job_id=JOB, record_id=RECORD_ID)
    preparing = a_job(JobState.PREPARING, cost_held=5)
    held = a_record(IdempotencyStatus.PENDING, lease_until=NOW + TTL)
    for record in (None, a_record(), replace(held, job_ids=b"\x07" * 16), replace(held, lease_until=NOW - 1)):
        records = () if record is None else (record,)
        world = World(preparing, usage_with_limits(max_concurrent=1), *records)
        assert not expect_type(world.execute(backfill), Maintained).changed
    world = World(preparing, usage_with_limits(max_concurrent=1), held)
    assert [expect_type(reply, Maintained).changed for reply in world.execute_batch(backfill, backfill)] == [
        True,
        False,
    ]
    assert world.job().usage_id == USAGE_ID
    assert current_counts(world.usage(), NOW)[:2] == (0, 1)
    assert current_counts(world.usage(), NOW).money_held == 5
    assert current_counts(world.usage(), NOW + TTL + 1).used == 0


def test_settled_reservations_make_room_for_new_ones() -> None:
    old = {f"r{n}": Reservation(NOW, NOW + TTL, SlotState.RELEASED) for n in range(1000)}
    world = World(a_usage(reservations=old))
    expect_type(world.execute(reserve()), SlotHeld)
    assert len(world.usage().reservations) == 1000
    active = {f"r{n}": Reservation(NOW, NOW + TTL, SlotState.ACTIVE) for n in range(1000)}
    assert (
        expect_type(World(a_usage(reservations=active)).execute(reserve()), Refused).details["limit"] == "reservations"
    )


@pytest.mark.parametrize(("sum", "micro"), [(0.1 + 0.2, 300_000), (1.1 * 3, 3_300_000), (1e9 - 1e-6, 10**15 - 1)])
def test_a_sum_of_floats_is_taken_without_its_noise(sum: float, micro: int) -> None:
    assert limits.to_micros("cost", sum) == micro
