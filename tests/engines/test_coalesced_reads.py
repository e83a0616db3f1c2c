"""Point reads through the gate: equal questions of one turn are one, and nobody hears what was before they asked."""

import asyncio
from pathlib import Path

from onejob.clock import FakeClock
from onejob.conformance.samples import TENANT, submit
from onejob.conformance.world import expect
from onejob.core.credentials import LookUpPolicy, SetPolicy
from onejob.core.identity import policy_id
from onejob.core.lookup import LookUpJob
from onejob.core.replies import AnyReply, Created, Found, PolicyFound, Replayed
from onejob.core.states import JobState
from onejob.engines.batcher import Batcher
from onejob.engines.gate import CoalescedReads
from onejob.engines.sqlite import SqliteEngine
from onejob.errors import Unavailable

from .recording_gate import RecordingGate

ID = policy_id(TENANT, "limits")
READ = LookUpPolicy(tenant=TENANT, policy_id=ID)


def set_policy(body: bytes) -> SetPolicy:
    return SetPolicy(tenant=TENANT, policy_id=ID, name="limits", body=body)


async def test_equal_reads_of_one_loop_iteration_are_one_read() -> None:
    gate = RecordingGate(FakeClock())
    await expect(gate.engine, set_policy(b"1"), PolicyFound)
    again = LookUpPolicy(tenant=TENANT, policy_id=ID)
    replies = await asyncio.gather(*(gate.dispatch(look) for look in (READ, again, READ)))
    assert [reply.policy.body for reply in replies if isinstance(reply, PolicyFound)] == [b"1"] * 3
    assert len(gate.engine.commands_of_type(LookUpPolicy)) == 1


def read(reads: CoalescedReads) -> AnyReply | None:
    replies = reads.read_now((READ,))
    return None if replies is None else replies[0]


async def test_a_synchronous_read_is_done_once_per_loop_iteration(tmp_path: Path) -> None:
    engine = await SqliteEngine.open(str(tmp_path / "near.db"))
    combined = Batcher(engine)
    looks = CoalescedReads(combined)
    await expect(engine, set_policy(b"0"), PolicyFound)
    assert read(looks) is None, "nothing is at hand before the first read"
    await combined.execute([READ])
    for n in range(1, 20):
        reads = combined.queue_stats()["read"].commands
        first, second = read(looks), read(looks)
        assert first is second
        assert combined.queue_stats()["read"].commands == reads + 1
        await expect(engine, set_policy(b"%d" % n), PolicyFound)
        found = read(looks)
        assert isinstance(found, PolicyFound)
        assert found.policy.body == b"%d" % n, "whoever asks after a change was answered hears of it"
        await asyncio.sleep(0)
    await combined.aclose()
    assert read(looks) is None


async def test_a_change_by_another_process_is_seen_in_the_next_loop_iteration(tmp_path: Path) -> None:
    mine, other = [await SqliteEngine.open(str(tmp_path / "two.db")) for _ in range(2)]
    combined = Batcher(mine)
    looks = CoalescedReads(combined)
    await expect(mine, set_policy(b"0"), PolicyFound)
    await combined.execute([READ])
    for n in range(1, 20):
        read(looks)
        await expect(other, set_policy(b"%d" % n), PolicyFound)
        found = read(looks)
        assert isinstance(found, PolicyFound)
        assert found.policy.body == b"%d" % n
    await combined.aclose()
    await other.aclose()


async def test_different_reads_are_not_coalesced() -> None:
    gate = RecordingGate(FakeClock())
    other = LookUpPolicy(tenant="other", policy_id=ID)
    await expect(gate.engine, set_policy(b"1"), PolicyFound)
    mine, theirs = await asyncio.gather(gate.dispatch(READ), gate.dispatch(other))
    assert isinstance(mine, PolicyFound)
    assert not isinstance(theirs, PolicyFound), "a tenant never hears of another's"


async def test_a_read_after_a_change_sees_it() -> None:
    gate = RecordingGate(FakeClock())
    for n in range(50):
        asked = asyncio.ensure_future(gate.dispatch(READ))
        for _ in range(n % 6):  # in every turn of the first question's way
            await asyncio.sleep(0)
        await expect(gate.engine.store, set_policy(b"%d" % n), PolicyFound)
        reply = await gate.dispatch(READ)
        assert isinstance(reply, PolicyFound)
        assert reply.policy.body == b"%d" % n
        await asked


async def test_a_failure_is_not_shared_but_asked_for_again() -> None:
    gate = RecordingGate(FakeClock())
    await expect(gate.engine, set_policy(b"1"), PolicyFound)
    gate.engine.fail_before.append(Unavailable("the store is gone for a moment"))
    first, *others = await asyncio.gather(*(gate.dispatch(READ) for _ in range(3)), return_exceptions=True)
    assert isinstance(first, Unavailable)
    assert all(isinstance(other, PolicyFound) for other in others)


async def test_a_cancelled_reader_cancels_no_other() -> None:
    gate = RecordingGate(FakeClock())
    await expect(gate.engine, set_policy(b"1"), PolicyFound)
    gone, stays = (asyncio.ensure_future(gate.dispatch(READ)) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    assert isinstance(await stays, PolicyFound)
    assert gone.cancelled()


async def test_duplicates_of_one_loop_iteration_share_one_job_read() -> None:
    gate = RecordingGate(FakeClock())
    (made,) = await gate.execute([submit("k")])
    assert isinstance(made, Created)
    await gate.cancel_behind_the_gate(made.job.id)
    replies = await gate.execute([submit("k") for _ in range(5)])
    assert all(isinstance(reply, Replayed) and reply.job for reply in replies)
    assert {reply.job.state for reply in replies if isinstance(reply, Replayed) and reply.job} == {JobState.CANCELLED}
    assert len(gate.engine.commands_of_type(LookUpJob)) == 1
    found = await gate.dispatch(LookUpJob(tenant=TENANT, job_id=made.job.id))
    assert isinstance(found, Found)
