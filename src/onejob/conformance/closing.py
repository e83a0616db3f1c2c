"""What an engine declares, and what is left when it is closed."""

from typing import Any

import pytest

from onejob.core.facts import AttachmentKind, Kind
from onejob.core.lookup import LookUpJob, LookUpKey
from onejob.core.replies import Cancelled, Created, Replayed
from onejob.core.work import Cancel
from onejob.engine import (
    ListAttachments,
    ListBacklogs,
    ListDueFacts,
    ListFacts,
    ListInputs,
    ListJobs,
    ListLeasedJobs,
    ListReadyJobs,
    Query,
    Unavailable,
)

from .commands import FactsRead, IncrementCounter
from .samples import ACTOR, TENANT, TYPE, key_id, submit
from .world import World, dump_store, expect


class ClosingRules:
    async def test_a_closed_engine_answers_nothing(self, world: World) -> None:
        created = await expect(world.engine, submit(), Created)
        # An answer that can never change any more is the one that a memory in between might give.
        await expect(world.engine, Cancel(tenant=TENANT, job_id=created.job.id, actor=ACTOR), Cancelled)
        await expect(world.engine, submit(), Replayed)
        await world.engine.aclose()
        for command in (
            submit(),
            submit("new"),
            IncrementCounter(tenant=TENANT),
            LookUpKey(tenant=TENANT, record_id=key_id()),
            LookUpJob(tenant=TENANT, job_id=created.job.id),
        ):
            with pytest.raises(Unavailable):
                await world.engine.execute([command])
            with pytest.raises(Unavailable):
                await world.engine.execute([command, command])
        queries: list[Query[Any]] = [
            ListJobs(tenant=TENANT),
            *(ListFacts(tenant=TENANT, kind=kind) for kind in Kind),
            ListAttachments(tenant=TENANT, job_id=created.job.id, kind=AttachmentKind.INPUT),
            ListDueFacts(kind=Kind.RECORD),
            ListReadyJobs(types=(TYPE,)),
            ListBacklogs(types=(TYPE,)),
            ListInputs(job_ids=(created.job.id,)),
            ListLeasedJobs(tenant=TENANT, holder=b"h"),
        ]
        for query in queries:
            with pytest.raises(Unavailable):
                await world.engine.scan(query)

    async def test_closing_twice_does_no_harm(self, world: World) -> None:
        await world.engine.aclose()
        await world.engine.aclose()

    async def test_closing_one_engine_leaves_the_other_at_work(self, world: World) -> None:
        other = await world.open_another()
        created = await expect(world.engine, submit(), Created)
        await world.engine.aclose()
        replayed = await expect(other, submit(), Replayed)
        assert replayed.job == created.job
        await expect(other, IncrementCounter(tenant=TENANT), FactsRead)

    async def test_what_was_answered_is_there_for_the_next_engine(self, world: World) -> None:
        await world.engine.execute([submit(f"k{n}") for n in range(20)])
        stored = await dump_store(world.engine)
        assert len(stored) == 60
        await world.engine.aclose()
        assert await dump_store(await world.open_another()) == stored
