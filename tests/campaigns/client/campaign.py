"""A campaign of submissions through a faulty proxy: one job each, the same key and bytes on every attempt."""

import asyncio
import sqlite3
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import onejob
from onejob.cli.commands.prove.faulty_proxy import ChooseFault, FaultyProxy
from tests.support.faulty_proxy import run_faulty_proxy
from tests.support.serve_process import run_serve_process

# The size of a response to a new key; a shorter one that is cut beyond its end passes unchanged.
ANSWER_BYTES = 900
QUICK = onejob.RetryPolicy(deadline=120.0, attempt_timeout=0.4, pause_first=0.005, pause_max=0.05)


class CampaignResult(NamedTuple):
    submissions: int
    attempts: int
    fault_counts: dict[str, int]
    answer_bytes_max: int


def run_campaign(folder: Path, submissions: int, choose: ChooseFault, *, callers: int = 16) -> CampaignResult:
    with run_serve_process(folder) as server, run_faulty_proxy(server.port, choose) as proxy:
        receipts = asyncio.run(_submit_all(proxy, submissions, callers))
    _verify(folder / "onejob.db", proxy, receipts)
    attempts = sum(map(len, proxy.attempts_by_key.values()))
    return CampaignResult(submissions, attempts, dict(proxy.fault_counts), proxy.answer_bytes_max)


async def _submit_all(proxy: FaultyProxy, submissions: int, callers: int) -> dict[str, str]:
    """Key -> job id, as in the receipts of the callers."""
    waiting = iter(range(submissions))
    receipts: dict[str, str] = {}

    async def caller(client: onejob.AsyncClient) -> None:
        for n in waiting:
            order = {"order": f"ORD-{n:06}", "amount": 42}
            receipt = await client.submit("charge", order, idempotency_key=f"charge-ORD-{n:06}")
            receipts[receipt.key] = receipt.job_id

    async with onejob.AsyncClient(proxy.url, retry=QUICK) as client:
        await asyncio.gather(*(caller(client) for _ in range(callers)))
    return receipts


def _verify(store: Path, proxy: FaultyProxy, receipts: dict[str, str]) -> None:
    db = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    try:
        made = dict(db.execute("SELECT idempotency_key, job_id FROM idempotency_keys").fetchall())
        (jobs,) = db.execute("SELECT count(*) FROM job").fetchone()
    finally:
        db.close()
    assert jobs == len(receipts), f"{jobs} jobs for {len(receipts)} submissions"
    assert made == receipts, "a receipt names another job than the store has"
    for key, attempts in proxy.attempts_by_key.items():
        assert len(Counter(attempts)) == 1, f"the attempts of {key} differ"
