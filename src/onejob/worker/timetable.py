"""When a schedule ticks: a cron expression in a time zone, or an interval.

Ticks are moments on the ledger's clock, in milliseconds. They depend on the timetable alone, so that all workers compute the same
ones: an interval counts from 1970 in UTC, and a cron expression is evaluated as Debian's cron does. At a jump of the clock
that means: a time that is skipped ticks right after the jump, and one that comes twice ticks once; an expression
whose minute or hour begins with `*` ticks as time passes.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from itertools import islice, takewhile
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from onejob.core.timestamps import to_utc
from onejob.errors import Invalid

DAY_MS = 24 * 3600 * 1000
WINDOW_MS_MIN = DAY_MS
WINDOW_MS_MAX = 365 * DAY_MS
_CRON_FIELDS = 5
_UTC = "UTC"
_DAY, _SECOND = timedelta(days=1), timedelta(seconds=1)


class Timetable(Protocol):
    @property
    def text(self) -> str:
        """The same text means the same ticks."""

    def after(self, moment: int) -> Iterator[int]:
        """All ticks after this moment, in order."""


class Interval:
    def __init__(self, every: timedelta) -> None:
        self._every_ms = every // timedelta(milliseconds=1)
        if not 1000 <= self._every_ms <= WINDOW_MS_MAX or self._every_ms % 1000:
            raise Invalid("every", "an interval is a whole number of seconds, from 1 second to 365 days; choose one")
        self.text = f"every {every}"

    def after(self, moment: int) -> Iterator[int]:
        tick = (moment // self._every_ms + 1) * self._every_ms
        while True:
            yield tick
            tick += self._every_ms


class Cron:
    def __init__(self, expression: str, zone: str = _UTC) -> None:
        self._expression = " ".join(expression.split())
        self._zone = _load_zone(zone)
        if len(self._expression.split()) != _CRON_FIELDS:
            message = "a cron expression has five fields: minute, hour, day of month, month, day of week; write them"
            raise Invalid("every", message)
        self._iterate = _load_cron(self._expression)
        minute, hour, *_ = self._expression.split()
        self._ticks_as_time_passes = minute.startswith("*") or hour.startswith("*")
        if next(self.after(0), None) is None:
            raise Invalid("every", f"{self._expression!r} never ticks; write another expression")
        self.text = f"{self._expression} {zone}"

    def after(self, moment: int) -> Iterator[int]:
        start = to_utc(moment).replace(microsecond=0)
        found = self._in_pieces(start) if self._ticks_as_time_passes else self._iterate(start.astimezone(self._zone))
        ticks = (_to_ms(tick) for tick in found)
        # Where the clock is set back, a local time may be found again that has passed already.
        return (tick for tick in ticks if tick > moment)

    def _in_pieces(self, start: datetime) -> Iterator[datetime]:
        """The ticks after a moment in UTC, each by the offset from UTC that the zone has then."""
        offset, checked = _offset_at(start, self._zone), start
        while True:
            for tick in self._iterate(start.astimezone(timezone(offset))):
                jump = _next_jump(checked, tick.astimezone(UTC), self._zone)
                if jump is not None:
                    break
                yield tick
                checked = tick.astimezone(UTC)
            else:
                return
            start, checked = jump - _SECOND, jump  # the moment of the jump itself may be a tick
            offset = _offset_at(jump, self._zone)


def build_timetable(every: str | timedelta, zone: str | None) -> Timetable:
    if isinstance(every, timedelta):
        if zone is not None:
            raise Invalid("zone", "an interval has no time zone; leave it out, or write a cron expression")
        return Interval(every)
    if not isinstance(every, str):
        raise Invalid("every", 'a schedule is a cron expression such as "0 3 * * *", or a timedelta; give one')
    return Cron(every, zone or _UTC)


def last_ticks(timetable: Timetable, *, after: int, until: int, count: int) -> list[int]:
    """The latest ticks, at most `count`, after the first moment and not after the second, in order."""
    following = list(islice(timetable.after(until), 2))
    span = max(following[-1] - until, 1) * (count + 1)
    while True:
        start = max(after, until - span)
        ticks = list(takewhile(lambda tick: tick <= until, timetable.after(start)))
        if len(ticks) >= count or start == after:
            return ticks[-count:] if count else []
        span *= 4


def next_tick(timetable: Timetable, after: int) -> int:
    return next(timetable.after(after))


def tick_window_ms(timetable: Timetable, tick: int, catch_up: int) -> int:
    """How long the key of a tick lives: as long as a worker may still submit it, at least a day, at most a year."""
    last = list(islice(timetable.after(tick), catch_up + 2))[-1]
    return min(max(last - tick, WINDOW_MS_MIN), WINDOW_MS_MAX)


def _load_zone(name: str) -> tzinfo:
    try:
        return UTC if name == _UTC else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        message = f"there is no time zone {name!r}; write one such as Europe/Berlin, or install tzdata"
        raise Invalid("zone", message) from None


def _load_cron(expression: str) -> Callable[[datetime], Iterator[datetime]]:
    try:
        from cronsim import CronSim, CronSimError  # an extra, which intervals do not need
    except ImportError:
        raise Invalid("every", "cron expressions need the package cronsim; install onejob[schedules]") from None

    def iterate(start: datetime) -> Iterator[datetime]:
        return CronSim(expression, start)

    try:
        iterate(datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise Invalid("every", f"{expression!r} is not a cron expression ({error}); correct it") from None
    return iterate


def _offset_at(moment: datetime, zone: tzinfo) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta(0)


def _next_jump(start: datetime, end: datetime, zone: tzinfo) -> datetime | None:
    """The first moment after the start and not after the end at which the zone's offset from UTC is another."""
    offset = _offset_at(start, zone)
    while start < end:
        later = min(start + _DAY, end)
        if _offset_at(later, zone) == offset:
            start = later
            continue
        while later - start > _SECOND:
            middle = start + (later - start) // _SECOND // 2 * _SECOND
            start, later = (middle, later) if _offset_at(middle, zone) == offset else (start, middle)
        return later
    return None


def _to_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
