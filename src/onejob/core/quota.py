"""Quotas: whether there is room for a submission, decided in the step that creates it, and what it takes.

Every refusal says which limit, how much of it is used, and what would free it. None is remembered.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from . import limits as money
from .command import Facts
from .facts import RESERVATIONS_MAX, Job, Reservation, Usage, next_version
from .identity import format_job_id
from .limits import CostAction, CostLimit, EffectiveLimits, Period, effective_limits
from .replies import LimitName, LimitWarning, Reason, Refused
from .states import JobState, SlotState
from .timestamps import to_utc

# The arithmetic of a tally: what a user holds, reserved, submitted and spent. No limits here, only counts.
#
# A reservation that has expired counts nowhere, swept or not. Counters slide: the hour is the running minute and the
# 60 before it, the day the running hour and the 24 before it, so that nothing leaves too early. Money is counted by
# the UTC day, week and month.


MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
MINUTE_BUCKETS = 60 + 1
HOUR_BUCKETS = 24 + 1
RECONCILE_DELAY_MS = MINUTE_MS  # after a change, upkeep counts again

_ACTIVE = SlotState.ACTIVE
_DAYS_BEFORE_MONDAY = 3  # the first of January 1970 was a Thursday


class UsageCounts(NamedTuple):
    """What counts now."""

    live: int
    reserved: int
    last_hour: int
    last_day: int
    money_held: int
    spent: Mapping[Period, int]

    @property
    def used(self) -> int:
        return self.live + self.reserved


def new_usage(id: bytes, tenant: str, user: str, now: int) -> Usage:
    """A tally that is not stored yet: its first change makes it version 1."""
    return Usage(id, tenant, user, 0, now, version=0)


def updated_usage(usage: Usage, now: int, **changes: object) -> Usage:
    """The next version of a tally, which upkeep will look at in a while."""
    return next_version(usage, now, due_at=usage.due_at or now + RECONCILE_DELAY_MS, **changes)


def current_counts(usage: Usage, now: int) -> UsageCounts:
    holding = [one for one in usage.reservations.values() if is_active(one, now)]
    return UsageCounts(
        usage.live,
        len(holding),
        sum(_shifted_counters(usage.minutes, MINUTE_BUCKETS, _elapsed_buckets(usage, now, MINUTE_MS))),
        sum(_shifted_counters(usage.hours, HOUR_BUCKETS, _elapsed_buckets(usage, now, HOUR_MS))),
        usage.cost_held + sum(one.cost for one in holding),
        dict(zip(Period, spent_now(usage, now), strict=True)),
    )


def is_active(reservation: Reservation | None, now: int) -> bool:
    """Whether it counts. Like a record, it is alive while now <= expires_at."""
    return reservation is not None and reservation.state is _ACTIVE and now <= reservation.expires_at


def find_reservation(usage: Usage, id: str, now: int) -> Reservation | None:
    """A reservation that still says something; an expired one is as good as gone, swept or not."""
    one = usage.reservations.get(id)
    return one if one is not None and now <= one.expires_at else None


def unexpired_reservations(usage: Usage, now: int) -> dict[str, Reservation]:
    """The reservations that still say something: active ones, and settled ones until they would have expired."""
    return {id: one for id, one in usage.reservations.items() if now <= one.expires_at}


def make_room(reservations: dict[str, Reservation]) -> dict[str, Reservation] | None:
    """Room for one more: the oldest settled one leaves; None when a thousand are active."""
    if len(reservations) < RESERVATIONS_MAX:
        return reservations
    settled = [(one.created_at, id) for id, one in reservations.items() if one.state is not _ACTIVE]
    if not settled:
        return None
    _, oldest = min(settled)
    return {id: one for id, one in reservations.items() if id != oldest}


def counter_changes(usage: Usage, now: int, jobs: int) -> dict[str, object]:
    """The changes that count some more submissions."""
    minutes = _shifted_counters(usage.minutes, MINUTE_BUCKETS, _elapsed_buckets(usage, now, MINUTE_MS))
    hours = _shifted_counters(usage.hours, HOUR_BUCKETS, _elapsed_buckets(usage, now, HOUR_MS))
    return {
        "minutes": (*minutes[:-1], minutes[-1] + jobs),
        "hours": (*hours[:-1], hours[-1] + jobs),
        "counted_at": now,
    }


def hour_wait_ms(usage: Usage, now: int, excess: int) -> int:
    """Milliseconds until that many submissions are no longer of the last hour."""
    return _wait_ms(
        _shifted_counters(usage.minutes, MINUTE_BUCKETS, _elapsed_buckets(usage, now, MINUTE_MS)),
        MINUTE_MS,
        now,
        excess,
    )


def day_wait_ms(usage: Usage, now: int, excess: int) -> int:
    return _wait_ms(
        _shifted_counters(usage.hours, HOUR_BUCKETS, _elapsed_buckets(usage, now, HOUR_MS)),
        HOUR_MS,
        now,
        excess,
    )


def spent_now(usage: Usage, now: int) -> tuple[int, int, int]:
    """What was spent in the day, week and month that contain now."""
    before, today = _period_keys(usage.spent_at), _period_keys(now)
    day, week, month = (
        amount if one == other else 0 for amount, one, other in zip(usage.spent, before, today, strict=True)
    )
    return day, week, month


def spending_changes(usage: Usage, now: int, amount: int) -> dict[str, object]:
    """The changes that count some more money as spent."""
    day, week, month = spent_now(usage, now)
    return {"spent": (day + amount, week + amount, month + amount), "spent_at": now}


def is_idle(usage: Usage, now: int) -> bool:
    """Whether it says nothing any more, so that it may go."""
    count = current_counts(usage, now)
    quiet = not (usage.limits or count.used or count.last_day or count.money_held or any(count.spent.values()))
    return quiet and not unexpired_reservations(usage, now)


def _period_keys(now: int) -> tuple[int, int, tuple[int, int]]:
    day = now // DAY_MS
    moment = to_utc(now)
    return day, (day + _DAYS_BEFORE_MONDAY) // 7, (moment.year, moment.month)


def _elapsed_buckets(usage: Usage, now: int, bucket_ms: int) -> int:
    return now // bucket_ms - usage.counted_at // bucket_ms


def _shifted_counters(counters: tuple[int, ...], size: int, steps: int) -> tuple[int, ...]:
    """Counters as they stand some steps later: the oldest first, the running one last."""
    if not counters or steps >= size:
        return (0,) * size
    whole = (0,) * (size - len(counters)) + counters
    return whole[steps:] + (0,) * steps if steps > 0 else whole


def _wait_ms(counters: tuple[int, ...], bucket_ms: int, now: int, excess: int) -> int:
    gone = 0
    for index, count in enumerate(counters):
        gone += count
        if gone >= excess:
            return (now // bucket_ms + 1 + index) * bucket_ms - now
    return len(counters) * bucket_ms


COST_HELD_MAX = 2**62  # stores have 64 bits for it
_WARN_PERCENT = 80


class QuotaRequest(NamedTuple):
    """What a submission needs."""

    jobs: int = 1
    cost: int = 0  # of all of them together
    reservation: str = ""  # its slot is used, if it is still there
    reserve_until: int = 0  # 0: slots of live jobs; else one reservation until then, under the name
    reserve_id: str = ""
    job_id: str = ""
    is_new: bool = True  # counted by the hour and the day; what was counted before, or only reserves, is not
    renew: bool = False  # the reservation is prolonged, or taken anew if its time ran out
    had_slot: bool = False  # the caller had a slot: if there is none now, it was lost


class QuotaCharge(NamedTuple):
    usage: Usage
    warnings: tuple[LimitWarning, ...]


def charge_usage(usage: Usage, limits: EffectiveLimits, request: QuotaRequest, now: int) -> QuotaCharge | Refused:
    """The tally with what was asked for, or why there is no room."""
    mine = find_reservation(usage, request.reservation, now)
    if mine is not None and request.job_id and mine.job_id == request.job_id and mine.state is SlotState.CONSUMED:
        mine = None  # by this very job, in an earlier attempt that gave its slot back
    if mine is not None and mine.state is not _ACTIVE:
        return _slot_lost_refusal(f"the reservation was already {mine.state}; reserve another slot", now)
    held = current_counts(usage, now)
    holds = mine is not None
    if mine is not None:
        held = held._replace(reserved=held.reserved - 1, money_held=held.money_held - mine.cost)
    if not (holds and request.renew):  # what is prolonged was admitted before
        refused = (
            (None if holds else _check_concurrency(limits, held, request, now))
            or (_check_rates(usage, limits, held, request, now) if request.is_new else None)
            or (_check_costs(limits, held, request, now) if request.is_new or request.job_id else None)
        )
        if refused is not None:
            return refused
    taken = _charged_usage(usage, request, now)
    return QuotaCharge(taken, _warnings(limits, held, request)) if isinstance(taken, Usage) else taken


def settled_reservations(usage: Usage, id: str, state: SlotState, now: int, job_id: str = "") -> dict[str, Reservation]:
    """The reservations after one was settled; it stays to be seen until it would have expired."""
    reservations = unexpired_reservations(usage, now)
    one = reservations.get(id)
    if one is not None:
        reservations[id] = Reservation(one.created_at, one.expires_at, state, 0, job_id or one.job_id)
    return reservations


def _charged_usage(usage: Usage, request: QuotaRequest, now: int) -> Usage | Refused:
    changes = counter_changes(usage, now, request.jobs) if request.is_new else {}
    reservations = settled_reservations(usage, request.reservation, SlotState.CONSUMED, now, request.job_id)
    if request.renew:
        reservations.pop(request.reservation, None)
    if not request.reserve_until:
        live, held = usage.live + request.jobs, usage.cost_held + request.cost
        return updated_usage(usage, now, live=live, cost_held=held, reservations=reservations, **changes)
    room = make_room(reservations)
    if room is None:
        message = f"Quota exceeded: Maximum {RESERVATIONS_MAX} reservations at a time; release some"
        return Refused(Reason.QUOTA_EXCEEDED, message, now, {"limit": "reservations"})
    room[request.reserve_id] = Reservation(now, request.reserve_until, _ACTIVE, request.cost, request.job_id)
    return updated_usage(usage, now, reservations=room, **changes)


def _check_concurrency(
    limits: EffectiveLimits, current: UsageCounts, request: QuotaRequest, now: int
) -> Refused | None:
    most = limits.max_concurrent
    if most is None or current.used + request.jobs <= most:
        return None
    message = (
        f"Quota exceeded: Maximum {most} concurrent jobs allowed; {current.live} jobs and {current.reserved} "
        f"reservations are counted{f', {request.jobs} were asked for' if request.jobs > 1 else ''}. "
        "Wait until a job ends, cancel one, or release a reservation"
    )
    details: dict[str, int | str] = {
        "limit": LimitName.MAX_CONCURRENT,
        "allowed": most,
        "used": current.used,
        "live": current.live,
        "reserved": current.reserved,
    }
    if request.had_slot:
        lost = f"the slot was lost when its time ran out, and another took it. {message}"
        return _slot_lost_refusal(lost, now, details)
    return Refused(Reason.QUOTA_EXCEEDED, message, now, details)


def _slot_lost_refusal(message: str, now: int, details: dict[str, int | str] | None = None) -> Refused:
    details = details or {"limit": LimitName.MAX_CONCURRENT}
    return Refused(Reason.SLOT_LOST, f"slot lost: {message}", now, details)


def _check_rates(
    usage: Usage, limits: EffectiveLimits, current: UsageCounts, request: QuotaRequest, now: int
) -> Refused | None:
    rates: tuple[tuple[LimitName, int | None, int, str, Callable[[Usage, int, int], int]], ...] = (
        (
            LimitName.JOBS_PER_HOUR,
            limits.jobs_per_hour,
            current.last_hour,
            "jobs an hour",
            hour_wait_ms,
        ),
        (LimitName.JOBS_PER_DAY, limits.jobs_per_day, current.last_day, "jobs a day", day_wait_ms),
    )
    for limit, most, used, what, frees_in in rates:
        if most is None or used + request.jobs <= most:
            continue
        details: dict[str, int | str] = {"limit": limit, "allowed": most, "used": used}
        if request.jobs > most:
            message = f"Quota exceeded: Maximum {most} {what} allowed; {request.jobs} never fit. Ask for a larger limit"
            return Refused(Reason.QUOTA_EXCEEDED, message, now, details)
        wait_ms = frees_in(usage, now, used + request.jobs - most)
        message = f"Rate limit: Maximum {most} {what} allowed; {used} were submitted. Repeat when some are older"
        return Refused(Reason.RATE_LIMITED, message, now, {**details, "retry_after_ms": wait_ms})
    return None


def _check_costs(limits: EffectiveLimits, current: UsageCounts, request: QuotaRequest, now: int) -> Refused | None:
    if current.money_held + request.cost > COST_HELD_MAX:
        message = "Cost limit exceeded: more than can be counted is held by jobs. Wait for some to end"
        return Refused(Reason.COST_LIMIT_EXCEEDED, message, now, {"limit": LimitName.COST})
    for limit in limits.cost_limits:
        spent = current.spent[limit.period]
        used = spent + current.money_held
        if limit.action is CostAction.BLOCK and (used + request.cost > limit.amount or used >= limit.amount):
            message = (
                f"Cost limit exceeded: {money.format_units(limit.amount)} a {limit.period} allowed; "
                f"{money.format_units(spent)} spent, {money.format_units(current.money_held)} held by jobs, "
                f"{money.format_units(request.cost)} asked for. Wait for the next {limit.period}, or for jobs to end "
                "below their estimate"
            )
            details: dict[str, int | str] = {
                "limit": LimitName.COST,
                "period": limit.period,
                "allowed": money.format_units(limit.amount),
                "spent": money.format_units(spent),
                "held": money.format_units(current.money_held),
            }
            return Refused(Reason.COST_LIMIT_EXCEEDED, message, now, details)
    return None


def _warnings(limits: EffectiveLimits, current: UsageCounts, request: QuotaRequest) -> tuple[LimitWarning, ...]:
    if not limits:
        return ()
    new = request.jobs if request.is_new else 0
    counts = (
        (
            LimitName.MAX_CONCURRENT,
            limits.max_concurrent,
            current.used + request.jobs,
            "concurrent jobs are in use",
        ),
        (
            LimitName.JOBS_PER_HOUR,
            limits.jobs_per_hour,
            current.last_hour + new,
            "jobs an hour are submitted",
        ),
        (LimitName.JOBS_PER_DAY, limits.jobs_per_day, current.last_day + new, "jobs a day are submitted"),
    )
    near = [
        LimitWarning(limit, f"{used} of {most} {what}")
        for limit, most, used, what in counts
        if most is not None and _is_near_limit(used, most)
    ]
    return (*near, *_cost_warnings(limits.cost_limits, current, request))


def _cost_warnings(
    cost_limits: tuple[CostLimit, ...], current: UsageCounts, request: QuotaRequest
) -> list[LimitWarning]:
    near = []
    for limit in cost_limits:
        used = current.spent[limit.period] + current.money_held + request.cost
        if _is_near_limit(used, limit.amount):
            message = (
                f"{money.format_units(used)} of {money.format_units(limit.amount)} a {limit.period} are spent or held"
            )
            near.append(LimitWarning(LimitName.COST, f"Cost limit: {message}"))
    return near


def _is_near_limit(used: int, limit: int) -> bool:
    return used * 100 >= limit * _WARN_PERCENT


# How jobs come to their slots: the one place where a submission meets the tally of its user.
#
# A job that may run has a slot without a deadline, and bears its mark. One that is being prepared has a
# reservation under its own name, which ends with the lease of its key, so that a crash frees it.


def limits_from_facts(facts: Facts) -> EffectiveLimits:
    own = b"" if facts.usage is None else facts.usage.limits
    return effective_limits(own, b"" if facts.policy is None else facts.policy.body)


def charge(
    facts: Facts, request: QuotaRequest, now: int, *, tenant: str, user: str, usage_id: bytes
) -> QuotaCharge | Refused | None:
    """Take what a submission needs; None where nobody counts: no limits, and nothing was ever reserved."""
    if not usage_id or (facts.usage is None and facts.policy is None and not request.reservation):
        return None
    limits = limits_from_facts(facts)
    if facts.usage is None and not limits and not request.reservation:
        return None
    return charge_usage(facts.usage or new_usage(usage_id, tenant, user, now), limits, request, now)


def preparation_request(
    job_id: bytes, *, cost: int, until: int, reservation: str = "", is_new: bool = True
) -> QuotaRequest:
    """What a job needs while it is prepared: a slot in its own name, until its lease ends."""
    return QuotaRequest(
        cost=cost,
        reservation=reservation,
        reserve_until=until,
        reserve_id=job_id.hex(),
        job_id=format_job_id(job_id),
        is_new=is_new,
        had_slot=bool(reservation),
    )


def renew_job_slot(job: Job | None, facts: Facts, now: int, *, until: int) -> tuple[Usage, ...] | Refused:
    """The slot of a preparing job, prolonged, or taken again if it was lost and there is room."""
    if job is None or not _is_counted_by(job, facts.usage):
        return ()
    assert facts.usage is not None
    own = job.id.hex()
    ask = preparation_request(job.id, cost=job.cost_held, until=until, reservation=own, is_new=False)
    ask = ask._replace(renew=True)
    taken = charge_usage(facts.usage, limits_from_facts(facts), ask, now)
    return (taken.usage,) if isinstance(taken, QuotaCharge) else taken


def confirm_job_slot(job: Job, facts: Facts, now: int) -> tuple[Usage, ...] | Refused:
    """The slot of a prepared job that may run from now on; it has no deadline any more."""
    return renew_job_slot(job, facts, now, until=0)


def release_job_slot(job: Job | None, facts: Facts, now: int) -> tuple[Usage, ...]:
    """The tally without the slot of a preparing job whose preparation failed."""
    if job is None or job.state is not JobState.PREPARING or not _is_counted_by(job, facts.usage):
        return ()
    assert facts.usage is not None
    return (updated_usage(facts.usage, now, reservations=reservations_without_job(facts.usage, job, now)),)


def reservations_without_job(usage: Usage, job: Job, now: int) -> dict[str, object]:
    return {name: one for name, one in unexpired_reservations(usage, now).items() if name != job.id.hex()}


def _is_counted_by(job: Job, usage: Usage | None) -> bool:
    # A tally may be gone: a tenant that is being purged loses it before its jobs.
    return bool(job.slot) and usage is not None and usage.id == job.slot
