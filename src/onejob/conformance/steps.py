"""A step of a handler begins only in the running attempt, finishes once, and its memo goes with its job."""

from typing import Any

import pytest

from onejob.core.facts import Job, Kind
from onejob.core.maintenance import Purge
from onejob.core.memo import BeginStep, FinishStep
from onejob.core.replies import AnyReply, Maintained, Missing, Reason, Refused, Started, StepBegun, StepFinished
from onejob.core.states import Delivery, JobState
from onejob.core.work import Claim
from onejob.engine import Engine
from onejob.ids import new_holder

from .commands import FactsRead, write_facts
from .queries import store_facts
from .samples import TENANT, a_job, a_memo
from .world import World, expect, list_facts, race

RACERS = 8


class StepRules:
    async def test_a_finished_step_is_answered_in_every_later_attempt(self, world: World) -> None:
        job = await start_attempt(world.engine)
        begin = begin_step(job)
        begun = await expect(world.engine, begin, StepBegun)
        finished = await expect(world.engine, finish_step(begin, b'{"paid":1}'), StepFinished)
        assert finished.memo.result == b'{"paid":1}'
        later = await start_attempt(world.engine, job)
        assert later.token == job.token + 1
        for engine in (world.engine, await world.open_another()):
            found = await expect(engine, begin_step(later), StepFinished)
            assert (found.memo.result, found.memo.began_at) == (b'{"paid":1}', begun.memo.began_at)
        assert (await list_facts(world.engine, Kind.JOB))[0].memos == 1

    async def test_a_stale_attempt_begins_and_finishes_nothing(self, world: World) -> None:
        stale = await start_attempt(world.engine)
        begun_before = begin_step(stale)
        await expect(world.engine, begun_before, StepBegun)
        job = await start_attempt(world.engine, stale)
        await assert_refused(world.engine, begin_step(stale, "other"), Reason.STALE)
        await assert_refused(world.engine, begin_step(stale), Reason.STALE)
        await expect(world.engine, begin_step(job), StepBegun)
        await assert_refused(world.engine, finish_step(begun_before), Reason.STALE)

    async def test_a_repeated_begin_and_finish_get_the_same_answer(self, world: World) -> None:
        begin = begin_step(await start_attempt(world.engine), delivery=Delivery.AT_MOST_ONCE)
        first, again = [await expect(world.engine, begin, StepBegun) for _ in range(2)]
        assert again.memo == first.memo
        finish = finish_step(begin)
        first_end, end_again = [await expect(world.engine, finish, StepFinished) for _ in range(2)]
        assert end_again.memo == first_end.memo
        await assert_refused(world.engine, finish_step(begin, b"2"), Reason.STALE)

    async def test_an_interrupted_step_runs_again_unless_it_runs_at_most_once(self, world: World) -> None:
        job = await start_attempt(world.engine)
        await expect(world.engine, begin_step(job), StepBegun)
        later = await start_attempt(world.engine, job)
        await assert_refused(world.engine, begin_step(later, delivery=Delivery.AT_MOST_ONCE), Reason.STEP_INTERRUPTED)
        assert (await expect(world.engine, begin_step(later), StepBegun)).memo.runs == 2

    async def test_other_arguments_under_one_name_are_a_conflict(self, world: World) -> None:
        job = await start_attempt(world.engine)
        begin = begin_step(job)
        await expect(world.engine, begin, StepBegun)
        for _ in ("begun", "finished"):
            await assert_refused(world.engine, begin_step(job, fingerprint=b"other"), Reason.STEP_CONFLICT)
            await world.engine.execute([finish_step(begin)])

    @pytest.mark.parametrize("delivery", Delivery)
    async def test_of_racing_calls_one_finishes(self, world: World, delivery: Delivery) -> None:
        job = await start_attempt(world.engine)
        engines = [world.engine, *[await world.open_another() for _ in range(2)]]
        calls = [begin_step(job, delivery=delivery) for _ in range(RACERS)]
        begun = [reply for reply in await race(engines, calls) if isinstance(reply, StepBegun)]
        assert len(begun) == (1 if delivery is Delivery.AT_MOST_ONCE else RACERS)
        ends = await race(engines, [finish_step(call, b"%d" % n) for n, call in enumerate(calls)])
        assert sum(isinstance(end, StepFinished) for end in ends) == 1
        assert (await list_facts(world.engine, Kind.JOB))[0].memos == 1

    async def test_memos_are_deleted_with_their_job(self, world: World) -> None:
        jobs = [a_job(), a_job()]
        kept = a_memo("b", job_id=jobs[1].id)
        await store_facts(world.engine, [*jobs, a_memo("a", job_id=jobs[0].id), a_memo("b", job_id=jobs[0].id), kept])
        await expect(world.engine, Purge(tenant=TENANT, job_ids=(jobs[0].id,)), Maintained)
        assert await list_facts(world.engine, Kind.MEMO) == [kept]

    async def test_a_memo_written_and_deleted_with_its_job_in_one_batch_is_gone(self, world: World) -> None:
        job = await start_attempt(world.engine)
        await expect(world.engine, begin_step(job), StepBegun)
        begin, purge = begin_step(job, "second"), Purge(tenant=TENANT, job_ids=(job.id,))
        replies: list[AnyReply] = list(await world.engine.execute([begin, purge, finish_step(begin), begin_step(job)]))
        assert [type(reply) for reply in replies] in (
            [StepBegun, Maintained, Missing, Missing],
            [StepBegun, Maintained, StepFinished, Missing],
            [Missing, Maintained, Missing, Missing],
        )
        assert await list_facts(world.engine, Kind.MEMO) == []
        await expect(world.engine, write_facts(job_as_new(job)), FactsRead)
        assert await list_facts(world.engine, Kind.MEMO) == []


async def start_attempt(engine: Engine, earlier: Job | None = None) -> Job:
    """A running job; with an earlier attempt, the next attempt of the same job."""
    if earlier is None:
        (job,) = await store_facts(engine, [a_job(attempts_max=9)])
    else:
        (stored,) = [job for job in await list_facts(engine, Kind.JOB) if job.id == earlier.id]
        job = job_as_new(stored, version=stored.version + 1, token=stored.token, memos=stored.memos)
        await store_facts(engine, [job])
    claim = Claim(tenant=TENANT, job_id=job.id, holder=new_holder(), lease_ms=60_000, start=True)
    return (await expect(engine, claim, Started)).job


def job_as_new(job: Job, **changes: Any) -> Job:
    return a_job(id=job.id, attempts_max=9, state=JobState.PENDING, **changes)


def begin_step(job: Job, name: str = "charge", **options: Any) -> BeginStep:
    fields: dict[str, Any] = {"fingerprint": b"arguments", "step_holder": new_holder()} | options
    return BeginStep(tenant=job.tenant, job_id=job.id, token=job.token, holder=job.holder, name=name, **fields)


def finish_step(begin: BeginStep, result: bytes = b"1") -> FinishStep:
    return FinishStep(
        tenant=begin.tenant,
        job_id=begin.job_id,
        name=begin.name,
        token=begin.token,
        step_holder=begin.step_holder,
        result=result,
    )


async def assert_refused(engine: Engine, command: BeginStep | FinishStep, reason: Reason) -> None:
    assert (await expect(engine, command, Refused)).reason is reason
