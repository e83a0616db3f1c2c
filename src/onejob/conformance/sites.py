"""A submission to several sites is stored with its deliveries in one step, and ends with the last of them."""

from onejob.core.facts import Job, Kind
from onejob.core.replies import Cancelled, Claimed, Created, Finished, Released
from onejob.core.site_delivery import CancelAtSite, ReportDelivery
from onejob.core.sites import SiteAnswer, SiteTargets, delivery_job_ids, site_type
from onejob.core.states import JobState
from onejob.core.submit import Submit
from onejob.core.work import Claim
from onejob.engine import ListBacklogs, ListReadyJobs
from onejob.ids import new_holder

from .samples import TENANT, TYPE, submit
from .world import World, expect, list_facts

NAMES = ("fra", "iad")


class SiteRules:
    async def test_record_job_and_deliveries_are_stored_in_one_step(self, world: World) -> None:
        command = submit_to_sites()
        await expect(world.engine, command, Created)
        created = await expect(world.engine, command, Created)  # a repetition creates nothing
        assert created.job.state is JobState.RUNNING
        jobs = {job.id: job.type for job in await list_facts(world.engine, Kind.JOB)}
        deliveries = zip(delivery_job_ids(command.job_id), map(site_type, NAMES), strict=False)
        assert jobs == {command.job_id: TYPE} | dict(deliveries)

    async def test_only_the_deliveries_are_ready_each_in_the_queue_of_its_site(self, world: World) -> None:
        await expect(world.engine, submit_to_sites(), Created)
        assert not (await world.engine.scan(ListReadyJobs(types=(TYPE,)))).items
        for name in NAMES:
            (backlog,) = (await world.engine.scan(ListBacklogs(types=(site_type(name),)))).items
            assert (backlog.tenant, backlog.wait_ms) == (TENANT, 0)

    async def test_the_last_final_answer_ends_the_job(self, world: World) -> None:
        command = submit_to_sites()
        await expect(world.engine, command, Created)
        fra, iad = delivery_job_ids(command.job_id, len(NAMES))
        await expect(world.engine, await report(world, command.job_id, fra, "pending"), Released)
        last = await report(world, command.job_id, iad, "success")
        await expect(world.engine, last, Finished)
        assert (await find_job(world, command.job_id)).state is JobState.RUNNING
        await world.advance(60_000)
        last = await report(world, command.job_id, fra, "success")
        for _ in range(2):  # its reply was lost
            await expect(world.engine, last, Finished)
        assert (await find_job(world, command.job_id)).state is JobState.SUCCESS

    async def test_a_cancel_that_overtakes_leaves_a_cancelled_job(self, world: World) -> None:
        plain = submit("overtaken")
        fields = {name: getattr(plain, name) for name in plain.__struct_fields__}
        for _ in range(2):
            await expect(world.engine, CancelAtSite(**fields), Cancelled)
        late = await expect(world.engine, plain, Created)
        assert (late.job.id, late.job.state) == (plain.job_id, JobState.CANCELLED)
        assert len(await list_facts(world.engine, Kind.JOB)) == 1


def submit_to_sites() -> Submit:
    return submit("sites", sites=SiteTargets(NAMES))


async def report(world: World, job_id: bytes, delivery_id: bytes, state: str) -> ReportDelivery:
    """The report of a delivery that is claimed for it."""
    holder = new_holder()
    claimed = await expect(world.engine, Claim(tenant=TENANT, job_id=delivery_id, holder=holder), Claimed)
    return ReportDelivery(
        tenant=TENANT,
        job_id=delivery_id,
        token=claimed.job.token,
        holder=holder,
        home_id=job_id,
        deliveries=len(NAMES),
        answer=SiteAnswer(state, claimed.at),
    )


async def find_job(world: World, job_id: bytes) -> Job:
    jobs: dict[bytes, Job] = {job.id: job for job in await list_facts(world.engine, Kind.JOB)}
    return jobs[job_id]
