"""Long polling for jobs over HTTP: one poll for all claims, one claim for each job, none for a closed connection."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import onejob
from onejob.core.credentials import Role
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.ledger.api_keys import ApiKeys
from onejob.ledger.base import runtime_of
from tests.support.app_server import Client, serve_app
from tests.support.job_rows import load_job_row
from tests.support.raw_http import KeepAliveClient as SocketClient
from tests.support.raw_http import request, run_server

from .work_requests import active_polls, claim, claim_one, wait_for_waiters


@pytest.fixture
async def client(queue: onejob.Ledger) -> AsyncIterator[Client]:
    async with serve_app(HttpApp(queue)) as client:
        yield client


async def test_a_waiting_claim_gets_a_job_when_there_is_one(queue: onejob.Ledger, client: Client) -> None:
    waiting = asyncio.create_task(claim_one(client, wait=20))
    await wait_for_waiters(runtime_of(queue).waiters, 1)
    job_id = (await queue.submit("t")).job_id
    async with asyncio.timeout(15):
        assert (await waiting)["job"]["id"] == job_id
    assert runtime_of(queue).waiters.count == 0
    assert await claim(client, wait=0.1) == []


async def test_many_waiting_claims_share_one_poll_and_get_each_job_once(queue: onejob.Ledger, client: Client) -> None:
    waiting = [asyncio.create_task(claim(client, wait=3)) for _ in range(20)]
    await wait_for_waiters(runtime_of(queue).waiters, 20)
    async with asyncio.timeout(15):
        while len(active_polls(queue)) != 1:
            await asyncio.sleep(0.01)
    for n in range(10):
        await queue.submit("t", n)
    found = [job["input"] for jobs in await asyncio.gather(*waiting) for job in jobs]
    assert sorted(found) == list(range(10))
    assert not active_polls(queue)


async def test_a_claim_that_disconnects_while_waiting_takes_no_job(queue: onejob.Ledger, client: Client) -> None:
    body = b'{"types": ["t"], "wait": 30}'
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(
        b"POST /api/work/claim HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    )
    await wait_for_waiters(runtime_of(queue).waiters, 1)
    writer.transport.abort()
    await wait_for_waiters(runtime_of(queue).waiters, 0)
    del reader
    await queue.submit("t")
    assert (await claim_one(client))["token"] == 1


async def test_waiting_claims_end_with_a_retryable_error(queue: onejob.Ledger, client: Client) -> None:
    waiting = asyncio.create_task(client.post("/api/work/claim", {"types": ["t"], "wait": 30, "holder": "w"}))
    await wait_for_waiters(runtime_of(queue).waiters, 1)
    queue._runtime.release_waiters()
    async with asyncio.timeout(15):
        answer = await waiting
    assert (answer.status, answer.code) == (503, "SERVICE_UNAVAILABLE")
    assert answer.headers["retry-after"] == "1"
    assert answer.body["error"]["retryable"]


async def test_too_many_waiting_claims_are_rate_limited(queue: onejob.Ledger, client: Client) -> None:
    runtime_of(queue).waiters._waiters_max = 2
    waiting = asyncio.create_task(claim(client, wait=1))
    await wait_for_waiters(runtime_of(queue).waiters, 1)
    answer = await client.post("/api/work/claim", {"types": ["t"], "wait": 1})
    assert (answer.status, answer.code) == (429, "RATE_LIMITED")
    await waiting


async def test_a_claim_whose_credential_is_revoked_while_waiting_gets_no_job(queue: onejob.Ledger) -> None:
    ledger = queue.acting_as(tenant="acme", user="root", actor=onejob.Actor.user("root"))
    keys = ApiKeys(ledger)
    made = await keys.create("w", roles=(Role.WORKER,))
    header = b"authorization: Bearer " + made.text.encode()
    async with serve_app(HttpApp(queue, config=ServiceConfig(auth=True))) as guarded:
        waiting = asyncio.create_task(guarded.post("/api/work/claim", {"types": ["t"], "wait": 20}, header))
        await wait_for_waiters(runtime_of(queue).waiters, 1)
        await keys.revoke(made.key.id)
        job_id = (await ledger.submit("t")).job_id
        async with asyncio.timeout(15):
            assert (await waiting).status == 401
        assert (await load_job_row(ledger, job_id)).token == 0


async def test_a_stopping_server_ends_all_waiting_claims(tmp_path: Path, settings: str) -> None:
    with run_server(tmp_path, settings) as server:
        claim = request("POST", "/api/work/claim", b'{"types": ["t"], "wait": 30, "holder": "w"}')
        clients = [await SocketClient.connect(server.port) for _ in range(60)]
        claims = [asyncio.create_task(client.ask(claim)) for client in clients]
        await asyncio.sleep(1)
        server.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            answers = await asyncio.gather(*claims)
        for client in clients:
            client.close()
        for answer in answers:
            assert answer is not None
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert answer.body["error"]["retryable"]
        assert await asyncio.to_thread(server.process.wait, 10) == 0
