"""The bucket engine on a simulated object store: 30 ms for a put, 15 ms for a get, as S3 Standard in its region."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from time import perf_counter
from typing import TypeVar

from onejob.clock import SystemClock
from onejob.conformance.samples import set_limit, submit, submit_counted
from onejob.core.submit import Submit
from onejob.engines.batcher import Batcher
from onejob.engines.bucket import BucketEngine
from onejob.engines.bucket.replica import ReplicaFile
from onejob.engines.bucket.url import ViewMode
from tests.support.object_stores import MemoryObjects, WrappedObjects

from .measure import Report

T = TypeVar("T")

PUT_SECONDS = 0.030
GET_SECONDS = 0.015
CALLERS = (1, 16, 64)
WRITERS = (1, 2, 4, 16)
SECONDS = 2.0
COUNTED_MIN = 0.5  # of the rate of many users
OPEN_SECONDS_MAX = 30.0
DAY_MS = 86_400_000
_SIGMA = 0.25  # of the logarithm of a delay
_BATCH = 1000


class SlowObjects(WrappedObjects):
    """Delays with a log-normal distribution around the medians."""

    def __init__(self, inner: MemoryObjects, rng: Random) -> None:
        super().__init__(inner)
        self._rng = rng

    async def intercept(self, kind: str, name: str, ask: Callable[[], Awaitable[T]]) -> T:
        seconds = PUT_SECONDS if kind in ("create", "put", "delete", "list") else GET_SECONDS
        await asyncio.sleep(seconds * math.exp(self._rng.gauss(0, _SIGMA)))
        return await ask()


async def bucket(folder: Path, report: Report, jobs: int) -> None:
    report.title("Bucket, new submissions per second (30 ms per put, 15 ms per get)")
    for view in (ViewMode.OFF, ViewMode.BEFORE):
        rates = [await _rate(folder, callers, view=view) for callers in CALLERS]
        shown = " / ".join(f"{rate:,.0f}" for rate in rates)
        report.row(f"view={view}, {' / '.join(map(str, CALLERS))} callers", shown)
    many = await _rate(folder, 64, view=ViewMode.OFF)
    counted = await _rate(folder, 64, view=ViewMode.OFF, make=submit_counted)
    report.row("64 callers, one counted user", f"{counted:,.0f}")
    report.bar("one counted user, compared with many", counted / many, least=COUNTED_MIN)
    for writers in WRITERS:
        rate = await _rate(folder, 64, writers=writers, view=ViewMode.OFF)
        report.row(f"64 callers on {writers} direct writers", f"{rate:,.0f}")
    await _opening(folder, report, jobs)


async def _rate(
    folder: Path, callers: int, *, view: ViewMode, writers: int = 1, make: Callable[..., Submit] = submit
) -> float:
    store, rng, clock = MemoryObjects(SystemClock()), Random(7), SystemClock()
    batchers = []
    for _ in range(writers):
        engine = BucketEngine(SlowObjects(store, rng), ReplicaFile(str(folder), "bench"), clock=clock, view=view)
        await engine.start()
        batchers.append(Batcher(engine))
    await batchers[0].execute([set_limit(10**6)])
    done, end = 0, perf_counter() + SECONDS

    async def call(n: int) -> None:
        nonlocal done
        turn = 0
        while perf_counter() < end:
            await batchers[n % writers].execute([make(f"{n}-{turn}", ttl_ms=DAY_MS)])
            done, turn = done + 1, turn + 1

    begin = perf_counter()
    await asyncio.gather(*(call(n) for n in range(callers)))
    rate = done / (perf_counter() - begin)
    for batcher in batchers:
        await batcher.aclose()
    return rate


async def _opening(folder: Path, report: Report, jobs: int) -> None:
    """How long a new process takes to begin with a snapshot."""
    store, clock = MemoryObjects(SystemClock()), SystemClock()
    engine = BucketEngine(store, ReplicaFile(str(folder), "load"), clock=clock, view=ViewMode.OFF)
    await engine.start()
    for start in range(0, jobs, _BATCH):
        await engine.execute([submit(f"k{n}", ttl_ms=DAY_MS) for n in range(start, start + _BATCH)])
    begin = perf_counter()
    await engine._keeper.keep(engine._lock, force=True)
    report.row(f"making a snapshot of {jobs:,} jobs", f"{perf_counter() - begin:.1f} s")
    size = sum(len(data) for name, (data, _) in store.objects.items() if name.startswith("snap/"))
    report.row("its size", f"{size / 1e6:,.0f} MB")
    await engine.aclose()
    begin = perf_counter()
    other = BucketEngine(store, ReplicaFile(str(folder), "other"), clock=clock, view=ViewMode.OFF)
    await other.start()
    seconds = perf_counter() - begin
    report.bar("seconds to open it", seconds, most=OPEN_SECONDS_MAX)
    await other.aclose()
