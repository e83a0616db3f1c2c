"""Sequences: a number of a client is executed once, in order, a batch as a whole; and keys of foreign jobs."""

from onejob.core.facts import Kind
from onejob.core.foreign import StoreKey
from onejob.core.identity import stream_id
from onejob.core.receipt import (
    AlreadyCommitted,
    Committed,
    Created,
    Missing,
    Reason,
    Refused,
    Replayed,
    Settled,
    StreamFound,
    TallyFound,
)
from onejob.core.sequence import LookUpStream

from .races import raced
from .samples import (
    ACTOR,
    CLIENT,
    OTHER,
    TENANT,
    TTL_MS,
    TYPE,
    USER,
    key_id,
    limited,
    send,
    submit,
)
from .world import World, ask, attached, count, everything, listed

COPIES = 100


class Sequences:
    async def test_a_hundred_copies_of_one_number_are_executed_once(self, world: World) -> None:
        other = await world.reopen()
        replies = await raced([world.engine, other], [send(1) for _ in range(COPIES)])
        (won,) = [reply for reply in replies if isinstance(reply, Committed)]
        assert count(replies, AlreadyCommitted) == COPIES - 1
        assert {reply.jobs for reply in replies if isinstance(reply, AlreadyCommitted)} == {won.jobs}
        assert len(await listed(other, Kind.JOB)) == 1
        assert await last(world) == 1

    async def test_a_race_of_different_keys_for_one_number_has_one_winner(self, world: World) -> None:
        other = await world.reopen()
        replies = await raced([world.engine, other], [send(1, key=f"k{n}") for n in range(COPIES)])
        assert count(replies, Committed) == 1
        assert count(replies, AlreadyCommitted) == COPIES - 1
        assert len(await listed(other, Kind.JOB)) == 1

    async def test_numbers_in_one_batch_follow_each_other(self, world: World) -> None:
        replies = await world.engine.execute([send(n) for n in (1, 3, 2, 3)])
        assert [type(reply) for reply in replies] == [Committed, Refused, Committed, Committed]
        assert await last(world) == 3

    async def test_a_repeated_number_is_committed_again_and_a_copy_already(self, world: World) -> None:
        command = send(1, jobs=3)
        first = await ask(world.engine, command, Committed)
        stored = await everything(world.engine)
        for engine in (world.engine, await world.reopen()):
            assert (await ask(engine, command, Committed)).jobs == first.jobs
            assert (await ask(engine, send(1, jobs=3), AlreadyCommitted)).jobs == first.jobs
        assert await everything(world.engine) == stored

    async def test_a_batch_is_stored_as_a_whole_or_not_at_all(self, world: World) -> None:
        await ask(world.engine, limited(2), TallyFound)
        refused = await ask(world.engine, send(1, jobs=3), Refused)
        assert refused.reason is Reason.QUOTA_EXCEEDED
        assert await listed(world.engine, Kind.JOB) == []
        assert await last(world) == 0
        # Its number is free for another payload.
        done = await ask(await world.reopen(), send(1, jobs=2, input=b"[2]"), Committed)
        assert [await attached(world.engine, job.id) for job in done.jobs] == [[b"[2]"]] * 2
        assert await last(world) == 1

    async def test_a_batch_of_a_hundred_jobs_is_one_number(self, world: World) -> None:
        done = await ask(world.engine, send(1, jobs=100), Committed)
        assert len({job.id for job in done.jobs}) == 100
        again = await ask(await world.reopen(), send(1, jobs=100), AlreadyCommitted)
        assert again.jobs == done.jobs

    async def test_a_number_is_never_executed_again_even_when_its_record_has_gone(self, world: World) -> None:
        await ask(world.engine, send(1), Committed)
        await world.advance(TTL_MS + 1)
        again = await ask(await world.reopen(), send(1), AlreadyCommitted)
        assert (again.jobs, again.sequence, again.last) == ((), 1, 1)
        assert len(await listed(world.engine, Kind.JOB)) == 1

    async def test_a_key_belongs_to_one_door(self, world: World) -> None:
        await ask(world.engine, send(1, key="k"), Committed)
        for command in (submit("k"), send(2, key="k", input=b"[1]")):
            assert (await ask(world.engine, command, Refused)).reason is Reason.IDEMPOTENCY_KEY_REUSED
        await ask(world.engine, submit("plain"), Created)
        refused = await ask(world.engine, send(2, key="plain"), Refused)
        assert refused.reason is Reason.IDEMPOTENCY_KEY_REUSED
        assert await last(world) == 1

    async def test_two_tenants_with_equal_clients_never_meet(self, world: World) -> None:
        await ask(world.engine, send(1), Committed)
        await ask(world.engine, send(2), Committed)
        gap = await ask(world.engine, send(3, tenant=OTHER), Refused)
        assert gap.details == {"last_committed_sequence": 0}
        await ask(world.engine, send(1, tenant=OTHER), Committed)
        assert (await last(world), await last(world, OTHER)) == (2, 1)
        guess = LookUpStream(tenant=OTHER, stream_id=stream_id(TENANT, TYPE, CLIENT))
        await ask(world.engine, guess, Missing)

    async def test_a_repeated_key_of_a_foreign_job_is_remembered_once(self, world: World) -> None:
        command = foreign("ec2-77")
        await ask(world.engine, command, Settled)
        stored = await everything(world.engine)
        for engine in (world.engine, await world.reopen()):
            await ask(engine, command, Settled)
            await ask(engine, foreign("ec2-78"), Refused)
            assert (await ask(engine, submit(), Replayed)).foreign_id == "ec2-77"
        assert await everything(world.engine) == stored


def foreign(id: str) -> StoreKey:
    return StoreKey(
        tenant=TENANT,
        record_id=key_id(),
        scope=TYPE,
        key="k",
        foreign_id=id,
        actor=ACTOR,
        user=USER,
        ttl_ms=TTL_MS,
    )


async def last(world: World, tenant: str = TENANT) -> int:
    look = LookUpStream(tenant=tenant, stream_id=stream_id(tenant, TYPE, CLIENT))
    (found,) = await world.engine.execute([look])
    return int(found.stream.last) if isinstance(found, StreamFound) else 0
