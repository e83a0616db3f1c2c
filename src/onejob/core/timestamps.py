"""Times and durations: integer milliseconds inside, UTC datetimes and timedeltas outside."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from .errors import Invalid

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_CACHE_MAX = 1024
_DURATION = re.compile(r"([0-9]{1,9})(s|m|h|d)")
_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000}
_DURATION_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


# Cached: all commands of a batch have one time, and each of its answers shows it several times.
@lru_cache(_CACHE_MAX)
def to_utc(ms: int) -> datetime:
    try:
        return _EPOCH + ms * _MILLISECOND
    except OverflowError as error:
        raise Invalid("moment", "the time lies outside the years 1 to 9999; choose one inside") from error


def to_ms(moment: datetime) -> int:
    """The milliseconds of a datetime with a time zone, rounded down."""
    # A naive datetime means another time on every machine.
    if moment.utcoffset() is None:
        raise Invalid("moment", "the datetime has no time zone; make it aware, as in datetime.now(UTC)")
    return (moment - _EPOCH) // _MILLISECOND


def checked_timedelta(what: str, length: timedelta) -> timedelta:
    """A bare number is refused: its unit would be a guess."""
    if isinstance(length, timedelta):
        return length
    is_number = isinstance(length, (int, float)) and not isinstance(length, bool)
    example = f"{length:g}" if is_number else "300"
    kind = "a bare number" if is_number else type(length).__name__
    raise Invalid(what, f"{what} is a timedelta, not {kind}; write {what}=timedelta(seconds={example})")


def to_duration_ms(what: str, length: timedelta) -> int:
    """The milliseconds of a timedelta, rounded down."""
    return checked_timedelta(what, length) // _MILLISECOND


def format_duration(ms: int) -> str:
    """The text that `parse_duration` reads, in the largest unit; anything else than whole seconds in milliseconds."""
    for unit, unit_ms in _UNITS_MS.items():
        if ms % unit_ms == 0:
            return f"{ms // unit_ms}{unit}"
    return f"{ms}ms"


def parse_duration(what: str, text: str) -> timedelta:
    """The duration of a setting or an argument: 90s, 30m, 24h or 7d."""
    if match := _DURATION.fullmatch(text.strip()):
        return timedelta(**{_DURATION_UNITS[match[2]]: int(match[1])})
    raise Invalid(what, f"{text!r} is not a duration; use 90s, 30m, 24h or 7d")
