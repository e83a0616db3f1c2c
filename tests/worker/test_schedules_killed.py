"""Three workers with clocks apart, killed in turn, over both jumps of the clock: every tick once, none missing."""

from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from random import Random
from typing import Any

import pytest

import onejob
from onejob import App
from onejob.clock import FakeClock
from onejob.core.timestamps import to_ms, to_utc
from onejob.worker.scheduler import Scheduler
from onejob.worker.timetable import build_timetable
from tests.support.postgres_server import StoreClock

TIMETABLES: dict[str, tuple[str | timedelta, str | None]] = {
    "night": ("30 2 * * *", "Europe/Berlin"),
    "hours": ("0 */3 * * *", "Europe/Berlin"),
    "interval": (timedelta(hours=5), None),
}
JUMPS = {"spring": datetime(2027, 3, 27, 15, tzinfo=UTC), "autumn": datetime(2027, 10, 30, 15, tzinfo=UTC)}
SECONDS_OFF = (0, -7_200, 3 * 86_400)  # how wrong the clocks of the workers are
CATCH_UP = 5


class Killed(BaseException):
    """The process dies here."""


def build_app() -> App:
    app = App()
    for name, (every, zone) in TIMETABLES.items():
        app.every(every, "report", zone=zone, name=name, catch_up=CATCH_UP)
    return app


def kill_at_a_submission(scheduler: Scheduler, chance: Random) -> None:
    """Let a worker die before or after one of its next commits."""
    ledger: Any = scheduler._ledger
    submit, left, before = ledger.submit_prepared, chance.randint(1, 4), chance.random() < 0.5

    async def submit_or_die(*args: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and before:
            raise Killed
        receipt = await submit(*args)
        if left == 0:
            raise Killed
        return receipt

    ledger.submit_prepared = submit_or_die


@pytest.mark.parametrize("jump", JUMPS)
async def test_killed_workers_with_wrong_clocks_submit_every_tick_once(
    postgres_url: str, store_clock: StoreClock, jump: str
) -> None:
    chance, start = Random(f"ticks {jump}"), to_ms(JUMPS[jump])
    store_clock.advance((start - store_clock.wall_ms()) / 1000)
    kills = 0
    async with AsyncExitStack() as stack:

        async def start_worker(n: int) -> tuple[onejob.Ledger, Scheduler]:
            clock = FakeClock(wall_ms=store_clock.wall_ms() + SECONDS_OFF[n] * 1000, monotonic=chance.random() * 1e6)
            ledger = await stack.enter_async_context(onejob.open(postgres_url, clock=clock, sweep=False))
            return ledger, Scheduler(tuple(build_app().schedules.values()), ledger)

        workers = [await start_worker(n) for n in range(3)]
        began = store_clock.wall_ms()
        for _, scheduler in workers:
            await scheduler.submit_due_ticks()
        while store_clock.wall_ms() < start + 86_400_000:
            store_clock.advance(chance.randint(60, 5 * 3600))
            n = chance.randrange(3)
            kill_at_a_submission(workers[n][1], chance)
            for number in chance.sample(range(3), chance.randint(1, 3)):
                try:
                    await workers[number][1].submit_due_ticks()
                except Killed:
                    kills += 1
                    workers[number] = await start_worker(number)
        workers = [await start_worker(n) for n in range(3)]
        for _, scheduler in workers:
            await scheduler.submit_due_ticks()
        found = sorted(str(job.key) for job in await workers[0][0].jobs(limit=1000))
    assert found == sorted(expected_keys(began, store_clock.wall_ms()))
    assert kills > 1


def expected_keys(began: int, until: int) -> list[str]:
    return [
        f"{name}@{to_utc(tick):%Y-%m-%dT%H:%M:%SZ}"
        for name, (every, zone) in TIMETABLES.items()
        for tick in takewhile(lambda tick: tick <= until, build_timetable(every, zone).after(began))
    ]
