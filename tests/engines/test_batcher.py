"""The combiner: what waits is batched, in turn and within bounds, and every caller has an answer of its own."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from onejob.clock import FakeClock
from onejob.conformance.commands import IncrementCounter
from onejob.conformance.samples import OTHER, TENANT, set_limit, submit, submit_counted, submit_sequence
from onejob.core.command import Command
from onejob.core.lookup import LookUpJob
from onejob.core.maintenance import Forget
from onejob.core.replies import AnyReply, Created, Missing, Refused, Replayed
from onejob.core.submit import Submit
from onejob.core.work import Extend, Finish, FinishOutcome
from onejob.engine import ListJobs
from onejob.engines import batcher
from onejob.engines.batcher import UNKNOWN_ATTEMPTS_MAX, Batcher
from onejob.errors import Unavailable, Unknown
from onejob.ids import new_job_id
from tests.support.recording_engine import RecordingEngine, run_ready_callbacks, start_call


@pytest.fixture
def engine() -> RecordingEngine:
    return RecordingEngine(FakeClock())


async def start_held_batch(engine: RecordingEngine, combined: Batcher) -> "asyncio.Task[Sequence[AnyReply]]":
    """One command on its way, so that whatever comes now waits."""
    engine.hold_writes()
    first = start_call(combined, submit("first"))
    await run_ready_callbacks()
    assert len(engine.batches) == 1
    return first


async def test_a_single_command_is_sent_at_once(engine: RecordingEngine) -> None:
    (reply,) = await Batcher(engine).execute([submit()])
    assert isinstance(reply, Created)
    assert [len(batch) for batch in engine.batches] == [1]


async def test_commands_ready_together_are_one_batch(engine: RecordingEngine) -> None:
    combined = Batcher(engine)
    await asyncio.gather(*(combined.execute([submit(f"k{n}")]) for n in range(64)))
    assert [len(batch) for batch in engine.batches] == [64]


async def test_commands_that_arrive_during_a_batch_go_into_the_next(engine: RecordingEngine) -> None:
    combined = Batcher(engine)
    first = await start_held_batch(engine, combined)
    waiting = []
    for n in range(5):
        waiting.append(start_call(combined, submit(f"k{n}")))
        await run_ready_callbacks()
    assert len(engine.batches) == 1
    engine.release_writes()
    for task in (first, *waiting):
        (reply,) = await task
        assert isinstance(reply, Created)
    assert [len(batch) for batch in engine.batches] == [1, 5]
    load = combined.queue_stats()["write"]
    assert (load.waiting, load.commands) == (0, 6)
    assert load.batches[:4] == (1, 0, 0, 1)  # one of 1 command, one of 5 to 8
    assert sum(load.batches) == 2


async def test_an_engine_may_have_several_batches_in_flight(engine: RecordingEngine) -> None:
    engine.info = replace(engine.info, write_lanes=2)
    combined = Batcher(engine)
    engine.hold_writes()
    calls = []
    for n in range(4):
        calls.append(start_call(combined, submit(f"k{n}")))
        await run_ready_callbacks()
    assert [len(batch) for batch in engine.batches] == [1, 1]
    engine.release_writes()
    for call in calls:
        (reply,) = await call
        assert isinstance(reply, Created)
    assert sorted(len(batch) for batch in engine.batches) in ([1, 1, 2], [1, 1, 1, 1])
    await combined.aclose()


@pytest.mark.parametrize(("lane_batch_min", "sizes"), [(1, [16] * 4), (24, [24, 24, 16]), (64, [64])])
async def test_what_waits_is_divided_between_free_lanes_into_batches_as_large_as_the_engine_wants(
    engine: RecordingEngine, lane_batch_min: int, sizes: list[int]
) -> None:
    engine.info = replace(engine.info, write_lanes=4, lane_batch_min=lane_batch_min)
    combined = Batcher(engine)
    engine.hold_writes()
    calls = [start_call(combined, submit(f"k{n}")) for n in range(64)]
    await run_ready_callbacks()
    assert [len(batch) for batch in engine.batches] == sizes
    engine.release_writes()
    await asyncio.gather(*calls)
    await combined.aclose()


async def test_an_engine_may_change_how_many_batches_are_in_flight(engine: RecordingEngine) -> None:
    engine.info = replace(engine.info, write_lanes=2)
    combined = Batcher(engine)
    engine.hold_writes()
    calls = []
    for n in range(6):
        calls.append(start_call(combined, submit(f"k{n}")))
        await run_ready_callbacks()
    assert [len(batch) for batch in engine.batches] == [1, 1]
    engine.info = replace(engine.info, write_lanes=1)
    engine.release_writes()
    for call in calls:
        await call
    # The rest waits until both have ended, and is one batch.
    assert [len(batch) for batch in engine.batches] == [1, 1, 4]
    engine.info = replace(engine.info, write_lanes=2)
    await asyncio.gather(*(start_call(combined, submit(f"one lane {n}")) for n in range(8)))
    await asyncio.gather(*(start_call(combined, submit(f"two lanes {n}")) for n in range(8)))
    assert [len(batch) for batch in engine.batches[3:]] == [8, 4, 4]
    await combined.aclose()


async def test_updates_have_their_own_lane_where_the_engine_wants_one(engine: RecordingEngine) -> None:
    engine.info = replace(engine.info, update_lanes=1)
    combined = Batcher(engine)
    forget = Forget(tenant=TENANT, record_id=submit("k0").record_id, actor="test", grace_ms=0)
    calls = [start_call(combined, command) for n in range(3) for command in (submit(f"k{n}"), forget)]
    for call in calls:
        await call
    kinds = [{type(command) for command in batch} for batch in engine.batches]
    assert all(len(kind) == 1 for kind in kinds), "a batch has commands of one sort"
    load = combined.queue_stats()["write"]
    assert (load.waiting, load.commands) == (0, 6)
    await combined.aclose()


async def test_callers_queued_behind_a_stalled_batch_fail_with_it(
    engine: RecordingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batcher, "STALL_SECONDS", 0.0)
    combined = Batcher(engine)
    first = await start_held_batch(engine, combined)
    waiting = [start_call(combined, submit(f"k{n}", tenant=tenant)) for n, tenant in enumerate((TENANT, OTHER))]
    await run_ready_callbacks()
    engine.fail_before.append(Unavailable("it has not answered for 15 s"))
    engine.release_writes()
    for call in (first, *waiting):
        with pytest.raises(Unavailable, match=r"nothing was done|15 s"):
            await call
    assert len(engine.batches) == 1, "they were not sent"
    assert combined.queue_stats()["write"].waiting == 0
    (reply,) = await start_call(combined, submit("later"))
    assert isinstance(reply, Created)
    await combined.aclose()


async def test_a_batch_is_bounded(engine: RecordingEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.info = replace(engine.info, batch_max=4)
    combined = Batcher(engine)
    await asyncio.gather(*(combined.execute([submit(f"k{n}")]) for n in range(10)))
    assert [len(batch) for batch in engine.batches] == [4, 4, 2]

    engine.batches.clear()
    monkeypatch.setattr(batcher, "BATCH_BYTES_MAX", 25)
    combined = Batcher(engine)
    await asyncio.gather(*(combined.execute([submit(f"b{n}", input=b"x" * 10)]) for n in range(7)))
    assert [len(batch) for batch in engine.batches] == [3, 3, 1]


async def test_a_heap_of_large_commands_does_not_delay_a_small_one(engine: RecordingEngine) -> None:
    combined = Batcher(engine)
    first = await start_held_batch(engine, combined)
    large = [start_call(combined, submit(f"large{n}", input=b"x" * (1 << 20))) for n in range(64)]
    await run_ready_callbacks()
    small = start_call(combined, submit("small"))
    await run_ready_callbacks()
    engine.release_writes()
    await asyncio.gather(first, *large, small)
    batches = [[command.payload_bytes for command in batch] for batch in engine.batches[1:]]
    assert batches[:3] == [[1 << 20], [len(submit("small").input)], [1 << 20]], "and it is not written with one either"
    assert len(batches) == 65, "no two of the large ones share a commit"


async def test_large_commands_are_not_starved_by_small_ones(engine: RecordingEngine) -> None:
    engine.info = replace(engine.info, batch_max=4)
    combined = Batcher(engine)
    first = await start_held_batch(engine, combined)
    small = [start_call(combined, submit(f"small{n}")) for n in range(30)]
    large = [start_call(combined, submit(f"large{n}", input=b"x" * 100_000)) for n in range(2)]
    await run_ready_callbacks()
    engine.release_writes()
    await asyncio.gather(first, *small, *large)
    assert sorted(command.payload_bytes for command in engine.batches[1])[-2:] == [100_000, 100_000]


async def test_the_report_of_an_attempt_keeps_its_order_whatever_its_size(engine: RecordingEngine) -> None:
    combined = Batcher(engine)
    first = await start_held_batch(engine, combined)
    job_id, holder = new_job_id(), b"h" * 16
    logs = Extend(tenant=TENANT, job_id=job_id, token=1, holder=holder, logs=("x" * 100_000,))
    finish = Finish(tenant=TENANT, job_id=job_id, token=1, holder=holder, outcome=FinishOutcome.SUCCESS, actor="test")
    report = asyncio.create_task(combined.execute([logs, finish]))
    await run_ready_callbacks()
    engine.release_writes()
    await asyncio.gather(first, report)
    assert [type(command).__name__ for command in engine.commands[1:]] == ["Extend", "Finish"]


async def test_tenants_are_served_round_robin(engine: RecordingEngine) -> None:
    engine.info = replace(engine.info, batch_max=4)
    combined = Batcher(engine)
    first = await start_held_batch(engine, combined)
    tenants = [*["loud"] * 8, *["soft"] * 3, "rare"]
    waiting = [start_call(combined, submit(f"k{n}", tenant=tenant)) for n, tenant in enumerate(tenants)]
    await run_ready_callbacks()
    engine.release_writes()
    await asyncio.gather(first, *waiting)
    served = [[command.tenant for command in batch] for batch in engine.batches[1:]]
    # Whoever was cut short comes first the next time.
    assert served == [
        ["loud", "soft", "rare", "loud"],
        ["soft", "loud", "soft", "loud"],
        ["loud"] * 4,
    ]
    own = [command.key for command in engine.commands_of_type(Submit) if command.tenant == "loud"]
    assert own == [f"k{n}" for n in range(8)]


async def test_the_queue_is_bounded_and_half_of_it_is_the_most_for_one_tenant(engine: RecordingEngine) -> None:
    combined = Batcher(engine, queue_max=6)
    first = await start_held_batch(engine, combined)
    mine = [start_call(combined, submit(f"k{n}")) for n in range(5)]
    await run_ready_callbacks()
    assert [task.done() for task in mine] == [False] * 3 + [True] * 2
    theirs = [start_call(combined, submit(f"k{n}", tenant=f"t{n}")) for n in range(5)]
    await run_ready_callbacks()
    assert [task.done() for task in theirs] == [False] * 3 + [True] * 2
    for task in (*mine[3:], *theirs[3:]):
        with pytest.raises(Unavailable, match="overloaded: nothing was done; retry later"):
            await task
    engine.release_writes()
    await asyncio.gather(first, *mine[:3], *theirs[:3])
    assert len(engine.commands) == 7
    (reply,) = await combined.execute([submit("k4")])
    assert isinstance(reply, Created)


async def test_the_queue_is_bounded_in_bytes(engine: RecordingEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher, "QUEUE_BYTES_MAX", 100)
    combined = Batcher(engine)
    first = await start_held_batch(engine, combined)
    waiting = [start_call(combined, submit(f"k{n}", tenant=f"t{n}", input=b"x" * 60)) for n in range(3)]
    await run_ready_callbacks()
    assert [task.done() for task in waiting] == [False, False, True]
    engine.release_writes()
    await asyncio.gather(first, *waiting[:2])
    with pytest.raises(Unavailable):
        await waiting[2]
    # What has left the queue has left its sum as well.
    replies = await asyncio.gather(
        *(combined.execute([submit(f"n{n}", tenant=f"t{n}", input=b"x" * 60)]) for n in range(2)),
        return_exceptions=True,
    )
    assert not any(isinstance(reply, BaseException) for reply in replies)


async def test_half_of_the_bytes_are_for_one_tenant(engine: RecordingEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher, "QUEUE_BYTES_MAX", 100)
    combined = Batcher(engine)
    first = await start_held_batch(engine, combined)
    mine = [start_call(combined, submit(f"k{n}", input=b"x" * 60)) for n in range(2)]
    theirs = start_call(combined, submit("k", tenant="other", input=b"x" * 30))
    await run_ready_callbacks()
    assert [task.done() for task in (*mine, theirs)] == [False, True, False]
    engine.release_writes()
    await asyncio.gather(first, mine[0], theirs)
    with pytest.raises(Unavailable):
        await mine[1]


async def test_cancelling_one_caller_harms_no_other(engine: RecordingEngine) -> None:
    combined = Batcher(engine)
    first = await start_held_batch(engine, combined)
    waiting = [start_call(combined, submit(f"k{n}")) for n in range(3)]
    await run_ready_callbacks()
    first.cancel()  # its batch is on its way
    waiting[1].cancel()  # and this one still in the queue
    await run_ready_callbacks()
    engine.release_writes()
    for task in (waiting[0], waiting[2]):
        (reply,) = await task
        assert isinstance(reply, Created)
    for task in (first, waiting[1]):
        with pytest.raises(asyncio.CancelledError):
            await task
    # What was asked for is done all the same.
    for key in ("first", "k1"):
        (reply,) = await combined.execute([submit(key)])
        assert isinstance(reply, Replayed)


async def test_a_command_of_unknown_outcome_is_executed_again_unchanged(engine: RecordingEngine) -> None:
    combined = Batcher(engine)
    engine.fail_after.extend([Unknown("lost"), Unknown("lost again")])
    commands = [submit("a"), submit("b")]
    replies = await combined.execute(commands)
    assert engine.batches == [commands] * 3
    assert [reply.job.id for reply in replies if isinstance(reply, Created)] == [c.job_id for c in commands]
    assert len((await engine.scan(ListJobs(tenant=TENANT))).items) == 2


async def test_what_stays_unknown_is_reported_as_unknown(engine: RecordingEngine) -> None:
    engine.fail_after.extend([Unknown("lost")] * 3)
    with pytest.raises(Unknown):
        await Batcher(engine).execute([submit()])
    assert len(engine.batches) == UNKNOWN_ATTEMPTS_MAX


async def test_unavailable_after_unknown_is_still_unknown(engine: RecordingEngine) -> None:
    engine.fail_after.append(Unknown("lost"))
    combined = Batcher(engine)
    task = start_call(combined, submit())
    await run_ready_callbacks()
    engine.fail_before.append(Unavailable("gone"))
    with pytest.raises(Unknown):
        await task


@pytest.mark.parametrize("command", [submit_counted(), submit_sequence(sequence=5)])
async def test_a_refusal_that_may_pass_after_unknown_is_still_unknown(
    engine: RecordingEngine, command: Command[Any]
) -> None:
    """The first copy may be under way, and be executed when the limit or the gap is no more."""
    await engine.execute([set_limit(0)])
    combined = Batcher(engine)
    (refused,) = await combined.execute([command])
    assert isinstance(refused, Refused)
    engine.fail_before.append(Unknown("lost"))
    with pytest.raises(Unknown):
        await combined.execute([command])


async def test_unavailable_is_reported_once_to_each_caller(engine: RecordingEngine) -> None:
    engine.fail_before.append(Unavailable("no disk"))
    combined = Batcher(engine)
    failures = await asyncio.gather(*(combined.execute([submit(f"k{n}")]) for n in range(3)), return_exceptions=True)
    assert [(type(failure), str(failure)) for failure in failures] == [(Unavailable, "no disk")] * 3
    assert len({id(failure) for failure in failures}) == 3
    assert len(engine.batches) == 1
    await combined.execute([submit()])


async def test_an_unforeseen_failure_of_an_engine_means_unknown(engine: RecordingEngine) -> None:
    engine.fail_after.append(KeyError("oops"))
    combined = Batcher(engine)
    with pytest.raises(Unknown, match="KeyError") as caught:
        await combined.execute([submit()])
    assert isinstance(caught.value.__cause__, KeyError)
    (reply,) = await combined.execute([submit()])
    assert isinstance(reply, Replayed)


async def test_an_engine_that_answers_too_little_leaves_nobody_waiting(
    engine: RecordingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def too_little(commands: Sequence[Command[Any]], /) -> Sequence[AnyReply]:
        return (await RecordingEngine.execute(engine, commands))[:-1]

    monkeypatch.setattr(engine, "execute", too_little)
    combined = Batcher(engine)
    async with asyncio.timeout(15):
        for failure in await asyncio.gather(
            *(combined.execute([submit(f"k{n}")]) for n in range(3)), return_exceptions=True
        ):
            assert isinstance(failure, Unknown)


async def test_a_call_split_over_two_batches_is_unknown_if_one_fails(engine: RecordingEngine) -> None:
    combined = Batcher(engine, queue_max=4)
    with pytest.raises(Unknown, match="retry all of it"):
        await combined.execute([submit(f"k{n}") for n in range(4)])
    assert len(engine.commands) == 2


async def test_reads_wait_for_no_commit(engine: RecordingEngine) -> None:
    combined = Batcher(engine)
    first = await start_held_batch(engine, combined)
    reads = [LookUpJob(tenant=TENANT, job_id=new_job_id()) for _ in range(3)]
    for reply in await combined.execute(reads):
        assert isinstance(reply, Missing)
    assert engine.batches[1] == reads
    assert not first.done()
    engine.release_writes()
    await first


async def test_closing_answers_everyone_and_then_closes_the_engine(engine: RecordingEngine) -> None:
    engine.info = replace(engine.info, batch_max=2)
    combined = Batcher(engine)
    first = await start_held_batch(engine, combined)
    waiting = [start_call(combined, submit(f"k{n}", tenant=(TENANT, OTHER)[n % 2])) for n in range(5)]
    await run_ready_callbacks()
    closing = asyncio.get_running_loop().create_task(combined.aclose())
    await run_ready_callbacks()
    assert not closing.done()
    with pytest.raises(Unavailable, match="closed"):
        await combined.execute([IncrementCounter(tenant=TENANT)])
    assert engine.close_count == 0
    engine.release_writes()
    await closing
    for task in (first, *waiting):
        assert task.done()
        (reply,) = await task
        assert isinstance(reply, Created)
    assert engine.close_count == 1
    assert all(not isinstance(command, IncrementCounter) for command in engine.commands)


async def test_closing_before_the_first_batch_set_out_answers_it(engine: RecordingEngine) -> None:
    combined = Batcher(engine)
    task = start_call(combined, submit())
    await asyncio.sleep(0)
    await combined.aclose()
    (reply,) = await task
    assert isinstance(reply, Created)
