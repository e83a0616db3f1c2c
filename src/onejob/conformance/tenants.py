"""Tenants are isolated: facts of another tenant do not exist, even for a command with a guessed id."""

from typing import Any

from msgspec.structs import replace

from onejob.core.command import Command
from onejob.core.facts import AttachmentKind, Kind
from onejob.core.lookup import DryRun, LookUpJob, LookUpKey
from onejob.core.maintenance import CountHits, Expire, Forget, Maintain, Purge
from onejob.core.replies import (
    Cancelled,
    Created,
    Defect,
    DryRunReply,
    KeyHeld,
    Maintained,
    Missing,
    Reason,
    Refused,
    Replayed,
)
from onejob.core.reserve import Renew, TakeOver
from onejob.core.work import Cancel
from onejob.engine import ListAttachments, ListFacts, ListJobs
from onejob.ids import new_holder

from .commands import FactsRead, ReadFacts, write_facts
from .samples import ACTOR, OTHER, TENANT, fence, key_id, one_of_each, reserve, settle, submit
from .world import World, dump_store, expect


class TenantRules:
    async def test_the_same_key_of_two_tenants_is_two_jobs(self, world: World) -> None:
        mine = await expect(world.engine, submit(), Created)
        theirs = await expect(world.engine, submit(tenant=OTHER, input=b"{}"), Created)
        assert mine.job.id != theirs.job.id
        assert (await expect(world.engine, submit(), Replayed)).job == mine.job
        assert (await expect(world.engine, submit(tenant=OTHER, input=b"{}"), Replayed)).job == theirs.job

    async def test_a_guessed_id_finds_nothing(self, world: World) -> None:
        created = await expect(world.engine, submit(), Created)
        stored = await dump_store(world.engine)
        for command in _guesses(created.job.id):
            await expect(world.engine, command, Missing)
        for command in (
            Expire(tenant=OTHER, record_id=key_id()),
            Maintain(tenant=OTHER, job_id=created.job.id),
            CountHits(tenant=OTHER, record_id=key_id(), hits=1, conflicts=0),
            Purge(tenant=OTHER, record_id=key_id(), job_ids=(created.job.id,)),
        ):
            assert not (await expect(world.engine, command, Maintained)).changed
        assert await dump_store(world.engine) == stored

    async def test_a_guessed_fence_settles_nothing(self, world: World) -> None:
        held = await expect(world.engine, reserve(), KeyHeld)
        stored = await dump_store(world.engine)
        for command in (settle(held, tenant=OTHER), Renew(**fence(held, OTHER), lease_ms=1)):
            assert (await expect(world.engine, command, Refused)).reason is Reason.STALE
        assert await dump_store(world.engine) == stored

    async def test_a_submission_with_a_guessed_id_creates_and_reveals_nothing(self, world: World) -> None:
        created = await expect(world.engine, submit(), Created)
        guesses = (
            submit(tenant=OTHER, record_id=key_id()),
            submit(tenant=OTHER, job_id=created.job.id),
            reserve(tenant=OTHER, record_id=key_id()),
        )
        for guess in guesses:
            await expect(world.engine, guess, Defect)
        # A reply that can never change again is one that a cache in between might return.
        await expect(world.engine, Cancel(tenant=TENANT, job_id=created.job.id, actor=ACTOR), Cancelled)
        await expect(world.engine, submit(), Replayed)
        stored = await dump_store(world.engine)
        for guess in guesses:
            await expect(world.engine, guess, Defect)
        dry_run = await expect(world.engine, DryRun(tenant=OTHER, command=guesses[0]), DryRunReply)
        assert isinstance(dry_run.reply, Created)
        assert await dump_store(world.engine) == stored

    async def test_no_kind_of_fact_is_shared(self, world: World) -> None:
        facts = one_of_each()
        await expect(world.engine, write_facts(*facts), FactsRead)
        footprint = replace(write_facts(*facts).footprint, tenant=OTHER, follow_jobs=True, follow_usage=True)
        assert (await expect(world.engine, ReadFacts(tenant=OTHER, footprint=footprint), FactsRead)).facts == ()

    async def test_pages_contain_one_tenant_only(self, world: World) -> None:
        facts = one_of_each()
        await expect(world.engine, write_facts(*facts), FactsRead)
        created = await expect(world.engine, submit("other"), Created)
        assert (await world.engine.scan(ListJobs(tenant=OTHER))).items == []
        for kind in Kind:
            assert (await world.engine.scan(ListFacts(tenant=OTHER, kind=kind))).items == []
            listing = await world.engine.scan(ListFacts(tenant=TENANT, kind=kind))
            assert facts[kind] in listing.items
        query = ListAttachments(tenant=TENANT, job_id=created.job.id, kind=AttachmentKind.INPUT)
        assert len((await world.engine.scan(query)).items) == 1
        assert (await world.engine.scan(replace(query, tenant=OTHER))).items == []


def _guesses(job_id: bytes) -> list[Command[Any]]:
    return [
        LookUpKey(tenant=OTHER, record_id=key_id()),
        LookUpJob(tenant=OTHER, job_id=job_id),
        Cancel(tenant=OTHER, job_id=job_id, actor=ACTOR),
        Forget(tenant=OTHER, record_id=key_id(), actor=ACTOR, grace_ms=0),
        TakeOver(tenant=OTHER, record_id=key_id(), holder=new_holder(), lease_ms=1),
    ]
