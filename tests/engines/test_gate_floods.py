"""A flood of duplicates of a held key costs the engine one question and the polls of one waiter."""

import asyncio

from onejob.clock import FakeClock, SystemClock
from onejob.conformance.samples import reserve, settle, submit
from onejob.conformance.world import expect
from onejob.core.replies import InProgress, KeyHeld, KeySettled, Replayed
from onejob.core.submit import Submit
from onejob.engines.batcher import Batcher
from onejob.engines.gate import Gate
from onejob.settings import IdempotencyConfig
from tests.support.managers import open_remote, running_manager
from tests.support.recording_engine import RecordingEngine

DUPLICATES = 10_000


def submissions(engine: RecordingEngine) -> int:
    return sum(type(command) is Submit for batch in engine.batches for command in batch)


async def test_ten_thousand_duplicates_of_a_held_key_are_one_question() -> None:
    store = RecordingEngine(FakeClock())
    config = IdempotencyConfig(pending_wait_timeout=60)
    async with running_manager(store) as url:
        gate = Gate(Batcher(await open_remote(url)), config, SystemClock().monotonic)
        held = await expect(gate, reserve(lease_ms=600_000), KeyHeld)
        flood = [asyncio.create_task(gate.execute_one(submit())) for _ in range(DUPLICATES // 2)]
        await asyncio.sleep(0.2)
        flood += [asyncio.create_task(gate.execute_one(submit())) for _ in range(DUPLICATES // 2)]
        async with asyncio.timeout(30):
            while gate.stats().waiters < DUPLICATES:
                await asyncio.sleep(0.05)
        assert submissions(store) == 1
        await expect(gate, settle(held), KeySettled)
        replies = await asyncio.gather(*flood)
        assert all(isinstance(reply, Replayed) for reply in replies)
        assert {reply.job.id for reply in replies if isinstance(reply, Replayed) and reply.job} == {held.job_id}
        assert submissions(store) == 2
        await gate.aclose()


async def test_at_the_end_of_the_wait_each_duplicate_asks_for_itself() -> None:
    store = RecordingEngine(FakeClock())
    gate = Gate(Batcher(store), IdempotencyConfig(pending_wait_timeout=0.2), SystemClock().monotonic)
    await expect(gate, reserve(lease_ms=600_000), KeyHeld)
    replies = await asyncio.gather(*(gate.execute_one(submit()) for _ in range(20)))
    assert all(isinstance(reply, InProgress) for reply in replies)
    assert submissions(store) == 1 + 20


async def test_without_waiting_each_duplicate_asks_for_itself() -> None:
    store = RecordingEngine(FakeClock())
    gate = Gate(Batcher(store), IdempotencyConfig(wait_for_pending=False), SystemClock().monotonic)
    await expect(gate, reserve(lease_ms=600_000), KeyHeld)
    replies = await asyncio.gather(*(gate.execute_one(submit()) for _ in range(20)))
    assert all(isinstance(reply, InProgress) for reply in replies)
    assert submissions(store) == 20


async def test_another_body_under_a_held_key_is_asked_about() -> None:
    store = RecordingEngine(FakeClock())
    gate = Gate(Batcher(store), IdempotencyConfig(pending_wait_timeout=60), SystemClock().monotonic)
    held = await expect(gate, reserve(lease_ms=600_000), KeyHeld)
    waiting = asyncio.create_task(gate.execute_one(submit()))
    await asyncio.sleep(0.05)
    reply = await gate.execute_one(submit(input=b"{}"))
    assert type(reply).__name__ == "Conflict"
    await expect(gate, settle(held), KeySettled)
    assert isinstance(await waiting, Replayed)
