"""A command that cannot be decided or stored fails alone; whoever shares its batch is served."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from onejob.core.facts import FORMAT, U64, Kind
from onejob.core.lookup import LookUpJob
from onejob.core.receipt import Created, Defect, Found, Missing
from onejob.core.step import Command, Footprint

from .commands import (
    Faulty,
    FaultyLook,
    Look,
    Seen,
    Shapeless,
    ShapelessLook,
    SneakyLook,
    Write,
    look,
    written,
)
from .samples import OTHER, TENANT, a_job, a_policy, a_record, a_stream, a_tally, add, one_of_each, submit
from .world import World, ask, everything, listed

LONE = "\ud800"
_JOB = a_job()
_ELSEWHERE = a_job()


def _too_much() -> dict[str, Write]:
    """Values that no store of 64-bit integers and UTF-8 texts can hold."""
    tally = a_tally()
    return {
        "a record's integer is too large": written(a_record("c", token=2**63)),
        "a job's integer is too small": written(a_job(priority=-(2**63) - 1)),
        "a tally's integer is too large": written(replace(tally, live=2**80)),
        "an unsigned integer is too large": written(a_stream(last=U64(2**64))),
        "an unsigned integer is negative": written(a_record("c", sequence=U64(-1))),
        "a record's text has a lone surrogate": written(a_record("c", actor=LONE)),
        "a job's text has a lone surrogate": written(a_job(error="a" + LONE)),
        "a name in a tally has a lone surrogate": written(
            replace(tally, reservations={LONE: tally.reservations["r-1"]})
        ),
        "a policy's name has a lone surrogate": written(replace(a_policy(), name=LONE)),
        "an index is too large": written(_JOB, adds=(add(_JOB.id, index=2**64),)),
        "an index is negative": written(_JOB, adds=(add(_JOB.id, index=-1),)),
    }


def _out_of_bounds() -> dict[str, Write]:
    nothing = Footprint(TENANT)
    facts = one_of_each()
    outside = {
        f"it puts a {type(fact).__name__} outside its footprint": replace(written(fact), within=nothing)
        for fact in facts
    }
    return outside | {
        "it adds to a job outside its footprint": Write(
            tenant=TENANT, adds=(add(_ELSEWHERE.id),), within=nothing
        ),
        "it adds to a job that does not exist": Write(tenant=TENANT, adds=(add(_ELSEWHERE.id),)),
        "it puts a fact of another tenant": Write(tenant=TENANT, policy=a_policy(tenant=OTHER)),
        "it names too many jobs": Write(
            tenant=TENANT, within=Footprint(TENANT, jobs=tuple(a_job().id for _ in range(101)))
        ),
    }


WRITES: dict[str, Command[Any]] = {
    "it fails while it is decided": Faulty(tenant=TENANT),
    "it has no footprint": Shapeless(tenant=TENANT),
    **_too_much(),
    **_out_of_bounds(),
}
READS: dict[str, Command[Any]] = {
    "it fails while it is decided": FaultyLook(tenant=TENANT),
    "it has no footprint": ShapelessLook(tenant=TENANT),
    "it writes": SneakyLook(tenant=TENANT),
    "it names too many jobs": Look(
        tenant=TENANT, footprint=Footprint(TENANT, jobs=tuple(a_job().id for _ in range(101)))
    ),
}


def each(culprits: dict[str, Command[Any]]) -> Callable[[Any], Any]:
    return pytest.mark.parametrize("culprit", culprits.values(), ids=culprits.keys())


class Culprit:
    @each(WRITES)
    async def test_a_culprit_fails_alone(self, world: World, culprit: Command[Any]) -> None:
        innocents = [submit(f"k{n}") for n in range(6)]
        replies = await world.engine.execute([*innocents[:3], culprit, *innocents[3:]])
        assert isinstance(replies[3], Defect)
        assert not replies[3].retryable
        stored = await listed(await world.reopen(), Kind.JOB)
        assert [reply.job for reply in replies if isinstance(reply, Created)] == stored
        assert [job.id for job in stored] == [innocent.job_id for innocent in innocents]
        assert len(await everything(world.engine)) == 3 * len(innocents)

    @each(WRITES)
    async def test_a_culprit_without_company_is_told_so_and_does_nothing(
        self, world: World, culprit: Command[Any]
    ) -> None:
        for _ in range(2):
            assert (await ask(world.engine, culprit, Defect)).message
        assert await everything(world.engine) == []

    @each(WRITES)
    async def test_a_culprit_harms_no_other_caller(self, world: World, culprit: Command[Any]) -> None:
        commands = [submit("a"), culprit, submit("b"), culprit, submit("c", tenant=OTHER)]
        replies = await asyncio.gather(*(world.engine.execute([command]) for command in commands))
        assert [type(reply) for (reply,) in replies] == [Created, Defect, Created, Defect, Created]

    @each(READS)
    async def test_a_culprit_among_reads_fails_alone(self, world: World, culprit: Command[Any]) -> None:
        created = await ask(world.engine, submit(), Created)
        stored = await everything(world.engine)
        reads: list[Command[Any]] = [
            LookUpJob(tenant=TENANT, job_id=created.job.id),
            culprit,
            LookUpJob(tenant=OTHER, job_id=created.job.id),
        ]
        replies = await world.engine.execute(reads)
        assert [type(reply) for reply in replies] == [Found, Defect, Missing]
        assert isinstance(await ask(world.engine, culprit, Defect), Defect)
        assert await everything(world.engine) == stored

    @pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name.lower())
    async def test_what_a_neighbour_names_is_not_ones_own(self, world: World, kind: Kind) -> None:
        fact = one_of_each()[kind]
        neighbour = Write(tenant=TENANT, within=written(fact).footprint)
        culprit = replace(written(fact), within=Footprint(TENANT))
        replies = await world.engine.execute([neighbour, culprit, neighbour])
        assert [type(reply) for reply in replies] == [Seen, Defect, Seen]
        assert await everything(world.engine) == []

    async def test_what_a_newer_program_wrote_is_not_touched(self, world: World) -> None:
        facts = tuple(replace(fact, format=FORMAT + 1) for fact in one_of_each())
        await ask(world.engine, written(*facts), Seen)
        stored = await everything(world.engine)
        for fact in facts:
            for command in (look(fact), written(replace(fact, version=2, format=FORMAT))):
                defect = await ask(world.engine, command, Defect)
                assert defect.retryable, "a newer program can do it, so another attempt may succeed"
        assert await everything(world.engine) == stored

    async def test_a_command_of_a_newer_program_is_not_guessed_at(self, world: World) -> None:
        newer = submit(format=FORMAT + 1)
        (reply, created) = await world.engine.execute([newer, submit("other")])
        assert isinstance(reply, Defect)
        assert reply.retryable
        assert isinstance(created, Created)
        assert [job.key for job in await listed(world.engine, Kind.JOB)] == ["other"]
