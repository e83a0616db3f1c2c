"""Rules of sequenced clients, row by row of the specification's tables."""

from typing import Any

import pytest
from msgspec.structs import replace

from onejob.core.errors import Invalid
from onejob.core.facts import U64, JobSpec, Kind, Stream
from onejob.core.identity import record_id, stream_id
from onejob.core.replies import (
    LimitName,
    Maintained,
    Missing,
    Reason,
    Refused,
    SequenceAlreadyCommitted,
    SequenceCommitted,
    StreamFound,
)
from onejob.core.sequence import (
    HIGH_WATER_MARK_TTL_MS,
    STREAM_IDLE_MS,
    Evict,
    LookUpStream,
    SequencePosition,
    SubmitSequence,
    checked_sequence,
    sequence_position,
)
from tests.core.test_quota import usage_with_limits
from tests.core.world import ACTOR, DAY, NOW, TENANT, TTL, USAGE_ID, USER, World, expect_type, submit

CLIENT, SCOPE = "host1.dc1:12345", "acme/vault-1"
STREAM_ID = stream_id(TENANT, SCOPE, CLIENT)


def send(sequence: int, *, key: str = "", copy: int = 0, jobs: int = 1, **changes: Any) -> SubmitSequence:
    key = key or f"key-{sequence}"
    items = tuple(JobSpec(f"{sequence:06}-{copy:03}-{n:05}".encode(), "write", b"{}") for n in range(jobs))
    plain = SubmitSequence(
        tenant=TENANT,
        stream_id=STREAM_ID,
        record_id=record_id(TENANT, SCOPE, key),
        scope=SCOPE,
        client_id=CLIENT,
        sequence=U64(sequence),
        key=key,
        fingerprint=b"print-%d" % sequence,
        items=items,
        actor=ACTOR,
        user=USER,
        owner=ACTOR,
        ttl_ms=TTL,
    )
    return replace(plain, **changes)


def last_sequence(world: World, at: int = NOW) -> int:
    found = world.execute(LookUpStream(tenant=TENANT, stream_id=STREAM_ID), at)
    return 0 if isinstance(found, Missing) else expect_type(found, StreamFound).stream.last


def world_after(count: int) -> World:
    world = World()
    for sequence in range(1, count + 1):
        expect_type(world.execute(send(sequence)), SequenceCommitted)
    return world


@pytest.mark.parametrize(
    ("before", "sequence", "position"),
    [
        (0, 1, SequencePosition.NEXT),
        (0, 2, SequencePosition.GAP),
        (5, 6, SequencePosition.NEXT),
        (5, 7, SequencePosition.GAP),
        (5, 5, SequencePosition.PAST),
        (5, 1, SequencePosition.PAST),
        (2**64 - 2, 2**64 - 1, SequencePosition.NEXT),
    ],
)
def test_a_number_is_the_next_a_gap_or_past(before: int, sequence: int, position: SequencePosition) -> None:
    assert sequence_position(before, sequence) is position


@pytest.mark.parametrize("value", [0, -1, 2**64, 1.5, 1.0, "1", True, None])
def test_an_invalid_number_is_refused(value: Any) -> None:
    with pytest.raises(Invalid, match="sequence"):
        checked_sequence(value)


def test_the_next_number_is_executed_and_counted() -> None:
    world = world_after(2)
    committed = expect_type(world.execute(send(3)), SequenceCommitted)
    assert (committed.sequence, len(committed.jobs), last_sequence(world)) == (3, 1, 3)


def test_a_gap_is_refused_and_names_the_last_number() -> None:
    world = world_after(2)
    refused = expect_type(world.execute(send(4)), Refused)
    assert refused.reason is Reason.SEQUENCE_GAP
    assert refused.details == {"last_committed_sequence": 2}
    assert (last_sequence(world), len(world.jobs())) == (2, 2)


@pytest.mark.parametrize("sequence", [1, 2, 3])
def test_a_repeated_number_gets_its_whole_receipt_also_when_it_is_not_the_last(sequence: int) -> None:
    world = world_after(3)
    again = expect_type(world.execute(send(sequence, copy=1)), SequenceAlreadyCommitted)
    assert again.sequence == sequence
    assert [job.id for job in again.jobs] == [send(sequence).items[0].job_id]
    assert (again.last, last_sequence(world), len(world.jobs())) == (3, 3, 3)


def test_the_same_command_executed_again_gets_the_winning_answer() -> None:
    world = world_after(1)
    assert expect_type(world.execute(send(1)), SequenceCommitted).sequence == 1
    assert len(world.jobs()) == 1


def test_a_used_number_under_another_key_is_refused_and_never_runs_again() -> None:
    world = world_after(2)
    other = expect_type(world.execute(send(1, key="other", copy=1)), Refused)
    assert other.reason is Reason.ALREADY_COMMITTED
    assert other.details == {"assigned_sequence": 1, "last_committed_sequence": 2}
    assert "as 3" in other.message
    assert len(world.jobs()) == 2


def test_a_used_number_whose_record_is_gone_is_refused_and_never_runs_again() -> None:
    world = world_after(1)
    late = expect_type(world.execute(send(1, copy=1), NOW + TTL + 1), Refused)
    assert (late.reason, len(world.jobs())) == (Reason.ALREADY_COMMITTED, 1)


def test_the_same_command_executed_again_after_its_window_is_not_refused() -> None:
    world = World()
    first = expect_type(world.execute(send(1, jobs=3)), SequenceCommitted)
    late = NOW + TTL + 1
    again = expect_type(world.execute(send(1, jobs=3), late), SequenceCommitted)
    assert (again.jobs, again.sequence) == (first.jobs, 1)
    assert again.expires_at < late


def test_a_live_key_under_a_new_number_gets_its_original_answer_and_number() -> None:
    world = world_after(1)
    moved = send(2, key="key-1", copy=1, fingerprint=send(1).fingerprint)
    found = expect_type(world.execute(moved), SequenceAlreadyCommitted)
    assert (found.sequence, len(found.jobs), last_sequence(world)) == (1, 1, 1)


def test_a_key_with_another_payload_is_reused() -> None:
    world = world_after(1)
    for sequence in (1, 2, 9):
        reused = send(sequence, key="key-1", copy=1, fingerprint=b"another")
        assert expect_type(world.execute(reused), Refused).reason is Reason.IDEMPOTENCY_KEY_REUSED
    assert (last_sequence(world), len(world.jobs())) == (1, 1)


def test_a_key_of_another_client_or_of_an_unsequenced_submission_is_reused() -> None:
    world = world_after(1)
    other = stream_id(TENANT, SCOPE, "other")
    stolen = send(1, copy=1, client_id="other", stream_id=other)
    assert expect_type(world.execute(stolen), Refused).reason is Reason.IDEMPOTENCY_KEY_REUSED
    plain = submit(record_id=send(1).record_id, key="key-1", scope=SCOPE)
    assert expect_type(world.execute(plain), Refused).reason is Reason.IDEMPOTENCY_KEY_REUSED
    free = record_id(TENANT, SCOPE, "plain")
    world.execute(submit(record_id=free, key="plain", scope=SCOPE))
    assert expect_type(world.execute(send(2, key="plain")), Refused).reason is Reason.IDEMPOTENCY_KEY_REUSED


def test_a_batch_is_all_or_nothing_and_takes_one_number() -> None:
    world = World()
    committed = expect_type(world.execute(send(1, jobs=100)), SequenceCommitted)
    assert (len(committed.jobs), last_sequence(world), len(world.jobs())) == (100, 1, 100)
    again = expect_type(world.execute(send(1, jobs=100, copy=1)), SequenceAlreadyCommitted)
    assert [job.id for job in again.jobs] == [job.id for job in committed.jobs]


def test_a_refused_batch_leaves_its_number_free_for_another_payload() -> None:
    world = World(usage_with_limits(max_concurrent=2))
    counted: dict[str, Any] = {"usage_id": USAGE_ID}
    assert expect_type(world.execute(send(1, jobs=3, **counted)), Refused).reason is Reason.QUOTA_EXCEEDED
    assert (last_sequence(world), world.jobs(), world.usage().live) == (0, [], 0)
    other = send(1, jobs=2, key="smaller", copy=1, fingerprint=b"another", **counted)
    assert expect_type(world.execute(other), SequenceCommitted).sequence == 1
    assert world.usage().live == 2


def test_a_hundred_copies_of_one_number_are_executed_once() -> None:
    world = World()
    replies = world.execute_batch(*(send(1, copy=n) for n in range(100)))
    assert [type(reply) for reply in replies] == [SequenceCommitted] + [SequenceAlreadyCommitted] * 99
    assert len(world.jobs()) == 1


def test_a_client_id_belongs_to_the_credential_that_used_it_first() -> None:
    world = world_after(1)
    for sequence in (1, 2):
        stolen = send(sequence, copy=1, owner="client:thief", actor="client:thief")
        assert expect_type(world.execute(stolen), Refused).reason is Reason.NOT_THE_OWNER


def test_an_idle_client_goes_on_after_three_windows() -> None:
    world = world_after(2)
    evict = Evict(tenant=TENANT, stream_id=STREAM_ID)
    assert not expect_type(world.execute(evict, NOW + STREAM_IDLE_MS), Maintained).changed
    assert expect_type(world.execute(evict, NOW + STREAM_IDLE_MS + 1), Maintained).changed
    assert last_sequence(world, NOW + 3 * DAY) == 2
    assert expect_type(world.execute(send(2, copy=1), NOW + 3 * DAY), Refused).reason is Reason.ALREADY_COMMITTED
    assert expect_type(world.execute(send(4), NOW + 3 * DAY), Refused).reason is Reason.SEQUENCE_GAP
    assert expect_type(world.execute(send(3), NOW + 3 * DAY), SequenceCommitted).sequence == 3
    stream = world.facts[Kind.STREAM, STREAM_ID]
    assert isinstance(stream, Stream)
    assert not stream.evicted


def test_a_high_water_mark_goes_after_four_hundred_days() -> None:
    world = world_after(1)
    evict = Evict(tenant=TENANT, stream_id=STREAM_ID)
    idle = NOW + STREAM_IDLE_MS + 1
    world.execute(evict, idle)
    assert not expect_type(world.execute(evict, idle + HIGH_WATER_MARK_TTL_MS), Maintained).changed
    assert expect_type(world.execute(evict, idle + HIGH_WATER_MARK_TTL_MS + 1), Maintained).changed
    assert last_sequence(world) == 0


def test_the_last_number_of_all_is_stored_whole() -> None:
    world = World(Stream(STREAM_ID, TENANT, SCOPE, CLIENT, U64(2**64 - 2), NOW, ACTOR, NOW, NOW + DAY))
    assert expect_type(world.execute(send(2**64 - 1, key="last")), SequenceCommitted).sequence == 2**64 - 1
    assert last_sequence(world) == 2**64 - 1


def test_the_last_number_of_all_says_to_rotate_the_client_id() -> None:
    world = World(Stream(STREAM_ID, TENANT, SCOPE, CLIENT, U64(2**64 - 2), NOW, ACTOR, NOW, NOW + DAY))
    (warning,) = expect_type(world.execute(send(2**64 - 1, key="last")), SequenceCommitted).warnings
    assert warning.limit is LimitName.SEQUENCE
    refused = expect_type(world.execute(send(2**64 - 1, key="one more", copy=1)), Refused)
    with pytest.raises(Invalid) as beyond:
        checked_sequence(2**64)
    for message in (warning.message, refused.message, str(beyond.value)):
        assert "rotate the client id" in message


def test_jobs_of_a_batch_bear_the_user_and_the_key() -> None:
    committed = expect_type(World().execute(send(1, jobs=2)), SequenceCommitted)
    assert {(job.user, job.key, job.scope) for job in committed.jobs} == {(USER, "key-1", SCOPE)}
