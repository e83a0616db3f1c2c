"""`info`, `read_now`, `subscribe` and `on_timeout` may save time and must not change a reply."""

from typing import Any

from onejob.core.command import Command
from onejob.core.lookup import LookUpJob, LookUpKey
from onejob.core.replies import Created, KeyHeld, KeySettled, Replayed
from onejob.engine import Durability

from .samples import TENANT, key_id, reserve, settle, submit
from .world import World, expect


class HintRules:
    async def test_an_engine_describes_itself(self, world: World) -> None:
        info = world.engine.info
        assert info.name
        assert isinstance(info.durability, Durability)
        assert info.write_lanes >= 1
        assert info.update_lanes >= 0
        assert info.batch_max >= 1
        assert info.lane_batch_min >= 1
        assert world.engine.info == info

    async def test_the_ledger_id_is_not_empty_and_stays_the_same(self, world: World) -> None:
        ledger_id = world.engine.info.ledger_id
        assert ledger_id
        await expect(world.engine, submit(), Created)
        await expect(world.engine, submit(), Replayed)
        assert world.engine.info.ledger_id == ledger_id

    async def test_engines_on_one_store_have_the_same_ledger_id(self, world: World) -> None:
        other = await world.open_another()
        assert other.info.ledger_id == world.engine.info.ledger_id
        await world.engine.aclose()
        later = await world.open_another()
        assert later.info.ledger_id == other.info.ledger_id

    async def test_read_now_returns_the_replies_of_execute_or_none(self, world: World) -> None:
        created = await expect(world.engine, submit(), Created)
        lookups: list[Command[Any]] = [
            LookUpKey(tenant=TENANT, record_id=key_id()),
            LookUpJob(tenant=TENANT, job_id=created.job.id),
            LookUpJob(tenant=TENANT, job_id=bytes(16)),
        ]
        for _ in range(2):  # some engines must read once before they can answer without waiting
            executed = list(await world.engine.execute(lookups))
            together = world.engine.read_now(lookups)
            assert together is None or list(together) == executed
            for lookup, reply in zip(lookups, executed, strict=True):
                alone = world.engine.read_now([lookup])
                assert alone is None or list(alone) == [reply]
        await world.engine.aclose()
        assert world.engine.read_now(lookups) is None

    async def test_a_subscriber_gets_ids_of_settled_records_and_changes_no_reply(self, world: World) -> None:
        received: list[bytes] = []
        other = await world.open_another()
        world.engine.subscribe(received.append)
        held = await expect(other, reserve(), KeyHeld)
        await expect(other, settle(held), KeySettled)
        await expect(world.engine, submit(), Replayed)
        assert set(received) <= {key_id()}

    async def test_a_batch_in_time_calls_no_timeout(self, world: World) -> None:
        timeouts: list[Exception] = []
        replies = await world.engine.execute([submit("a"), submit("b")], on_timeout=timeouts.append)
        assert [type(reply) for reply in replies] == [Created, Created]
        assert not timeouts
