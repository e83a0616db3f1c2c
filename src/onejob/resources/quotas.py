"""Quotas: limits, usage and slot reservations; amounts are decimal numbers of units."""

from collections.abc import Sequence

from onejob.core.limits import CostAction, Period
from onejob.core.replies import LimitWarning
from onejob.core.states import SlotState

from . import Resource, UtcTimestamp


class CostLimitView(Resource, frozen=True):
    amount: int | float
    period: Period
    action: CostAction


class LimitsView(Resource, frozen=True, omit_defaults=True):
    """A member that is left out sets no limit."""

    max_concurrent: int | None = None
    jobs_per_hour: int | None = None
    jobs_per_day: int | None = None
    cost_limit: CostLimitView | None = None


class EffectiveLimitsView(Resource, frozen=True, omit_defaults=True):
    """The limits in force: the user's own or else the tenant's defaults, bounded by its ceiling."""

    max_concurrent: int | None = None
    jobs_per_hour: int | None = None
    jobs_per_day: int | None = None
    cost_limits: Sequence[CostLimitView] = ()


class QuotaResponse(Resource, frozen=True):
    user: str
    limits: LimitsView
    effective: EffectiveLimitsView


class TenantQuotaResponse(Resource, frozen=True):
    default: LimitsView
    ceiling: LimitsView


class SpentView(Resource, frozen=True):
    """Spent in the current day, week and month of the UTC calendar."""

    day: int | float
    week: int | float
    month: int | float

    def __getitem__(self, period: str) -> int | float:
        amount: int | float = getattr(self, Period(period))
        return amount


class MoneyView(Resource, frozen=True):
    held: int | float
    spent: SpentView


class UsageResponse(Resource, frozen=True):
    user: str
    used: int  # live jobs and reservations together
    live: int
    reserved: int
    last_hour: int
    last_day: int
    money: MoneyView
    limits: EffectiveLimitsView


class SlotReservation(Resource, frozen=True):
    """A quota slot with a deadline. That of a job being prepared has the job's id, and ends with its lease."""

    id: str
    user: str
    state: SlotState
    created_at: UtcTimestamp
    expires_at: UtcTimestamp
    job_id: str | None


class SlotReservations(Resource, frozen=True):
    reservations: Sequence[SlotReservation]


class ReservationHeld(Resource, frozen=True, omit_defaults=True):
    id: str
    user: str
    expires_at: UtcTimestamp
    warnings: Sequence[LimitWarning] = ()


class ReservationRenewed(Resource, frozen=True):
    id: str
    expires_at: UtcTimestamp


class ReservationSettled(Resource, frozen=True):
    id: str
    state: SlotState
    was_known: bool = True  # False: there was no such slot to release, or it had expired
