"""Quotas are checked and charged in the step that creates a job: its footprint has the usage and the policy."""

from typing import Any

from msgspec.structs import replace

from onejob.core.credentials import SetPolicy
from onejob.core.facts import Kind
from onejob.core.identity import encode_reservation_id
from onejob.core.limits import QUOTA_POLICY_NAME, Limits, TenantLimits, encode_limits
from onejob.core.replies import (
    Cancelled,
    Created,
    KeyHeld,
    KeySettled,
    Maintained,
    PolicyFound,
    Reason,
    Reconciled,
    Refused,
    Replayed,
    SlotHeld,
    SlotSettled,
    UsageFound,
)
from onejob.core.reserve import Verdict
from onejob.core.slots import (
    Backfill,
    ConsumeSlot,
    LookUpUsage,
    Reconcile,
    ReleaseSlot,
    RenewSlot,
    ReserveSlot,
    slots_and_cost_held,
)
from onejob.core.work import Cancel
from onejob.ids import new_job_id

from .samples import (
    ACTOR,
    LEASE_MS,
    OTHER,
    TENANT,
    USER,
    fence,
    quota_ids,
    reserve,
    set_limit,
    settle,
    submit,
    submit_counted,
)
from .world import World, count_replies, dump_store, expect, list_facts, race

RACERS = 50
SLOT_MS = 1000


class QuotaRules:
    async def test_a_race_for_the_last_slots_fills_exactly_these(self, world: World) -> None:
        other = await world.open_another()
        await expect(world.engine, set_limit(5), UsageFound)
        replies = await race([world.engine, other], [submit_counted(f"k{n}") for n in range(RACERS)])
        assert count_replies(replies, Created) == 5
        refused = [reply for reply in replies if isinstance(reply, Refused)]
        assert len(refused) == RACERS - 5
        assert {reply.reason for reply in refused} == {Reason.QUOTA_EXCEEDED}
        await self.assert_usage(world, live=5)
        assert len(await list_facts(other, Kind.RECORD)) == 5

    async def test_a_race_in_one_batch_fills_exactly_the_last_slot(self, world: World) -> None:
        await expect(world.engine, set_limit(1), UsageFound)
        replies = await world.engine.execute([submit_counted(f"k{n}") for n in range(RACERS)])
        assert (count_replies(replies, Created), count_replies(replies, Refused)) == (1, RACERS - 1)
        await self.assert_usage(world, live=1)

    async def test_a_tenants_policy_applies_to_the_next_decision(self, world: World) -> None:
        other = await world.open_another()
        for limit, expected in ((1, Created), (1, Refused), (2, Created), (0, Refused)):
            body = encode_limits(TenantLimits(default=Limits(max_concurrent=limit)))
            policy = SetPolicy(tenant=TENANT, policy_id=quota_ids()["policy_id"], name=QUOTA_POLICY_NAME, body=body)
            await expect(world.engine, policy, PolicyFound)
            await expect(other, submit_counted(""), expected)
        await self.assert_usage(world, live=2)

    async def test_a_replay_succeeds_when_the_quota_is_full_and_changes_nothing(self, world: World) -> None:
        await expect(world.engine, set_limit(1), UsageFound)
        await expect(world.engine, submit_counted(), Created)
        stored = await dump_store(world.engine)
        await expect(await world.open_another(), submit_counted(), Replayed)
        assert await dump_store(world.engine) == stored

    async def test_the_end_of_a_job_frees_its_slot_once(self, world: World) -> None:
        await expect(world.engine, set_limit(1), UsageFound)
        created = await expect(world.engine, submit_counted("a", cost=7), Created)
        cancel = Cancel(tenant=TENANT, job_id=created.job.id, actor=ACTOR)
        for engine in (world.engine, await world.open_another()):
            await expect(engine, cancel, Cancelled)
        await self.assert_usage(world, live=0)
        await expect(world.engine, submit_counted("b"), Created)
        await expect(world.engine, submit_counted("c"), Refused)

    async def test_a_repeated_reservation_of_a_slot_is_the_same_slot(self, world: World) -> None:
        await expect(world.engine, set_limit(1), UsageFound)
        command = reserve_slot()
        first = await expect(world.engine, command, SlotHeld)
        stored = await dump_store(world.engine)
        for engine in (world.engine, await world.open_another()):
            assert (await expect(engine, command, SlotHeld)).expires_at == first.expires_at
            await expect(engine, reserve_slot(), Refused)
        assert await dump_store(world.engine) == stored

    async def test_a_repeated_release_and_a_repeated_consumption_succeed(self, world: World) -> None:
        created = await expect(world.engine, submit(), Created)
        for verb, job_id in ((ReleaseSlot, None), (ConsumeSlot, b""), (ConsumeSlot, created.job.id)):
            slot = await expect(world.engine, reserve_slot(), SlotHeld)
            more: dict[str, Any] = {} if job_id is None else {"job_id": job_id}
            command = verb(**quota_ids(), reservation=slot.reservation, **more)
            first = await expect(world.engine, command, SlotSettled)
            stored = await dump_store(world.engine)
            assert (await expect(await world.open_another(), command, SlotSettled)).state is first.state
            assert await dump_store(world.engine) == stored
        await self.assert_usage(world, live=1)

    async def test_a_slot_counts_until_its_last_millisecond(self, world: World) -> None:
        await expect(world.engine, set_limit(1), UsageFound)
        slot = await expect(world.engine, reserve_slot(), SlotHeld)
        await world.advance(SLOT_MS)
        await expect(world.engine, submit_counted(), Refused)
        renew = RenewSlot(**quota_ids(), reservation=slot.reservation, ttl_ms=SLOT_MS)
        await expect(world.engine, renew, SlotHeld)
        await world.advance(SLOT_MS + 1)
        assert (await expect(world.engine, renew, Refused)).reason is Reason.SLOT_LOST
        await expect(world.engine, submit_counted(), Created)

    async def test_a_submission_uses_the_slot_that_was_reserved_for_it(self, world: World) -> None:
        await expect(world.engine, set_limit(1), UsageFound)
        slot = await expect(world.engine, reserve_slot(), SlotHeld)
        await expect(world.engine, submit_counted("other"), Refused)
        command = submit_counted(reservation=slot.reservation)
        for engine in (world.engine, await world.open_another()):
            await expect(engine, command, Created)
        await self.assert_usage(world, live=1)

    async def test_a_failed_preparation_frees_its_slot_and_a_commit_keeps_it(self, world: World) -> None:
        await expect(world.engine, set_limit(1), UsageFound)
        held = await expect(world.engine, reserve("a", **quota_ids()), KeyHeld)
        await expect(world.engine, submit_counted("b"), Refused)
        await expect(world.engine, settle(held, Verdict.FAIL), KeySettled)
        await self.assert_usage(world, live=0)
        again = await expect(await world.open_another(), reserve("a", **quota_ids()), KeyHeld)
        await expect(world.engine, settle(again), KeySettled)
        await self.assert_usage(world, live=1)

    async def test_a_lost_slot_is_reported_before_the_job_can_run(self, world: World) -> None:
        await expect(world.engine, set_limit(1), UsageFound)
        held = await expect(world.engine, reserve("a", **quota_ids()), KeyHeld)
        await world.advance(LEASE_MS + 1)
        await expect(await world.open_another(), submit_counted("b"), Created)
        late_commit = replace(settle(held), policy_id=quota_ids()["policy_id"])
        assert fence(held)["job_id"] == late_commit.job_id
        assert (await expect(world.engine, late_commit, Refused)).reason is Reason.SLOT_LOST

    async def test_a_job_from_before_its_user_was_counted_is_backfilled_once(self, world: World) -> None:
        created = await expect(world.engine, submit(), Created)
        await expect(world.engine, set_limit(1), UsageFound)
        backfill = Backfill(**quota_ids(), user=USER, job_id=created.job.id)
        assert (await expect(world.engine, backfill, Maintained)).changed
        assert not (await expect(await world.open_another(), backfill, Maintained)).changed
        await self.assert_usage(world, live=1)
        await expect(world.engine, submit_counted("b"), Refused)

    async def test_equal_users_and_slots_of_two_tenants_are_separate(self, world: World) -> None:
        other = await world.open_another()
        await expect(world.engine, set_limit(1), UsageFound)
        await expect(world.engine, set_limit(2, OTHER), UsageFound)
        commands = [submit_counted(f"k{n}", tenant=(TENANT, OTHER)[n // 2 % 2]) for n in range(20)]
        replies = await race([world.engine, other], commands)
        assert count_replies(replies, Created) == 3
        await self.assert_usage(world, live=1)
        await self.assert_usage(world, live=2, tenant=OTHER)
        name = encode_reservation_id(quota_ids(OTHER)["usage_id"], new_job_id())
        guess = ConsumeSlot(**quota_ids(OTHER) | {"tenant": TENANT}, reservation=name)
        assert (await expect(other, guess, Refused)).reason is Reason.SLOT_LOST
        theirs = LookUpUsage(**quota_ids(OTHER) | {"tenant": TENANT})
        assert (await expect(other, theirs, UsageFound)).usage is None

    async def assert_usage(self, world: World, *, live: int, tenant: str = TENANT) -> None:
        """Usage, jobs and a reconciliation agree on the number of live jobs."""
        found = await expect(world.engine, LookUpUsage(**quota_ids(tenant)), UsageFound)
        assert found.usage is not None
        held = [slots_and_cost_held(job, found.usage.id) for job in await list_facts(world.engine, Kind.JOB, tenant)]
        jobs, money = sum(slots for slots, _ in held), sum(cost for _, cost in held)
        assert (found.usage.live, found.usage.cost_held) == (jobs, money)
        assert jobs == live
        reconcile = Reconcile(**quota_ids(tenant), expected_version=found.usage.version, live=jobs, cost_held=money)
        assert (await expect(world.engine, reconcile, Reconciled)).drift == 0


def reserve_slot() -> ReserveSlot:
    name = encode_reservation_id(quota_ids()["usage_id"], new_job_id())
    return ReserveSlot(**quota_ids(), user=USER, reservation=name, ttl_ms=SLOT_MS)
