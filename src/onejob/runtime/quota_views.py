"""Quotas and usage as callers see them: in exact amounts for the library, as JSON numbers of units for HTTP and the CLI."""

from collections.abc import Mapping, Sequence
from decimal import Decimal

from msgspec import Struct

from onejob.core.command import Facts
from onejob.core.facts import Reservation
from onejob.core.limits import (
    MICROS_PER_UNIT,
    CostLimit,
    EffectiveLimits,
    Limits,
    Period,
    TenantLimits,
    decode_limits,
    decode_tenant_limits,
    to_units,
)
from onejob.core.quota import current_counts, limits_from_facts, new_usage, unexpired_reservations
from onejob.core.replies import UsageFound
from onejob.core.timestamps import to_utc
from onejob.resources.quotas import (
    CostLimitView,
    EffectiveLimitsView,
    LimitsView,
    MoneyView,
    QuotaResponse,
    SlotReservation,
    SpentView,
    TenantQuotaResponse,
    UsageResponse,
)


class Quota(Struct, frozen=True):
    """A user's own limits, the tenant's, and the ones in force."""

    user: str
    limits: Limits
    tenant: TenantLimits
    effective: EffectiveLimits


class UsageView(Struct, frozen=True):
    """What a user has in use, submitted and spent. Money is in units."""

    user: str
    live: int
    reserved: int
    last_hour: int
    last_day: int
    money_held: Decimal
    spent: Mapping[Period, Decimal]
    limits: EffectiveLimits

    @property
    def used(self) -> int:
        return self.live + self.reserved


def to_quota(user: str, reply: UsageFound) -> Quota:
    user_limits = b"" if reply.usage is None else reply.usage.limits
    tenant_limits = b"" if reply.policy is None else reply.policy.body
    return Quota(user, decode_limits(user_limits), decode_tenant_limits(tenant_limits), _limits_from_reply(reply))


def to_usage_view(user: str, reply: UsageFound) -> UsageView:
    counts = current_counts(reply.usage or new_usage(b"", "", user, reply.at), reply.at)
    return UsageView(
        user,
        counts.live,
        counts.reserved,
        counts.last_hour,
        counts.last_day,
        to_units(counts.money_held),
        {period: to_units(amount) for period, amount in counts.spent.items()},
        _limits_from_reply(reply),
    )


def to_slot_reservations(user: str, reply: UsageFound) -> Sequence[SlotReservation]:
    """The reservations that have not expired, oldest first."""
    if reply.usage is None:
        return []
    reservations = unexpired_reservations(reply.usage, reply.at).items()
    oldest_first = sorted(reservations, key=lambda item: (item[1].created_at, item[0]))
    return [to_slot_reservation(id, user, reservation) for id, reservation in oldest_first]


def to_slot_reservation(id: str, user: str, reservation: Reservation) -> SlotReservation:
    return SlotReservation(
        id,
        user,
        reservation.state,
        to_utc(reservation.created_at),
        to_utc(reservation.expires_at),
        reservation.job_id or None,
    )


def _limits_from_reply(reply: UsageFound) -> EffectiveLimits:
    return limits_from_facts(Facts(usage=reply.usage, policy=reply.policy))


def to_quota_response(quota: Quota) -> QuotaResponse:
    return QuotaResponse(quota.user, to_limits_view(quota.limits), _to_effective_limits_view(quota.effective))


def to_tenant_quota_response(limits: TenantLimits) -> TenantQuotaResponse:
    return TenantQuotaResponse(to_limits_view(limits.default), to_limits_view(limits.ceiling))


def to_usage_response(usage: UsageView) -> UsageResponse:
    spent = SpentView(*(_to_number(int(usage.spent[period] * MICROS_PER_UNIT)) for period in Period))
    return UsageResponse(
        usage.user,
        usage.used,
        usage.live,
        usage.reserved,
        usage.last_hour,
        usage.last_day,
        MoneyView(_to_number(int(usage.money_held * MICROS_PER_UNIT)), spent),
        _to_effective_limits_view(usage.limits),
    )


def to_limits_view(limits: Limits) -> LimitsView:
    cost = None if limits.cost_limit is None else _to_cost_limit_view(limits.cost_limit)
    return LimitsView(limits.max_concurrent, limits.jobs_per_hour, limits.jobs_per_day, cost)


def _to_effective_limits_view(limits: EffectiveLimits) -> EffectiveLimitsView:
    costs = tuple(_to_cost_limit_view(cost) for cost in limits.cost_limits)
    return EffectiveLimitsView(limits.max_concurrent, limits.jobs_per_hour, limits.jobs_per_day, costs)


def _to_cost_limit_view(limit: CostLimit) -> CostLimitView:
    return CostLimitView(_to_number(limit.amount), limit.period, limit.action)


def _to_number(micros: int) -> int | float:
    # Below 2^53 a double represents every micro-unit exactly, so JSON shows the amount as it was set.
    return micros / MICROS_PER_UNIT if micros % MICROS_PER_UNIT else micros // MICROS_PER_UNIT
