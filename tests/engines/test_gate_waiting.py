"""Waiting for a key that somebody holds: one poll for all, an early wake-up, an end in time, and never a second job."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from onejob.clock import FakeClock
from onejob.conformance.samples import TENANT, key_id, reserve, settle, submit
from onejob.conformance.world import count_replies, expect, list_facts
from onejob.core.facts import Kind
from onejob.core.lookup import LookUpKey
from onejob.core.replies import Conflict, Created, InProgress, KeyHeld, KeySettled, Rejected, Replayed
from onejob.core.reserve import TakeOver, Verdict
from onejob.core.submit import Submit
from onejob.errors import Unavailable, Unknown
from onejob.ids import new_holder
from tests.support.recording_engine import run_ready_callbacks

from .recording_gate import RecordingGate
from .virtual_time import in_virtual_time

WAIT = 30.0


async def held_by_another(gate: RecordingGate, lease_ms: int = 3_600_000) -> KeyHeld:
    return await expect(gate.engine.store, reserve(lease_ms=lease_ms), KeyHeld)


def poll_times(gate: RecordingGate) -> list[float]:
    """When the awaited key was looked at, in seconds since the clock's beginning."""
    return [
        at for batch, at in zip(gate.engine.batches, gate.engine.times, strict=True) if isinstance(batch[0], LookUpKey)
    ]


@in_virtual_time
async def test_a_key_is_polled_once_for_all_who_wait(clock: FakeClock) -> None:
    gate = RecordingGate(clock, pending_wait_timeout=WAIT)
    await held_by_another(gate)
    begun = clock.monotonic()
    waiting = [gate.start_call(submit()) for _ in range(100)]
    await asyncio.sleep(4.9)
    assert gate.stats().waiters == 100
    assert (gate.count_waiters(TENANT), gate.count_waiters("another")) == (100, 0)
    pauses = [round(later - earlier, 6) for earlier, later in pairwise([begun, *poll_times(gate)])]
    assert pauses == [0.02, 0.04, 0.08, 0.16, 0.32, *[0.5] * 8]
    for (reply,) in await asyncio.gather(*waiting):
        assert isinstance(reply, InProgress)
    assert gate.stats().waiters == 0


@in_virtual_time
async def test_beyond_the_limit_of_waiters_the_answer_is_in_progress_at_once(clock: FakeClock) -> None:
    gate = RecordingGate(clock, pending_wait_timeout=WAIT, max_waiters=3)
    await held_by_another(gate)
    begun = clock.monotonic()
    waiting = [gate.start_call(submit()) for _ in range(3)]
    await asyncio.sleep(1)
    assert gate.stats().waiters == 3
    await gate.ask(submit(), InProgress)
    assert clock.monotonic() - begun < 2
    await asyncio.gather(*waiting)
    assert clock.monotonic() - begun == pytest.approx(WAIT)
    assert gate.stats().waiters == 0


@in_virtual_time
async def test_when_time_is_up_the_answer_is_in_progress(clock: FakeClock) -> None:
    gate = RecordingGate(clock, pending_wait_timeout=WAIT)
    held = await held_by_another(gate)
    begun = clock.monotonic()
    reply = await gate.ask(submit(), InProgress)
    assert reply.job_id == held.job_id
    assert clock.monotonic() - begun == pytest.approx(WAIT)
    assert [job.id for job in await list_facts(gate.engine, Kind.JOB)] == [held.job_id]
    polled = len(poll_times(gate))
    await asyncio.sleep(10)
    assert len(poll_times(gate)) == polled, "nobody waits any more"


@in_virtual_time
async def test_the_answer_after_a_wait_says_what_is_left_of_the_lease_then(clock: FakeClock) -> None:
    gate = RecordingGate(clock, pending_wait_timeout=WAIT)
    await held_by_another(gate, lease_ms=300_000)
    reply = await gate.ask(submit(), InProgress)
    assert reply.retry_after_ms == pytest.approx(300_000 - WAIT * 1000, abs=10)


@in_virtual_time
async def test_a_key_that_is_settled_as_the_wait_ends_is_answered(clock: FakeClock) -> None:
    gate = RecordingGate(clock, pending_wait_timeout=0.9)
    held = await held_by_another(gate)
    waiting = gate.start_call(submit())
    await asyncio.sleep(0.8)  # after the last poll
    await expect(gate.engine.store, settle(held), KeySettled)
    (reply,) = await waiting
    assert isinstance(reply, Replayed)


@in_virtual_time
async def test_a_commit_through_the_same_gate_wakes_waiters_at_once(clock: FakeClock) -> None:
    gate = RecordingGate(clock, pending_wait_timeout=WAIT)
    held = await gate.ask(reserve(lease_ms=3_600_000), KeyHeld)
    waiting = [gate.start_call(submit()) for _ in range(10)]
    await asyncio.sleep(0.001)
    begun = clock.monotonic()
    await gate.ask(settle(held), KeySettled)
    replies = [reply for (reply,) in await asyncio.gather(*waiting)]
    assert clock.monotonic() == begun
    assert count_replies(replies, Replayed) == 10
    assert poll_times(gate) == []


@in_virtual_time
async def test_a_commit_in_another_process_is_found_by_the_next_poll(clock: FakeClock) -> None:
    gate = RecordingGate(clock, pending_wait_timeout=WAIT)
    held = await held_by_another(gate)
    waiting = [gate.start_call(submit()) for _ in range(10)]
    await asyncio.sleep(7)
    await expect(gate.engine.store, settle(held), KeySettled)
    settled = clock.monotonic()
    replies = [reply for (reply,) in await asyncio.gather(*waiting)]
    assert count_replies(replies, Replayed) == 10
    assert 0 < clock.monotonic() - settled <= 0.5


@in_virtual_time
async def test_a_waiter_finishes_what_a_dead_holder_left(clock: FakeClock) -> None:
    gate = RecordingGate(clock, pending_wait_timeout=WAIT)
    held = await held_by_another(gate, lease_ms=5_000)
    begun = clock.monotonic()
    replies = [reply for (reply,) in await asyncio.gather(*(gate.start_call(submit()) for _ in range(20)))]
    assert 5.0 < clock.monotonic() - begun <= 5.6
    assert count_replies(replies, Created) == 1
    assert count_replies(replies, Replayed) == 19
    assert [job.id for job in await list_facts(gate.engine, Kind.JOB)] == [held.job_id]


@in_virtual_time
async def test_a_waiting_reservation_takes_over_and_only_one_does(clock: FakeClock) -> None:
    gate = RecordingGate(clock, pending_wait_timeout=WAIT)
    held = await held_by_another(gate, lease_ms=5_000)
    tasks = [gate.start_call(reserve(lease_ms=3_600_000)) for _ in range(5)]
    replies = [reply for (reply,) in await asyncio.gather(*tasks)]
    (taken,) = [reply for reply in replies if isinstance(reply, KeyHeld)]
    assert (taken.job_id, taken.token) == (held.job_id, held.token + 1)
    assert count_replies(replies, InProgress) == 4


@in_virtual_time
async def test_waiters_get_the_verdict(clock: FakeClock) -> None:
    for verdict, kinds in ((Verdict.REJECT, {Rejected}), (Verdict.FAIL, {Created, Replayed})):
        gate = RecordingGate(clock, pending_wait_timeout=WAIT)
        held = await held_by_another(gate)
        waiting = [gate.start_call(submit()) for _ in range(5)]
        await asyncio.sleep(1)
        await gate.ask(settle(held, verdict), KeySettled)
        replies = [reply for (reply,) in await asyncio.gather(*waiting)]
        assert {type(reply) for reply in replies} == kinds
        assert count_replies(replies, Created) <= 1


@pytest.mark.parametrize("config", [{"wait_for_pending": False}, {"pending_wait_timeout": 0.0}])
def test_not_to_wait_is_a_choice(config: dict[str, Any]) -> None:
    @in_virtual_time
    async def run(clock: FakeClock) -> None:
        gate = RecordingGate(clock, **config)
        held = await held_by_another(gate)
        begun = clock.monotonic()
        assert (await gate.ask(submit(), InProgress)).job_id == held.job_id
        assert clock.monotonic() == begun

    run()


@in_virtual_time
async def test_a_conflict_and_a_take_over_are_not_made_to_wait(clock: FakeClock) -> None:
    gate = RecordingGate(clock, pending_wait_timeout=WAIT)
    await held_by_another(gate)
    begun = clock.monotonic()
    await gate.ask(submit(input=b"{}"), Conflict)
    take = TakeOver(tenant=TENANT, record_id=key_id(), holder=new_holder(), lease_ms=1)
    await gate.ask(take, InProgress)
    assert clock.monotonic() == begun


@in_virtual_time
async def test_an_error_while_polling_does_not_end_the_wait(clock: FakeClock) -> None:
    gate = RecordingGate(clock, pending_wait_timeout=WAIT)
    held = await held_by_another(gate)
    waiting = gate.start_call(submit())
    await asyncio.sleep(0.01)
    gate.engine.fail_before.extend([Unavailable("no disk"), Unknown("lost"), Unknown("lost"), Unknown("lost")])
    await asyncio.sleep(2)
    assert not waiting.done()
    await expect(gate.engine.store, settle(held), KeySettled)
    (reply,) = await waiting
    assert isinstance(reply, Replayed)


@in_virtual_time
async def test_a_reserve_that_was_executed_and_taken_over_is_never_told_that_nothing_was_done(clock: FakeClock) -> None:
    gate = RecordingGate(clock, pending_wait_timeout=WAIT)
    mine = reserve(lease_ms=10)
    await expect(gate.engine.store, mine, KeyHeld)  # an attempt whose reply is lost
    await asyncio.sleep(1)
    other = await expect(gate.engine.store, reserve(holder=new_holder(), lease_ms=3_600_000), KeyHeld)
    assert other.job_id == mine.job_id
    waiting = gate.start_call(mine)
    await asyncio.sleep(WAIT - 0.01)
    gate.engine.fail_before.extend([Unavailable("no disk")] * 3)
    (reply,) = await waiting
    assert isinstance(reply, InProgress)


@in_virtual_time
async def test_a_waiter_that_goes_away_harms_no_other(clock: FakeClock) -> None:
    gate = RecordingGate(clock, pending_wait_timeout=WAIT)
    held = await held_by_another(gate)
    waiting = [gate.start_call(submit()) for _ in range(3)]
    await asyncio.sleep(1)
    waiting[0].cancel()
    await run_ready_callbacks()
    assert gate.stats().waiters == 2
    await expect(gate.engine.store, settle(held), KeySettled)
    for task in waiting[1:]:
        (reply,) = await task
        assert isinstance(reply, Replayed)


@in_virtual_time
async def test_when_the_last_waiter_goes_the_polling_ends(clock: FakeClock) -> None:
    gate = RecordingGate(clock, pending_wait_timeout=WAIT)
    await held_by_another(gate)
    waiting = gate.start_call(submit())
    await asyncio.sleep(1)
    waiting.cancel()
    polled = len(poll_times(gate))
    await asyncio.sleep(5)
    assert len(poll_times(gate)) == polled
    assert gate.stats().waiters == 0


@in_virtual_time
async def test_keys_are_waited_for_independently(clock: FakeClock) -> None:
    gate = RecordingGate(clock, pending_wait_timeout=WAIT)
    for key in ("a", "b"):
        await expect(gate.engine.store, reserve(key, lease_ms=2_000 if key == "a" else 3_600_000), KeyHeld)
    first, second = gate.start_call(submit("a")), gate.start_call(submit("b"))
    (reply,) = await first
    assert isinstance(reply, Created)
    assert not second.done()
    (reply,) = await second
    assert isinstance(reply, InProgress)


@in_virtual_time
async def test_one_call_with_many_keys_waits_for_all_of_them_at_once(clock: FakeClock) -> None:
    gate = RecordingGate(clock, pending_wait_timeout=WAIT)
    await held_by_another(gate)
    begun = clock.monotonic()
    replies = await gate.execute_each([submit(), submit("free"), submit(), submit("k", input=b"{}")])
    assert [type(reply) for reply in replies] == [InProgress, Created, InProgress, Conflict]
    assert clock.monotonic() - begun == pytest.approx(WAIT)


@in_virtual_time
async def test_closing_answers_whoever_waits(clock: FakeClock) -> None:
    gate = RecordingGate(clock, pending_wait_timeout=WAIT)
    await held_by_another(gate)
    waiting = gate.start_call(submit())
    await asyncio.sleep(1)
    begun = clock.monotonic()
    await gate.aclose()
    (reply,) = await waiting
    assert isinstance(reply, InProgress)
    assert clock.monotonic() == begun


@in_virtual_time
async def test_closing_answers_whoever_was_about_to_wait(clock: FakeClock) -> None:
    gate = RecordingGate(clock, pending_wait_timeout=WAIT)
    await held_by_another(gate)
    tasks = await gate.start_and_hold([submit()])
    begun = clock.monotonic()
    closing = asyncio.get_running_loop().create_task(gate.aclose())
    await run_ready_callbacks()
    (reply,) = await gate.release_and_collect(tasks)
    await closing
    assert isinstance(reply, (InProgress, Unavailable))
    assert clock.monotonic() == begun
    assert len(gate.engine.commands_of_type(Submit)) == 1


@in_virtual_time
async def test_a_settling_caller_that_disconnects_still_wakes_waiters(clock: FakeClock) -> None:
    gate = RecordingGate(clock, pending_wait_timeout=WAIT)
    held = await held_by_another(gate)
    waiting = gate.start_call(submit())
    await asyncio.sleep(5.1)
    begun = clock.monotonic()
    (leaving,) = await gate.start_and_hold([settle(held, Verdict.COMMIT)])
    leaving.cancel()
    await run_ready_callbacks()
    gate.engine.release_writes()
    (reply,) = await waiting
    assert isinstance(reply, Replayed)
    assert clock.monotonic() == begun
