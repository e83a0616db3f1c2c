"""Quotas: a tally and a policy in the footprint are part of the one step that creates a job."""

from typing import Any

from msgspec.structs import replace

from onejob.core.facts import Kind
from onejob.core.identity import slot_name
from onejob.core.limits import POLICY_NAME, Limits, TenantLimits, encoded
from onejob.core.policy import SetPolicy
from onejob.core.receipt import (
    Cancelled,
    Created,
    Held,
    PolicyFound,
    Reason,
    Recounted,
    Refused,
    Replayed,
    Settled,
    SlotHeld,
    SlotSettled,
    TallyFound,
    Tended,
)
from onejob.core.recount import Adopt, Recount, holds
from onejob.core.reservation import Verdict
from onejob.core.slots import ConsumeSlot, LookUpTally, ReleaseSlot, RenewSlot, ReserveSlot
from onejob.core.work import Cancel
from onejob.ids import new_job_id

from .races import raced
from .samples import (
    ACTOR,
    LEASE_MS,
    OTHER,
    TENANT,
    USER,
    counted,
    fence,
    limited,
    reserve,
    settle,
    submit,
    whose,
)
from .world import World, ask, count, everything, listed

RACERS = 50
SLOT_MS = 1000


class Quotas:
    async def test_a_race_for_the_last_slots_is_won_by_as_many_as_there_are(self, world: World) -> None:
        other = await world.reopen()
        await ask(world.engine, limited(5), TallyFound)
        replies = await raced([world.engine, other], [counted(f"k{n}") for n in range(RACERS)])
        assert count(replies, Created) == 5
        refused = [reply for reply in replies if isinstance(reply, Refused)]
        assert len(refused) == RACERS - 5
        assert {reply.reason for reply in refused} == {Reason.QUOTA_EXCEEDED}
        await self.counts(world, live=5)
        assert len(await listed(other, Kind.RECORD)) == 5

    async def test_a_race_in_one_batch_is_won_by_as_many_as_there_are(self, world: World) -> None:
        await ask(world.engine, limited(1), TallyFound)
        replies = await world.engine.execute([counted(f"k{n}") for n in range(RACERS)])
        assert (count(replies, Created), count(replies, Refused)) == (1, RACERS - 1)
        await self.counts(world, live=1)

    async def test_a_tenants_policy_holds_in_the_very_next_decision(self, world: World) -> None:
        other = await world.reopen()
        for most, answer in ((1, Created), (1, Refused), (2, Created), (0, Refused)):
            body = encoded(TenantLimits(default=Limits(max_concurrent=most)))
            policy = SetPolicy(tenant=TENANT, policy_id=whose()["policy_id"], name=POLICY_NAME, body=body)
            await ask(world.engine, policy, PolicyFound)
            await ask(other, counted(""), answer)
        await self.counts(world, live=2)

    async def test_a_hit_comes_through_when_the_quota_is_full_and_changes_nothing(self, world: World) -> None:
        await ask(world.engine, limited(1), TallyFound)
        await ask(world.engine, counted(), Created)
        stored = await everything(world.engine)
        await ask(await world.reopen(), counted(), Replayed)
        assert await everything(world.engine) == stored

    async def test_an_end_frees_the_slot_once(self, world: World) -> None:
        await ask(world.engine, limited(1), TallyFound)
        created = await ask(world.engine, counted("a", cost=7), Created)
        cancel = Cancel(tenant=TENANT, job_id=created.job.id, actor=ACTOR)
        for engine in (world.engine, await world.reopen()):
            await ask(engine, cancel, Cancelled)
        await self.counts(world, live=0)
        await ask(world.engine, counted("b"), Created)
        await ask(world.engine, counted("c"), Refused)

    async def test_a_repeated_reservation_of_a_slot_is_the_same_slot(self, world: World) -> None:
        await ask(world.engine, limited(1), TallyFound)
        command = taken()
        first = await ask(world.engine, command, SlotHeld)
        stored = await everything(world.engine)
        for engine in (world.engine, await world.reopen()):
            assert (await ask(engine, command, SlotHeld)).expires_at == first.expires_at
            await ask(engine, taken(), Refused)
        assert await everything(world.engine) == stored

    async def test_a_repeated_release_and_a_repeated_consumption_succeed(self, world: World) -> None:
        created = await ask(world.engine, submit(), Created)
        for verb, job_id in ((ReleaseSlot, None), (ConsumeSlot, b""), (ConsumeSlot, created.job.id)):
            slot = await ask(world.engine, taken(), SlotHeld)
            more: dict[str, Any] = {} if job_id is None else {"job_id": job_id}
            command = verb(**whose(), reservation=slot.reservation, **more)
            first = await ask(world.engine, command, SlotSettled)
            stored = await everything(world.engine)
            assert (await ask(await world.reopen(), command, SlotSettled)).state is first.state
            assert await everything(world.engine) == stored
        await self.counts(world, live=1)

    async def test_a_slot_counts_until_its_last_millisecond(self, world: World) -> None:
        await ask(world.engine, limited(1), TallyFound)
        slot = await ask(world.engine, taken(), SlotHeld)
        await world.advance(SLOT_MS)
        await ask(world.engine, counted(), Refused)
        renew = RenewSlot(**whose(), reservation=slot.reservation, ttl_ms=SLOT_MS)
        await ask(world.engine, renew, SlotHeld)
        await world.advance(SLOT_MS + 1)
        assert (await ask(world.engine, renew, Refused)).reason is Reason.SLOT_LOST
        await ask(world.engine, counted(), Created)

    async def test_a_submission_uses_the_slot_that_was_reserved_for_it(self, world: World) -> None:
        await ask(world.engine, limited(1), TallyFound)
        slot = await ask(world.engine, taken(), SlotHeld)
        await ask(world.engine, counted("other"), Refused)
        command = counted(reservation=slot.reservation)
        for engine in (world.engine, await world.reopen()):
            await ask(engine, command, Created)
        await self.counts(world, live=1)

    async def test_a_failed_preparation_frees_its_slot_and_a_commit_keeps_it(self, world: World) -> None:
        await ask(world.engine, limited(1), TallyFound)
        held = await ask(world.engine, reserve("a", **whose()), Held)
        await ask(world.engine, counted("b"), Refused)
        await ask(world.engine, settle(held, Verdict.FAIL), Settled)
        await self.counts(world, live=0)
        again = await ask(await world.reopen(), reserve("a", **whose()), Held)
        await ask(world.engine, settle(again), Settled)
        await self.counts(world, live=1)

    async def test_a_slot_that_was_lost_is_said_before_the_job_can_run(self, world: World) -> None:
        await ask(world.engine, limited(1), TallyFound)
        held = await ask(world.engine, reserve("a", **whose()), Held)
        await world.advance(LEASE_MS + 1)
        await ask(await world.reopen(), counted("b"), Created)
        late = replace(settle(held), policy_id=whose()["policy_id"])
        assert fence(held)["job_id"] == late.job_id
        assert (await ask(world.engine, late, Refused)).reason is Reason.SLOT_LOST

    async def test_a_job_from_before_its_user_was_counted_is_adopted_once(self, world: World) -> None:
        created = await ask(world.engine, submit(), Created)
        await ask(world.engine, limited(1), TallyFound)
        adopt = Adopt(**whose(), user=USER, job_id=created.job.id)
        assert (await ask(world.engine, adopt, Tended)).changed
        assert not (await ask(await world.reopen(), adopt, Tended)).changed
        await self.counts(world, live=1)
        await ask(world.engine, counted("b"), Refused)

    async def test_two_tenants_with_equal_users_and_slots_never_meet(self, world: World) -> None:
        other = await world.reopen()
        await ask(world.engine, limited(1), TallyFound)
        await ask(world.engine, limited(2, OTHER), TallyFound)
        commands = [counted(f"k{n}", tenant=(TENANT, OTHER)[n // 2 % 2]) for n in range(20)]
        replies = await raced([world.engine, other], commands)
        assert count(replies, Created) == 3
        await self.counts(world, live=1)
        await self.counts(world, live=2, tenant=OTHER)
        name = slot_name(whose(OTHER)["tally_id"], new_job_id())
        guess = ConsumeSlot(**whose(OTHER) | {"tenant": TENANT}, reservation=name)
        assert (await ask(other, guess, Refused)).reason is Reason.SLOT_LOST
        theirs = LookUpTally(**whose(OTHER) | {"tenant": TENANT})
        assert (await ask(other, theirs, TallyFound)).tally is None

    async def counts(self, world: World, *, live: int, tenant: str = TENANT) -> None:
        """The tally says so, its jobs say so, and counting again finds nothing to mend."""
        found = await ask(world.engine, LookUpTally(**whose(tenant)), TallyFound)
        assert found.tally is not None
        held = [holds(job, found.tally.id) for job in await listed(world.engine, Kind.JOB, tenant)]
        jobs, money = sum(slots for slots, _ in held), sum(cost for _, cost in held)
        assert (found.tally.live, found.tally.cost_held) == (jobs, money)
        assert jobs == live
        recount = Recount(**whose(tenant), expected=found.tally.version, live=jobs, cost_held=money)
        assert (await ask(world.engine, recount, Recounted)).drift == 0


def taken() -> ReserveSlot:
    name = slot_name(whose()["tally_id"], new_job_id())
    return ReserveSlot(**whose(), user=USER, reservation=name, ttl_ms=SLOT_MS)
