"""Echo: a command that was done and whose answer was lost gets the same answer when it is executed again."""

from onejob.core.facts import Kind
from onejob.core.receipt import (
    Cancelled,
    Created,
    Forgotten,
    Held,
    InProgress,
    PolicyFound,
    Refused,
    Replayed,
    Settled,
    Tended,
)
from onejob.core.reservation import TakeOver, Verdict
from onejob.core.upkeep import Expire, Forget
from onejob.core.work import Cancel
from onejob.ids import new_holder

from .samples import ACTOR, LEASE_MS, TENANT, TTL_MS, key_id, reserve, set_policy, settle, submit
from .world import World, ask, everything, listed


class Echo:
    async def test_a_repeated_submission_is_created_again_and_a_duplicate_replayed(
        self, world: World
    ) -> None:
        engine, other = world.engine, await world.reopen()
        command = submit()
        first = await ask(engine, command, Created)
        stored = await everything(engine)
        for place in (engine, other, engine):
            assert (await ask(place, command, Created)).job == first.job
            assert (await ask(place, submit(), Replayed)).job == first.job
        assert await everything(engine) == stored

    async def test_a_repeated_submission_in_one_batch_is_created_twice_and_stored_once(
        self, world: World
    ) -> None:
        command = submit()
        for reply in await world.engine.execute([command, command]):
            assert isinstance(reply, Created)
            assert reply.job.id == command.job_id
        assert len(await everything(world.engine)) == 3

    async def test_a_repeated_submission_without_a_key_makes_one_job(self, world: World) -> None:
        command = submit("")
        for engine in (world.engine, await world.reopen()):
            assert (await ask(engine, command, Created)).job.id == command.job_id
        assert len(await listed(world.engine, Kind.JOB)) == 1

    async def test_a_repeated_submission_finds_its_job_when_its_record_has_gone(self, world: World) -> None:
        command = submit()
        first = await ask(world.engine, command, Created)
        await world.advance(TTL_MS + 1)
        await ask(world.engine, Expire(tenant=TENANT, record_id=key_id()), Tended)
        again = await ask(await world.reopen(), command, Created)
        assert again.job == first.job
        assert len(await listed(world.engine, Kind.JOB)) == 1

    async def test_a_repeated_finishing_submission_is_created_again(self, world: World) -> None:
        """It took over a job that another candidate had begun, so the job's name is not its own."""
        held = await ask(world.engine, reserve(), Held)
        await world.advance(LEASE_MS + 1)
        command = submit()
        for engine in (world.engine, await world.reopen(), world.engine):
            assert (await ask(engine, command, Created)).job.id == held.job_id
        assert (await ask(world.engine, submit(), Replayed)).expires_at

    async def test_a_repeated_reservation_is_held_by_the_same_holder(self, world: World) -> None:
        command = reserve()
        first = await ask(world.engine, command, Held)
        for engine in (world.engine, await world.reopen()):
            again = await ask(engine, command, Held)
            assert (again.token, again.lease_until, again.holder) == (1, first.lease_until, command.holder)
            await ask(engine, reserve(), InProgress)

    async def test_a_repeated_take_over_raises_the_token_once(self, world: World) -> None:
        await ask(world.engine, reserve(), Held)
        await world.advance(LEASE_MS + 1)
        take = TakeOver(tenant=TENANT, record_id=key_id(), holder=new_holder(), lease_ms=60_000)
        first = await ask(world.engine, take, Held)
        for engine in (world.engine, await world.reopen()):
            again = await ask(engine, take, Held)
            assert (again.token, again.lease_until) == (2, first.lease_until)
            other = TakeOver(tenant=TENANT, record_id=key_id(), holder=new_holder(), lease_ms=60_000)
            await ask(engine, other, InProgress)

    async def test_a_repeated_verdict_with_equal_content_succeeds(self, world: World) -> None:
        for verdict in Verdict:
            held = await ask(world.engine, reserve(verdict.value), Held)
            command = settle(held, verdict, receipt=b"so")
            first = await ask(world.engine, command, Settled)
            stored = await everything(world.engine)
            for engine in (world.engine, await world.reopen()):
                again = await ask(engine, command, Settled)
                assert (again.record, again.job) == (first.record, first.job)
            assert await everything(world.engine) == stored

    async def test_a_repeated_write_of_a_policy_succeeds_and_an_overtaken_one_does_not(
        self, world: World
    ) -> None:
        first, second = set_policy(expected=0), set_policy(body=b"{}", expected=1)
        made = await ask(world.engine, first, PolicyFound)
        for engine in (world.engine, await world.reopen()):
            assert (await ask(engine, first, PolicyFound)).policy == made.policy
        written = await ask(world.engine, second, PolicyFound)
        for engine in (world.engine, await world.reopen()):
            assert (await ask(engine, second, PolicyFound)).policy == written.policy
            await ask(engine, first, Refused)

    async def test_a_repeated_cancellation_changes_nothing_more(self, world: World) -> None:
        created = await ask(world.engine, submit(), Created)
        command = Cancel(tenant=TENANT, job_id=created.job.id, actor=ACTOR)
        first = await ask(world.engine, command, Cancelled)
        stored = await everything(world.engine)
        again = await ask(await world.reopen(), command, Cancelled)
        assert (again.job, again.changed) == (first.job, False)
        assert await everything(world.engine) == stored

    async def test_a_repeated_forgetting_does_not_prolong_the_window(self, world: World) -> None:
        await ask(world.engine, submit(), Created)
        command = Forget(tenant=TENANT, record_id=key_id(), actor=ACTOR, grace_ms=TTL_MS // 2)
        first = await ask(world.engine, command, Forgotten)
        await world.advance(TTL_MS // 4)
        assert (await ask(await world.reopen(), command, Forgotten)).expires_at == first.expires_at
