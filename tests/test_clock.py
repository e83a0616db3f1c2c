"""Rules of time: which clocks exist, what a step of the wall clock changes, how timestamps are converted."""

import time
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onejob import clock as clock_module
from onejob.clock import Clock, FakeClock, SystemClock, boot_id, make_engine_clock, wall_offset_ms
from onejob.core.errors import Invalid
from onejob.core.timestamps import to_ms, to_utc


def test_both_clocks_fit_the_protocol() -> None:
    clocks: list[Clock] = [SystemClock(), FakeClock()]
    for clock in clocks:
        assert isinstance(clock.monotonic(), float)
        assert isinstance(clock.wall_ms(), int)


def test_the_system_clock_never_runs_backwards() -> None:
    clock = SystemClock()
    readings = [clock.monotonic() for _ in range(1_000)]
    assert readings == sorted(readings)


def test_the_system_clock_goes_on_during_suspend_where_the_machine_has_such_a_clock() -> None:
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= SystemClock().monotonic() <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_without_such_a_clock_the_monotonic_one_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    before = time.monotonic()
    assert before <= SystemClock().monotonic() <= time.monotonic()


def test_a_sandbox_that_refuses_the_clock_gets_the_monotonic_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "CLOCK_BOOTTIME", 999_999, raising=False)
    before = time.monotonic()
    assert before <= SystemClock().monotonic() <= time.monotonic()


def test_the_wall_clock_is_in_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    assert before <= SystemClock().wall_ms() <= time.time_ns() // 1_000_000


def test_a_boot_has_one_name_or_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert boot_id() == boot_id()
    monkeypatch.setattr(clock_module, "_BOOT_ID", tmp_path / "boot_id")
    assert boot_id() is None
    (tmp_path / "boot_id").write_text("d5f1\n")
    assert boot_id() == "d5f1"
    (tmp_path / "boot_id").write_text("\n")
    assert boot_id() is None


def test_a_fake_clock_moves_only_when_told() -> None:
    clock = FakeClock(monotonic=5.0, wall_ms=1_000)
    assert (clock.monotonic(), clock.wall_ms()) == (5.0, 1_000)
    clock.advance(1.5)
    assert (clock.monotonic(), clock.wall_ms()) == (6.5, 2_500)
    clock.jump_wall(-3_600_000)
    assert (clock.monotonic(), clock.wall_ms()) == (6.5, 2_500 - 3_600_000)
    clock.set_wall(7)
    clock.set_monotonic(0.25)
    assert (clock.monotonic(), clock.wall_ms()) == (0.25, 7)


def test_many_small_steps_of_a_fake_clock_are_one_large_one() -> None:
    clock = FakeClock(monotonic=0.0, wall_ms=0)
    for _ in range(2_000):
        clock.advance(0.0005)
    assert (clock.monotonic(), clock.wall_ms()) == (1.0, 1_000)


def test_a_fake_clock_does_not_run_backwards() -> None:
    with pytest.raises(AssertionError):
        FakeClock().advance(-1)


def test_tied_time_starts_at_the_wall_clock_and_ignores_its_jumps() -> None:
    clock = FakeClock(monotonic=123.456, wall_ms=1_700_000_000_000)
    now = make_engine_clock(clock, wall_offset_ms(clock))
    assert now() == 1_700_000_000_000
    clock.jump_wall(86_400_000)
    assert now() == 1_700_000_000_000
    clock.advance(2)
    assert now() == 1_700_000_002_000


def test_two_processes_of_a_boot_agree_through_a_shared_offset() -> None:
    clock = FakeClock()
    offset = wall_offset_ms(clock)
    clock.jump_wall(-5_000)
    assert make_engine_clock(clock, offset)() == make_engine_clock(clock, offset)() == clock.wall_ms() + 5_000


@given(st.integers(0, 10**9), st.integers(0, 10**7))
def test_tied_time_counts_whole_milliseconds(start_ms: int, step_ms: int) -> None:
    clock = FakeClock(monotonic=start_ms / 1000, wall_ms=10**12)
    now = make_engine_clock(clock, wall_offset_ms(clock))
    clock.advance(step_ms / 1000)
    assert now() == 10**12 + step_ms


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_a_moment_is_read_as_it_was_written(ms: int) -> None:
    moment = to_utc(ms)
    assert moment.tzinfo is UTC
    assert to_ms(moment) == ms


@given(st.integers(0, 10**14), st.integers(-1439, 1439))
def test_a_moment_is_the_same_in_every_zone(ms: int, minutes: int) -> None:
    assert to_ms(to_utc(ms).astimezone(timezone(timedelta(minutes=minutes)))) == ms


def test_a_moment_is_rounded_down_to_milliseconds() -> None:
    assert to_ms(datetime(1970, 1, 1, 0, 0, 0, 1_999, tzinfo=UTC)) == 1
    assert to_ms(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)) == -1


def test_a_naive_datetime_is_refused() -> None:
    class Nowhere(tzinfo):
        def utcoffset(self, _: datetime | None, /) -> None: ...

        def dst(self, _: datetime | None, /) -> None: ...

        def tzname(self, _: datetime | None, /) -> None: ...

    for naive in [datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=Nowhere())]:  # noqa: DTZ001 - that is the point
        with pytest.raises(Invalid, match="time zone"):
            to_ms(naive)


def test_a_moment_beyond_the_calendar_is_refused() -> None:
    for ms in [253_402_300_800_000, -62_135_596_800_001, 10**30]:
        with pytest.raises(Invalid, match="years"):
            to_utc(ms)
