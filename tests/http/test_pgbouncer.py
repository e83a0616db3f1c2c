"""A service on a real pgbouncer in transaction mode gives the same answers."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

import onejob
from tests.support.pgbouncer import PGBOUNCER, Pooler
from tests.support.postgres_server import Server as Postgres
from tests.support.raw_http import BODY, KeepAliveClient, Server, engine_line, request, run_server, submission

CLIENTS, ROUNDS, KEYS = 32, 12, 40
WAITERS = 10
# Each process needs three connections: two to write, one to read.
POOL_SIZE = 2

pytestmark = pytest.mark.skipif(
    PGBOUNCER is None, reason="there is no pgbouncer here; install the package pgbouncer to go through one"
)


@pytest.fixture
def urls(postgres: Postgres, postgres_url: str) -> Iterator[tuple[str, str]]:
    """The URLs of the store: direct, and through the pooler."""
    pooler = Pooler(postgres, pool_size=POOL_SIZE)
    try:
        through = pooler.url(postgres_url.rpartition("/")[2])
        yield postgres_url, f"{through}?pooled=on&direct=127.0.0.1:{postgres.port}"
        assert " ERROR" not in pooler.log.read_text(), pooler.log.read_text()
    finally:
        pooler.stop()


@pytest.fixture
def server(urls: tuple[str, str], tmp_path: Path) -> Iterator[Server]:
    with run_server(tmp_path, f"{engine_line(urls[1])}workers = 2\n") as running:
        yield running
        assert running.stop() == 0
    assert " error " not in running.log.read_text()


async def race(server: Server, name: int, job_ids: dict[str, set[str]], outcomes: Counter[str]) -> None:
    client = await KeepAliveClient.connect(server.port)
    for turn in range(ROUNDS):
        key = f"k{(name * 7 + turn * 3) % KEYS}"
        reply = await client.ask(submission(key))
        assert reply is not None
        assert reply.status == 202, reply
        job_ids.setdefault(key, set()).add(reply.body["job"]["id"])
        outcomes[reply.body["idempotency"]["outcome"]] += 1
    client.close()


async def test_many_clients_through_few_connections_make_one_job_for_each_key(server: Server) -> None:
    job_ids: dict[str, set[str]] = {}
    outcomes: Counter[str] = Counter()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for name in range(CLIENTS):
            group.create_task(race(server, name, job_ids, outcomes))
    assert {len(ids) for ids in job_ids.values()} == {1}
    assert len(set.union(*job_ids.values())) == len(job_ids) == KEYS
    assert outcomes == {"created": KEYS, "replayed": CLIENTS * ROUNDS - KEYS}
    listed = server.ask("GET", "/api/jobs?limit=1000").body["jobs"]
    assert {job["id"] for job in listed} == set.union(*job_ids.values())


async def test_waiters_are_notified_past_the_pooler(server: Server, urls: tuple[str, str]) -> None:
    async with onejob.open(urls[1], sweep=False) as ledger:
        held = await ledger.check_or_reserve("charge", BODY["input"], idempotency_key="held")
        assert isinstance(held, onejob.HeldKey)
        clients = [await KeepAliveClient.connect(server.port) for _ in range(WAITERS)]
        waiting = [asyncio.create_task(client.ask(submission("held"))) for client in clients]
        await wait_for_waiters(server, WAITERS)
        await wait_until_listening(urls[0])
        await ledger.commit(held)
        async with asyncio.timeout(20):
            for reply in await asyncio.gather(*waiting):
                assert reply is not None
                assert (reply.status, reply.body["job"]["id"]) == (202, held.job_id)
        for client in clients:
            client.close()


async def test_jobs_are_claimed_and_finished_through_it(server: Server) -> None:
    ids = {server.submit(f"w{n}").body["job"]["id"] for n in range(5)}
    ask = {"types": ["charge"], "start": True, "leaseSeconds": 60, "limit": 5}
    claimed = server.ask("POST", "/api/work/claim", ask).body["jobs"]
    assert {one["job"]["id"] for one in claimed} == ids
    for one in claimed:
        fence = {"token": one["token"], "holder": one["holder"], "result": {"ok": True}}
        assert server.ask("POST", f"/api/jobs/{one['job']['id']}/finish", fence).status == 200
    assert server.ask("GET", "/api/jobs?state=success").body["jobs"]


async def wait_until_listening(url: str) -> None:
    """Wait until the server listens for notifications, as it does while a request waits."""
    watcher = await asyncpg.connect(url)
    there = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"
    async with asyncio.timeout(20):
        while not await watcher.fetchval(there):
            await asyncio.sleep(0.02)
    await watcher.close()


async def wait_for_waiters(server: Server, count: int) -> None:
    client = await KeepAliveClient.connect(server.port)
    async with asyncio.timeout(20):
        while True:
            reply = await client.ask(request("GET", "/api/stats", close=False))
            assert reply is not None
            if reply.body["waiting"] == count:
                break
            await asyncio.sleep(0.02)
    client.close()
