"""The bucket engine on a simulated object store: 30 ms for a put, 15 ms for a get, as S3 Standard in its region."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from time import perf_counter
from typing import TypeVar

from onejob.clock import SystemClock
from onejob.conformance.samples import set_limit, submit, submit_counted
from onejob.core.replies import Replayed
from onejob.core.submit import Submit
from onejob.engine import Engine
from onejob.engines.batcher import Batcher
from onejob.engines.bucket import BucketEngine
from onejob.engines.bucket.objects import ObjectStore
from onejob.engines.bucket.replica import ReplicaFile
from onejob.engines.bucket.snapshots import find_snapshots
from onejob.engines.bucket.url import ViewMode
from tests.support.managers import open_remote, running_manager
from tests.support.object_stores import MemoryObjects, WrappedObjects

from .report import Report

T = TypeVar("T")

PUT_SECONDS = 0.030
GET_SECONDS = 0.015
CALLERS = (1, 16, 64)
WRITERS = (1, 2, 4, 16)
SECONDS = 2.0
GATES = 16
COUNTED_MIN = 0.5  # of the rate of many users
GATES_MIN = 5.0  # times the rate of as many direct writers
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
    rate = 0.0
    for writers in WRITERS:
        rate = await _rate(folder, 64, writers=writers, view=ViewMode.OFF)
        report.row(f"64 callers on {writers} direct writers", f"{rate:,.0f}")
    managed = await _managed_rate(folder, 64)
    report.row(f"64 callers on {GATES} gates of one manager", f"{managed:,.0f}")
    report.bar(f"{GATES} gates of one manager, compared with direct writers", managed / rate, least=GATES_MIN)
    await _opening(folder, report, jobs)


async def _rate(
    folder: Path, callers: int, *, view: ViewMode, writers: int = 1, make: Callable[..., Submit] = submit
) -> float:
    store, rng = MemoryObjects(SystemClock()), Random(7)
    engines = [await _start(folder, SlowObjects(store, rng), view) for _ in range(writers)]
    return await _submit(engines, callers, make)


async def _managed_rate(folder: Path, callers: int) -> float:
    """Gates over real connections to the one process that owns the bucket."""
    owner = await _start(folder, SlowObjects(MemoryObjects(SystemClock()), Random(7)), ViewMode.OFF)
    async with running_manager(owner) as url:
        return await _submit([await open_remote(url) for _ in range(GATES)], callers, submit)


async def _start(folder: Path, store: ObjectStore, view: ViewMode, replica: str = "bench") -> BucketEngine:
    engine = BucketEngine(store, ReplicaFile(str(folder), replica), clock=SystemClock(), view=view)
    await engine.start()
    return engine


async def _submit(engines: Sequence[Engine], callers: int, make: Callable[..., Submit]) -> float:
    """New submissions per second of callers that share these engines; closes the engines."""
    batchers = [Batcher(engine) for engine in engines]
    await batchers[0].execute([set_limit(10**6)])
    done, end = 0, perf_counter() + SECONDS

    async def call(n: int) -> None:
        nonlocal done
        turn = 0
        while perf_counter() < end:
            await batchers[n % len(batchers)].execute([make(f"{n}-{turn}", ttl_ms=DAY_MS)])
            done, turn = done + 1, turn + 1

    begin = perf_counter()
    await asyncio.gather(*(call(n) for n in range(callers)))
    rate = done / (perf_counter() - begin)
    for batcher in batchers:
        await batcher.aclose()
    return rate


async def _opening(folder: Path, report: Report, jobs: int) -> None:
    """How long a process without a replica takes to begin with a snapshot."""
    store = MemoryObjects(SystemClock())
    engine = await _start(folder, store, ViewMode.OFF)
    for start in range(0, jobs, _BATCH):
        await engine.execute([submit(f"k{n}", ttl_ms=DAY_MS) for n in range(start, start + _BATCH)])
    while engine._keeper._busy:  # noqa: ASYNC110 - a snapshot that was due while it was loaded tells nobody its end
        await asyncio.sleep(0.1)
    begin = perf_counter()
    await engine._keeper.snapshot_and_prune(engine._lock, force=True)
    report.row(f"making a snapshot of {jobs:,} jobs", f"{perf_counter() - begin:.1f} s")
    size = len(store.objects[(await find_snapshots(store))[-1].name][0])
    report.row("its size", f"{size / 1e6:,.0f} MB")
    await engine.aclose()
    for name in [name for name in store.objects if name.startswith("log/")]:
        del store.objects[name]  # so that nothing but the snapshot can be read
    begin = perf_counter()
    other = await _start(folder, store, ViewMode.OFF, replica="other")
    seconds = perf_counter() - begin
    (found,) = await other.execute([submit(f"k{jobs - 1}", ttl_ms=DAY_MS)])
    assert isinstance(found, Replayed), found
    report.bar(f"seconds to open {jobs:,} jobs", seconds, most=OPEN_SECONDS_MAX)
    await other.aclose()
