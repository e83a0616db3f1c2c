"""Rules of batches: how commands of a batch see each other, and that a failing command fails alone."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from onejob.core.batch import execute_isolating_failures
from onejob.core.command import Command, Facts, Footprint, Trim
from onejob.core.facts import FORMAT, U64, Attachment, AttachmentKind, Fact, Job, Kind, Stream
from onejob.core.maintenance import Purge
from onejob.core.replies import (
    AnyReply,
    Cancelled,
    Created,
    Defect,
    Forgotten,
    Found,
    InProgress,
    KeyHeld,
    Maintained,
    Missing,
    Refused,
    Replayed,
)
from tests.core.scripted import (
    FULL_FOOTPRINT,
    POLICY_ID,
    STREAM_ID,
    RecordFacts,
    Scripted,
    a_policy,
    a_stream,
    scripted,
)
from tests.core.world import (
    BOB,
    HOUR,
    JOB,
    JOB2,
    JOB3,
    LEASE,
    NEWER_FORMAT,
    NOW,
    RECORD_ID,
    TENANT,
    USAGE_ID,
    World,
    a_job,
    a_record,
    a_usage,
    cancel,
    expect_type,
    expire,
    forget,
    look_up,
    look_up_job,
    maintain,
    purge,
    reserve,
    submit,
)

# Commands of one batch


def test_two_submissions_of_one_key_in_one_batch_settle_each_other() -> None:
    world = World()
    first, second, echo = world.execute_batch(submit(JOB), submit(JOB2), submit(JOB))
    assert expect_type(first, Created).job == expect_type(second, Replayed).job == expect_type(echo, Created).job
    assert world.jobs() == [JOB]
    assert set(world.changes.inserts) == {Kind.RECORD, Kind.JOB}
    assert [one.job_id for one in world.changes.attachments] == [JOB]


def test_a_batch_is_decided_as_if_each_command_were_alone() -> None:
    commands: list[Command[Any]] = [
        reserve(),
        reserve(JOB2, holder=BOB),
        look_up(),
        cancel(),
        submit(JOB2),
        forget(HOUR),
        purge(),
        submit(JOB2),
        look_up_job(),
        submit(JOB3),
        expire(),
        maintain(JOB2),
    ]
    together, alone = World(a_usage()), World(a_usage())
    replies = [alone.execute(command) for command in commands]
    assert together.execute_batch(*commands) == replies
    assert (together.facts, together.attachments) == (alone.facts, alone.attachments)
    expected = [
        KeyHeld,
        InProgress,
        Found,
        Cancelled,
        InProgress,
        Refused,
        Maintained,
        Created,
        Missing,
        Replayed,
    ]
    assert [type(reply) for reply in replies] == [*expected, Maintained, Maintained]


def test_a_forgotten_key_is_still_answered_in_the_same_batch_and_a_purged_one_is_new() -> None:
    world = World(a_record(), a_job())
    forgotten, replayed = world.execute_batch(forget(0), submit(JOB2))
    assert expect_type(forgotten, Forgotten).expires_at == NOW
    assert expect_type(replayed, Replayed).job == world.job()
    purged, created = world.execute_batch(purge(), submit(JOB2))
    assert expect_type(purged, Maintained).changed
    assert expect_type(created, Created).job == world.job(JOB2)
    assert world.jobs() == [JOB2]
    assert world.record().version == 1


def test_changes_name_the_version_that_was_loaded() -> None:
    world = World(a_record(version=3), a_job(version=5))
    world.execute_batch(forget(HOUR), forget(0), cancel())
    assert [(fact.version, loaded) for fact, loaded in world.changes.updates[Kind.RECORD]] == [(5, 3)]
    assert [(fact.version, loaded) for fact, loaded in world.changes.updates[Kind.JOB]] == [(8, 5)]


def test_a_dropped_job_takes_what_the_same_batch_would_have_added() -> None:
    world = World()
    world.execute_batch(submit(JOB), submit(JOB2, record_id=b"", key=""), cancel(JOB), purge())
    assert {one.job_id for one in world.changes.attachments} == {JOB2}
    assert (Kind.RECORD in world.changes.inserts, world.jobs()) == (False, [JOB2])


def test_a_batch_that_only_read_changes_nothing() -> None:
    world = World(a_record(), a_job())
    world.execute_batch(look_up(), look_up_job(), submit(JOB2))
    assert not world.changes


# Failing alone


LOG_LINE = (AttachmentKind.LOG, U64(0), b"line")


def put_outside_footprint(put: Fact) -> Scripted:
    return scripted(Footprint(TENANT, RECORD_ID), replace(a_record(), version=4), put)


@pytest.mark.parametrize(
    "failing",
    [
        put_outside_footprint(a_job(id=JOB3, version=1)),
        put_outside_footprint(replace(a_record(), version=6)),
        put_outside_footprint(replace(a_record(), version=4, tenant="other")),
        scripted(Footprint(TENANT, RECORD_ID), replace(a_record(), version=3)),
        scripted(Footprint(TENANT, RECORD_ID, (JOB3,)), a_job(id=JOB3, version=2)),
        scripted(Footprint(TENANT, RECORD_ID), a_record(version=4), drops=(a_job(id=JOB3),)),
        scripted(Footprint(TENANT, jobs=(JOB3,)), drops=(a_job(id=JOB3),)),
        scripted(Footprint(TENANT, RECORD_ID), a_record(version=4), attachments=(Attachment(JOB3, *LOG_LINE),)),
        scripted(Footprint(TENANT, jobs=(JOB3,)), attachments=(Attachment(JOB3, *LOG_LINE),)),
        scripted(Footprint(TENANT, jobs=(JOB3,)), trims=(Trim(JOB3, *LOG_LINE[:2]),)),
    ],
    ids=[
        "outside",
        "version ahead",
        "other tenant",
        "same version",
        "new with 2",
        "drops outside",
        "drops none",
        "attaches outside",
        "attaches to none",
        "trims none",
    ],
)
def test_a_wrong_change_is_a_defect_that_changes_nothing_and_harms_no_other(failing: Scripted) -> None:
    world = World(a_record(version=3), a_job())
    before, defect, after = world.execute_batch(look_up(), failing, submit(JOB2))
    assert expect_type(defect, Defect).retryable is False
    assert "Scripted" in expect_type(defect, Defect).message
    assert expect_type(before, Found).record == a_record(version=3)
    assert expect_type(after, Replayed)
    assert not world.changes


def test_a_change_outside_the_own_footprint_is_a_defect_whatever_else_the_batch_loads() -> None:
    world = World(a_record(version=3), a_job())
    _, defect = world.execute_batch(look_up_job(JOB3), put_outside_footprint(a_job(id=JOB3, version=1)))
    assert isinstance(defect, Defect)


def test_another_tenants_facts_do_not_exist() -> None:
    world = World(a_record(), a_job(usage_id=USAGE_ID), a_usage(), a_stream(), a_policy())
    facts = dict(world.facts)
    seen: list[Facts] = []
    footprint = replace(FULL_FOOTPRINT, tenant="other", usage=USAGE_ID)
    world.execute_batch(
        RecordFacts(tenant="other", requested=footprint, recorded=seen),
        Purge(tenant="other", record_id=RECORD_ID, job_ids=(JOB,), usage_id=USAGE_ID),
        replace(cancel(), tenant="other"),
    )
    assert seen == [Facts()]
    assert world.facts == facts
    assert expect_type(world.execute(look_up(tenant="other")), Missing)
    assert expect_type(world.execute(look_up_job(tenant="other")), Missing)
    assert expect_type(world.execute(submit(tenant="other")), Defect)  # it may not take the place of what it cannot see
    assert world.facts == facts


@pytest.mark.parametrize("fact", [a_record(), a_job(), a_stream(), a_usage(), a_policy()])
def test_a_fact_of_a_newer_format_is_left_to_newer_programs(fact: Fact) -> None:
    newer = replace(fact, format=NEWER_FORMAT)
    world = World(newer, a_job(id=JOB2))
    footprint = Footprint(TENANT, RECORD_ID, (JOB,), STREAM_ID, USAGE_ID, POLICY_ID)
    defect, fine = world.execute_batch(scripted(footprint), cancel(JOB2))
    assert expect_type(defect, Defect).retryable is True
    assert type(fact).__name__ in expect_type(defect, Defect).message
    assert expect_type(fine, Cancelled).changed


def test_a_command_of_a_newer_format_is_left_to_newer_programs() -> None:
    world = World()
    defect, fine = world.execute_batch(submit(format=FORMAT + 1), submit(JOB2))
    assert expect_type(defect, Defect).retryable is True
    assert expect_type(fine, Created).job.id == JOB2


def test_time_never_runs_below_the_stamps_of_the_facts() -> None:
    ahead = NOW + HOUR
    for stamped in (a_record(changed_at=ahead), a_job(changed_at=ahead)):
        world = World(a_record(expires_at=ahead), a_job(), a_usage())
        world.facts[Kind.RECORD if stamped.id == RECORD_ID else Kind.JOB, stamped.id] = stamped
        assert expect_type(world.execute(submit(JOB2), NOW), Replayed).at == ahead
    world = World(a_job(usage_id=USAGE_ID), a_usage(changed_at=ahead))
    assert expect_type(world.execute(cancel(), NOW), Cancelled).job.ended_at == ahead
    world = World()
    reserved, other = world.execute_batch(reserve(), look_up_job(JOB3), at=NOW)
    assert (expect_type(reserved, KeyHeld).lease_until, expect_type(other, Missing).at) == (NOW + LEASE, NOW)


# Executing again one at a time


class StoreFailed(Exception):
    pass


class FailingStore:
    """A world whose batches fail as a whole if one of their jobs is poison, or if the store is down."""

    def __init__(self, *, poison: bytes = b"", fails_at: int = -1) -> None:
        self.world = World()
        self.poison = poison
        self.fails_at = fails_at  # the call in which the store is down
        self.calls: list[int] = []  # the size of each batch

    def execute(self, commands: Sequence[Command[Any]]) -> list[AnyReply]:
        self.calls.append(len(commands))
        if len(self.calls) - 1 == self.fails_at:
            raise StoreFailed("disk full")
        if any(self.poison in command.footprint.jobs for command in commands):
            raise ValueError("a row that the store refuses")
        return list(self.world.execute_batch(*commands))

    def run(self, *job_ids: bytes) -> list[AnyReply]:
        commands = [submit(id, key="", record_id=b"") for id in job_ids]
        return execute_isolating_failures(self.execute, commands, self._raise_store_failure)

    def _raise_store_failure(self, error: Exception, executed: int) -> None:
        if isinstance(error, StoreFailed):
            raise StoreFailed(f"{error} after {executed}") from error


def test_a_batch_that_succeeds_is_executed_once() -> None:
    store = FailingStore()
    assert [type(reply) for reply in store.run(JOB, JOB2)] == [Created, Created]
    assert store.calls == [2]


def test_a_command_that_makes_its_batch_fail_fails_alone() -> None:
    store = FailingStore(poison=JOB2)
    first, defect, last = store.run(JOB, JOB2, JOB3)
    assert (type(first), type(last)) == (Created, Created)
    assert expect_type(defect, Defect) == Defect("Submit: ValueError: a row that the store refuses")
    assert (store.calls, store.world.jobs()) == ([3, 1, 1, 1], [JOB, JOB3])


def test_a_single_command_that_fails_is_not_executed_again() -> None:
    store = FailingStore(poison=JOB)
    assert [type(reply) for reply in store.run(JOB)] == [Defect]
    assert store.calls == [1]


def test_a_failure_of_the_store_is_no_failure_of_a_command() -> None:
    store = FailingStore(fails_at=0)
    with pytest.raises(StoreFailed, match="disk full after 0"):
        store.run(JOB, JOB2)
    assert (store.calls, store.world.jobs()) == ([2], [])


def test_too_little_memory_is_no_failure_of_a_command() -> None:
    def execute(commands: Sequence[Command[Any]]) -> list[AnyReply]:
        raise MemoryError

    with pytest.raises(MemoryError):
        execute_isolating_failures(execute, [submit(), submit(JOB2)], lambda error, executed: None)


def test_a_failure_of_the_store_in_the_middle_counts_the_commands_before_it() -> None:
    store = FailingStore(poison=JOB, fails_at=3)
    with pytest.raises(StoreFailed, match="disk full after 2"):
        store.run(JOB, JOB2, JOB3)
    assert (store.calls, store.world.jobs()) == ([3, 1, 1, 1], [JOB2])


# All five facts


def test_a_command_may_touch_all_five_facts() -> None:
    footprint = Footprint(TENANT, RECORD_ID, (JOB, JOB2), STREAM_ID, USAGE_ID, POLICY_ID)
    firsts: list[Fact] = [
        a_record(version=1, job_ids=JOB + JOB2), a_job(version=1), a_job(id=JOB2, version=1),
        a_stream(), a_usage(version=1), a_policy(),
    ]  # fmt: skip
    input = Attachment(JOB, AttachmentKind.INPUT, U64(0), b"1")
    world = World()
    assert expect_type(world.execute(scripted(footprint, *firsts, attachments=(input,))), Maintained)
    assert list(world.facts.values()) == firsts
    seconds = [replace(fact, version=2) for fact in firsts]
    added = Attachment(JOB, AttachmentKind.LOG, U64(2**64 - 1), b"2")
    trim = Trim(JOB, AttachmentKind.INPUT, 0)
    assert expect_type(world.execute(scripted(footprint, *seconds, attachments=(added,), trims=(trim,))), Maintained)
    assert list(world.facts.values()) == seconds
    assert list(world.attachments) == [(JOB, AttachmentKind.LOG, 2**64 - 1)]
    updated = [fact for fact in seconds if not isinstance(fact, Job | Stream)]
    dropped = tuple(fact for fact in seconds if isinstance(fact, Job | Stream))
    assert expect_type(
        world.execute(scripted(footprint, *(replace(f, version=3) for f in updated), drops=dropped)), Maintained
    )
    assert [kind for kind, _ in world.facts] == [Kind.RECORD, Kind.USAGE, Kind.POLICY]
    assert world.attachments == {}
    replies: list[AnyReply] = list(world.execute_batch(scripted(footprint, drops=tuple(world.facts.values()))))
    assert (replies, world.facts) == ([Maintained(True, NOW)], {})


def test_a_job_deleted_and_recreated_in_one_batch_keeps_nothing_of_the_old_one() -> None:
    world = World()
    world.execute(submit())
    world.execute(cancel())
    assert world.attachment_indexes(AttachmentKind.EVENT) == [1]
    world.execute_batch(Purge(tenant=TENANT, record_id=RECORD_ID, job_ids=(JOB,)), submit())
    assert world.job().version == 1
    assert world.attachment_indexes(AttachmentKind.EVENT) == []
    assert world.attachment_indexes(AttachmentKind.INPUT) == [0]


def test_a_job_recreated_and_changed_in_the_batch_that_deleted_it_is_no_update_of_the_old_one() -> None:
    world = World()
    world.execute(submit())
    world.execute_batch(Purge(tenant=TENANT, record_id=RECORD_ID, job_ids=(JOB,)), submit(), cancel())
    assert world.job().version == 2
    assert world.attachment_indexes(AttachmentKind.INPUT) == [0]
    assert world.attachment_indexes(AttachmentKind.EVENT) == [1]
