"""The result, the log lines and the end of a job over HTTP, while it runs and afterwards."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import onejob
from onejob.http.app import HttpApp
from onejob.ledger.base import runtime_of
from tests.support.app_server import Client, serve_app

from .work_requests import claim_and_start, post_verb

MISSING_JOB_ID = "01a1e2f5-39f9-73f8-930c-48a088963d1e"


@pytest.fixture
async def client(queue: onejob.Ledger) -> AsyncIterator[Client]:
    async with serve_app(HttpApp(queue)) as client:
        yield client


async def test_a_result_is_stored_as_sent_and_checked_for_duplicate_members(
    queue: onejob.Ledger, client: Client
) -> None:
    job_id = (await queue.submit("t")).job_id
    claimed = await claim_and_start(client)
    path = f"/api/jobs/{job_id}"
    assert (await client.get(f"{path}/result")).code == "NOT_FOUND"
    prefix = f'{{"token": 1, "holder": "{claimed["holder"]}", "result": '.encode()
    twice = await client.ask("POST", f"{path}/finish", prefix + b'{"a": 1, "a": 2}}')
    assert (twice.status, twice.code) == (400, "VALIDATION_ERROR")
    large = await client.ask("POST", f"{path}/finish", prefix + b'"' + b"x" * (1 << 20) + b'"}')
    assert (large.status, large.code) == (413, "PAYLOAD_TOO_LARGE")
    assert (await client.ask("POST", f"{path}/finish", prefix + b'{"b":1.50,"a":[]}}')).status == 200
    assert (await client.get(f"{path}/result")).body == {"b": 1.5, "a": []}


async def test_a_success_without_a_result_has_null(queue: onejob.Ledger, client: Client) -> None:
    job_id = (await queue.submit("t")).job_id
    assert (await post_verb(client, await claim_and_start(client), "finish")).status == 200
    answer = await client.get(f"/api/jobs/{job_id}/result")
    assert (answer.status, answer.body) == (200, None)
    assert (await client.get(f"/api/jobs/{MISSING_JOB_ID}/result")).status == 404


async def test_ten_thousand_log_lines_are_appended_once_and_the_newest_are_kept(
    queue: onejob.Ledger, client: Client
) -> None:
    job_id = (await queue.submit("t")).job_id
    claimed = await claim_and_start(client)
    for offset in range(0, 10_000, 100):
        lines = [f"line {n}" for n in range(offset, offset + 100)]
        assert (await post_verb(client, claimed, "extend", logs=lines, offset=offset)).body["logs"] == offset + 100
    gap = await post_verb(client, claimed, "extend", logs=["x"], offset=10_001)
    assert (gap.code, gap.body["error"]["details"]) == ("SEQUENCE_GAP", {"logs": 10_000})
    path = f"/api/jobs/{job_id}/logs"
    page = (await client.get(path)).body
    assert (page["offset"], page["next"], page["total"], len(page["lines"])) == (9000, 9100, 10_000, 100)
    rest = (await client.get(f"{path}?offset=9990&limit=1000")).body
    assert rest["lines"] == [f"line {n}" for n in range(9990, 10_000)]
    assert (await client.get(f"{path}?offset=10000")).body["lines"] == []
    assert (await client.get(f"{path}?offset=x")).code == "VALIDATION_ERROR"
    await post_verb(client, claimed, "extend", logs=["y" * 5000], offset=10_000)
    assert len((await client.get(f"{path}?offset=10000")).body["lines"][0]) == 2000


async def test_a_watcher_gets_state_progress_and_log_lines(queue: onejob.Ledger, client: Client) -> None:
    job_id = (await queue.submit("t")).job_id
    watching = await client.open_stream(f"/api/jobs/{job_id}/events")
    claimed = await claim_and_start(client)
    await post_verb(client, claimed, "extend", progress={"done": 1}, logs=["a", "b"], offset=0)
    await post_verb(client, claimed, "finish", error="no", retryAfterSeconds=60)
    reading = asyncio.create_task(watching.read_all())
    await queue.cancel(job_id)
    frames = [frame for frame in await reading if frame.event]
    assert [frame.data["line"] for frame in frames if frame.event == "log"] == ["a", "b"]
    assert frames[-1].data == {"state": "cancelled"}
    again = await client.open_stream(f"/api/jobs/{job_id}/events", b"last-event-id: 1.1")
    rest = [frame for frame in await again.read_all() if frame.event]
    assert [frame.data["line"] for frame in rest if frame.event == "log"] == ["b"]
    assert [frame.event for frame in rest if frame.event in ("submitted", "cancelled")] == ["cancelled"]
    over = await client.get(f"/api/jobs/{job_id}/events", b"last-event-id: 2.2")
    assert over.status == 204
    assert (await client.get(f"/api/jobs/{job_id}/events?cursor=2.9")).status == 404
    assert (await client.get(f"/api/jobs/{job_id}/events?cursor=2.")).status == 400


async def test_a_watcher_sees_the_start_of_an_attempt(queue: onejob.Ledger, client: Client) -> None:
    job_id = (await queue.submit("t")).job_id
    claimed = await claim_and_start(client)
    spread = b'{"token": 1, "holder": "%b", "progress": [\n\n1\n]}' % claimed["holder"].encode()
    assert (await client.ask("POST", f"/api/jobs/{job_id}/extend", spread)).status == 200
    watching = await client.open_stream(f"/api/jobs/{job_id}/events")
    received = {}
    async with asyncio.timeout(15):
        while "progress" not in received:
            frame = await anext(watching)
            received[frame.event] = frame.data
    assert (received["state"]["state"], received["state"]["attempts"]) == ("running", 1)
    assert received["progress"]["progress"] == [1]
    watching.disconnect()


async def test_the_end_of_a_job_can_be_waited_for(queue: onejob.Ledger, client: Client) -> None:
    job_id = (await queue.submit("t")).job_id
    path = f"/api/jobs/{job_id}"
    assert (await client.get(f"{path}?wait=0.05")).body["job"]["state"] == "pending"
    claimed = await claim_and_start(client)
    waiting = [asyncio.create_task(client.get(f"{path}?wait=20")) for _ in range(5)]
    async with asyncio.timeout(15):
        while runtime_of(queue).job_watcher.watcher_count != 5:
            await asyncio.sleep(0.01)
    await post_verb(client, claimed, "finish", result=1)
    async with asyncio.timeout(15):
        answers = await asyncio.gather(*waiting)
    assert {answer.body["job"]["state"] for answer in answers} == {"success"}
    assert runtime_of(queue).job_watcher.watcher_count == 0
    assert (await client.get(f"{path}?wait=30")).body["job"]["state"] == "success"
    for wrong in ("31", "-1", "x", "1e1", ""):
        assert (await client.get(f"{path}?wait={wrong}")).code == "VALIDATION_ERROR", wrong
    assert (await client.get(f"/api/jobs/{MISSING_JOB_ID}?wait=1")).status == 404


async def test_a_request_that_waits_for_an_end_is_answered_when_the_server_stops(
    queue: onejob.Ledger, client: Client
) -> None:
    job_id = (await queue.submit("t")).job_id
    waiting = asyncio.create_task(client.get(f"/api/jobs/{job_id}?wait=30"))
    async with asyncio.timeout(15):
        while not runtime_of(queue).job_watcher.watcher_count:
            await asyncio.sleep(0.01)
    queue._runtime.release_waiters()
    async with asyncio.timeout(15):
        assert (await waiting).body["job"]["state"] == "pending"
