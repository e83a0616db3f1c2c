"""Requests of a worker over HTTP, for tests."""

import asyncio
from typing import Any

import onejob
from onejob.runtime.wakeups import Waiters
from tests.support.app_server import Client, HttpResponse


async def claim(client: Client, **more: Any) -> list[dict[str, Any]]:
    answer = await client.post("/api/work/claim", {"types": ["t"]} | more)
    assert answer.status == 200, answer
    jobs: list[dict[str, Any]] = answer.body["jobs"]
    return jobs


async def claim_one(client: Client, **more: Any) -> dict[str, Any]:
    (job,) = await claim(client, **more)
    return job


def fence(claimed: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"token": claimed["token"], "holder": claimed["holder"]} | more


async def post_verb(client: Client, claimed: dict[str, Any], verb: str, **more: Any) -> HttpResponse:
    return await client.post(f"/api/jobs/{claimed['job']['id']}/{verb}", fence(claimed, **more))


async def claim_and_start(client: Client, **more: Any) -> dict[str, Any]:
    claimed = await claim_one(client, **more)
    assert (await post_verb(client, claimed, "start")).status == 200
    return claimed


async def wait_for_waiters(waiters: Waiters, count: int) -> None:
    async with asyncio.timeout(15):
        while waiters.count != count:
            await asyncio.sleep(0.01)


def active_polls(queue: onejob.Ledger) -> list[object]:
    return [topic for topic in queue._runtime.claims.wakeups._topics.values() if topic.poll_task is not None]
