"""A step is stored completely or not at all; a put inserts if absent or updates one version, never upserts."""

from typing import Any

import pytest
from msgspec.structs import replace

from onejob.core.command import Footprint, Trim
from onejob.core.facts import U64, AttachmentKind, Fact, Kind
from onejob.core.maintenance import Purge
from onejob.core.replies import Cancelled, Created, Defect, Maintained
from onejob.core.states import JobState
from onejob.core.work import Cancel

from .commands import FactsRead, WriteFacts, read_facts, write_facts
from .samples import ACTOR, TENANT, a_job, a_record, a_usage, an_attachment, one_of_each, submit
from .world import World, dump_store, expect, list_facts, read_attachments

each_kind = pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name.lower())


class AtomicityRules:
    async def test_all_kinds_of_fact_are_stored_in_one_step(self, world: World) -> None:
        facts = one_of_each()
        before = await expect(
            world.engine, write_facts(*facts, attachments=(an_attachment(facts[1].id, b"input"),)), FactsRead
        )
        assert before.facts == ()
        for engine in (world.engine, await world.open_another()):
            assert (await expect(engine, read_facts(*facts), FactsRead)).facts == facts
            assert await read_attachments(engine, facts[1].id) == [b"input"]

    @each_kind
    async def test_an_update_replaces_one_fact_and_keeps_the_others(self, world: World, kind: Kind) -> None:
        facts = one_of_each()
        await expect(world.engine, write_facts(*facts), FactsRead)
        for version in (2, 3):
            newer = replace(facts[kind], version=version, **_CHANGES[kind])
            await expect(world.engine, write_facts(newer), FactsRead)
            expected = tuple(newer if fact is facts[kind] else fact for fact in facts)
            assert (await expect(await world.open_another(), read_facts(*facts), FactsRead)).facts == expected

    @each_kind
    async def test_a_drop_removes_one_fact_and_keeps_the_others(self, world: World, kind: Kind) -> None:
        # The record has no job, because a purge of the record would delete its job too.
        facts: list[Fact] = [a_record(), *one_of_each()[1:]]
        await expect(world.engine, write_facts(*facts), FactsRead)
        dropped = facts.pop(kind)
        assert (await expect(world.engine, _purge(dropped), Maintained)).changed
        assert (await expect(world.engine, read_facts(dropped, *facts), FactsRead)).facts == tuple(facts)
        assert not (await expect(world.engine, _purge(dropped), Maintained)).changed

    @each_kind
    async def test_a_put_never_replaces_another_version(self, world: World, kind: Kind) -> None:
        fact = one_of_each()[kind]
        for version in (2, 3):
            await expect(world.engine, write_facts(replace(fact, version=version)), Defect)
        assert await dump_store(world.engine) == []

        await expect(world.engine, write_facts(fact), FactsRead)
        for version in (1, 3):
            other = replace(fact, version=version, **_CHANGES[kind])
            await expect(world.engine, write_facts(other), Defect)
        assert await dump_store(world.engine) == [fact]

    @each_kind
    async def test_a_dropped_fact_can_be_created_again(self, world: World, kind: Kind) -> None:
        fact = one_of_each()[kind]
        again = replace(fact, **_CHANGES[kind])
        for command in (write_facts(fact), _purge(fact), write_facts(again)):
            await world.engine.execute([command])
        assert await dump_store(await world.open_another()) == [again]

    async def test_a_step_that_cannot_be_stored_completely_stores_nothing(self, world: World) -> None:
        record, job, stream, usage, policy, memo = one_of_each()
        step_with_overflow = write_facts(
            record, job, stream, replace(usage, live=2**63), policy, memo, attachments=(an_attachment(job.id),)
        )
        await expect(world.engine, step_with_overflow, Defect)
        assert await dump_store(world.engine) == []

    async def test_a_submission_stores_record_job_and_input_together(self, world: World) -> None:
        command = submit()
        created = await expect(world.engine, command, Created)
        for engine in (world.engine, await world.open_another()):
            (record,) = await list_facts(engine, Kind.RECORD)
            assert record.job_ids == command.job_id
            assert await list_facts(engine, Kind.JOB) == [created.job]
            assert await read_attachments(engine, command.job_id) == [command.input]

    async def test_the_end_of_a_job_frees_its_slot_in_the_same_step(self, world: World) -> None:
        usage = a_usage(live=2, cost_held=10)
        job = a_job(usage_id=usage.id, cost_held=4)
        await expect(world.engine, write_facts(job, usage), FactsRead)
        for _ in range(2):
            reply = await expect(world.engine, Cancel(tenant=TENANT, job_id=job.id, actor=ACTOR), Cancelled)
            assert reply.job.state is JobState.CANCELLED
            (remaining,) = await list_facts(world.engine, Kind.USAGE)
            assert (remaining.live, remaining.cost_held) == (1, 6)

    async def test_an_attachment_is_written_once(self, world: World) -> None:
        job, record = a_job(), a_record()
        await expect(world.engine, write_facts(job, attachments=(an_attachment(job.id, b"first"),)), FactsRead)
        again = WriteFacts(tenant=TENANT, record=record, attachments=(an_attachment(job.id, b"second"),))
        await expect(world.engine, again, Defect)
        assert await dump_store(world.engine) == [job, an_attachment(job.id, b"first")]

    async def test_attachments_are_deleted_with_their_job(self, world: World) -> None:
        jobs = [a_job(), a_job()]
        for job in jobs:
            attachments = tuple(an_attachment(job.id, b"%d" % kind, kind=kind) for kind in AttachmentKind)
            await expect(world.engine, write_facts(job, attachments=attachments), FactsRead)
        await expect(world.engine, Purge(tenant=TENANT, job_ids=(jobs[0].id,)), Maintained)
        # A job that is created again under the same id starts without attachments.
        await expect(world.engine, write_facts(jobs[0], attachments=(an_attachment(jobs[0].id, b"new"),)), FactsRead)
        stored = [await read_attachments(world.engine, jobs[0].id, kind) for kind in AttachmentKind]
        assert stored == [[b"new"] if kind is AttachmentKind.INPUT else [] for kind in AttachmentKind]
        expected = [await read_attachments(world.engine, jobs[1].id, kind) for kind in AttachmentKind]
        assert expected == [[b"%d" % kind] for kind in AttachmentKind]

    async def test_a_trim_removes_one_attachment(self, world: World) -> None:
        job = a_job()
        numbered = tuple(an_attachment(job.id, b"%d" % n, kind=AttachmentKind.LOG, index=n) for n in range(3))
        await expect(
            world.engine, write_facts(job, attachments=(an_attachment(job.id, b"input"), *numbered)), FactsRead
        )
        trim = WriteFacts(
            tenant=TENANT, trims=(Trim(job.id, AttachmentKind.LOG, 1), Trim(job.id, AttachmentKind.LOG, 7))
        )
        await expect(world.engine, trim, FactsRead)
        assert await read_attachments(world.engine, job.id, AttachmentKind.LOG) == [b"0", b"2"]
        assert await read_attachments(world.engine, job.id) == [b"input"]

    async def test_a_job_created_and_purged_in_one_batch_leaves_nothing_behind(self, world: World) -> None:
        job = a_job()
        create = write_facts(job, attachments=(an_attachment(job.id, b"input"),))
        dropped = Purge(tenant=TENANT, job_ids=(job.id,))
        _, reply = await world.engine.execute([create, dropped])
        assert isinstance(reply, Maintained)
        # Both orders are correct, half of a command is not.
        remaining = [] if reply.changed else [job, an_attachment(job.id, b"input")]
        assert await dump_store(world.engine) == remaining

    async def test_a_hundred_jobs_fit_one_step(self, world: World) -> None:
        jobs = tuple(a_job() for _ in range(100))
        record = a_record(job_ids=b"".join(job.id for job in jobs))
        await expect(world.engine, write_facts(record, *jobs), FactsRead)
        follow_jobs = WriteFacts(tenant=TENANT, footprint_override=Footprint(TENANT, record.id, follow_jobs=True))
        assert (await expect(await world.open_another(), follow_jobs, FactsRead)).facts == (record, *jobs)


_CHANGES: dict[Kind, dict[str, Any]] = {
    Kind.RECORD: {"token": 7, "receipt": b"\x00", "sequence": U64(2**63), "changed_at": 2},
    Kind.JOB: {"state": JobState.RUNNING, "lease_until": 9, "error": "späť", "changed_at": 2},
    Kind.STREAM: {"last": U64(2**63 - 1), "evicted": 1, "changed_at": 2},
    Kind.USAGE: {"live": 0, "reservations": {}, "spent": (0, 0, 2**63 - 1), "changed_at": 2},
    Kind.POLICY: {"body": b"", "changed_at": 2},
    Kind.MEMO: {"ended_at": 2, "result": b"", "changed_at": 2},
}


def _purge(fact: Fact) -> Purge:
    footprint = write_facts(fact).footprint
    return Purge(
        tenant=TENANT,
        record_id=footprint.record,
        job_ids=footprint.jobs,
        stream_id=footprint.stream,
        usage_id=footprint.usage,
        policy_id=footprint.policy,
        memo_id=footprint.memo,
    )
