"""Activity of a tenant over time: submissions and ended attempts, per minute of the last hour and per hour of the last day.

Each process counts in memory and reports what it has counted since its last report. The reports of one process are
numbered, and a report whose number was applied before changes nothing, so a repeated one is not counted twice. The
totals are one small policy of the tenant: every process shows the same.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct, json
from msgspec.structs import replace

from .command import CommandData, Facts, Footprint, Step
from .facts import NewerFormat, Policy, next_version, unexpired_policy
from .replies import Maintained

ACTIVITY_POLICY_NAME = "activity"
MINUTES = 60
HOURS = 24
SERIES_MAX = 24
TYPES_MAX = 20  # the types with most ended attempts; the others are summed under OTHER_TYPES
OTHER_TYPES = "…"
SOURCES_MAX = 64
_MINUTE_MS = 60_000
_MINUTES_PER_HOUR = 60
_KEPT_MS = 25 * 60 * _MINUTE_MS


class Series(Struct, frozen=True, array_like=True):
    """Counts by minute and by hour, the current one first; what is missing at the end is 0."""

    minutes: tuple[int, ...] = ()
    hours: tuple[int, ...] = ()


class Activity(Struct, frozen=True):
    minute: int  # the minute of the first count, since 1970
    series: Mapping[str, Series] = {}  # by outcome of a submission, or by end of an attempt
    types: Mapping[str, Mapping[str, Series]] = {}  # by type and end; only hours are counted
    reports: Mapping[str, int] = {}  # the last report of each source, the latest source last


class AddActivity(CommandData, frozen=True, gc=False, kw_only=True):
    """Add one report of a process."""

    policy_id: bytes
    source: str
    number: int  # the reports of a source are numbered from 1
    counts: Mapping[str, int]
    type_counts: Mapping[str, Mapping[str, int]] = {}

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, policy=self.policy_id)

    def decide(self, facts: Facts, now: int) -> Step[Maintained]:
        policy = facts.policy
        current = unexpired_policy(policy, now)
        activity = Activity(now // _MINUTE_MS) if current is None else decode_activity(current.body)
        if activity.reports.get(self.source, 0) >= self.number:
            return Step(Maintained(False, now))
        body = json.encode(self._added_to(advanced_activity(activity, now)))
        if policy is None:
            put = Policy(self.policy_id, self.tenant, ACTIVITY_POLICY_NAME, body, now, expires_at=now + _KEPT_MS)
        else:
            put = next_version(policy, now, body=body, expires_at=now + _KEPT_MS)
        return Step(Maintained(True, now), (put,))

    def _added_to(self, activity: Activity) -> Activity:
        series = {**activity.series}
        for name, count in self.counts.items():
            if name in series or len(series) < SERIES_MAX:
                series[name] = _added_series(series.get(name, Series()), count)
        types = {type: {**ends} for type, ends in activity.types.items()}
        for type, counts in self.type_counts.items():
            ends = types.setdefault(type, {})
            for name, count in counts.items():
                ends[name] = _added_series(ends.get(name, Series()), count, by_minute=False)
        reports = {source: number for source, number in activity.reports.items() if source != self.source}
        reports[self.source] = self.number
        latest = dict(list(reports.items())[-SOURCES_MAX:])
        return replace(activity, series=series, types=_largest_types(types), reports=latest)


def decode_activity(body: bytes) -> Activity:
    try:
        return json.decode(body, type=Activity)
    except msgspec.ValidationError:
        raise NewerFormat("the activity is stored in a format that this program does not know; upgrade it") from None


def advanced_activity(activity: Activity, now: int) -> Activity:
    """The activity as it is at a time: counts that are too old are gone. Time never goes back."""
    minute = max(now // _MINUTE_MS, activity.minute)
    passed = minute - activity.minute
    hours_passed = minute // _MINUTES_PER_HOUR - activity.minute // _MINUTES_PER_HOUR

    def advanced(series: Series) -> Series:
        return Series(_shifted(series.minutes, passed, MINUTES), _shifted(series.hours, hours_passed, HOURS))

    types = {type: {name: advanced(row) for name, row in ends.items()} for type, ends in activity.types.items()}
    return replace(
        activity,
        minute=minute,
        series={name: advanced(row) for name, row in activity.series.items()},
        types={type: ends for type, ends in types.items() if any(any(row.hours) for row in ends.values())},
    )


def _shifted(counts: tuple[int, ...], steps: int, length: int) -> tuple[int, ...]:
    return ((0,) * min(steps, length) + counts)[:length] if counts and steps else counts


def _added_series(series: Series, count: int, *, by_minute: bool = True) -> Series:
    minutes = (series.minutes[:1] or (0,))[0] + count
    hours = (series.hours[:1] or (0,))[0] + count
    return Series((minutes, *series.minutes[1:]) if by_minute else (), (hours, *series.hours[1:]))


def _largest_types(types: dict[str, dict[str, Series]]) -> dict[str, dict[str, Series]]:
    """At most TYPES_MAX types, those with the most ends; the others are added up."""
    if len(types) <= TYPES_MAX:
        return types
    size = {type: sum(sum(row.hours) for row in ends.values()) for type, ends in types.items() if type != OTHER_TYPES}
    kept = sorted(size, key=lambda type: -size[type])[: TYPES_MAX - 1]
    others: dict[str, Series] = {}
    for type, ends in types.items():
        if type not in kept:
            for name, row in ends.items():
                others[name] = _summed_hours(others.get(name, Series()), row)
    return {**{type: types[type] for type in kept}, OTHER_TYPES: others}


def _summed_hours(first: Series, other: Series) -> Series:
    length = max(len(first.hours), len(other.hours))
    pairs = zip(
        first.hours + (0,) * (length - len(first.hours)), other.hours + (0,) * (length - len(other.hours)), strict=True
    )
    return Series((), tuple(left + right for left, right in pairs))
