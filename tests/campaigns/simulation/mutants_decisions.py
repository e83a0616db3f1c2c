"""Mutants of the core: wrong decisions about keys and jobs."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from onejob.core import identity, lookup, maintenance, reserve, submit
from onejob.core.command import Facts, Step
from onejob.core.facts import Job, Record, is_live, next_version
from onejob.core.maintenance import Expire, Purge
from onejob.core.replies import KeySettled, Maintained
from onejob.core.reserve import KeyHolderCommand, Settle
from onejob.core.submit import SubmissionCommand, Submit

from .mutant_registry import mutant
from .process import Components


@mutant
def drop_the_fence() -> Iterator[Components]:
    def record_if_live(self: KeyHolderCommand, record: Record | None, now: int) -> Record | None:
        return record if record is not None and is_live(record, now) else None

    with patch.object(KeyHolderCommand, "record_if_held", record_if_live):
        yield Components()


@mutant
def token_without_holder() -> Iterator[Components]:
    """A token alone is no fence: a record that was created again starts from 1."""

    def record_if_live(self: KeyHolderCommand, record: Record | None, now: int) -> Record | None:
        return record if record is not None and is_live(record, now) and record.token == self.token else None

    with patch.object(KeyHolderCommand, "record_if_held", record_if_live):
        yield Components()


@mutant
def forget_the_fingerprint() -> Iterator[Components]:
    original_reply = SubmissionCommand.reply_for_existing_key

    def wrong_reply(self: SubmissionCommand, record: Record, facts: Facts, now: int) -> Any:
        return original_reply(replace(self, fingerprint=record.fingerprint), record, facts, now)

    with patch.object(SubmissionCommand, "reply_for_existing_key", wrong_reply):
        yield Components()


@mutant
def in_progress_beats_the_mismatch() -> Iterator[Components]:
    original_reply = SubmissionCommand.reply_for_existing_key

    def wrong_reply(self: SubmissionCommand, record: Record, facts: Facts, now: int) -> Any:
        command = replace(self, fingerprint=record.fingerprint) if now <= record.lease_until else self
        return original_reply(command, record, facts, now)

    with patch.object(SubmissionCommand, "reply_for_existing_key", wrong_reply):
        yield Components()


@mutant
def own_retry_taken_for_a_duplicate() -> Iterator[Components]:
    decide = Submit.decide

    def decide_wrongly(self: Submit, facts: Facts, now: int) -> Any:
        record = facts.record
        if record is not None and record.holder == self.job_id and is_live(record, now):
            return Step(self.reply_for_existing_key(record, facts, now))
        return decide(self, facts, now)

    with patch.object(Submit, "decide", decide_wrongly):
        yield Components()


@mutant
def take_over_with_a_new_job() -> Iterator[Components]:
    def create_again(self: Submit, record: Record, facts: Facts, now: int) -> Any:
        return self._create(record, facts, now)

    with patch.object(Submit, "_take_over_and_commit", create_again):
        yield Components()


@mutant
def take_over_with_the_old_token() -> Iterator[Components]:
    original_step = reserve._take_over_step

    def same_token(record: Record, *args: Any, **more: Any) -> Any:
        return original_step(replace(record, token=record.token - 1), *args, **more)

    with patch.object(reserve, "_take_over_step", same_token):
        yield Components()


@mutant
def expired_one_millisecond_early() -> Iterator[Components]:
    def wrongly_expired(record: Record, now: int) -> bool:
        return now < record.expires_at or now < record.lease_until

    with (
        patch.object(submit, "is_live", wrongly_expired),
        patch.object(reserve, "is_live", wrongly_expired),
        patch.object(lookup, "is_live", wrongly_expired),
        patch.object(maintenance, "is_live", wrongly_expired),
    ):
        yield Components()


@mutant
def lease_one_millisecond_short() -> Iterator[Components]:
    original_reply = SubmissionCommand.reply_for_existing_key

    def wrongly_expired(self: SubmissionCommand, record: Record, facts: Facts, now: int) -> Any:
        return original_reply(self, replace(record, lease_until=max(record.lease_until - 1, 0)), facts, now)

    with patch.object(SubmissionCommand, "reply_for_existing_key", wrongly_expired):
        yield Components()


@mutant
def pending_expires_under_its_lease() -> Iterator[Components]:
    """The window ends with its time to live, although a lease on the key has not ended."""

    def is_live_wrongly(record: Record, now: int) -> bool:
        return now <= record.created_at + record.ttl_ms if record.lease_until else now <= record.expires_at

    with patch.object(submit, "is_live", is_live_wrongly), patch.object(reserve, "is_live", is_live_wrongly):
        yield Components()


@mutant
def sweep_live_records() -> Iterator[Components]:
    def decide(self: Expire, facts: Facts, now: int) -> Any:
        record = facts.record
        return Step(Maintained(record is not None, now), drops=() if record is None else (record,))

    with patch.object(Expire, "decide", decide):
        yield Components()


@mutant
def purge_leaves_the_job() -> Iterator[Components]:
    """The key is deleted, so the next submission creates a second job."""

    def decide(self: Purge, facts: Facts, now: int) -> Any:
        drops = (facts.record,) if facts.record is not None else ()
        return Step(Maintained(bool(drops), now), drops=drops)

    with patch.object(Purge, "decide", decide):
        yield Components()


@mutant
def purge_deletes_the_job_of_a_live_key() -> Iterator[Components]:
    """A job from a list is purged although a key that was created since then names it."""

    def decide(self: Purge, facts: Facts, now: int) -> Any:
        record = () if facts.record is None else (facts.record,)
        drops = (*record, *facts.jobs.values())
        return Step(Maintained(bool(drops), now), drops=drops)

    with patch.object(Purge, "decide", decide):
        yield Components()


@mutant
def failure_deletes_the_record() -> Iterator[Components]:
    def fail_wrongly(self: Settle, record: Record, facts: Facts, now: int) -> Any:
        return Step(KeySettled(replace(record, lease_until=0), facts.job, now), drops=(record,))

    with patch.object(Settle, "_fail", fail_wrongly):
        yield Components()


@mutant
def reject_is_not_final() -> Iterator[Components]:
    original_reply = SubmissionCommand.reply_for_existing_key

    def reply_again(self: SubmissionCommand, record: Record, facts: Facts, now: int) -> Any:
        return None if record.status == "rejected" else original_reply(self, record, facts, now)

    with patch.object(SubmissionCommand, "reply_for_existing_key", reply_again):
        yield Components()


@mutant
def tenant_missing_from_the_key() -> Iterator[Components]:
    record_id = identity.record_id
    with patch.object(identity, "record_id", lambda tenant, scope, key: record_id("", scope, key)):
        yield Components()


@mutant
def job_deleted_before_its_record() -> Iterator[Components]:
    """Ours: an ended job was deleted before the record that was settled after it."""

    def retain_wrongly(job: Job, now: int, *, keep_until: int, lease_until: int = 0) -> Job:
        return (
            next_version(job, now) if job.ended_at else next_version(job, now, keep_until=keep_until, due_at=keep_until)
        )

    with patch.object(submit, "retained_job", retain_wrongly), patch.object(reserve, "retained_job", retain_wrongly):
        yield Components()


@mutant
def abandoned_preparation_fails_while_its_key_can_be_taken_over() -> Iterator[Components]:
    with patch.object(maintenance, "is_abandoned_preparation", lambda job, now: False):
        yield Components()


@mutant
def forgotten_but_replayed_with_the_old_window() -> Iterator[Components]:
    """Ours: a repeated submission got the window from before `forget`, and the gate cached it."""
    create = Submit._create

    def create_wrongly(self: Submit, old: Record | None, facts: Facts, now: int) -> Any:
        step: Any = create(self, old, facts, now)
        if step.puts:
            return step
        return replace(step, reply=replace(step.reply, expires_at=step.reply.job.created_at + self.ttl_ms))

    with patch.object(Submit, "_create", create_wrongly):
        yield Components()
