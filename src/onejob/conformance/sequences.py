"""A sequence number is executed once and in order, its batch as a whole; keys of external jobs are stored once."""

from onejob.core.facts import Kind
from onejob.core.identity import stream_id
from onejob.core.replies import (
    Created,
    KeySettled,
    Missing,
    Reason,
    Refused,
    Replayed,
    SequenceAlreadyCommitted,
    SequenceCommitted,
    StreamFound,
    UsageFound,
)
from onejob.core.sequence import LookUpStream
from onejob.core.submit import StoreKey

from .samples import ACTOR, CLIENT, OTHER, TENANT, TTL_MS, TYPE, USER, key_id, set_limit, submit, submit_sequence
from .world import World, count_replies, dump_store, expect, list_facts, race, read_attachments

COPIES = 100


class SequenceRules:
    async def test_a_hundred_copies_of_one_number_are_executed_once(self, world: World) -> None:
        other = await world.open_another()
        replies = await race([world.engine, other], [submit_sequence(1) for _ in range(COPIES)])
        (won,) = [reply for reply in replies if isinstance(reply, SequenceCommitted)]
        assert count_replies(replies, SequenceAlreadyCommitted) == COPIES - 1
        assert {reply.jobs for reply in replies if isinstance(reply, SequenceAlreadyCommitted)} == {won.jobs}
        assert len(await list_facts(other, Kind.JOB)) == 1
        assert await last_sequence(world) == 1

    async def test_a_race_of_different_keys_for_one_number_has_one_winner(self, world: World) -> None:
        other = await world.open_another()
        replies = await race([world.engine, other], [submit_sequence(1, key=f"k{n}") for n in range(COPIES)])
        assert count_replies(replies, SequenceCommitted) == 1
        refused = [reply.reason for reply in replies if isinstance(reply, Refused)]
        assert refused == [Reason.ALREADY_COMMITTED] * (COPIES - 1)
        assert len(await list_facts(other, Kind.JOB)) == 1

    async def test_numbers_in_one_batch_are_executed_in_order(self, world: World) -> None:
        replies = await world.engine.execute([submit_sequence(n) for n in (1, 3, 2, 3)])
        assert [type(reply) for reply in replies] == [SequenceCommitted, Refused, SequenceCommitted, SequenceCommitted]
        assert await last_sequence(world) == 3

    async def test_a_repeated_number_is_committed_again_and_a_copy_is_already_committed(self, world: World) -> None:
        command = submit_sequence(1, jobs=3)
        first = await expect(world.engine, command, SequenceCommitted)
        stored = await dump_store(world.engine)
        for engine in (world.engine, await world.open_another()):
            assert (await expect(engine, command, SequenceCommitted)).jobs == first.jobs
            assert (await expect(engine, submit_sequence(1, jobs=3), SequenceAlreadyCommitted)).jobs == first.jobs
        assert await dump_store(world.engine) == stored

    async def test_a_batch_is_stored_as_a_whole_or_not_at_all(self, world: World) -> None:
        await expect(world.engine, set_limit(2), UsageFound)
        refused = await expect(world.engine, submit_sequence(1, jobs=3), Refused)
        assert refused.reason is Reason.QUOTA_EXCEEDED
        assert await list_facts(world.engine, Kind.JOB) == []
        assert await last_sequence(world) == 0
        # The number is still free for another payload.
        committed = await expect(
            await world.open_another(), submit_sequence(1, jobs=2, input=b"[2]"), SequenceCommitted
        )
        assert [await read_attachments(world.engine, job.id) for job in committed.jobs] == [[b"[2]"]] * 2
        assert await last_sequence(world) == 1

    async def test_a_batch_of_a_hundred_jobs_is_one_number(self, world: World) -> None:
        committed = await expect(world.engine, submit_sequence(1, jobs=100), SequenceCommitted)
        assert len({job.id for job in committed.jobs}) == 100
        repeated = await expect(await world.open_another(), submit_sequence(1, jobs=100), SequenceAlreadyCommitted)
        assert repeated.jobs == committed.jobs

    async def test_a_number_is_never_executed_again_even_after_its_record_was_deleted(self, world: World) -> None:
        command = submit_sequence(1)
        first = await expect(world.engine, command, SequenceCommitted)
        await world.advance(TTL_MS + 1)
        refused = await expect(await world.open_another(), submit_sequence(1), Refused)
        assert refused.reason is Reason.ALREADY_COMMITTED
        assert refused.details == {"assigned_sequence": 1, "last_committed_sequence": 1}
        # The very same command recognises its own effect.
        assert (await expect(world.engine, command, SequenceCommitted)).jobs == first.jobs
        assert len(await list_facts(world.engine, Kind.JOB)) == 1

    async def test_a_key_belongs_to_one_kind_of_submission(self, world: World) -> None:
        await expect(world.engine, submit_sequence(1, key="k"), SequenceCommitted)
        for command in (submit("k"), submit_sequence(2, key="k", input=b"[1]")):
            assert (await expect(world.engine, command, Refused)).reason is Reason.IDEMPOTENCY_KEY_REUSED
        await expect(world.engine, submit("plain"), Created)
        refused = await expect(world.engine, submit_sequence(2, key="plain"), Refused)
        assert refused.reason is Reason.IDEMPOTENCY_KEY_REUSED
        assert await last_sequence(world) == 1

    async def test_equal_clients_of_two_tenants_are_separate(self, world: World) -> None:
        await expect(world.engine, submit_sequence(1), SequenceCommitted)
        await expect(world.engine, submit_sequence(2), SequenceCommitted)
        gap = await expect(world.engine, submit_sequence(3, tenant=OTHER), Refused)
        assert gap.details == {"last_committed_sequence": 0}
        await expect(world.engine, submit_sequence(1, tenant=OTHER), SequenceCommitted)
        assert (await last_sequence(world), await last_sequence(world, OTHER)) == (2, 1)
        guess = LookUpStream(tenant=OTHER, stream_id=stream_id(TENANT, TYPE, CLIENT))
        await expect(world.engine, guess, Missing)

    async def test_a_repeated_key_of_an_external_job_is_stored_once(self, world: World) -> None:
        command = store_external_key("ec2-77")
        await expect(world.engine, command, KeySettled)
        stored = await dump_store(world.engine)
        for engine in (world.engine, await world.open_another()):
            await expect(engine, command, KeySettled)
            await expect(engine, store_external_key("ec2-78"), Refused)
            assert (await expect(engine, submit(), Replayed)).external_id == "ec2-77"
        assert await dump_store(world.engine) == stored


def store_external_key(id: str) -> StoreKey:
    return StoreKey(
        tenant=TENANT, record_id=key_id(), scope=TYPE, key="k", external_id=id, actor=ACTOR, user=USER, ttl_ms=TTL_MS
    )


async def last_sequence(world: World, tenant: str = TENANT) -> int:
    look_up = LookUpStream(tenant=tenant, stream_id=stream_id(tenant, TYPE, CLIENT))
    (found,) = await world.engine.execute([look_up])
    return int(found.stream.last) if isinstance(found, StreamFound) else 0
