"""Races of workers and submitters through two servers on one store; and requests with arbitrary values."""

import asyncio
import json
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

import onejob
from onejob.clock import FakeClock
from onejob.core.credentials import Role, has_permission
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.http.endpoints.work import ROUTES
from onejob.ledger.api_keys import ApiKeys
from tests.support.app_server import Client, serve_app
from tests.support.job_rows import load_job_row

from .work_requests import claim, claim_and_start, claim_one, fence, post_verb

UNUSUAL_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, 1e308, 2**53, 2**64, 2**200, "", "x", "\0", "\ud800", "x" * 5000, [], [[]] * 50,
    {}, {"a": {}}, [None], ["t"] * 101, float("nan"), float("inf"), "1",
)  # fmt: skip
FIELDS = (
    "types", "limit", "leaseSeconds", "holder", "worker", "start", "token", "progress", "logs", "offset", "result",
    "error", "final", "retryAfterSeconds", "cost", "delaySeconds", "resolution", "note",
)  # fmt: skip


@pytest.fixture
async def two_servers(queue: onejob.Ledger, url: str, clock: FakeClock) -> AsyncIterator[list[Client]]:
    """Two servers, each with its own engine on the store; with memory they share one."""
    if url == "memory://":
        async with serve_app(HttpApp(queue)) as first, serve_app(HttpApp(queue)) as second:
            yield [first, second]
        return
    async with (
        onejob.open(url, clock=clock, sweep=False) as other,
        serve_app(HttpApp(queue)) as first,
        serve_app(HttpApp(other)) as second,
    ):
        yield [first, second]


async def test_of_many_claims_for_one_job_one_wins(queue: onejob.Ledger, two_servers: list[Client]) -> None:
    for _ in range(5):
        job_id = (await queue.submit("t")).job_id
        won = await asyncio.gather(*(claim(two_servers[n % 2]) for n in range(10)))
        assert [job["job"]["id"] for jobs in won for job in jobs] == [job_id]
        assert (await load_job_row(queue, job_id)).token == 1


async def test_a_lost_finish_is_repeated_at_another_server(queue: onejob.Ledger, two_servers: list[Client]) -> None:
    await queue.submit("t")
    claimed = await claim_and_start(two_servers[0])
    answers = await asyncio.gather(*(post_verb(two_servers[n % 2], claimed, "finish", result=1) for n in range(6)))
    assert {(answer.status, answer.body["job"]["state"]) for answer in answers} == {(200, "success")}
    assert (await post_verb(two_servers[1], claimed, "finish", result=2)).code == "STALE"
    assert (await load_job_row(queue, claimed["job"]["id"])).events == 2


async def test_however_a_job_ends_its_slot_is_freed_once(queue: onejob.Ledger, two_servers: list[Client]) -> None:
    await queue.set_quota("local", onejob.Limits(max_concurrent=2))
    await queue.submit("kept")
    chance = Random(3)
    for n in range(12):
        job_id = (await queue.submit("t", n)).job_id
        assert (await queue.usage("local")).live == 2
        claimed = await claim_and_start(two_servers[0])
        acts = [post_verb(two_servers[k % 2], claimed, "finish", result=n) for k in range(2)]
        acts += [two_servers[k].ask("POST", f"/api/jobs/{job_id}/cancel") for k in range(2)]
        chance.shuffle(acts)
        await asyncio.gather(*acts)
        assert (await queue.job(job_id)).state in ("success", "cancelled")
        assert (await queue.usage("local")).live == 1


async def test_each_request_needs_its_role_and_its_tenant(queue: onejob.Ledger) -> None:
    keys: dict[tuple[str, Role], bytes] = {}
    for tenant in ("acme", "rival"):
        ledger = queue.acting_as(tenant=tenant, user="root", actor=onejob.Actor.user("root"))
        for role in Role:
            made = await ApiKeys(ledger).create(f"{tenant}-{role}", roles=(role,))
            keys[tenant, role] = b"authorization: Bearer " + made.text.encode()
    await queue.acting_as(tenant="acme", user="root", actor=onejob.Actor.user("root")).submit("t")
    async with serve_app(HttpApp(queue, config=ServiceConfig(auth=True))) as guarded:
        claim = {"types": ["t"], "start": True}
        (claimed,) = (await guarded.post("/api/work/claim", claim, keys["acme", Role.WORKER])).body["jobs"]
        for route in ROUTES:
            assert route.permission is not None
            path = route.path.replace("{id}", claimed["job"]["id"])
            assert (await guarded.post(path, {})).status == 401
            for role in Role:
                foreign = await guarded.post(path, _body_for(path, claimed), keys["rival", role])
                if not has_permission(frozenset({role}), route.permission):
                    assert foreign.code == "FORBIDDEN"
                elif "{id}" in route.path:
                    assert foreign.code == "NOT_FOUND"
                else:
                    assert foreign.body["jobs"] == []
        done = await guarded.post(f"/api/jobs/{claimed['job']['id']}/finish", fence(claimed), keys["acme", Role.WORKER])
        assert done.body["job"]["state"] == "success"


def _body_for(path: str, claimed: dict[str, Any]) -> dict[str, Any]:
    known: dict[str, dict[str, Any]] = {
        "claim": {"types": ["t"]},
        "resolve": {"resolution": "failed"},
        "rerun": {},
    }
    return known.get(path.rpartition("/")[2], fence(claimed))


@pytest.mark.parametrize("seed", range(3))
async def test_arbitrary_requests_never_cause_a_5xx(queue: onejob.Ledger, two_servers: list[Client], seed: int) -> None:
    chance = Random(seed)
    await queue.submit("t", max_attempts=100)
    claimed = await claim_one(two_servers[0], start=True)
    path = f"/api/jobs/{claimed['job']['id']}"
    for _ in range(150):
        verb = chance.choice(("start", "extend", "finish", "release", "resolve", "rerun", "claim"))
        body: dict[str, Any] = {
            name: chance.choice(UNUSUAL_VALUES) for name in chance.sample(FIELDS, chance.randint(0, 4))
        }
        if chance.random() < 0.7:
            body = ({"types": ["none"]} if verb == "claim" else fence(claimed)) | body
        data = json.dumps(body).encode()
        if chance.random() < 0.1:
            data = data[: chance.randrange(len(data))]
        target = "/api/work/claim" if verb == "claim" else f"{path}/{verb}"
        answer = await two_servers[0].ask("POST", target, data)
        assert answer.status in (200, 400, 404, 409, 413), (target, data, answer)
