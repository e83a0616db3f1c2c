"""A command with a precondition on a policy is executed only while the policy is unchanged."""

from typing import Any

from msgspec.structs import replace

from onejob.core.command import Precondition
from onejob.core.credentials import DropPolicy, SetPolicy
from onejob.core.facts import Kind
from onejob.core.identity import SCHEDULE_ACTOR, SCHEDULE_SCOPE, SETTINGS_POLICY_NAME, SYSTEM_TENANT, policy_id
from onejob.core.ledger_settings import SETTINGS_POLICY_ID
from onejob.core.replies import Created, Maintained, PolicyFound, Reason, Refused
from onejob.core.submit import Submit
from onejob.engine import CountLiveKeys, Engine, LiveKeyCount
from onejob.ids import new_job_id

from .samples import OTHER, TENANT, submit
from .world import World, expect, list_facts

NAME = "apikey:0123456789ab"
BODY = b'{"open":true}'
CHANGED_BODY = b'{"open":false}'
POLICY_ID = policy_id(TENANT, NAME)
PRECONDITION = Precondition(POLICY_ID, BODY)


def set_credential(body: bytes = BODY, **options: Any) -> SetPolicy:
    return SetPolicy(tenant=TENANT, policy_id=POLICY_ID, name=NAME, body=body, **options)


def submit_with_precondition(key: str = "k", precondition: Precondition = PRECONDITION, **options: Any) -> Submit:
    return submit(key, precondition=precondition, **options)


async def assert_refused(engine: Engine, *commands: Submit) -> None:
    for reply in await engine.execute(commands):
        assert isinstance(reply, Refused), reply
        assert reply.reason is Reason.CREDENTIAL_CHANGED
    assert not await list_facts(engine, Kind.RECORD)
    assert not await list_facts(engine, Kind.JOB)


class PreconditionRules:
    async def test_a_precondition_that_is_met_lets_a_submission_through(self, world: World) -> None:
        await expect(world.engine, set_credential(), PolicyFound)
        for key in ("a", "b", ""):
            await expect(world.engine, submit_with_precondition(key), Created)
        replies = await world.engine.execute([submit_with_precondition(f"k{n}") for n in range(40)])
        assert {type(reply) for reply in replies} == {Created}
        assert len(await list_facts(world.engine, Kind.JOB)) == 43

    async def test_a_change_by_another_engine_applies_to_the_next_command(self, world: World) -> None:
        other = await world.open_another()
        await expect(world.engine, set_credential(), PolicyFound)
        await expect(other, submit_with_precondition("before"), Created)
        await expect(world.engine, set_credential(CHANGED_BODY), PolicyFound)
        for key in ("new", "before", ""):
            reply = await expect(other, submit_with_precondition(key), Refused)
            assert reply.reason is Reason.CREDENTIAL_CHANGED
        assert len(await list_facts(other, Kind.JOB)) == 1
        await expect(other, submit_with_precondition("new", Precondition(POLICY_ID, CHANGED_BODY)), Created)

    async def test_a_precondition_on_a_missing_or_dropped_policy_fails(self, world: World) -> None:
        await assert_refused(world.engine, submit_with_precondition())
        await expect(world.engine, set_credential(), PolicyFound)
        await expect(world.engine, DropPolicy(tenant=TENANT, policy_id=POLICY_ID), Maintained)
        await assert_refused(
            world.engine, submit_with_precondition(), submit_with_precondition("b"), submit_with_precondition("")
        )

    async def test_a_precondition_on_a_policy_of_another_tenant_fails(self, world: World) -> None:
        await expect(world.engine, set_credential(), PolicyFound)
        await expect(world.engine, submit_with_precondition("k", tenant=OTHER), Refused)
        assert not await list_facts(world.engine, Kind.JOB, OTHER)

    async def test_a_precondition_expires_by_the_clock_of_the_store(self, world: World) -> None:
        now = (await expect(world.engine, set_credential(), PolicyFound)).at
        ending = replace(PRECONDITION, valid_until=now + 60_000)
        await expect(world.engine, submit_with_precondition("in time", ending), Created)
        await world.advance(60_001)
        reply = await expect(world.engine, submit_with_precondition("late", ending), Refused)
        assert reply.reason is Reason.CREDENTIAL_CHANGED
        assert len(await list_facts(world.engine, Kind.JOB)) == 1

    async def test_a_precondition_on_a_policy_that_has_expired_fails(self, world: World) -> None:
        await expect(world.engine, set_credential(ttl_ms=60_000), PolicyFound)
        await expect(world.engine, submit_with_precondition("in time"), Created)
        await world.advance(60_001)
        for size in (1, 2, 40):
            replies = await world.engine.execute([submit_with_precondition(f"k{n}") for n in range(size)])
            assert [type(reply) for reply in replies] == [Refused] * size
        assert len(await list_facts(world.engine, Kind.JOB)) == 1

    async def test_a_repeated_command_gets_its_reply_although_its_precondition_fails_now(self, world: World) -> None:
        """The reply may have been lost, so a repeated command must get it."""
        other = await world.open_another()
        await expect(world.engine, set_credential(), PolicyFound)
        for command in (submit_with_precondition("keyed"), submit_with_precondition("")):
            first = await expect(world.engine, command, Created)
            await expect(world.engine, set_credential(CHANGED_BODY), PolicyFound)
            for engine in (world.engine, other):
                assert (await expect(engine, command, Created)).job.id == first.job.id
                await expect(engine, replace(command, job_id=new_job_id()), Refused)
            await expect(world.engine, set_credential(), PolicyFound)
        assert len(await list_facts(world.engine, Kind.JOB)) == 2

    async def test_in_one_batch_each_precondition_is_checked_on_its_own(self, world: World) -> None:
        await expect(world.engine, set_credential(), PolicyFound)
        wrong = Precondition(POLICY_ID, CHANGED_BODY)
        replies = await world.engine.execute(
            [
                submit_with_precondition("a"),
                submit_with_precondition("b", wrong),
                submit("c"),
                submit_with_precondition("d"),
            ]
        )
        assert [type(reply) for reply in replies] == [Created, Refused, Created, Created]
        assert len(await list_facts(world.engine, Kind.JOB)) == 3


SETTINGS_BODY = b'{"version":1}'
OTHER_SETTINGS_BODY = b'{"version":2}'


def set_settings(body: bytes = SETTINGS_BODY) -> SetPolicy:
    return SetPolicy(tenant=SYSTEM_TENANT, policy_id=SETTINGS_POLICY_ID, name=SETTINGS_POLICY_NAME, body=body)


class SettingsRules:
    """A command that carries the settings of the ledger is executed only while they are stored."""

    async def test_commands_of_the_stored_settings_are_executed(self, world: World) -> None:
        await expect(world.engine, set_settings(), PolicyFound)
        for size in (1, 2, 40):
            commands = [submit(f"{size}-{n}", settings=SETTINGS_BODY) for n in range(size)]
            assert {type(reply) for reply in await world.engine.execute(commands)} == {Created}

    async def test_commands_of_other_settings_do_nothing(self, world: World) -> None:
        other = await world.open_another()
        await expect(world.engine, set_settings(), PolicyFound)
        await expect(other, submit("before", settings=SETTINGS_BODY), Created)
        await expect(world.engine, set_settings(OTHER_SETTINGS_BODY), PolicyFound)
        for engine in (world.engine, other):
            for size in (1, 2, 40):
                commands = [submit(f"{size}-{n}", settings=SETTINGS_BODY) for n in range(size)]
                for reply in await engine.execute(commands):
                    assert isinstance(reply, Refused), reply
                    assert reply.reason is Reason.SETTINGS_CHANGED
        assert len(await list_facts(other, Kind.JOB)) == 1
        await expect(other, submit("after", settings=OTHER_SETTINGS_BODY), Created)

    async def test_settings_and_a_credential_are_checked_together(self, world: World) -> None:
        await expect(world.engine, set_settings(), PolicyFound)
        await expect(world.engine, set_credential(), PolicyFound)
        await expect(world.engine, submit_with_precondition("a", settings=SETTINGS_BODY), Created)
        replies = await world.engine.execute(
            [
                submit_with_precondition("b", settings=OTHER_SETTINGS_BODY),
                submit_with_precondition("c", Precondition(POLICY_ID, CHANGED_BODY), settings=SETTINGS_BODY),
                submit_with_precondition("d", settings=SETTINGS_BODY),
            ]
        )
        reasons = [reply.reason if isinstance(reply, Refused) else None for reply in replies]
        assert reasons == [Reason.SETTINGS_CHANGED, Reason.CREDENTIAL_CHANGED, None]

    async def test_a_repeated_command_gets_its_reply_although_the_settings_changed(self, world: World) -> None:
        await expect(world.engine, set_settings(), PolicyFound)
        command = submit("k", settings=SETTINGS_BODY)
        first = await expect(world.engine, command, Created)
        await expect(world.engine, set_settings(OTHER_SETTINGS_BODY), PolicyFound)
        assert (await expect(world.engine, command, Created)).job.id == first.job.id

    async def test_live_keys_of_all_tenants_are_counted_until_they_end(self, world: World) -> None:
        assert (await world.engine.scan(CountLiveKeys())).items == [LiveKeyCount()]
        await expect(world.engine, submit("a", ttl_ms=1000), Created)
        last = await expect(world.engine, submit("b", tenant=OTHER, ttl_ms=2000), Created)
        await expect(world.engine, submit(""), Created)
        await world.engine.barrier(None)
        tick = submit("nightly@2026-11-17T02:00:00Z", scope=SCHEDULE_SCOPE, actor=SCHEDULE_ACTOR)
        await expect(world.engine, tick, Created)
        assert (await world.engine.scan(CountLiveKeys())).items == [LiveKeyCount(2, last.expires_at)]
        await world.advance(1001)
        assert (await world.engine.scan(CountLiveKeys())).items == [LiveKeyCount(1, last.expires_at)]
        await world.advance(1001)
        assert (await world.engine.scan(CountLiveKeys())).items == [LiveKeyCount()]
