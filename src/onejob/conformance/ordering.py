"""Replies are those of a serial order that respects real time; reads are part of it and change nothing."""

import asyncio

from onejob.core.facts import Kind
from onejob.core.lookup import DryRun, LookUpJob, LookUpKey
from onejob.core.replies import Created, DryRunReply, Found, Missing, Replayed
from onejob.engine import Engine, ListJobs

from .commands import FactsRead, IncrementCounter, read_facts, write_facts
from .samples import OTHER, TENANT, every_query, key_id, one_of_each, reserve, submit
from .world import World, dump_store, expect, list_facts, read_attachments

COUNTS = 60


class OrderingRules:
    async def test_no_update_is_lost_between_callers(self, world: World) -> None:
        engines = (world.engine, await world.open_another())
        numbers = await asyncio.gather(*(increment_counter(engines[n % 2]) for n in range(COUNTS)))
        assert sorted(numbers) == list(range(1, COUNTS + 1))
        (policy,) = await list_facts(world.engine, Kind.POLICY)
        assert (policy.version, policy.body) == (COUNTS, b"%d" % COUNTS)

    async def test_no_update_is_lost_within_a_batch(self, world: World) -> None:
        other = await world.open_another()
        batches = (engine.execute([IncrementCounter(tenant=TENANT)] * 30) for engine in (world.engine, other))
        replies = [reply for batch in await asyncio.gather(*batches) for reply in batch]
        numbers = [reply.policy.version for reply in replies if isinstance(reply, FactsRead) and reply.policy]
        assert sorted(numbers) == list(range(1, 61))

    async def test_a_command_sent_after_a_reply_is_ordered_after_it(self, world: World) -> None:
        engines = (world.engine, await world.open_another())
        moments = iter(range(COUNTS * 4))
        intervals: list[tuple[int, int, int]] = []

        async def client(n: int) -> None:
            for turn in range(10):
                sent = next(moments)
                number = await increment_counter(engines[(n + turn) % 2])
                intervals.append((sent, next(moments), number))

        await asyncio.gather(*(client(n) for n in range(COUNTS // 10)))
        for _, received, number in intervals:
            assert all(later > number for sent, _, later in intervals if sent > received)

    async def test_a_commit_is_visible_at_once_to_every_engine(self, world: World) -> None:
        engines = (world.engine, await world.open_another())
        for n in range(10):
            engine, other = engines[n % 2], engines[1 - n % 2]
            created = await expect(engine, submit(f"k{n}"), Created)
            found = await expect(other, LookUpKey(tenant=TENANT, record_id=key_id(f"k{n}")), Found)
            assert found.job == created.job
            by_id = await expect(other, LookUpJob(tenant=TENANT, job_id=created.job.id), Found)
            assert by_id.job == created.job
            page = await other.scan(ListJobs(tenant=TENANT, limit=1))
            assert page.items == [created.job]
            assert await read_attachments(other, created.job.id) == [b'{"n":1}']
            replayed = await expect(other, submit(f"k{n}"), Replayed)
            assert replayed.job == created.job

    async def test_replies_come_in_the_order_of_the_commands(self, world: World) -> None:
        commands = [submit(f"k{n}", tenant=(TENANT, OTHER, "third")[n % 3], type=f"type{n % 5}") for n in range(60)]
        replies = await world.engine.execute(commands)
        for command, reply in zip(commands, replies, strict=True):
            assert isinstance(reply, Created)
            assert (reply.job.id, reply.job.tenant) == (command.job_id, command.tenant)

    async def test_reads_and_writes_of_one_call_are_each_answered(self, world: World) -> None:
        created = await expect(world.engine, submit(), Created)
        look_up = LookUpJob(tenant=TENANT, job_id=created.job.id)
        replies = await world.engine.execute([look_up, submit("new"), look_up, submit(), look_up])
        assert [type(reply) for reply in replies] == [Found, Created, Found, Replayed, Found]

    async def test_an_empty_batch_gets_no_replies(self, world: World) -> None:
        assert list(await world.engine.execute([])) == []

    async def test_reading_changes_nothing(self, world: World) -> None:
        await world.engine.execute([submit(), reserve("held")])
        facts = one_of_each(OTHER)
        await expect(world.engine, write_facts(*facts), FactsRead)
        stored = await dump_store(world.engine)
        (job, *_) = await list_facts(world.engine, Kind.JOB)
        replies = await world.engine.execute(
            [
                LookUpKey(tenant=TENANT, record_id=key_id()),
                LookUpKey(tenant=TENANT, record_id=key_id("no")),
                LookUpJob(tenant=TENANT, job_id=job.id),
                DryRun(tenant=TENANT, command=submit()),
                DryRun(tenant=TENANT, command=submit("new")),
                DryRun(tenant=TENANT, command=reserve("held")),
                DryRun(tenant=TENANT, command=reserve("new")),
                read_facts(*facts),
            ]
        )
        assert [type(reply) for reply in replies] == [Found, Missing, Found, *[DryRunReply] * 4, FactsRead]
        for query in every_query(job.id):
            await world.engine.scan(query)
        await expect(world.engine, submit(), Replayed)
        assert await dump_store(world.engine) == stored
        assert await dump_store(await world.open_another()) == stored


async def increment_counter(engine: Engine) -> int:
    reply = await expect(engine, IncrementCounter(tenant=TENANT), FactsRead)
    assert reply.policy is not None
    return reply.policy.version
