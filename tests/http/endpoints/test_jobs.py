"""Endpoints for jobs: submit, list, get, cancel, batches, and the answers to malformed requests."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

import onejob
from onejob.clock import FakeClock
from onejob.conformance.samples import TYPE, a_record
from onejob.core.facts import Kind
from onejob.engines.memory import MemoryEngine
from onejob.http.app import HttpApp
from onejob.ids import SystemIds
from onejob.runtime import Runtime
from onejob.runtime.callers import Caller
from tests.support.app_server import Client, serve_app

UNKNOWN_ID = "01a1e2f5-39f9-73f8-930c-48a088963d1e"


@pytest.fixture
async def client(queue: onejob.Ledger) -> AsyncIterator[Client]:
    async with serve_app(HttpApp(queue)) as client:
        yield client


@pytest.mark.parametrize(
    "query",
    [
        "limit=0", "limit=-1", "limit=1001", "limit=x", "limit=1.0", "limit=", "limit=%D9%A1", "limit=0000019999999",
        f"limit={'9' * 5000}", "cursor=", "cursor=x", "cursor=%00", f"cursor={UNKNOWN_ID}0", "cursor=" + "0" * 32,
        "state=", "state=done", "state=PENDING", "state=%00", "x=1", "Limit=1", "limit", "=", "&", "limit=1&limit=2",
        "type=%ff", "type=%ED%A0%80", "type=a&x=1", "&".join(["type=a"] * 60), "%zz=1",
    ],
)  # fmt: skip
async def test_an_invalid_list_query_is_refused(client: Client, query: str) -> None:
    answer = await client.get(f"/api/jobs?{query}")
    assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")


@pytest.mark.parametrize("query", ["type=%00", "type=" + "x" * 5000, "user=%F0%9F%98%80", "type=", "user=' OR 1=1 --"])
async def test_a_list_of_what_cannot_exist_is_empty(queue: onejob.Ledger, client: Client, query: str) -> None:
    await queue.submit("t")
    answer = await client.get(f"/api/jobs?{query.replace(' ', '%20')}")
    assert (answer.status, answer.body["jobs"], answer.body["next"]) == (200, [], None)


async def test_jobs_are_listed_newest_first_page_by_page(queue: onejob.Ledger, client: Client) -> None:
    ids = [(await queue.submit("t", n)).job_id for n in range(7)]
    found: list[str] = []
    cursor = ""
    for _ in range(4):
        page = (await client.get(f"/api/jobs?limit=3{cursor}")).body
        found += [job["id"] for job in page["jobs"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert found == ids[::-1]
    await queue.cancel(ids[2])
    page = (await client.get("/api/jobs?state=cancelled&type=t&user=local&limit=1000")).body
    assert [job["id"] for job in page["jobs"]] == [ids[2]]


@pytest.mark.parametrize(
    "name",
    [
        "x", "%00", "%ff", "%zz", "..", UNKNOWN_ID[:-1], UNKNOWN_ID.replace("-", ""), "a" * 5000, f"{UNKNOWN_ID}%20",
        "%F0%9F%98%80",
    ],
)  # fmt: skip
async def test_an_invalid_job_id_is_refused(client: Client, name: str) -> None:
    for method, end in (("GET", ""), ("POST", "/cancel"), ("GET", "/events")):
        answer = await client.ask(method, f"/api/jobs/{name}{end}")
        assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")


async def test_a_job_id_is_read_in_any_case_and_with_escapes(queue: onejob.Ledger, client: Client) -> None:
    job_id = (await queue.submit("t")).job_id
    for written in (job_id.upper(), job_id.replace("-", "%2D"), job_id.replace("-", "%2d")):
        assert (await client.get(f"/api/jobs/{written}")).body["job"]["id"] == job_id


async def test_an_unknown_query_parameter_is_refused_and_nothing_is_done(queue: onejob.Ledger, client: Client) -> None:
    job_id = (await queue.submit("t")).job_id
    for method, path in (
        ("GET", f"/api/jobs/{job_id}"),
        ("POST", f"/api/jobs/{job_id}/cancel"),
        ("POST", "/api/jobs"),
        ("POST", "/api/jobs/batch"),
    ):
        assert (await client.ask(method, f"{path}?x=1", b'{"type": "t"}')).status == 400
    assert [job.state for job in await queue.jobs()] == [onejob.JobState.PENDING]


@pytest.mark.parametrize("query", ["dryRun=false", "dryRun=", "dryRun=1", "dryRun=true&dryRun=true", "dryrun=true"])
async def test_an_ambiguous_dry_run_does_nothing(queue: onejob.Ledger, client: Client, query: str) -> None:
    assert (await client.post(f"/api/jobs?{query}", {"type": "t"})).status == 400
    assert await queue.jobs() == []


async def test_cancelling_takes_a_key_and_is_idempotent_by_itself(queue: onejob.Ledger, client: Client) -> None:
    job_id = (await queue.submit("t")).job_id
    first = await client.ask("POST", f"/api/jobs/{job_id}/cancel", b"", b"idempotency-key: c-1")
    again = await client.ask("POST", f"/api/jobs/{job_id}/cancel", b"", b"idempotency-key: c-2")
    assert (first.status, first.body["job"]) == (200, again.body["job"])
    for ignored in (b"{}", b" { }\r\n"):
        assert (await client.ask("POST", f"/api/jobs/{job_id}/cancel", ignored)).status == 200
    assert (await client.ask("POST", f"/api/jobs/{job_id}/cancel", b'{"a": 1}')).status == 400
    assert (await client.ask("POST", f"/api/jobs/{UNKNOWN_ID}/cancel")).status == 404


@pytest.mark.parametrize(
    "moment",
    ["0001-01-01T00:00:00+12:00", "9999-12-31T23:59:59-12:00", "2030-01-01T00:00:00", "0000-01-01T00:00:00Z"],
)
async def test_a_moment_outside_the_calendar_burns_no_key_and_spoils_no_list(
    queue: onejob.Ledger, client: Client, moment: str
) -> None:
    body = {"type": "t", "runAt": moment, "idempotencyKey": "k"}
    assert (await client.post("/api/jobs", body)).status == 400
    assert (await client.get("/api/jobs")).body["jobs"] == []
    assert (await queue.submit("t", idempotency_key="k")).created


async def test_the_ends_of_the_calendar_are_accepted(client: Client) -> None:
    moments = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)]
    for moment in moments:
        assert (await client.post("/api/jobs", {"type": "t", "runAt": moment.isoformat()})).status == 202
    found = (await client.get("/api/jobs")).body["jobs"]
    assert [datetime.fromisoformat(job["runAt"]) for job in found] == moments[::-1]


async def test_every_item_of_a_batch_has_a_verdict_of_its_own(client: Client) -> None:
    items: list[dict[str, Any]] = [
        {"type": "t", "input": 1, "idempotencyKey": "a"},
        {"type": "t", "idempotencyTtlSeconds": 1e300},
        {"type": "t", "input": 1, "idempotencyKey": "a"},
        {"type": "t", "input": 2, "idempotencyKey": "a"},
        {"type": "", "idempotencyKey": "b"},
        {"type": "t", "idempotencyKey": ""},
        {"type": "t", "timeoutSeconds": -1e300},
        {"type": "t"},
    ]
    answer = await client.post("/api/jobs/batch", {"jobs": items})
    verdicts = answer.body["verdicts"]
    assert [verdict["status"] for verdict in verdicts] == [202, 400, 202, 409, 400, 400, 400, 202]
    assert verdicts[0]["job"]["id"] == verdicts[2]["job"]["id"]
    assert verdicts[2]["idempotency"]["outcome"] == "replayed"
    assert verdicts[3]["error"]["details"]["paths"] == ["/input"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"jobs": []}',
        b'{"jobs": [1]}',
        b'{"jobs": [{}]}',
        b'{"jobs": {}}',
        b'{"jobs": [], "x": 1}',
    ],
)
async def test_a_malformed_batch_is_refused(queue: onejob.Ledger, client: Client, body: bytes) -> None:
    assert (await client.ask("POST", "/api/jobs/batch", body)).status == 400
    too_many = json.dumps({"jobs": [{"type": "t"}] * 1001}).encode()
    assert (await client.ask("POST", "/api/jobs/batch", too_many)).status == 400
    assert await queue.jobs() == []


async def test_a_batch_has_no_key_of_its_own_and_says_so(queue: onejob.Ledger, client: Client) -> None:
    answer = await client.post("/api/jobs/batch", {"jobs": [{"type": "t"}]}, b"idempotency-key: k")
    assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")
    assert await queue.jobs() == []


async def test_an_external_job_is_named_in_the_body_and_has_no_location(clock: FakeClock) -> None:
    engine = MemoryEngine(clock)
    record = a_record("k", "default", external_id="ec2-77", fingerprint=b"")
    engine.facts[Kind.RECORD][record.id] = record
    runtime = Runtime(engine, onejob.IdempotencyConfig(), clock=clock, ids=SystemIds())
    ledger = onejob.Ledger(runtime, Caller())
    async with ledger, serve_app(HttpApp(ledger)) as client:
        answer = await client.post("/api/jobs", {"type": TYPE}, b"idempotency-key: k")
        assert (answer.status, answer.body["job"], answer.body["jobId"]) == (202, None, "ec2-77")
        assert answer.headers["idempotent-replayed"] == "true"
        assert "location" not in answer.headers
        dry = await client.post("/api/jobs?dryRun=true", {"type": TYPE}, b"idempotency-key: k")
        assert (dry.body["job"], dry.body["jobId"]) == (None, "ec2-77")
        item = {"type": TYPE, "idempotencyKey": "k"}
        (verdict,) = (await client.post("/api/jobs/batch", {"jobs": [item]})).body["verdicts"]
        assert (verdict["status"], verdict["jobId"]) == (202, "ec2-77")
