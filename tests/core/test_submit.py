"""Rules of Submit: one key, one job, and the reply to a duplicate."""

import pytest

from onejob.core.command import Facts
from onejob.core.facts import AttachmentKind, Kind
from onejob.core.lookup import DryRun
from onejob.core.replies import (
    Conflict,
    Created,
    DryRunReply,
    Found,
    InProgress,
    KeyHeld,
    Missing,
    Reason,
    Refused,
    Rejected,
    Replayed,
)
from onejob.core.states import IdempotencyStatus, JobState
from onejob.core.submit import TTL_MS_DEFAULT
from tests.core.world import (
    ACTOR,
    ANN,
    HOUR,
    JOB,
    JOB2,
    JOB3,
    NOW,
    OTHER_FINGERPRINT,
    RECORD_ID,
    SCOPE,
    TENANT,
    TTL,
    USER,
    World,
    a_job,
    a_record,
    cancel,
    expect_type,
    expire,
    forget,
    look_up,
    maintain,
    purge,
    reserve,
    submit,
)


def test_a_new_key_makes_a_job_its_record_and_its_input_in_one_step() -> None:
    world = World()
    created = expect_type(world.execute(submit()), Created)
    assert created.job == world.job()
    assert created.expires_at == NOW + TTL
    job, record = world.job(), world.record()
    assert (job.state, job.type, job.user, job.actor) == (JobState.PENDING, SCOPE, USER, ACTOR)
    assert (record.status, record.job_ids, record.token) == (IdempotencyStatus.COMMITTED, JOB, 1)
    assert (record.lease_until, record.expires_at, job.keep_until) == (0, NOW + TTL, NOW + TTL)
    assert world.attachments == {(JOB, AttachmentKind.INPUT, 0): b'{"amount":1}'}


def test_a_duplicate_is_answered_with_the_same_job_and_changes_nothing() -> None:
    world = World()
    first = expect_type(world.execute(submit()), Created)
    again = expect_type(world.execute(submit(JOB2), NOW + 5), Replayed)
    assert (again.job, again.expires_at, again.at) == (first.job, first.expires_at, NOW + 5)
    assert not world.changes
    assert world.jobs() == [JOB]


@pytest.mark.parametrize("state", [state for state in JobState if state is not JobState.PREPARING])
def test_a_duplicate_sees_the_live_state_of_the_job(state: JobState) -> None:
    world = World(a_record(), a_job(state))
    assert expect_type(world.execute(submit(JOB2)), Replayed).job == a_job(state)


def test_a_job_that_may_not_run_yet_is_scheduled() -> None:
    later, due = World(), World()
    assert expect_type(later.execute(submit(run_at=NOW + 1)), Created).job.state is JobState.SCHEDULED
    assert expect_type(due.execute(submit(run_at=NOW)), Created).job.state is JobState.PENDING


def test_without_a_key_every_submission_is_new() -> None:
    world = World()
    keyless = submit(JOB, record_id=b"", key=""), submit(JOB2, record_id=b"", key="")
    first, second = (expect_type(world.execute(command), Created) for command in keyless)
    assert (first.job.id, second.job.id) == (JOB, JOB2)
    assert first.expires_at == first.job.keep_until == 0
    assert not any(kind is Kind.RECORD for kind, _ in world.facts)


def test_the_default_window_is_a_day() -> None:
    assert TTL_MS_DEFAULT == 24 * HOUR


# Expiry


def test_a_record_is_live_to_the_exact_millisecond() -> None:
    world = World()
    world.execute(submit())
    assert expect_type(world.execute(submit(JOB2), NOW + TTL), Replayed).job == world.job()
    created = expect_type(world.execute(submit(JOB3), NOW + TTL + 1), Created)
    assert created.job.id == JOB3
    assert world.jobs() == [JOB, JOB3]  # the old job is not touched
    assert world.record().job_ids == JOB3
    assert world.record().version == 2
    assert expect_type(world.execute(submit(JOB2), NOW + TTL + 2), Replayed).job == created.job


def test_expiry_is_decided_at_look_up_swept_or_not() -> None:
    swept, unswept = World(), World()
    for world in (swept, unswept):
        world.execute(submit())
    swept.execute(expire(), NOW + TTL + 1)
    for world in (swept, unswept):
        assert expect_type(world.execute(look_up(), NOW + TTL + 1), Missing)
        assert expect_type(world.execute(submit(JOB2), NOW + TTL + 1), Created).job.id == JOB2


def test_a_hit_does_not_prolong_the_window() -> None:
    world = World()
    world.execute(submit())
    assert expect_type(world.execute(submit(JOB2), NOW + TTL), Replayed).expires_at == NOW + TTL
    assert expect_type(world.execute(submit(JOB2), NOW + TTL + 1), Created).job.id == JOB2


def test_a_recreated_record_starts_over() -> None:
    old = a_record(expires_at=NOW - 1, token=9, hits=7, conflicts=2, receipt=b"old", last_hit_at=NOW - 5)
    world = World(old, a_job())
    world.execute(submit(JOB2, fingerprint=OTHER_FINGERPRINT))
    new = world.record()
    assert (new.token, new.hits, new.conflicts, new.receipt, new.last_hit_at) == (1, 0, 0, b"", 0)
    assert (new.created_at, new.fingerprint, new.version) == (NOW, OTHER_FINGERPRINT, old.version + 1)


# Echo


def test_the_same_command_again_is_created_again_and_stores_nothing() -> None:
    world = World()
    first = expect_type(world.execute(submit()), Created)
    again = expect_type(world.execute(submit(), NOW + 9), Created)
    assert (again.job, again.expires_at) == (first.job, first.expires_at)
    assert not world.changes


def test_the_echo_has_the_current_state_of_its_job() -> None:
    world = World()
    world.execute(submit())
    world.execute(cancel())
    assert expect_type(world.execute(submit()), Created).job.state is JobState.CANCELLED


@pytest.mark.parametrize("gone", ["expired", "swept"])
def test_the_same_command_is_created_again_after_its_record_has_gone(gone: str) -> None:
    world = World()
    first = expect_type(world.execute(submit()), Created)
    if gone == "swept":
        world.execute(expire(), NOW + TTL + 1)
    again = expect_type(world.execute(submit(), NOW + TTL + 2), Created)
    assert (again.job, again.expires_at) == (first.job, first.expires_at)
    assert not world.changes
    assert world.jobs() == [JOB]


def test_a_keyless_command_again_is_created_again() -> None:
    world = World()
    keyless = submit(record_id=b"", key="")
    assert expect_type(world.execute(keyless), Created) == expect_type(world.execute(keyless), Created)
    assert world.jobs() == [JOB]


def test_an_echo_under_a_key_that_was_used_again_gets_the_newer_job() -> None:
    world = World()
    world.execute(submit())
    world.execute(submit(JOB2), NOW + TTL + 1)
    assert expect_type(world.execute(submit(), NOW + TTL + 2), Replayed).job == world.job(JOB2)


# Mismatch, rejection, keys of other commands


def test_another_fingerprint_is_a_conflict_that_names_the_job() -> None:
    world = World()
    world.execute(submit())
    conflict = expect_type(world.execute(submit(JOB2, fingerprint=OTHER_FINGERPRINT)), Conflict)
    assert (conflict.job_id, conflict.external_id) == (JOB, "")
    assert not world.changes


def test_a_mismatch_comes_before_in_progress() -> None:
    world = World()
    world.execute(reserve())
    assert expect_type(world.execute(submit(JOB2)), InProgress)
    assert expect_type(world.execute(submit(JOB2, fingerprint=OTHER_FINGERPRINT)), Conflict)


def test_a_mismatch_comes_before_rejection() -> None:
    world = World(a_record(IdempotencyStatus.REJECTED), a_job(JobState.FAILED))
    assert expect_type(world.execute(submit(JOB2)), Rejected)
    assert expect_type(world.execute(submit(JOB2, fingerprint=OTHER_FINGERPRINT)), Conflict)


def test_what_is_not_in_the_fingerprint_makes_no_conflict() -> None:
    world = World()
    world.execute(submit())
    assert expect_type(world.execute(submit(JOB2, labels=b'{"a":"b"}', priority=9, run_at=NOW + 1, ttl_ms=1)), Replayed)


def test_an_external_job_is_replayed_by_its_id_whatever_the_fingerprint() -> None:
    world = World(a_record(job_ids=b"", external_id="ec2-77", fingerprint=b"", holder=b"", token=0))
    replayed = expect_type(world.execute(submit(fingerprint=OTHER_FINGERPRINT)), Replayed)
    assert (replayed.job, replayed.external_id) == (None, "ec2-77")
    assert world.jobs() == []


def test_a_sequenced_clients_key_is_refused_by_an_unsequenced_submission() -> None:
    world = World(a_record(client_id="a:b", sequence=4), a_job())
    for command in (submit(JOB2), submit(JOB2, fingerprint=OTHER_FINGERPRINT), reserve(JOB2)):
        assert expect_type(world.execute(command), Refused).reason is Reason.IDEMPOTENCY_KEY_REUSED


def test_a_key_of_a_record_without_a_job_is_another_request() -> None:
    world = World()
    world.execute(reserve(b""))
    assert expect_type(world.execute(submit(JOB2)), Conflict).job_id == b""


# Dry run, purge, forget


def test_a_dry_run_gives_the_answer_and_changes_nothing() -> None:
    world = World()
    for command, kind in ((submit(), Created), (reserve(holder=ANN), KeyHeld)):
        dry = expect_type(world.execute(DryRun(tenant=TENANT, command=command)), DryRunReply)
        assert isinstance(dry.reply, kind)
        assert not world.changes
    world.execute(submit())
    dry = expect_type(
        world.execute(DryRun(tenant=TENANT, command=submit(JOB2, fingerprint=OTHER_FINGERPRINT))), DryRunReply
    )
    assert isinstance(dry.reply, Conflict)
    assert dry.reply == submit(JOB2, fingerprint=OTHER_FINGERPRINT).decide(Facts(world.record()), NOW).reply


def test_a_purged_key_is_new_and_leaves_nothing_behind() -> None:
    world = World()
    world.execute(submit())
    world.execute(purge())
    assert (world.facts, world.attachments) == ({}, {})
    assert expect_type(world.execute(submit(JOB2)), Created).job.id == JOB2


def test_a_forgotten_key_makes_a_new_job_and_the_old_one_stays() -> None:
    world = World()
    world.execute(submit())
    world.execute(forget(HOUR))
    assert expect_type(world.execute(submit(JOB2), NOW + HOUR), Replayed)
    assert expect_type(world.execute(submit(JOB2), NOW + HOUR + 1), Created)
    assert world.jobs() == [JOB, JOB2]


def test_a_job_is_found_as_long_as_its_record() -> None:
    world = World()
    year = 365 * 24 * HOUR
    world.execute(submit(ttl_ms=year))
    world.execute(cancel(retention_ms=0))
    world.execute(maintain(), NOW + year)
    assert expect_type(world.execute(look_up(), NOW + year), Found).job == world.job()
    world.execute(maintain(), NOW + year + 1)
    assert world.jobs() == []
    assert expect_type(world.execute(submit(JOB2), NOW + year + 1), Created)
    assert world.has(Kind.RECORD, RECORD_ID)
