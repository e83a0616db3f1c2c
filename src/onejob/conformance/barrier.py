"""After a limit was set, the barrier waits until every write that was decided before is visible, and for no other."""

import asyncio
import itertools

import pytest

from onejob.core.facts import Kind
from onejob.core.replies import Created, UsageFound
from onejob.engine import Engine
from onejob.errors import Unavailable

from .samples import OTHER, TENANT, USER, quota_ids, set_limit, submit
from .world import World, expect, list_facts

ROUNDS = 5
WRITERS = 20
NO_REAL_LIMIT = 10_000
BARRIER_SECONDS_MAX = 10


class BarrierRules:
    async def test_a_submission_that_saw_no_limit_is_visible_after_the_barrier(self, world: World) -> None:
        other = await world.open_another()
        for n in range(ROUNDS):
            user = f"{USER}-{n}"
            writes = [
                asyncio.create_task(self._submit_later(engine, f"{n}-{m}", user, turns=m))
                for m, engine in enumerate([world.engine, other] * (WRITERS // 2))
            ]
            await asyncio.sleep(0)
            await expect(world.engine, set_limit(NO_REAL_LIMIT, user=user), UsageFound)
            await world.engine.barrier(TENANT, user)
            visible = {job.id for job in await list_facts(world.engine, Kind.JOB)}
            await asyncio.gather(*writes)
            jobs = await list_facts(world.engine, Kind.JOB)
            assert len(jobs) == (n + 1) * WRITERS
            assert {job.id for job in jobs if job.user == user and not job.usage_id} <= visible

    async def test_a_barrier_returns_while_another_tenant_goes_on_writing(self, world: World) -> None:
        other = await world.open_another()
        writing, stop = asyncio.Event(), asyncio.Event()

        async def keep_writing(engine: Engine, name: str) -> None:
            for n in itertools.count():
                if stop.is_set():
                    return
                await expect(engine, submit(f"{name}-{n}", tenant=OTHER), Created)
                writing.set()

        writers = [asyncio.create_task(keep_writing(engine, f"w{n}")) for n, engine in enumerate([world.engine, other])]
        await writing.wait()
        await asyncio.wait_for(world.engine.barrier(TENANT), BARRIER_SECONDS_MAX)
        await asyncio.wait_for(world.engine.barrier(TENANT, USER), BARRIER_SECONDS_MAX)
        stop.set()
        await asyncio.gather(*writers)

    async def test_the_barrier_of_an_idle_store_returns(self, world: World) -> None:
        await world.engine.barrier(TENANT)
        await world.engine.barrier(OTHER, USER)

    async def test_a_closed_engine_has_no_barrier(self, world: World) -> None:
        await world.engine.aclose()
        with pytest.raises(Unavailable):
            await world.engine.barrier(TENANT)

    @staticmethod
    async def _submit_later(engine: Engine, key: str, user: str, *, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        await expect(engine, submit(key, **quota_ids(TENANT, user), user=user), Created)
