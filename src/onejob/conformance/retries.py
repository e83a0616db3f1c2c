"""A command that is executed again, because its reply was lost, gets the same reply and changes nothing."""

from onejob.core.facts import Kind
from onejob.core.maintenance import Expire, Forget
from onejob.core.replies import (
    Cancelled,
    Created,
    Forgotten,
    InProgress,
    KeyHeld,
    KeySettled,
    Maintained,
    PolicyFound,
    Refused,
    Replayed,
)
from onejob.core.reserve import TakeOver, Verdict
from onejob.core.work import Cancel
from onejob.ids import new_holder

from .samples import ACTOR, LEASE_MS, TENANT, TTL_MS, key_id, reserve, set_policy, settle, submit
from .world import World, dump_store, expect, list_facts


class RetryRules:
    async def test_a_repeated_submission_is_created_again_and_a_duplicate_replayed(self, world: World) -> None:
        engine, other = world.engine, await world.open_another()
        command = submit()
        first = await expect(engine, command, Created)
        stored = await dump_store(engine)
        for any_engine in (engine, other, engine):
            assert (await expect(any_engine, command, Created)).job == first.job
            assert (await expect(any_engine, submit(), Replayed)).job == first.job
        assert await dump_store(engine) == stored

    async def test_a_repeated_submission_in_one_batch_is_created_twice_and_stored_once(self, world: World) -> None:
        command = submit()
        for reply in await world.engine.execute([command, command]):
            assert isinstance(reply, Created)
            assert reply.job.id == command.job_id
        assert len(await dump_store(world.engine)) == 3

    async def test_a_repeated_submission_without_a_key_makes_one_job(self, world: World) -> None:
        command = submit("")
        for engine in (world.engine, await world.open_another()):
            assert (await expect(engine, command, Created)).job.id == command.job_id
        assert len(await list_facts(world.engine, Kind.JOB)) == 1

    async def test_a_repeated_submission_finds_its_job_after_its_record_was_deleted(self, world: World) -> None:
        command = submit()
        first = await expect(world.engine, command, Created)
        await world.advance(TTL_MS + 1)
        await expect(world.engine, Expire(tenant=TENANT, record_id=key_id()), Maintained)
        again = await expect(await world.open_another(), command, Created)
        assert again.job == first.job
        assert len(await list_facts(world.engine, Kind.JOB)) == 1

    async def test_a_repeated_submission_that_finished_an_abandoned_key_is_created_again(self, world: World) -> None:
        """The submission finished an abandoned key, so its job has the id of another candidate."""
        held = await expect(world.engine, reserve(), KeyHeld)
        await world.advance(LEASE_MS + 1)
        command = submit()
        for engine in (world.engine, await world.open_another(), world.engine):
            assert (await expect(engine, command, Created)).job.id == held.job_id
        assert (await expect(world.engine, submit(), Replayed)).expires_at

    async def test_a_repeated_reservation_is_held_by_the_same_holder(self, world: World) -> None:
        command = reserve()
        first = await expect(world.engine, command, KeyHeld)
        for engine in (world.engine, await world.open_another()):
            again = await expect(engine, command, KeyHeld)
            assert (again.token, again.lease_until, again.holder) == (1, first.lease_until, command.holder)
            await expect(engine, reserve(), InProgress)

    async def test_a_repeated_take_over_raises_the_token_once(self, world: World) -> None:
        await expect(world.engine, reserve(), KeyHeld)
        await world.advance(LEASE_MS + 1)
        take_over = TakeOver(tenant=TENANT, record_id=key_id(), holder=new_holder(), lease_ms=60_000)
        first = await expect(world.engine, take_over, KeyHeld)
        for engine in (world.engine, await world.open_another()):
            again = await expect(engine, take_over, KeyHeld)
            assert (again.token, again.lease_until) == (2, first.lease_until)
            other = TakeOver(tenant=TENANT, record_id=key_id(), holder=new_holder(), lease_ms=60_000)
            await expect(engine, other, InProgress)

    async def test_a_repeated_verdict_with_equal_content_succeeds(self, world: World) -> None:
        for verdict in Verdict:
            held = await expect(world.engine, reserve(verdict.value), KeyHeld)
            command = settle(held, verdict, receipt=b"so")
            first = await expect(world.engine, command, KeySettled)
            stored = await dump_store(world.engine)
            for engine in (world.engine, await world.open_another()):
                again = await expect(engine, command, KeySettled)
                assert (again.record, again.job) == (first.record, first.job)
            assert await dump_store(world.engine) == stored

    async def test_a_repeated_write_of_a_policy_succeeds_and_an_outdated_one_does_not(self, world: World) -> None:
        first, second = set_policy(expected_version=0), set_policy(body=b"{}", expected_version=1)
        created = await expect(world.engine, first, PolicyFound)
        for engine in (world.engine, await world.open_another()):
            assert (await expect(engine, first, PolicyFound)).policy == created.policy
        written = await expect(world.engine, second, PolicyFound)
        for engine in (world.engine, await world.open_another()):
            assert (await expect(engine, second, PolicyFound)).policy == written.policy
            await expect(engine, first, Refused)

    async def test_a_repeated_cancellation_changes_nothing_more(self, world: World) -> None:
        created = await expect(world.engine, submit(), Created)
        command = Cancel(tenant=TENANT, job_id=created.job.id, actor=ACTOR)
        first = await expect(world.engine, command, Cancelled)
        stored = await dump_store(world.engine)
        again = await expect(await world.open_another(), command, Cancelled)
        assert (again.job, again.changed) == (first.job, False)
        assert await dump_store(world.engine) == stored

    async def test_a_repeated_forget_does_not_extend_the_window(self, world: World) -> None:
        await expect(world.engine, submit(), Created)
        command = Forget(tenant=TENANT, record_id=key_id(), actor=ACTOR, grace_ms=TTL_MS // 2)
        first = await expect(world.engine, command, Forgotten)
        await world.advance(TTL_MS // 4)
        assert (await expect(await world.open_another(), command, Forgotten)).expires_at == first.expires_at
