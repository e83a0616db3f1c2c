"""Races for one key: one submission wins, and all others get its job."""

import asyncio
from collections.abc import Sequence

from onejob.core.facts import Kind
from onejob.core.replies import AnyReply, Conflict, Created, InProgress, KeyHeld, KeySettled, Replayed
from onejob.core.reserve import TakeOver
from onejob.engine import Engine
from onejob.ids import new_holder

from .samples import LEASE_MS, OTHER, TENANT, reserve, settle, submit
from .world import World, count_replies, expect, list_facts, race, read_attachments

RACERS = 200


class RaceRules:
    async def test_a_race_of_200_calls_makes_one_job(self, world: World) -> None:
        commands = [submit() for _ in range(RACERS)]
        await self.assert_one_winner(world.engine, await race([world.engine], commands))

    async def test_a_race_of_200_in_one_batch_makes_one_job(self, world: World) -> None:
        replies = await world.engine.execute([submit() for _ in range(RACERS)])
        await self.assert_one_winner(world.engine, replies)

    async def test_a_race_through_two_engines_makes_one_job(self, world: World) -> None:
        other = await world.open_another()
        replies = await race([world.engine, other], [submit() for _ in range(RACERS)])
        await self.assert_one_winner(other, replies)

    async def test_two_batches_of_a_hundred_through_two_engines_make_one_job(self, world: World) -> None:
        other = await world.open_another()
        half = RACERS // 2
        first, second = await asyncio.gather(
            world.engine.execute([submit() for _ in range(half)]), other.execute([submit() for _ in range(half)])
        )
        await self.assert_one_winner(other, [*first, *second])

    async def test_a_race_of_twenty_keys_makes_twenty_jobs(self, world: World) -> None:
        other = await world.open_another()
        commands = [submit(f"k{n % 20}") for n in range(RACERS)]
        replies = await race([world.engine, other], commands)
        assert count_replies(replies, Created) == 20
        assert count_replies(replies, Replayed) == RACERS - 20
        jobs = {job.key: job.id for job in await list_facts(world.engine, Kind.JOB)}
        assert len(jobs) == 20
        for command, reply in zip(commands, replies, strict=True):
            assert isinstance(reply, (Created, Replayed))
            assert reply.job is not None
            assert reply.job.id == jobs[command.key]

    async def test_two_bodies_race_for_one_key_and_one_wins(self, world: World) -> None:
        other = await world.open_another()
        bodies = (b'{"n":1}', b'{"n":2}')
        commands = [submit(input=bodies[n // 2 % 2]) for n in range(RACERS)]
        replies = await race([world.engine, other], commands)
        assert count_replies(replies, Created) == 1
        (job,) = await list_facts(other, Kind.JOB)
        (won,) = await read_attachments(other, job.id)
        for command, reply in zip(commands, replies, strict=True):
            if command.input == won:
                assert isinstance(reply, (Created, Replayed))
                assert reply.job == job
            else:
                assert isinstance(reply, Conflict)
                assert reply.job_id == job.id

    async def test_two_tenants_race_and_each_gets_a_job(self, world: World) -> None:
        other = await world.open_another()
        commands = [submit(tenant=(TENANT, OTHER)[n // 2 % 2]) for n in range(RACERS)]
        replies = await race([world.engine, other], commands)
        assert count_replies(replies, Created) == 2
        for command, reply in zip(commands, replies, strict=True):
            assert isinstance(reply, (Created, Replayed))
            assert reply.job is not None
            assert reply.job.tenant == command.tenant

    async def test_a_race_to_reserve_has_one_holder(self, world: World) -> None:
        other = await world.open_another()
        replies = await race([world.engine, other], [reserve() for _ in range(RACERS)])
        (held,) = [reply for reply in replies if isinstance(reply, KeyHeld)]
        assert count_replies(replies, InProgress) == RACERS - 1
        assert {reply.job_id for reply in replies if isinstance(reply, InProgress)} == {held.job_id}
        await expect(other, settle(held), KeySettled)
        replayed = await expect(world.engine, submit(), Replayed)
        assert replayed.job is not None
        assert replayed.job.id == held.job_id

    async def test_a_race_to_take_over_has_one_winner(self, world: World) -> None:
        other = await world.open_another()
        held = await expect(world.engine, reserve(), KeyHeld)
        await world.advance(LEASE_MS + 1)
        commands = [
            TakeOver(tenant=TENANT, record_id=held.record_id, holder=new_holder(), lease_ms=60_000) for _ in range(100)
        ]
        replies = await race([world.engine, other], commands)
        (winner,) = [reply for reply in replies if isinstance(reply, KeyHeld)]
        assert count_replies(replies, InProgress) == 99
        assert (winner.job_id, winner.token) == (held.job_id, held.token + 1)

    async def test_a_race_to_finish_what_a_dead_holder_left_keeps_its_job(self, world: World) -> None:
        other = await world.open_another()
        held = await expect(world.engine, reserve(), KeyHeld)
        await world.advance(LEASE_MS + 1)
        replies = await race([world.engine, other], [submit() for _ in range(100)])
        assert count_replies(replies, Created) == 1
        await self.assert_one_winner(other, replies)
        assert [job.id for job in await list_facts(other, Kind.JOB)] == [held.job_id]

    async def assert_one_winner(self, engine: Engine, replies: Sequence[AnyReply]) -> None:
        assert count_replies(replies, Created) == 1
        assert count_replies(replies, Replayed) == len(replies) - 1
        (job,) = await list_facts(engine, Kind.JOB)
        (record,) = await list_facts(engine, Kind.RECORD)
        assert record.job_ids == job.id
        for reply in replies:
            assert isinstance(reply, (Created, Replayed))
            assert reply.job == job
