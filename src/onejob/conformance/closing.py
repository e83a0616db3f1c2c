"""What an engine declares, and what is left when it is closed."""

from typing import Any

import pytest

from onejob.core.facts import Beside, Kind
from onejob.core.lookup import LookUp, LookUpJob
from onejob.core.receipt import Cancelled, Created, Replayed
from onejob.core.work import Cancel
from onejob.engine import (
    Attachments,
    Due,
    Durability,
    Held,
    Inputs,
    JobPage,
    Listing,
    Query,
    Ready,
    Unavailable,
    Waiting,
)

from .commands import Count, Seen
from .samples import ACTOR, TENANT, TYPE, key_id, submit
from .world import World, ask, everything


class Closing:
    async def test_durability_is_declared(self, world: World) -> None:
        assert isinstance(world.engine.durability, Durability)

    async def test_a_closed_engine_answers_nothing(self, world: World) -> None:
        created = await ask(world.engine, submit(), Created)
        # An answer that can never change any more is the one that a memory in between might give.
        await ask(world.engine, Cancel(tenant=TENANT, job_id=created.job.id, actor=ACTOR), Cancelled)
        await ask(world.engine, submit(), Replayed)
        await world.engine.aclose()
        for command in (
            submit(),
            submit("new"),
            Count(tenant=TENANT),
            LookUp(tenant=TENANT, record_id=key_id()),
            LookUpJob(tenant=TENANT, job_id=created.job.id),
        ):
            with pytest.raises(Unavailable):
                await world.engine.execute([command])
            with pytest.raises(Unavailable):
                await world.engine.execute([command, command])
        queries: list[Query[Any]] = [
            JobPage(tenant=TENANT),
            *(Listing(tenant=TENANT, kind=kind) for kind in Kind),
            Attachments(tenant=TENANT, job_id=created.job.id, beside=Beside.INPUT),
            Due(kind=Kind.RECORD),
            Ready(types=(TYPE,)),
            Waiting(types=(TYPE,)),
            Inputs(job_ids=(created.job.id,)),
            Held(tenant=TENANT, holder=b"h"),
        ]
        for query in queries:
            with pytest.raises(Unavailable):
                await world.engine.scan(query)

    async def test_closing_twice_does_no_harm(self, world: World) -> None:
        await world.engine.aclose()
        await world.engine.aclose()

    async def test_closing_one_engine_leaves_the_other_at_work(self, world: World) -> None:
        other = await world.reopen()
        created = await ask(world.engine, submit(), Created)
        await world.engine.aclose()
        replayed = await ask(other, submit(), Replayed)
        assert replayed.job == created.job
        await ask(other, Count(tenant=TENANT), Seen)

    async def test_what_was_answered_is_there_for_the_next_engine(self, world: World) -> None:
        await world.engine.execute([submit(f"k{n}") for n in range(20)])
        stored = await everything(world.engine)
        assert len(stored) == 60
        await world.engine.aclose()
        assert await everything(await world.reopen()) == stored
