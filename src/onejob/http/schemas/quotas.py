"""Bodies about quotas: limits, usage and slot reservations; amounts are decimal numbers of units."""

from typing import Annotated

from msgspec import Meta

from onejob.core.limits import MICROS_PER_UNIT, CostAction, CostLimit, EffectiveLimits, Limits, Period, TenantLimits
from onejob.core.replies import SlotHeld
from onejob.core.states import SlotState
from onejob.core.timestamps import to_utc
from onejob.core.views import Quota, SlotReservation, UsageView

from .jobs import WarningOut, warnings_out
from .types import (
    JOB_ID,
    LimitCount,
    Money,
    Name,
    OptionalRequestBody,
    RequestBody,
    ResponseBody,
    SlotTtlSeconds,
    UtcTimestamp,
    round_to_micro,
    to_optional_integer,
)

_SLOT_TTL_SECONDS_DEFAULT = 300


class CostLimitBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    amount: Money
    period: Period
    action: CostAction = CostAction.BLOCK


class LimitsBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A member that is left out sets no limit."""

    max_concurrent: LimitCount | None = None
    jobs_per_hour: LimitCount | None = None
    jobs_per_day: LimitCount | None = None
    cost_limit: CostLimitBody | None = None


class TenantLimitsBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    """`default` holds for users without limits of their own; `ceiling` bounds the limits of every user."""

    default: LimitsBody = LimitsBody()
    ceiling: LimitsBody = LimitsBody()


class ReserveBody(OptionalRequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    user: Name | None = None  # default: the caller; another user needs the permission to oversee
    max_concurrent: LimitCount | None = None
    ttl_seconds: SlotTtlSeconds = _SLOT_TTL_SECONDS_DEFAULT


class ConsumeBody(OptionalRequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    job_id: Annotated[str, Meta(extra_json_schema=JOB_ID)] | None = None


class RenewBody(OptionalRequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    ttl_seconds: SlotTtlSeconds = _SLOT_TTL_SECONDS_DEFAULT


class CostLimitOut(ResponseBody, frozen=True, rename="camel"):
    amount: int | float
    period: Period
    action: CostAction


class LimitsOut(ResponseBody, frozen=True, rename="camel", omit_defaults=True):
    """A member that is left out sets no limit."""

    max_concurrent: int | None = None
    jobs_per_hour: int | None = None
    jobs_per_day: int | None = None
    cost_limit: CostLimitOut | None = None


class EffectiveLimitsOut(ResponseBody, frozen=True, rename="camel", omit_defaults=True):
    """The limits in force: the user's own or else the tenant's defaults, bounded by its ceiling."""

    max_concurrent: int | None = None
    jobs_per_hour: int | None = None
    jobs_per_day: int | None = None
    cost_limits: list[CostLimitOut] = []  # noqa: RUF012 - never changed


class QuotaOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    user: str
    limits: LimitsOut
    effective: EffectiveLimitsOut


class TenantQuotaOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    default: LimitsOut
    ceiling: LimitsOut


class SpentOut(ResponseBody, frozen=True, rename="camel"):
    """Spent in the current day, week and month of the UTC calendar."""

    day: int | float
    week: int | float
    month: int | float


class MoneyOut(ResponseBody, frozen=True, rename="camel"):
    held: int | float
    spent: SpentOut


class UsageOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    user: str
    used: int  # live jobs and reservations together
    live: int
    reserved: int
    last_hour: int
    last_day: int
    money: MoneyOut
    limits: EffectiveLimitsOut


class ReservationOut(ResponseBody, frozen=True, rename="camel"):
    id: str
    user: str
    state: SlotState
    created_at: UtcTimestamp
    expires_at: UtcTimestamp
    job_id: str | None


class ReservationsOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    reservations: list[ReservationOut]


class ReservationHeldOut(ResponseBody, frozen=True, rename="camel", omit_defaults=True):
    request_id: str
    id: str
    user: str
    expires_at: UtcTimestamp
    warnings: list[WarningOut] = []  # noqa: RUF012 - never changed


class ReservationRenewedOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    id: str
    expires_at: UtcTimestamp


class ReservationSettledOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    id: str
    state: SlotState
    was_known: bool = True  # False: there was no such slot to release, or it had expired


def limits_from(body: LimitsBody) -> Limits:
    cost = body.cost_limit
    return Limits(
        to_optional_integer("maxConcurrent", body.max_concurrent),
        to_optional_integer("jobsPerHour", body.jobs_per_hour),
        to_optional_integer("jobsPerDay", body.jobs_per_day),
        None if cost is None else CostLimit.of(round_to_micro(cost.amount), cost.period, cost.action),
    )


def limits_out(limits: Limits) -> LimitsOut:
    cost = None if limits.cost_limit is None else _cost_limit_out(limits.cost_limit)
    return LimitsOut(limits.max_concurrent, limits.jobs_per_hour, limits.jobs_per_day, cost)


def quota_out(quota: Quota, request_id: str) -> QuotaOut:
    return QuotaOut(request_id, quota.user, limits_out(quota.limits), effective_limits_out(quota.effective))


def tenant_quota_out(limits: TenantLimits, request_id: str) -> TenantQuotaOut:
    return TenantQuotaOut(request_id, limits_out(limits.default), limits_out(limits.ceiling))


def effective_limits_out(limits: EffectiveLimits) -> EffectiveLimitsOut:
    costs = [_cost_limit_out(cost) for cost in limits.cost_limits]
    return EffectiveLimitsOut(limits.max_concurrent, limits.jobs_per_hour, limits.jobs_per_day, costs)


def usage_out(usage: UsageView, request_id: str) -> UsageOut:
    spent = SpentOut(*(_amount(int(usage.spent[period] * MICROS_PER_UNIT)) for period in Period))
    return UsageOut(
        request_id,
        usage.user,
        usage.used,
        usage.live,
        usage.reserved,
        usage.last_hour,
        usage.last_day,
        MoneyOut(_amount(int(usage.money_held * MICROS_PER_UNIT)), spent),
        effective_limits_out(usage.limits),
    )


def reservation_out(slot: SlotReservation) -> ReservationOut:
    return ReservationOut(slot.id, slot.user, slot.state, slot.created_at, slot.expires_at, slot.job_id)


def reservation_held_out(reply: SlotHeld, user: str, request_id: str) -> ReservationHeldOut:
    warnings = warnings_out(reply.warnings)
    return ReservationHeldOut(request_id, reply.reservation, user, to_utc(reply.expires_at), warnings)


def _cost_limit_out(limit: CostLimit) -> CostLimitOut:
    return CostLimitOut(_amount(limit.amount), limit.period, limit.action)


def _amount(micro: int) -> int | float:
    # Below 2^53 a double represents every micro-unit exactly, so JSON shows the amount as it was set.
    return micro / MICROS_PER_UNIT if micro % MICROS_PER_UNIT else micro // MICROS_PER_UNIT
