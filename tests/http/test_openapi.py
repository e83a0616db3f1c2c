"""The OpenAPI document: valid, complete, and true for real responses."""

import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from openapi_spec_validator import validate

import onejob
from onejob.codes import HTTP_API_CODES
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.http.openapi import build_openapi
from tests.support.serve_process import ServeProcess, run_serve_process

EXAMPLES = 20
SEED = 1
# A stream of events ends with its job; tests/http/endpoints/test_events.py tests it.
STREAMS = "/api/jobs/{id}/events"
# Claiming may wait for half a minute; tests/http/endpoints/test_work.py tests it.
WAITS = "/api/work/claim"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, shared_url: str) -> Iterator[ServeProcess]:
    with run_serve_process(tmp_path_factory.mktemp("openapi"), "--engine", shared_url) as running:
        yield running


@pytest.fixture
async def app() -> AsyncIterator[HttpApp]:
    async with onejob.open("memory://", sweep=False) as ledger:
        yield HttpApp(ledger)


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


@pytest.mark.parametrize("auth", [False, True])
async def test_it_is_valid(app: HttpApp, auth: bool) -> None:
    validate(build_openapi(app.routes.all, ServiceConfig(auth=auth, rate_per_second=5)))


@pytest.mark.parametrize("callbacks", ["none", "public"])
async def test_every_body_that_it_names_is_in_it(app: HttpApp, callbacks: Literal["none", "public"]) -> None:
    document = build_openapi(app.routes.all, ServiceConfig(callbacks=callbacks))
    named = re.findall(r'"\$ref":"#/components/schemas/(\w+)"', msgspec.json.encode(document).decode())
    assert set(named) <= set(document["components"]["schemas"])
    assert ("CallbackBody" in document["components"]["schemas"]) is (callbacks != "none")


async def test_every_route_is_in_it(app: HttpApp) -> None:
    document = build_openapi(app.routes.all, ServiceConfig())
    described = {(method, path) for method, path, _ in operations(document)}
    assert described == {(route.method, route.path) for route in app.routes.all if not route.is_page}
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(names)) == len(names)


async def test_parameters_and_keys_are_documented(app: HttpApp) -> None:
    document = build_openapi(app.routes.all, ServiceConfig())
    parameters = {(method, path): operation["parameters"] for method, path, operation in operations(document)}
    for route in app.routes.all:
        if route.is_page:
            continue
        places = {(each["in"], each["name"]) for each in parameters[route.method, route.path]}
        assert {name for place, name in places if place == "query"} == {each.name for each in route.query}
        assert (("header", "Idempotency-Key") in places) == route.takes_key
        for place, name in places:
            assert (place == "path") == (f"{{{name}}}" in route.path)


async def test_every_submission_endpoint_documents_its_key_and_quota_errors(app: HttpApp) -> None:
    document = build_openapi(app.routes.all, ServiceConfig())
    for path in ("/api/jobs", "/api/clients/{client_id}/jobs"):
        operation = document["paths"][path]["post"]
        assert "Idempotency-Key" in {each["name"] for each in operation["parameters"]}
        for code in ("QUOTA_EXCEEDED", "COST_LIMIT_EXCEEDED", "RATE_LIMITED"):
            assert code in operation["responses"]["429"]["description"]


async def test_every_failure_is_a_problem_with_a_known_code(app: HttpApp) -> None:
    document = build_openapi(app.routes.all, ServiceConfig())
    assert document["components"]["schemas"]["ErrorOut"]["properties"]["code"]["enum"] == list(HTTP_API_CODES)
    for method, path, operation in operations(document):
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                assert list(response["content"]) == ["application/problem+json"], (method, path, status)


async def test_credentials_are_asked_for_where_they_are(app: HttpApp) -> None:
    for auth in (False, True):
        document = build_openapi(app.routes.all, ServiceConfig(auth=auth))
        secured = {(method, path) for method, path, one in operations(document) if "security" in one}
        needed = {(route.method, route.path) for route in app.routes.all if route.permission is not None}
        assert secured == (needed if auth else set())


async def test_the_status_of_a_mismatch_is_the_configured_one(app: HttpApp) -> None:
    document = build_openapi(app.routes.all, ServiceConfig(mismatch_status=422))
    responses = document["paths"]["/api/jobs"]["post"]["responses"]
    assert "CONFLICT" in responses["422"]["description"]
    assert "CONFLICT" not in responses["409"]["description"]


async def test_a_key_in_the_header_or_in_the_body_satisfies_the_schema_of_a_sequence(app: HttpApp) -> None:
    schemas = build_openapi(app.routes.all, ServiceConfig())["components"]["schemas"]
    for name in ("SequenceOfOne", "SequenceOfMany"):
        assert "idempotencyKey" not in schemas[name]["required"]
        assert "Idempotency-Key" in schemas[name]["properties"]["idempotencyKey"]["description"]


async def test_it_holds_no_sample_that_could_be_copied_as_a_key(app: HttpApp) -> None:
    def member_names(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from value
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from member_names(part)

    assert not {"example", "examples"} & set(member_names(build_openapi(app.routes.all, ServiceConfig())))


# The id of a job may be one that exists, and a read that waits for its end would take half a minute.
WITHOUT_WAITS = """
[[operations]]
include-path = "/api/jobs/{id}"
parameters = { "query.wait" = 0 }
"""
# It answers invalid items with 200, and with an error inside.
ALWAYS_FINE = "/api/cloud/jobs/submit"
# Its key may be in the body or in the header; a schema cannot say that one of them must be there, nor that two must agree.
TWO_KEYS = "/api/clients/{client_id}/jobs"


@pytest.mark.parametrize("shared_url", ["sqlite", "postgres"], indirect=True)  # a gate has the same endpoints
@pytest.mark.parametrize(
    "which",
    [
        [
            *("--exclude-path", STREAMS),
            *("--exclude-path", WAITS),
            *("--exclude-path", ALWAYS_FINE),
            *("--exclude-path", TWO_KEYS),
        ],
        ["--include-path", TWO_KEYS, "--exclude-checks", "positive_data_acceptance"],
        ["--include-path", ALWAYS_FINE, "--exclude-checks", "negative_data_rejection"],
    ],
    ids=["most paths", "sequences", "the cloud contract"],
)
def test_strange_requests_find_no_failure_and_nothing_undescribed(
    service: ServeProcess, shared_url: str, tmp_path: Path, which: list[str]
) -> None:
    # Boundary values on one store, random values on the other: together they take the time of one full run.
    phase = "coverage" if shared_url.startswith("postgresql") else "fuzzing"
    validate(service.get("/openapi.json").json)
    command = [
        str(Path(sys.executable).with_name("schemathesis")), "run", f"{service.base_url}/openapi.json",
        "--phases", phase, "--max-examples", str(EXAMPLES), "--seed", str(SEED), *which,
        "--generation-database", "none", "--request-timeout", "20", "--no-color",
    ]  # fmt: skip
    (tmp_path / "schemathesis.toml").write_text(WITHOUT_WAITS, encoding="utf-8")
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    print(found.stdout)
    assert found.returncode == 0, f"seed {SEED}:\n{found.stdout[-8000:]}{found.stderr[-2000:]}"
    counted = service.get("/metrics").body.decode()
    failed = [line for line in counted.splitlines() if 'status="5xx"' in line and "_count" in line]
    assert not failed
