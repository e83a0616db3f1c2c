"""Fences: whoever lost a lease can finish nothing, and what is settled stays as it is."""

import pytest
from msgspec.structs import replace

from onejob.core.facts import Kind
from onejob.core.receipt import (
    Conflict,
    Created,
    Held,
    InProgress,
    Reason,
    Refused,
    Rejected,
    Replayed,
    Settled,
)
from onejob.core.reservation import Renew, TakeOver, Verdict
from onejob.core.states import IdempotencyStatus, JobState
from onejob.ids import new_holder

from .samples import LEASE_MS, TENANT, TTL_MS, fence, key_id, reserve, settle, submit
from .world import World, ask, listed

each_verdict = pytest.mark.parametrize("verdict", Verdict)


class Fences:
    @each_verdict
    async def test_a_stale_holder_settles_nothing(self, world: World, verdict: Verdict) -> None:
        engine, other = world.engine, await world.reopen()
        late = await ask(engine, reserve(), Held)
        await world.advance(LEASE_MS + 1)
        held = await ask(other, reserve(), Held)
        assert (held.job_id, held.token, held.taken_over) == (late.job_id, late.token + 1, True)

        await self.refused_as_stale(world, late, verdict)
        settled = await ask(other, settle(held, receipt=b"won"), Settled)
        await self.refused_as_stale(world, late, verdict)
        replayed = await ask(engine, submit(), Replayed)
        assert (replayed.job, replayed.receipt) == (settled.job, b"won")

    @each_verdict
    async def test_a_token_alone_is_no_fence(self, world: World, verdict: Verdict) -> None:
        held = await ask(world.engine, reserve(), Held)
        for forged in (
            replace(held, holder=new_holder()),
            replace(held, job_id=new_holder()),
            replace(held, token=held.token + 1),
            replace(held, token=held.token - 1),
        ):
            await self.refused_as_stale(world, forged, verdict)
        await ask(world.engine, settle(held), Settled)

    @each_verdict
    async def test_a_key_that_began_anew_does_not_know_its_old_holder(
        self, world: World, verdict: Verdict
    ) -> None:
        old = await ask(world.engine, reserve(), Held)
        await world.advance(LEASE_MS + TTL_MS + 1)
        new = await ask(world.engine, reserve(), Held)
        assert new.token == old.token
        assert new.job_id != old.job_id
        await self.refused_as_stale(world, old, verdict)
        await self.refused_as_stale(world, replace(old, holder=new.holder), verdict)

    @each_verdict
    async def test_a_settled_key_stays_as_it_is(self, world: World, verdict: Verdict) -> None:
        for first in (Verdict.COMMIT, Verdict.REJECT):
            held = await ask(world.engine, reserve(first.value), Held)
            await ask(world.engine, settle(held, first, receipt=b"first"), Settled)
            (stored,) = [one for one in await listed(world.engine, Kind.RECORD) if one.key == first.value]
            refused = await ask(world.engine, settle(held, verdict, receipt=b"second"), Refused)
            assert refused.reason is Reason.ALREADY_SETTLED
            renew = Renew(**fence(held), lease_ms=LEASE_MS)
            assert (await ask(world.engine, renew, Refused)).reason is Reason.ALREADY_SETTLED
            assert stored in await listed(await world.reopen(), Kind.RECORD)

    async def test_a_refused_duplicate_leaves_the_holder_in_peace(self, world: World) -> None:
        held = await ask(world.engine, reserve(), Held)
        for engine in (world.engine, await world.reopen()):
            assert (await ask(engine, reserve(), InProgress)).job_id == held.job_id
            assert (await ask(engine, submit(), InProgress)).job_id == held.job_id
            assert (await ask(engine, submit(input=b"{}"), Conflict)).job_id == held.job_id
            take = TakeOver(tenant=TENANT, record_id=key_id(), holder=new_holder(), lease_ms=LEASE_MS)
            assert (await ask(engine, take, InProgress)).job_id == held.job_id
        settled = await ask(world.engine, settle(held), Settled)
        assert settled.job is not None
        assert settled.job.state is JobState.PENDING

    async def test_a_renewed_lease_holds_off_the_others(self, world: World) -> None:
        held = await ask(world.engine, reserve(lease_ms=60_000), Held)
        for _ in range(3):
            await world.advance(LEASE_MS)
            renewed = await ask(world.engine, Renew(**fence(held), lease_ms=60_000), Held)
            assert (renewed.token, renewed.lease_until) == (held.token, renewed.at + 60_000)
            await ask(await world.reopen(), reserve(), InProgress)

    async def test_a_lapsed_holder_may_go_on_as_long_as_nobody_took_over(self, world: World) -> None:
        held = await ask(world.engine, reserve(), Held)
        await world.advance(LEASE_MS + 1)
        await ask(world.engine, settle(held), Settled)
        await ask(await world.reopen(), reserve(), Replayed)

    async def test_a_retryable_failure_keeps_the_job_and_the_fingerprint(self, world: World) -> None:
        held = await ask(world.engine, reserve(), Held)
        await ask(world.engine, settle(held, Verdict.FAIL, receipt=b"no luck"), Settled)
        await ask(world.engine, reserve(input=b"{}"), Conflict)
        again = await ask(world.engine, reserve(), Held)
        assert (again.job_id, again.token) == (held.job_id, held.token + 1)
        await self.refused_as_stale(world, held, Verdict.COMMIT)

    async def test_a_rejection_is_remembered(self, world: World) -> None:
        held = await ask(world.engine, reserve(), Held)
        await ask(world.engine, settle(held, Verdict.REJECT, receipt=b"never"), Settled)
        for engine in (world.engine, await world.reopen()):
            for command in (submit(), reserve()):
                rejected = await ask(engine, command, Rejected)
                assert (rejected.job_id, rejected.receipt) == (held.job_id, b"never")
        (record,) = await listed(world.engine, Kind.RECORD)
        assert record.status is IdempotencyStatus.REJECTED

    async def test_a_submission_finishes_what_a_lapsed_holder_left(self, world: World) -> None:
        late = await ask(world.engine, reserve(), Held)
        await world.advance(LEASE_MS + 1)
        created = await ask(await world.reopen(), submit(), Created)
        assert created.job.id == late.job_id
        await self.refused_as_stale(world, late, Verdict.FAIL)
        assert [job.id for job in await listed(world.engine, Kind.JOB)] == [late.job_id]

    async def refused_as_stale(self, world: World, held: Held, verdict: Verdict) -> None:
        stored = await listed(world.engine, Kind.RECORD)
        for command in (settle(held, verdict), Renew(**fence(held), lease_ms=LEASE_MS)):
            assert (await ask(world.engine, command, Refused)).reason is Reason.STALE
        assert await listed(world.engine, Kind.RECORD) == stored
