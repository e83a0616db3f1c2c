"""Activity over time: reports of several processes add up, a repeated report counts once, and old counts leave."""

import pytest

from onejob.core.activity import (
    ACTIVITY_POLICY_NAME,
    HOURS,
    MINUTES,
    OTHER_TYPES,
    SOURCES_MAX,
    TYPES_MAX,
    Activity,
    AddActivity,
    advanced_activity,
    decode_activity,
)
from onejob.core.credentials import POLICY_BODY_BYTES_MAX
from onejob.core.facts import Kind
from onejob.core.identity import policy_id
from onejob.core.replies import Maintained
from tests.core.world import NOW, TENANT, World

ID = policy_id(TENANT, ACTIVITY_POLICY_NAME)
MINUTE, HOUR = 60_000, 3_600_000
START = NOW // HOUR * HOUR


def report(
    number: int = 1, source: str = "a", types: dict[str, dict[str, int]] | None = None, **counts: int
) -> AddActivity:
    return AddActivity(
        tenant=TENANT, policy_id=ID, source=source, number=number, counts=counts, type_counts=types or {}
    )


def stored(world: World) -> Activity:
    return decode_activity(world.facts[Kind.POLICY, ID].body)


def test_reports_of_several_processes_add_up() -> None:
    world = World()
    assert world.execute(report(created=3, replayed=1), at=START) == Maintained(True, START)
    world.execute(report(source="b", created=4), at=START + MINUTE)
    series = stored(world).series
    assert series["created"].minutes == (4, 3)
    assert series["created"].hours == (7,)
    assert series["replayed"].minutes == (0, 1)


def test_a_repeated_report_counts_once() -> None:
    world = World()
    for number in (1, 2, 2, 1):
        world.execute(report(number, created=1), at=START)
    assert stored(world).series["created"].hours == (2,)


def test_counts_leave_after_an_hour_and_after_a_day() -> None:
    world = World()
    world.execute(report(created=5), at=START)
    later = advanced_activity(stored(world), START + MINUTES * MINUTE)
    assert later.series["created"].minutes == (0,) * MINUTES
    assert later.series["created"].hours == (0, 5)
    assert not any(advanced_activity(stored(world), START + HOURS * HOUR).series["created"].hours)
    assert advanced_activity(stored(world), START - HOUR) == stored(world)


def test_the_smallest_types_are_added_up() -> None:
    world = World()
    types = {f"t{n}": {"success": n + 1} for n in range(TYPES_MAX + 5)}
    world.execute(report(types=types), at=START)
    kept = stored(world).types
    assert len(kept) == TYPES_MAX
    assert kept[OTHER_TYPES]["success"].hours == (sum(range(1, 7)),)
    world.execute(report(2, types={"new": {"failed": 100}}), at=START)
    assert stored(world).types["new"]["failed"].hours == (100,)
    assert sum(sum(ends["success"].hours) for ends in stored(world).types.values() if "success" in ends) == sum(
        range(1, TYPES_MAX + 6)
    )


def test_the_activity_fits_a_policy_whatever_is_counted() -> None:
    world = World()
    huge = 10**7
    for n in range(HOURS * MINUTES):
        types = {f"{n % 30:0120}": {"success": huge, "failed": huge}} if n % MINUTES == 0 else {}
        counts = {f"series-{m}": huge for m in range(30)} if n % 20 == 0 else {"series-0": huge}
        world.execute(
            report(n + 1, source=f"{n % (SOURCES_MAX + 3):016}", types=types, **counts), at=START + n * MINUTE
        )
    assert len(stored(world).reports) == SOURCES_MAX
    assert len(world.facts[Kind.POLICY, ID].body) <= POLICY_BODY_BYTES_MAX


@pytest.mark.parametrize("gap", [0, 1, 59, 60, 61, 10_000])
def test_the_sum_of_an_hour_is_the_sum_of_its_minutes(gap: int) -> None:
    world = World()
    world.execute(report(1, created=2), at=START)
    world.execute(report(2, created=3), at=START + gap * MINUTE)
    series = stored(world).series["created"]
    assert sum(series.minutes) == (5 if gap < MINUTES else 3)
    assert sum(series.hours) == (5 if gap < HOURS * 60 else 3)
