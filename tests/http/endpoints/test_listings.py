"""The lists of the console over HTTP: search, details of a job, callbacks, users, reservations, clients; and who may ask."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

import onejob
from onejob.core.credentials import Role
from onejob.core.identity import Actor
from onejob.core.limits import Limits
from onejob.core.states import Delivery
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.ledger.api_keys import ApiKeys
from tests.support.app_server import Client, serve_app
from tests.support.ledger_settings import set_settings

HOOK = "https://shop.example/hook/secret"


@pytest.fixture
async def client(queue: onejob.Ledger) -> AsyncIterator[Client]:
    async with serve_app(HttpApp(queue)) as client:
        yield client


def as_user(queue: onejob.Ledger, user: str) -> onejob.Ledger:
    return queue.acting_as(tenant="default", user=user, actor=Actor.user(user))


async def test_a_search_finds_a_job_by_its_id_and_a_key_in_every_known_scope(
    queue: onejob.Ledger, client: Client
) -> None:
    job = (await queue.submit("a", idempotency_key="k")).job_id
    await queue.submit("b", idempotency_key="k")
    await queue.submit("c", idempotency_key="k", scope="special")
    await queue.submit("queue", idempotency_key="k", callback=HOOK)
    found = (await client.get("/api/search?q=k")).body
    assert found["job"] is None
    assert {one["job"]["type"] for one in found["keys"]} == {"a", "b", "c", "queue"}
    assert (await client.get(f"/api/search?q={job}")).body["job"]["id"] == job
    assert (await client.get("/api/search?q=nothing")).body["keys"] == []
    assert (await client.get("/api/search?q=%01")).body["keys"] == [], "what cannot be a key is not found"


@pytest.mark.parametrize("query", ["", "?q=", f"?q={'x' * 256}", "?p=1"])
async def test_a_search_needs_something_to_look_for(client: Client, query: str) -> None:
    assert (await client.get(f"/api/search{query}")).status == 400


async def test_an_operator_finds_the_key_of_a_user_who_owns_it(queue: onejob.Ledger) -> None:
    await set_settings(queue, key_owner="user")
    await as_user(queue, "ann").submit("a", idempotency_key="k")
    operator = await ApiKeys(queue).create("o", roles=[Role.OPERATOR])
    bob = await ApiKeys(queue).create("b", roles=[Role.SUBMITTER], user="bob")
    async with serve_app(HttpApp(queue, config=ServiceConfig(auth=True))) as client:
        found = await client.get("/api/search?q=k", b"x-api-key: " + operator.text.encode())
        assert [(one["scope"], one["user"]) for one in found.body["keys"]] == [("a", "ann")]
        hidden = await client.get("/api/search?q=k", b"x-api-key: " + bob.text.encode())
        assert (hidden.status, hidden.body["keys"]) == (200, [])


async def test_the_details_of_a_job_have_its_events_its_lease_and_its_callback(
    queue: onejob.Ledger, client: Client
) -> None:
    job = (await queue.submit("t", callback=HOOK, max_attempts=3)).job_id
    details = (await client.get(f"/api/jobs/{job}/details")).body
    assert (details["job"]["id"], details["attemptsMax"], details["leaseUntil"]) == (job, 3, None)
    assert [event["what"] for event in details["events"]] == ["submitted"]
    assert (details["callback"]["url"], details["callback"]["job"]["state"]) == (HOOK, "preparing")
    assert details["callback"]["reportedJobId"] == job
    holder = b"payments:0123456789abcdef0123456789abcdef"
    (attempt,) = await queue.claim("t", start=True, holder=holder)
    await queue.extend(attempt, logs=["one", "two"])
    running = (await client.get(f"/api/jobs/{job}/details")).body
    assert (running["worker"], running["logLines"]) == ("payments", 2)
    assert running["leaseUntil"]
    assert holder.decode() not in str(running), "who knows the holder could finish the job"
    await queue.finish(attempt)
    ended = (await client.get(f"/api/jobs/{job}/details")).body
    assert ended["deleteAfter"]
    assert ended["callback"]["job"]["state"] == "pending"


async def test_a_job_without_a_callback_has_none_and_an_unknown_job_is_not_found(
    queue: onejob.Ledger, client: Client
) -> None:
    job = (await queue.submit("t", delivery=Delivery.AT_MOST_ONCE)).job_id
    assert (await client.get(f"/api/jobs/{job}/details")).body["callback"] is None
    assert (await client.get("/api/jobs/01a1e393-0000-7000-8000-000000000000/details")).status == 404


async def test_callbacks_are_listed_and_their_urls_are_for_those_who_may_inspect(queue: onejob.Ledger) -> None:
    await set_settings(queue, key_owner="user")
    key = await ApiKeys(queue).create("s", roles=[Role.SUBMITTER], user="ann")
    operator = await ApiKeys(queue).create("o", roles=[Role.OPERATOR])
    job = (await as_user(queue, "ann").submit("t", callback=HOOK)).job_id
    await as_user(queue, "bob").submit("t", callback=HOOK)
    for hide, shown in ((False, HOOK), (True, None)):
        config = ServiceConfig(auth=True, hide_payloads=hide)
        async with serve_app(HttpApp(queue, config=config)) as client:
            all_of_them = await client.get("/api/callbacks", b"x-api-key: " + operator.text.encode())
            assert [one["url"] for one in all_of_them.body["callbacks"]] == [shown] * 2
            own = await client.get("/api/callbacks?state=preparing", b"x-api-key: " + key.text.encode())
            assert [(one["reportedJobId"], one["url"]) for one in own.body["callbacks"]] == [(job, None)]


async def test_users_are_listed_with_usage_and_limits_page_by_page(queue: onejob.Ledger, client: Client) -> None:
    assert (await client.get("/api/users")).body["users"] == []
    for user in ("ann", "bob", "carol"):
        await queue.set_quota(user, Limits(max_concurrent=5))
    await queue.acting_as(tenant="default", user="ann", actor=Actor.user("ann")).submit("t")
    users: dict[str, Any] = {}
    cursor = ""
    while True:
        page = (await client.get(f"/api/users?limit=2{cursor}")).body
        users |= {one["usage"]["user"]: one for one in page["users"]}
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert set(users) == {"ann", "bob", "carol"}
    assert users["ann"]["usage"]["used"] == 1
    assert users["bob"]["limits"] == {"maxConcurrent": 5}
    assert users["bob"]["usage"]["limits"] == {"maxConcurrent": 5}


async def test_reservations_of_all_users_are_listed(queue: onejob.Ledger, client: Client) -> None:
    slots = {await queue.reserve_job_slot(user, 3) for user in ("ann", "bob")}
    found = (await client.get("/api/users/reservations")).body["reservations"]
    assert {one["id"] for one in found} == slots
    assert {one["user"] for one in found} == {"ann", "bob"}


async def test_sequenced_clients_are_listed(queue: onejob.Ledger, client: Client) -> None:
    for number in (1, 2):
        await queue.submit_sequence("till", number, f"till-{number}", "t", scope="tills")
    (found,) = (await client.get("/api/clients")).body["clients"]
    assert (found["clientId"], found["scope"], found["lastCommittedSequence"]) == ("till", "tills", 2)
    assert found["isIdle"] is False


async def test_a_schedule_is_paused_and_resumed(queue: onejob.Ledger, client: Client) -> None:
    await queue.admin.register_schedule("nightly", type="t", timetable="0 3 * * *", catch_up=1)
    paused = await client.ask("POST", "/api/schedules/nightly/pause", b"")
    assert paused.body["schedule"]["pausedBy"] == "client:local"
    (shown,) = (await client.get("/api/schedules")).body["schedules"]
    assert (shown["name"], shown["timetable"]) == ("nightly", "0 3 * * *")
    assert shown["pausedAt"]
    resumed = await client.ask("POST", "/api/schedules/nightly/resume", b"")
    assert resumed.body["schedule"]["pausedAt"] is None
    assert (await client.ask("POST", "/api/schedules/daily/pause", b"")).status == 404


@pytest.mark.parametrize("path", ["/api/schedules", "/api/users", "/api/users/reservations", "/api/clients"])
async def test_lists_of_all_users_are_for_operators(queue: onejob.Ledger, path: str) -> None:
    keys = {role: (await ApiKeys(queue).create(role, roles=[role])).text for role in Role}
    async with serve_app(HttpApp(queue, config=ServiceConfig(auth=True))) as client:
        for role, status in {"submitter": 403, "worker": 403, "operator": 200, "admin": 200, "metrics": 403}.items():
            assert (await client.get(path, b"x-api-key: " + keys[Role(role)].encode())).status == status, role
        answer = await client.get(f"{path}?cursor=!", b"x-api-key: " + keys[Role.ADMIN].encode())
        assert answer.status == 400


async def test_a_dry_run_says_where_the_bodies_differ(client: Client) -> None:
    await client.post("/api/jobs", {"type": "t", "input": {"a": 1, "b": 2}}, b"idempotency-key: k")
    body = {"type": "t", "input": {"a": 1, "b": 3}}
    answer = await client.post("/api/jobs?dryRun=true", body, b"idempotency-key: k")
    assert (answer.body["idempotency"]["outcome"], answer.body["paths"]) == ("conflict", ["/input/b"])
