"""Reading large bodies leaves the event loop to the others."""

import asyncio
import time
from itertools import count
from threading import Event, Lock

import pytest

from onejob.clock import FakeClock
from onejob.core.fingerprint import canonical_json, check_strict_json
from onejob.core.large_json import Pause
from onejob.http import request
from onejob.http.endpoints.jobs import parse_batch
from onejob.http.request import INLINE_BYTES_MAX, RegularPauses, run_in_thread_if_large

LARGE = b"[" + b"[]," * 300_000 + b"[]]"


async def test_large_bodies_are_parsed_one_at_a_time_off_the_event_loop() -> None:
    lock, running, most = Lock(), 0, 0

    def parse(*, pause: Pause) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1

    await asyncio.gather(*(run_in_thread_if_large("acme", INLINE_BYTES_MAX + 1, parse) for _ in range(8)))
    assert most == 1


async def test_tenants_have_their_large_bodies_parsed_in_turn() -> None:
    parsed: list[str] = []
    is_first_begun, may_go_on = Event(), Event()

    def parse(tenant: str, *, pause: Pause) -> None:
        is_first_begun.set()
        may_go_on.wait(60)
        parsed.append(tenant)
        if len(parsed) == 5:
            raise ValueError("the fifth is broken")

    def run(tenant: str) -> asyncio.Task[None]:
        return asyncio.create_task(run_in_thread_if_large(tenant, INLINE_BYTES_MAX + 1, parse, tenant))

    tasks = [run("busy") for _ in range(5)]
    await asyncio.to_thread(is_first_begun.wait, 10)
    tasks += [run("other"), run("third"), run("other"), run("left")]
    await asyncio.sleep(0)
    tasks.pop().cancel()
    await asyncio.sleep(0)
    may_go_on.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert parsed == ["busy", "busy", "other", "third", "busy", "other", "busy", "busy"]
    assert [isinstance(one, ValueError) for one in results].count(True) == 1


def test_work_on_a_large_text_pauses_often() -> None:
    for work in (canonical_json, check_strict_json):
        pauses = count()
        work(LARGE, pause=pauses.__next__)
        assert next(pauses) > 500, "a megabyte takes 150 ms"


def test_a_batch_pauses_between_its_items() -> None:
    pauses = count()
    items = b",".join(b'{"type": "t", "input": %d}' % n for n in range(1000))
    parse_batch(b'{"jobs": [' + items + b"]}", pause=pauses.__next__)
    assert next(pauses) == 1000


def test_work_that_pauses_sleeps_only_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SleepingClock()
    monkeypatch.setattr(request, "SystemClock", lambda: clock)
    pause = RegularPauses()
    clock.advance(request.WORK_SECONDS / 2)
    pause()
    assert clock.slept == []
    clock.advance(request.WORK_SECONDS / 2)
    pause()
    pause()
    assert clock.slept == [request.PAUSE_SECONDS]


class SleepingClock(FakeClock):
    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(seconds)
