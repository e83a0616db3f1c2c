"""An engine can be closed at any time: later calls fail, and what was acknowledged stays."""

import pytest

from onejob.core.lookup import LookUpJob, LookUpKey
from onejob.core.replies import Cancelled, Created, Replayed
from onejob.core.work import Cancel
from onejob.errors import Unavailable

from .commands import FactsRead, IncrementCounter
from .samples import ACTOR, TENANT, every_query, key_id, submit
from .world import World, dump_store, expect


class ClosingRules:
    async def test_a_closed_engine_raises_unavailable(self, world: World) -> None:
        created = await expect(world.engine, submit(), Created)
        # A reply that can never change again is one that a cache in between might return.
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
        for query in every_query(created.job.id):
            with pytest.raises(Unavailable):
                await world.engine.scan(query)

    async def test_closing_twice_does_no_harm(self, world: World) -> None:
        await world.engine.aclose()
        await world.engine.aclose()

    async def test_closing_one_engine_does_not_affect_another(self, world: World) -> None:
        other = await world.open_another()
        created = await expect(world.engine, submit(), Created)
        await world.engine.aclose()
        replayed = await expect(other, submit(), Replayed)
        assert replayed.job == created.job
        await expect(other, IncrementCounter(tenant=TENANT), FactsRead)

    async def test_the_next_engine_finds_everything_that_was_acknowledged(self, world: World) -> None:
        await world.engine.execute([submit(f"k{n}") for n in range(20)])
        stored = await dump_store(world.engine)
        assert len(stored) == 60
        await world.engine.aclose()
        assert await dump_store(await world.open_another()) == stored
