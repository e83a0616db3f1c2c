"""The closed list of queries: right, in order, bounded, and honest about whether there is more."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from onejob.core.facts import Beside, Fact, Job, Kind
from onejob.core.states import CLAIMABLE, JobState
from onejob.core.upkeep import due_place
from onejob.engine import Attachments, Due, Engine, Held, JobPage, Listing, Query, Ready

from .commands import Seen, look, written
from .samples import (
    OTHER,
    TENANT,
    TYPE,
    a_job,
    a_policy,
    a_record,
    a_stream,
    a_tally,
    add,
)
from .world import World, ask

FEW = 5


class Queries:
    async def test_jobs_are_paged_newest_first(self, world: World) -> None:
        jobs = await stored(world.engine, [a_job() for _ in range(FEW)])
        await stored(world.engine, [a_job(OTHER)])
        newest = jobs[::-1]
        await self.bounded(world.engine, JobPage(tenant=TENANT), newest)
        for n, job in enumerate(newest):
            page = await world.engine.scan(JobPage(tenant=TENANT, before=job.id, limit=2))
            assert page.items == newest[n + 1 : n + 3]
            assert page.more == (n + 3 < FEW)

    async def test_jobs_are_filtered_by_state_type_and_user(self, world: World) -> None:
        jobs = [
            a_job(state=state, type=type, user=user)
            for state in JobState
            for type in ("a", "b")
            for user in ("x", "y")
        ]
        await stored(world.engine, jobs)
        for state in (None, *JobState):
            for type in (None, "a", "b", "none"):
                for user in (None, "x", "none"):
                    query = JobPage(tenant=TENANT, state=state, type=type, user=user)
                    found = (await world.engine.scan(query)).items
                    assert found == [
                        job
                        for job in jobs[::-1]
                        if state in (None, job.state)
                        and type in (None, job.type)
                        and user in (None, job.user)
                    ]
        query = JobPage(tenant=TENANT, state=JobState.PENDING, type="a", user="x", before=jobs[-1].id)
        assert len((await world.engine.scan(query)).items) == 1

    async def test_jobs_are_found_by_the_tally_that_counts_them(self, world: World) -> None:
        tally, other = a_tally("x"), a_tally("y")
        jobs = [a_job(slot=mark, user="x") for mark in (tally.id, b"", other.id, tally.id, tally.id)]
        await stored(world.engine, jobs)
        marked = [jobs[4], jobs[3], jobs[0]]
        await self.bounded(world.engine, JobPage(tenant=TENANT, slot=tally.id), marked)
        page = await world.engine.scan(JobPage(tenant=TENANT, slot=tally.id, before=jobs[3].id))
        assert page.items == [jobs[0]]
        assert (await world.engine.scan(JobPage(tenant=OTHER, slot=tally.id))).items == []

    @pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name.lower())
    async def test_facts_are_listed_in_the_order_of_their_identities(self, world: World, kind: Kind) -> None:
        facts = sorted((_MAKERS[kind](n, TENANT) for n in range(FEW)), key=lambda fact: fact.id)
        await stored(world.engine, facts)
        await stored(world.engine, [_MAKERS[kind](n, OTHER) for n in range(2)])
        await self.bounded(world.engine, Listing(tenant=TENANT, kind=kind), facts)
        for n, fact in enumerate(facts):
            page = await world.engine.scan(Listing(tenant=TENANT, kind=kind, after=fact.id, limit=2))
            assert page.items == facts[n + 1 : n + 3]
            assert page.more == (n + 3 < FEW)
        for other in set(Kind) - {kind}:
            assert (await world.engine.scan(Listing(tenant=TENANT, kind=other))).items == []

    async def test_attachments_are_paged_by_their_index(self, world: World) -> None:
        job, other = a_job(), a_job()
        indices = (0, 1, 7, 2**63 - 1, 2**63, 2**64 - 1)
        lines = [add(job.id, b"%d" % n, beside=Beside.LOG, index=n) for n in indices]
        apart = (add(job.id), add(job.id, beside=Beside.PROGRESS, index=3))
        await ask(world.engine, written(job, adds=(*lines[::-1], *apart)), Seen)
        await ask(world.engine, written(other, adds=(add(other.id, beside=Beside.LOG),)), Seen)
        query = Attachments(tenant=TENANT, job_id=job.id, beside=Beside.LOG)
        await self.bounded(world.engine, query, lines)
        for start in (0, 1, 2, 7, 8, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1):
            page = await world.engine.scan(replace(query, start=start))
            assert page.items == [line for line in lines if line.index >= start]
        assert (await world.engine.scan(replace(query, beside=Beside.RESULT))).items == []
        assert (await world.engine.scan(replace(query, job_id=a_job().id))).items == []

    async def test_a_record_is_due_when_its_window_and_its_lease_are_over(self, world: World) -> None:
        now = await self.now(world)
        await stored(
            world.engine,
            [
                a_record("leased", expires_at=now - 9, lease_until=now),
                a_record("last millisecond", expires_at=now),
            ],
        )
        due = await stored(
            world.engine,
            [
                a_record("lapsed", OTHER, expires_at=now - 2, lease_until=now - 3),
                a_record("a", expires_at=now - 1),
            ],
        )
        await self.due(world, Kind.RECORD, due, later=2)

    async def test_a_job_is_due_after_its_moment_if_it_has_one(self, world: World) -> None:
        now = await self.now(world)
        await stored(world.engine, [a_job(), a_job(due_at=now), a_job(due_at=now)])
        due = await stored(world.engine, [a_job(due_at=now - 2), a_job(OTHER, due_at=now - 1)])
        await self.due(world, Kind.JOB, due, later=2)

    async def test_a_stream_is_due_after_its_moment_if_it_has_one(self, world: World) -> None:
        now = await self.now(world)
        await stored(world.engine, [a_stream("never", expires_at=0), a_stream("soon", expires_at=now)])
        due = await stored(
            world.engine, [a_stream("a", expires_at=now - 2), a_stream("b", OTHER, expires_at=now - 1)]
        )
        await self.due(world, Kind.STREAM, due, later=1)

    async def test_what_is_due_is_paged_by_its_place(self, world: World) -> None:
        now = await self.now(world)
        makers: dict[Kind, Any] = {
            Kind.RECORD: lambda n: a_record(f"k{n}", expires_at=now - FEW + n // 2),
            Kind.JOB: lambda n: a_job(due_at=now - FEW + n // 2),
            Kind.STREAM: lambda n: a_stream(f"c{n}", expires_at=now - FEW + n // 2),
        }
        for kind, made in makers.items():
            facts = sorted((made(n) for n in range(FEW)), key=due_place)
            await stored(world.engine, facts)
            for n, fact in enumerate(facts):
                page = await world.engine.scan(Due(kind=kind, after=due_place(fact), limit=2))
                assert page.items == facts[n + 1 : n + 3]
                assert page.more == (n + 3 < FEW)

    async def test_ready_jobs_come_most_urgent_first(self, world: World) -> None:
        ready = [
            a_job(priority=9, run_at=5),
            a_job(OTHER, priority=1),
            a_job(),
            a_job(state=JobState.SCHEDULED),
            a_job(run_at=1, state=JobState.SCHEDULED),
            a_job(run_at=2),
            a_job(priority=-1),
        ]
        await stored(world.engine, ready[::-1])
        await self.bounded(world.engine, Ready(types=(TYPE,)), ready)
        await self.bounded(world.engine, Ready(types=("none", TYPE, "other")), ready)
        for types in ((), ("none",), ("MAIL",)):
            assert (await world.engine.scan(Ready(types=types))).items == []

    async def test_only_a_job_that_could_be_claimed_is_ready(self, world: World) -> None:
        now = await self.now(world)
        await stored(world.engine, [a_job(state=state) for state in sorted(set(JobState) - CLAIMABLE)])
        waiting = [
            a_job(run_at=now + 40),
            a_job(run_at=now + 41),
            a_job(lease_until=now + 39),
            a_job(lease_until=now + 40),
        ]
        await stored(world.engine, waiting)
        assert (await world.engine.scan(Ready(types=(TYPE,)))).items == []
        await world.advance(40)
        ready = (await world.engine.scan(Ready(types=(TYPE,)))).items
        assert ready == [waiting[2], waiting[0]] or await self.now(world) > now + 40

    async def test_several_types_are_ready_in_one_order(self, world: World) -> None:
        jobs = [a_job(type="ab"[n % 2], priority=-n) for n in range(6)]
        await stored(world.engine, jobs)
        await self.bounded(world.engine, Ready(types=("a", "b")), jobs)
        await self.bounded(world.engine, Ready(types=("b",)), jobs[1::2])

    async def test_a_holder_finds_what_it_has_while_the_lease_lives(self, world: World) -> None:
        now = await self.now(world)
        until = now + 1000
        mine = [a_job(holder=b"me", lease_until=until + n, state=state) for n, state in enumerate(JobState)]
        others = [
            a_job(holder=b"me", lease_until=0),
            a_job(holder=b"me", lease_until=now - 1),
            a_job(holder=b"other", lease_until=until),
            a_job(OTHER, holder=b"me", lease_until=until),
        ]
        await stored(world.engine, [*mine, *others])
        await self.bounded(world.engine, Held(tenant=TENANT, holder=b"me"), mine)
        assert (await world.engine.scan(Held(tenant=TENANT, holder=b"none"))).items == []
        await world.advance(until + 1 - await self.now(world))
        assert mine[0] not in (await world.engine.scan(Held(tenant=TENANT, holder=b"me"))).items

    async def bounded(self, engine: Engine, query: Query[Any], expected: Sequence[Any]) -> None:
        """Whatever the bound, a page is a beginning of the whole and says whether there is more."""
        for limit in range(1, len(expected) + 2):
            page = await engine.scan(replace(query, limit=limit))
            assert page.items == list(expected[:limit])
            assert page.more == (limit < len(expected))

    async def due(self, world: World, kind: Kind, expected: Sequence[Fact], *, later: int) -> None:
        other = await world.reopen()
        await self.bounded(other, Due(kind=kind), expected)
        await world.advance(1)
        page = await other.scan(Due(kind=kind))
        assert len(page.items) == len(expected) + later

    async def now(self, world: World) -> int:
        return (await ask(world.engine, look(a_policy("none")), Seen)).at


async def stored(engine: Engine, facts: Sequence[Any]) -> Sequence[Any]:
    for reply in await engine.execute([written(fact) for fact in facts]):
        assert isinstance(reply, Seen)
    return facts


def _job(n: int, tenant: str) -> Job:
    return a_job(tenant, priority=n)


_MAKERS: dict[Kind, Any] = {
    Kind.RECORD: lambda n, tenant: a_record(f"k{n}", tenant),
    Kind.JOB: _job,
    Kind.STREAM: lambda n, tenant: a_stream(f"c{n}", tenant),
    Kind.TALLY: lambda n, tenant: a_tally(f"u{n}", tenant),
    Kind.POLICY: lambda n, tenant: a_policy(f"p{n}", tenant),
}
