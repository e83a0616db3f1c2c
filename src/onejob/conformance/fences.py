"""A holder that lost its lease cannot settle the key, and a settled key does not change."""

import pytest
from msgspec.structs import replace

from onejob.core.facts import Kind
from onejob.core.replies import Conflict, Created, InProgress, KeyHeld, KeySettled, Reason, Refused, Rejected, Replayed
from onejob.core.reserve import Renew, TakeOver, Verdict
from onejob.core.states import IdempotencyStatus, JobState
from onejob.ids import new_holder

from .samples import LEASE_MS, TENANT, TTL_MS, fence, key_id, reserve, settle, submit
from .world import World, expect, list_facts

each_verdict = pytest.mark.parametrize("verdict", Verdict)


class FencingRules:
    @each_verdict
    async def test_a_stale_holder_settles_nothing(self, world: World, verdict: Verdict) -> None:
        engine, other = world.engine, await world.open_another()
        stale = await expect(engine, reserve(), KeyHeld)
        await world.advance(LEASE_MS + 1)
        held = await expect(other, reserve(), KeyHeld)
        assert (held.job_id, held.token, held.taken_over) == (stale.job_id, stale.token + 1, True)

        await self.assert_refused_as_stale(world, stale, verdict)
        settled = await expect(other, settle(held, receipt=b"won"), KeySettled)
        await self.assert_refused_as_stale(world, stale, verdict)
        replayed = await expect(engine, submit(), Replayed)
        assert (replayed.job, replayed.receipt) == (settled.job, b"won")

    @each_verdict
    async def test_a_token_alone_is_no_fence(self, world: World, verdict: Verdict) -> None:
        held = await expect(world.engine, reserve(), KeyHeld)
        for forged in (
            replace(held, holder=new_holder()),
            replace(held, job_id=new_holder()),
            replace(held, token=held.token + 1),
            replace(held, token=held.token - 1),
        ):
            await self.assert_refused_as_stale(world, forged, verdict)
        await expect(world.engine, settle(held), KeySettled)

    @each_verdict
    async def test_a_key_that_was_created_again_refuses_its_old_holder(self, world: World, verdict: Verdict) -> None:
        old = await expect(world.engine, reserve(), KeyHeld)
        await world.advance(LEASE_MS + TTL_MS + 1)
        new = await expect(world.engine, reserve(), KeyHeld)
        assert new.token == old.token
        assert new.job_id != old.job_id
        await self.assert_refused_as_stale(world, old, verdict)
        await self.assert_refused_as_stale(world, replace(old, holder=new.holder), verdict)

    @each_verdict
    async def test_a_settled_key_does_not_change(self, world: World, verdict: Verdict) -> None:
        for first in (Verdict.COMMIT, Verdict.REJECT):
            held = await expect(world.engine, reserve(first.value), KeyHeld)
            await expect(world.engine, settle(held, first, receipt=b"first"), KeySettled)
            (stored,) = [record for record in await list_facts(world.engine, Kind.RECORD) if record.key == first.value]
            refused = await expect(world.engine, settle(held, verdict, receipt=b"second"), Refused)
            assert refused.reason is Reason.ALREADY_SETTLED
            renew = Renew(**fence(held), lease_ms=LEASE_MS)
            assert (await expect(world.engine, renew, Refused)).reason is Reason.ALREADY_SETTLED
            assert stored in await list_facts(await world.open_another(), Kind.RECORD)

    async def test_a_refused_duplicate_does_not_affect_the_holder(self, world: World) -> None:
        held = await expect(world.engine, reserve(), KeyHeld)
        for engine in (world.engine, await world.open_another()):
            assert (await expect(engine, reserve(), InProgress)).job_id == held.job_id
            assert (await expect(engine, submit(), InProgress)).job_id == held.job_id
            assert (await expect(engine, submit(input=b"{}"), Conflict)).job_id == held.job_id
            take_over = TakeOver(tenant=TENANT, record_id=key_id(), holder=new_holder(), lease_ms=LEASE_MS)
            assert (await expect(engine, take_over, InProgress)).job_id == held.job_id
        settled = await expect(world.engine, settle(held), KeySettled)
        assert settled.job is not None
        assert settled.job.state is JobState.PENDING

    async def test_a_renewed_lease_keeps_others_from_taking_the_key(self, world: World) -> None:
        held = await expect(world.engine, reserve(lease_ms=60_000), KeyHeld)
        for _ in range(3):
            await world.advance(LEASE_MS)
            renewed = await expect(world.engine, Renew(**fence(held), lease_ms=60_000), KeyHeld)
            assert (renewed.token, renewed.lease_until) == (held.token, renewed.at + 60_000)
            await expect(await world.open_another(), reserve(), InProgress)

    async def test_a_holder_with_an_expired_lease_may_settle_until_a_take_over(self, world: World) -> None:
        held = await expect(world.engine, reserve(), KeyHeld)
        await world.advance(LEASE_MS + 1)
        await expect(world.engine, settle(held), KeySettled)
        await expect(await world.open_another(), reserve(), Replayed)

    async def test_a_retryable_failure_keeps_the_job_and_the_fingerprint(self, world: World) -> None:
        held = await expect(world.engine, reserve(), KeyHeld)
        await expect(world.engine, settle(held, Verdict.FAIL, receipt=b"no luck"), KeySettled)
        await expect(world.engine, reserve(input=b"{}"), Conflict)
        again = await expect(world.engine, reserve(), KeyHeld)
        assert (again.job_id, again.token) == (held.job_id, held.token + 1)
        await self.assert_refused_as_stale(world, held, Verdict.COMMIT)

    async def test_a_rejection_is_remembered(self, world: World) -> None:
        held = await expect(world.engine, reserve(), KeyHeld)
        await expect(world.engine, settle(held, Verdict.REJECT, receipt=b"never"), KeySettled)
        for engine in (world.engine, await world.open_another()):
            for command in (submit(), reserve()):
                rejected = await expect(engine, command, Rejected)
                assert (rejected.job_id, rejected.receipt) == (held.job_id, b"never")
        (record,) = await list_facts(world.engine, Kind.RECORD)
        assert record.status is IdempotencyStatus.REJECTED

    async def test_a_submission_finishes_a_key_with_an_expired_lease(self, world: World) -> None:
        stale = await expect(world.engine, reserve(), KeyHeld)
        await world.advance(LEASE_MS + 1)
        created = await expect(await world.open_another(), submit(), Created)
        assert created.job.id == stale.job_id
        await self.assert_refused_as_stale(world, stale, Verdict.FAIL)
        assert [job.id for job in await list_facts(world.engine, Kind.JOB)] == [stale.job_id]

    async def assert_refused_as_stale(self, world: World, held: KeyHeld, verdict: Verdict) -> None:
        stored = await list_facts(world.engine, Kind.RECORD)
        for command in (settle(held, verdict), Renew(**fence(held), lease_ms=LEASE_MS)):
            assert (await expect(world.engine, command, Refused)).reason is Reason.STALE
        assert await list_facts(world.engine, Kind.RECORD) == stored
