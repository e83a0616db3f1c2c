"""Mutants of quotas and sequences."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from onejob.core import quota, reserve, sequence, slots, work
from onejob.core.command import Facts, Step
from onejob.core.facts import Job, Reservation, Usage, next_version
from onejob.core.limits import EffectiveLimits
from onejob.core.quota import updated_usage
from onejob.core.replies import Refused, Replayed, SequenceAlreadyCommitted
from onejob.core.sequence import SequencePosition, SubmitSequence
from onejob.core.slots import ConsumeSlot
from onejob.core.states import IdempotencyStatus, SlotState
from onejob.core.submit import Submit

from .mutant_registry import mutant
from .process import Components


@mutant
def slot_freed_twice() -> Iterator[Components]:
    freed = work._usage_without_job

    def twice(job: Job, *rest: Any) -> Any:
        return tuple(replace(one, live=max(one.live - 1, 0)) for one in freed(job, *rest))

    with patch.object(work, "_usage_without_job", twice):
        yield Components()


@mutant
def slot_kept_by_a_cancelled_job() -> Iterator[Components]:
    with patch.object(work, "_usage_without_job", lambda *_: ()):
        yield Components()


@mutant
def slot_kept_by_a_failed_preparation() -> Iterator[Components]:
    with patch.object(reserve, "release_job_slot", lambda *_: ()):
        yield Components()


@mutant
def hit_is_charged() -> Iterator[Components]:
    decide = Submit.decide

    def greedy(self: Submit, facts: Facts, now: int) -> Any:
        step: Any = decide(self, facts, now)
        if type(step.reply) is Replayed and facts.usage is not None and not step.puts:
            return replace(step, puts=(updated_usage(facts.usage, now, live=facts.usage.live + 1),))
        return step

    with patch.object(Submit, "decide", greedy):
        yield Components()


@mutant
def refusal_is_remembered() -> Iterator[Components]:
    create = Submit._create

    def resentful(self: Submit, old: Any, facts: Facts, now: int) -> Any:
        step: Any = create(self, old, facts, now)
        if not isinstance(step.reply, Refused) or not self.record_id:
            return step
        record = self.new_record(
            old, IdempotencyStatus.REJECTED, now, holder=b"", lease_until=0, expires_at=now + self.ttl_ms
        )
        return replace(step, puts=(replace(record, job_ids=b""),))

    with patch.object(Submit, "_create", resentful):
        yield Components()


@mutant
def expired_reservation_counts() -> Iterator[Components]:
    def timeless(one: Reservation | None, now: int) -> bool:
        return one is not None and one.state is SlotState.ACTIVE

    with patch.object(quota, "is_active", timeless):
        yield Components()


@mutant
def limits_read_outside_the_decision() -> Iterator[Components]:
    """A process caches the limits of a user and uses them after they were changed."""
    remembered: dict[bytes, EffectiveLimits] = {}
    limits_in = quota.limits_from_facts

    def stale(facts: Facts) -> EffectiveLimits:
        limits = limits_in(facts)
        return limits if facts.usage is None else remembered.setdefault(facts.usage.id, limits)

    with patch.object(quota, "limits_from_facts", stale), patch.object(slots, "limits_from_facts", stale):
        yield Components()


@mutant
def quota_checked_outside_the_decision() -> Iterator[Components]:
    """The race of systems that count first and insert later; here the decision has no check at all."""
    with patch.object(quota, "_check_concurrency", lambda *_: None):
        yield Components()


@mutant
def lost_slot_goes_unnoticed() -> Iterator[Components]:
    """The preparation took longer than its slot, another job took the slot, and the job runs nevertheless."""
    reheld = quota.renew_job_slot

    def blind(job: Any, facts: Facts, now: int, *, until: int) -> Any:
        held = reheld(job, facts, now, until=until)
        return () if isinstance(held, Refused) else held

    with patch.object(quota, "renew_job_slot", blind), patch.object(reserve, "renew_job_slot", blind):
        yield Components()


@mutant
def consumed_slot_is_counted_twice() -> Iterator[Components]:
    consumed = ConsumeSlot._consume_step

    def generous(self: ConsumeSlot, one: Usage, reservations: Any, job: Any, now: int) -> Any:
        return consumed(self, one, dict(one.reservations), job, now)

    with patch.object(ConsumeSlot, "_consume_step", generous):
        yield Components()


def _patch_sequence_decide(decide: Any) -> Any:
    return patch.object(SubmitSequence, "decide", decide)


@mutant
def stream_advanced_by_a_hit() -> Iterator[Components]:
    decide = SubmitSequence.decide

    def eager(self: SubmitSequence, facts: Facts, now: int) -> Any:
        step: Any = decide(self, facts, now)
        if isinstance(step.reply, SequenceAlreadyCommitted) and facts.stream is not None:
            return replace(step, puts=(next_version(facts.stream, now, last=facts.stream.last + 1),))
        return step

    with _patch_sequence_decide(eager):
        yield Components()


@mutant
def gap_is_executed() -> Iterator[Components]:
    judge = sequence.sequence_position

    def lax(last: int, number: int) -> SequencePosition:
        found = judge(last, number)
        return SequencePosition.NEXT if found is SequencePosition.GAP else found

    with patch.object(sequence, "sequence_position", lax):
        yield Components()


@mutant
def number_executed_again_when_its_record_was_deleted() -> Iterator[Components]:
    judge = sequence.sequence_position

    def forgetful(last: int, number: int) -> SequencePosition:
        found = judge(last, number)
        return SequencePosition.NEXT if found is SequencePosition.PAST else found

    with patch.object(sequence, "sequence_position", forgetful):
        yield Components()


@mutant
def half_a_batch_is_stored() -> Iterator[Components]:
    advance = SubmitSequence._advance

    def half(self: SubmitSequence, facts: Facts, now: int) -> Any:
        step: Any = advance(self, facts, now)
        last = self.items[-1].job_id
        if len(self.items) == 1:
            return step
        puts = tuple(fact for fact in step.puts if fact.id != last)
        return replace(step, puts=puts, attachments=tuple(add for add in step.attachments if add.job_id != last))

    with patch.object(SubmitSequence, "_advance", half):
        yield Components()


@mutant
def failed_batch_consumes_its_number() -> Iterator[Components]:
    advance = SubmitSequence._advance

    def burning(self: SubmitSequence, facts: Facts, now: int) -> Any:
        step: Any = advance(self, facts, now)
        if isinstance(step.reply, Refused) and facts.stream is not None:
            return replace(step, puts=(next_version(facts.stream, now, last=self.sequence),))
        return step

    with patch.object(SubmitSequence, "_advance", burning):
        yield Components()


@mutant
def replay_without_checking_the_owner() -> Iterator[Components]:
    decide = SubmitSequence.decide

    def trusting(self: SubmitSequence, facts: Facts, now: int) -> Step[Any]:
        owner = facts.stream.owner if facts.stream is not None else self.owner
        return decide(replace(self, owner=owner), facts, now)

    with _patch_sequence_decide(trusting):
        yield Components()


@mutant
def another_payload_is_replayed() -> Iterator[Components]:
    known = SubmitSequence._reply_for_existing_key

    def lax(self: SubmitSequence, record: Any, *rest: Any) -> Any:
        return known(replace(self, fingerprint=record.fingerprint), record, *rest)

    with patch.object(SubmitSequence, "_reply_for_existing_key", lax):
        yield Components()
