"""The combiner beside an engine that takes long, and in a process that reads many connections."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from onejob.clock import FakeClock
from onejob.conformance.samples import submit
from onejob.core.command import Command
from onejob.core.replies import AnyReply, Created, Replayed
from onejob.engine import OnTimeout
from onejob.engines import batcher
from onejob.engines.batcher import Batcher
from onejob.errors import FactsLocked, PartlyDone, Unavailable, Unknown
from tests.support.recording_engine import RecordingEngine, run_ready_callbacks, start_call

Call = asyncio.Task[Sequence[AnyReply]]


@pytest.fixture
def engine() -> RecordingEngine:
    return RecordingEngine(FakeClock())


class SlowEngine(RecordingEngine):
    """It carries batches itself, and says when whoever waits has waited enough."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.give_ups: list[OnTimeout] = []

    async def execute(
        self, commands: Sequence[Command[Any]], /, *, on_timeout: OnTimeout | None = None
    ) -> Sequence[AnyReply]:
        assert on_timeout is not None
        self.give_ups.append(on_timeout)
        return await super().execute(commands)


async def start_slow_call() -> tuple[SlowEngine, Batcher, Call]:
    """A submission that the engine is at, and does not end."""
    engine = SlowEngine(FakeClock())
    combined = Batcher(engine)
    engine.hold_writes()
    call = start_call(combined, submit("slow"))
    await run_ready_callbacks()
    return engine, combined, call


async def test_a_caller_that_times_out_is_answered_while_the_engine_goes_on() -> None:
    engine, combined, first = await start_slow_call()
    engine.give_ups[0](Unknown("it takes too long"))
    with pytest.raises(Unknown, match="too long"):
        await first
    second = start_call(combined, submit("next"))
    await run_ready_callbacks()
    assert len(engine.batches) == 2, "the next does not wait for what nobody waits for"
    assert not second.done()
    engine.release_writes()
    assert isinstance((await second)[0], Created)
    await run_ready_callbacks()
    assert len(engine.batches) == 2, "what was given up is not sent again"
    (again,) = await start_call(combined, submit("slow"))
    assert isinstance(again, Replayed), "it was done all the same"
    assert not combined._detached_tasks
    await combined.aclose()


async def test_a_timed_out_command_that_fails_later_is_reported_once_and_not_sent_again() -> None:
    engine, combined, call = await start_slow_call()
    engine.give_ups[0](Unavailable("it takes too long"))
    with pytest.raises(Unavailable):
        await call
    engine.fail_before.append(Unknown("lost"))
    engine.release_writes()
    await run_ready_callbacks()
    assert len(engine.batches) == 1
    assert isinstance((await start_call(combined, submit("slow")))[0], Created)
    assert not combined._detached_tasks
    await combined.aclose()


async def test_where_many_callers_are_expected_a_batch_waits_for_those_on_the_way(engine: RecordingEngine) -> None:
    engine.info = replace(engine.info, write_lanes=2)
    combined = Batcher(engine, coalesce=True)
    calls = [start_call(combined, submit(f"a{n}")) for n in range(6)]

    async def later() -> None:  # in the next turn of the loop, as another read of sockets would be
        calls.extend(start_call(combined, submit(f"b{n}")) for n in range(6))

    await asyncio.gather(*calls[:6], asyncio.create_task(later()))
    await asyncio.gather(*calls)
    assert [len(batch) for batch in engine.batches] == [12], "neither shared out nor sent too soon"
    await combined.aclose()


async def test_where_many_are_expected_one_alone_does_not_wait(engine: RecordingEngine) -> None:
    turns: list[int] = []
    for whole in (False, True):
        combined = Batcher(engine, coalesce=whole)
        before, call = len(engine.batches), start_call(combined, submit(f"alone{whole}"))
        turns.append(0)
        while len(engine.batches) == before:
            await asyncio.sleep(0)
            turns[-1] += 1
        await call
    assert turns[0] == turns[1]


async def test_a_timeout_of_the_second_attempt_leaves_the_first_unknown() -> None:
    engine = SlowEngine(FakeClock())
    combined = Batcher(engine)
    engine.fail_after.append(Unknown("the answer was lost"))
    call = start_call(combined, submit("doubtful"))
    while len(engine.give_ups) < 2:
        await run_ready_callbacks()
        engine.hold_writes()
    engine.give_ups[1](Unavailable("this attempt did nothing"))
    with pytest.raises(Unknown, match="lost"):
        await call
    engine.release_writes()
    await combined.aclose()


async def test_closing_does_not_wait_for_timed_out_commands() -> None:
    engine, combined, call = await start_slow_call()
    closing = asyncio.create_task(combined.aclose())
    await asyncio.sleep(0.1)
    assert not closing.done(), "somebody waits for the answer"
    engine.give_ups[0](Unknown("it takes too long"))
    with pytest.raises(Unknown):
        await call
    await asyncio.wait_for(closing, 60)
    engine.release_writes()
    await run_ready_callbacks()


async def test_a_batch_that_is_partly_done_gives_every_caller_its_own_result(engine: RecordingEngine) -> None:
    combined = Batcher(engine)
    calls = [start_call(combined, submit(f"k{n}")) for n in range(2)]
    created, _ = await engine.store.execute([submit("k0"), submit("k1")])
    engine.fail_before.append(PartlyDone("one is held", [created, FactsLocked("it is held")]))
    replies = await asyncio.gather(*calls, return_exceptions=True)
    assert replies[0] == [created]
    assert isinstance(replies[1], FactsLocked)
    assert len(engine.batches) == 1, "nothing is sent again"
    assert combined.last_error is None
    await combined.aclose()


async def test_a_locked_fact_leaves_an_earlier_attempt_unknown(engine: RecordingEngine) -> None:
    combined = Batcher(engine)
    calls = [start_call(combined, submit(f"k{n}")) for n in range(2)]
    created, _ = await engine.store.execute([submit("k0"), submit("k1")])
    engine.fail_before.extend([Unknown("lost"), PartlyDone("one is held", [created, FactsLocked("it is held")])])
    replies = await asyncio.gather(*calls, return_exceptions=True)
    assert replies[0] == [created]
    assert type(replies[1]) is Unknown
    await combined.aclose()


async def test_a_locked_fact_refuses_nothing_that_is_queued_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher, "STALL_SECONDS", 0.0)
    engine, combined, call = await start_slow_call()
    engine.fail_before.append(FactsLocked("it is held"))
    queued = start_call(combined, submit("queued"))
    await run_ready_callbacks()
    engine.release_writes()
    with pytest.raises(FactsLocked):
        await call
    assert isinstance((await queued)[0], Created)
    await combined.aclose()
