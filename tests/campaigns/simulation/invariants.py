"""Invariants of usages, jobs and streams that need no model: every commit must keep them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from onejob.core.facts import Job, Kind, Record, Stream, Usage
from onejob.core.limits import effective_limits
from onejob.core.sequence import STREAM_IDLE_MS
from onejob.core.slots import SetLimits, slots_and_cost_held
from onejob.core.states import ENDED_STATES, IMMUTABLE_STATES, Delivery, JobState

if TYPE_CHECKING:
    from .store import FactChange, Proposal, SimStore


def find_violations(
    proposal: "Proposal", changes: "list[FactChange]", store: "SimStore | None"
) -> Iterator[tuple[str, str]]:
    """The invariants that a commit violates, with details."""
    assert store is not None
    # A limit that was lowered later in the same batch does not hold for what was admitted before.
    limits_unchanged = not any(isinstance(command, SetLimits) for command in proposal.commands)
    for old, new in changes:
        match new or old:
            case Usage():
                yield from _check_usage_matches_jobs(old, new, store)
                if limits_unchanged and new is not None:
                    yield from _check_limit_not_exceeded(old, new, store, proposal.now)
            case Job() if old is not None and new is not None:
                yield from _check_job(old, new)
            case Stream():
                yield from _check_stream(old, new, changes, proposal.now)


def _check_usage_matches_jobs(old: Any, new: Any, store: "SimStore") -> Iterator[tuple[str, str]]:
    usage: Usage = new or old
    held_by_jobs = [slots_and_cost_held(job, usage.id) for job in store.tables[Kind.JOB].values()]
    live, cost_held = sum(slots for slots, _ in held_by_jobs), sum(cost for _, cost in held_by_jobs)
    if new is None:
        if live or cost_held:
            yield "usage equals what its jobs hold", f"{usage.user} was deleted with {live} jobs"
        return
    if (usage.live, usage.cost_held) != (live, cost_held):
        yield "usage equals what its jobs hold", f"{usage.live}, {usage.cost_held}, not {live}, {cost_held}"


def _check_limit_not_exceeded(old: Any, usage: Usage, store: "SimStore", now: int) -> Iterator[tuple[str, str]]:
    now = max(now, usage.changed_at)
    before, after = slots_in_use(old, now), slots_in_use(usage, now)
    policies = [policy for policy in store.tables[Kind.POLICY].values() if policy.tenant == usage.tenant]
    limit = effective_limits(usage.limits, policies[0].body if policies else b"").max_concurrent
    if limit is not None and before < after > limit:
        yield "usage never grows above the limit", f"{usage.user}: {after} of {limit}"


def slots_in_use(usage: Usage | None, now: int) -> int:
    """Live jobs and unexpired reservations, counted independently of the core."""
    if usage is None:
        return 0
    slots = [slot for slot in usage.reservations.values() if slot.state == "active"]
    return usage.live + sum(1 for slot in slots if slot.expires_at >= now)


def _check_job(old: Job, new: Job) -> Iterator[tuple[str, str]]:
    """Tokens never decrease, an at-most-once job starts once, and a token has one holder."""
    detail = f"{old.id.hex()}: {old.state} {old.token} to {new.state} {new.token}"
    if new.token < old.token:
        yield "tokens never decrease", detail
    both = old.state is new.state is JobState.RUNNING
    if both and new.token == old.token and new.holder != old.holder:
        yield "a token is started once", detail
    if new.delivery is Delivery.AT_MOST_ONCE and (
        new.attempts > 1 or (new.attempts and new.state not in (*ENDED_STATES, JobState.RUNNING))
    ):
        yield "an at-most-once job starts once", detail
    if old.state in IMMUTABLE_STATES and new.state is not old.state:
        yield "an ended job is not finished again", detail


def _check_stream(old: Any, new: Any, changes: "list[FactChange]", now: int) -> Iterator[tuple[str, str]]:
    """The numbers of one commit are consecutive, and each has its record."""
    if new is None:
        if now <= old.last_seen + STREAM_IDLE_MS:
            yield "a stream is not deleted early", f"{old.client_id} was deleted at {old.last}"
        return
    last = old.last if old is not None else 0
    records = [fact for _, fact in changes if isinstance(fact, Record) and fact.client_id == new.client_id]
    of_stream = [fact for fact in records if (fact.tenant, fact.scope) == (new.tenant, new.scope)]
    numbers = sorted(int(fact.sequence) for fact in of_stream if fact.changed_at == fact.created_at)
    executed = [number for number in numbers if last < number <= new.last]
    if executed != list(range(last + 1, new.last + 1)):
        yield "every sequence number is executed once, in order", f"{new.client_id}: {last} to {new.last} by {numbers}"
    if old is not None and old.owner != new.owner:
        yield "a client belongs to its first credential", new.client_id
