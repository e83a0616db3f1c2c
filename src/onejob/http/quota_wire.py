"""What travels about quotas: limits, what is used of them, reservations. Amounts are decimal numbers of units."""

from typing import Annotated, ClassVar

from msgspec import Meta

from onejob.core.invalid import Invalid
from onejob.core.limits import CostAction, CostLimit, Effective, Limits, Period, TenantLimits
from onejob.core.moment import utc
from onejob.core.money import MICRO
from onejob.core.receipt import SlotHeld
from onejob.core.states import SlotState
from onejob.core.usage import Quota, Slot, Usage

from .shapes import JOB_ID, Money, Name, SlotSeconds, Utc, Whole, micro_steps
from .wire import Asked, Body, WarningOut, warnings_out

_SLOT_SECONDS = 300


class MaybeAsked(Asked, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A request that says nothing when it has no body."""

    may_be_left_out: ClassVar[bool] = True


class CostLimitBody(Asked, frozen=True, rename="camel", forbid_unknown_fields=True):
    amount: Money
    period: Period
    action: CostAction = CostAction.BLOCK


class LimitsBody(Asked, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What is left out is not limited here."""

    max_concurrent: Whole | None = None
    jobs_per_hour: Whole | None = None
    jobs_per_day: Whole | None = None
    cost_limit: CostLimitBody | None = None


class TenantLimitsBody(Asked, frozen=True, rename="camel", forbid_unknown_fields=True):
    """For users without limits of their own, and above which nobody's reach."""

    default: LimitsBody = LimitsBody()
    ceiling: LimitsBody = LimitsBody()


class ReserveBody(MaybeAsked, frozen=True, rename="camel", forbid_unknown_fields=True):
    user: Name | None = None  # whoever asks, unless it may oversee others
    max_concurrent: Whole | None = None
    ttl_seconds: SlotSeconds = _SLOT_SECONDS


class ConsumeBody(MaybeAsked, frozen=True, rename="camel", forbid_unknown_fields=True):
    job_id: Annotated[str, Meta(extra_json_schema=JOB_ID)] | None = None


class RenewBody(MaybeAsked, frozen=True, rename="camel", forbid_unknown_fields=True):
    ttl_seconds: SlotSeconds = _SLOT_SECONDS


class CostLimitOut(Body, frozen=True, rename="camel"):
    amount: int | float
    period: Period
    action: CostAction


class LimitsOut(Body, frozen=True, rename="camel", omit_defaults=True):
    """What is left out is not limited here."""

    max_concurrent: int | None = None
    jobs_per_hour: int | None = None
    jobs_per_day: int | None = None
    cost_limit: CostLimitOut | None = None


class EffectiveOut(Body, frozen=True, rename="camel", omit_defaults=True):
    """What holds: the own limits, else the tenant's defaults, under its ceiling."""

    max_concurrent: int | None = None
    jobs_per_hour: int | None = None
    jobs_per_day: int | None = None
    cost_limits: list[CostLimitOut] = []  # noqa: RUF012 - never changed


class QuotaOut(Body, frozen=True, rename="camel"):
    request_id: str
    user: str
    limits: LimitsOut
    effective: EffectiveOut


class TenantQuotaOut(Body, frozen=True, rename="camel"):
    request_id: str
    default: LimitsOut
    ceiling: LimitsOut


class SpentOut(Body, frozen=True, rename="camel"):
    """In the day, week and month of the UTC calendar that it is."""

    day: int | float
    week: int | float
    month: int | float


class MoneyOut(Body, frozen=True, rename="camel"):
    held: int | float
    spent: SpentOut


class UsageOut(Body, frozen=True, rename="camel"):
    request_id: str
    user: str
    used: int  # live jobs and reservations together
    live: int
    reserved: int
    last_hour: int
    last_day: int
    money: MoneyOut
    limits: EffectiveOut


class ReservationOut(Body, frozen=True, rename="camel"):
    id: str
    user: str
    state: SlotState
    created_at: Utc
    expires_at: Utc
    job_id: str | None


class ReservationsOut(Body, frozen=True, rename="camel"):
    request_id: str
    reservations: list[ReservationOut]


class HeldOut(Body, frozen=True, rename="camel", omit_defaults=True):
    request_id: str
    id: str
    user: str
    expires_at: Utc
    warnings: list[WarningOut] = []  # noqa: RUF012 - never changed


class RenewedOut(Body, frozen=True, rename="camel"):
    request_id: str
    id: str
    expires_at: Utc


class SettledOut(Body, frozen=True, rename="camel"):
    request_id: str
    id: str
    state: SlotState


def whole(what: str, number: float | None) -> int | None:
    """In JSON 3.0 is the whole number 3."""
    if number is None or number == int(number):
        return None if number is None else int(number)
    raise Invalid(what, f"{what} is a whole number; leave it out for no limit")


def limits_from(body: LimitsBody) -> Limits:
    cost = body.cost_limit
    return Limits(
        whole("maxConcurrent", body.max_concurrent),
        whole("jobsPerHour", body.jobs_per_hour),
        whole("jobsPerDay", body.jobs_per_day),
        None if cost is None else CostLimit.of(micro_steps(cost.amount), cost.period, cost.action),
    )


def limits_out(limits: Limits) -> LimitsOut:
    cost = None if limits.cost_limit is None else _cost_out(limits.cost_limit)
    return LimitsOut(limits.max_concurrent, limits.jobs_per_hour, limits.jobs_per_day, cost)


def quota_out(quota: Quota, request_id: str) -> QuotaOut:
    return QuotaOut(request_id, quota.user, limits_out(quota.limits), effective_out(quota.effective))


def tenant_quota_out(limits: TenantLimits, request_id: str) -> TenantQuotaOut:
    return TenantQuotaOut(request_id, limits_out(limits.default), limits_out(limits.ceiling))


def effective_out(limits: Effective) -> EffectiveOut:
    costs = [_cost_out(cost) for cost in limits.costs]
    return EffectiveOut(limits.max_concurrent, limits.jobs_per_hour, limits.jobs_per_day, costs)


def usage_out(usage: Usage, request_id: str) -> UsageOut:
    spent = SpentOut(*(_amount(int(usage.spent[period] * MICRO)) for period in Period))
    return UsageOut(
        request_id,
        usage.user,
        usage.used,
        usage.live,
        usage.reserved,
        usage.last_hour,
        usage.last_day,
        MoneyOut(_amount(int(usage.money_held * MICRO)), spent),
        effective_out(usage.limits),
    )


def reservation_out(slot: Slot) -> ReservationOut:
    return ReservationOut(slot.id, slot.user, slot.state, slot.created_at, slot.expires_at, slot.job_id)


def held_out(held: SlotHeld, user: str, request_id: str) -> HeldOut:
    warnings = warnings_out(held.cautions)
    return HeldOut(request_id, held.reservation, user, utc(held.expires_at), warnings)


def _cost_out(limit: CostLimit) -> CostLimitOut:
    return CostLimitOut(_amount(limit.amount), limit.period, limit.action)


def _amount(micro: int) -> int | float:
    # Below 2^53 a double has every micro-unit, and is written as short as it was meant.
    return micro / MICRO if micro % MICRO else micro // MICRO
