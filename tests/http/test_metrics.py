"""Metrics, readiness, statistics, and the published idempotency policy."""

import asyncio
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import onejob
from onejob import runtime
from onejob.clock import FakeClock, SystemClock
from onejob.codes import HTTP_API_CODES
from onejob.core.credentials import DropPolicy, Role, SetPolicy
from onejob.core.facts import Kind
from onejob.core.identity import Actor
from onejob.core.key import KEY_CHARS_MAX
from onejob.core.submit import TTL_MS_DEFAULT
from onejob.engines import gate
from onejob.errors import Unavailable, Unknown
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.http.endpoints import status as observability
from onejob.http.metrics import LATENCY_BUCKETS_SECONDS, Metrics, render_metrics
from onejob.http.problems import Unauthorized
from onejob.http.request import ANONYMOUS, Credential, Scope
from onejob.http.routing import Route
from onejob.ids import SystemIds
from onejob.ledger import Ledger
from onejob.ledger.api_keys import ApiKeys
from onejob.runtime import Runtime, external_keys
from onejob.runtime.callers import Caller
from tests.support.app_server import Client, serve_app
from tests.support.ledger_settings import set_settings
from tests.support.recording_engine import RecordingEngine
from tests.support.serve_process import ServeProcess, run_serve_process

SIGN_IN = ("POST", "/api/session")
PUBLIC_PATHS = ("/", "/docs", "/openapi.json", "/healthz", "/readyz", "/api/idempotency-policy")
SECRET = "s3cret-of-a-customer"

Labels = tuple[tuple[str, str], ...]


def samples(text: str) -> dict[tuple[str, Labels], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape(service: ServeProcess) -> dict[tuple[str, Labels], float]:
    answer = service.get("/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return samples(answer.body.decode())


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, shared_url: str) -> Iterator[ServeProcess]:
    with run_serve_process(tmp_path_factory.mktemp("metrics"), "--engine", shared_url) as running:
        yield running


@pytest.fixture
async def holdable_ledger(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[RecordingEngine, Ledger]]:
    monkeypatch.setattr(external_keys, "CACHE_SECONDS", 3600)  # no read of that list before a write that fails
    engine = RecordingEngine(FakeClock())
    host = Runtime(engine, onejob.IdempotencyConfig(), clock=SystemClock(), ids=SystemIds())
    ledger = Ledger(host, Caller())
    await ledger.submit("warm-up", idempotency_key="warm-up")
    yield engine, ledger
    engine.release_writes()
    await ledger.aclose()


def test_submissions_are_counted_by_their_answer(service: ServeProcess) -> None:
    def counted() -> list[float]:
        found = scrape(service)
        return [
            found["onejob_submissions_total", (("outcome", outcome),)]
            for outcome in ("created", "replayed", "conflict")
        ]

    before = counted()
    for amount in (1, 1, 1, 2):
        service.submit("charge", {"amount": amount}, key="counted")
    assert [after - once for after, once in zip(counted(), before, strict=True)] == [1, 2, 1]
    stats = service.get("/api/stats").json
    assert stats["outcomes"] == stats["process"]["outcomes"]
    assert [stats["outcomes"][outcome] for outcome in ("created", "replayed", "conflict")] == counted()


def test_requests_are_counted_by_pattern_and_class_of_status(service: ServeProcess) -> None:
    job_id = service.submit("t", {}, key="pattern").json["job"]["id"]
    service.get(f"/api/jobs/{job_id}")
    service.get("/api/jobs/nonsense")
    found = scrape(service)
    for status in ("2xx", "4xx"):
        labels = (("method", "GET"), ("route", "/api/jobs/{id}"), ("status", status))
        assert found["onejob_http_request_seconds_count", labels] >= 1
        assert found["onejob_http_request_seconds_bucket", (("le", "+Inf"), *labels)] >= 1


def test_no_client_input_but_the_job_type_becomes_a_label(service: ServeProcess) -> None:
    service.submit("t", {"card": SECRET}, key=SECRET)
    for n in range(20):
        service.get(f"/{SECRET}/{n}")
        service.ask(f"VERB{n}", "/api/jobs")
        service.get(f"/api/jobs?type={SECRET}{n}")
    service.get("/api/jobs?state=nonsense")
    text = service.get("/metrics").body.decode()
    assert SECRET not in text
    assert "VERB" not in text
    described = service.get("/openapi.json").json["paths"]
    known = {(method.upper(), path) for path, methods in described.items() for method in methods}
    for name, labels in samples(text):
        if name.startswith("onejob_http_request"):
            reported = dict(labels)
            assert (reported["method"], reported["route"]) in known | {("-", "unmatched")}
            assert reported["status"] in {"1xx", "2xx", "3xx", "4xx", "5xx"}


def test_batches_and_queues_show(service: ServeProcess) -> None:
    service.submit("t", {}, key="batch")
    found = scrape(service)
    for queue in ("write", "read"):
        labels = (("queue", queue),)
        assert found["onejob_queue_commands", labels] == 0
        count = found["onejob_batch_commands_count", labels]
        assert found["onejob_batch_commands_sum", labels] >= count
        assert found["onejob_batch_commands_bucket", (("le", "+Inf"), *labels)] == count
    assert found["onejob_batch_commands_count", (("queue", "write"),)] >= 1
    assert found["onejob_gate_entries", (("kind", "committed"),)] >= 1
    assert found["onejob_waiters", ()] == 0
    assert found["process_resident_memory_bytes", ()] > 0
    assert ("onejob_maintenance_failures_total", ()) in found
    for kind in ("record", "job", "stream", "usage"):
        assert ("onejob_maintenance_swept_total", (("kind", kind),)) in found


async def test_a_tenant_sees_its_own_counts_and_administrators_see_all(queue: onejob.Ledger) -> None:
    def known(tenant: str, *roles: Role) -> bytes:
        caller = Caller(tenant, "ann", "user:ann")
        credentials[name := f"{tenant}:{len(credentials)}"] = Credential(caller, frozenset(roles), "ann")
        return b"x-name: " + name.encode()

    async def named(scope: Scope) -> Credential:
        return credentials[dict(scope["headers"])[b"x-name"].decode()]

    credentials: dict[str, Credential] = {}
    ours, theirs, admin = (
        known("acme", Role.SUBMITTER),
        known("umbrella", Role.OPERATOR),
        known("acme", Role.ADMIN),
    )
    app = HttpApp(queue, config=ServiceConfig(auth=True, metrics_open=False), authenticate=named)
    async with serve_app(app) as client:
        for n in (1, 1, 2):
            await client.post("/api/jobs", {"type": "t"}, ours, b"idempotency-key: k%d" % n)
        await client.post("/api/jobs", {"type": "t"}, theirs, b"idempotency-key: k")
        reported = [(await client.get("/api/stats", who)).body for who in (ours, theirs, admin)]
        assert [one["tenant"] for one in reported] == ["acme", "umbrella", "acme"]
        assert [one["outcomes"]["created"] for one in reported] == [2, 1, 2]
        assert [one["outcomes"]["replayed"] for one in reported] == [1, 0, 1]
        assert [one["process"] for one in reported[:2]] == [None, None]
        assert reported[2]["process"]["outcomes"]["created"] == 3
        assert reported[2]["process"]["queues"]["write"]["commands"] >= 3
        assert (await client.get("/metrics", ours)).status == 403
        assert (await client.open_stream("/metrics", admin)).status == 200


@pytest.mark.parametrize(
    ("settings", "statuses"),
    [
        ({"auth": True}, (401, 403, 200, 200)),
        ({"auth": True, "metrics_open": True}, (200, 200, 200, 200)),
        ({}, (200, 200, 200, 200)),
    ],
)
async def test_with_authentication_metrics_need_their_role_unless_they_are_open(
    queue: onejob.Ledger, settings: dict[str, Any], statuses: tuple[int, ...]
) -> None:
    roles = (Role.OPERATOR, Role.METRICS, Role.ADMIN)
    texts = [(await ApiKeys(queue).create(f"a {role}", roles=[role])).text for role in roles]
    credentials = [(), *((b"authorization: Bearer " + text.encode(),) for text in texts)]
    async with serve_app(HttpApp(queue, config=ServiceConfig(**settings))) as client:
        assert tuple([(await client.open_stream("/metrics", *one)).status for one in credentials]) == statuses
        if settings.get("auth"):
            assert (await client.get("/api/jobs", *credentials[2])).status == 403, "the role allows nothing else"


def test_the_counts_of_tenants_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "TENANTS_MAX", 3)
    counted = gate.OutcomeCounter()
    for n in range(10):
        counted.count(f"tenant {n}", "created")
    assert (counted.total(), len(counted._tenants)) == ({"created": 10}, 3)
    assert [dict(counted.for_tenant(f"tenant {n}")) for n in (0, 9)] == [{}, {"created": 1}]


async def test_each_app_counts_for_itself(queue: onejob.Ledger) -> None:
    one, other = Metrics(queue), Metrics(queue)
    route = Route("GET", "/x", HttpApp(queue).routes.all[0].handler, None, "")
    one.observe(route, 204, LATENCY_BUCKETS_SECONDS[0])
    one.observe(route, 204, 1e9)
    labels = (("method", "GET"), ("route", "/x"), ("status", "2xx"))
    found = samples(render_metrics(one.families()).decode())
    assert found["onejob_http_request_seconds_count", labels] == 2
    assert found["onejob_http_request_seconds_bucket", (("le", str(LATENCY_BUCKETS_SECONDS[0])), *labels)] == 1
    assert ("onejob_http_request_seconds_count", labels) not in samples(render_metrics(other.families()).decode())


def test_it_is_ready_when_the_engine_answers(service: ServeProcess, shared_url: str) -> None:
    answer = service.get("/readyz")
    assert answer.status == 200
    engine = "postgres" if shared_url.startswith("postgres") else "sqlite"
    is_gate = shared_url.startswith("http")
    reported = {name: answer.json[name] for name in ("status", "durability", "engine")}
    assert reported == {"status": "ready", "durability": "disk", "engine": f"http ({engine})" if is_gate else engine}
    if is_gate:
        assert answer.json["managers"] == [{"url": shared_url, "state": "reached", "wireVersion": 2, "reason": ""}]
    else:
        assert "managers" not in answer.json
    assert ("failover" in answer.json["caveat"]) == (engine == "postgres")
    assert service.get("/healthz").json == {"status": "ok", "durability": "disk"}


async def test_it_is_not_ready_when_the_engine_fails(holdable_ledger: tuple[RecordingEngine, Ledger]) -> None:
    engine, ledger = holdable_ledger
    async with serve_app(HttpApp(ledger)) as client:
        assert (await client.get("/readyz")).status == 200
        engine.fail_before.append(Unavailable("the disk is on holiday"))
        answer = await client.get("/readyz")
        assert (answer.status, answer.code) == (503, "SERVICE_UNAVAILABLE")
        assert "on holiday" in answer.body["detail"]
        assert answer.headers["retry-after"] == "1"
        assert (await client.get("/healthz")).status == 200


@pytest.mark.parametrize("failure", [Unavailable("no room is left"), Unknown("the sync failed")])
async def test_it_is_not_ready_after_a_failed_write_until_one_succeeds(
    holdable_ledger: tuple[RecordingEngine, Ledger], failure: Exception
) -> None:
    engine, ledger = holdable_ledger
    async with serve_app(HttpApp(ledger)) as client:
        engine.fail_before.extend([failure] * 3)
        with pytest.raises(type(failure)):
            await ledger.submit("t", idempotency_key="k")
        engine.fail_before.clear()
        engine.hold_writes()  # reads pass, and writes do not
        ledger._runtime.readiness._last_probe_at = SystemClock().monotonic()
        for _ in range(3):
            answer = await client.get("/readyz")
            assert (answer.status, answer.code) == (503, "SERVICE_UNAVAILABLE")
            assert str(failure) in answer.body["detail"]
            assert answer.body["error"]["details"] == {"durability": "process", "engine": "recording"}
        assert not engine.commands_of_type(SetPolicy), "it was tried not long ago"
        engine.release_writes()
        await ledger.submit("t", idempotency_key="k")
        assert (await client.get("/readyz")).status == 200
        assert not engine.commands_of_type(SetPolicy), "a write of a client was enough"


async def test_an_idle_server_finds_out_by_itself_that_it_is_ready_again(
    holdable_ledger: tuple[RecordingEngine, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, ledger = holdable_ledger
    monkeypatch.setattr(runtime, "PROBE_INTERVAL_SECONDS", 3600.0)
    async with serve_app(HttpApp(ledger)) as client:
        engine.fail_before.append(Unavailable("no room is left"))
        with pytest.raises(Unavailable):
            await ledger.submit("t", idempotency_key="k")
        engine.hold_writes()
        trying = asyncio.create_task(client.get("/readyz"))  # the first check tries a write
        while not engine.commands_of_type(SetPolicy):
            await asyncio.sleep(0.001)
        assert (await client.get("/readyz")).status == 503, "the second does not"
        engine.release_writes()
        assert (await trying).status == 200
        assert (await client.get("/readyz")).status == 200
        assert (len(engine.commands_of_type(SetPolicy)), len(engine.commands_of_type(DropPolicy))) == (1, 1)
        assert not engine.store.facts[Kind.POLICY], "nothing is left of the attempt"


async def test_anonymous_callers_do_not_see_store_errors(
    holdable_ledger: tuple[RecordingEngine, Ledger], caplog: pytest.LogCaptureFixture
) -> None:
    engine, ledger = holdable_ledger
    async with serve_app(HttpApp(ledger, config=ServiceConfig(auth=True))) as client:
        engine.fail_before.append(Unavailable("/secret/place is full"))
        answer = await client.get("/readyz")
    assert answer.status == 503
    assert "/secret/place" not in str(answer.body)
    assert "/secret/place is full" in caplog.text


async def test_it_is_not_ready_when_the_engine_does_not_answer(
    holdable_ledger: tuple[RecordingEngine, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, ledger = holdable_ledger
    silent = asyncio.Event()

    async def execute(commands: object, /, **options: object) -> list[object]:
        await silent.wait()
        raise Unavailable("too late")

    monkeypatch.setattr(engine, "execute", execute)
    monkeypatch.setattr(observability, "READY_SECONDS_MAX", 0.05)
    async with serve_app(HttpApp(ledger)) as client:
        answer = await client.get("/readyz")
    silent.set()
    assert answer.status == 503
    assert "did not answer" in answer.body["detail"]


async def test_open_paths_need_no_credential_and_the_others_do(queue: onejob.Ledger, tmp_path: Path) -> None:
    async def refuse(scope: Scope) -> Credential:
        raise Unauthorized("who are you?")

    app = HttpApp(queue, config=ServiceConfig(auth=True), authenticate=refuse)
    async with serve_app(app) as client:
        for path in PUBLIC_PATHS:
            watching = await client.open_stream(path)
            assert watching.status == 200, path
        for route in app.routes.all:
            is_open = route.path in PUBLIC_PATHS or route.is_page or (route.method, route.path) == SIGN_IN
            assert (route.permission is None) == is_open, route.path
        assert (await client.get("/api/stats")).status == 401


def test_an_anonymous_caller_has_no_tenant_and_no_role() -> None:
    assert ANONYMOUS.caller.tenant == ""
    assert not ANONYMOUS.roles


async def test_the_rules_about_keys_are_published_from_the_code(queue: onejob.Ledger) -> None:
    await set_settings(queue, key_owner="user")
    config = ServiceConfig(mismatch_status=422)
    async with serve_app(HttpApp(queue, config=config)) as client:
        rules = (await client.get("/api/idempotency-policy")).body
    assert rules["key"]["charsMax"] == KEY_CHARS_MAX
    assert rules["window"]["defaultSeconds"] * 1000 == TTL_MS_DEFAULT
    assert rules["mismatch"] == {"status": 422, "code": "CONFLICT", "text": rules["mismatch"]["text"]}
    assert rules["scope"]["sharedBy"] == "user"
    assert rules["inProgress"]["waitSecondsMax"] == 0  # as this ledger was opened
    assert [one["code"] for one in rules["errors"]] == list(HTTP_API_CODES)
    assert {one["status"] for one in rules["errors"] if one["code"] == "CONFLICT"} == {422}


async def read_metrics(client: Client, credential: bytes) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{client.port}/metrics")
    request.add_header("Authorization", credential.decode().partition(": ")[2])
    with await asyncio.to_thread(urllib.request.urlopen, request) as response:
        return str(response.read().decode())


async def test_the_metrics_of_an_administrator_name_no_job_types_of_other_tenants(queue: onejob.Ledger) -> None:
    acme = queue.acting_as(tenant="acme", user="u", actor=Actor.user("u"))
    other = queue.acting_as(tenant="other", user="u", actor=Actor.user("u"))
    for ledger, type in ((acme, "own-type"), (other, "secret-type")):
        await ledger.submit(type)
        (attempt,) = await ledger.claim(type, start=True)
        await ledger.finish(attempt)
    admin, scraper = [
        b"authorization: Bearer " + (await ApiKeys(acme).create(role, roles=[role])).text.encode()
        for role in (Role.ADMIN, Role.METRICS)
    ]
    async with serve_app(HttpApp(queue, config=ServiceConfig(auth=True))) as client:
        seen = await read_metrics(client, admin)
        assert 'onejob_jobs{state="success",type="own-type"} 1.0' in seen
        assert "onejob_submissions_total" in seen
        assert "secret-type" not in seen
        assert "onejob_attempts_total" not in seen
        seen = await read_metrics(client, scraper)
        assert 'onejob_jobs{state="success",type="secret-type"} 1.0' in seen
        assert 'onejob_attempts_total{end="success",type="secret-type"} 1.0' in seen
        body = {"name": "mine", "roles": ["submitter", "metrics"]}
        assert (await client.post("/api/api-keys", body, admin)).status == 403, "nobody gives more than he has"
