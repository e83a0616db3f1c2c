"""Quotas: whether there is room for a submission, decided in the step that creates it, and what it takes.

Every refusal says which limit, how much of it is used, and what would free it. None is remembered.
"""

from collections.abc import Callable
from typing import NamedTuple

from . import money
from . import tally as count
from .facts import RESERVATIONS_MAX, Reservation, Usage
from .limits import CostAction, CostLimit, EffectiveLimits
from .receipt import LimitName, LimitWarning, Reason, Refused
from .states import SlotState
from .tally import UsageCounts

COST_HELD_MAX = 2**62  # stores have 64 bits for it
_WARN_PERCENT = 80
_ACTIVE = SlotState.ACTIVE


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


def charge_usage(
    usage: Usage, limits: EffectiveLimits, request: QuotaRequest, now: int
) -> QuotaCharge | Refused:
    """The tally with what was asked for, or why there is no room."""
    mine = count.find_reservation(usage, request.reservation, now)
    if (
        mine is not None
        and request.job_id
        and mine.job_id == request.job_id
        and mine.state is SlotState.CONSUMED
    ):
        mine = None  # by this very job, in an earlier attempt that gave its slot back
    if mine is not None and mine.state is not _ACTIVE:
        return _slot_lost_refusal(f"the reservation was already {mine.state}; reserve another slot", now)
    held = count.current_counts(usage, now)
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


def settled_reservations(
    usage: Usage, id: str, state: SlotState, now: int, job_id: str = ""
) -> dict[str, Reservation]:
    """The reservations after one was settled; it stays to be seen until it would have expired."""
    reservations = count.unexpired_reservations(usage, now)
    one = reservations.get(id)
    if one is not None:
        reservations[id] = Reservation(one.created_at, one.expires_at, state, 0, job_id or one.job_id)
    return reservations


def _charged_usage(usage: Usage, request: QuotaRequest, now: int) -> Usage | Refused:
    changes = count.counter_changes(usage, now, request.jobs) if request.is_new else {}
    reservations = settled_reservations(usage, request.reservation, SlotState.CONSUMED, now, request.job_id)
    if request.renew:
        reservations.pop(request.reservation, None)
    if not request.reserve_until:
        live, held = usage.live + request.jobs, usage.cost_held + request.cost
        return count.updated_usage(
            usage, now, live=live, cost_held=held, reservations=reservations, **changes
        )
    room = count.make_room(reservations)
    if room is None:
        message = f"Quota exceeded: Maximum {RESERVATIONS_MAX} reservations at a time; release some"
        return Refused(Reason.QUOTA_EXCEEDED, message, now, {"limit": "reservations"})
    room[request.reserve_id] = Reservation(now, request.reserve_until, _ACTIVE, request.cost, request.job_id)
    return count.updated_usage(usage, now, reservations=room, **changes)


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
            count.hour_wait_ms,
        ),
        (LimitName.JOBS_PER_DAY, limits.jobs_per_day, current.last_day, "jobs a day", count.day_wait_ms),
    )
    for limit, most, used, what, frees_in in rates:
        if most is None or used + request.jobs <= most:
            continue
        details: dict[str, int | str] = {"limit": limit, "allowed": most, "used": used}
        if request.jobs > most:
            message = f"Quota exceeded: Maximum {most} {what} allowed; {request.jobs} never fit. Ask for a larger limit"
            return Refused(Reason.QUOTA_EXCEEDED, message, now, details)
        wait_ms = frees_in(usage, now, used + request.jobs - most)
        message = (
            f"Rate limit: Maximum {most} {what} allowed; {used} were submitted. Repeat when some are older"
        )
        return Refused(Reason.RATE_LIMITED, message, now, {**details, "retry_after_ms": wait_ms})
    return None


def _check_costs(
    limits: EffectiveLimits, current: UsageCounts, request: QuotaRequest, now: int
) -> Refused | None:
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


def _warnings(
    limits: EffectiveLimits, current: UsageCounts, request: QuotaRequest
) -> tuple[LimitWarning, ...]:
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
            message = f"{money.format_units(used)} of {money.format_units(limit.amount)} a {limit.period} are spent or held"
            near.append(LimitWarning(LimitName.COST, f"Cost limit: {message}"))
    return near


def _is_near_limit(used: int, limit: int) -> bool:
    return used * 100 >= limit * _WARN_PERCENT
