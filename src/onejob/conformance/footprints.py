"""A footprint follows a record to its jobs and a job to its usage; a batch holds all kinds of facts."""

from msgspec.structs import replace

from onejob.core.command import Footprint
from onejob.core.facts import Kind, Reservation
from onejob.core.replies import KeyHeld, KeySettled
from onejob.core.reserve import Verdict
from onejob.core.states import SlotState
from onejob.ids import new_job_id

from .commands import FactsRead, ReadFacts, write_facts
from .samples import OTHER, TENANT, a_job, a_policy, a_record, a_usage, key_id, one_of_each, reserve, settle
from .world import World, expect, list_facts


class FootprintRules:
    async def test_a_record_leads_to_its_jobs_and_they_to_their_usage(self, world: World) -> None:
        usage = a_usage()
        jobs = (a_job(usage_id=usage.id), a_job(usage_id=usage.id))
        record = a_record(job_ids=jobs[0].id + jobs[1].id)
        await expect(world.engine, write_facts(record, *jobs, usage, a_policy()), FactsRead)
        for follow_jobs, follow_usage, found in (
            (False, False, (record,)),
            (True, False, (record, *jobs)),
            (True, True, (record, *jobs, usage)),
        ):
            footprint = Footprint(TENANT, record.id, follow_jobs=follow_jobs, follow_usage=follow_usage)
            for engine in (world.engine, await world.open_another()):
                assert (await expect(engine, ReadFacts(tenant=TENANT, footprint=footprint), FactsRead)).facts == found

    async def test_without_a_record_the_named_job_is_loaded(self, world: World) -> None:
        usage = a_usage()
        job, absent = a_job(usage_id=usage.id), new_job_id()
        await expect(world.engine, write_facts(job, usage), FactsRead)
        footprint = Footprint(TENANT, key_id("no"), (job.id, absent), follow_jobs=True, follow_usage=True)
        assert (await expect(world.engine, ReadFacts(tenant=TENANT, footprint=footprint), FactsRead)).facts == (
            job,
            usage,
        )

    async def test_a_job_without_a_slot_leads_to_no_usage(self, world: World) -> None:
        job = a_job()
        await expect(world.engine, write_facts(job, a_usage()), FactsRead)
        footprint = Footprint(TENANT, jobs=(job.id,), follow_usage=True)
        assert (await expect(world.engine, ReadFacts(tenant=TENANT, footprint=footprint), FactsRead)).facts == (job,)

    async def test_a_footprint_does_not_follow_into_another_tenant(self, world: World) -> None:
        foreign_usage = a_usage(tenant=OTHER)
        foreign_job = a_job(OTHER)
        await expect(world.engine, write_facts(foreign_job, foreign_usage), FactsRead)
        own_job = a_job(usage_id=foreign_usage.id)
        record = a_record(job_ids=foreign_job.id + own_job.id)
        await expect(world.engine, write_facts(record, own_job), FactsRead)
        footprint = Footprint(TENANT, record.id, follow_jobs=True, follow_usage=True)
        assert (await expect(world.engine, ReadFacts(tenant=TENANT, footprint=footprint), FactsRead)).facts == (
            record,
            own_job,
        )

    async def test_a_rejection_frees_the_slot_that_the_record_leads_to(self, world: World) -> None:
        """A rejection follows the record to its job, and the job to the usage that counts it."""
        held = await expect(world.engine, reserve(), KeyHeld)
        (job,) = await list_facts(world.engine, Kind.JOB)
        slot = Reservation(1, held.lease_until, SlotState.ACTIVE)
        usage = a_usage(reservations={job.id.hex(): slot})
        await expect(
            world.engine, write_facts(replace(job, version=job.version + 1, usage_id=usage.id), usage), FactsRead
        )
        settled = await expect(world.engine, settle(held, Verdict.REJECT), KeySettled)
        assert settled.job is not None
        assert settled.job.usage_id == b""
        (freed,) = await list_facts(world.engine, Kind.USAGE)
        assert freed.reservations == {}

    async def test_all_kinds_of_fact_of_many_tenants_fit_one_batch(self, world: World) -> None:
        tenants = (TENANT, OTHER, "third")
        facts = {tenant: one_of_each(tenant) for tenant in tenants}
        commands = [write_facts(fact) for tenant in tenants for fact in facts[tenant]]
        for reply in await world.engine.execute(commands):
            assert isinstance(reply, FactsRead)
            assert reply.facts == ()
        for tenant in tenants:
            stored = [fact for kind in Kind for fact in await list_facts(world.engine, kind, tenant)]
            assert tuple(stored) == facts[tenant]
