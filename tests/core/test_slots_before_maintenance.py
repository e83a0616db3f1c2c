"""Rules of slots that must not depend on when maintenance ran, and of usages that are not needed."""

from typing import Any

from msgspec.structs import replace

from onejob.core.facts import Kind
from onejob.core.quota import current_counts
from onejob.core.replies import Created, KeyHeld, KeySettled, Reconciled, Refused, SlotHeld, SlotSettled
from onejob.core.reserve import Verdict
from onejob.core.slots import ConsumeSlot, Reconcile, ReserveSlot, SetLimits
from tests.core.test_quota import POLICY_ID, nth_submit, usage_with_limits
from tests.core.world import (
    BOB,
    DAY,
    JOB,
    JOB2,
    LEASE,
    NOW,
    RECORD_ID,
    SECOND,
    TENANT,
    USAGE_ID,
    USER,
    World,
    cancel,
    expect_type,
    reserve,
    settle,
    submit,
)

SLOT, OTHER = "slot-one", "slot-two"


def reserve_slot(name: str = SLOT, **changes: Any) -> ReserveSlot:
    return replace(ReserveSlot(tenant=TENANT, usage_id=USAGE_ID, user=USER, reservation=name, ttl_ms=SECOND), **changes)


def reconcile(world: World, at: int) -> Reconciled:
    usage = world.usage()
    command = Reconcile(
        tenant=TENANT,
        usage_id=USAGE_ID,
        expected_version=usage.version,
        live=usage.live,
        cost_held=usage.cost_held,
    )
    return expect_type(world.execute(command, at), Reconciled)


def test_an_expired_slot_is_answered_the_same_swept_or_not() -> None:
    late = NOW + SECOND + 1
    consume = ConsumeSlot(tenant=TENANT, usage_id=USAGE_ID, reservation=SLOT)
    for settled in (False, True):
        replies = []
        for maintained in (False, True):
            world = World(usage_with_limits(max_concurrent=1))
            expect_type(world.execute(reserve_slot()), SlotHeld)
            if settled:
                expect_type(world.execute(consume), SlotSettled)
            if maintained:
                reconcile(world, late)
            late_replies = [
                world.execute(consume, late),
                world.execute(nth_submit(1, reservation=SLOT), late),
                world.execute(reserve_slot(), late),
            ]
            replies.append([type(reply) for reply in late_replies])
        assert replies[0] == replies[1] == [Refused, Created, Refused]


def test_an_expired_slot_can_be_reserved_again_under_its_name() -> None:
    world = World(usage_with_limits(max_concurrent=1))
    expect_type(world.execute(reserve_slot()), SlotHeld)
    late = NOW + SECOND + 1
    assert expect_type(world.execute(reserve_slot(), late), SlotHeld).expires_at == late + SECOND
    assert current_counts(world.usage(), late).used == 1


def test_a_job_finished_by_another_submission_keeps_its_own_estimate() -> None:
    world = World(usage_with_limits(max_concurrent=1))
    expect_type(world.execute(reserve(usage_id=USAGE_ID, policy_id=POLICY_ID, cost=5)), KeyHeld)
    late = NOW + LEASE + 1
    finishing = submit(JOB2, record_id=RECORD_ID, usage_id=USAGE_ID, policy_id=POLICY_ID, cost=90)
    job = expect_type(world.execute(finishing, late), Created).job
    assert (job.id, job.cost_held, world.usage().cost_held) == (JOB, 5, 5)
    world.execute(cancel(JOB), late)
    assert (world.usage().live, world.usage().cost_held) == (0, 0)


def test_a_retried_preparation_makes_no_usage_where_there_are_no_limits() -> None:
    world = World()
    plain = reserve(usage_id=USAGE_ID, policy_id=POLICY_ID)
    held = expect_type(world.execute(plain), KeyHeld)
    world.execute(settle(held, Verdict.FAIL))
    expect_type(world.execute(replace(plain, holder=BOB)), KeyHeld)
    expect_type(world.execute(submit(JOB2, usage_id=USAGE_ID, policy_id=POLICY_ID), NOW + LEASE + 1), Created)
    assert not world.has(Kind.USAGE, USAGE_ID)


def test_empty_usage_is_deleted() -> None:
    world = World()
    expect_type(world.execute(nth_submit(1, reservation=SLOT)), Created)  # a reservation creates a usage
    world.execute(cancel(nth_submit(1).job_id))
    assert reconcile(world, NOW + SECOND).drift == 0
    due_at = world.usage().due_at
    assert due_at, "maintenance visits it again when the day is over"
    reconcile(world, max(due_at, NOW + DAY + LEASE) + DAY)
    assert not world.has(Kind.USAGE, USAGE_ID)


def test_usage_with_limits_stays() -> None:
    world = World(usage_with_limits(max_concurrent=1))
    reconcile(world, NOW + DAY)
    assert world.usage().due_at == 0
    world.execute(SetLimits(tenant=TENANT, usage_id=USAGE_ID, user=USER, limits=b""), NOW + DAY)
    assert world.usage().due_at, "without limits it may be deleted"


def test_a_submission_that_is_tried_again_uses_the_slot_it_brings() -> None:
    world = World(usage_with_limits(max_concurrent=1))
    plain = reserve(usage_id=USAGE_ID, policy_id=POLICY_ID)
    expect_type(world.execute(reserve_slot()), SlotHeld)
    held = expect_type(world.execute(replace(plain, reservation=SLOT)), KeyHeld)
    expect_type(world.execute(settle(held, Verdict.FAIL)), KeySettled)
    # The first slot was consumed by this very job, and given back: there is room for it again.
    again = expect_type(world.execute(replace(plain, reservation=SLOT, holder=BOB)), KeyHeld)
    expect_type(world.execute(settle(again, Verdict.FAIL)), KeySettled)
    expect_type(world.execute(reserve_slot(OTHER)), SlotHeld)
    finishing = submit(JOB2, usage_id=USAGE_ID, policy_id=POLICY_ID)
    assert isinstance(world.execute(finishing), Refused)
    assert expect_type(world.execute(replace(finishing, reservation=OTHER)), Created).job.id == JOB
    assert current_counts(world.usage(), NOW).used == 1
