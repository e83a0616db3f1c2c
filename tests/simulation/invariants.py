"""Laws of tallies and streams that need no model: they hold of every commit, whoever made it."""

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
    proposal: "Proposal", moves: "list[FactChange]", store: "SimStore | None"
) -> Iterator[tuple[str, str]]:
    """The laws that a commit breaks, each with what broke it."""
    assert store is not None
    # What was admitted before may be above a limit that was lowered later in the same batch.
    steady = not any(isinstance(command, SetLimits) for command in proposal.commands)
    for old, new in moves:
        match new or old:
            case Usage():
                yield from _check_usage_matches_jobs(old, new, store)
                if steady and new is not None:
                    yield from _check_limit_not_exceeded(old, new, store, proposal.now)
            case Job() if old is not None and new is not None:
                yield from _check_job(old, new)
            case Stream():
                yield from _check_stream(old, new, moves, proposal.now)


def _check_usage_matches_jobs(old: Any, new: Any, store: "SimStore") -> Iterator[tuple[str, str]]:
    tally: Usage = new or old
    held = [slots_and_cost_held(job, tally.id) for job in store.tables[Kind.JOB].values()]
    live, money = sum(slots for slots, _ in held), sum(cost for _, cost in held)
    if new is None:
        if live or money:
            yield "a tally says what its jobs hold", f"{tally.user} went with {live} jobs"
        return
    if (tally.live, tally.cost_held) != (live, money):
        yield "a tally says what its jobs hold", f"{tally.live}, {tally.cost_held}, not {live}, {money}"


def _check_limit_not_exceeded(old: Any, tally: Usage, store: "SimStore", now: int) -> Iterator[tuple[str, str]]:
    now = max(now, tally.changed_at)
    before, after = slots_in_use(old, now), slots_in_use(tally, now)
    policies = [policy for policy in store.tables[Kind.POLICY].values() if policy.tenant == tally.tenant]
    most = effective_limits(tally.limits, policies[0].body if policies else b"").max_concurrent
    if most is not None and before < after > most:
        yield "used never grows above the limit", f"{tally.user}: {after} of {most}"


def slots_in_use(tally: Usage | None, now: int) -> int:
    """Counted here, not by the core: live jobs, and slots whose time has not run out."""
    if tally is None:
        return 0
    slots = [slot for slot in tally.reservations.values() if slot.state == "active"]
    return tally.live + sum(1 for slot in slots if slot.expires_at >= now)


def _check_job(old: Job, new: Job) -> Iterator[tuple[str, str]]:
    """Tokens grow, an at-most-once job is started once, and whoever began has its token."""
    what = f"{old.id.hex()}: {old.state} {old.token} to {new.state} {new.token}"
    if new.token < old.token:
        yield "tokens grow", what
    both = old.state is new.state is JobState.RUNNING
    if both and new.token == old.token and new.holder != old.holder:
        yield "one start for each token", what
    if new.delivery is Delivery.AT_MOST_ONCE and (
        new.attempts > 1 or (new.attempts and new.state not in (*ENDED_STATES, JobState.RUNNING))
    ):
        yield "at most once", what
    if old.state in IMMUTABLE_STATES and new.state is not old.state:
        yield "one finished attempt", what


def _check_stream(old: Any, new: Any, moves: "list[FactChange]", now: int) -> Iterator[tuple[str, str]]:
    """The numbers of one commit follow each other, and each of them brought its record."""
    if new is None:
        if now <= old.last_seen + STREAM_IDLE_MS:
            yield "a high-water mark stays", f"{old.client_id} went at {old.last}"
        return
    last = old.last if old is not None else 0
    records = [fact for _, fact in moves if isinstance(fact, Record) and fact.client_id == new.client_id]
    own = [fact for fact in records if (fact.tenant, fact.scope) == (new.tenant, new.scope)]
    numbers = sorted(int(fact.sequence) for fact in own if fact.changed_at == fact.created_at)
    executed = [number for number in numbers if last < number <= new.last]
    if executed != list(range(last + 1, new.last + 1)):
        yield "each number once, and none left out", f"{new.client_id}: {last} to {new.last} by {numbers}"
    if old is not None and old.owner != new.owner:
        yield "a client belongs to its first credential", new.client_id
