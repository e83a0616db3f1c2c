"""Part of the zoo: wrong decisions."""

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
    def fenced(self: KeyHolderCommand, record: Record | None, now: int) -> Record | None:
        return record if record is not None and is_live(record, now) else None

    with patch.object(KeyHolderCommand, "record_if_held", fenced):
        yield Components()


@mutant
def token_without_holder() -> Iterator[Components]:
    """A token alone is no fence: a record that was made anew starts again from 1."""

    def fenced(self: KeyHolderCommand, record: Record | None, now: int) -> Record | None:
        return record if record is not None and is_live(record, now) and record.token == self.token else None

    with patch.object(KeyHolderCommand, "record_if_held", fenced):
        yield Components()


@mutant
def forget_the_fingerprint() -> Iterator[Components]:
    answered = SubmissionCommand.reply_for_existing_key

    def lax(self: SubmissionCommand, record: Record, facts: Facts, now: int) -> Any:
        return answered(replace(self, fingerprint=record.fingerprint), record, facts, now)

    with patch.object(SubmissionCommand, "reply_for_existing_key", lax):
        yield Components()


@mutant
def in_progress_beats_the_mismatch() -> Iterator[Components]:
    answered = SubmissionCommand.reply_for_existing_key

    def lax(self: SubmissionCommand, record: Record, facts: Facts, now: int) -> Any:
        asked = replace(self, fingerprint=record.fingerprint) if now <= record.lease_until else self
        return answered(asked, record, facts, now)

    with patch.object(SubmissionCommand, "reply_for_existing_key", lax):
        yield Components()


@mutant
def own_retry_taken_for_a_duplicate() -> Iterator[Components]:
    decide = Submit.decide

    def deaf(self: Submit, facts: Facts, now: int) -> Any:
        record = facts.record
        if record is not None and record.holder == self.job_id and is_live(record, now):
            return Step(self.reply_for_existing_key(record, facts, now))
        return decide(self, facts, now)

    with patch.object(Submit, "decide", deaf):
        yield Components()


@mutant
def take_over_with_a_new_job() -> Iterator[Components]:
    def anew(self: Submit, record: Record, facts: Facts, now: int) -> Any:
        return self._create(record, facts, now)

    with patch.object(Submit, "_take_over_and_commit", anew):
        yield Components()


@mutant
def take_over_with_the_old_token() -> Iterator[Components]:
    taken_over = reserve._take_over_step

    def same(record: Record, *args: Any, **more: Any) -> Any:
        return taken_over(replace(record, token=record.token - 1), *args, **more)

    with patch.object(reserve, "_take_over_step", same):
        yield Components()


@mutant
def expired_one_millisecond_early() -> Iterator[Components]:
    def early(record: Record, now: int) -> bool:
        return now < record.expires_at or now < record.lease_until

    with (
        patch.object(submit, "is_live", early),
        patch.object(reserve, "is_live", early),
        patch.object(lookup, "is_live", early),
        patch.object(maintenance, "is_live", early),
    ):
        yield Components()


@mutant
def lease_one_millisecond_short() -> Iterator[Components]:
    answered = SubmissionCommand.reply_for_existing_key

    def early(self: SubmissionCommand, record: Record, facts: Facts, now: int) -> Any:
        return answered(self, replace(record, lease_until=max(record.lease_until - 1, 0)), facts, now)

    with patch.object(SubmissionCommand, "reply_for_existing_key", early):
        yield Components()


@mutant
def pending_expires_under_its_lease() -> Iterator[Components]:
    """The window ends with the time to live, whoever still holds the key."""

    def strict(record: Record, now: int) -> bool:
        return now <= record.created_at + record.ttl_ms if record.lease_until else now <= record.expires_at

    with patch.object(submit, "is_live", strict), patch.object(reserve, "is_live", strict):
        yield Components()


@mutant
def sweep_what_lives() -> Iterator[Components]:
    def decide(self: Expire, facts: Facts, now: int) -> Any:
        record = facts.record
        return Step(Maintained(record is not None, now), drops=() if record is None else (record,))

    with patch.object(Expire, "decide", decide):
        yield Components()


@mutant
def purge_leaves_the_job() -> Iterator[Components]:
    """The key is gone, so the next submission makes a second job beside the first."""

    def decide(self: Purge, facts: Facts, now: int) -> Any:
        drops = (facts.record,) if facts.record is not None else ()
        return Step(Maintained(bool(drops), now), drops=drops)

    with patch.object(Purge, "decide", decide):
        yield Components()


@mutant
def purge_takes_the_job_of_a_living_key() -> Iterator[Components]:
    """Found in a list of jobs, it is erased although a key that was made since then names it."""

    def decide(self: Purge, facts: Facts, now: int) -> Any:
        record = () if facts.record is None else (facts.record,)
        drops = (*record, *facts.jobs.values())
        return Step(Maintained(bool(drops), now), drops=drops)

    with patch.object(Purge, "decide", decide):
        yield Components()


@mutant
def failure_deletes_the_record() -> Iterator[Components]:
    def gone(self: Settle, record: Record, facts: Facts, now: int) -> Any:
        return Step(KeySettled(replace(record, lease_until=0), facts.job, now), drops=(record,))

    with patch.object(Settle, "_fail", gone):
        yield Components()


@mutant
def reject_is_not_final() -> Iterator[Components]:
    answered = SubmissionCommand.reply_for_existing_key

    def again(self: SubmissionCommand, record: Record, facts: Facts, now: int) -> Any:
        return None if record.status == "rejected" else answered(self, record, facts, now)

    with patch.object(SubmissionCommand, "reply_for_existing_key", again):
        yield Components()


@mutant
def tenant_missing_from_the_key() -> Iterator[Components]:
    record_id = identity.record_id
    with patch.object(identity, "record_id", lambda tenant, scope, key: record_id("", scope, key)):
        yield Components()


@mutant
def job_goes_before_its_record() -> Iterator[Components]:
    """Ours: an ended job was not kept for the record that was settled after it."""

    def kept(job: Job, now: int, *, keep_until: int) -> Job:
        return (
            next_version(job, now) if job.ended_at else next_version(job, now, keep_until=keep_until, due_at=keep_until)
        )

    with patch.object(submit, "retained_job", kept), patch.object(reserve, "retained_job", kept):
        yield Components()


@mutant
def forgotten_but_replayed_with_the_old_window() -> Iterator[Components]:
    """Ours: a repeated submission was told the window from before `forget`, and the gate passed it on."""
    create = Submit._create

    def long(self: Submit, old: Record | None, facts: Facts, now: int) -> Any:
        step: Any = create(self, old, facts, now)
        if step.puts:
            return step
        return replace(step, reply=replace(step.reply, expires_at=step.reply.job.created_at + self.ttl_ms))

    with patch.object(Submit, "_create", long):
        yield Components()
