"""Keys over HTTP: their history, listing and forgetting them, and purging a tenant."""

from collections.abc import AsyncIterator
from datetime import timedelta
from urllib.parse import quote

import pytest

import onejob
from onejob.clock import FakeClock
from onejob.core.credentials import Role
from onejob.http.app import HttpApp
from onejob.http.request import Credential, Scope
from onejob.runtime.callers import Caller
from tests.support.app_server import Client, HttpResponse, serve_app
from tests.support.ledger_settings import set_settings

UNUSUAL_KEYS = [
    "a/b", "/", "//", ".", "..", "a%2Fb", "%", "%00", "a b", "+", "a+b", "?x=1#y", "a&b=c;d", '"q"', "a\\b",
    "events", "ä€😀", "😀" * 255, "e\u0301", "k" * 255,
]  # fmt: skip


@pytest.fixture
async def client(queue: onejob.Ledger) -> AsyncIterator[Client]:
    async with serve_app(HttpApp(queue)) as client:
        yield client


def key_path(key: str, scope: str = "t") -> str:
    return f"/api/keys/{quote(key, safe='')}?scope={quote(scope, safe='')}"


async def test_the_history_of_a_key_is_shown(queue: onejob.Ledger, client: Client) -> None:
    made = await client.post("/api/jobs", {"type": "t", "input": 1}, b"idempotency-key: k")
    await client.post("/api/jobs", {"type": "t", "input": 1}, b"idempotency-key: k")
    await client.post("/api/jobs", {"type": "t", "input": 2}, b"idempotency-key: k")
    await queue.cancel(made.body["job"]["id"])
    shown = (await client.get(key_path("k"))).body
    assert (shown["key"], shown["scope"], shown["status"]) == ("k", "t", "committed")
    assert (shown["hits"], shown["conflicts"], shown["eventsTotal"]) == (1, 1, 2)
    (conflict,) = shown["recentConflicts"]
    assert (conflict["actor"], conflict["paths"]) == ("client:local", ["/input"])
    assert conflict["at"] >= shown["firstSeen"]
    assert (shown["actor"], shown["user"], shown["heldUntil"]) == ("client:local", "local", None)
    assert shown["firstSeen"] == made.body["job"]["createdAt"]
    assert shown["expiresAt"] == made.body["idempotency"]["expiresAt"]
    assert [event["what"] for event in shown["events"]] == ["submitted", "cancelled"]
    job = (await client.get(made.headers["location"])).body["job"]
    assert shown["job"] == job
    assert job["key"] == "k"


@pytest.mark.parametrize("key", UNUSUAL_KEYS)
async def test_any_legal_key_has_a_path(client: Client, key: str) -> None:
    made = await client.post("/api/jobs", {"type": "t", "idempotencyKey": key})
    assert made.status == 202
    shown = await client.get(key_path(key))
    assert (shown.status, shown.body["key"]) == (200, key)
    assert shown.body["job"]["id"] == made.body["job"]["id"]
    assert (await client.ask("DELETE", key_path(key))).status == 200


async def test_a_key_in_utf_8_may_come_without_escapes_or_with_all_of_them(client: Client) -> None:
    await client.post("/api/jobs", {"type": "t", "idempotencyKey": "~a-b"})
    for written in ("~a-b", "%7Ea-b", "%7ea%2Db", "%7E%61%2D%62"):
        assert (await client.get(f"/api/keys/{written}?scope=t")).body["key"] == "~a-b"


async def test_a_path_that_reads_like_a_route_only_when_decoded_is_not_that_route(client: Client) -> None:
    assert (await client.get("/api%2Fjobs")).status == 404
    assert (await client.get("/api/jobs%2Fbatch")).status == 404
    assert (await client.get("/api/keys/a/b?scope=t")).status == 404


@pytest.mark.parametrize(
    "target",
    [
        "/api/keys/%zz?scope=t", "/api/keys/%?scope=t", "/api/keys/%f?scope=t", "/api/keys/%ff?scope=t",
        "/api/keys/%C3?scope=t", "/api/keys/%ED%A0%80?scope=t", "/api/keys/%00?scope=t", "/api/keys/%0a?scope=t",
        "/api/keys/%C2%80?scope=t", f"/api/keys/{'k' * 256}?scope=t", f"/api/keys/{'k' * 9000}?scope=t",
        "/api/keys/k", "/api/keys/k?scope=", "/api/keys/k?scope", "/api/keys/k?scope=%00",
        f"/api/keys/k?scope={'s' * 101}", "/api/keys/k?scope=t&scope=t", "/api/keys/k?scope=t&x=1",
        "/api/keys/k?scope=%ff", "/api/keys/k?Scope=t",
    ],
)  # fmt: skip
async def test_an_invalid_key_or_scope_is_refused(client: Client, target: str) -> None:
    for method in ("GET", "DELETE"):
        answer = await client.ask(method, target)
        assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")


async def test_keys_of_the_type_queue_are_found_under_their_reported_scope(
    client: Client,
) -> None:
    made = await client.post("/api/jobs", {"type": "queue", "idempotencyKey": "k"})
    assert (await client.get(key_path("k", "queue"))).status == 404
    shown = await client.get(key_path("k", made.body["idempotency"]["scope"]))
    assert shown.body["job"]["id"] == made.body["job"]["id"]
    listed = await client.get("/api/keys?scope=type:queue")
    assert [line["key"] for line in listed.body["keys"]] == ["k"]


async def test_forgetting_is_idempotent_and_recorded_in_the_history(
    queue: onejob.Ledger, client: Client, clock: FakeClock
) -> None:
    made = await queue.submit("t", 1, idempotency_key="k")
    header = b'idempotency-key: "forget-1"'
    first, again = [await client.ask("DELETE", key_path("k"), b"", header) for _ in range(2)]
    assert (first.status, again.status) == (200, 200)
    assert first.body["usableAfter"] == again.body["usableAfter"]
    shown = (await client.get(key_path("k"))).body
    assert shown["events"][1]["what"] == "key forgotten"
    assert shown["events"][1]["actor"] == "client:local"
    assert shown["expiresAt"] == first.body["usableAfter"]
    clock.advance(302.001)
    assert (await client.get(key_path("k"))).status == 404
    assert (await client.ask("DELETE", key_path("k"))).status == 404
    assert (await queue.submit("t", 2, idempotency_key="k")).created
    assert (await client.get(f"/api/jobs/{made.job_id}")).status == 200


async def test_a_held_key_cannot_be_forgotten(queue: onejob.Ledger, client: Client) -> None:
    await queue.check_or_reserve("t", idempotency_key="k", lease=timedelta(seconds=30))
    answer = await client.ask("DELETE", key_path("k"))
    assert (answer.status, answer.code) == (409, "IN_PROGRESS")
    assert answer.body["error"]["retryable"]
    assert "retry-after" in answer.headers
    shown = (await client.get(key_path("k"))).body
    assert shown["status"] == "pending"
    assert shown["heldUntil"] is not None


@pytest.mark.parametrize("header", [b"idempotency-key:", b'idempotency-key: "a', b"idempotency-key: a, b"])
async def test_a_malformed_key_header_is_refused_wherever_one_is_accepted(
    queue: onejob.Ledger, client: Client, header: bytes
) -> None:
    made = await queue.submit("t", idempotency_key="k")
    for method, target in (
        ("DELETE", key_path("k")),
        ("DELETE", "/api/tenants/default"),
        ("POST", f"/api/jobs/{made.job_id}/cancel"),
    ):
        assert (await client.ask(method, target, b"", header)).status == 400
    assert (await queue.job(made.job_id)).state is onejob.JobState.PENDING
    # An empty body that a verb does not need is ignored.
    for method, target in (("DELETE", key_path("k")), ("DELETE", "/api/tenants/default")):
        assert (await client.ask(method, target, b"{}")).status == 200
        assert (await client.ask(method, target, b'{"unknown": 1}')).status == 400


async def list_keys(client: Client, query: str) -> tuple[list[str], int]:
    """All keys of a list, and the number of its pages."""
    found, pages, cursor = [], 0, ""
    while True:
        page = (await client.get(f"/api/keys?{query}{cursor}")).body
        found += [line["key"] for line in page["keys"]]
        pages += 1
        if page["next"] is None:
            return found, pages
        cursor = f"&cursor={page['next']}"


async def test_keys_are_listed_page_by_page_and_by_scope(queue: onejob.Ledger, client: Client) -> None:
    for scope in ("a", "b", "c"):
        for n in range(5):
            await queue.submit(scope, idempotency_key=f"{scope}{n}")
    await queue.submit("a")
    other_tenant = queue.acting_as(tenant="other", user="u", actor=onejob.Actor.user("u"))
    await other_tenant.submit("a", idempotency_key="theirs")
    everything = {f"{scope}{n}" for scope in "abc" for n in range(5)}
    for limit in (1, 4, 15, 1000):
        found, pages = await list_keys(client, f"limit={limit}")
        assert len(found) == 15
        assert set(found) == everything
        assert pages == -(-15 // limit)
    for limit in (2, 5, 6):
        assert (await list_keys(client, f"scope=b&limit={limit}"))[0] == [f"b{n}" for n in range(5)]
    assert (await list_keys(client, "scope=nothing"))[0] == []


async def test_a_listed_key_has_its_job_and_its_counts(queue: onejob.Ledger, client: Client) -> None:
    made = [await queue.submit("t", idempotency_key="k") for _ in range(3)]
    await queue.cancel(made[0].job_id)
    (line,) = (await client.get("/api/keys")).body["keys"]
    assert (line["hits"], line["job"]["id"], line["job"]["state"]) == (2, made[0].job_id, "cancelled")


async def test_an_expired_key_is_not_listed_swept_or_not(
    queue: onejob.Ledger, client: Client, clock: FakeClock
) -> None:
    await queue.submit("t", idempotency_key="short", idempotency_ttl=timedelta(seconds=1))
    await queue.submit("t", idempotency_key="long")
    clock.advance(1.001)
    assert (await list_keys(client, "limit=1"))[0] == ["long"]


async def test_where_keys_belong_to_users_each_sees_its_own(queue: onejob.Ledger) -> None:
    await set_settings(queue, key_owner="user")
    for user in ("ann", "bob"):
        own = queue.acting_as(tenant="default", user=user, actor=onejob.Actor.user(user))
        await own.submit("t", idempotency_key=f"of-{user}")
        await own.submit("t", idempotency_key="same")
    caller = Caller("default", "ann", "user:ann", oversees=False)
    async with serve_app(HttpApp(queue, authenticate=_Authenticated(caller, Role.OPERATOR))) as client:
        for query in ("", "scope=t"):
            assert sorted((await list_keys(client, query))[0]) == ["of-ann", "same"]
        assert (await client.get(key_path("of-bob"))).status == 404
        assert (await client.get(key_path("same"))).body["user"] == "ann"


@pytest.mark.parametrize(
    "query",
    [
        "limit=0", "limit=1001", "limit=-1", "limit=x", "limit=", "limit=0000000001999", "limit=%D9%A1",
        "cursor=", "cursor=%00", "cursor=!", "cursor=a", "cursor=a%2Bb/", f"cursor={'A' * 201}", "cursor=ä",
        "scope=", "scope=%00", "x=1", "limit", "limit=1&limit=1", "&", "a" * 9000,
    ],
)  # fmt: skip
async def test_an_invalid_list_query_is_refused(client: Client, query: str) -> None:
    answer = await client.get("/api/keys?" + quote(query, safe="%&=/!"))
    assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")


async def test_a_tenant_is_erased_by_its_own_admin_only(queue: onejob.Ledger) -> None:
    made = await queue.submit("t", idempotency_key="k")
    await queue.submit("t")
    other_tenant = queue.acting_as(tenant="other", user="u", actor=onejob.Actor.user("u"))
    theirs = await other_tenant.submit("t", idempotency_key="k")
    caller = Caller("default", "ann", "user:ann")

    async def erase(role: Role, tenant: str) -> HttpResponse:
        async with serve_app(HttpApp(queue, authenticate=_Authenticated(caller, role))) as client:
            return await client.ask("DELETE", f"/api/tenants/{tenant}")

    for role in (Role.SUBMITTER, Role.WORKER, Role.OPERATOR):
        assert (await erase(role, "default")).status == 403
    foreign, nowhere = await erase(Role.ADMIN, "other"), await erase(Role.ADMIN, "nowhere")
    assert (foreign.status, nowhere.status) == (403, 403)
    assert foreign.body["error"] == nowhere.body["error"]
    assert (await queue.job(made.job_id)).id == made.job_id
    done = await erase(Role.ADMIN, "default")
    assert (done.status, done.body["erased"]) == (200, 2)
    assert done.body["goneAt"].endswith("Z")
    assert (await erase(Role.ADMIN, "default")).body["erased"] == 0
    assert await queue.jobs() == []
    assert (await other_tenant.job(theirs.job_id)).id == theirs.job_id


async def test_forgetting_needs_an_operator(queue: onejob.Ledger) -> None:
    await queue.submit("t", idempotency_key="k")
    caller = Caller("default", "ann", "user:ann")
    for role, status in ((Role.SUBMITTER, 403), (Role.WORKER, 403), (Role.OPERATOR, 200)):
        async with serve_app(HttpApp(queue, authenticate=_Authenticated(caller, role))) as client:
            assert (await client.ask("DELETE", key_path("k"))).status == status
            assert (await client.get(key_path("k"))).status == 200
    shown = await queue.explain("k", scope="t")
    assert [(event.what, event.actor) for event in shown.events[1:]] == [("key forgotten", "user:ann")]


class _Authenticated:
    def __init__(self, caller: Caller, role: Role) -> None:
        self._credential = Credential(caller, frozenset({role}), caller.user)

    async def __call__(self, scope: Scope) -> Credential:
        return self._credential
