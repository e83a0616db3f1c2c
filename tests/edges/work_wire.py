"""What a worker says over HTTP, for tests."""

import asyncio
from typing import Any

import onejob
from onejob.ledger.wakeups import Waiters
from tests.edges.serving import Answer, Client


async def claimed(client: Client, **more: Any) -> list[dict[str, Any]]:
    answer = await client.post("/api/work/claim", {"types": ["t"]} | more)
    assert answer.status == 200, answer
    jobs: list[dict[str, Any]] = answer.body["jobs"]
    return jobs


async def one(client: Client, **more: Any) -> dict[str, Any]:
    (job,) = await claimed(client, **more)
    return job


def fence(taken: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"token": taken["token"], "holder": taken["holder"]} | more


async def say(client: Client, taken: dict[str, Any], verb: str, **more: Any) -> Answer:
    return await client.post(f"/api/jobs/{taken['job']['id']}/{verb}", fence(taken, **more))


async def running(client: Client, **more: Any) -> dict[str, Any]:
    taken = await one(client, **more)
    assert (await say(client, taken, "start")).status == 200
    return taken


async def until_waiting(waiters: Waiters, count: int) -> None:
    async with asyncio.timeout(5):
        while waiters.count != count:
            await asyncio.sleep(0.01)


def looks(queue: onejob.Ledger) -> list[object]:
    return [watch for watch in queue._runtime.claims.wakeups._topics.values() if watch.poll_task is not None]
