"""Time of each stage of a submission, and the cost of the engine against rows inserted by hand."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from onejob.clock import SystemClock
from onejob.core.batch import decide_batch, load_facts_sync
from onejob.core.command import Command, Facts
from onejob.core.replies import AnyReply
from onejob.engine import OnTimeout
from onejob.engines.batcher import Batcher
from onejob.engines.codec import to_row_changes
from onejob.engines.gate import Gate
from onejob.engines.memory import MemoryEngine
from onejob.engines.sqlite import SqliteEngine, SqliteStore, WorkerThread
from onejob.engines.sqlite.schema import read_ledger
from onejob.settings import IdempotencyConfig

from .measure import Laps, measure_here, ratios
from .report import Report
from .submissions import commands, insert_raw, open_raw_connection, random_keys

BATCH = 64


async def stages(folder: Path, report: Report, rounds: int) -> None:
    report.title(f"Microseconds of each stage of a submission ({BATCH} in a batch, SQLite, synchronous=FULL)")
    keys = random_keys(random.Random(1))
    clock = SystemClock()
    db = open_raw_connection(folder / "stages.db")
    store = SqliteStore(db, clock.wall_ms, read_ledger(db))
    laps = Laps(BATCH)
    for _ in range(rounds):
        laps.begin()
        batch = commands(keys, BATCH)
        laps.lap("parse: encode, canonical form, fingerprint, ids")
        for command in batch:
            command.decide(Facts(), 1)
        laps.lap("decide")
        footprints = [command.footprint for command in batch]
        laps.begin()
        db.execute("BEGIN IMMEDIATE")
        working = load_facts_sync(footprints, store._fetch)
        laps.lap("SQL: load")
        decide_batch(batch, footprints, working, clock.wall_ms())
        changes = working.changes()
        laps.lap("decide_batch, with decide")
        store.save(to_row_changes(changes))
        laps.lap("SQL: insert")
        db.execute("COMMIT")
        laps.lap("SQL: commit, with its sync")
    for name, value in laps.medians().items():
        report.row(name, f"{value:.1f}")
    report.row("gate, batcher and futures", f"{await _gate_and_batcher_us():.1f}")
    db.close()


async def _gate_and_batcher_us() -> float:
    """The cost of the gate and the batcher in front of an engine that only decides."""
    keys = random_keys(random.Random(2))
    gate = Gate(Batcher(_DecidingEngine()), IdempotencyConfig(), SystemClock().monotonic)
    best = float("inf")
    for _ in range(20):
        batch = commands(keys, BATCH)
        begin = perf_counter()
        for command in batch:
            command.decide(Facts(), 1)
        decided = perf_counter()
        await asyncio.gather(*(gate.execute_each([command]) for command in batch))
        best = min(best, (perf_counter() - decided) - (decided - begin))
    return best / BATCH * 1e6


class _DecidingEngine(MemoryEngine):
    async def execute(
        self, commands: Sequence[Command[Any]], /, *, on_timeout: OnTimeout | None = None
    ) -> Sequence[AnyReply]:
        await asyncio.sleep(0)
        return [command.decide(Facts(), 1).reply for command in commands]


async def seam(folder: Path, report: Report, rounds: int) -> None:
    report.title(f"The engine through the seam against the same rows written by hand ({BATCH} in a transaction)")
    engine = await SqliteEngine.open(str(folder / "seam.db"))
    db = open_raw_connection(folder / "hand.db")
    thread = WorkerThread("hand")
    keys = random_keys(random.Random(3))
    batches = {name: [commands(keys, BATCH) for _ in range((rounds + 1) * 20)] for name in ("seam", "hand")}

    async def through_the_seam() -> int:
        for _ in range(20):
            replies: list[AnyReply] = list(await engine.execute(batches["seam"].pop()))
            assert len(replies) == BATCH
        return 20 * BATCH

    async def written_by_hand() -> int:
        # Also in a thread, because a service must not block its event loop on the disk.
        for _ in range(20):
            await thread.call(insert_raw, db, batches["hand"].pop(), SystemClock().wall_ms())
        return 20 * BATCH

    runs = await measure_here({"hand": written_by_hand, "seam": through_the_seam}, rounds)
    for name, measured in runs.items():
        report.rate(f"rows of submissions, {name}", "onejob, SQLite", measured)
    report.bar("seam / hand", ratios(runs["seam"], runs["hand"]).median, least=0.7)
    await engine.aclose()
    await thread.aclose()
    db.close()
