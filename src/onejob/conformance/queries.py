"""Every query returns the right items, in order, within its limit, and tells whether there are more."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from onejob.core.facts import AttachmentKind, Fact, Job, Kind
from onejob.core.identity import created_ms
from onejob.core.maintenance import due_sort_key
from onejob.core.states import CLAIMABLE_STATES, JobState
from onejob.engine import (
    CountCommits,
    CountJobs,
    CountKeys,
    CountReadyJobs,
    Engine,
    JobCount,
    ListAttachments,
    ListDueFacts,
    ListFacts,
    ListJobs,
    ListLeasedJobs,
    ListReadyJobs,
    Query,
    ReadyCount,
)

from .commands import FactsRead, write_facts
from .samples import OTHER, TENANT, TYPE, a_job, a_memo, a_policy, a_record, a_stream, a_usage, an_attachment
from .world import World, expect, read_time

FEW = 5


class QueryRules:
    async def test_jobs_are_paged_newest_first(self, world: World) -> None:
        jobs = await store_facts(world.engine, [a_job() for _ in range(FEW)])
        await store_facts(world.engine, [a_job(OTHER)])
        newest = jobs[::-1]
        await self.assert_pages(world.engine, ListJobs(tenant=TENANT), newest)
        for n, job in enumerate(newest):
            page = await world.engine.scan(ListJobs(tenant=TENANT, before=job.id, limit=2))
            assert page.items == newest[n + 1 : n + 3]
            assert page.more == (n + 3 < FEW)

    async def test_jobs_are_filtered_by_state_type_and_user(self, world: World) -> None:
        jobs = [
            a_job(state=state, type=type, user=user) for state in JobState for type in ("a", "b") for user in ("x", "y")
        ]
        await store_facts(world.engine, jobs)
        for state in (None, *JobState):
            for type in (None, "a", "b", "none"):
                for user in (None, "x", "none"):
                    query = ListJobs(tenant=TENANT, state=state, type=type, user=user)
                    found = (await world.engine.scan(query)).items
                    assert found == [
                        job
                        for job in jobs[::-1]
                        if state in (None, job.state) and type in (None, job.type) and user in (None, job.user)
                    ]
        query = ListJobs(tenant=TENANT, state=JobState.PENDING, type="a", user="x", before=jobs[-1].id)
        assert len((await world.engine.scan(query)).items) == 1

    async def test_jobs_are_filtered_by_label_and_time(self, world: World) -> None:
        now = await read_time(world.engine)
        labels = (
            b"",
            b'{"a":"b"}',
            b'{"x":"y","a":"b"}',
            b'{"a":"bc"}',
            b'{"x\\"a":"b"}',
            b'{"x,\\"a":"b"}',
            b'{"x":",\\"a\\":\\"b"}',
        )
        jobs = [
            a_job(id=now.to_bytes(6, "big") + bytes([n]) * 10, labels=label, created_at=now - 10 + n)
            for n, label in enumerate(labels)
        ]
        await store_facts(world.engine, jobs)
        await self.assert_pages(world.engine, ListJobs(tenant=TENANT, label=b'"a":"b"'), [jobs[2], jobs[1]])
        assert (await world.engine.scan(ListJobs(tenant=OTHER, label=b'"a":"b"'))).items == []
        for first, last in ((0, 6), (2, 4), (3, 3), (5, 1)):
            query = ListJobs(tenant=TENANT, created_from=now - 10 + first, created_to=now - 10 + last)
            await self.assert_pages(world.engine, query, jobs[first : last + 1][::-1])
            assert (await world.engine.scan(replace(query, state=JobState.LOST))).items == []

    async def test_jobs_are_counted_by_type_and_state(self, world: World) -> None:
        numbers = {("a", JobState.PENDING): 3, ("a", JobState.SUCCESS): 2, ("b", JobState.PENDING): 2}
        for (type, state), number in numbers.items():
            await store_facts(world.engine, [a_job(type=type, state=state) for _ in range(number)])
        expected = [JobCount(type, state, number) for (type, state), number in numbers.items()]
        await self.assert_pages(world.engine, CountJobs(tenant=TENANT), expected)
        await store_facts(world.engine, [a_job(OTHER, type="b") for _ in range(2)])
        assert (await world.engine.scan(CountJobs())).items[0] == JobCount("b", JobState.PENDING, 4)
        assert (await world.engine.scan(CountJobs(tenant="none"))).items == []

    async def test_keys_are_counted_by_tenant(self, world: World) -> None:
        await store_facts(world.engine, [a_record(str(n)) for n in range(3)])
        await store_facts(world.engine, [a_record(str(n), OTHER) for n in range(2)])
        for tenant, number in ((TENANT, 3), (OTHER, 2), ("none", 0), (None, 5)):
            page = await world.engine.scan(CountKeys(tenant=tenant))
            assert (page.items, page.more) == ([number], False)

    async def test_commits_are_counted_by_all_engines_on_a_store_or_by_none(self, world: World) -> None:
        other = await world.open_another()
        counts = []
        for engine in (world.engine, other, world.engine):
            await store_facts(engine, [a_job()])
            (before,), (after,) = [
                list((await counting.scan(CountCommits())).items) or [0] for counting in (engine, other)
            ]
            assert before == after >= engine.info.generation
            assert bool(engine.info.generation) <= bool(after)
            counts.append(after)
        assert counts == sorted(set(counts)) or counts == [0, 0, 0]

    async def test_waiting_jobs_are_counted_with_the_age_of_the_oldest(self, world: World) -> None:
        now = await read_time(world.engine)
        first = a_job(type="a")
        await store_facts(
            world.engine,
            [
                first,
                a_job(type="a"),
                a_job(type="a", state=JobState.RUNNING),
                a_job(type="b", run_at=now - 7),
                a_job(type="b", run_at=now + 100_000, state=JobState.SCHEDULED),
                a_job(OTHER, type="b", run_at=now - 9),
            ],
        )
        own = [ReadyCount("a", 2, created_ms(first.id)), ReadyCount("b", 1, now - 7)]
        await self.assert_pages(world.engine, CountReadyJobs(tenant=TENANT), own)
        every = [own[0], ReadyCount("b", 2, now - 9)]
        await self.assert_pages(world.engine, CountReadyJobs(), every)

    async def test_a_policy_is_due_after_its_expiry(self, world: World) -> None:
        now = await read_time(world.engine)
        await store_facts(world.engine, [a_policy("never"), a_policy("soon", expires_at=now)])
        due = await store_facts(
            world.engine, [a_policy("a", expires_at=now - 2), a_policy("b", OTHER, expires_at=now - 1)]
        )
        await self.assert_due(world, Kind.POLICY, due, due_later=1)

    async def test_jobs_are_found_by_the_usage_that_counts_them(self, world: World) -> None:
        usage, other = a_usage("x"), a_usage("y")
        jobs = [a_job(usage_id=slot, user="x") for slot in (usage.id, b"", other.id, usage.id, usage.id)]
        await store_facts(world.engine, jobs)
        counted = [jobs[4], jobs[3], jobs[0]]
        await self.assert_pages(world.engine, ListJobs(tenant=TENANT, usage_id=usage.id), counted)
        page = await world.engine.scan(ListJobs(tenant=TENANT, usage_id=usage.id, before=jobs[3].id))
        assert page.items == [jobs[0]]
        assert (await world.engine.scan(ListJobs(tenant=OTHER, usage_id=usage.id))).items == []

    @pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name.lower())
    async def test_facts_are_listed_in_the_order_of_their_identities(self, world: World, kind: Kind) -> None:
        facts = sorted((_MAKERS[kind](n, TENANT) for n in range(FEW)), key=lambda fact: fact.id)
        await store_facts(world.engine, facts)
        await store_facts(world.engine, [_MAKERS[kind](n, OTHER) for n in range(2)])
        await self.assert_pages(world.engine, ListFacts(tenant=TENANT, kind=kind), facts)
        for n, fact in enumerate(facts):
            page = await world.engine.scan(ListFacts(tenant=TENANT, kind=kind, after=fact.id, limit=2))
            assert page.items == facts[n + 1 : n + 3]
            assert page.more == (n + 3 < FEW)
        for other in set(Kind) - {kind}:
            assert (await world.engine.scan(ListFacts(tenant=TENANT, kind=other))).items == []

    @pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name.lower())
    async def test_facts_of_all_tenants_are_listed_together(self, world: World, kind: Kind) -> None:
        made = [_MAKERS[kind](n, tenant) for n in range(FEW) for tenant in (TENANT, OTHER)]
        await store_facts(world.engine, [fact for fact in made if fact.tenant == TENANT])
        await store_facts(world.engine, [fact for fact in made if fact.tenant == OTHER])
        found: list[Fact] = []
        more = True
        while more:
            after = found[-1].id if found else b""
            page = await world.engine.scan(ListFacts(tenant=None, kind=kind, after=after, limit=2))
            found, more = found + list(page.items), page.more
        own = [
            fact for fact in found if fact.tenant in (TENANT, OTHER)
        ]  # a manager has made the settings of its ledger
        assert own == sorted(made, key=lambda fact: fact.id)
        assert found == sorted(found, key=lambda fact: fact.id)

    async def test_attachments_are_paged_by_their_index(self, world: World) -> None:
        job, other = a_job(), a_job()
        indices = (0, 1, 7, 2**63 - 1, 2**63, 2**64 - 1)
        lines = [an_attachment(job.id, b"%d" % n, kind=AttachmentKind.LOG, index=n) for n in indices]
        others = (an_attachment(job.id), an_attachment(job.id, kind=AttachmentKind.PROGRESS, index=3))
        await expect(world.engine, write_facts(job, attachments=(*lines[::-1], *others)), FactsRead)
        await expect(
            world.engine, write_facts(other, attachments=(an_attachment(other.id, kind=AttachmentKind.LOG),)), FactsRead
        )
        query = ListAttachments(tenant=TENANT, job_id=job.id, kind=AttachmentKind.LOG)
        await self.assert_pages(world.engine, query, lines)
        for start in (0, 1, 2, 7, 8, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1):
            page = await world.engine.scan(replace(query, start=start))
            assert page.items == [line for line in lines if line.index >= start]
        assert (await world.engine.scan(replace(query, kind=AttachmentKind.RESULT))).items == []
        assert (await world.engine.scan(replace(query, job_id=a_job().id))).items == []

    async def test_a_record_is_due_after_its_window_and_its_lease(self, world: World) -> None:
        now = await read_time(world.engine)
        await store_facts(
            world.engine,
            [a_record("leased", expires_at=now - 9, lease_until=now), a_record("last millisecond", expires_at=now)],
        )
        due = await store_facts(
            world.engine,
            [a_record("expired", OTHER, expires_at=now - 2, lease_until=now - 3), a_record("a", expires_at=now - 1)],
        )
        await self.assert_due(world, Kind.RECORD, due, due_later=2)

    async def test_a_job_is_due_after_its_due_time(self, world: World) -> None:
        now = await read_time(world.engine)
        await store_facts(world.engine, [a_job(), a_job(due_at=now), a_job(due_at=now)])
        due = await store_facts(world.engine, [a_job(due_at=now - 2), a_job(OTHER, due_at=now - 1)])
        await self.assert_due(world, Kind.JOB, due, due_later=2)

    async def test_a_stream_is_due_after_its_expiry(self, world: World) -> None:
        now = await read_time(world.engine)
        await store_facts(world.engine, [a_stream("never", expires_at=0), a_stream("soon", expires_at=now)])
        due = await store_facts(
            world.engine, [a_stream("a", expires_at=now - 2), a_stream("b", OTHER, expires_at=now - 1)]
        )
        await self.assert_due(world, Kind.STREAM, due, due_later=1)

    async def test_due_facts_are_paged_by_their_sort_key(self, world: World) -> None:
        now = await read_time(world.engine)
        makers: dict[Kind, Any] = {
            Kind.RECORD: lambda n: a_record(f"k{n}", expires_at=now - FEW + n // 2),
            Kind.JOB: lambda n: a_job(due_at=now - FEW + n // 2),
            Kind.STREAM: lambda n: a_stream(f"c{n}", expires_at=now - FEW + n // 2),
        }
        for kind, make_fact in makers.items():
            facts = sorted((make_fact(n) for n in range(FEW)), key=due_sort_key)
            await store_facts(world.engine, facts)
            for n, fact in enumerate(facts):
                page = await world.engine.scan(ListDueFacts(kind=kind, after=due_sort_key(fact), limit=2))
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
        await store_facts(world.engine, ready[::-1])
        await self.assert_pages(world.engine, ListReadyJobs(types=(TYPE,)), ready)
        await self.assert_pages(world.engine, ListReadyJobs(types=("none", TYPE, "other")), ready)
        for types in ((), ("none",), ("MAIL",)):
            assert (await world.engine.scan(ListReadyJobs(types=types))).items == []

    async def test_only_claimable_jobs_are_ready(self, world: World) -> None:
        now = await read_time(world.engine)
        await store_facts(world.engine, [a_job(state=state) for state in sorted(set(JobState) - CLAIMABLE_STATES)])
        waiting = [
            a_job(run_at=now + 40),
            a_job(run_at=now + 41),
            a_job(lease_until=now + 39),
            a_job(lease_until=now + 40),
        ]
        await store_facts(world.engine, waiting)
        assert (await world.engine.scan(ListReadyJobs(types=(TYPE,)))).items == []
        await world.advance(40)
        ready = (await world.engine.scan(ListReadyJobs(types=(TYPE,)))).items
        assert ready == [waiting[2], waiting[0]] or await read_time(world.engine) > now + 40

    async def test_ready_jobs_of_several_types_have_one_order(self, world: World) -> None:
        jobs = [a_job(type="ab"[n % 2], priority=-n) for n in range(6)]
        await store_facts(world.engine, jobs)
        await self.assert_pages(world.engine, ListReadyJobs(types=("a", "b")), jobs)
        await self.assert_pages(world.engine, ListReadyJobs(types=("b",)), jobs[1::2])

    async def test_a_holder_finds_its_jobs_until_the_lease_ends(self, world: World) -> None:
        now = await read_time(world.engine)
        until = now + 1000
        held = [a_job(holder=b"me", lease_until=until + n, state=state) for n, state in enumerate(JobState)]
        others = [
            a_job(holder=b"me", lease_until=0),
            a_job(holder=b"me", lease_until=now - 1),
            a_job(holder=b"other", lease_until=until),
            a_job(OTHER, holder=b"me", lease_until=until),
        ]
        await store_facts(world.engine, [*held, *others])
        await self.assert_pages(world.engine, ListLeasedJobs(tenant=TENANT, holder=b"me"), held)
        assert (await world.engine.scan(ListLeasedJobs(tenant=TENANT, holder=b"none"))).items == []
        await world.advance(until + 1 - await read_time(world.engine))
        assert held[0] not in (await world.engine.scan(ListLeasedJobs(tenant=TENANT, holder=b"me"))).items

    async def assert_pages(self, engine: Engine, query: Query[Any], expected: Sequence[Any]) -> None:
        """For every limit, a page holds the first items, and `more` tells whether others follow."""
        for limit in range(1, len(expected) + 2):
            page = await engine.scan(replace(query, limit=limit))
            assert page.items == list(expected[:limit])
            assert page.more == (limit < len(expected))

    async def assert_due(self, world: World, kind: Kind, expected: Sequence[Fact], *, due_later: int) -> None:
        other = await world.open_another()
        await self.assert_pages(other, ListDueFacts(kind=kind), expected)
        await world.advance(1)
        page = await other.scan(ListDueFacts(kind=kind))
        assert len(page.items) == len(expected) + due_later


async def store_facts(engine: Engine, facts: Sequence[Any]) -> Sequence[Any]:
    for reply in await engine.execute([write_facts(fact) for fact in facts]):
        assert isinstance(reply, FactsRead)
    return facts


def _job(n: int, tenant: str) -> Job:
    return a_job(tenant, priority=n)


_MAKERS: dict[Kind, Any] = {
    Kind.RECORD: lambda n, tenant: a_record(f"k{n}", tenant),
    Kind.JOB: _job,
    Kind.STREAM: lambda n, tenant: a_stream(f"c{n}", tenant),
    Kind.USAGE: lambda n, tenant: a_usage(f"u{n}", tenant),
    Kind.POLICY: lambda n, tenant: a_policy(f"p{n}", tenant),
    Kind.MEMO: lambda n, tenant: a_memo(f"m{n}", tenant),
}
