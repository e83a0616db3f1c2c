"""Stored values are read back unchanged: bytes, texts and integers of every size."""

import pytest
from msgspec.structs import replace

from onejob.core.facts import U64, AttachmentKind, KeyConflict, Kind
from onejob.core.lookup import LookUpKey
from onejob.core.maintenance import CountHits, decode_conflicts
from onejob.core.replies import Created, Found, KeyHeld, KeySettled, Maintained, Replayed
from onejob.core.states import Delivery

from .commands import FactsRead, read_facts, write_facts
from .samples import TENANT, a_job, a_policy, a_record, a_stream, an_attachment, key_id, reserve, settle, submit
from .world import World, expect, list_facts, read_attachments

PAYLOADS = {
    "nothing": b"",
    "one NUL": b"\x00",
    "NULs around": b"\x00a\x00",
    "every byte": bytes(range(256)),
    "not UTF-8": b"\xff\xfe\xed\xa0\x80",
    "a mebibyte": bytes(range(256)) * 4096,
}
# These keys are all different, although collations and normal forms of some stores make some of them equal.
KEYS = (
    "key", "KEY", "Key", " key", "key ", "kéy", "ke\u0301y", "\u212aey", "key\u200b", "ｋｅｙ", "ключ", "キー", "🔑",
    "k'ey", 'k"ey', "k%ey", "k_ey", "k\\ey", "k/ey", "k;ey--", "0", "00", "1e0", "NULL",
    "x" * 255, "x" * 254 + "y", "🔑" * 255,
)  # fmt: skip

each_payload = pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
each_u64 = pytest.mark.parametrize("number", [0, 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1])


class ValueRules:
    @each_payload
    async def test_an_input_is_read_back_byte_for_byte(self, world: World, payload: bytes) -> None:
        created = await expect(world.engine, submit(input=payload), Created)
        for engine in (world.engine, await world.open_another()):
            assert await read_attachments(engine, created.job.id) == [payload]

    @each_payload
    async def test_a_receipt_is_read_back_byte_for_byte(self, world: World, payload: bytes) -> None:
        held = await expect(world.engine, reserve(), KeyHeld)
        await expect(world.engine, settle(held, receipt=payload), KeySettled)
        for engine in (world.engine, await world.open_another()):
            assert (await expect(engine, submit(), Replayed)).receipt == payload

    @each_payload
    async def test_a_policy_is_read_back_byte_for_byte(self, world: World, payload: bytes) -> None:
        policy = a_policy(body=payload)
        await expect(world.engine, write_facts(policy), FactsRead)
        assert (await expect(await world.open_another(), read_facts(policy), FactsRead)).policy == policy

    @each_u64
    async def test_unsigned_64_bit_integers_are_read_back_exactly(self, world: World, number: int) -> None:
        job = a_job()
        stream, record = a_stream(last=U64(number)), a_record(sequence=U64(number))
        log_line = an_attachment(job.id, b"line", kind=AttachmentKind.LOG, index=number)
        await expect(world.engine, write_facts(record, job, stream, attachments=(log_line,)), FactsRead)
        for engine in (world.engine, await world.open_another()):
            assert (await expect(engine, read_facts(record, job, stream), FactsRead)).facts == (record, job, stream)
            assert await list_facts(engine, Kind.STREAM) == [stream]
            assert await list_facts(engine, Kind.RECORD) == [record]
            assert await read_attachments(engine, job.id, AttachmentKind.LOG) == [b"line"]
        back = replace(stream, version=2, last=U64(2**64 - 1 - number))
        await expect(world.engine, write_facts(back), FactsRead)
        assert (await expect(await world.open_another(), read_facts(back), FactsRead)).stream == back

    async def test_keys_that_look_alike_are_different_keys(self, world: World) -> None:
        replies = await world.engine.execute([submit(key) for key in KEYS])
        jobs = [reply.job for reply in replies if isinstance(reply, Created)]
        assert [job.key for job in jobs] == list(KEYS)
        other = await world.open_another()
        for key, job in zip(KEYS, jobs, strict=True):
            found = await expect(other, LookUpKey(tenant=TENANT, record_id=key_id(key)), Found)
            assert found.record is not None
            assert found.record.key == key
            assert found.job == job

    async def test_every_option_of_a_submission_is_read_back(self, world: World) -> None:
        command = submit(
            type="übung",
            priority=-7,
            run_at=4_102_444_800_000,
            delivery=Delivery.AT_MOST_ONCE,
            attempts_max=9,
            timeout_ms=2**40,
            labels='{"a":"ä"}'.encode(),
            user="Zoë 💌",
            actor="user:Zoë",
        )
        created = await expect(world.engine, command, Created)
        job = created.job
        assert (job.type, job.priority, job.run_at, job.delivery) == (
            command.type, command.priority, command.run_at, command.delivery
        )  # fmt: skip
        assert (job.attempts_max, job.timeout_ms, job.labels, job.user, job.actor) == (
            command.attempts_max, command.timeout_ms, command.labels, command.user, command.actor
        )  # fmt: skip
        assert await list_facts(await world.open_another(), Kind.JOB) == [job]

    async def test_a_record_keeps_its_last_8_conflicts(self, world: World) -> None:
        await expect(world.engine, submit("k"), Created)
        conflicts = [KeyConflict(n, f"client:{n}", ("/input/größe", "/input/~0/1")) for n in range(12)]
        for some in (conflicts[:5], conflicts[9:], conflicts[5:9], []):  # several gates report theirs in any order
            count = CountHits(tenant=TENANT, record_id=key_id("k"), hits=1, conflicts=3, recent_conflicts=tuple(some))
            await expect(world.engine, count, Maintained)
        found = await expect(world.engine, LookUpKey(tenant=TENANT, record_id=key_id("k")), Found)
        assert found.record is not None
        assert (found.record.hits, found.record.conflicts) == (4, 12)
        assert list(decode_conflicts(found.record.recent_conflicts)) == conflicts[4:]

    async def test_a_thousand_submissions_fit_one_call(self, world: World) -> None:
        commands = [submit(f"k{n}") for n in range(1000)]
        replies = await world.engine.execute(commands)
        assert all(isinstance(reply, Created) for reply in replies)
        stored = await list_facts(await world.open_another(), Kind.JOB)
        assert [job.id for job in stored] == [command.job_id for command in commands]
