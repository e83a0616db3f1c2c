"""Running jobs over HTTP: claim, start, extend, finish, release; what is late, foreign or lost changes nothing."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

import onejob
from onejob.clock import FakeClock
from onejob.core.roles import Role
from onejob.credentials import ApiKeys
from onejob.http.app import App
from onejob.http.config import ServiceConfig
from onejob.waiters import Waiters
from tests.edges.serving import Answer, Client, served

NOBODY = "01a1e2f5-39f9-73f8-930c-48a088963d1e"


@pytest.fixture
async def client(queue: onejob.Ledger) -> AsyncIterator[Client]:
    async with served(App(queue)) as client:
        yield client


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


async def test_a_job_is_claimed_started_extended_and_finished(queue: onejob.Ledger, client: Client) -> None:
    job_id = (await queue.submit("t", {"n": 1})).job_id
    taken = await one(client, worker="build-7")
    assert (taken["job"]["id"], taken["input"], taken["token"], taken["attempt"]) == (job_id, {"n": 1}, 1, 1)
    assert taken["holder"].startswith("build-7:")
    begun = await say(client, taken, "start")
    assert (begun.body["job"]["state"], begun.body["input"], begun.body["attempt"]) == (
        "running",
        {"n": 1},
        1,
    )
    kept = await say(client, taken, "extend", progress={"done": 0.5}, logs=["a", "b"], offset=0)
    assert (kept.body["logs"], kept.body["job"]["progress"]) == (2, {"done": 0.5})
    done = await say(client, taken, "finish", result={"sum": 42})
    assert (done.status, done.body["job"]["state"]) == (200, "success")
    assert done.body["job"]["startedAt"]
    assert done.body["job"]["endedAt"]
    assert await claimed(client) == []


async def test_claims_are_bounded_and_most_urgent_first(queue: onejob.Ledger, client: Client) -> None:
    for n in range(5):
        await queue.submit("t", n, priority=n)
    await queue.submit("other")
    assert [job["input"] for job in await claimed(client, limit=3)] == [4, 3, 2]
    assert [job["input"] for job in await claimed(client, limit=100)] == [1, 0]
    assert await claimed(client) == []


async def test_a_claim_repeated_with_its_holder_gets_the_same_jobs(
    queue: onejob.Ledger, client: Client, url: str
) -> None:
    for n in range(5):
        await queue.submit("t", n)
    first = await claimed(client, limit=3, holder="w-1")
    again = await claimed(client, limit=3, holder="w-1")
    assert [job["job"]["id"] for job in again] == [job["job"]["id"] for job in first]
    assert [job["token"] for job in again] == [1, 1, 1]
    assert len(await claimed(client, limit=3, holder="w-2")) == 2
    if url == "memory://":
        return  # it has no other process
    async with onejob.open(url, sweep=False) as other, served(App(other)) as elsewhere:
        there = await claimed(elsewhere, limit=3, holder="w-1")
        assert [job["job"]["id"] for job in there] == [job["job"]["id"] for job in first]


async def test_a_claim_that_starts_is_repeated_like_any_other(queue: onejob.Ledger, client: Client) -> None:
    await queue.submit("t", delivery=onejob.Delivery.AT_MOST_ONCE)
    first = await one(client, holder="w", start=True)
    again = await one(client, holder="w", start=True)
    assert first["job"]["state"] == again["job"]["state"] == "running"
    assert (again["attempt"], again["token"]) == (1, 1)
    assert (await say(client, again, "finish")).status == 200


async def test_a_job_that_its_holder_started_is_not_claimed_again(
    queue: onejob.Ledger, client: Client
) -> None:
    await queue.submit("t", 1)
    await queue.submit("t", 2)
    assert (await running(client, holder="w"))["input"] == 1
    assert (await one(client, holder="w"))["input"] == 2


async def test_of_two_deliveries_one_starts(queue: onejob.Ledger, client: Client) -> None:
    await queue.submit("t")
    taken = await one(client)
    path = f"/api/jobs/{taken['job']['id']}/start"
    bodies = [{"token": taken["token"], "holder": f"delivery-{n}"} for n in range(8)]
    answers = await asyncio.gather(*(client.post(path, body) for body in bodies))
    assert sorted(answer.status for answer in answers) == [200] + [409] * 7
    assert {answer.code for answer in answers if answer.status == 409} == {"STALE"}
    winner = next(body for body, answer in zip(bodies, answers, strict=True) if answer.status == 200)
    again = await client.post(path, winner)
    assert (again.status, again.body["attempt"]) == (200, 1)


async def test_stale_tokens_change_nothing(queue: onejob.Ledger, client: Client, clock: FakeClock) -> None:
    job_id = (await queue.submit("t", max_attempts=5)).job_id
    late = await running(client, leaseSeconds=1)
    clock.advance(61)
    await queue.sweep()
    taken = await running(client)
    assert taken["token"] == 2
    for verb in ("start", "extend", "finish", "release"):
        answer = await say(client, late, verb)
        assert (answer.status, answer.code) == (409, "STALE"), verb
        assert answer.body["error"]["details"] == {"state": "running", "token": 2}
        assert not answer.body["error"]["retryable"]
    wrong = await say(client, taken | {"holder": "somebody"}, "finish")
    assert wrong.code == "STALE"
    assert (await queue.job(job_id)).state == "running"
    assert (await say(client, taken, "finish")).body["job"]["attempts"] == 2


async def test_lost_answers_are_repeated(queue: onejob.Ledger, client: Client) -> None:
    await queue.submit("t")
    taken = await running(client)
    for _ in range(3):
        assert (await say(client, taken, "extend", logs=["x"], offset=0)).body["logs"] == 1
    for _ in range(3):
        assert (await say(client, taken, "finish", result=7)).body["job"]["state"] == "success"
    other = await say(client, taken, "finish", result=8)
    assert other.code == "STALE"
    assert (await client.get(f"/api/jobs/{taken['job']['id']}/result")).body == 7


async def test_a_failure_is_tried_again_unless_it_is_final(
    queue: onejob.Ledger, client: Client, clock: FakeClock
) -> None:
    await queue.submit("t", max_attempts=3)
    taken = await running(client)
    failed = await say(client, taken, "finish", error="no route", retryAfterSeconds=5)
    assert (failed.body["job"]["state"], failed.body["job"]["error"]) == ("scheduled", "no route")
    assert (await say(client, taken, "finish", error="no route", retryAfterSeconds=5)).status == 200
    assert await claimed(client) == []
    clock.advance(5.1)
    taken = await running(client)
    assert (taken["attempt"], taken["token"]) == (2, 2)
    failed = await say(client, taken, "finish", error="\N{SNOWMAN}" * 5000, final=True)
    assert failed.body["job"]["state"] == "failed"
    assert len(failed.body["job"]["error"].encode()) <= 300


async def test_cancel_races_finish_and_one_wins(queue: onejob.Ledger, client: Client) -> None:
    for n in range(10):
        job_id = (await queue.submit("t", n)).job_id
        taken = await running(client)
        said = [say(client, taken, "finish", result=n), client.ask("POST", f"/api/jobs/{job_id}/cancel")]
        answers = await asyncio.gather(*(said if n % 2 else said[::-1]))
        finished = answers[0 if n % 2 else 1]
        state = (await queue.job(job_id)).state
        assert state == ("success" if finished.status == 200 else "cancelled")
        if finished.status != 200:
            assert (finished.code, finished.body["error"]["details"]["state"]) == ("STALE", "cancelled")


async def test_a_worker_hears_that_its_job_was_cancelled(queue: onejob.Ledger, client: Client) -> None:
    job_id = (await queue.submit("t")).job_id
    taken = await running(client)
    await queue.cancel(job_id)
    for verb in ("extend", "finish", "release"):
        answer = await say(client, taken, verb)
        assert (answer.code, answer.body["error"]["details"]["state"]) == ("STALE", "cancelled")


async def test_a_released_job_is_ready_at_once_or_later(
    queue: onejob.Ledger, client: Client, clock: FakeClock
) -> None:
    await queue.submit("t")
    taken = await running(client)
    for _ in range(2):
        assert (await say(client, taken, "release")).body["job"]["attempts"] == 0
    taken = await one(client)
    assert (await say(client, taken, "release", delaySeconds=10)).body["job"]["state"] == "scheduled"
    assert await claimed(client) == []
    clock.advance(10.1)
    assert (await one(client))["token"] == 3


async def test_an_at_most_once_job_that_was_started_is_not_handed_back(
    queue: onejob.Ledger, client: Client, clock: FakeClock
) -> None:
    job_id = (await queue.submit("t", delivery=onejob.Delivery.AT_MOST_ONCE)).job_id
    taken = await running(client, leaseSeconds=1)
    assert (await say(client, taken, "release")).code == "NOT_ALLOWED"
    clock.advance(61)
    await queue.sweep()
    assert (await queue.job(job_id)).state == "lost"
    assert await claimed(client) == []
    assert (await say(client, taken, "finish", result=1)).code == "STALE"
    path = f"/api/jobs/{job_id}"
    assert (await client.ask("POST", f"{path}/rerun")).body["job"]["state"] == "pending"
    assert (await client.ask("POST", f"{path}/rerun")).code == "NOT_ALLOWED"
    again = await running(client)
    assert (again["job"]["id"], again["token"], again["attempt"]) == (job_id, 2, 1)


@pytest.mark.parametrize(
    ("word", "state"), [("succeeded", "success"), ("failed", "failed"), ("rerun", "pending")]
)
async def test_an_operator_decides_about_a_lost_job(
    queue: onejob.Ledger, client: Client, clock: FakeClock, word: str, state: str
) -> None:
    job_id = (await queue.submit("t", delivery=onejob.Delivery.AT_MOST_ONCE)).job_id
    await running(client, leaseSeconds=1)
    clock.advance(61)
    await queue.sweep()
    path = f"/api/jobs/{job_id}/resolve"
    told = await client.post(path, {"resolution": word, "note": "looked at the bank"})
    assert told.body["job"]["state"] == state
    assert (await client.post(path, {"resolution": "maybe"})).code == "VALIDATION_ERROR"


async def test_the_time_of_an_attempt_is_kept(queue: onejob.Ledger, client: Client, clock: FakeClock) -> None:
    await queue.submit("t", timeout=timedelta(seconds=90))
    taken = await one(client)
    begun = await say(client, taken, "start", leaseSeconds=60)
    assert begun.body["deadline"] > begun.body["leaseUntil"]
    clock.advance(59)
    kept = await say(client, taken, "extend", leaseSeconds=600)
    assert kept.body["leaseUntil"] == begun.body["deadline"]
    clock.advance(31)
    assert (await say(client, taken, "extend")).code == "TIMED_OUT"


@pytest.mark.parametrize(
    "wrong",
    [
        {"types": []},
        {"types": ["x"] * 101},
        {"types": ["a\n"]},
        {"limit": 0},
        {"limit": 101},
        {"limit": 1.5},
        {"limit": "1"},
        {"leaseSeconds": 0},
        {"leaseSeconds": -1},
        {"leaseSeconds": 86_401},
        {"leaseSeconds": 1e300},
        {"wait": 31},
        {"wait": -1},
        {"holder": ""},
        {"holder": "x" * 65},
        {"holder": "a\nb"},
        {"worker": "x" * 60},
        {"worker": "\x7f"},
        {"start": "yes"},
        {"more": 1},
    ],
)
async def test_absurd_claims_are_refused(queue: onejob.Ledger, client: Client, wrong: dict[str, Any]) -> None:
    await queue.submit("t")
    answer = await client.post("/api/work/claim", {"types": ["t"]} | wrong)
    assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")
    assert len(await claimed(client)) == 1


@pytest.mark.parametrize(
    ("verb", "wrong"),
    [
        ("start", {"token": 0}),
        ("start", {"token": 2**70}),
        ("start", {"leaseSeconds": 1e9}),
        ("extend", {"logs": ["x"] * 101}),
        ("extend", {"logs": [1]}),
        ("extend", {"offset": -1}),
        ("extend", {"progress": "x" * 600}),
        ("finish", {"retryAfterSeconds": -1}),
        ("finish", {"cost": -1}),
        ("release", {"delaySeconds": 1e12}),
    ],
)
async def test_absurd_words_are_refused(
    queue: onejob.Ledger, client: Client, verb: str, wrong: dict[str, Any]
) -> None:
    await queue.submit("t")
    taken = await running(client)
    answer = await say(client, taken, verb, **wrong)
    assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")
    assert (await say(client, taken, "finish")).status == 200


async def test_a_result_is_kept_as_it_was_sent_and_hides_nothing(
    queue: onejob.Ledger, client: Client
) -> None:
    job_id = (await queue.submit("t")).job_id
    taken = await running(client)
    path = f"/api/jobs/{job_id}"
    assert (await client.get(f"{path}/result")).code == "NOT_FOUND"
    head = f'{{"token": 1, "holder": "{taken["holder"]}", "result": '.encode()
    twice = await client.ask("POST", f"{path}/finish", head + b'{"a": 1, "a": 2}}')
    assert (twice.status, twice.code) == (400, "VALIDATION_ERROR")
    large = await client.ask("POST", f"{path}/finish", head + b'"' + b"x" * (1 << 20) + b'"}')
    assert (large.status, large.code) == (413, "PAYLOAD_TOO_LARGE")
    assert (await client.ask("POST", f"{path}/finish", head + b'{"b":1.50,"a":[]}}')).status == 200
    assert (await client.get(f"{path}/result")).body == {"b": 1.5, "a": []}


async def test_a_success_without_a_result_has_null(queue: onejob.Ledger, client: Client) -> None:
    job_id = (await queue.submit("t")).job_id
    assert (await say(client, await running(client), "finish")).status == 200
    answer = await client.get(f"/api/jobs/{job_id}/result")
    assert (answer.status, answer.body) == (200, None)
    assert (await client.get(f"/api/jobs/{NOBODY}/result")).status == 404


async def test_ten_thousand_log_lines_are_taken_once_and_the_newest_kept(
    queue: onejob.Ledger, client: Client
) -> None:
    job_id = (await queue.submit("t")).job_id
    taken = await running(client)
    for offset in range(0, 10_000, 100):
        lines = [f"line {n}" for n in range(offset, offset + 100)]
        assert (await say(client, taken, "extend", logs=lines, offset=offset)).body["logs"] == offset + 100
    gap = await say(client, taken, "extend", logs=["x"], offset=10_001)
    assert (gap.code, gap.body["error"]["details"]) == ("SEQUENCE_GAP", {"logs": 10_000})
    path = f"/api/jobs/{job_id}/logs"
    kept = (await client.get(path)).body
    assert (kept["offset"], kept["next"], kept["total"], len(kept["lines"])) == (9000, 9100, 10_000, 100)
    rest = (await client.get(f"{path}?offset=9990&limit=1000")).body
    assert rest["lines"] == [f"line {n}" for n in range(9990, 10_000)]
    assert (await client.get(f"{path}?offset=10000")).body["lines"] == []
    assert (await client.get(f"{path}?offset=x")).code == "VALIDATION_ERROR"
    await say(client, taken, "extend", logs=["y" * 5000], offset=10_000)
    assert len((await client.get(f"{path}?offset=10000")).body["lines"][0]) == 2000


async def test_a_watcher_is_told_of_state_progress_and_log_lines(
    queue: onejob.Ledger, client: Client
) -> None:
    job_id = (await queue.submit("t")).job_id
    watching = await client.watch(f"/api/jobs/{job_id}/events")
    taken = await running(client)
    await say(client, taken, "extend", progress={"done": 1}, logs=["a", "b"], offset=0)
    await say(client, taken, "finish", error="no", retryAfterSeconds=60)
    taken_again = asyncio.create_task(watching.all())
    await queue.cancel(job_id)
    frames = [frame for frame in await taken_again if frame.event]
    assert [frame.data["line"] for frame in frames if frame.event == "log"] == ["a", "b"]
    assert frames[-1].data == {"state": "cancelled"}
    again = await client.watch(f"/api/jobs/{job_id}/events", b"last-event-id: 1.1")
    rest = [frame for frame in await again.all() if frame.event]
    assert [frame.data["line"] for frame in rest if frame.event == "log"] == ["b"]
    assert [frame.event for frame in rest if frame.event in ("submitted", "cancelled")] == ["cancelled"]
    over = await client.get(f"/api/jobs/{job_id}/events", b"last-event-id: 2.2")
    assert over.status == 204
    assert (await client.get(f"/api/jobs/{job_id}/events?cursor=2.9")).status == 404
    assert (await client.get(f"/api/jobs/{job_id}/events?cursor=2.")).status == 400


async def test_a_watcher_hears_that_an_attempt_began(queue: onejob.Ledger, client: Client) -> None:
    job_id = (await queue.submit("t")).job_id
    taken = await running(client)
    spread = b'{"token": 1, "holder": "%b", "progress": [\n\n1\n]}' % taken["holder"].encode()
    assert (await client.ask("POST", f"/api/jobs/{job_id}/extend", spread)).status == 200
    watching = await client.watch(f"/api/jobs/{job_id}/events")
    told = {}
    async with asyncio.timeout(5):
        while "progress" not in told:
            frame = await anext(watching)
            told[frame.event] = frame.data
    assert (told["state"]["state"], told["state"]["attempts"]) == ("running", 1)
    assert told["progress"]["progress"] == [1]
    watching.go()


async def test_the_end_of_a_job_can_be_waited_for(queue: onejob.Ledger, client: Client) -> None:
    job_id = (await queue.submit("t")).job_id
    path = f"/api/jobs/{job_id}"
    assert (await client.get(f"{path}?wait=0.05")).body["job"]["state"] == "pending"
    taken = await running(client)
    waiting = [asyncio.create_task(client.get(f"{path}?wait=20")) for _ in range(5)]
    async with asyncio.timeout(5):
        while queue.tail.watchers != 5:
            await asyncio.sleep(0.01)
    await say(client, taken, "finish", result=1)
    async with asyncio.timeout(5):
        answers = await asyncio.gather(*waiting)
    assert {answer.body["job"]["state"] for answer in answers} == {"success"}
    assert queue.tail.watchers == 0
    assert (await client.get(f"{path}?wait=30")).body["job"]["state"] == "success"
    for wrong in ("31", "-1", "x", "1e1", ""):
        assert (await client.get(f"{path}?wait={wrong}")).code == "VALIDATION_ERROR", wrong
    assert (await client.get(f"/api/jobs/{NOBODY}?wait=1")).status == 404


async def test_whoever_waits_for_an_end_is_answered_when_the_server_leaves(
    queue: onejob.Ledger, client: Client
) -> None:
    job_id = (await queue.submit("t")).job_id
    waiting = asyncio.create_task(client.get(f"/api/jobs/{job_id}?wait=30"))
    async with asyncio.timeout(5):
        while not queue.tail.watchers:
            await asyncio.sleep(0.01)
    queue._host.release_waiters()
    async with asyncio.timeout(5):
        assert (await waiting).body["job"]["state"] == "pending"


async def test_whoever_waits_gets_a_job_when_there_is_one(queue: onejob.Ledger, client: Client) -> None:
    waiting = asyncio.create_task(one(client, wait=20))
    await until_waiting(queue.waiters, 1)
    job_id = (await queue.submit("t")).job_id
    async with asyncio.timeout(5):
        assert (await waiting)["job"]["id"] == job_id
    assert queue.waiters.count == 0
    assert await claimed(client, wait=0.1) == []


async def test_many_who_wait_share_one_look_and_get_each_job_once(
    queue: onejob.Ledger, client: Client
) -> None:
    waiting = [asyncio.create_task(claimed(client, wait=3)) for _ in range(20)]
    await until_waiting(queue.waiters, 20)
    async with asyncio.timeout(5):
        while len(looks(queue)) != 1:
            await asyncio.sleep(0.01)
    for n in range(10):
        await queue.submit("t", n)
    found = [job["input"] for jobs in await asyncio.gather(*waiting) for job in jobs]
    assert sorted(found) == list(range(10))
    assert not looks(queue)


async def test_whoever_goes_away_while_waiting_takes_no_job(queue: onejob.Ledger, client: Client) -> None:
    body = b'{"types": ["t"], "wait": 30}'
    reader, writer = await asyncio.open_connection("127.0.0.1", client._port)
    writer.write(
        b"POST /api/work/claim HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n%b"
        % (len(body), body)
    )
    await until_waiting(queue.waiters, 1)
    writer.transport.abort()
    await until_waiting(queue.waiters, 0)
    del reader
    await queue.submit("t")
    assert (await one(client))["token"] == 1


async def test_whoever_waits_is_released_with_a_retryable_answer(
    queue: onejob.Ledger, client: Client
) -> None:
    waiting = asyncio.create_task(client.post("/api/work/claim", {"types": ["t"], "wait": 30, "holder": "w"}))
    await until_waiting(queue.waiters, 1)
    queue._host.release_waiters()
    async with asyncio.timeout(5):
        answer = await waiting
    assert (answer.status, answer.code) == (503, "SERVICE_UNAVAILABLE")
    assert answer.headers["retry-after"] == "1"
    assert answer.body["error"]["retryable"]


async def test_too_many_who_wait_are_asked_to_come_back(queue: onejob.Ledger, client: Client) -> None:
    queue.waiters._waiters_max = 2
    waiting = asyncio.create_task(claimed(client, wait=1))
    await until_waiting(queue.waiters, 1)
    answer = await client.post("/api/work/claim", {"types": ["t"], "wait": 1})
    assert (answer.status, answer.code) == (429, "RATE_LIMITED")
    await waiting


async def test_jobs_of_other_tenants_are_not_there(queue: onejob.Ledger, client: Client) -> None:
    keys = {}
    for tenant in ("acme", "rival"):
        ledger = queue.acting(tenant=tenant, user="root", actor=onejob.Actor.user("root"))
        await ledger.submit("t", tenant)
        made = await ApiKeys(ledger).create(f"w-{tenant}", roles=(Role.WORKER,))
        keys[tenant] = b"authorization: Bearer " + made.text.encode()
    async with served(App(queue, config=ServiceConfig(auth=True))) as guarded:
        ask = {"types": ["t"], "limit": 10, "holder": "same"}
        taken = {
            tenant: (await guarded.post("/api/work/claim", ask, key)).body["jobs"]
            for tenant, key in keys.items()
        }
        assert [job["input"] for job in taken["acme"]] == ["acme"]
        assert [job["input"] for job in taken["rival"]] == ["rival"]
        (foreign,) = taken["rival"]
        path = f"/api/jobs/{foreign['job']['id']}"
        for verb in ("start", "extend", "finish", "release"):
            answer = await guarded.post(f"{path}/{verb}", fence(foreign), keys["acme"])
            assert (answer.status, answer.code) == (404, "NOT_FOUND"), verb
        for what in ("result", "logs"):
            assert (await guarded.get(f"{path}/{what}", keys["acme"])).status == 404
        assert (await guarded.post(f"{path}/rerun", {}, keys["acme"])).code == "FORBIDDEN"


async def test_a_credential_that_is_revoked_while_it_waits_gets_no_job(queue: onejob.Ledger) -> None:
    ledger = queue.acting(tenant="acme", user="root", actor=onejob.Actor.user("root"))
    keys = ApiKeys(ledger)
    made = await keys.create("w", roles=(Role.WORKER,))
    header = b"authorization: Bearer " + made.text.encode()
    async with served(App(queue, config=ServiceConfig(auth=True))) as guarded:
        waiting = asyncio.create_task(guarded.post("/api/work/claim", {"types": ["t"], "wait": 20}, header))
        await until_waiting(queue.waiters, 1)
        await keys.revoke(made.key.id)
        job_id = (await ledger.submit("t")).job_id
        async with asyncio.timeout(5):
            assert (await waiting).status == 401
        assert (await ledger.job(job_id)).head.token == 0


async def test_a_finish_settles_what_a_job_cost(queue: onejob.Ledger, client: Client) -> None:
    await queue.set_quota("local", onejob.Limits(max_concurrent=1))
    await queue.submit("t", estimated_cost=5)
    taken = await running(client)
    await say(client, taken, "finish", cost=1.25)
    usage = await queue.usage("local")
    assert usage.live == 0
    assert not usage.money_held


async def until_waiting(waiters: Waiters, count: int) -> None:
    async with asyncio.timeout(5):
        while waiters.count != count:
            await asyncio.sleep(0.01)


def looks(queue: onejob.Ledger) -> list[object]:
    return [watch for watch in queue._host.claims.lookout._lines.values() if watch.task is not None]
