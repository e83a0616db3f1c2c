"""Cost of a submission as the store grows, and memory of the gate as the number of keys grows.

A store with 1,000 keys and one with a million take turns. The small one is made anew for every round, because it would grow
with the rounds. Both are opened for a round and closed again: a ledger that has been open for long has more in its memory.
"""

import asyncio
import random
import resource
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from itertools import count, islice
from pathlib import Path
from time import perf_counter, process_time

import onejob
from onejob.clock import SystemClock
from onejob.core.command import Facts
from onejob.core.replies import Created, Replayed
from onejob.engines.gate import GateIdempotencyCache
from onejob.settings import IdempotencyConfig

from .bars import GROWTH_POSTGRESQL, GROWTH_SQLITE, GROWTH_SQLITE_ORDERED, Bar
from .database import running_database
from .fill import fill
from .measure import Run, interleave, ratios
from .report import Report
from .submissions import commands, ordered_keys, random_keys, submission

CALLERS = 64
EACH = 50
WARM_UP_EACH = 5
SMALL = 1_000
PUBLISHED_KEYS = 1_000_000
_names = count()

MakeUrl = Callable[[], str]


async def growth(folder: Path, report: Report, rounds: int, key_count: int) -> None:
    report.title(f"Cost of a submission at {key_count:,} keys against {SMALL:,} (library, {CALLERS} callers)")
    async with AsyncExitStack() as stack:
        server = await asyncio.to_thread(stack.enter_context, running_database())

        def sqlite() -> str:
            return f"sqlite:///{folder / f'growth-{next(_names)}.db'}"

        for name, bar, make_url, ordered in (
            ("SQLite, random keys", GROWTH_SQLITE, sqlite, False),
            ("SQLite, time-ordered keys", GROWTH_SQLITE_ORDERED, sqlite, True),
            ("PostgreSQL, random keys", GROWTH_POSTGRESQL, server.database, False),
        ):
            await _compare(report, rounds, key_count, name, bar, make_url, ordered=ordered)


async def _compare(
    report: Report, rounds: int, key_count: int, name: str, bar: Bar, make_url: MakeUrl, *, ordered: bool
) -> None:
    keys = ordered_keys("client-8") if ordered else random_keys(random.Random(5))
    large = make_url()
    await fill(large, key_count, ordered=ordered)

    async def measure_small() -> Run:
        url = make_url()
        await fill(url, SMALL, ordered=ordered)
        return await _measure(url, keys)

    runs = await interleave({"small": measure_small, "large": lambda: _measure(large, keys)}, rounds)
    for side, size in (("small", SMALL), ("large", key_count)):
        report.rate(f"{CALLERS} callers, {size:,} keys", f"onejob, {name}", runs[side])
    cost = ratios(runs["small"], runs["large"])  # what the large one costs more, in time
    if key_count >= PUBLISHED_KEYS:
        report.judge(bar, cost)
    else:
        assert bar.most is not None
        report.bar(f"{name}, cost at {key_count:,} keys / {SMALL:,}", cost.median, most=bar.most)


async def _measure(url: str, keys: Iterator[str]) -> Run:
    async with onejob.open(url, sweep=False) as queue:

        async def submit(share: list[str]) -> None:
            for key in share:
                one = submission(key)
                await queue.submit(one.type, one.input, idempotency_key=key)

        async def submit_all(each: int) -> None:
            await asyncio.gather(*(submit(list(islice(keys, each))) for _ in range(CALLERS)))

        await submit_all(WARM_UP_EACH)  # connects, prepares statements, reads the upper pages of indexes
        begin, cpu = perf_counter(), process_time()
        await submit_all(EACH)
        total = CALLERS * EACH
        return Run(total / (perf_counter() - begin), (process_time() - cpu) / total * 1e6)


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
