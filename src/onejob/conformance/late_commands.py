"""A command without an echo is not executed after its `not_after`, so that a late copy of it undoes nothing."""

from typing import Any

from msgspec.structs import replace

from onejob.core.credentials import DropPolicy
from onejob.core.maintenance import CountHits, Forget, Purge
from onejob.core.replies import Created, Defect, Maintained, PolicyFound, Reason, Refused
from onejob.core.work import Cancel, Resolution, Resolve

from .samples import ACTOR, TENANT, key_id, policy_ids, set_limit, set_policy, submit, submit_counted
from .world import World, dump_store, expect, read_time


def _commands_without_echo(job_id: bytes) -> list[Any]:
    return [
        set_limit(3),
        set_policy(body=b"{}"),
        DropPolicy(**policy_ids()),
        Cancel(tenant=TENANT, job_id=job_id, actor=ACTOR),
        Resolve(tenant=TENANT, job_id=job_id, actor=ACTOR, resolution=Resolution.RERUN),
        Forget(tenant=TENANT, record_id=key_id(), actor=ACTOR, grace_ms=10),
        CountHits(tenant=TENANT, record_id=key_id(), hits=1, conflicts=1),
        Purge(tenant=TENANT, record_id=key_id()),
    ]


class LateCommandRules:
    async def test_a_command_without_an_echo_does_nothing_after_its_deadline(self, world: World) -> None:
        created = await expect(world.engine, submit(), Created)
        await expect(world.engine, set_policy(), PolicyFound)
        stored = await dump_store(world.engine)
        at = await read_time(world.engine)
        await world.advance(1)
        late = [replace(command, not_after=at) for command in _commands_without_echo(created.job.id)]
        for command in late:
            assert (await expect(world.engine, command, Refused)).reason is Reason.TOO_LATE
        replies = await world.engine.execute([*late, submit("other")])
        assert [getattr(reply, "reason", None) for reply in replies[:-1]] == [Reason.TOO_LATE] * len(late)
        assert isinstance(replies[-1], Created)
        await expect(world.engine, Purge(tenant=TENANT, record_id=key_id("other")), Maintained)
        assert await dump_store(world.engine) == stored

    async def test_a_command_without_an_echo_is_executed_until_its_deadline(self, world: World) -> None:
        created = await expect(world.engine, submit(), Created)
        at = await read_time(world.engine)
        for command in _commands_without_echo(created.job.id):
            assert not command.has_echo
            (reply,) = await world.engine.execute([replace(command, not_after=at)])
            assert not isinstance(reply, Defect)
            assert getattr(reply, "reason", None) is not Reason.TOO_LATE

    async def test_a_late_copy_of_a_limit_does_not_undo_a_later_one(self, world: World) -> None:
        first = replace(set_limit(1), not_after=await read_time(world.engine))
        await world.engine.execute([first])
        await world.advance(1)
        await world.engine.execute([set_limit(2)])
        await expect(await world.open_another(), first, Refused)
        for key in ("a", "b"):
            await expect(world.engine, submit_counted(key), Created)
        await expect(world.engine, submit_counted("c"), Refused)
