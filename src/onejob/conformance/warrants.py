"""Warrants: a command that leans on a policy is decided only while that reads the same."""

from typing import Any

from msgspec.structs import replace

from onejob.core.facts import Kind
from onejob.core.identity import policy_id
from onejob.core.policy import DropPolicy, SetPolicy
from onejob.core.receipt import Created, PolicyFound, Reason, Refused, Tended
from onejob.core.step import Warrant
from onejob.core.submission import Submit
from onejob.engine import Engine
from onejob.ids import new_job_id

from .samples import OTHER, TENANT, submit
from .world import World, ask, listed

NAME = "apikey:0123456789ab"
BODY = b'{"open":true}'
SHUT = b'{"open":false}'
PLACE = policy_id(TENANT, NAME)
WARRANT = Warrant(PLACE, BODY)


def written(body: bytes = BODY, **options: Any) -> SetPolicy:
    return SetPolicy(tenant=TENANT, policy_id=PLACE, name=NAME, body=body, **options)


def leaning(key: str = "k", warrant: Warrant = WARRANT, **options: Any) -> Submit:
    return submit(key, warrant=warrant, **options)


async def refused(engine: Engine, *commands: Submit) -> None:
    for reply in await engine.execute(commands):
        assert isinstance(reply, Refused), reply
        assert reply.reason is Reason.LAPSED
    assert not await listed(engine, Kind.RECORD)
    assert not await listed(engine, Kind.JOB)


class Warrants:
    async def test_a_warrant_that_stands_lets_a_submission_through(self, world: World) -> None:
        await ask(world.engine, written(), PolicyFound)
        for key in ("a", "b", ""):
            await ask(world.engine, leaning(key), Created)
        replies = await world.engine.execute([leaning(f"k{n}") for n in range(40)])
        assert {type(reply) for reply in replies} == {Created}
        assert len(await listed(world.engine, Kind.JOB)) == 43

    async def test_a_change_by_another_holds_for_the_very_next_command(self, world: World) -> None:
        other = await world.reopen()
        await ask(world.engine, written(), PolicyFound)
        await ask(other, leaning("before"), Created)
        await ask(world.engine, written(SHUT), PolicyFound)
        for key in ("new", "before", ""):
            reply = await ask(other, leaning(key), Refused)
            assert reply.reason is Reason.LAPSED
        assert len(await listed(other, Kind.JOB)) == 1
        await ask(other, leaning("new", Warrant(PLACE, SHUT)), Created)

    async def test_a_policy_that_was_never_there_or_was_dropped_gives_no_right(self, world: World) -> None:
        await refused(world.engine, leaning())
        await ask(world.engine, written(), PolicyFound)
        await ask(world.engine, DropPolicy(tenant=TENANT, policy_id=PLACE), Tended)
        await refused(world.engine, leaning(), leaning("b"), leaning(""))

    async def test_a_policy_of_another_tenant_gives_no_right(self, world: World) -> None:
        await ask(world.engine, written(), PolicyFound)
        await ask(world.engine, leaning("k", tenant=OTHER), Refused)
        assert not await listed(world.engine, Kind.JOB, OTHER)

    async def test_a_warrant_ends_by_the_clock_of_the_store(self, world: World) -> None:
        now = (await ask(world.engine, written(), PolicyFound)).at
        ending = replace(WARRANT, until=now + 60_000)
        await ask(world.engine, leaning("in time", ending), Created)
        await world.advance(60_001)
        reply = await ask(world.engine, leaning("late", ending), Refused)
        assert reply.reason is Reason.LAPSED
        assert len(await listed(world.engine, Kind.JOB)) == 1

    async def test_what_was_executed_is_answered_again_though_its_warrant_has_lapsed(
        self, world: World
    ) -> None:
        """Its answer may have been lost: whoever executes it again must hear what became of it."""
        other = await world.reopen()
        await ask(world.engine, written(), PolicyFound)
        for command in (leaning("keyed"), leaning("")):
            first = await ask(world.engine, command, Created)
            await ask(world.engine, written(SHUT), PolicyFound)
            for engine in (world.engine, other):
                assert (await ask(engine, command, Created)).job.id == first.job.id
                await ask(engine, replace(command, job_id=new_job_id()), Refused)
            await ask(world.engine, written(), PolicyFound)
        assert len(await listed(world.engine, Kind.JOB)) == 2

    async def test_in_one_batch_each_warrant_is_looked_at_for_itself(self, world: World) -> None:
        await ask(world.engine, written(), PolicyFound)
        wrong = Warrant(PLACE, SHUT)
        replies = await world.engine.execute([leaning("a"), leaning("b", wrong), submit("c"), leaning("d")])
        assert [type(reply) for reply in replies] == [Created, Refused, Created, Created]
        assert len(await listed(world.engine, Kind.JOB)) == 3
