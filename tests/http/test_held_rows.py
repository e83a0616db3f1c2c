"""Load on a service on PostgreSQL while somebody's open transaction holds a key: nobody else notices much."""

import asyncio
from collections import Counter
from pathlib import Path

import asyncpg

import onejob
from onejob.core.identity import record_id
from onejob.transaction import InTransaction
from tests.support.raw_http import BODY, KeepAliveClient, Server, run_server, submission, submitted_job_id

TYPE = str(BODY["type"])
CONNECTIONS = 16
SECONDS = 3.0
# The lock timeout of a batch that meets the row first (2 s), its parts, and a loaded machine.
WAIT_SECONDS_MAX = 4.0


async def submit_new_keys(
    server: Server, name: str, until: float, statuses: Counter[int], seconds: list[float]
) -> None:
    client = await KeepAliveClient.connect(server.port)
    loop = asyncio.get_running_loop()
    while (begun := loop.time()) < until:
        reply = await client.ask(submission(f"{name}-{len(seconds)}"))
        assert reply is not None
        statuses[reply.status] += 1
        seconds.append(loop.time() - begun)
    client.close()


async def submit_held_key(server: Server, until: float, answers: list[tuple[int, str]]) -> None:
    client = await KeepAliveClient.connect(server.port)
    while asyncio.get_running_loop().time() < until:
        reply = await client.ask(submission("held"))
        assert reply is not None
        answers.append((reply.status, reply.headers.get("retry-after", "")))
        await asyncio.sleep(0.05)
    client.close()


async def test_a_held_row_fails_only_its_own_submissions(tmp_path: Path, postgres_url: str) -> None:
    async with onejob.open(postgres_url) as ledger:
        known = await ledger.submit(TYPE, BODY["input"], idempotency_key="known")
    db = await asyncpg.connect(postgres_url)
    try:
        await db.execute("BEGIN")
        held = await InTransaction().asyncpg(db).submit(TYPE, BODY["input"], idempotency_key="held")
        assert held.created
        row = record_id("default", TYPE, "known")
        assert await db.fetchval("SELECT key FROM record WHERE id = $1 FOR UPDATE", row) == "known"
        with run_server(tmp_path, f'engine = "{postgres_url}"\n') as server:
            until = asyncio.get_running_loop().time() + SECONDS
            statuses: Counter[int] = Counter()
            seconds: list[float] = []
            of_held: list[tuple[int, str]] = []
            await asyncio.gather(
                submit_held_key(server, until, of_held),
                *(submit_new_keys(server, f"c{n}", until, statuses, seconds) for n in range(CONNECTIONS)),
            )
            slowest = max(seconds)
            print(f"{len(seconds)} submissions, the slowest in {slowest:.2f} s; {len(of_held)} of the held key")
            assert set(statuses) == {202}, statuses
            assert slowest < WAIT_SECONDS_MAX
            assert set(of_held) == {(503, "1")}
            assert (await submitted_job_id(server, "known")) == known.job_id, "what is settled is read without locks"
            await db.execute("ROLLBACK")
            assert (await submitted_job_id(server, "held")) != held.job_id, "that one was rolled back"
    finally:
        await db.close()
