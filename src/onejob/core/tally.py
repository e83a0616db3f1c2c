"""The arithmetic of a tally: what a user holds, reserved, submitted and spent. No limits here, only counts.

A reservation that has expired counts nowhere, swept or not. Counters slide: the hour is the running minute and the
60 before it, the day the running hour and the 24 before it, so that nothing leaves too early. Money is counted by
the UTC day, week and month.
"""

from collections.abc import Mapping
from typing import NamedTuple

from .facts import RESERVATIONS_MAX, Reservation, Usage, next_version
from .limits import Period
from .moment import to_utc
from .states import SlotState

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
MINUTE_BUCKETS = 60 + 1
HOUR_BUCKETS = 24 + 1
RECONCILE_DELAY_MS = MINUTE_MS  # after a change, upkeep counts again

_ACTIVE = SlotState.ACTIVE
_DAYS_BEFORE_MONDAY = 3  # the first of January 1970 was a Thursday


class UsageCounts(NamedTuple):
    """What counts now."""

    live: int
    reserved: int
    last_hour: int
    last_day: int
    money_held: int
    spent: Mapping[Period, int]

    @property
    def used(self) -> int:
        return self.live + self.reserved


def new_usage(id: bytes, tenant: str, user: str, now: int) -> Usage:
    """A tally that is not stored yet: its first change makes it version 1."""
    return Usage(id, tenant, user, 0, now, version=0)


def updated_usage(usage: Usage, now: int, **changes: object) -> Usage:
    """The next version of a tally, which upkeep will look at in a while."""
    return next_version(usage, now, due_at=usage.due_at or now + RECONCILE_DELAY_MS, **changes)


def current_counts(usage: Usage, now: int) -> UsageCounts:
    holding = [one for one in usage.reservations.values() if is_active(one, now)]
    return UsageCounts(
        usage.live,
        len(holding),
        sum(_shifted_counters(usage.minutes, MINUTE_BUCKETS, _elapsed_buckets(usage, now, MINUTE_MS))),
        sum(_shifted_counters(usage.hours, HOUR_BUCKETS, _elapsed_buckets(usage, now, HOUR_MS))),
        usage.cost_held + sum(one.cost for one in holding),
        dict(zip(Period, spent_now(usage, now), strict=True)),
    )


def is_active(reservation: Reservation | None, now: int) -> bool:
    """Whether it counts. Like a record, it is alive while now <= expires_at."""
    return reservation is not None and reservation.state is _ACTIVE and now <= reservation.expires_at


def find_reservation(usage: Usage, id: str, now: int) -> Reservation | None:
    """A reservation that still says something; an expired one is as good as gone, swept or not."""
    one = usage.reservations.get(id)
    return one if one is not None and now <= one.expires_at else None


def unexpired_reservations(usage: Usage, now: int) -> dict[str, Reservation]:
    """The reservations that still say something: active ones, and settled ones until they would have expired."""
    return {id: one for id, one in usage.reservations.items() if now <= one.expires_at}


def make_room(reservations: dict[str, Reservation]) -> dict[str, Reservation] | None:
    """Room for one more: the oldest settled one leaves; None when a thousand are active."""
    if len(reservations) < RESERVATIONS_MAX:
        return reservations
    settled = [(one.created_at, id) for id, one in reservations.items() if one.state is not _ACTIVE]
    if not settled:
        return None
    _, oldest = min(settled)
    return {id: one for id, one in reservations.items() if id != oldest}


def counter_changes(usage: Usage, now: int, jobs: int) -> dict[str, object]:
    """The changes that count some more submissions."""
    minutes = _shifted_counters(usage.minutes, MINUTE_BUCKETS, _elapsed_buckets(usage, now, MINUTE_MS))
    hours = _shifted_counters(usage.hours, HOUR_BUCKETS, _elapsed_buckets(usage, now, HOUR_MS))
    return {
        "minutes": (*minutes[:-1], minutes[-1] + jobs),
        "hours": (*hours[:-1], hours[-1] + jobs),
        "counted_at": now,
    }


def hour_wait_ms(usage: Usage, now: int, excess: int) -> int:
    """Milliseconds until that many submissions are no longer of the last hour."""
    return _wait_ms(
        _shifted_counters(usage.minutes, MINUTE_BUCKETS, _elapsed_buckets(usage, now, MINUTE_MS)),
        MINUTE_MS,
        now,
        excess,
    )


def day_wait_ms(usage: Usage, now: int, excess: int) -> int:
    return _wait_ms(
        _shifted_counters(usage.hours, HOUR_BUCKETS, _elapsed_buckets(usage, now, HOUR_MS)),
        HOUR_MS,
        now,
        excess,
    )


def spent_now(usage: Usage, now: int) -> tuple[int, int, int]:
    """What was spent in the day, week and month that contain now."""
    before, today = _period_keys(usage.spent_at), _period_keys(now)
    day, week, month = (
        amount if one == other else 0 for amount, one, other in zip(usage.spent, before, today, strict=True)
    )
    return day, week, month


def spending_changes(usage: Usage, now: int, amount: int) -> dict[str, object]:
    """The changes that count some more money as spent."""
    day, week, month = spent_now(usage, now)
    return {"spent": (day + amount, week + amount, month + amount), "spent_at": now}


def is_idle(usage: Usage, now: int) -> bool:
    """Whether it says nothing any more, so that it may go."""
    count = current_counts(usage, now)
    quiet = not (
        usage.limits or count.used or count.last_day or count.money_held or any(count.spent.values())
    )
    return quiet and not unexpired_reservations(usage, now)


def _period_keys(now: int) -> tuple[int, int, tuple[int, int]]:
    day = now // DAY_MS
    moment = to_utc(now)
    return day, (day + _DAYS_BEFORE_MONDAY) // 7, (moment.year, moment.month)


def _elapsed_buckets(usage: Usage, now: int, bucket_ms: int) -> int:
    return now // bucket_ms - usage.counted_at // bucket_ms


def _shifted_counters(counters: tuple[int, ...], size: int, steps: int) -> tuple[int, ...]:
    """Counters as they stand some steps later: the oldest first, the running one last."""
    if not counters or steps >= size:
        return (0,) * size
    whole = (0,) * (size - len(counters)) + counters
    return whole[steps:] + (0,) * steps if steps > 0 else whole


def _wait_ms(counters: tuple[int, ...], bucket_ms: int, now: int, excess: int) -> int:
    gone = 0
    for index, count in enumerate(counters):
        gone += count
        if gone >= excess:
            return (now // bucket_ms + 1 + index) * bucket_ms - now
    return len(counters) * bucket_ms
