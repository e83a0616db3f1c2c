"""Quotas over a real server: refusals and their reasons, freed slots, permissions to read and set."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

import onejob
from onejob.clock import FakeClock
from onejob.core.credentials import Role
from onejob.http.app import HttpApp
from onejob.http.request import Credential, Scope
from onejob.runtime.callers import Caller
from tests.support.app_server import Client, HttpResponse, serve_app

ROLES = {"ann": Role.SUBMITTER, "bob": Role.SUBMITTER, "op": Role.OPERATOR, "root": Role.ADMIN}
INVALID_LIMITS: list[Any] = [-1, 1.5, "5", True, 10**10, [], {}]


async def authenticate_by_header(scope: Scope) -> Credential:
    """Read tenant and user from a header: authentication is not tested here."""
    who = dict(scope["headers"]).get(b"who", b"default/root").decode()
    tenant, _, user = who.partition("/")
    return Credential(Caller(tenant, user, f"user:{user}"), frozenset({ROLES[user]}), user)


@pytest.fixture
async def client(queue: onejob.Ledger) -> AsyncIterator[Client]:
    async with serve_app(HttpApp(queue, authenticate=authenticate_by_header)) as client:
        yield client


def who_header(who: str) -> bytes:
    return b"who: " + (who if "/" in who else f"default/{who}").encode()


async def put(client: Client, path: str, body: object, who: str = "root") -> HttpResponse:
    return await client.ask("PUT", path, json.dumps(body).encode(), who_header(who))


async def set_limits(client: Client, user: str = "ann", tenant: str = "default", **limits: object) -> None:
    assert (await put(client, f"/api/quotas/{user}", limits, f"{tenant}/root")).status == 200


async def submit(client: Client, key: str | None = None, who: str = "ann", **more: object) -> HttpResponse:
    keys = () if key is None else (f"idempotency-key: {key}".encode(),)
    return await client.post("/api/jobs", {"type": "t", **more}, who_header(who), *keys)


async def reserve(client: Client, who: str = "ann", **body: object) -> HttpResponse:
    return await client.post("/api/reservations", body, who_header(who))


async def post_slot_verb(client: Client, slot: str, what: str, body: object = None, who: str = "ann") -> HttpResponse:
    path = f"/api/reservations/{slot}/{what}"
    return await (
        client.ask("POST", path, b"", who_header(who)) if body is None else client.post(path, body, who_header(who))
    )


async def usage(client: Client, who: str = "ann", query: str = "") -> Any:
    answer = await client.get(f"/api/usage{query}", who_header(who))
    assert answer.status == 200, answer
    return answer.body


# Refusals


async def test_a_full_quota_reports_usage_and_a_cancel_frees_a_slot(client: Client) -> None:
    await set_limits(client, maxConcurrent=2)
    first = await submit(client, "1")
    assert (await submit(client, "2")).body["warnings"][0]["limit"] == "maxConcurrent"
    refused = await submit(client, "3")
    assert (refused.status, refused.code, "retry-after" in refused.headers) == (429, "QUOTA_EXCEEDED", False)
    assert refused.body["detail"].startswith("Quota exceeded: Maximum 2 concurrent jobs allowed")
    assert refused.body["error"]["details"] == {
        "limit": "maxConcurrent", "allowed": 2, "used": 2, "live": 2, "reserved": 0,
    }  # fmt: skip
    again = await submit(client, "1")
    assert (again.status, again.headers["idempotent-replayed"]) == (202, "true")
    assert "warnings" not in again.body
    job_id = first.body["job"]["id"]
    for _ in range(2):
        await client.ask("POST", f"/api/jobs/{job_id}/cancel", b"", who_header("ann"))
    assert (await submit(client, "3")).status == 202
    assert (await usage(client))["used"] == 2


async def test_an_hourly_limit_sets_retry_after(client: Client, clock: FakeClock) -> None:
    await set_limits(client, jobsPerHour=1)
    await submit(client, "1")
    refused = await submit(client, "2")
    assert (refused.status, refused.code) == (429, "RATE_LIMITED")
    assert refused.body["error"]["retryable"]
    seconds = int(refused.headers["retry-after"])
    assert 3600 <= seconds <= 3660
    assert refused.body["error"]["details"]["limit"] == "jobsPerHour"
    clock.advance(seconds)
    assert (await submit(client, "2")).status == 202


async def test_a_cost_limit_blocks_or_warns_and_its_amounts_are_numbers(client: Client) -> None:
    await set_limits(client, costLimit={"amount": 10.5, "period": "day"})
    assert (await submit(client, "1", estimatedCost=10)).body["warnings"][0]["limit"] == "costLimit"
    refused = await submit(client, "2", estimatedCost=0.6)
    assert (refused.status, refused.code) == (429, "COST_LIMIT_EXCEEDED")
    assert "Cost limit" in refused.body["detail"]
    assert refused.body["error"]["details"] == {
        "limit": "costLimit", "period": "day", "allowed": 10.5, "spent": 0.0, "held": 10.0,
    }  # fmt: skip
    await set_limits(client, costLimit={"amount": 10.5, "period": "day", "action": "warn"})
    assert (await submit(client, "2", estimatedCost=0.1 + 0.2)).status == 202
    assert (await usage(client))["money"] == {"held": 10.3, "spent": {"day": 0, "week": 0, "month": 0}}


async def test_a_limit_of_zero_admits_nothing(client: Client) -> None:
    for name in ("maxConcurrent", "jobsPerHour", "jobsPerDay"):
        assert (await put(client, "/api/quotas/ann", {name: 0})).status == 200
        assert (await submit(client)).code == "QUOTA_EXCEEDED"
    await set_limits(client, costLimit={"amount": 0, "period": "month"})
    assert (await submit(client)).code == "COST_LIMIT_EXCEEDED"


async def test_a_batch_is_admitted_item_by_item(client: Client) -> None:
    await set_limits(client, maxConcurrent=2)
    answer = await client.post("/api/jobs/batch", {"jobs": [{"type": "t"}] * 3}, who_header("ann"))
    statuses = [one["status"] for one in answer.body["verdicts"]]
    assert statuses == [202, 202, 429]
    assert "warnings" in answer.body["verdicts"][1]


async def test_a_dry_run_names_the_limit_that_would_refuse(client: Client) -> None:
    await set_limits(client, maxConcurrent=0)
    answer = await client.post("/api/jobs?dryRun=true", {"type": "t"}, who_header("ann"))
    assert answer.body["idempotency"]["outcome"] == "refused"
    assert answer.body["warnings"][0]["limit"] == "maxConcurrent"


# Limits


async def test_a_default_limits_users_without_limits_and_a_ceiling_limits_all(client: Client) -> None:
    tenants = {"default": {"maxConcurrent": 1}, "ceiling": {"maxConcurrent": 2}}
    assert (await put(client, "/api/quotas", tenants)).body.items() >= tenants.items()
    await set_limits(client, "ann", maxConcurrent=9)
    counts = {who: [(await submit(client, who=who)).status for _ in range(3)].count(202) for who in ("ann", "bob")}
    assert counts == {"ann": 2, "bob": 1}
    quota = (await client.get("/api/quotas/ann", who_header("root"))).body
    assert (quota["limits"], quota["effective"]) == ({"maxConcurrent": 9}, {"maxConcurrent": 2})
    cleared = await client.ask("DELETE", "/api/quotas/ann", b"", who_header("root"))
    assert (cleared.body["limits"], cleared.body["effective"]) == ({}, {"maxConcurrent": 1})
    await put(client, "/api/quotas", {})
    assert (await submit(client, who="bob")).status == 202


async def test_jobs_from_before_the_limit_count_too(client: Client) -> None:
    jobs = [(await submit(client, who=who)).body["job"]["id"] for who in ("ann", "ann", "bob")]
    await set_limits(client, maxConcurrent=2)
    assert (await usage(client))["live"] == 2
    assert (await submit(client)).code == "QUOTA_EXCEEDED"
    await client.ask("POST", f"/api/jobs/{jobs[0]}/cancel", b"", who_header("ann"))
    assert (await submit(client)).status == 202
    assert (await usage(client, "bob"))["live"] == 0
    await put(client, "/api/quotas", {"default": {"maxConcurrent": 1}})
    assert (await submit(client, who="bob")).code == "QUOTA_EXCEEDED"


async def test_only_admins_set_limits_and_only_operators_read_others(client: Client) -> None:
    for who in ("ann", "op"):
        assert (await put(client, "/api/quotas/ann", {}, who)).code == "FORBIDDEN"
        assert (await client.get("/api/quotas", who_header(who))).code == "FORBIDDEN"
    for path in ("/api/usage", "/api/reservations"):
        assert (await client.get(f"{path}?user=ann", who_header("ann"))).status == 200
        assert (await client.get(f"{path}?user=bob", who_header("ann"))).code == "FORBIDDEN"
        assert (await client.get(f"{path}?user=bob", who_header("op"))).status == 200


async def test_equal_user_names_of_two_tenants_are_separate(client: Client) -> None:
    await set_limits(client, maxConcurrent=1)
    await submit(client, "same")
    slot = (await reserve(client, "other/ann")).body["id"]
    assert (await submit(client, "same", "other/ann")).status == 202
    assert (await client.get("/api/quotas/ann", who_header("other/root"))).body["effective"] == {}
    assert (await usage(client, "other/ann"))["used"] == 2
    assert (await usage(client))["used"] == 1
    # The id of a reservation names a user; the tenant is that of the credential.
    assert (await post_slot_verb(client, slot, "renew")).code == "QUOTA_EXCEEDED"
    assert (await post_slot_verb(client, slot, "release")).status == 200
    assert (await usage(client, "other/ann"))["reserved"] == 1


@pytest.mark.parametrize("invalid", INVALID_LIMITS, ids=repr)
async def test_an_invalid_limit_is_refused(client: Client, invalid: Any) -> None:
    for name in ("maxConcurrent", "jobsPerHour", "jobsPerDay"):
        assert (await put(client, "/api/quotas/ann", {name: invalid})).code == "VALIDATION_ERROR"
        assert (await put(client, "/api/quotas", {"ceiling": {name: invalid}})).code == "VALIDATION_ERROR"
    assert (await reserve(client, maxConcurrent=invalid)).code == "VALIDATION_ERROR"


@pytest.mark.parametrize(
    "cost",
    [
        5, {}, {"amount": 5}, {"amount": -1, "period": "day"}, {"amount": "5", "period": "day"},
        {"amount": True, "period": "day"}, {"amount": 2e9, "period": "day"}, {"amount": 5, "period": "year"},
        {"amount": 5, "period": "day", "action": "shout"}, {"amount": None, "period": "day"},
    ],
)  # fmt: skip
async def test_an_invalid_cost_limit_is_refused(client: Client, cost: Any) -> None:
    assert (await put(client, "/api/quotas/ann", {"costLimit": cost})).code == "VALIDATION_ERROR"


async def test_an_optional_body_may_be_empty_and_chunked(client: Client) -> None:
    chunked = b"transfer-encoding: chunked"
    watching = await client.open_stream(
        "/api/reservations", who_header("ann"), chunked, method="POST", body=b"0\r\n\r\n"
    )
    assert watching.status == 201
    assert (await client.ask("POST", "/api/jobs", b"", who_header("ann"))).code == "BAD_REQUEST"


async def test_a_refusal_names_the_json_members(client: Client) -> None:
    limits = {"maxConcurrent": -1}, {"jobsPerHour": -1}, {"jobsPerDay": -1}
    refused = [await put(client, "/api/quotas/ann", body) for body in limits]
    refused += [await reserve(client, maxConcurrent=-1), await reserve(client, ttlSeconds=0)]
    for reply, name in zip(
        refused, ("maxConcurrent", "jobsPerHour", "jobsPerDay", "maxConcurrent", "ttlSeconds"), strict=True
    ):
        assert (reply.code, reply.body["error"]["details"]) == ("VALIDATION_ERROR", {"what": name})
        assert reply.body["detail"].startswith(f"{name} is a")


@pytest.mark.parametrize("cost", [-1, -1e-9, -5e-324, "5", True, 2e9, [], {}])
async def test_an_invalid_estimate_is_refused(client: Client, cost: Any) -> None:
    assert (await submit(client, estimatedCost=cost)).code == "VALIDATION_ERROR"


# Reservations


async def test_the_life_cycle_of_a_reservation(client: Client, clock: FakeClock) -> None:
    await set_limits(client, maxConcurrent=1)
    held = await reserve(client)
    slot = held.body["id"]
    assert (held.status, held.body["user"], held.body["warnings"][0]["limit"]) == (
        201,
        "ann",
        "maxConcurrent",
    )
    assert (await reserve(client)).code == "QUOTA_EXCEEDED"
    clock.advance(200)
    renewed = await post_slot_verb(client, slot, "renew", {"ttlSeconds": 300})
    assert renewed.body["expiresAt"] > held.body["expiresAt"]
    clock.advance(299)
    assert (await submit(client, "1")).code == "QUOTA_EXCEEDED"
    made = await submit(client, "1", reservation=slot)
    assert made.status == 202
    (one,) = (await client.get("/api/reservations", who_header("ann"))).body["reservations"]
    assert (one["state"], one["jobId"]) == ("consumed", made.body["job"]["id"])
    assert (await post_slot_verb(client, slot, "release")).code == "ALREADY_SETTLED"
    assert {"used": 1, "live": 1, "reserved": 0}.items() <= (await usage(client)).items()


async def test_an_expired_reservation_never_counts_and_cannot_be_renewed(client: Client, clock: FakeClock) -> None:
    await set_limits(client, maxConcurrent=1)
    slot = (await reserve(client, ttlSeconds=10)).body["id"]
    clock.advance(10.001)
    assert (await usage(client))["reserved"] == 0
    lost = await post_slot_verb(client, slot, "renew")
    assert (lost.status, lost.code, lost.body["error"]["details"]["slotLost"]) == (
        429,
        "QUOTA_EXCEEDED",
        True,
    )
    assert (await post_slot_verb(client, slot, "consume")).code == "QUOTA_EXCEEDED"
    assert (await submit(client, "1")).status == 202
    lost = await submit(client, "2", reservation=slot)
    assert (lost.code, "slot lost" in lost.body["detail"]) == ("QUOTA_EXCEEDED", True)
    assert lost.body["error"]["details"]["allowed"] == 1


async def test_a_reservation_is_consumed_by_one_job(client: Client) -> None:
    jobs = [(await submit(client)).body["job"]["id"] for _ in range(2)]
    slot = (await reserve(client)).body["id"]
    first, again, second = [await post_slot_verb(client, slot, "consume", {"jobId": id}) for id in (jobs[0], *jobs)]
    assert (first.status, again.status, second.code) == (200, 200, "ALREADY_SETTLED")
    assert (await usage(client))["live"] == 1


async def test_a_reservation_belongs_to_its_user_also_if_an_operator_made_it(client: Client) -> None:
    slot = (await reserve(client)).body["id"]
    for what in ("consume", "release", "renew"):
        assert (await post_slot_verb(client, slot, what, who="bob")).code == "FORBIDDEN"
    assert (await submit(client, who="bob", reservation=slot)).code == "FORBIDDEN"
    assert (await reserve(client, "bob", user="ann")).code == "FORBIDDEN"
    theirs = (await reserve(client, "op", user="bob")).body
    assert theirs["user"] == "bob"
    assert (await submit(client, who="bob", reservation=theirs["id"])).status == 202
    other = (await submit(client, who="bob")).body["job"]["id"]
    assert (await post_slot_verb(client, slot, "consume", {"jobId": other})).code == "FORBIDDEN"


async def test_a_reservation_with_a_key_is_the_same_when_repeated(client: Client) -> None:
    key = b"idempotency-key: upload-1"
    ids = [
        (await client.post("/api/reservations", {}, who_header(who), key)).body["id"] for who in ("ann", "ann", "bob")
    ]
    assert (ids[0] == ids[1], ids[1] == ids[2]) == (True, False)
    assert (await usage(client))["reserved"] == 1


@pytest.mark.parametrize("name", ["x", "%00", "A" * 47, "A" * 49, "A" * 47 + "=", "%F0%9F%98%80"])
async def test_an_invalid_reservation_id_is_refused(client: Client, name: str) -> None:
    for what in ("consume", "release", "renew"):
        assert (await post_slot_verb(client, name, what)).code == "VALIDATION_ERROR"
    assert (await submit(client, reservation=name)).code == "VALIDATION_ERROR"


@pytest.mark.parametrize("ttl", [0, -1, 0.5, 86_401, "300", True, 1e300])
async def test_an_invalid_ttl_of_a_reservation_is_refused(client: Client, ttl: Any) -> None:
    slot = (await reserve(client)).body["id"]
    assert (await reserve(client, ttlSeconds=ttl)).code == "VALIDATION_ERROR"
    assert (await post_slot_verb(client, slot, "renew", {"ttlSeconds": ttl})).code == "VALIDATION_ERROR"
