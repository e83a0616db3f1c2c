"""Quotas: count what a user has in use, check it against the limits, and charge a submission.

1. A quota is checked and charged in the step that creates the job, and given back in the step that ends it. A refusal
   names the limit, how much of it is used and what would free it; it is not stored.
2. A job that is ready or running has a slot without a deadline: it is counted in `Usage.live`, and `Job.usage_id`
   names the usage. A job that is being prepared has a reservation under its own id, which ends with the lease of its key, so that
   a crash frees it.
3. An expired reservation counts nowhere, deleted or not. Settled ones stay until they would have expired, so that a
   repeated command gets its answer.
4. The rate counters slide: the hour is the current minute and the 60 before it, the day is the current hour and the 24
   before it, so that nothing leaves too early. Money is counted by the UTC day, week and month.
5. A user is counted only where there are limits, or a reservation; others have no usage.
6. The live keys of a tenant are counted by maintenance, so their limit is approximate. It is checked only where a key
   would be new: a key that has its answer keeps giving it, and a refused one can be submitted again.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec import Struct

from .command import Facts
from .facts import RESERVATIONS_MAX, Job, Reservation, Usage, next_version
from .identity import format_job_id
from .limits import CostAction, CostLimit, EffectiveLimits, Period, effective_limits, format_units
from .replies import LimitName, LimitWarning, Reason, Refused
from .states import JobState, SlotState
from .timestamps import to_utc

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
MINUTE_BUCKETS = 60 + 1
HOUR_BUCKETS = 24 + 1
RECONCILE_DELAY_MS = MINUTE_MS  # from a change until maintenance compares the usage with its jobs
COST_HELD_MAX = 2**62  # stores have 64 bits for it

_ACTIVE = SlotState.ACTIVE
_DAYS_BEFORE_MONDAY = 3  # the first of January 1970 was a Thursday
_WARN_PERCENT = 80


class KeyLimit(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """How many live keys a tenant may have, and how many it had when maintenance counted them last."""

    allowed: int
    counted: int


def refuse_new_key(limit: KeyLimit | None, now: int) -> Refused | None:
    """The refusal of a key that would be new, if its tenant has as many as it may have (rule 6)."""
    if limit is None or limit.counted < limit.allowed:
        return None
    message = (
        f"Quota exceeded: Maximum {limit.allowed} live keys allowed for this tenant; about {limit.counted} are stored. "
        "Wait until some expire, submit with shorter windows, forget keys, or ask for a larger limit"
    )
    details: dict[str, int | str] = {
        "limit": LimitName.LIVE_KEYS,
        "allowed": limit.allowed,
        "used": limit.counted,
    }
    return Refused(Reason.QUOTA_EXCEEDED, message, now, details)


class QuotaRequest(NamedTuple):
    """What a submission needs."""

    jobs: int = 1
    cost: int = 0  # of all jobs together
    reservation: str = ""  # consumed, if it has not expired
    reserve_until: int = 0  # 0: slots of live jobs; else one reservation until then, under `reserve_id`
    reserve_id: str = ""
    job_id: str = ""
    is_new: bool = True  # counts towards the hour and the day; False: counted before, or only reserved
    renew: bool = False  # the reservation is renewed, or taken again if it has expired
    had_slot: bool = False  # the caller had a slot: if there is none now, it was lost


class QuotaCharge(NamedTuple):
    usage: Usage
    warnings: tuple[LimitWarning, ...]


class UsageCounts(NamedTuple):
    """What counts at a given time."""

    live: int
    reserved: int
    last_hour: int
    last_day: int
    money_held: int
    spent: Mapping[Period, int]

    @property
    def used(self) -> int:
        return self.live + self.reserved


def limits_from_facts(facts: Facts) -> EffectiveLimits:
    user_limits = b"" if facts.usage is None else facts.usage.limits
    return effective_limits(user_limits, b"" if facts.policy is None else facts.policy.body)


def charge(
    facts: Facts, request: QuotaRequest, now: int, *, tenant: str, user: str, usage_id: bytes
) -> QuotaCharge | Refused | None:
    """Charge a submission to its user; None if the user is not counted (rule 5)."""
    if not usage_id or (facts.usage is None and facts.policy is None and not request.reservation):
        return None
    limits = limits_from_facts(facts)
    if facts.usage is None and not limits and not request.reservation:
        return None
    return charge_usage(facts.usage or new_usage(usage_id, tenant, user, now), limits, request, now)


def preparation_request(
    job_id: bytes, *, cost: int, until: int, reservation: str = "", is_new: bool = True
) -> QuotaRequest:
    """What a job needs while it is prepared: a reservation under its own id, until its lease ends."""
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
    """Renew the reservation of a preparing job, or take it again if it has expired and there is room."""
    if job is None or not _is_counted_by(job, facts.usage):
        return ()
    assert facts.usage is not None
    request = preparation_request(
        job.id, cost=job.cost_held, until=until, reservation=job.id.hex(), is_new=False
    )._replace(renew=True)
    charged = charge_usage(facts.usage, limits_from_facts(facts), request, now)
    return (charged.usage,) if isinstance(charged, QuotaCharge) else charged


def confirm_job_slot(job: Job, facts: Facts, now: int) -> tuple[Usage, ...] | Refused:
    """Turn the reservation of a prepared job into a slot without a deadline."""
    return renew_job_slot(job, facts, now, until=0)


def release_job_slot(job: Job | None, facts: Facts, now: int) -> tuple[Usage, ...]:
    """Free the reservation of a job whose preparation failed."""
    if job is None or job.state is not JobState.PREPARING or not _is_counted_by(job, facts.usage):
        return ()
    assert facts.usage is not None
    return (updated_usage(facts.usage, now, reservations=reservations_without_job(facts.usage, job, now)),)


def reservations_without_job(usage: Usage, job: Job, now: int) -> dict[str, object]:
    return {id: reservation for id, reservation in unexpired_reservations(usage, now).items() if id != job.id.hex()}


def _is_counted_by(job: Job, usage: Usage | None) -> bool:
    # The usage may be gone: a purge of the tenant deletes it before the jobs.
    return bool(job.usage_id) and usage is not None and usage.id == job.usage_id


def charge_usage(usage: Usage, limits: EffectiveLimits, request: QuotaRequest, now: int) -> QuotaCharge | Refused:
    """The usage with the request charged to it, or why there is no room."""
    reservation = find_reservation(usage, request.reservation, now)
    consumed_by = reservation.job_id if reservation is not None and reservation.state is SlotState.CONSUMED else ""
    if consumed_by and consumed_by == request.job_id:
        reservation = None  # by this very job, in an earlier attempt that gave its slot back
    if reservation is not None and reservation.state is not _ACTIVE:
        return _slot_lost_refusal(f"the reservation was already {reservation.state}; reserve another slot", now)
    current = current_counts(usage, now)
    if reservation is not None:  # its own slot and money are free for it
        current = current._replace(reserved=current.reserved - 1, money_held=current.money_held - reservation.cost)
    if reservation is None or not request.renew:  # a renewed reservation was admitted before
        refused = (
            (_check_concurrency(limits, current, request, now) if reservation is None else None)
            or (_check_rates(usage, limits, current, request, now) if request.is_new else None)
            or (_check_costs(limits, current, request, now) if request.is_new or request.job_id else None)
        )
        if refused is not None:
            return refused
    charged = _charged_usage(usage, request, now)
    return QuotaCharge(charged, _warnings(limits, current, request)) if isinstance(charged, Usage) else charged


def settled_reservations(usage: Usage, id: str, state: SlotState, now: int, job_id: str = "") -> dict[str, Reservation]:
    """The reservations with one of them settled (rule 3)."""
    reservations = unexpired_reservations(usage, now)
    reservation = reservations.get(id)
    if reservation is not None:
        reservations[id] = Reservation(
            reservation.created_at, reservation.expires_at, state, 0, job_id or reservation.job_id
        )
    return reservations


def _charged_usage(usage: Usage, request: QuotaRequest, now: int) -> Usage | Refused:
    changes = counter_changes(usage, now, request.jobs) if request.is_new else {}
    reservations = settled_reservations(usage, request.reservation, SlotState.CONSUMED, now, request.job_id)
    if request.renew:
        reservations.pop(request.reservation, None)
    if not request.reserve_until:
        live, cost_held = usage.live + request.jobs, usage.cost_held + request.cost
        return updated_usage(usage, now, live=live, cost_held=cost_held, reservations=reservations, **changes)
    remaining = make_room(reservations)
    if remaining is None:
        message = f"Quota exceeded: Maximum {RESERVATIONS_MAX} reservations at a time; release some"
        return Refused(Reason.QUOTA_EXCEEDED, message, now, {"limit": "reservations"})
    remaining[request.reserve_id] = Reservation(now, request.reserve_until, _ACTIVE, request.cost, request.job_id)
    return updated_usage(usage, now, reservations=remaining, **changes)


def _check_concurrency(
    limits: EffectiveLimits, current: UsageCounts, request: QuotaRequest, now: int
) -> Refused | None:
    allowed = limits.max_concurrent
    if allowed is None or current.used + request.jobs <= allowed:
        return None
    message = (
        f"Quota exceeded: Maximum {allowed} concurrent jobs allowed; {current.live} jobs and {current.reserved} "
        f"reservations are counted{f', {request.jobs} were asked for' if request.jobs > 1 else ''}. "
        "Wait until a job ends, cancel one, or release a reservation"
    )
    details: dict[str, int | str] = {
        "limit": LimitName.MAX_CONCURRENT,
        "allowed": allowed,
        "used": current.used,
        "live": current.live,
        "reserved": current.reserved,
    }
    if request.had_slot:
        return _slot_lost_refusal(f"the reservation expired, and its slot was taken. {message}", now, details)
    return Refused(Reason.QUOTA_EXCEEDED, message, now, details)


def _slot_lost_refusal(message: str, now: int, details: dict[str, int | str] | None = None) -> Refused:
    details = details or {"limit": LimitName.MAX_CONCURRENT}
    return Refused(Reason.SLOT_LOST, f"slot lost: {message}", now, details)


def _check_rates(
    usage: Usage, limits: EffectiveLimits, current: UsageCounts, request: QuotaRequest, now: int
) -> Refused | None:
    rates: tuple[tuple[LimitName, int | None, int, str, Callable[[Usage, int, int], int]], ...] = (
        (LimitName.JOBS_PER_HOUR, limits.jobs_per_hour, current.last_hour, "jobs an hour", hour_wait_ms),
        (LimitName.JOBS_PER_DAY, limits.jobs_per_day, current.last_day, "jobs a day", day_wait_ms),
    )
    for limit, allowed, used, what, wait_ms in rates:
        if allowed is None or used + request.jobs <= allowed:
            continue
        details: dict[str, int | str] = {"limit": limit, "allowed": allowed, "used": used}
        maximum = f"Maximum {allowed} {what} allowed"
        if request.jobs > allowed:
            message = f"Quota exceeded: {maximum}; {request.jobs} never fit. Ask for a larger limit"
            return Refused(Reason.QUOTA_EXCEEDED, message, now, details)
        details["retry_after_ms"] = wait_ms(usage, now, used + request.jobs - allowed)
        message = f"Rate limit: Quota exceeded: {maximum}; {used} were submitted. Retry when some are older"
        return Refused(Reason.RATE_LIMITED, message, now, details)
    return None


def _check_costs(limits: EffectiveLimits, current: UsageCounts, request: QuotaRequest, now: int) -> Refused | None:
    if current.money_held + request.cost > COST_HELD_MAX:
        message = "Cost limit exceeded: jobs hold more than can be counted. Wait for some to end"
        return Refused(Reason.COST_LIMIT_EXCEEDED, message, now, {"limit": LimitName.COST})
    for limit in limits.cost_limits:
        spent = current.spent[limit.period]
        used = spent + current.money_held
        if limit.action is CostAction.BLOCK and (used + request.cost > limit.amount or used >= limit.amount):
            message = (
                f"Cost limit exceeded: {format_units(limit.amount)} a {limit.period} allowed; "
                f"{format_units(spent)} spent, {format_units(current.money_held)} held by jobs, "
                f"{format_units(request.cost)} asked for. Wait for the next {limit.period}, or for jobs to end "
                "below their estimate"
            )
            details: dict[str, int | str] = {
                "limit": LimitName.COST,
                "period": limit.period,
                "allowed": format_units(limit.amount),
                "spent": format_units(spent),
                "held": format_units(current.money_held),
            }
            return Refused(Reason.COST_LIMIT_EXCEEDED, message, now, details)
    return None


def _warnings(limits: EffectiveLimits, current: UsageCounts, request: QuotaRequest) -> tuple[LimitWarning, ...]:
    if not limits:
        return ()
    new = request.jobs if request.is_new else 0
    counts = (
        (LimitName.MAX_CONCURRENT, limits.max_concurrent, current.used + request.jobs, "concurrent jobs are in use"),
        (LimitName.JOBS_PER_HOUR, limits.jobs_per_hour, current.last_hour + new, "jobs an hour are submitted"),
        (LimitName.JOBS_PER_DAY, limits.jobs_per_day, current.last_day + new, "jobs a day are submitted"),
    )
    warnings = [
        LimitWarning(limit, f"{used} of {allowed} {what}")
        for limit, allowed, used, what in counts
        if allowed is not None and _is_near_limit(used, allowed)
    ]
    return (*warnings, *_cost_warnings(limits.cost_limits, current, request))


def _cost_warnings(
    cost_limits: tuple[CostLimit, ...], current: UsageCounts, request: QuotaRequest
) -> list[LimitWarning]:
    warnings = []
    for limit in cost_limits:
        used = current.spent[limit.period] + current.money_held + request.cost
        if _is_near_limit(used, limit.amount):
            message = f"{format_units(used)} of {format_units(limit.amount)} a {limit.period} are spent or held"
            warnings.append(LimitWarning(LimitName.COST, f"Cost limit: {message}"))
    return warnings


def _is_near_limit(used: int, limit: int) -> bool:
    return used * 100 >= limit * _WARN_PERCENT


def new_usage(id: bytes, tenant: str, user: str, now: int) -> Usage:
    """A usage that is not stored yet: its first change makes it version 1."""
    return Usage(id, tenant, user, 0, now, version=0)


def updated_usage(usage: Usage, now: int, **changes: object) -> Usage:
    """The next version of a usage, which maintenance will visit after a while."""
    return next_version(usage, now, due_at=usage.due_at or now + RECONCILE_DELAY_MS, **changes)


def current_counts(usage: Usage, now: int) -> UsageCounts:
    active = [reservation for reservation in usage.reservations.values() if is_active(reservation, now)]
    return UsageCounts(
        usage.live,
        len(active),
        sum(_shifted_counters(usage.minutes, MINUTE_BUCKETS, _elapsed_buckets(usage, now, MINUTE_MS))),
        sum(_shifted_counters(usage.hours, HOUR_BUCKETS, _elapsed_buckets(usage, now, HOUR_MS))),
        usage.cost_held + sum(reservation.cost for reservation in active),
        dict(zip(Period, spent_now(usage, now), strict=True)),
    )


def is_active(reservation: Reservation | None, now: int) -> bool:
    """True if the reservation counts."""
    return reservation is not None and reservation.state is _ACTIVE and now <= reservation.expires_at


def find_reservation(usage: Usage, id: str, now: int) -> Reservation | None:
    """A reservation that has not expired, active or settled."""
    reservation = usage.reservations.get(id)
    return reservation if reservation is not None and now <= reservation.expires_at else None


def unexpired_reservations(usage: Usage, now: int) -> dict[str, Reservation]:
    return {id: reservation for id, reservation in usage.reservations.items() if now <= reservation.expires_at}


def make_room(reservations: dict[str, Reservation]) -> dict[str, Reservation] | None:
    """Room for one more: the oldest settled one is removed; None if all are active."""
    if len(reservations) < RESERVATIONS_MAX:
        return reservations
    settled = [
        (reservation.created_at, id) for id, reservation in reservations.items() if reservation.state is not _ACTIVE
    ]
    if not settled:
        return None
    _, oldest = min(settled)
    return {id: reservation for id, reservation in reservations.items() if id != oldest}


def counter_changes(usage: Usage, now: int, jobs: int) -> dict[str, object]:
    """The changes that count more submissions."""
    minutes = _shifted_counters(usage.minutes, MINUTE_BUCKETS, _elapsed_buckets(usage, now, MINUTE_MS))
    hours = _shifted_counters(usage.hours, HOUR_BUCKETS, _elapsed_buckets(usage, now, HOUR_MS))
    return {"minutes": (*minutes[:-1], minutes[-1] + jobs), "hours": (*hours[:-1], hours[-1] + jobs), "counted_at": now}


def hour_wait_ms(usage: Usage, now: int, excess: int) -> int:
    """Milliseconds until `excess` submissions are older than an hour."""
    minutes = _shifted_counters(usage.minutes, MINUTE_BUCKETS, _elapsed_buckets(usage, now, MINUTE_MS))
    return _wait_ms(minutes, MINUTE_MS, now, excess)


def day_wait_ms(usage: Usage, now: int, excess: int) -> int:
    hours = _shifted_counters(usage.hours, HOUR_BUCKETS, _elapsed_buckets(usage, now, HOUR_MS))
    return _wait_ms(hours, HOUR_MS, now, excess)


def spent_now(usage: Usage, now: int) -> tuple[int, int, int]:
    """What was spent in the current day, week and month."""
    periods = zip(usage.spent, _period_keys(usage.spent_at), _period_keys(now), strict=True)
    day, week, month = (amount if spent_in == current else 0 for amount, spent_in, current in periods)
    return day, week, month


def spending_changes(usage: Usage, now: int, amount: int) -> dict[str, object]:
    """The changes that count more money as spent."""
    day, week, month = spent_now(usage, now)
    return {"spent": (day + amount, week + amount, month + amount), "spent_at": now}


def is_idle(usage: Usage, now: int) -> bool:
    """True if nothing of the usage counts any more, so that it may be deleted."""
    if usage.limits or unexpired_reservations(usage, now):
        return False
    counts = current_counts(usage, now)
    return not (counts.used or counts.last_day or counts.money_held or any(counts.spent.values()))


def _period_keys(now: int) -> tuple[int, int, tuple[int, int]]:
    day, date = now // DAY_MS, to_utc(now)
    return day, (day + _DAYS_BEFORE_MONDAY) // 7, (date.year, date.month)


def _elapsed_buckets(usage: Usage, now: int, bucket_ms: int) -> int:
    return now // bucket_ms - usage.counted_at // bucket_ms


def _shifted_counters(counters: tuple[int, ...], size: int, steps: int) -> tuple[int, ...]:
    """The counters some buckets later: the oldest first, the current one last."""
    if not counters or steps >= size:
        return (0,) * size
    padded = (0,) * (size - len(counters)) + counters
    return padded[steps:] + (0,) * steps if steps > 0 else padded


def _wait_ms(counters: tuple[int, ...], bucket_ms: int, now: int, excess: int) -> int:
    freed = 0
    for index, count in enumerate(counters):
        freed += count
        if freed >= excess:
            return (now // bucket_ms + 1 + index) * bucket_ms - now
    return len(counters) * bucket_ms
