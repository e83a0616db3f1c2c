"""How long and how much the gate remembers."""

import sys
from typing import Any

import pytest
from msgspec.structs import replace

from onejob.clock import FakeClock
from onejob.conformance.samples import ACTOR, TENANT, key_id, reserve, settle, submit
from onejob.conformance.world import count_replies, expect
from onejob.core.maintenance import Forget
from onejob.core.replies import Created, Forgotten, KeyHeld, KeySettled, Rejected, Replayed
from onejob.core.reserve import Verdict
from onejob.core.submit import Submit
from onejob.engines import gate as hits_module
from onejob.engines.gate import GateIdempotencyCache
from onejob.settings import IdempotencyConfig

from .recording_gate import RecordingGate

DAY_MS = 86_400_000


def submit_for_a_day(key: str = "k", **options: Any) -> Submit:
    return submit(key, ttl_ms=DAY_MS, **options)


async def fill_cache(gate: RecordingGate, *keys: str, ttl_ms: int = DAY_MS) -> None:
    """Jobs that have ended, so that the gate could answer for them alone."""
    for key in keys:
        created = await gate.ask(submit(key, ttl_ms=ttl_ms), Created)
        await gate.cancel_behind_the_gate(created.job.id)
        await gate.ask(submit(key, ttl_ms=ttl_ms), Replayed)


async def is_answered_from_memory(gate: RecordingGate, key: str = "k") -> bool:
    asked = len(gate.engine.commands_of_type(Submit))
    await gate.execute([submit_for_a_day(key)])
    return len(gate.engine.commands_of_type(Submit)) == asked


async def test_the_least_recently_used_leaves_first() -> None:
    gate = RecordingGate(FakeClock(), max_entries=3)
    await fill_cache(gate, "a", "b", "c")
    assert await is_answered_from_memory(gate, "a")
    await fill_cache(gate, "d")
    assert gate.stats().total == 3
    assert [await is_answered_from_memory(gate, key) for key in ("c", "d", "a", "b")] == [True, True, True, False]


async def test_beyond_the_limit_of_waiters_a_duplicate_asks_the_engine_for_itself() -> None:
    gate = RecordingGate(FakeClock(), max_waiters=2)
    for _ in range(2):
        tasks = await gate.start_and_hold([submit_for_a_day("k")] * 5)
        assert gate.stats().waiters <= 2
        replies = await gate.release_and_collect(tasks)
        assert len({reply.job.id for reply in replies}) == 1
        assert gate.stats().waiters == 0
        gate.cache.clear()


async def test_in_flight_requests_are_never_evicted() -> None:
    gate = RecordingGate(FakeClock(), max_entries=1)
    tasks = await gate.start_and_hold([submit_for_a_day(f"k{n % 20}") for n in range(40)])
    stats = gate.stats()
    assert (stats.pending, stats.waiters, stats.total, stats.limit) == (20, 20, 20, 1)
    replies = await gate.release_and_collect(tasks)
    assert count_replies(replies, Created) == 20
    assert count_replies(replies, Replayed) == 20
    assert len(gate.engine.commands) == 20
    assert gate.stats().total == 1


async def test_what_is_remembered_lives_for_the_committed_ttl() -> None:
    clock = FakeClock()
    gate = RecordingGate(clock, committed_ttl_seconds=300.0)
    await fill_cache(gate, "k")
    clock.advance(299.999)
    assert await is_answered_from_memory(gate)
    clock.advance(0.001)
    assert not await is_answered_from_memory(gate)


async def test_a_hit_does_not_prolong_what_is_remembered() -> None:
    clock = FakeClock()
    gate = RecordingGate(clock, committed_ttl_seconds=300.0)
    await gate.ask(submit_for_a_day(), Created)
    for _ in range(3):
        clock.advance(100)
        await gate.ask(submit_for_a_day(), Replayed)
    assert len(gate.engine.commands_of_type(Submit)) == 2


async def test_a_rejection_lives_for_the_rejected_ttl() -> None:
    clock = FakeClock()
    gate = RecordingGate(clock, rejected_ttl_seconds=60.0)
    held = await expect(gate.engine.store, reserve(), KeyHeld)
    await expect(gate.engine.store, settle(held, Verdict.REJECT, ttl_ms=DAY_MS), KeySettled)
    await gate.ask(submit_for_a_day(), Rejected)
    clock.advance(59.999)
    assert await is_answered_from_memory(gate)
    clock.advance(0.001)
    assert not await is_answered_from_memory(gate)
    assert gate.stats().rejected == 1


async def test_nothing_is_remembered_longer_than_its_record_lives() -> None:
    clock = FakeClock()
    gate = RecordingGate(clock, committed_ttl_seconds=300.0)
    await fill_cache(gate, "k", ttl_ms=2_000)
    clock.advance(1.999)
    assert await is_answered_from_memory(gate)
    clock.advance(0.001)
    assert not await is_answered_from_memory(gate)  # the record's last millisecond is the engine's to judge
    clock.advance(0.001)
    await gate.ask(submit_for_a_day(), Created)


async def test_the_ttl_counts_from_before_the_request_was_sent() -> None:
    clock = FakeClock()
    gate = RecordingGate(clock, committed_ttl_seconds=300.0)
    created = await expect(gate.engine.store, submit_for_a_day(), Created)
    await gate.cancel_behind_the_gate(created.job.id)
    tasks = await gate.start_and_hold([submit_for_a_day()])
    clock.advance(200)
    await gate.release_and_collect(tasks)
    clock.advance(99.999)
    assert await is_answered_from_memory(gate)
    clock.advance(0.001)
    assert not await is_answered_from_memory(gate)


async def test_a_follower_is_not_told_of_a_window_that_ended_before_it_came() -> None:
    clock = FakeClock()
    gate = RecordingGate(clock)
    for ms, kind in ((1_000, Replayed), (1_001, Created)):
        key = f"after {ms} ms"
        await expect(gate.engine.store, submit(key, ttl_ms=1_000), Created)
        tasks = await gate.start_and_hold([submit(key)], decided=True)
        clock.advance(ms / 1000)
        tasks += await gate.start_and_hold([submit(key)])
        first, second = await gate.release_and_collect(tasks)
        assert isinstance(first, Replayed)
        assert isinstance(second, kind)


async def test_a_wall_clock_that_jumps_changes_nothing() -> None:
    clock = FakeClock()
    gate = RecordingGate(clock, committed_ttl_seconds=300.0)
    await fill_cache(gate, "k")
    for jump in (DAY_MS, -3 * DAY_MS):
        clock.jump_wall(jump)
        assert await is_answered_from_memory(gate)


async def test_a_forgotten_key_is_asked_for_again() -> None:
    gate = RecordingGate(FakeClock())
    await fill_cache(gate, "k")
    await gate.ask(Forget(tenant=TENANT, record_id=key_id(), actor=ACTOR, grace_ms=300_000), Forgotten)
    assert not await is_answered_from_memory(gate)


async def test_a_gate_in_another_process_has_forgotten_when_the_key_expires() -> None:
    clock = FakeClock()
    gate = RecordingGate(clock, committed_ttl_seconds=300.0)
    await fill_cache(gate, "k")
    forget = Forget(tenant=TENANT, record_id=key_id(), actor=ACTOR, grace_ms=300_000)
    forgotten = await expect(gate.engine.store, forget, Forgotten)
    clock.advance((forgotten.expires_at - forgotten.at) / 1000 + 0.001)
    await gate.ask(submit_for_a_day(), Created)


async def test_cleaning_drops_what_has_outlived_its_time() -> None:
    clock = FakeClock()
    gate = RecordingGate(clock, committed_ttl_seconds=300.0)
    await fill_cache(gate, "a", "b")
    clock.advance(200)
    await fill_cache(gate, "c")
    clock.advance(100)
    assert gate.cache.evict_expired() == 2
    assert gate.stats().total == 1
    assert gate.cache.evict_expired() == 0


async def test_counted_hits_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hits_module, "HIT_RECORDS_MAX", 3)
    gate = RecordingGate(FakeClock())
    await gate.execute([submit_for_a_day(f"k{n}") for n in range(5)])
    for _ in range(2):
        await gate.execute([submit_for_a_day(f"k{n}") for n in range(5)])
    assert [one.hits for one in gate.hits.take()] == [2, 2, 2]


async def test_a_million_keys_through_the_gate_leave_as_many_as_it_may_hold() -> None:
    config = IdempotencyConfig(max_entries=1_000)
    cache: GateIdempotencyCache = GateIdempotencyCache(config, FakeClock().monotonic)
    gate = RecordingGate(FakeClock())
    command = submit_for_a_day()
    created = await gate.ask(command, Created)
    most = 0
    for n in range(1_000_000):
        arrival = replace(command, record_id=n.to_bytes(8, "big"))
        cache.remember(arrival, created, 0.0)
        if not n % 10_000:
            most = max(most, sys.getsizeof(cache._receipts))
    stats = cache.stats(waiters=0)
    assert (stats.total, stats.committed, stats.limit) == (1_000, 1_000, 1_000)
    assert most <= 4 * sys.getsizeof(dict.fromkeys(range(1_000)))
