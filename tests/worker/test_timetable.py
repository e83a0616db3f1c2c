"""When schedules tick: at jumps of the clock, the same for all workers, however they start."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest

from onejob.core.timestamps import to_ms, to_utc
from onejob.errors import Invalid
from onejob.worker.timetable import DAY_MS, Cron, Interval, build_timetable, last_ticks, tick_window_ms

SPRING = to_ms(datetime(2026, 3, 28, tzinfo=UTC))  # in Berlin the clock jumps from 2 to 3 on the 29th
AUTUMN = to_ms(datetime(2026, 10, 24, tzinfo=UTC))  # and from 3 to 2 on the 25th


def ticks(expression: str, start: int, zone: str = "Europe/Berlin", hours: int = 72) -> list[str]:
    found = takewhile(lambda tick: tick < start + hours * 3600 * 1000, Cron(expression, zone).after(start))
    return [f"{to_utc(tick):%d %H:%M}" for tick in found]


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        ("0 3 * * *", SPRING, ["28 02:00", "29 01:00", "30 01:00"]),
        ("30 2 * * *", SPRING, ["28 01:30", "29 01:00", "30 00:30"]),  # skipped: right after the jump
        ("30 2 * * *", AUTUMN, ["24 00:30", "25 00:30", "26 01:30"]),  # twice there: the first time
        ("0 3 * * *", AUTUMN, ["24 01:00", "25 02:00", "26 02:00"]),
        ("0 2,3 * * *", SPRING, ["28 01:00", "28 02:00", "29 01:00", "30 00:00", "30 01:00"]),
        ("0 0 * * 1-5", SPRING, ["29 22:00", "30 22:00"]),
    ],
)
def test_a_time_of_day_ticks_once_a_day_over_a_jump(expression: str, start: int, expected: list[str]) -> None:
    assert ticks(expression, start) == expected


@pytest.mark.parametrize("start", [SPRING, AUTUMN])
def test_an_expression_with_a_star_ticks_as_time_passes(start: int) -> None:
    found = list(islice(Cron("*/20 * * * *", "Europe/Berlin").after(start), 300))
    assert {after - before for before, after in pairwise(found)} == {20 * 60 * 1000}


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("Europe/Berlin", datetime(2026, 3, 29, tzinfo=UTC)),
        ("Europe/Berlin", datetime(2026, 10, 25, tzinfo=UTC)),
        ("Australia/Lord_Howe", datetime(2026, 4, 4, tzinfo=UTC)),  # by half an hour
        ("Australia/Lord_Howe", datetime(2026, 10, 3, tzinfo=UTC)),
        ("Pacific/Chatham", datetime(2026, 4, 4, tzinfo=UTC)),
        ("Pacific/Chatham", datetime(2026, 9, 26, tzinfo=UTC)),
        ("America/St_Johns", datetime(2005, 10, 30, tzinfo=UTC)),  # a minute after midnight
    ],
)
@pytest.mark.parametrize(("minute", "step"), [(0, 3), (5, 2), (30, 1)])
def test_a_star_ticks_whenever_the_local_time_matches(zone: str, day: datetime, minute: int, step: int) -> None:
    start, timetable = day - timedelta(days=1), Cron(f"{minute} */{step} * * *", zone)
    moments = [start + timedelta(minutes=n) for n in range(1, 3 * 24 * 60)]
    local = [(moment, moment.astimezone(ZoneInfo(zone))) for moment in moments]
    expected = [to_ms(moment) for moment, at in local if at.minute == minute and at.hour % step == 0]
    for skipped in range(0, len(expected), 5):
        begin = expected[skipped - 1] if skipped else to_ms(start)
        assert list(islice(timetable.after(begin), len(expected) - skipped)) == expected[skipped:]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "UTC"])
@pytest.mark.parametrize("expression", ["0 3 * * *", "30 2 * * *", "15 1,2,3 * * *", "0 */2 * * *"])
@pytest.mark.parametrize("start", [SPRING, AUTUMN])
def test_ticks_do_not_depend_on_where_a_worker_starts(expression: str, zone: str, start: int) -> None:
    timetable, until = Cron(expression, zone), start + 3 * DAY_MS
    everything = list(takewhile(lambda tick: tick <= until, timetable.after(start - DAY_MS)))
    assert everything == sorted(set(everything))
    for moment in range(start + DAY_MS * 5 // 6, start + DAY_MS * 4 // 3, 29 * 60 * 1000 + 13):
        assert next(timetable.after(moment)) == next(tick for tick in everything if tick > moment)
        before = [tick for tick in everything if start < tick <= moment]
        for count in (1, 3):
            assert last_ticks(timetable, after=start, until=moment, count=count) == before[-count:]


def test_an_interval_counts_from_the_epoch() -> None:
    timetable = Interval(timedelta(minutes=5))
    assert list(islice(timetable.after(299_999), 3)) == [300_000, 600_000, 900_000]
    assert list(islice(timetable.after(300_000), 1)) == [600_000]
    assert last_ticks(timetable, after=0, until=1_000_000, count=2) == [600_000, 900_000]
    assert last_ticks(timetable, after=700_000, until=1_000_000, count=9) == [900_000]
    assert last_ticks(timetable, after=0, until=1_000_000, count=0) == []


def test_a_window_covers_what_may_be_submitted_at_least_a_day_at_most_a_year() -> None:
    assert tick_window_ms(Interval(timedelta(seconds=1)), 0, 1) == DAY_MS
    assert tick_window_ms(Interval(timedelta(hours=12)), 0, 3) == 5 * DAY_MS // 2
    assert tick_window_ms(Interval(timedelta(days=100)), 0, 3) == 365 * DAY_MS
    assert tick_window_ms(Cron("0 3 1 * *"), to_ms(datetime(2026, 1, 1, 3, tzinfo=UTC)), 0) == 59 * DAY_MS


@pytest.mark.parametrize(
    ("every", "zone", "message"),
    [
        ("0 3 * *", None, "five fields"),
        ("0 0 3 * * *", None, "five fields"),
        ("61 3 * * *", None, "Bad minute"),
        ("0 0 31 2 *", None, "cron expression"),
        ("0 3 * * *", "Europe/Bonn", "no time zone"),
        ("0 3 * * *", "../etc/passwd", "no time zone"),
        (timedelta(milliseconds=1500), None, "whole number of seconds"),
        (timedelta(0), None, "1 second"),
        (timedelta(days=366), None, "365 days"),
        (timedelta(hours=1), "Europe/Berlin", "no time zone"),
        (300, None, "timedelta"),
    ],
)
def test_a_wrong_timetable_is_refused(every: str | timedelta, zone: str | None, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        build_timetable(every, zone)
