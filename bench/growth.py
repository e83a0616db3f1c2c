"""Cost of a submission as the store grows, and memory of the gate as the number of keys grows."""

import random
import resource
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter

from onejob.clock import SystemClock
from onejob.core.command import Facts
from onejob.core.replies import Created, Replayed
from onejob.engines.gate import GateIdempotencyCache
from onejob.engines.sqlite import SqliteEngine
from onejob.settings import IdempotencyConfig

from .measure import Report
from .submissions import commands, ordered_keys, random_keys

BATCH = 64
FILL = 1000


async def growth(folder: Path, report: Report, rounds: int, key_count: int) -> None:
    report.title(f"Cost of a submission at {key_count:,} keys against 1,000 (engine, {BATCH} in a batch)")
    for name, keys, ratio_max in (
        ("random keys", random_keys(random.Random(5)), 2.5),
        ("time-ordered keys", ordered_keys("client-7"), 1.5),
    ):
        engine = await SqliteEngine.open(str(folder / f"{name.split()[0]}.db"))
        await _fill(engine, keys, 1_000)
        small = await _cost(engine, keys, rounds)
        await _fill(engine, keys, key_count - 1_000)
        large = await _cost(engine, keys, rounds)
        await engine.aclose()
        report.row(f"{name}, µs per submission", f"{small:.1f} → {large:.1f}")
        report.bar(f"{name}, large / small", large / small, most=ratio_max)


async def _fill(engine: SqliteEngine, keys: Iterator[str], count: int) -> None:
    for _ in range(count // FILL):
        await engine.execute(commands(keys, FILL))


async def _cost(engine: SqliteEngine, keys: Iterator[str], rounds: int) -> float:
    """Median over the rounds of the mean over many batches, so that checkpoints are included."""
    costs: list[float] = []
    for _ in range(rounds):
        batches = [commands(keys, BATCH) for _ in range(100)]
        begin = perf_counter()
        for batch in batches:
            await engine.execute(batch)
        costs.append((perf_counter() - begin) / (100 * BATCH) * 1e6)
    return median(costs)


async def memory(report: Report, count: int) -> None:
    report.title(f"Memory of the gate with {count:,} distinct keys (its cache holds 100,000)")
    config = IdempotencyConfig()
    cache: GateIdempotencyCache = GateIdempotencyCache(config, SystemClock().monotonic)
    keys = random_keys(random.Random(6))
    peaks: list[float] = []
    for _ in range(count // 100_000):
        for key in islice(keys, 100_000):
            (command,) = commands(iter([key]), 1)
            reply = command.decide(Facts(), 1).reply
            assert isinstance(reply, Created)
            cache.remember(command, Replayed(reply.job, reply.expires_at, reply.at), 0.0)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    stats = cache.stats(waiters=0)
    report.row("entries kept", f"{stats.total:,}")
    report.row(
        "peak memory of this process after the first and the last 100,000", f"{peaks[0]:.0f} → {peaks[-1]:.0f} MiB"
    )
    report.bar("entries kept / limit", stats.total / config.max_entries, most=1)
    report.bar("peak memory, last / first", peaks[-1] / peaks[0], most=1.5)
