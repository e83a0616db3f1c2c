"""All or nothing: a step is stored whole, and a put is insert-if-absent or update-if-version, never an upsert."""

from typing import Any

import pytest
from msgspec.structs import replace

from onejob.core.facts import U64, Beside, Fact, Kind
from onejob.core.receipt import Cancelled, Created, Defect, Tended
from onejob.core.states import JobState
from onejob.core.step import Cut, Footprint
from onejob.core.upkeep import Purge
from onejob.core.work import Cancel

from .commands import Seen, Write, look, written
from .samples import ACTOR, TENANT, a_job, a_record, a_tally, add, one_of_each, submit
from .world import World, ask, attached, everything, listed

each_kind = pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name.lower())


class Atomicity:
    async def test_all_kinds_of_fact_are_stored_in_one_step(self, world: World) -> None:
        facts = one_of_each()
        before = await ask(world.engine, written(*facts, adds=(add(facts[1].id, b"input"),)), Seen)
        assert before.facts == ()
        for engine in (world.engine, await world.reopen()):
            assert (await ask(engine, look(*facts), Seen)).facts == facts
            assert await attached(engine, facts[1].id) == [b"input"]

    @each_kind
    async def test_an_update_replaces_what_it_changes_and_leaves_the_rest(
        self, world: World, kind: Kind
    ) -> None:
        facts = one_of_each()
        await ask(world.engine, written(*facts), Seen)
        for version in (2, 3):
            newer = replace(facts[kind], version=version, **_CHANGES[kind])
            await ask(world.engine, written(newer), Seen)
            kept = tuple(newer if fact is facts[kind] else fact for fact in facts)
            assert (await ask(await world.reopen(), look(*facts), Seen)).facts == kept

    @each_kind
    async def test_a_drop_removes_one_fact_and_leaves_the_rest(self, world: World, kind: Kind) -> None:
        # Without the record's job, which a purged record would take along.
        facts: list[Fact] = [a_record(), *one_of_each()[1:]]
        await ask(world.engine, written(*facts), Seen)
        gone = facts.pop(kind)
        assert (await ask(world.engine, _purge(gone), Tended)).changed
        assert (await ask(world.engine, look(gone, *facts), Seen)).facts == tuple(facts)
        assert not (await ask(world.engine, _purge(gone), Tended)).changed

    @each_kind
    async def test_a_put_never_replaces_what_it_did_not_expect(self, world: World, kind: Kind) -> None:
        fact = one_of_each()[kind]
        for version in (2, 3):
            await ask(world.engine, written(replace(fact, version=version)), Defect)
        assert await everything(world.engine) == []

        await ask(world.engine, written(fact), Seen)
        for version in (1, 3):
            other = replace(fact, version=version, **_CHANGES[kind])
            await ask(world.engine, written(other), Defect)
        assert await everything(world.engine) == [fact]

    @each_kind
    async def test_what_was_dropped_can_be_made_anew(self, world: World, kind: Kind) -> None:
        fact = one_of_each()[kind]
        again = replace(fact, **_CHANGES[kind])
        for command in (written(fact), _purge(fact), written(again)):
            await world.engine.execute([command])
        assert await everything(await world.reopen()) == [again]

    async def test_a_step_that_cannot_be_stored_whole_leaves_no_trace(self, world: World) -> None:
        record, job, stream, tally, policy = one_of_each()
        whole = written(record, job, stream, replace(tally, live=2**63), policy, adds=(add(job.id),))
        await ask(world.engine, whole, Defect)
        assert await everything(world.engine) == []

    async def test_a_submission_stores_record_job_and_input_together(self, world: World) -> None:
        command = submit()
        created = await ask(world.engine, command, Created)
        for engine in (world.engine, await world.reopen()):
            (record,) = await listed(engine, Kind.RECORD)
            assert record.job_ids == command.job_id
            assert await listed(engine, Kind.JOB) == [created.job]
            assert await attached(engine, command.job_id) == [command.input]

    async def test_an_end_frees_the_slot_in_the_same_step(self, world: World) -> None:
        tally = a_tally(live=2, cost_held=10)
        job = a_job(slot=tally.id, cost_held=4)
        await ask(world.engine, written(job, tally), Seen)
        for _ in range(2):
            reply = await ask(world.engine, Cancel(tenant=TENANT, job_id=job.id, actor=ACTOR), Cancelled)
            assert reply.job.state is JobState.CANCELLED
            (left,) = await listed(world.engine, Kind.TALLY)
            assert (left.live, left.cost_held) == (1, 6)

    async def test_an_attachment_is_written_once(self, world: World) -> None:
        job, record = a_job(), a_record()
        await ask(world.engine, written(job, adds=(add(job.id, b"first"),)), Seen)
        again = Write(tenant=TENANT, record=record, adds=(add(job.id, b"second"),))
        await ask(world.engine, again, Defect)
        assert await everything(world.engine) == [job, add(job.id, b"first")]

    async def test_attachments_go_with_their_job(self, world: World) -> None:
        jobs = [a_job(), a_job()]
        for job in jobs:
            adds = tuple(add(job.id, b"%d" % beside, beside=beside) for beside in Beside)
            await ask(world.engine, written(job, adds=adds), Seen)
        await ask(world.engine, Purge(tenant=TENANT, job_ids=(jobs[0].id,)), Tended)
        # A job of the same name starts with nothing beside it.
        await ask(world.engine, written(jobs[0], adds=(add(jobs[0].id, b"new"),)), Seen)
        stored = [await attached(world.engine, jobs[0].id, beside) for beside in Beside]
        assert stored == [[b"new"], [], [], [], []]
        kept = [await attached(world.engine, jobs[1].id, beside) for beside in Beside]
        assert kept == [[b"%d" % beside] for beside in Beside]

    async def test_a_cut_removes_one_attachment(self, world: World) -> None:
        job = a_job()
        numbered = tuple(add(job.id, b"%d" % n, beside=Beside.LOG, index=n) for n in range(3))
        await ask(world.engine, written(job, adds=(add(job.id, b"input"), *numbered)), Seen)
        cut = Write(tenant=TENANT, cuts=(Cut(job.id, Beside.LOG, 1), Cut(job.id, Beside.LOG, 7)))
        await ask(world.engine, cut, Seen)
        assert await attached(world.engine, job.id, Beside.LOG) == [b"0", b"2"]
        assert await attached(world.engine, job.id) == [b"input"]

    async def test_what_one_batch_makes_and_drops_leaves_nothing_behind(self, world: World) -> None:
        job = a_job()
        made = written(job, adds=(add(job.id, b"input"),))
        dropped = Purge(tenant=TENANT, job_ids=(job.id,))
        _, reply = await world.engine.execute([made, dropped])
        assert isinstance(reply, Tended)
        # Either order of the two is right, half of one is not.
        left = [] if reply.changed else [job, add(job.id, b"input")]
        assert await everything(world.engine) == left

    async def test_a_hundred_jobs_fit_one_step(self, world: World) -> None:
        jobs = tuple(a_job() for _ in range(100))
        record = a_record(job_ids=b"".join(job.id for job in jobs))
        await ask(world.engine, written(record, *jobs), Seen)
        followed = Write(tenant=TENANT, within=Footprint(TENANT, record.id, follow_jobs=True))
        assert (await ask(await world.reopen(), followed, Seen)).facts == (record, *jobs)


_CHANGES: dict[Kind, dict[str, Any]] = {
    Kind.RECORD: {"token": 7, "receipt": b"\x00", "sequence": U64(2**63), "changed_at": 2},
    Kind.JOB: {"state": JobState.RUNNING, "lease_until": 9, "error": "späť", "changed_at": 2},
    Kind.STREAM: {"last": U64(2**63 - 1), "evicted": 1, "changed_at": 2},
    Kind.TALLY: {"live": 0, "reservations": {}, "spent": (0, 0, 2**63 - 1), "changed_at": 2},
    Kind.POLICY: {"body": b"", "changed_at": 2},
}


def _purge(fact: Fact) -> Purge:
    where = written(fact).footprint
    return Purge(
        tenant=TENANT,
        record_id=where.record,
        job_ids=where.jobs,
        stream_id=where.stream,
        tally_id=where.tally,
        policy_id=where.policy,
    )
