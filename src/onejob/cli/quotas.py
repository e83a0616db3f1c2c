"""The commands `quota`, `usage` and `reservations`: what they ask for, and their answers as text for people."""

from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

from onejob.core.invalid import Invalid
from onejob.core.limits import CostLimit, Limits
from onejob.http.quota_wire import (
    CostLimitOut,
    EffectiveLimitsOut,
    LimitsOut,
    QuotaOut,
    ReservationSettledOut,
    ReservationsOut,
    TenantQuotaOut,
    UsageOut,
)

from .quota_doors import QuotaBackend
from .screen import Screen, sanitize
from .show import field_lines, table_lines


def quota(options: Namespace) -> Callable[[QuotaBackend], QuotaOut | TenantQuotaOut]:
    user, half, act = options.user, options.half, options.act
    if (user is None) == (half is None):
        raise Invalid("user", "name a user, or --default or --ceiling; one of them")
    limits = _parse_limits(options) if act == "set" else Limits()
    if act == "set" and limits == Limits():
        raise Invalid("limits", "name a limit to set, or take all away with `onejob quota clear`")
    if user is not None:
        return lambda door: door.quota(user) if act == "show" else door.set_quota(user, limits)
    return lambda door: door.tenant_quota() if act == "show" else door.set_tenant_quota(half, limits)


def usage(options: Namespace) -> Callable[[QuotaBackend], UsageOut]:
    return lambda door: door.usage(options.user)


def reservations(options: Namespace) -> Callable[[QuotaBackend], ReservationsOut | ReservationSettledOut]:
    if options.act == "release":
        return lambda door: door.release(options.id)
    return lambda door: door.reservations(options.user)


def render_quota(screen: Screen, answer: QuotaOut | TenantQuotaOut) -> str:
    if isinstance(answer, TenantQuotaOut):
        return "\n".join(
            [
                "default of users without their own",
                *field_lines(screen, _limit_rows(answer.default)),
                "ceiling over all users",
                *field_lines(screen, _limit_rows(answer.ceiling)),
            ]
        )
    head = f"limits of {screen.paint('bold', sanitize(answer.user))}"
    lines = [head, *field_lines(screen, _limit_rows(answer.limits))]
    return "\n".join(
        [*lines, "what holds, with the tenant's", *field_lines(screen, _limit_rows(answer.effective))]
    )


def render_usage(screen: Screen, answer: UsageOut) -> str:
    limits, money = answer.limits, answer.money
    spent = ", ".join(f"{amount} this {word}" for word, amount in _spent_by_period(answer))
    rows = [
        (
            "slots",
            f"{_format_used(answer.used, limits.max_concurrent)}: {answer.live} live, {answer.reserved} reserved",
        ),
        ("last hour", _format_used(answer.last_hour, limits.jobs_per_hour)),
        ("last day", _format_used(answer.last_day, limits.jobs_per_day)),
        ("money", f"{money.held} held, spent {spent}"),
        *(("limit", _format_cost_limit(cost)) for cost in limits.cost_limits),
    ]
    return "\n".join([f"usage of {screen.paint('bold', sanitize(answer.user))}", *field_lines(screen, rows)])


def render_reservations(screen: Screen, answer: ReservationsOut | ReservationSettledOut) -> str:
    if isinstance(answer, ReservationSettledOut):
        return f"{answer.state} {answer.id}"
    if not answer.reservations:
        return "no reservations"
    rows = [
        (one.id, one.state, screen.time(one.expires_at), one.job_id or "", sanitize(one.user))
        for one in answer.reservations
    ]
    return "\n".join(table_lines(screen, ("RESERVATION", "STATE", "UNTIL", "JOB", "USER"), rows))


def _parse_limits(options: Namespace) -> Limits:
    cost = None
    if options.cost is not None:
        cost = CostLimit.of(options.cost, options.period, options.action)
    return Limits(options.max_concurrent, options.per_hour, options.per_day, cost)


def _limit_rows(limits: LimitsOut | EffectiveLimitsOut) -> list[tuple[str, str]]:
    counts = {
        "at a time": limits.max_concurrent,
        "per hour": limits.jobs_per_hour,
        "per day": limits.jobs_per_day,
    }
    rows = [(name, str(count)) for name, count in counts.items() if count is not None]
    rows += [("cost", _format_cost_limit(cost)) for cost in _cost_limits(limits)]
    return rows or [("limits", "none")]


def _cost_limits(limits: LimitsOut | EffectiveLimitsOut) -> list[CostLimitOut]:
    if isinstance(limits, EffectiveLimitsOut):
        return limits.cost_limits
    return [] if limits.cost_limit is None else [limits.cost_limit]


def _format_cost_limit(cost: CostLimitOut) -> str:
    return f"{cost.amount} a {cost.period}, then {cost.action}"


def _spent_by_period(answer: UsageOut) -> Iterator[tuple[str, Any]]:
    for word in ("day", "week", "month"):
        yield word, getattr(answer.money.spent, word)


def _format_used(used: int, limit: int | None) -> str:
    return f"{used} of {'any number' if limit is None else limit}"
