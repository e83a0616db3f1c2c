"""What a user holds and may hold, as it looks from outside."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal

from msgspec import Struct

from .charging import limits_from_facts
from .facts import Reservation
from .limits import EffectiveLimits, Limits, Period, TenantLimits, decode_limits, decode_tenant_limits
from .moment import to_utc
from .money import to_units
from .receipt import UsageFound
from .states import SlotState
from .step import Facts
from .tally import current_counts, new_usage, unexpired_reservations


class Quota(Struct, frozen=True):
    """A user's own limits, the tenant's, and what follows from both."""

    user: str
    limits: Limits
    tenant: TenantLimits
    effective: EffectiveLimits


class UsageView(Struct, frozen=True):
    """What counts now. Money is in units."""

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


class SlotReservation(Struct, frozen=True):
    """A reservation. One that belongs to a job being prepared bears the job's id, and ends with it."""

    id: str
    user: str
    state: SlotState
    created_at: datetime
    expires_at: datetime
    job_id: str | None


def to_quota(user: str, reply: UsageFound) -> Quota:
    own = b"" if reply.usage is None else reply.usage.limits
    tenants = b"" if reply.policy is None else reply.policy.body
    return Quota(user, decode_limits(own), decode_tenant_limits(tenants), _limits_from_reply(reply))


def to_usage_view(user: str, reply: UsageFound) -> UsageView:
    tally = reply.usage or new_usage(b"", "", user, reply.at)
    count = current_counts(tally, reply.at)
    return UsageView(
        user,
        count.live,
        count.reserved,
        count.last_hour,
        count.last_day,
        to_units(count.money_held),
        {period: to_units(amount) for period, amount in count.spent.items()},
        _limits_from_reply(reply),
    )


def to_slot_reservations(user: str, reply: UsageFound) -> Sequence[SlotReservation]:
    """The reservations that still say something, oldest first; an expired one says nothing."""
    if reply.usage is None:
        return []
    held = sorted(
        unexpired_reservations(reply.usage, reply.at).items(), key=lambda item: (item[1].created_at, item[0])
    )
    return [to_slot_reservation(id, user, one) for id, one in held]


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
