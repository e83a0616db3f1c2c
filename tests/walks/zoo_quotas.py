"""The part of the zoo that counts wrongly, or numbers wrongly."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from onejob.core import quota, reserve, sequence, slots, work
from onejob.core import quota as charging
from onejob.core import quota as tally
from onejob.core.command import Facts, Step
from onejob.core.facts import Job, Reservation, Usage, next_version
from onejob.core.limits import EffectiveLimits
from onejob.core.quota import updated_usage
from onejob.core.replies import Refused, Replayed, SequenceAlreadyCommitted
from onejob.core.sequence import SequencePosition, SubmitSequence
from onejob.core.slots import ConsumeSlot
from onejob.core.states import IdempotencyStatus, SlotState
from onejob.core.submit import Submit

from .cage import bug
from .house import Parts


@bug
def slot_freed_twice() -> Iterator[Parts]:
    freed = work._usage_without_job

    def twice(job: Job, *rest: Any) -> Any:
        return tuple(replace(one, live=max(one.live - 1, 0)) for one in freed(job, *rest))

    with patch.object(work, "_usage_without_job", twice):
        yield Parts()


@bug
def slot_kept_by_a_cancelled_job() -> Iterator[Parts]:
    with patch.object(work, "_usage_without_job", lambda *_: ()):
        yield Parts()


@bug
def slot_kept_by_a_failed_preparation() -> Iterator[Parts]:
    with patch.object(reserve, "release_job_slot", lambda *_: ()):
        yield Parts()


@bug
def hit_is_charged() -> Iterator[Parts]:
    decide = Submit.decide

    def greedy(self: Submit, facts: Facts, now: int) -> Any:
        step: Any = decide(self, facts, now)
        if type(step.reply) is Replayed and facts.usage is not None and not step.puts:
            return replace(step, puts=(updated_usage(facts.usage, now, live=facts.usage.live + 1),))
        return step

    with patch.object(Submit, "decide", greedy):
        yield Parts()


@bug
def refusal_is_remembered() -> Iterator[Parts]:
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
        yield Parts()


@bug
def expired_reservation_counts() -> Iterator[Parts]:
    def timeless(one: Reservation | None, now: int) -> bool:
        return one is not None and one.state is SlotState.ACTIVE

    with patch.object(tally, "is_active", timeless):
        yield Parts()


@bug
def limits_read_outside_the_decision() -> Iterator[Parts]:
    """A process that remembers the limits of a user goes on with them after they were changed."""
    remembered: dict[bytes, EffectiveLimits] = {}
    limits_in = charging.limits_from_facts

    def stale(facts: Facts) -> EffectiveLimits:
        limits = limits_in(facts)
        return limits if facts.usage is None else remembered.setdefault(facts.usage.id, limits)

    with patch.object(charging, "limits_from_facts", stale), patch.object(slots, "limits_from_facts", stale):
        yield Parts()


@bug
def room_looked_for_outside_the_decision() -> Iterator[Parts]:
    """The racy count of every system that counts first and inserts then: here, nobody looks any more."""
    with patch.object(quota, "_check_concurrency", lambda *_: None):
        yield Parts()


@bug
def lost_slot_goes_unnoticed() -> Iterator[Parts]:
    """The upload took longer than the slot, another took it, and the job runs all the same."""
    reheld = charging.renew_job_slot

    def blind(job: Any, facts: Facts, now: int, *, until: int) -> Any:
        held = reheld(job, facts, now, until=until)
        return () if isinstance(held, Refused) else held

    with patch.object(charging, "renew_job_slot", blind), patch.object(reserve, "renew_job_slot", blind):
        yield Parts()


@bug
def consumed_slot_is_counted_beside_its_job() -> Iterator[Parts]:
    consumed = ConsumeSlot._consume_step

    def generous(self: ConsumeSlot, one: Usage, reservations: Any, job: Any, now: int) -> Any:
        return consumed(self, one, dict(one.reservations), job, now)

    with patch.object(ConsumeSlot, "_consume_step", generous):
        yield Parts()


def _sequenced(decide: Any) -> Any:
    return patch.object(SubmitSequence, "decide", decide)


@bug
def stream_advanced_by_a_hit() -> Iterator[Parts]:
    decide = SubmitSequence.decide

    def eager(self: SubmitSequence, facts: Facts, now: int) -> Any:
        step: Any = decide(self, facts, now)
        if isinstance(step.reply, SequenceAlreadyCommitted) and facts.stream is not None:
            return replace(step, puts=(next_version(facts.stream, now, last=facts.stream.last + 1),))
        return step

    with _sequenced(eager):
        yield Parts()


@bug
def gap_is_executed() -> Iterator[Parts]:
    judge = sequence.sequence_position

    def lax(last: int, number: int) -> SequencePosition:
        found = judge(last, number)
        return SequencePosition.NEXT if found is SequencePosition.GAP else found

    with patch.object(sequence, "sequence_position", lax):
        yield Parts()


@bug
def number_executed_again_when_its_record_has_gone() -> Iterator[Parts]:
    judge = sequence.sequence_position

    def forgetful(last: int, number: int) -> SequencePosition:
        found = judge(last, number)
        return SequencePosition.NEXT if found is SequencePosition.PAST else found

    with patch.object(sequence, "sequence_position", forgetful):
        yield Parts()


@bug
def batch_stored_by_half() -> Iterator[Parts]:
    advance = SubmitSequence._advance

    def half(self: SubmitSequence, facts: Facts, now: int) -> Any:
        step: Any = advance(self, facts, now)
        last = self.items[-1].job_id
        if len(self.items) == 1:
            return step
        puts = tuple(fact for fact in step.puts if fact.id != last)
        return replace(step, puts=puts, attachments=tuple(add for add in step.adds if add.job_id != last))

    with patch.object(SubmitSequence, "_advance", half):
        yield Parts()


@bug
def failed_batch_consumes_its_number() -> Iterator[Parts]:
    advance = SubmitSequence._advance

    def burning(self: SubmitSequence, facts: Facts, now: int) -> Any:
        step: Any = advance(self, facts, now)
        if isinstance(step.reply, Refused) and facts.stream is not None:
            return replace(step, puts=(next_version(facts.stream, now, last=self.sequence),))
        return step

    with patch.object(SubmitSequence, "_advance", burning):
        yield Parts()


@bug
def replay_without_a_look_at_the_owner() -> Iterator[Parts]:
    decide = SubmitSequence.decide

    def trusting(self: SubmitSequence, facts: Facts, now: int) -> Step[Any]:
        owner = facts.stream.owner if facts.stream is not None else self.owner
        return decide(replace(self, owner=owner), facts, now)

    with _sequenced(trusting):
        yield Parts()


@bug
def another_payload_is_replayed() -> Iterator[Parts]:
    known = SubmitSequence._reply_for_existing_key

    def lax(self: SubmitSequence, record: Any, *rest: Any) -> Any:
        return known(replace(self, fingerprint=record.fingerprint), record, *rest)

    with patch.object(SubmitSequence, "_reply_for_existing_key", lax):
        yield Parts()
