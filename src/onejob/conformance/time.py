"""Windows and leases end at their exact millisecond by the engine's clock, which is never before a stored timestamp.

Each reply is checked against its own `at`; where the clock stands still, that is the exact millisecond.
"""

import pytest
from msgspec.structs import replace

from onejob.core.command import Command
from onejob.core.facts import Kind
from onejob.core.lookup import LookUpKey
from onejob.core.maintenance import Expire, Forget, Maintain
from onejob.core.replies import (
    AnyReply,
    Cancelled,
    Created,
    Defect,
    Forgotten,
    Found,
    InProgress,
    KeyHeld,
    KeySettled,
    Maintained,
    Missing,
    Rejected,
    Replayed,
    Reply,
)
from onejob.core.reserve import Verdict
from onejob.core.states import IdempotencyStatus
from onejob.core.work import Cancel

from .commands import FactsRead, read_facts, write_facts
from .samples import (
    ACTOR,
    FAR_FUTURE,
    LEASE_MS,
    TENANT,
    TTL_MS,
    a_job,
    a_record,
    key_id,
    one_of_each,
    reserve,
    settle,
    submit,
)
from .world import World, expect, list_facts


class TimeRules:
    async def test_a_key_is_answered_up_to_its_last_millisecond(self, world: World) -> None:
        created = await expect(world.engine, submit(), Created)
        assert created.expires_at == created.at + TTL_MS
        await self.assert_ends_at(world, created.expires_at, submit(), Replayed, Created)
        assert len(await list_facts(world.engine, Kind.JOB)) == 2

    async def test_the_end_of_a_job_does_not_extend_its_key(self, world: World) -> None:
        created = await expect(world.engine, submit(), Created)
        await expect(world.engine, Cancel(tenant=TENANT, job_id=created.job.id, actor=ACTOR), Cancelled)
        await expect(world.engine, submit(), Replayed)
        await self.assert_ends_at(world, created.expires_at, submit(), Replayed, Created)

    async def test_a_record_is_found_up_to_its_last_millisecond(self, world: World) -> None:
        created = await expect(world.engine, submit(), Created)
        look_up = LookUpKey(tenant=TENANT, record_id=key_id())
        await self.assert_ends_at(world, created.expires_at, look_up, Found, Missing)

    async def test_a_lease_holds_up_to_its_last_millisecond(self, world: World) -> None:
        held = await expect(world.engine, reserve(), KeyHeld)
        assert held.lease_until == held.at + LEASE_MS
        await self.assert_ends_at(world, held.lease_until, reserve(), InProgress, KeyHeld)

    async def test_a_lease_keeps_its_record_alive(self, world: World) -> None:
        now = (await expect(world.engine, read_facts(a_record()), FactsRead)).at
        pending = a_record(status=IdempotencyStatus.PENDING, lease_until=now + LEASE_MS, expires_at=now)
        await expect(world.engine, write_facts(pending), FactsRead)
        await world.advance(LEASE_MS // 2)
        look_up = LookUpKey(tenant=TENANT, record_id=key_id())
        await expect(world.engine, look_up, Found)
        await expect(world.engine, Expire(tenant=TENANT, record_id=key_id()), Maintained)
        await self.assert_ends_at(world, pending.lease_until, look_up, Found, Missing)

    async def test_a_rejection_is_remembered_up_to_its_last_millisecond(self, world: World) -> None:
        held = await expect(world.engine, reserve(), KeyHeld)
        settled = await expect(world.engine, settle(held, Verdict.REJECT, ttl_ms=TTL_MS // 2), KeySettled)
        assert settled.record.expires_at == settled.at + TTL_MS // 2
        await self.assert_ends_at(world, settled.record.expires_at, submit(), Rejected, Created)

    async def test_the_window_counts_from_the_settling_step(self, world: World) -> None:
        held = await expect(world.engine, reserve(lease_ms=60_000), KeyHeld)
        await world.advance(LEASE_MS)
        settled = await expect(world.engine, settle(held), KeySettled)
        assert settled.record.expires_at == settled.at + TTL_MS
        await self.assert_ends_at(world, settled.record.expires_at, submit(), Replayed, Created)

    async def test_a_forgotten_key_is_answered_until_every_gate_cache_has_expired(self, world: World) -> None:
        await expect(world.engine, submit(), Created)
        forget = Forget(tenant=TENANT, record_id=key_id(), actor=ACTOR, grace_ms=LEASE_MS)
        forgotten = await expect(world.engine, forget, Forgotten)
        assert forgotten.expires_at == forgotten.at + LEASE_MS
        await self.assert_ends_at(world, forgotten.expires_at, submit(), Replayed, Created)

    async def test_maintenance_waits_for_the_end_of_the_window(self, world: World) -> None:
        now = (await expect(world.engine, read_facts(a_record()), FactsRead)).at
        record, job = a_record(expires_at=now + LEASE_MS), a_job(due_at=now + LEASE_MS, lease_until=1)
        await expect(world.engine, write_facts(record, job), FactsRead)
        await world.advance(LEASE_MS)
        for command in (Expire(tenant=TENANT, record_id=record.id), Maintain(tenant=TENANT, job_id=job.id)):
            maintained = await expect(world.engine, command, Maintained)
            assert maintained.changed == (maintained.at > now + LEASE_MS)
        await world.advance(1)
        for command in (Expire(tenant=TENANT, record_id=record.id), Maintain(tenant=TENANT, job_id=job.id)):
            await expect(world.engine, command, Maintained)
        assert await list_facts(world.engine, Kind.RECORD) == []
        (released,) = await list_facts(world.engine, Kind.JOB)
        assert released.lease_until == 0

    @pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name.lower())
    async def test_time_is_never_before_the_timestamp_of_a_fact(self, world: World, kind: Kind) -> None:
        fact = replace(one_of_each()[kind], changed_at=FAR_FUTURE)
        now = (await expect(world.engine, write_facts(fact), FactsRead)).at
        assert now < FAR_FUTURE
        assert (await expect(world.engine, read_facts(fact), FactsRead)).at == FAR_FUTURE
        newer = replace(fact, version=2, changed_at=FAR_FUTURE + 5)
        assert (await expect(await world.open_another(), write_facts(newer), FactsRead)).at == FAR_FUTURE
        assert (await expect(await world.open_another(), read_facts(newer), FactsRead)).at == FAR_FUTURE + 5
        # Only decisions about that fact are delayed, not the engine's clock.
        (reply,) = await world.engine.execute([submit("other")])
        assert isinstance(reply, Created)
        assert now <= reply.at < FAR_FUTURE

    async def test_timestamps_of_changes_never_decrease(self, world: World) -> None:
        job = a_job(changed_at=FAR_FUTURE, created_at=FAR_FUTURE)
        await expect(world.engine, write_facts(job), FactsRead)
        reply = await expect(world.engine, Cancel(tenant=TENANT, job_id=job.id, actor=ACTOR), Cancelled)
        assert (reply.job.changed_at, reply.job.ended_at) == (FAR_FUTURE, FAR_FUTURE)

    async def test_engines_of_one_store_share_one_time(self, world: World) -> None:
        engines = (world.engine, await world.open_another())
        last = 0
        for n in range(10):
            created = await expect(engines[n % 2], submit(f"k{n}"), Created)
            assert created.at >= last
            last = created.at
            await world.advance(7)
            last += 7

    async def assert_ends_at(
        self, world: World, last_ms: int, command: Command[AnyReply], before: type[Reply], after: type[Reply]
    ) -> None:
        """In the last millisecond every engine replies `before`, one millisecond later `after`."""
        other = await world.open_another()
        now = (await expect(world.engine, read_facts(a_record("now")), FactsRead)).at
        await world.advance(max(last_ms - now, 0))
        for engine in (world.engine, other):
            (reply,) = await engine.execute([command])
            assert not isinstance(reply, Defect)
            assert isinstance(reply, before if reply.at <= last_ms else after)
        await world.advance(1)
        await expect(other, command, after)
