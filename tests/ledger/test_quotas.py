"""Quotas in Python: the flow of the seed, keys of external jobs, and reconciling by maintenance."""

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

import onejob
from onejob.clock import FakeClock
from onejob.conformance.commands import write_facts
from onejob.core.credentials import Role
from onejob.core.facts import next_version
from onejob.core.identity import Actor, usage_id
from onejob.core.quota import RECONCILE_DELAY_MS
from onejob.core.replies import Reason, UsageFound
from onejob.core.slots import LookUpUsage
from onejob.errors import SubmissionRefused
from onejob.ledger.base import runtime_of
from tests.support.ledger_settings import set_settings

ROLES = {"ann": Role.SUBMITTER, "bob": Role.SUBMITTER, "op": Role.OPERATOR, "root": Role.ADMIN}
INVALID_LIMITS: list[Any] = [-1, 1.5, "5", True, 10**10, [], {}]


async def test_the_seeds_flow_runs_as_printed(queue: onejob.Ledger) -> None:
    reservation_id = await queue.reserve_job_slot(user_id=42, max_concurrent=1, ttl_seconds=300)
    assert reservation_id is not None
    assert await queue.reserve_job_slot(user_id="42", max_concurrent=1) is None
    assert await queue.consume_reservation(reservation_id) is True
    assert (await queue.usage(42)).used == 0
    second = await queue.reserve_job_slot(42, max_concurrent=1)
    assert second is not None
    assert await queue.release_reservation(second) is True
    with pytest.raises(SubmissionRefused, match="slot lost"):
        await queue.renew_reservation(second)
    for absurd in (True, None, 1.5, "", "x" * 101):
        with pytest.raises(onejob.Invalid):
            await queue.reserve_job_slot(absurd or "")  # type: ignore[arg-type]  # that is the point


async def test_settling_a_slot_says_whether_there_was_one(queue: onejob.Ledger, clock: FakeClock) -> None:
    used, released, expired = [await queue.reserve_job_slot(42) or "" for _ in range(3)]
    job = (await queue.acting_as(tenant="default", user="42", actor=onejob.Actor.client("c")).submit("t")).job_id
    assert [await queue.consume_reservation(used) for _ in range(2)] == [True, True]
    assert [await queue.consume_reservation(used, job), await queue.release_reservation(used)] == [False, False]
    assert [await queue.release_reservation(released) for _ in range(2)] == [True, True]
    assert await queue.consume_reservation(released) is False
    clock.advance(301)
    assert [await queue.consume_reservation(expired), await queue.release_reservation(expired)] == [False, False]
    slot = await queue.reserve_job_slot(42)
    with pytest.raises(onejob.NotFound):
        await queue.consume_reservation(slot or "", "00000000-0000-0000-0000-000000000000")


@pytest.mark.parametrize("malformed", ["", "unknown", "x" * 47, "ä" * 48])
async def test_a_malformed_reservation_is_one_that_is_not_there(queue: onejob.Ledger, malformed: str) -> None:
    assert await queue.consume_reservation(malformed) is False
    assert await queue.release_reservation(malformed) is False


async def test_a_used_reservation_says_nothing_about_the_quota(queue: onejob.Ledger) -> None:
    slot = await queue.reserve_job_slot(42) or ""
    await queue.release_reservation(slot)
    for again in (queue.consume_reservation_or_raise(slot), queue.renew_reservation(slot)):
        with pytest.raises(SubmissionRefused, match="was released") as caught:
            await again
        assert caught.value.reason is Reason.ALREADY_SETTLED


NOT_LIMITS: list[Any] = [None, 5, {"max_concurrent": 5}, onejob.TenantLimits(), "5"]


@pytest.mark.parametrize("limits", NOT_LIMITS)
async def test_a_value_that_is_not_limits_is_refused_and_changes_nothing(queue: onejob.Ledger, limits: Any) -> None:
    with pytest.raises(onejob.Invalid, match=r"Limits\(\) clears them"):
        await queue.set_quota("local", limits)
    others: list[Any] = [limits, onejob.Limits(max_concurrent=0)]
    for other in others:
        if not isinstance(other, onejob.TenantLimits):
            with pytest.raises(onejob.Invalid, match=r"TenantLimits\(\) clears them"):
                await queue.admin.set_tenant_quota(other)
    assert (await queue.quota("local")).limits == onejob.Limits()
    assert (await queue.submit("t")).created


async def test_limits_and_reservations_need_a_user(queue: onejob.Ledger) -> None:
    no_user: Any = None
    for call in (
        queue.quota(no_user),
        queue.set_quota(no_user, onejob.Limits(max_concurrent=0)),
        queue.reserve_job_slot(no_user, max_concurrent=1),
        queue.reserve_job_slot_or_raise(no_user),
    ):
        with pytest.raises(onejob.Invalid, match="user"):
            await call
    assert not await queue.reservations()
    assert (await queue.submit("t")).created


async def test_a_stored_key_replays_the_external_job(queue: onejob.Ledger, clock: FakeClock) -> None:
    for _ in range(2):
        await queue.store_idempotency_key(key="ci-build-abc123", job_id="job-xyz789", user_id=42, ttl_hours=24)
    receipt = await queue.submit("any", {"n": 1}, idempotency_key="ci-build-abc123", scope="queue")
    assert (receipt.outcome, receipt.job_id, receipt.job) == (onejob.Outcome.REPLAYED, "job-xyz789", None)
    with pytest.raises(SubmissionRefused) as refused:
        await queue.store_idempotency_key("ci-build-abc123", "another-job")
    assert refused.value.reason == "IDEMPOTENCY_KEY_REUSED"
    clock.advance(24 * 3600 + 0.001)
    assert (await queue.store_idempotency_key("ci-build-abc123", "another-job")).job_id == "another-job"
    for absurd in ({"ttl_hours": 0}, {"ttl_hours": 9000}, {"job_id": ""}, {"key": ""}, {"scope": ""}):
        with pytest.raises(onejob.Invalid):
            await queue.store_idempotency_key(**{"key": "k", "job_id": "j"} | absurd)


async def test_a_refusal_says_how_long_to_wait(queue: onejob.Ledger) -> None:
    await queue.set_quota("local", onejob.Limits(jobs_per_hour=1))
    await queue.submit("t")
    with pytest.raises(SubmissionRefused) as refused:
        await queue.submit("t")
    assert refused.value.retryable
    assert refused.value.retry_after is not None
    assert 3600 <= refused.value.retry_after <= 3660


async def test_a_preparing_job_holds_a_slot_that_ends_with_its_lease(queue: onejob.Ledger, clock: FakeClock) -> None:
    await queue.set_quota("local", onejob.Limits(max_concurrent=1))
    held = await queue.check_or_reserve("t", idempotency_key="k", lease=timedelta(seconds=60))
    assert isinstance(held, onejob.HeldKey)
    assert [warning.limit for warning in held.warnings] == ["maxConcurrent"]
    (slot,) = await queue.reservations()
    assert (slot.job_id, slot.expires_at) == (held.job_id, held.lease_until)
    with pytest.raises(SubmissionRefused, match="Quota exceeded"):
        await queue.submit("t")
    await queue.commit(held)
    assert ((await queue.usage()).live, await queue.reservations()) == (1, [])


@pytest.mark.parametrize("key_owner", ["tenant", "user"])
async def test_a_job_that_is_being_prepared_counts_when_its_user_gets_limits(
    queue: onejob.Ledger, clock: FakeClock, key_owner: str
) -> None:
    await set_settings(queue, key_owner=key_owner)
    ann = queue.acting_as(tenant="default", user="ann", actor=Actor.user("ann"))
    held = await ann.check_or_reserve("t", idempotency_key="k", lease=timedelta(seconds=60))
    assert isinstance(held, onejob.HeldKey)
    await queue.set_quota("ann", onejob.Limits(max_concurrent=1))
    assert (await queue.usage("ann")).reserved == 1
    with pytest.raises(SubmissionRefused, match="Quota exceeded"):
        await ann.submit("t")
    clock.advance(30)
    held = await ann.renew(held)
    clock.advance(50)
    with pytest.raises(SubmissionRefused, match="Quota exceeded"):
        await ann.submit("t")
    await ann.commit(held)
    assert ((await queue.usage("ann")).live, await queue.reservations("ann")) == (1, [])
    await ann.cancel(held.job_id)
    assert (await queue.usage("ann")).live == 0


async def test_a_take_over_carries_warnings_of_a_limit_that_is_near(queue: onejob.Ledger, clock: FakeClock) -> None:
    await queue.set_quota("local", onejob.Limits(max_concurrent=1, jobs_per_hour=10))
    abandoned = await queue.check_or_reserve("t", idempotency_key="k", lease=timedelta(seconds=60))
    assert isinstance(abandoned, onejob.HeldKey)
    clock.advance(61)
    held = await queue.check_or_reserve("t", idempotency_key="k", lease=timedelta(seconds=60))
    assert isinstance(held, onejob.HeldKey)
    assert [(one.limit, one.message) for one in held.warnings] == [
        ("maxConcurrent", "1 of 1 concurrent jobs are in use")
    ]
    clock.advance(61)
    finished = await queue.submit("t", idempotency_key="k")
    assert (finished.job_id, finished.taken_over) == (abandoned.job_id, True)
    assert [one.limit for one in finished.warnings] == ["maxConcurrent"]


async def test_maintenance_reconciles_usage_and_finds_no_drift(queue: onejob.Ledger, clock: FakeClock) -> None:
    await queue.set_quota("local", onejob.Limits(max_concurrent=9))
    jobs = [(await queue.submit("t", n, estimated_cost="0.5")).job_id for n in range(5)]
    await queue.cancel(jobs[0])
    await queue.reserve_job_slot("local")
    other = queue.acting_as(tenant="default", user="gone", actor=Actor.client("local"))
    await other.reserve_job_slot("gone", ttl_seconds=1)
    clock.advance(RECONCILE_DELAY_MS / 1000 + 1)
    await queue.admin.sweep()
    swept = queue.admin.runtime_stats().sweep_totals
    assert (swept.usages, swept.drift) == (2, 0)
    assert ((await queue.usage()).live, str((await queue.usage()).money_held)) == (4, "2")
    await queue.admin.sweep()
    assert queue.admin.runtime_stats().sweep_totals.usages == 2  # nothing is due any more


async def test_wrong_usage_is_corrected_and_reported(queue: onejob.Ledger, clock: FakeClock) -> None:
    await queue.set_quota("local", onejob.Limits(max_concurrent=9))
    await queue.submit("t")
    wrong = LookUpUsage(tenant="default", usage_id=usage_id("default", "local"))
    (found,) = await runtime_of(queue).gate.execute([wrong])
    assert isinstance(found, UsageFound)
    assert found.usage is not None
    await runtime_of(queue).gate.execute([write_facts(next_version(found.usage, found.at, live=4))])
    clock.advance(RECONCILE_DELAY_MS / 1000 + 1)
    await queue.admin.sweep()
    assert (queue.admin.runtime_stats().sweep_totals.drift, (await queue.usage()).live) == (3, 1)


async def test_a_limit_counts_a_submission_that_commits_while_it_is_set(postgres_url: str) -> None:
    """An uncommitted job cannot be seen, so setting a limit waits for its transaction and counts it then."""
    # Only sessions of onejob are waited for: no other program submits.
    writer = await asyncpg.connect(postgres_url, server_settings={"application_name": "onejob"})
    async with onejob.open(postgres_url, user="ann", sweep=False) as queue:
        await queue.submit("charge")
        for setting in (
            lambda: queue.set_quota("ann", onejob.Limits(max_concurrent=1)),
            lambda: queue.admin.set_tenant_quota(onejob.TenantLimits(default=onejob.Limits(max_concurrent=1))),
        ):
            await writer.execute("BEGIN; LOCK TABLE job IN ROW EXCLUSIVE MODE")
            task = asyncio.ensure_future(setting())
            await asyncio.sleep(0.1)
            assert not task.done()
            await writer.execute("COMMIT")
            await asyncio.wait_for(task, 60)
        assert (await queue.usage("ann")).used == 1
    await writer.close()
