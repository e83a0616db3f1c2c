"""Rules of slots that must not depend on when upkeep came, and of tallies that are not needed."""

from typing import Any

from msgspec.structs import replace

from onejob.core.facts import Kind
from onejob.core.quota import current_counts
from onejob.core.replies import Created, KeyHeld, KeySettled, Reconciled, Refused, SlotHeld, SlotSettled
from onejob.core.reserve import Verdict
from onejob.core.slots import ConsumeSlot, Reconcile, ReserveSlot, SetLimits
from tests.core.test_quota import POLICY_ID, limited, nth
from tests.core.world import (
    BOB,
    DAY,
    JOB,
    JOB2,
    LEASE,
    NOW,
    RECORD_ID,
    SECOND,
    TALLY_ID,
    TENANT,
    USER,
    World,
    cancel,
    reserve,
    settle,
    submit,
    the,
)

SLOT, OTHER = "slot-one", "slot-two"


def take(name: str = SLOT, **changes: Any) -> ReserveSlot:
    return replace(ReserveSlot(tenant=TENANT, usage_id=TALLY_ID, user=USER, reservation=name, ttl_ms=SECOND), **changes)


def recount(world: World, at: int) -> Reconciled:
    tally = world.tally()
    command = Reconcile(
        tenant=TENANT,
        usage_id=TALLY_ID,
        expected_version=tally.version,
        live=tally.live,
        cost_held=tally.cost_held,
    )
    return the(world.do(command, at), Reconciled)


def test_an_expired_slot_is_answered_the_same_swept_or_not() -> None:
    late = NOW + SECOND + 1
    consume = ConsumeSlot(tenant=TENANT, usage_id=TALLY_ID, reservation=SLOT)
    for settled in (False, True):
        told = []
        for swept in (False, True):
            world = World(limited(max_concurrent=1))
            the(world.do(take()), SlotHeld)
            if settled:
                the(world.do(consume), SlotSettled)
            if swept:
                recount(world, late)
            again = [
                world.do(consume, late),
                world.do(nth(1, reservation=SLOT), late),
                world.do(take(), late),
            ]
            told.append([type(reply) for reply in again])
        assert told[0] == told[1] == [Refused, Created, Refused]


def test_a_slot_that_expired_can_be_taken_anew_under_its_name() -> None:
    world = World(limited(max_concurrent=1))
    the(world.do(take()), SlotHeld)
    late = NOW + SECOND + 1
    assert the(world.do(take(), late), SlotHeld).expires_at == late + SECOND
    assert current_counts(world.tally(), late).used == 1


def test_a_job_finished_by_another_submission_keeps_its_own_estimate() -> None:
    world = World(limited(max_concurrent=1))
    the(world.do(reserve(tally_id=TALLY_ID, policy_id=POLICY_ID, cost=5)), KeyHeld)
    late = NOW + LEASE + 1
    finishing = submit(JOB2, record_id=RECORD_ID, tally_id=TALLY_ID, policy_id=POLICY_ID, cost=90)
    job = the(world.do(finishing, late), Created).job
    assert (job.id, job.cost_held, world.tally().cost_held) == (JOB, 5, 5)
    world.do(cancel(JOB), late)
    assert (world.tally().live, world.tally().cost_held) == (0, 0)


def test_a_preparation_that_is_tried_again_makes_no_tally_where_nobody_counts() -> None:
    world = World()
    plain = reserve(tally_id=TALLY_ID, policy_id=POLICY_ID)
    held = the(world.do(plain), KeyHeld)
    world.do(settle(held, Verdict.FAIL))
    the(world.do(replace(plain, holder=BOB)), KeyHeld)
    the(world.do(submit(JOB2, tally_id=TALLY_ID, policy_id=POLICY_ID), NOW + LEASE + 1), Created)
    assert not world.has(Kind.USAGE, TALLY_ID)


def test_a_tally_goes_when_it_has_nothing_to_say_any_more() -> None:
    world = World()
    the(world.do(nth(1, reservation=SLOT)), Created)  # a reservation makes somebody count
    world.do(cancel(nth(1).job_id))
    assert recount(world, NOW + SECOND).drift == 0
    due_at = world.tally().due_at
    assert due_at, "upkeep comes back when the day is over"
    recount(world, max(due_at, NOW + DAY + LEASE) + DAY)
    assert not world.has(Kind.USAGE, TALLY_ID)


def test_a_tally_with_limits_stays() -> None:
    world = World(limited(max_concurrent=1))
    recount(world, NOW + DAY)
    assert world.tally().due_at == 0
    world.do(SetLimits(tenant=TENANT, usage_id=TALLY_ID, user=USER, limits=b""), NOW + DAY)
    assert world.tally().due_at, "without limits it may go"


def test_a_submission_that_is_tried_again_uses_the_slot_it_brings() -> None:
    world = World(limited(max_concurrent=1))
    plain = reserve(tally_id=TALLY_ID, policy_id=POLICY_ID)
    the(world.do(take()), SlotHeld)
    held = the(world.do(replace(plain, reservation=SLOT)), KeyHeld)
    the(world.do(settle(held, Verdict.FAIL)), KeySettled)
    # The first slot was used up by this very job, and given back: there is room for it again.
    again = the(world.do(replace(plain, reservation=SLOT, holder=BOB)), KeyHeld)
    the(world.do(settle(again, Verdict.FAIL)), KeySettled)
    the(world.do(take(OTHER)), SlotHeld)
    finishing = submit(JOB2, tally_id=TALLY_ID, policy_id=POLICY_ID)
    assert isinstance(world.do(finishing), Refused)
    assert the(world.do(replace(finishing, reservation=OTHER)), Created).job.id == JOB
    assert current_counts(world.tally(), NOW).used == 1
