"""Rules of quotas: charged in the step that creates the job, and given back exactly once."""

from typing import Any

import pytest

from onejob.core.errors import Invalid
from onejob.core.facts import Job, Kind, NewerFormat, Policy, Usage
from onejob.core.identity import policy_id, record_id
from onejob.core.limits import (
    QUOTA_POLICY_NAME,
    CostAction,
    CostLimit,
    Limits,
    Period,
    TenantLimits,
    effective_limits,
    encode_limits,
    to_micros,
)
from onejob.core.quota import current_counts
from onejob.core.replies import Created, KeyHeld, KeySettled, LimitName, Reason, Refused, Replayed
from onejob.core.reserve import Verdict
from onejob.core.states import JobState
from onejob.core.submit import Submit
from tests.core.world import (
    ANN,
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
    USAGE_ID,
    USER,
    World,
    cancel,
    expect_type,
    renew,
    reserve,
    settle,
    submit,
)

POLICY_ID = policy_id(TENANT, QUOTA_POLICY_NAME)


def usage_with_limits(**limits: Any) -> Usage:
    return Usage(USAGE_ID, TENANT, USER, 0, NOW - DAY, limits=encode_limits(Limits(**limits)))


def tenant_policy(default: Limits = Limits(), ceiling: Limits = Limits()) -> Policy:  # noqa: B008 - frozen
    return Policy(POLICY_ID, TENANT, QUOTA_POLICY_NAME, encode_limits(TenantLimits(default, ceiling)), NOW - DAY)


def nth_submit(n: int, **changes: Any) -> Submit:
    key = f"key-{n}"
    named = {"key": key, "record_id": record_id(TENANT, "charge", key), "usage_id": USAGE_ID}
    return submit(f"nth-{n:012}".encode(), **named | {"policy_id": POLICY_ID} | changes)


def used_slots(world: World, at: int = NOW) -> int:
    return current_counts(world.usage(), at).used


# Slots


def test_the_last_slot_goes_to_one_of_many() -> None:
    world = World(usage_with_limits(max_concurrent=5))
    replies = world.execute_batch(*(nth_submit(n) for n in range(50)))
    assert [type(reply) for reply in replies] == [Created] * 5 + [Refused] * 45
    refused = expect_type(replies[5], Refused)
    assert refused.reason is Reason.QUOTA_EXCEEDED
    assert "Quota exceeded: Maximum 5 concurrent jobs allowed" in refused.message
    assert refused.details == {
        "limit": LimitName.MAX_CONCURRENT, "allowed": 5, "used": 5, "live": 5, "reserved": 0,
    }  # fmt: skip
    assert (used_slots(world), len(world.jobs())) == (5, 5)


def test_a_refusal_is_not_remembered() -> None:
    world = World(usage_with_limits(max_concurrent=1))
    world.execute_batch(nth_submit(1), nth_submit(2))
    assert not world.has(Kind.RECORD, nth_submit(2).record_id)
    world.execute(cancel(nth_submit(1).job_id))
    assert expect_type(world.execute(nth_submit(2)), Created).job.usage_id == USAGE_ID


def test_a_hit_touches_no_quota_and_comes_through_when_it_is_full() -> None:
    world = World(usage_with_limits(max_concurrent=1, jobs_per_hour=1))
    expect_type(world.execute(nth_submit(1)), Created)
    before = world.usage()
    again = nth_submit(1)
    assert expect_type(
        world.execute(submit(JOB2, record_id=again.record_id, key=again.key, usage_id=USAGE_ID)), Replayed
    )
    assert world.usage() == before


def test_an_end_frees_the_slot_once() -> None:
    world = World(usage_with_limits(max_concurrent=1))
    world.execute(nth_submit(1, cost=7))
    assert (used_slots(world), world.usage().cost_held) == (1, 7)
    world.execute_batch(cancel(nth_submit(1).job_id), cancel(nth_submit(1).job_id))
    world.execute(cancel(nth_submit(1).job_id))
    assert (used_slots(world), world.usage().cost_held) == (0, 0)


def test_a_user_without_limits_has_no_usage() -> None:
    world = World()
    assert expect_type(world.execute(nth_submit(1)), Created).job.usage_id == b""
    assert not world.has(Kind.USAGE, USAGE_ID)


def test_a_limit_of_nothing_admits_nothing() -> None:
    for limits in (
        {"max_concurrent": 0},
        {"jobs_per_hour": 0},
        {"jobs_per_day": 0},
        {"cost_limit": CostLimit(0, Period.DAY)},
    ):
        refused = expect_type(World(usage_with_limits(**limits)).execute(nth_submit(1)), Refused)
        assert refused.reason in (Reason.QUOTA_EXCEEDED, Reason.COST_LIMIT_EXCEEDED)


def test_a_tenants_default_holds_for_users_without_limits_and_its_ceiling_caps_all() -> None:
    world = World(tenant_policy(default=Limits(max_concurrent=1)))
    assert [type(reply) for reply in world.execute_batch(nth_submit(1), nth_submit(2))] == [Created, Refused]
    capped = World(tenant_policy(ceiling=Limits(max_concurrent=2)), usage_with_limits(max_concurrent=9))
    assert [type(reply) for reply in capped.execute_batch(nth_submit(1), nth_submit(2), nth_submit(3))] == [
        Created,
        Created,
        Refused,
    ]


def test_of_two_cost_limits_each_holds_for_its_own_period() -> None:
    day, month = CostLimit(10, Period.DAY), CostLimit(100, Period.MONTH, CostAction.WARN)
    user = encode_limits(Limits(cost_limit=day))
    assert effective_limits(user, encode_limits(TenantLimits(ceiling=Limits(cost_limit=month)))).cost_limits == (
        day,
        month,
    )
    assert effective_limits(user, encode_limits(TenantLimits(default=Limits(cost_limit=month)))).cost_limits == (day,)


@pytest.mark.parametrize("limit", [-1, 1.5, True, "5", 10**10])
def test_a_limit_is_a_whole_number(limit: Any) -> None:
    for name in ("max_concurrent", "jobs_per_hour", "jobs_per_day"):
        with pytest.raises(Invalid, match=name):
            Limits(**{name: limit})


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Limits, {"cost_limit": 250}),
        (Limits, {"cost_limit": {"amount": 1, "period": "day"}}),
        (CostLimit, {"amount": 250, "period": "year"}),
        (CostLimit, {"amount": 250, "period": "month"}),
        (CostLimit, {"amount": 250, "period": Period.DAY, "action": "stop"}),
        (CostLimit, {"amount": 250, "period": None}),
        (TenantLimits, {"default": None}),
        (TenantLimits, {"ceiling": {"max_concurrent": 5}}),
    ],
)
def test_limits_are_made_of_what_can_be_read_again(kind: Any, fields: Any) -> None:
    with pytest.raises(Invalid):
        kind(**fields)


@pytest.mark.parametrize("body", [b"null", b"5", b"{", b"\xff", b'{"max_concurrent":"5"}', b'{"per_week":5}'])
def test_stored_limits_that_cannot_be_read_are_never_taken_for_none(body: bytes) -> None:
    for user, tenant in ((body, b""), (b"", body)):
        with pytest.raises(NewerFormat, match="set them again"):
            effective_limits(user, tenant)


# Rates


def test_an_hourly_limit_says_when_it_frees() -> None:
    world = World(usage_with_limits(jobs_per_hour=2))
    for n in range(2):
        expect_type(world.execute(nth_submit(n), NOW + n * 60 * SECOND), Created)
    refused = expect_type(world.execute(nth_submit(2), NOW + 120 * SECOND), Refused)
    assert refused.reason is Reason.RATE_LIMITED
    wait = refused.details["retry_after_ms"]
    assert isinstance(wait, int)
    later = NOW + 120 * SECOND + wait
    assert isinstance(world.execute(nth_submit(2), later - 1), Refused)
    expect_type(world.execute(nth_submit(2), later), Created)


def test_a_daily_limit_slides_by_the_hour() -> None:
    world = World(usage_with_limits(jobs_per_day=1))
    expect_type(world.execute(nth_submit(0)), Created)
    wait = expect_type(world.execute(nth_submit(1), NOW + HOUR), Refused).details["retry_after_ms"]
    assert isinstance(wait, int)
    assert 22 * HOUR <= wait <= 24 * HOUR
    expect_type(world.execute(nth_submit(1), NOW + HOUR + wait), Created)


# Money


def test_money_is_held_at_submission_and_given_back_when_nothing_ran() -> None:
    world = World(usage_with_limits(cost_limit=CostLimit(100, Period.DAY)))
    expect_type(world.execute(nth_submit(1, cost=60)), Created)
    refused = expect_type(world.execute(nth_submit(2, cost=50)), Refused)
    assert refused.reason is Reason.COST_LIMIT_EXCEEDED
    assert refused.message.startswith("Cost limit exceeded")
    world.execute(cancel(nth_submit(1).job_id))
    expect_type(world.execute(nth_submit(2, cost=50)), Created)
    assert current_counts(world.usage(), NOW).money_held == 50


def test_a_cost_limit_that_warns_refuses_nothing() -> None:
    world = World(usage_with_limits(cost_limit=CostLimit(100, Period.DAY, CostAction.WARN)))
    (warning,) = expect_type(world.execute(nth_submit(1, cost=500)), Created).warnings
    assert warning.limit is LimitName.COST
    assert "Cost limit" in warning.message


def test_warnings_begin_at_four_fifths() -> None:
    world = World(usage_with_limits(max_concurrent=5))
    counts = [
        len(expect_type(reply, Created).warnings) for reply in world.execute_batch(*(nth_submit(n) for n in range(5)))
    ]
    assert counts == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("amount", "micro"),
    [(0, 0), (1, 1_000_000), (0.1, 100_000), ("2.50", 2_500_000), (0.000001, 1)],
)
def test_money_is_read_by_its_text(amount: Any, micro: int) -> None:
    assert to_micros("cost", amount) == micro


@pytest.mark.parametrize("amount", [-1, 0.0000001, -1e-9, -5e-324, "x", "NaN", float("inf"), True, None, 10**10])
def test_money_that_is_no_amount_is_refused(amount: Any) -> None:
    with pytest.raises(Invalid):
        to_micros("cost", amount)


@pytest.mark.parametrize(
    "text", ["1e999999", "-1e999999", "1e-9999999", "1e9999999999999999999", "1." + "0" * 40 + "1"]
)
def test_money_of_any_exponent_and_length_is_compared_exactly(text: str) -> None:
    for amount in (text, text.replace("e9999999999999999999", "e99999")):
        with pytest.raises(Invalid):
            to_micros("cost", amount)


# Preparing


def prepare(holder: bytes = ANN, **changes: Any) -> Any:
    return reserve(holder=holder, usage_id=USAGE_ID, policy_id=POLICY_ID, cost=5, **changes)


def test_a_preparing_job_holds_its_slot_until_its_lease_ends() -> None:
    world = World(usage_with_limits(max_concurrent=1))
    expect_type(world.execute(prepare()), KeyHeld)
    assert (used_slots(world), used_slots(world, NOW + LEASE), used_slots(world, NOW + LEASE + 1)) == (1, 1, 0)
    assert isinstance(world.execute(nth_submit(1)), Refused)
    assert world.job().usage_id == USAGE_ID


def test_a_renewed_lease_keeps_the_slot_and_a_commit_makes_it_the_jobs() -> None:
    world = World(usage_with_limits(max_concurrent=1))
    held = expect_type(world.execute(prepare()), KeyHeld)
    expect_type(world.execute(renew(held), NOW + LEASE), KeyHeld)
    assert isinstance(world.execute(nth_submit(1), NOW + 2 * LEASE), Refused)
    done = expect_type(world.execute(settle(held, Verdict.COMMIT), NOW + 2 * LEASE), KeySettled)
    assert done.job is not None
    usage = world.usage()
    assert (done.job.usage_id, usage.live, usage.cost_held, usage.reservations) == (USAGE_ID, 1, 5, {})


def test_a_lost_slot_is_reported_before_the_job_can_run() -> None:
    world = World(usage_with_limits(max_concurrent=1))
    held = expect_type(world.execute(prepare()), KeyHeld)
    late = NOW + LEASE + 1
    expect_type(world.execute(nth_submit(1), late), Created)
    refused = expect_type(world.execute(settle(held, Verdict.COMMIT), late), Refused)
    assert (refused.reason, world.job().state) == (Reason.SLOT_LOST, JobState.PREPARING)
    assert expect_type(world.execute(renew(held), late), Refused).reason is Reason.SLOT_LOST
    world.execute(cancel(nth_submit(1).job_id), late)
    expect_type(world.execute(settle(held, Verdict.COMMIT), late), KeySettled)
    assert used_slots(world, late) == 1


def test_a_failed_preparation_frees_the_slot_and_its_next_try_takes_one() -> None:
    world = World(usage_with_limits(max_concurrent=1))
    held = expect_type(world.execute(prepare()), KeyHeld)
    expect_type(world.execute(settle(held, Verdict.FAIL)), KeySettled)
    assert used_slots(world) == 0
    expect_type(world.execute(nth_submit(1)), Created)
    assert expect_type(world.execute(prepare(BOB)), Refused).reason is Reason.QUOTA_EXCEEDED
    world.execute(cancel(nth_submit(1).job_id))
    again = expect_type(world.execute(prepare(BOB)), KeyHeld)
    assert (again.job_id, again.token, used_slots(world)) == (JOB, 2, 1)
    assert world.usage().minutes[-1] == 2  # counted once, however often it was tried


@pytest.mark.parametrize("ending", ["cancel", "reject"])
def test_an_end_while_preparing_frees_the_slot(ending: str) -> None:
    world = World(usage_with_limits(max_concurrent=1))
    held = expect_type(world.execute(prepare()), KeyHeld)
    world.execute(cancel() if ending == "cancel" else settle(held, Verdict.REJECT))
    assert (used_slots(world), world.usage().cost_held, world.job().usage_id) == (0, 0, b"")


def test_a_submission_that_finishes_what_another_left_takes_the_slot() -> None:
    world = World(usage_with_limits(max_concurrent=1))
    expect_type(world.execute(prepare()), KeyHeld)
    late = NOW + LEASE + 1
    finished = submit(JOB2, record_id=RECORD_ID, usage_id=USAGE_ID, policy_id=POLICY_ID)
    created = expect_type(world.execute(finished, late), Created)
    job: Job = created.job
    assert (job.id, job.usage_id, world.usage().live, used_slots(world, late)) == (JOB, USAGE_ID, 1, 1)
