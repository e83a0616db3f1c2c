"""The commands `quota`, `usage` and `reservations`: what they ask for, and their answers as text for people."""

from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

from onejob.core.invalid import Invalid
from onejob.core.limits import CostLimit, Limits
from onejob.http.quota_wire import (
    CostLimitOut,
    EffectiveOut,
    LimitsOut,
    QuotaOut,
    ReservationsOut,
    SettledOut,
    TenantQuotaOut,
    UsageOut,
)

from .quota_doors import QuotaDoor
from .screen import Screen, clean
from .show import pairs, table


def quota(options: Namespace) -> Callable[[QuotaDoor], QuotaOut | TenantQuotaOut]:
    user, half, act = options.user, options.half, options.act
    if (user is None) == (half is None):
        raise Invalid("user", "name a user, or --default or --ceiling; one of them")
    limits = _limits(options) if act == "set" else Limits()
    if act == "set" and limits == Limits():
        raise Invalid("limits", "name a limit to set, or take all away with `onejob quota clear`")
    if user is not None:
        return lambda door: door.quota(user) if act == "show" else door.set_quota(user, limits)
    return lambda door: door.tenant_quota() if act == "show" else door.set_tenant_quota(half, limits)


def usage(options: Namespace) -> Callable[[QuotaDoor], UsageOut]:
    return lambda door: door.usage(options.user)


def reservations(options: Namespace) -> Callable[[QuotaDoor], ReservationsOut | SettledOut]:
    if options.act == "release":
        return lambda door: door.release(options.id)
    return lambda door: door.reservations(options.user)


def show(screen: Screen, answer: QuotaOut | TenantQuotaOut) -> str:
    if isinstance(answer, TenantQuotaOut):
        return "\n".join(
            [
                "default of users without their own",
                *pairs(screen, _rows(answer.default)),
                "ceiling over all users",
                *pairs(screen, _rows(answer.ceiling)),
            ]
        )
    head = f"limits of {screen.paint('bold', clean(answer.user))}"
    lines = [head, *pairs(screen, _rows(answer.limits))]
    return "\n".join([*lines, "what holds, with the tenant's", *pairs(screen, _rows(answer.effective))])


def show_usage(screen: Screen, answer: UsageOut) -> str:
    limits, money = answer.limits, answer.money
    spent = ", ".join(f"{amount} this {word}" for word, amount in _spent(answer))
    rows = [
        (
            "slots",
            f"{_of(answer.used, limits.max_concurrent)}: {answer.live} live, {answer.reserved} reserved",
        ),
        ("last hour", _of(answer.last_hour, limits.jobs_per_hour)),
        ("last day", _of(answer.last_day, limits.jobs_per_day)),
        ("money", f"{money.held} held, spent {spent}"),
        *(("limit", _cost(cost)) for cost in limits.cost_limits),
    ]
    return "\n".join([f"usage of {screen.paint('bold', clean(answer.user))}", *pairs(screen, rows)])


def show_reservations(screen: Screen, answer: ReservationsOut | SettledOut) -> str:
    if isinstance(answer, SettledOut):
        return f"{answer.state} {answer.id}"
    if not answer.reservations:
        return "no reservations"
    rows = [
        (one.id, one.state, screen.time(one.expires_at), one.job_id or "", clean(one.user))
        for one in answer.reservations
    ]
    return "\n".join(table(screen, ("RESERVATION", "STATE", "UNTIL", "JOB", "USER"), rows))


def _limits(options: Namespace) -> Limits:
    cost = None
    if options.cost is not None:
        cost = CostLimit.of(options.cost, options.period, options.action)
    return Limits(options.max_concurrent, options.per_hour, options.per_day, cost)


def _rows(limits: LimitsOut | EffectiveOut) -> list[tuple[str, str]]:
    counts = {
        "at a time": limits.max_concurrent,
        "per hour": limits.jobs_per_hour,
        "per day": limits.jobs_per_day,
    }
    rows = [(name, str(count)) for name, count in counts.items() if count is not None]
    rows += [("cost", _cost(cost)) for cost in _costs(limits)]
    return rows or [("limits", "none")]


def _costs(limits: LimitsOut | EffectiveOut) -> list[CostLimitOut]:
    if isinstance(limits, EffectiveOut):
        return limits.cost_limits
    return [] if limits.cost_limit is None else [limits.cost_limit]


def _cost(cost: CostLimitOut) -> str:
    return f"{cost.amount} a {cost.period}, then {cost.action}"


def _spent(answer: UsageOut) -> Iterator[tuple[str, Any]]:
    for word in ("day", "week", "month"):
        yield word, getattr(answer.money.spent, word)


def _of(used: int, limit: int | None) -> str:
    return f"{used} of {'any number' if limit is None else limit}"
