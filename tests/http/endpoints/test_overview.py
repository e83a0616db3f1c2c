"""Operators over HTTP: overview, workers, types, and one act on many jobs; and who may ask."""

from collections.abc import AsyncIterator

import pytest

import onejob
from onejob.clock import FakeClock
from onejob.core.credentials import Role
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.http.metrics import Metrics, job_families, render_metrics
from onejob.ledger.api_keys import ApiKeys
from onejob.ledger.base import runtime_of
from onejob.runtime.counts import ALL_TENANTS, CountsSnapshot, TypeCounts
from tests.http.test_metrics import samples
from tests.support.app_server import Client, serve_app

from .work_requests import claim


@pytest.fixture
async def client(queue: onejob.Ledger) -> AsyncIterator[Client]:
    async with serve_app(HttpApp(queue)) as client:
        yield client


async def test_the_overview_shows_counts_and_activity(queue: onejob.Ledger, client: Client) -> None:
    for n in range(3):
        await client.post("/api/jobs", {"type": "charge", "input": n}, b"idempotency-key: k%d" % n)
    await client.post("/api/jobs", {"type": "charge", "input": 0}, b"idempotency-key: k0")
    await runtime_of(queue).activity.report()
    overview = (await client.get("/api/overview")).body
    assert overview["states"] == {"pending": 3}
    assert overview["countedAt"]
    assert overview["types"][0]["ready"] == 3
    assert overview["types"][0]["oldestReadySeconds"] >= 0
    assert sum(overview["submissions"]["created"]["minutes"]) == 3
    assert len(overview["submissions"]["created"]["minutes"]) == 60
    assert overview["submissions"]["replayed"]["hours"][-1] == 1


async def test_a_tenant_with_too_many_live_keys_gets_429_for_new_keys_only() -> None:
    config = ServiceConfig(live_keys_max=1)
    async with (
        onejob.open("memory://", sweep=False, **config.ledger_options()) as queue,
        serve_app(HttpApp(queue)) as client,
    ):
        first = await client.post("/api/jobs", {"type": "t"}, b"idempotency-key: known")
        await queue.admin.sweep()
        assert (await client.get("/api/overview")).body["liveKeys"] == 1
        refused = await client.post("/api/jobs", {"type": "t"}, b"idempotency-key: new")
        error = refused.body["error"]
        assert (refused.status, error["code"], error["retryable"]) == (429, "QUOTA_EXCEEDED", False)
        assert error["details"]["limit"] == "liveKeys"
        replayed = await client.post("/api/jobs", {"type": "t"}, b"idempotency-key: known")
        assert (replayed.status, replayed.body["job"]["id"]) == (202, first.body["job"]["id"])
        batch = {"jobs": [{"type": "t", "idempotencyKey": key} for key in ("known", "new")]}
        results = (await client.post("/api/jobs/batch", batch)).body
        assert "liveKeys" in str(results)


async def test_a_type_is_paused_and_resumed(queue: onejob.Ledger, client: Client) -> None:
    await queue.submit("t")
    assert (await client.post("/api/types/t/pause", {})).body["paused"] is True
    (shown,) = (await client.get("/api/types")).body["types"]
    assert (shown["type"], shown["pausedBy"]) == ("t", "client:local")
    assert await claim(client) == []
    assert (await client.post("/api/types/t/resume", {})).body["paused"] is False
    assert len(await claim(client)) == 1


async def test_one_request_acts_on_all_jobs_that_match(queue: onejob.Ledger, client: Client) -> None:
    for n in range(3):
        await queue.submit("t", n, labels={"run": "7"})
    await queue.submit("t", labels={"run": "8"})
    body = {"action": "cancel", "filter": {"type": "t", "label": "run=7", "state": "pending"}}
    counted = (await client.post("/api/jobs/actions", {**body, "dryRun": True})).body
    assert (counted["matched"], counted["changed"], counted["more"]) == (3, 0, False)
    done = (await client.post("/api/jobs/actions", body)).body
    assert (done["matched"], done["changed"], done["errors"], done["next"]) == (3, 3, [], None)
    listed = (await client.get("/api/jobs?label=run%3D7&state=cancelled")).body["jobs"]
    assert len(listed) == 3


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/jobs/actions", {"action": "cancel", "filter": {}}),
        ("/api/jobs/actions", {"action": "delete", "filter": {"type": "t"}}),
        ("/api/jobs/actions", {"action": "cancel", "filter": {"type": "t", "label": "x"}}),
        ("/api/jobs/actions", {"action": "cancel", "filter": {"typ": "t"}}),
    ],
)
async def test_an_act_without_a_clear_filter_is_refused(client: Client, path: str, body: object) -> None:
    assert (await client.post(path, body)).status == 400


@pytest.mark.parametrize("query", ["label=x", "createdAfter=yesterday", "createdBefore=2026-01-01T00:00:00"])
async def test_a_malformed_filter_is_refused(client: Client, query: str) -> None:
    answer = await client.get(f"/api/jobs?{query}")
    assert answer.status == 400
    assert "send" in answer.body["detail"]


async def test_only_operators_see_the_overview(queue: onejob.Ledger) -> None:
    keys = {role: (await ApiKeys(queue).create(role, roles=[role])).text for role in Role}
    async with serve_app(HttpApp(queue, config=ServiceConfig(auth=True))) as client:
        for role, status in {"submitter": 403, "worker": 403, "operator": 200, "admin": 200, "metrics": 403}.items():
            for path in ("/api/overview", "/api/workers", "/api/types"):
                answer = await client.get(path, b"x-api-key: " + keys[Role(role)].encode())
                assert answer.status == status, (role, path)
            answer = await client.post("/api/types/t/pause", {}, b"x-api-key: " + keys[Role(role)].encode())
            assert answer.status == status, role


async def test_metrics_count_jobs_and_attempts(queue: onejob.Ledger) -> None:
    for n in range(3):
        await queue.submit("t", n)
    (attempt,) = await queue.claim("t", start=True)
    await queue.finish(attempt)
    counts, now = await runtime_of(queue).job_counts.load(ALL_TENANTS)
    families = [*Metrics(queue).families(), *job_families(counts, now, workers=1)]
    found = samples(render_metrics(families).decode())
    assert found["onejob_jobs", (("state", "pending"), ("type", "t"))] == 2
    assert found["onejob_ready_jobs", (("type", "t"),)] == 2
    assert found["onejob_oldest_ready_seconds", (("type", "t"),)] >= 0
    assert found["onejob_attempts_total", (("end", "success"), ("type", "t"))] == 1
    assert found["onejob_attempt_seconds_count", (("type", "t"),)] == 1
    assert found["onejob_job_wait_seconds_count", (("type", "t"),)] == 1
    assert found["onejob_job_workers", ()] == 1


async def test_metrics_count_expired_leases_and_what_became_of_the_jobs(queue: onejob.Ledger, clock: FakeClock) -> None:
    await queue.submit("again", max_attempts=2)
    await queue.submit("last", max_attempts=1)
    await queue.submit("once", delivery=onejob.Delivery.AT_MOST_ONCE)
    for type in ("again", "last", "once"):
        await queue.claim(type, start=True)
    clock.advance(3600)
    await queue.admin.sweep()
    await queue.admin.sweep()  # a second one finds nothing to count
    found = samples(render_metrics(Metrics(queue).families()).decode())
    for type, end in {"again": "retried", "last": "failed", "once": "lost"}.items():
        for name in ("onejob_lease_expiries_total", "onejob_attempts_total"):
            assert found[name, (("end", end), ("type", type))] == 1
    ends = (await queue.admin.overview()).activity.series
    assert {name for name in ends if name.startswith("end:")} == {"end:retried", "end:failed", "end:lost"}


def test_metrics_have_a_bounded_number_of_types() -> None:
    types = {f"t{n}": TypeCounts({"pending": n, "lost": 1}, ready=n, oldest_ready_at=1000 + n) for n in range(150)}
    found = samples(render_metrics(job_families(CountsSnapshot(types=types), 5_000, workers=0)).decode())
    assert sum(name == "onejob_ready_jobs" for name, _ in found) == 101
    assert sum(value for (name, _), value in found.items() if name == "onejob_jobs") == sum(range(150)) + 150
    assert found["onejob_jobs", (("state", "lost"), ("type", "other"))] == 50
    assert found["onejob_oldest_ready_seconds", (("type", "other"),)] == 4.0
