"""A command that cannot be decided or stored fails alone; the other commands of its batch are executed."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from onejob.core.command import Command, Footprint
from onejob.core.facts import FORMAT, U64, Kind
from onejob.core.lookup import LookUpJob
from onejob.core.replies import Created, Defect, Found, Missing

from .commands import (
    CreateFacts,
    FactsRead,
    FaultyRead,
    FaultyWrite,
    NoFootprintRead,
    NoFootprintWrite,
    ReadFacts,
    WriteFacts,
    WritingRead,
    read_facts,
    write_facts,
)
from .samples import OTHER, TENANT, a_job, a_policy, a_record, a_stream, a_usage, an_attachment, one_of_each, submit
from .world import World, dump_store, expect, list_facts

LONE_SURROGATE = "\ud800"
_JOB = a_job()
_OTHER_JOB = a_job()


def _unstorable_values() -> dict[str, WriteFacts]:
    """Values that no store of 64-bit integers and UTF-8 texts can hold."""
    usage = a_usage()
    return {
        "a record's integer is too large": write_facts(a_record("c", token=2**63)),
        "a job's integer is too small": write_facts(a_job(priority=-(2**63) - 1)),
        "a usage's integer is too large": write_facts(replace(usage, live=2**80)),
        "an unsigned integer is too large": write_facts(a_stream(last=U64(2**64))),
        "an unsigned integer is negative": write_facts(a_record("c", sequence=U64(-1))),
        "a record's text has a lone surrogate": write_facts(a_record("c", actor=LONE_SURROGATE)),
        "a job's text has a lone surrogate": write_facts(a_job(error="a" + LONE_SURROGATE)),
        "a name in a usage has a lone surrogate": write_facts(
            replace(usage, reservations={LONE_SURROGATE: usage.reservations["r-1"]})
        ),
        "a policy's name has a lone surrogate": write_facts(replace(a_policy(), name=LONE_SURROGATE)),
        "an index is too large": write_facts(_JOB, attachments=(an_attachment(_JOB.id, index=2**64),)),
        "an index is negative": write_facts(_JOB, attachments=(an_attachment(_JOB.id, index=-1),)),
    }


def _footprint_violations() -> dict[str, WriteFacts]:
    empty = Footprint(TENANT)
    facts = one_of_each()
    outside = {
        f"it puts a {type(fact).__name__} outside its footprint": replace(write_facts(fact), footprint_override=empty)
        for fact in facts
    }
    return outside | {
        "it adds to a job outside its footprint": WriteFacts(
            tenant=TENANT, attachments=(an_attachment(_OTHER_JOB.id),), footprint_override=empty
        ),
        "it adds to a job that does not exist": WriteFacts(tenant=TENANT, attachments=(an_attachment(_OTHER_JOB.id),)),
        "it puts a fact of another tenant": WriteFacts(tenant=TENANT, policy=a_policy(tenant=OTHER)),
        "it names too many jobs": WriteFacts(
            tenant=TENANT, footprint_override=Footprint(TENANT, jobs=tuple(a_job().id for _ in range(101)))
        ),
    }


FAILING_WRITES: dict[str, Command[Any]] = {
    "it fails while it is decided": FaultyWrite(tenant=TENANT),
    "it has no footprint": NoFootprintWrite(tenant=TENANT),
    "it creates a key and has no footprint": submit("k", job_id=b"", callback="https://example.org/hook"),
    "it creates a job, and an index is negative": CreateFacts(
        tenant=TENANT, jobs=(_JOB,), attachments=(an_attachment(_JOB.id, index=-1),)
    ),
    **_unstorable_values(),
    **_footprint_violations(),
}
FAILING_READS: dict[str, Command[Any]] = {
    "it fails while it is decided": FaultyRead(tenant=TENANT),
    "it has no footprint": NoFootprintRead(tenant=TENANT),
    "it writes": WritingRead(tenant=TENANT),
    "it names too many jobs": ReadFacts(
        tenant=TENANT, footprint=Footprint(TENANT, jobs=tuple(a_job().id for _ in range(101)))
    ),
}


def each_command(commands: dict[str, Command[Any]]) -> Callable[[Any], Any]:
    return pytest.mark.parametrize("failing", commands.values(), ids=commands.keys())


class FailingCommandRules:
    @each_command(FAILING_WRITES)
    async def test_a_failing_command_fails_alone(self, world: World, failing: Command[Any]) -> None:
        others = [submit(f"k{n}") for n in range(6)]
        replies = await world.engine.execute([*others[:3], failing, *others[3:]])
        assert isinstance(replies[3], Defect)
        assert not replies[3].retryable
        stored = await list_facts(await world.open_another(), Kind.JOB)
        assert [reply.job for reply in replies if isinstance(reply, Created)] == stored
        assert [job.id for job in stored] == [other.job_id for other in others]
        assert len(await dump_store(world.engine)) == 3 * len(others)

    @each_command(FAILING_WRITES)
    async def test_a_failing_command_in_its_own_batch_gets_a_defect_and_does_nothing(
        self, world: World, failing: Command[Any]
    ) -> None:
        for _ in range(2):
            assert (await expect(world.engine, failing, Defect)).message
        assert await dump_store(world.engine) == []

    @each_command(FAILING_WRITES)
    async def test_a_failing_command_does_not_affect_other_callers(self, world: World, failing: Command[Any]) -> None:
        commands = [submit("a"), failing, submit("b"), failing, submit("c", tenant=OTHER)]
        replies = await asyncio.gather(*(world.engine.execute([command]) for command in commands))
        assert [type(reply) for (reply,) in replies] == [Created, Defect, Created, Defect, Created]

    @each_command(FAILING_READS)
    async def test_a_failing_read_fails_alone(self, world: World, failing: Command[Any]) -> None:
        created = await expect(world.engine, submit(), Created)
        stored = await dump_store(world.engine)
        reads: list[Command[Any]] = [
            LookUpJob(tenant=TENANT, job_id=created.job.id),
            failing,
            LookUpJob(tenant=OTHER, job_id=created.job.id),
        ]
        replies = await world.engine.execute(reads)
        assert [type(reply) for reply in replies] == [Found, Defect, Missing]
        assert isinstance(await expect(world.engine, failing, Defect), Defect)
        assert await dump_store(world.engine) == stored

    @pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name.lower())
    async def test_a_footprint_of_another_command_gives_no_access(self, world: World, kind: Kind) -> None:
        fact = one_of_each()[kind]
        reader = WriteFacts(tenant=TENANT, footprint_override=write_facts(fact).footprint)
        failing = replace(write_facts(fact), footprint_override=Footprint(TENANT))
        replies = await world.engine.execute([reader, failing, reader])
        assert [type(reply) for reply in replies] == [FactsRead, Defect, FactsRead]
        assert await dump_store(world.engine) == []

    async def test_facts_of_a_newer_format_are_not_changed(self, world: World) -> None:
        facts = tuple(replace(fact, format=FORMAT + 1) for fact in one_of_each())
        await expect(world.engine, write_facts(*facts), FactsRead)
        stored = await dump_store(world.engine)
        for fact in facts:
            for command in (read_facts(fact), write_facts(replace(fact, version=2, format=FORMAT))):
                defect = await expect(world.engine, command, Defect)
                assert defect.retryable, "a newer version can execute it, so a retry may succeed"
        assert await dump_store(world.engine) == stored

    async def test_a_command_of_a_newer_format_is_refused(self, world: World) -> None:
        newer = submit(format=FORMAT + 1)
        (reply, created) = await world.engine.execute([newer, submit("other")])
        assert isinstance(reply, Defect)
        assert reply.retryable
        assert isinstance(created, Created)
        assert [job.key for job in await list_facts(world.engine, Kind.JOB)] == ["other"]
