"""The gate: duplicates in flight share one question and only durable answers; what it remembers is bounded."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from onejob.clock import FakeClock
from onejob.conformance.commands import FactsRead, write_facts
from onejob.conformance.samples import OTHER, TENANT, a_record, key_id, reserve, settle, submit
from onejob.conformance.world import count_replies, expect, list_facts
from onejob.core.facts import Kind
from onejob.core.lookup import LookUpJob
from onejob.core.maintenance import Purge
from onejob.core.replies import (
    Conflict,
    Created,
    InProgress,
    KeyHeld,
    KeySettled,
    Maintained,
    Refused,
    Rejected,
    Replayed,
)
from onejob.core.reserve import Verdict
from onejob.core.states import JobState
from onejob.core.submit import Submit
from onejob.errors import Unavailable, Unknown
from tests.support.recording_engine import run_ready_callbacks

from .recording_gate import RecordingGate

HOUR_MS = 3_600_000


@pytest.fixture
def gate() -> RecordingGate:
    return RecordingGate(FakeClock(), wait_for_pending=False)


def submit_for_an_hour(key: str = "k", **options: Any) -> Submit:
    return submit(key, ttl_ms=HOUR_MS, **options)


async def store_rejected_key(gate: RecordingGate, ttl_ms: int = HOUR_MS) -> KeyHeld:
    held = await expect(gate.engine.store, reserve(), KeyHeld)
    await expect(gate.engine.store, settle(held, Verdict.REJECT, ttl_ms=ttl_ms), KeySettled)
    return held


# Flights


async def test_duplicates_in_flight_share_one_question(gate: RecordingGate) -> None:
    replies = await gate.release_and_collect(await gate.start_and_hold([submit_for_an_hour() for _ in range(200)]))
    assert count_replies(replies, Created) == 1
    assert count_replies(replies, Replayed) == 199
    assert len({reply.job.id for reply in replies}) == 1
    assert len(gate.engine.commands) == 1


@pytest.mark.parametrize(
    "other",
    [{"input": b"{}"}, {"user": "bob"}, {"tenant": OTHER}, {"record_id": key_id("other"), "key": "other"}],
)
async def test_a_different_submission_is_not_coalesced(gate: RecordingGate, other: dict[str, Any]) -> None:
    tasks = await gate.start_and_hold(
        [submit_for_an_hour(), submit_for_an_hour(**other), submit_for_an_hour(), submit_for_an_hour(**other)]
    )
    assert len(gate.engine.commands_of_type(Submit)) == 2
    await gate.release_and_collect(tasks)


@pytest.mark.parametrize("failure", [Unavailable("no disk"), Unknown("lost")])
async def test_a_failure_is_not_shared(gate: RecordingGate, failure: Exception) -> None:
    tasks = await gate.start_and_hold([submit_for_an_hour() for _ in range(5)])
    gate.engine.fail_before.extend([failure] * (3 if isinstance(failure, Unknown) else 1))
    replies = await gate.release_and_collect(tasks)
    assert isinstance(replies[0], type(failure))
    assert count_replies(replies, Created) == 1
    assert count_replies(replies, Replayed) == 3
    assert len(await list_facts(gate.engine, Kind.JOB)) == 1


async def test_a_conflict_is_not_shared(gate: RecordingGate) -> None:
    await expect(gate.engine.store, submit_for_an_hour(input=b"{}"), Created)
    replies = await gate.release_and_collect(await gate.start_and_hold([submit_for_an_hour() for _ in range(3)]))
    assert count_replies(replies, Conflict) == 3
    assert len(gate.engine.commands_of_type(Submit)) == 3


async def test_in_progress_is_not_shared(gate: RecordingGate) -> None:
    await expect(gate.engine.store, reserve(), KeyHeld)
    replies = await gate.release_and_collect(await gate.start_and_hold([submit_for_an_hour() for _ in range(3)]))
    assert count_replies(replies, InProgress) == 3
    assert len(gate.engine.commands_of_type(Submit)) == 3


async def test_a_rejection_and_a_refusal_are_not_shared(gate: RecordingGate) -> None:
    await store_rejected_key(gate)
    await expect(gate.engine.store, write_facts(a_record("sequenced", client_id="till-7")), FactsRead)
    keys = ("k", "sequenced") * 3
    replies = await gate.release_and_collect(await gate.start_and_hold([submit_for_an_hour(key) for key in keys]))
    assert [type(reply) for reply in replies] == [Rejected, Refused] * 3
    assert len(gate.engine.commands_of_type(Submit)) == 6


async def test_a_cancelled_leader_leaves_its_followers_an_answer(gate: RecordingGate) -> None:
    tasks = await gate.start_and_hold([submit_for_an_hour() for _ in range(4)])
    tasks[0].cancel()
    tasks[2].cancel()
    await run_ready_callbacks()
    replies = await gate.release_and_collect([tasks[1], tasks[3]])
    assert count_replies(replies, Replayed) == 2
    assert len(gate.engine.commands) == 1
    assert gate.stats().pending == 0


async def test_a_cancelled_leader_whose_question_fails_leaves_its_followers_to_ask(gate: RecordingGate) -> None:
    tasks = await gate.start_and_hold([submit_for_an_hour() for _ in range(3)])
    gate.engine.fail_before.append(Unavailable("no disk"))
    tasks[0].cancel()
    replies = await gate.release_and_collect(tasks[1:])
    assert {type(reply) for reply in replies} == {Created, Replayed}


async def test_a_submission_without_a_key_is_always_new(gate: RecordingGate) -> None:
    replies = await gate.release_and_collect(await gate.start_and_hold([submit("") for _ in range(3)]))
    assert len({reply.job.id for reply in replies}) == 3
    assert gate.stats().total == 0


# Memory


async def test_a_settled_job_is_answered_from_memory(gate: RecordingGate) -> None:
    created = await gate.ask(submit_for_an_hour(), Created)
    await gate.cancel_behind_the_gate(created.job.id)
    first = await gate.ask(submit_for_an_hour(), Replayed)
    assert first.job is not None
    assert first.job.state is JobState.CANCELLED
    asked = len(gate.engine.batches)
    for _ in range(3):
        assert (await gate.ask(submit_for_an_hour(), Replayed)).job == first.job
    assert len(gate.engine.batches) == asked


async def test_the_state_of_a_living_job_is_one_point_read(gate: RecordingGate) -> None:
    created = await gate.ask(submit_for_an_hour(), Created)
    gate.engine.batches.clear()
    replies = await asyncio.gather(*(gate.execute([submit_for_an_hour()]) for _ in range(50)))
    assert all(reply.job == created.job for (reply,) in replies if isinstance(reply, Replayed))
    (batch,) = gate.engine.batches
    assert {type(command) for command in batch} == {LookUpJob}


async def test_a_job_that_is_gone_is_not_answered_from_memory(gate: RecordingGate) -> None:
    created = await gate.ask(submit_for_an_hour(), Created)
    await expect(gate.engine.store, Purge(tenant=TENANT, record_id=key_id()), Maintained)
    again = await gate.ask(submit_for_an_hour(), Created)
    assert again.job.id != created.job.id


async def test_an_error_of_the_point_read_is_reported(gate: RecordingGate) -> None:
    await gate.ask(submit_for_an_hour(), Created)
    gate.engine.fail_before.append(Unavailable("no disk"))
    with pytest.raises(Unavailable, match="no disk"):
        await gate.execute([submit_for_an_hour()])
    await gate.ask(submit_for_an_hour(), Replayed)


async def test_a_rejection_is_answered_from_memory(gate: RecordingGate) -> None:
    held = await store_rejected_key(gate)
    for _ in range(3):
        assert (await gate.ask(submit_for_an_hour(), Rejected)).job_id == held.job_id
    assert len(gate.engine.commands) == 1
    assert (gate.stats().rejected, gate.stats().committed) == (1, 0)


@pytest.mark.parametrize("other", [{"input": b"{}"}, {"user": "bob"}])
async def test_memory_judges_no_mismatch(gate: RecordingGate, other: dict[str, Any]) -> None:
    created = await gate.ask(submit_for_an_hour(), Created)
    await gate.cancel_behind_the_gate(created.job.id)
    await gate.ask(submit_for_an_hour(), Replayed)
    before = len(gate.engine.commands_of_type(Submit))
    await gate.execute([submit_for_an_hour(**other)])
    assert len(gate.engine.commands_of_type(Submit)) == before + 1


async def test_unknown_answers_are_not_remembered(gate: RecordingGate) -> None:
    gate.engine.fail_after.extend([Unknown("lost")] * 3)
    with pytest.raises(Unknown):
        await gate.execute([submit_for_an_hour()])
    assert gate.stats().total == 0
    await gate.ask(submit_for_an_hour(), Replayed)


async def test_a_purge_is_not_outlived_by_an_answer_that_was_on_its_way(gate: RecordingGate) -> None:
    created = await expect(gate.engine.store, submit_for_an_hour(), Created)
    await gate.cancel_behind_the_gate(created.job.id)
    tasks = await gate.start_and_hold([submit_for_an_hour(), Purge(tenant=TENANT, record_id=key_id())])
    replayed, _ = await gate.release_and_collect(tasks)
    assert replayed.job.id == created.job.id
    await run_ready_callbacks()
    assert (await gate.ask(submit_for_an_hour(), Created)).job.id != created.job.id


async def test_stats_count_what_the_gate_holds() -> None:
    gate = RecordingGate(FakeClock(), max_entries=7)
    await store_rejected_key(gate)
    await gate.execute([submit_for_an_hour("a"), submit_for_an_hour("b"), submit_for_an_hour()])
    tasks = await gate.start_and_hold([*[submit_for_an_hour("c")] * 3, submit_for_an_hour("d")])
    stats = gate.stats()
    assert (stats.total, stats.pending, stats.waiters, stats.limit) == (5, 2, 2, 7)
    assert (stats.committed, stats.rejected) == (2, 1)
    await gate.release_and_collect(tasks)
    stats = gate.stats()
    assert (stats.total, stats.pending, stats.waiters) == (5, 0, 0)
    assert (stats.committed, stats.rejected) == (4, 1)


async def test_hits_are_counted_in_memory_and_written_later(gate: RecordingGate) -> None:
    await gate.release_and_collect(await gate.start_and_hold([submit_for_an_hour() for _ in range(4)]))
    await gate.execute([submit_for_an_hour(), submit_for_an_hour(input=b"{}"), submit(""), submit_for_an_hour("new")])
    (record,) = [one for one in await list_facts(gate.engine, Kind.RECORD) if one.key == "k"]
    assert (record.hits, record.conflicts) == (0, 0)
    hits = gate.hits.take()
    assert [(one.hits, one.conflicts) for one in hits] == [(4, 1)]
    assert gate.hits.take() == []
    await gate.execute(hits)
    (record,) = [one for one in await list_facts(gate.engine, Kind.RECORD) if one.key == "k"]
    assert (record.hits, record.conflicts) == (4, 1)
    assert record.last_hit_at == record.changed_at
    assert gate.outcomes.total() == {"created": 3, "replayed": 4, "conflict": 1}


async def test_a_repeated_candidate_in_flight_gets_the_reply_of_the_leader(gate: RecordingGate) -> None:
    command = submit_for_an_hour()
    replies = await gate.release_and_collect(
        await gate.start_and_hold([command, submit_for_an_hour(), replace(command)])
    )
    assert [type(reply) for reply in replies] == [Created, Replayed, Created]


# Keys without a job


async def test_a_settled_answer_without_a_job_is_remembered_for_its_own_kind_alone(gate: RecordingGate) -> None:
    wrapped = reserve(job_id=b"", ttl_ms=HOUR_MS)
    held = await gate.ask(wrapped, KeyHeld)
    assert (await gate.ask(settle(held, Verdict.COMMIT, receipt=b"answer"), KeySettled)).record.receipt == b"answer"
    asked = [replace(wrapped, holder=bytes([n]) * 16) for n in range(3)]
    assert [(await gate.ask(one, Replayed)).receipt for one in asked] == [b"answer"] * 3
    assert len(gate.engine.commands_of_type(type(wrapped))) == 2  # the first, and the first of its duplicates
    await gate.ask(replace(wrapped, fingerprint=b"other"), Conflict)
    await gate.ask(submit_for_an_hour(fingerprint=wrapped.fingerprint), Conflict)


async def test_a_large_answer_without_a_job_is_not_remembered(gate: RecordingGate) -> None:
    wrapped = reserve(job_id=b"", ttl_ms=HOUR_MS)
    held = await gate.ask(wrapped, KeyHeld)
    await gate.ask(settle(held, Verdict.COMMIT, receipt=b"x" * 2000), KeySettled)
    for n in range(3):
        await gate.ask(replace(wrapped, holder=bytes([n]) * 16), Replayed)
    assert len(gate.engine.commands_of_type(type(wrapped))) == 4
