"""Running jobs over HTTP: claim, start, extend, finish, release; stale and foreign reports change nothing."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

import onejob
from onejob.clock import FakeClock
from onejob.core.credentials import Role
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.ledger.api_keys import ApiKeys
from tests.support.app_server import Client, serve_app

from .work_requests import claim, claim_and_start, claim_one, fence, post_verb


@pytest.fixture
async def client(queue: onejob.Ledger) -> AsyncIterator[Client]:
    async with serve_app(HttpApp(queue)) as client:
        yield client


async def test_a_job_is_claimed_started_extended_and_finished(queue: onejob.Ledger, client: Client) -> None:
    job_id = (await queue.submit("t", {"n": 1})).job_id
    claimed = await claim_one(client, worker="build-7")
    assert (claimed["job"]["id"], claimed["input"], claimed["token"], claimed["attempt"]) == (job_id, {"n": 1}, 1, 1)
    assert claimed["holder"].startswith("build-7:")
    started = await post_verb(client, claimed, "start")
    assert (started.body["job"]["state"], started.body["input"], started.body["attempt"]) == (
        "running",
        {"n": 1},
        1,
    )
    extended = await post_verb(client, claimed, "extend", progress={"done": 0.5}, logs=["a", "b"], offset=0)
    assert (extended.body["logs"], extended.body["job"]["progress"]) == (2, {"done": 0.5})
    done = await post_verb(client, claimed, "finish", result={"sum": 42})
    assert (done.status, done.body["job"]["state"]) == (200, "success")
    assert done.body["job"]["startedAt"]
    assert done.body["job"]["endedAt"]
    assert await claim(client) == []


async def test_claims_are_bounded_and_most_urgent_first(queue: onejob.Ledger, client: Client) -> None:
    for n in range(5):
        await queue.submit("t", n, priority=n)
    await queue.submit("other")
    assert [job["input"] for job in await claim(client, limit=3)] == [4, 3, 2]
    assert [job["input"] for job in await claim(client, limit=100)] == [1, 0]
    assert await claim(client) == []


async def test_a_claim_repeated_with_its_holder_gets_the_same_jobs(
    queue: onejob.Ledger, client: Client, url: str
) -> None:
    for n in range(5):
        await queue.submit("t", n)
    first = await claim(client, limit=3, holder="w-1")
    again = await claim(client, limit=3, holder="w-1")
    assert [job["job"]["id"] for job in again] == [job["job"]["id"] for job in first]
    assert [job["token"] for job in again] == [1, 1, 1]
    assert len(await claim(client, limit=3, holder="w-2")) == 2
    if url == "memory://":
        return  # memory has one process only
    async with onejob.open(url, sweep=False) as other, serve_app(HttpApp(other)) as elsewhere:
        repeated = await claim(elsewhere, limit=3, holder="w-1")
        assert [job["job"]["id"] for job in repeated] == [job["job"]["id"] for job in first]


async def test_a_claim_that_starts_is_repeated_like_any_other(queue: onejob.Ledger, client: Client) -> None:
    await queue.submit("t", delivery=onejob.Delivery.AT_MOST_ONCE)
    first = await claim_one(client, holder="w", start=True)
    again = await claim_one(client, holder="w", start=True)
    assert first["job"]["state"] == again["job"]["state"] == "running"
    assert (again["attempt"], again["token"]) == (1, 1)
    assert (await post_verb(client, again, "finish")).status == 200


async def test_a_job_that_its_holder_started_is_not_claimed_again(queue: onejob.Ledger, client: Client) -> None:
    await queue.submit("t", 1)
    await queue.submit("t", 2)
    assert (await claim_and_start(client, holder="w"))["input"] == 1
    assert (await claim_one(client, holder="w"))["input"] == 2


async def test_of_two_deliveries_one_starts(queue: onejob.Ledger, client: Client) -> None:
    await queue.submit("t")
    claimed = await claim_one(client)
    path = f"/api/jobs/{claimed['job']['id']}/start"
    bodies = [{"token": claimed["token"], "holder": f"delivery-{n}"} for n in range(8)]
    answers = await asyncio.gather(*(client.post(path, body) for body in bodies))
    assert sorted(answer.status for answer in answers) == [200] + [409] * 7
    assert {answer.code for answer in answers if answer.status == 409} == {"STALE"}
    winner = next(body for body, answer in zip(bodies, answers, strict=True) if answer.status == 200)
    again = await client.post(path, winner)
    assert (again.status, again.body["attempt"]) == (200, 1)


async def test_stale_tokens_change_nothing(queue: onejob.Ledger, client: Client, clock: FakeClock) -> None:
    job_id = (await queue.submit("t", max_attempts=5)).job_id
    stale = await claim_and_start(client, leaseSeconds=1)
    clock.advance(61)
    await queue.admin.sweep()
    claimed = await claim_and_start(client)
    assert claimed["token"] == 2
    for verb in ("start", "extend", "finish", "release"):
        answer = await post_verb(client, stale, verb)
        assert (answer.status, answer.code) == (409, "STALE"), verb
        assert answer.body["error"]["details"] == {"state": "running", "token": 2}
        assert not answer.body["error"]["retryable"]
    wrong = await post_verb(client, claimed | {"holder": "other"}, "finish")
    assert wrong.code == "STALE"
    assert (await queue.job(job_id)).state == "running"
    assert (await post_verb(client, claimed, "finish")).body["job"]["attempts"] == 2


async def test_repeated_reports_get_the_same_response(queue: onejob.Ledger, client: Client) -> None:
    await queue.submit("t")
    claimed = await claim_and_start(client)
    for _ in range(3):
        assert (await post_verb(client, claimed, "extend", logs=["x"], offset=0)).body["logs"] == 1
    for _ in range(3):
        assert (await post_verb(client, claimed, "finish", result=7)).body["job"]["state"] == "success"
    other = await post_verb(client, claimed, "finish", result=8)
    assert other.code == "STALE"
    assert (await client.get(f"/api/jobs/{claimed['job']['id']}/result")).body == 7


async def test_a_failed_attempt_is_retried_unless_it_is_final(
    queue: onejob.Ledger, client: Client, clock: FakeClock
) -> None:
    await queue.submit("t", max_attempts=3)
    claimed = await claim_and_start(client)
    failed = await post_verb(client, claimed, "finish", error="no route", retryAfterSeconds=5)
    assert (failed.body["job"]["state"], failed.body["job"]["error"]) == ("scheduled", "no route")
    assert (await post_verb(client, claimed, "finish", error="no route", retryAfterSeconds=5)).status == 200
    assert await claim(client) == []
    clock.advance(5.1)
    claimed = await claim_and_start(client)
    assert (claimed["attempt"], claimed["token"]) == (2, 2)
    failed = await post_verb(client, claimed, "finish", error="\N{SNOWMAN}" * 5000, final=True)
    assert failed.body["job"]["state"] == "failed"
    assert len(failed.body["job"]["error"].encode()) <= 300


async def test_cancel_races_finish_and_one_wins(queue: onejob.Ledger, client: Client) -> None:
    for n in range(10):
        job_id = (await queue.submit("t", n)).job_id
        claimed = await claim_and_start(client)
        requests = [post_verb(client, claimed, "finish", result=n), client.ask("POST", f"/api/jobs/{job_id}/cancel")]
        answers = await asyncio.gather(*(requests if n % 2 else requests[::-1]))
        finished = answers[0 if n % 2 else 1]
        state = (await queue.job(job_id)).state
        assert state == ("success" if finished.status == 200 else "cancelled")
        if finished.status != 200:
            assert (finished.code, finished.body["error"]["details"]["state"]) == ("STALE", "cancelled")


async def test_a_worker_learns_that_its_job_was_cancelled(queue: onejob.Ledger, client: Client) -> None:
    job_id = (await queue.submit("t")).job_id
    claimed = await claim_and_start(client)
    await queue.cancel(job_id)
    for verb in ("extend", "finish", "release"):
        answer = await post_verb(client, claimed, verb)
        assert (answer.code, answer.body["error"]["details"]["state"]) == ("STALE", "cancelled")


async def test_a_released_job_is_ready_at_once_or_later(queue: onejob.Ledger, client: Client, clock: FakeClock) -> None:
    await queue.submit("t")
    claimed = await claim_and_start(client)
    for _ in range(2):
        assert (await post_verb(client, claimed, "release")).body["job"]["attempts"] == 0
    claimed = await claim_one(client)
    assert (await post_verb(client, claimed, "release", delaySeconds=10)).body["job"]["state"] == "scheduled"
    assert await claim(client) == []
    clock.advance(10.1)
    assert (await claim_one(client))["token"] == 3


async def test_an_at_most_once_job_that_was_started_is_not_released(
    queue: onejob.Ledger, client: Client, clock: FakeClock
) -> None:
    job_id = (await queue.submit("t", delivery=onejob.Delivery.AT_MOST_ONCE)).job_id
    claimed = await claim_and_start(client, leaseSeconds=1)
    assert (await post_verb(client, claimed, "release")).code == "NOT_ALLOWED"
    clock.advance(61)
    await queue.admin.sweep()
    assert (await queue.job(job_id)).state == "lost"
    assert await claim(client) == []
    assert (await post_verb(client, claimed, "finish", result=1)).code == "STALE"
    path = f"/api/jobs/{job_id}"
    assert (await client.ask("POST", f"{path}/rerun")).body["job"]["state"] == "pending"
    assert (await client.ask("POST", f"{path}/rerun")).code == "NOT_ALLOWED"
    again = await claim_and_start(client)
    assert (again["job"]["id"], again["token"], again["attempt"]) == (job_id, 2, 1)


async def test_a_repeated_rerun_with_its_key_gets_the_same_answer(queue: onejob.Ledger, client: Client) -> None:
    job_id = (await queue.submit("t", max_attempts=1)).job_id
    claimed = await claim_and_start(client)
    await post_verb(client, claimed, "finish", error="broken")
    path, key = f"/api/jobs/{job_id}", b'idempotency-key: "again-1"'
    first, second = [await client.post(f"{path}/rerun", {}, key) for _ in range(2)]
    assert (first.status, first.body["job"]["state"]) == (200, "pending")
    assert (second.status, second.body["job"]) == (200, first.body["job"])
    by_resolve = await client.post(f"{path}/resolve", {"resolution": "rerun"}, key)
    assert (by_resolve.status, by_resolve.body["job"]) == (200, first.body["job"])
    assert (await client.post(f"{path}/rerun", {}, b"idempotency-key: again-2")).code == "NOT_ALLOWED"
    for other in (
        await client.post(f"{path}/cancel", {}, key),
        await client.post(f"{path}/resolve", {"resolution": "failed"}, key),
    ):
        assert (other.status, other.code) == (409, "IDEMPOTENCY_KEY_REUSED")
    assert (await client.post(f"{path}/rerun", {}, b"idempotency-key: ")).status == 400


@pytest.mark.parametrize(
    ("resolution", "state"), [("succeeded", "success"), ("failed", "failed"), ("rerun", "pending")]
)
async def test_an_operator_resolves_a_lost_job(
    queue: onejob.Ledger, client: Client, clock: FakeClock, resolution: str, state: str
) -> None:
    job_id = (await queue.submit("t", delivery=onejob.Delivery.AT_MOST_ONCE)).job_id
    await claim_and_start(client, leaseSeconds=1)
    clock.advance(61)
    await queue.admin.sweep()
    path = f"/api/jobs/{job_id}/resolve"
    resolved = await client.post(path, {"resolution": resolution, "note": "checked with the bank"})
    assert resolved.body["job"]["state"] == state
    assert (await client.post(path, {"resolution": "maybe"})).code == "VALIDATION_ERROR"


async def test_an_attempt_times_out_even_if_it_is_extended(
    queue: onejob.Ledger, client: Client, clock: FakeClock
) -> None:
    await queue.submit("t", timeout=timedelta(seconds=90))
    claimed = await claim_one(client)
    started = await post_verb(client, claimed, "start", leaseSeconds=60)
    assert started.body["deadline"] > started.body["leaseUntil"]
    clock.advance(59)
    extended = await post_verb(client, claimed, "extend", leaseSeconds=600)
    assert extended.body["leaseUntil"] == started.body["deadline"]
    clock.advance(31)
    assert (await post_verb(client, claimed, "extend")).code == "TIMED_OUT"


async def test_jobs_of_other_tenants_are_not_found(queue: onejob.Ledger, client: Client) -> None:
    keys = {}
    for tenant in ("acme", "rival"):
        ledger = queue.acting_as(tenant=tenant, user="root", actor=onejob.Actor.user("root"))
        await ledger.submit("t", tenant)
        made = await ApiKeys(ledger).create(f"w-{tenant}", roles=(Role.WORKER,))
        keys[tenant] = b"authorization: Bearer " + made.text.encode()
    async with serve_app(HttpApp(queue, config=ServiceConfig(auth=True))) as guarded:
        ask = {"types": ["t"], "limit": 10, "holder": "same"}
        claimed = {
            tenant: (await guarded.post("/api/work/claim", ask, key)).body["jobs"] for tenant, key in keys.items()
        }
        assert [job["input"] for job in claimed["acme"]] == ["acme"]
        assert [job["input"] for job in claimed["rival"]] == ["rival"]
        (foreign,) = claimed["rival"]
        path = f"/api/jobs/{foreign['job']['id']}"
        for verb in ("start", "extend", "finish", "release"):
            answer = await guarded.post(f"{path}/{verb}", fence(foreign), keys["acme"])
            assert (answer.status, answer.code) == (404, "NOT_FOUND"), verb
        for what in ("result", "logs"):
            assert (await guarded.get(f"{path}/{what}", keys["acme"])).status == 404
        assert (await guarded.post(f"{path}/rerun", {}, keys["acme"])).code == "FORBIDDEN"


async def test_a_finish_settles_what_a_job_cost(queue: onejob.Ledger, client: Client) -> None:
    await queue.set_quota("local", onejob.Limits(max_concurrent=1))
    await queue.submit("t", estimated_cost=5)
    claimed = await claim_and_start(client)
    await post_verb(client, claimed, "finish", cost=1.25)
    usage = await queue.usage("local")
    assert usage.live == 0
    assert not usage.money_held
