"""Ready jobs are found tenant by tenant, and of several workers that claim a job one gets it."""

from onejob.core.facts import Job
from onejob.core.replies import Claimed, Created, Finished, Reason, Refused, Started
from onejob.core.states import CLAIMABLE_STATES, JobState
from onejob.core.work import Claim, Finish, FinishOutcome, Start
from onejob.engine import Backlog, ListBacklogs, ListInputs, ListReadyJobs
from onejob.ids import new_holder, new_job_id

from .queries import store_facts
from .samples import ACTOR, OTHER, TENANT, TYPE, a_job, submit
from .world import World, expect, race, read_time

RACERS = 8


class WorkRules:
    async def test_a_tenants_ready_jobs_come_most_urgent_first(self, world: World) -> None:
        jobs = [a_job(type="ab"[n % 2], priority=-(n // 3), run_at=n % 3) for n in range(12)]
        await store_facts(world.engine, [*jobs[::-1], a_job(OTHER, type="a", priority=9)])
        for types in (("a",), ("b", "a"), ("a", "none", "a"), ()):
            expected = sorted(
                (job for job in jobs if job.type in types), key=lambda job: (-job.priority, job.run_at, job.id)
            )
            for limit in range(1, len(expected) + 2):
                page = await world.engine.scan(ListReadyJobs(types=types, tenant=TENANT, limit=limit))
                assert page.items == expected[:limit]
                assert page.more == (limit < len(expected))
        assert (await world.engine.scan(ListReadyJobs(types=("a",), tenant="none"))).items == []

    async def test_of_a_tenant_only_what_could_be_claimed_is_ready(self, world: World) -> None:
        now = await read_time(world.engine)
        await store_facts(world.engine, [a_job(state=state) for state in sorted(set(JobState) - CLAIMABLE_STATES)])
        ready = a_job(priority=-5)
        await store_facts(
            world.engine,
            [a_job(priority=1, run_at=now + 50), a_job(lease_until=now + 50), a_job(run_at=now + 60), ready],
        )
        assert (await world.engine.scan(ListReadyJobs(types=(TYPE,), tenant=TENANT))).items == [ready]

    async def test_tenants_with_waiting_jobs_are_found_by_name(self, world: World) -> None:
        names = ["a", "b", "c", "d"]
        await store_facts(world.engine, [a_job(name, type="xy"[n % 2]) for n, name in enumerate(names * 2)])
        await store_facts(world.engine, [a_job("e", state=JobState.RUNNING), a_job("f", type="other")])
        for types, tenants in ((("x", "y"), names), (("x",), ["a", "c"]), (("none",), []), ((), [])):
            for limit in range(1, 6):
                page = await world.engine.scan(ListBacklogs(types=types, limit=limit))
                assert page.items == [Backlog(name, 0) for name in tenants[:limit]]
                assert page.more == (limit < len(tenants))
            for name in names:
                page = await world.engine.scan(ListBacklogs(types=types, after=name))
                assert [backlog.tenant for backlog in page.items] == [other for other in tenants if other > name]
                page = await world.engine.scan(ListBacklogs(types=types, tenant=name))
                assert [backlog.tenant for backlog in page.items] == [other for other in tenants if other == name]

    async def test_a_backlog_says_how_long_the_first_of_a_tenants_jobs_must_wait(self, world: World) -> None:
        now = await read_time(world.engine)
        for priority, wait in ((5, 900_000), (0, 600_000), (-5, 700_000)):
            await store_facts(world.engine, [a_job(priority=priority, run_at=now + wait, type="xy"[priority == 0])])
        await store_facts(world.engine, [a_job(OTHER, run_at=now + 900_000), a_job(OTHER, run_at=now - 1)])
        items = (await world.engine.scan(ListBacklogs(types=("x", "y", TYPE)))).items
        assert [backlog.tenant for backlog in items] == [TENANT, OTHER]
        assert 600_000 - 10_000 < items[0].wait_ms <= 600_000
        assert items[1].wait_ms == 0

    async def test_inputs_of_many_jobs_come_at_once(self, world: World) -> None:
        commands = [submit(f"k{n}", tenant=(TENANT, OTHER)[n % 2], input=b'{"n":%d}' % n, type=TYPE) for n in range(5)]
        replies = [await expect(world.engine, command, Created) for command in commands]
        inputs = {backlog.job.id: command.input for backlog, command in zip(replies, commands, strict=True)}
        job_ids = (*inputs, new_job_id(), next(iter(inputs)))
        page = await world.engine.scan(ListInputs(job_ids=job_ids))
        assert [(add.job_id, add.data) for add in page.items] == sorted(inputs.items())
        assert (await world.engine.scan(ListInputs(job_ids=()))).items == []

    async def test_a_race_for_a_job_has_one_winner(self, world: World) -> None:
        (job,) = await store_facts(world.engine, [a_job()])
        engines = [world.engine, *[await world.open_another() for _ in range(2)]]
        claims = [claim(job, start=n % 2 == 0) for n in range(RACERS)]
        replies = await race(engines, claims)
        won = [reply for reply in replies if isinstance(reply, (Claimed, Started))]
        assert len(won) == 1
        assert won[0].job.token == job.token + 1
        lost = [reply for reply in replies if isinstance(reply, Refused)]
        assert {reply.reason for reply in lost} == {Reason.NOT_READY}
        assert len(lost) == RACERS - 1

    async def test_of_many_deliveries_of_one_token_one_starts_and_one_finishes(self, world: World) -> None:
        (job,) = await store_facts(world.engine, [a_job()])
        token = (await expect(world.engine, claim(job), Claimed)).job.token
        engines = [world.engine, await world.open_another()]
        starts = [
            Start(tenant=TENANT, job_id=job.id, token=token, holder=new_holder(), lease_ms=60_000)
            for _ in range(RACERS)
        ]
        started = [reply for reply in await race(engines, starts) if isinstance(reply, Started)]
        assert len(started) == 1
        finishes = [
            Finish(
                tenant=TENANT,
                job_id=job.id,
                token=token,
                holder=start.holder,
                outcome=FinishOutcome.SUCCESS,
                result=b"%d" % n,
                actor=ACTOR,
            )
            for n, start in enumerate(starts)
        ]
        ends = await race(engines, finishes)
        won = [n for n, reply in enumerate(ends) if isinstance(reply, Finished)]
        assert [starts[n].holder for n in won] == [started[0].job.holder]
        again = await expect(world.engine, finishes[won[0]], Finished)
        assert again.job.state is JobState.SUCCESS

    async def test_an_attempt_ends_whatever_its_error_contains(self, world: World) -> None:
        jobs = await store_facts(world.engine, [a_job(attempts_max=attempts_max) for attempts_max in (1, 5)])
        for job in jobs:
            started = (await expect(world.engine, claim(job, start=True), Started)).job
            end = Finish(
                tenant=TENANT,
                job_id=job.id,
                token=started.token,
                holder=started.holder,
                outcome=FinishOutcome.FAILED,
                error="\x00 and \ud800",
                actor=ACTOR,
            )
            for engine in (world.engine, await world.open_another()):  # a repeated finish gets the same reply
                assert (await expect(engine, end, Finished)).job.error == "\ufffd and \ufffd"


def claim(job: Job, *, start: bool = False) -> Claim:
    return Claim(tenant=job.tenant, job_id=job.id, holder=new_holder(), lease_ms=60_000, start=start)
