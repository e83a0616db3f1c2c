"""What a user holds and may hold, as it looks from outside."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal

from msgspec import Struct

from .charging import limits_in
from .facts import Reservation
from .limits import Effective, Limits, Period, TenantLimits, limits_of, tenant_limits_of
from .moment import utc
from .money import units_of
from .receipt import TallyFound
from .states import SlotState
from .step import Facts
from .tally import blank, kept, standing


class Quota(Struct, frozen=True):
    """A user's own limits, the tenant's, and what follows from both."""

    user: str
    limits: Limits
    tenant: TenantLimits
    effective: Effective


class Usage(Struct, frozen=True):
    """What counts now. Money is in units."""

    user: str
    live: int
    reserved: int
    last_hour: int
    last_day: int
    money_held: Decimal
    spent: Mapping[Period, Decimal]
    limits: Effective

    @property
    def used(self) -> int:
        return self.live + self.reserved


class Slot(Struct, frozen=True):
    """A reservation. One that belongs to a job being prepared bears the job's id, and ends with it."""

    id: str
    user: str
    state: SlotState
    created_at: datetime
    expires_at: datetime
    job_id: str | None


def quota_of(user: str, found: TallyFound) -> Quota:
    own = b"" if found.tally is None else found.tally.limits
    tenants = b"" if found.policy is None else found.policy.body
    return Quota(user, limits_of(own), tenant_limits_of(tenants), _effective(found))


def usage_of(user: str, found: TallyFound) -> Usage:
    tally = found.tally or blank(b"", "", user, found.at)
    count = standing(tally, found.at)
    return Usage(
        user,
        count.live,
        count.reserved,
        count.last_hour,
        count.last_day,
        units_of(count.money_held),
        {period: units_of(amount) for period, amount in count.spent.items()},
        _effective(found),
    )


def slots_of(user: str, found: TallyFound) -> Sequence[Slot]:
    """The reservations that still say something, oldest first; an expired one says nothing."""
    if found.tally is None:
        return []
    held = sorted(kept(found.tally, found.at).items(), key=lambda item: (item[1].created_at, item[0]))
    return [slot_of(id, user, one) for id, one in held]


def slot_of(id: str, user: str, one: Reservation) -> Slot:
    return Slot(id, user, one.state, utc(one.created_at), utc(one.expires_at), one.job_id or None)


def _effective(found: TallyFound) -> Effective:
    return limits_in(Facts(tally=found.tally, policy=found.policy))
