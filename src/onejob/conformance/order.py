"""One order: replies equal some serial order that respects real time; reads take part in it and change nothing."""

import asyncio
from typing import Any

from onejob.core.facts import Beside, Kind
from onejob.core.lookup import LookUp, LookUpJob, Probe
from onejob.core.receipt import Created, Foreseen, Found, Missing, Replayed
from onejob.engine import Attachments, Due, Engine, Held, Inputs, JobPage, Listing, Query, Ready, Waiting

from .commands import Count, Seen, look, written
from .samples import OTHER, TENANT, TYPE, key_id, one_of_each, reserve, submit
from .world import World, ask, attached, everything, listed

COUNTS = 60


class Order:
    async def test_no_update_is_lost_between_callers(self, world: World) -> None:
        engines = (world.engine, await world.reopen())
        numbers = await asyncio.gather(*(counted(engines[n % 2]) for n in range(COUNTS)))
        assert sorted(numbers) == list(range(1, COUNTS + 1))
        (policy,) = await listed(world.engine, Kind.POLICY)
        assert (policy.version, policy.body) == (COUNTS, b"%d" % COUNTS)

    async def test_no_update_is_lost_within_a_batch(self, world: World) -> None:
        other = await world.reopen()
        batches = (engine.execute([Count(tenant=TENANT)] * 30) for engine in (world.engine, other))
        replies = [reply for batch in await asyncio.gather(*batches) for reply in batch]
        numbers = [reply.policy.version for reply in replies if isinstance(reply, Seen) and reply.policy]
        assert sorted(numbers) == list(range(1, 61))

    async def test_what_begins_after_an_answer_comes_after_it(self, world: World) -> None:
        engines = (world.engine, await world.reopen())
        moments = iter(range(COUNTS * 4))
        seen: list[tuple[int, int, int]] = []

        async def client(n: int) -> None:
            for turn in range(10):
                begun = next(moments)
                number = await counted(engines[(n + turn) % 2])
                seen.append((begun, next(moments), number))

        await asyncio.gather(*(client(n) for n in range(COUNTS // 10)))
        for _, ended, number in seen:
            assert all(later > number for begun, _, later in seen if begun > ended)

    async def test_an_answer_is_visible_at_once_to_every_engine(self, world: World) -> None:
        engines = (world.engine, await world.reopen())
        for n in range(10):
            mine, other = engines[n % 2], engines[1 - n % 2]
            created = await ask(mine, submit(f"k{n}"), Created)
            found = await ask(other, LookUp(tenant=TENANT, record_id=key_id(f"k{n}")), Found)
            assert found.job == created.job
            by_id = await ask(other, LookUpJob(tenant=TENANT, job_id=created.job.id), Found)
            assert by_id.job == created.job
            page = await other.scan(JobPage(tenant=TENANT, limit=1))
            assert page.items == [created.job]
            assert await attached(other, created.job.id) == [b'{"n":1}']
            replayed = await ask(other, submit(f"k{n}"), Replayed)
            assert replayed.job == created.job

    async def test_replies_come_in_the_order_of_the_commands(self, world: World) -> None:
        commands = [
            submit(f"k{n}", tenant=(TENANT, OTHER, "third")[n % 3], type=f"type{n % 5}") for n in range(60)
        ]
        replies = await world.engine.execute(commands)
        for command, reply in zip(commands, replies, strict=True):
            assert isinstance(reply, Created)
            assert (reply.job.id, reply.job.tenant) == (command.job_id, command.tenant)

    async def test_reads_and_writes_of_one_call_are_each_answered(self, world: World) -> None:
        created = await ask(world.engine, submit(), Created)
        look_up = LookUpJob(tenant=TENANT, job_id=created.job.id)
        replies = await world.engine.execute([look_up, submit("new"), look_up, submit(), look_up])
        assert [type(reply) for reply in replies] == [Found, Created, Found, Replayed, Found]

    async def test_nothing_asked_is_nothing_answered(self, world: World) -> None:
        assert list(await world.engine.execute([])) == []

    async def test_reading_changes_nothing(self, world: World) -> None:
        await world.engine.execute([submit(), reserve("held")])
        facts = one_of_each(OTHER)
        await ask(world.engine, written(*facts), Seen)
        stored = await everything(world.engine)
        (job, *_) = await listed(world.engine, Kind.JOB)
        replies = await world.engine.execute(
            [
                LookUp(tenant=TENANT, record_id=key_id()),
                LookUp(tenant=TENANT, record_id=key_id("no")),
                LookUpJob(tenant=TENANT, job_id=job.id),
                Probe(tenant=TENANT, command=submit()),
                Probe(tenant=TENANT, command=submit("new")),
                Probe(tenant=TENANT, command=reserve("held")),
                Probe(tenant=TENANT, command=reserve("new")),
                look(*facts),
            ]
        )
        assert [type(reply) for reply in replies] == [Found, Missing, Found, *[Foreseen] * 4, Seen]
        for query in _every_query(job.id):
            await world.engine.scan(query)
        await ask(world.engine, submit(), Replayed)
        assert await everything(world.engine) == stored
        assert await everything(await world.reopen()) == stored


async def counted(engine: Engine) -> int:
    reply = await ask(engine, Count(tenant=TENANT), Seen)
    assert reply.policy is not None
    return reply.policy.version


def _every_query(job_id: bytes) -> list[Query[Any]]:
    return [
        JobPage(tenant=TENANT),
        *(Listing(tenant=TENANT, kind=kind) for kind in Kind),
        *(Attachments(tenant=TENANT, job_id=job_id, beside=beside) for beside in Beside),
        *(Due(kind=kind) for kind in (Kind.RECORD, Kind.JOB, Kind.STREAM)),
        Ready(types=(TYPE,)),
        Ready(types=(TYPE,), tenant=TENANT),
        Waiting(types=(TYPE,)),
        Inputs(job_ids=(job_id,)),
        Held(tenant=TENANT, holder=b"h"),
    ]
