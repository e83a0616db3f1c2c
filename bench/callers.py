"""The gain of group commit: one caller, 64 callers, batches of a thousand; new keys and duplicates."""

import asyncio
import random
from itertools import islice
from pathlib import Path

import onejob

from .measure import Work, measure_here, ratios
from .report import Report
from .submissions import random_keys, submission


async def callers(folder: Path, report: Report, rounds: int) -> None:
    report.title("Submissions per second on SQLite, durable before the answer (whole ledger)")
    keys = random_keys(random.Random(4))
    async with onejob.open(f"sqlite:///{folder / 'callers.db'}", sweep=False) as queue:

        async def submit(key: str) -> None:
            one = submission(key)
            await queue.submit(one.type, one.input, idempotency_key=one.idempotency_key)

        async def worker(share: list[str]) -> None:
            for key in share:
                await submit(key)

        async def submit_with(count: int, total: int) -> int:
            shares = [list(islice(keys, total // count)) for _ in range(count)]
            await asyncio.gather(*(worker(share) for share in shares))
            return total

        async def thousands() -> int:
            await queue.submit_many(submission(key) for key in islice(keys, 10_000))
            return 10_000

        async def duplicates() -> int:
            await asyncio.gather(*(worker(["known"] * 100) for _ in range(64)))
            return 6400

        await submit("known")
        sides: dict[str, Work] = {
            "1 caller": lambda: submit_with(1, 500),
            "16 callers": lambda: submit_with(16, 4_000),
            "64 callers": lambda: submit_with(64, 9_600),
            "submit_many(1000)": thousands,
            "64 callers, duplicates (live state read)": duplicates,
        }
        runs = await measure_here(sides, rounds)
    for name, measured in runs.items():
        report.rate(name, "onejob, SQLite", measured)
    one = runs["1 caller"]
    report.bar("64 callers / 1 caller", ratios(runs["64 callers"], one).median, least=5)
    # At least 25,000 a second where one caller makes 1,500.
    report.bar("submit_many(1000) / 1 caller", ratios(runs["submit_many(1000)"], one).median, least=25_000 / 1_500)
