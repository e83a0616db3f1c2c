"""Quotas: whether there is room for a submission, decided in the step that creates it, and what it takes.

Every refusal says which limit, how much of it is used, and what would free it. None is remembered.
"""

from collections.abc import Callable
from typing import NamedTuple

from . import money
from . import tally as count
from .facts import RESERVATIONS_MAX, Reservation, Tally
from .limits import CostAction, CostLimit, Effective
from .receipt import Caution, Limit, Reason, Refused
from .states import SlotState
from .tally import Standing

HELD_MAX = 2**62  # stores have 64 bits for it
_WARN_PERCENT = 80
_ACTIVE = SlotState.ACTIVE


class Ask(NamedTuple):
    """What a submission needs."""

    jobs: int = 1
    cost: int = 0  # of all of them together
    reservation: str = ""  # its slot is used, if it is still there
    until: int = 0  # 0: slots of live jobs; else one reservation until then, under the name
    name: str = ""
    job_id: str = ""
    is_new: bool = True  # counted by the hour and the day; what was counted before, or only reserves, is not
    again: bool = False  # the reservation is prolonged, or taken anew if its time ran out
    had: bool = False  # the caller had a slot: if there is none now, it was lost


class Taken(NamedTuple):
    tally: Tally
    cautions: tuple[Caution, ...]


def take(tally: Tally, limits: Effective, ask: Ask, now: int) -> Taken | Refused:
    """The tally with what was asked for, or why there is no room."""
    mine = count.found(tally, ask.reservation, now)
    if mine is not None and ask.job_id and mine.job_id == ask.job_id and mine.state is SlotState.CONSUMED:
        mine = None  # by this very job, in an earlier attempt that gave its slot back
    if mine is not None and mine.state is not _ACTIVE:
        return _slot_lost(f"the reservation was already {mine.state}; reserve another slot", now)
    held = count.standing(tally, now)
    holds = mine is not None
    if mine is not None:
        held = held._replace(reserved=held.reserved - 1, money_held=held.money_held - mine.cost)
    if not (holds and ask.again):  # what is prolonged was admitted before
        refused = (
            (None if holds else _no_slot(limits, held, ask, now))
            or (_too_often(tally, limits, held, ask, now) if ask.is_new else None)
            or (_too_dear(limits, held, ask, now) if ask.is_new or ask.job_id else None)
        )
        if refused is not None:
            return refused
    taken = _taken(tally, ask, now)
    return Taken(taken, _cautions(limits, held, ask)) if isinstance(taken, Tally) else taken


def settled(tally: Tally, id: str, state: SlotState, now: int, job_id: str = "") -> dict[str, Reservation]:
    """The reservations after one was settled; it stays to be seen until it would have expired."""
    reservations = count.kept(tally, now)
    one = reservations.get(id)
    if one is not None:
        reservations[id] = Reservation(one.created_at, one.expires_at, state, 0, job_id or one.job_id)
    return reservations


def _taken(tally: Tally, ask: Ask, now: int) -> Tally | Refused:
    changes = count.counters(tally, now, ask.jobs) if ask.is_new else {}
    reservations = settled(tally, ask.reservation, SlotState.CONSUMED, now, ask.job_id)
    if ask.again:
        reservations.pop(ask.reservation, None)
    if not ask.until:
        live, held = tally.live + ask.jobs, tally.cost_held + ask.cost
        return count.noted(tally, now, live=live, cost_held=held, reservations=reservations, **changes)
    room = count.with_room(reservations)
    if room is None:
        message = f"Quota exceeded: Maximum {RESERVATIONS_MAX} reservations at a time; release some"
        return Refused(Reason.QUOTA_EXCEEDED, message, now, {"limit": "reservations"})
    room[ask.name] = Reservation(now, ask.until, _ACTIVE, ask.cost, ask.job_id)
    return count.noted(tally, now, reservations=room, **changes)


def _no_slot(limits: Effective, held: Standing, ask: Ask, now: int) -> Refused | None:
    most = limits.max_concurrent
    if most is None or held.used + ask.jobs <= most:
        return None
    message = (
        f"Quota exceeded: Maximum {most} concurrent jobs allowed; {held.live} jobs and {held.reserved} "
        f"reservations are counted{f', {ask.jobs} were asked for' if ask.jobs > 1 else ''}. "
        "Wait until a job ends, cancel one, or release a reservation"
    )
    details: dict[str, int | str] = {
        "limit": Limit.MAX_CONCURRENT,
        "allowed": most,
        "used": held.used,
        "live": held.live,
        "reserved": held.reserved,
    }
    if ask.had:
        lost = f"the slot was lost when its time ran out, and another took it. {message}"
        return _slot_lost(lost, now, details)
    return Refused(Reason.QUOTA_EXCEEDED, message, now, details)


def _slot_lost(message: str, now: int, details: dict[str, int | str] | None = None) -> Refused:
    details = details or {"limit": Limit.MAX_CONCURRENT}
    return Refused(Reason.SLOT_LOST, f"slot lost: {message}", now, details)


def _too_often(tally: Tally, limits: Effective, held: Standing, ask: Ask, now: int) -> Refused | None:
    rates: tuple[tuple[Limit, int | None, int, str, Callable[[Tally, int, int], int]], ...] = (
        (Limit.JOBS_PER_HOUR, limits.jobs_per_hour, held.last_hour, "jobs an hour", count.hour_frees_in),
        (Limit.JOBS_PER_DAY, limits.jobs_per_day, held.last_day, "jobs a day", count.day_frees_in),
    )
    for limit, most, used, what, frees_in in rates:
        if most is None or used + ask.jobs <= most:
            continue
        details: dict[str, int | str] = {"limit": limit, "allowed": most, "used": used}
        if ask.jobs > most:
            message = (
                f"Quota exceeded: Maximum {most} {what} allowed; {ask.jobs} never fit. Ask for a larger limit"
            )
            return Refused(Reason.QUOTA_EXCEEDED, message, now, details)
        wait_ms = frees_in(tally, now, used + ask.jobs - most)
        message = (
            f"Rate limit: Maximum {most} {what} allowed; {used} were submitted. Repeat when some are older"
        )
        return Refused(Reason.RATE_LIMITED, message, now, {**details, "retry_after_ms": wait_ms})
    return None


def _too_dear(limits: Effective, held: Standing, ask: Ask, now: int) -> Refused | None:
    if held.money_held + ask.cost > HELD_MAX:
        message = "Cost limit exceeded: more than can be counted is held by jobs. Wait for some to end"
        return Refused(Reason.COST_LIMIT_EXCEEDED, message, now, {"limit": Limit.COST})
    for limit in limits.costs:
        spent = held.spent[limit.period]
        used = spent + held.money_held
        if limit.action is CostAction.BLOCK and (used + ask.cost > limit.amount or used >= limit.amount):
            message = (
                f"Cost limit exceeded: {money.text_of(limit.amount)} a {limit.period} allowed; "
                f"{money.text_of(spent)} spent, {money.text_of(held.money_held)} held by jobs, "
                f"{money.text_of(ask.cost)} asked for. Wait for the next {limit.period}, or for jobs to end "
                "below their estimate"
            )
            details: dict[str, int | str] = {
                "limit": Limit.COST,
                "period": limit.period,
                "allowed": money.text_of(limit.amount),
                "spent": money.text_of(spent),
                "held": money.text_of(held.money_held),
            }
            return Refused(Reason.COST_LIMIT_EXCEEDED, message, now, details)
    return None


def _cautions(limits: Effective, held: Standing, ask: Ask) -> tuple[Caution, ...]:
    if not limits:
        return ()
    new = ask.jobs if ask.is_new else 0
    counts = (
        (Limit.MAX_CONCURRENT, limits.max_concurrent, held.used + ask.jobs, "concurrent jobs are in use"),
        (Limit.JOBS_PER_HOUR, limits.jobs_per_hour, held.last_hour + new, "jobs an hour are submitted"),
        (Limit.JOBS_PER_DAY, limits.jobs_per_day, held.last_day + new, "jobs a day are submitted"),
    )
    near = [
        Caution(limit, f"{used} of {most} {what}")
        for limit, most, used, what in counts
        if most is not None and _is_near(used, most)
    ]
    return (*near, *_cost_cautions(limits.costs, held, ask))


def _cost_cautions(costs: tuple[CostLimit, ...], held: Standing, ask: Ask) -> list[Caution]:
    near = []
    for limit in costs:
        used = held.spent[limit.period] + held.money_held + ask.cost
        if _is_near(used, limit.amount):
            message = (
                f"{money.text_of(used)} of {money.text_of(limit.amount)} a {limit.period} are spent or held"
            )
            near.append(Caution(Limit.COST, f"Cost limit: {message}"))
    return near


def _is_near(used: int, most: int) -> bool:
    return used * 100 >= most * _WARN_PERCENT
