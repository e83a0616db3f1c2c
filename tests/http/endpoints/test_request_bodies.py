"""Bodies of submissions: one limit on the input everywhere, errors of single items, no blocked event loop."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import Raw

import onejob
from onejob.core.fingerprint import DEPTH_MAX, INPUT_BYTES_MAX
from onejob.errors import Invalid
from onejob.http.app import HttpApp
from onejob.http.config import BODY_BYTES_MAX
from tests.support.app_server import Client, HttpResponse, serve_app


@pytest.fixture
async def client(queue: onejob.Ledger) -> AsyncIterator[Client]:
    async with serve_app(HttpApp(queue)) as client:
        yield client


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


async def submit_raw(client: Client, body: bytes, key: str) -> HttpResponse:
    return await client.ask("POST", "/api/jobs", body, b"idempotency-key: " + key.encode())


async def batch(client: Client, *items: bytes) -> list[Any]:
    answer = await client.ask("POST", "/api/jobs/batch", b'{"jobs": [' + b",".join(items) + b"]}")
    assert answer.status == 200, answer.body
    verdicts: list[Any] = answer.body["verdicts"]
    return verdicts


async def test_the_deepest_input_is_the_same_through_every_entry_point(queue: onejob.Ledger, client: Client) -> None:
    deepest, deeper = nested(DEPTH_MAX), nested(DEPTH_MAX + 1)
    made = await queue.submit("t", deepest, idempotency_key="k")
    text = b'{"type": "t", "idempotencyKey": "k", "input": %b}'
    single = await submit_raw(client, text % json.dumps(deepest).encode(), "k")
    (item,) = await batch(client, text % json.dumps(deepest).encode())
    assert made.job_id == single.body["job"]["id"] == item["job"]["id"]
    with pytest.raises(Invalid, match="nested deeper"):
        await queue.submit("t", deeper)
    single = await submit_raw(client, text % json.dumps(deeper).encode(), "k")
    assert (single.status, single.body["error"]["details"]) == (400, {"what": "input"})
    fine, refused = await batch(client, b'{"type": "t"}', text % json.dumps(deeper).encode())
    assert (fine["status"], refused["status"], refused["error"]["code"]) == (202, 400, "VALIDATION_ERROR")
    assert "nested deeper" in refused["error"]["message"]


@pytest.mark.parametrize("text", [r'"\ud800"', r'"\udc00 and more"', r'{"a": "\uD800\u0041"}', r'{"\ud800": 1}'])
async def test_a_lone_surrogate_is_named_in_the_error(queue: onejob.Ledger, client: Client, text: str) -> None:
    body = b'{"type": "t", "input": %b}' % text.encode()
    for data, path in (
        (body, "/api/jobs"),
        (b'{"jobs": [%b]}' % body, "/api/jobs/batch"),
        (b'{"scope": "s", "sequence": 1, "idempotencyKey": "k", %b' % body[1:], "/api/clients/c/jobs"),
    ):
        answer = await client.ask("POST", path, data)
        assert (answer.status, "lone surrogate" in answer.body["detail"]) == (400, True), answer.body
    cloud = await client.ask("POST", "/api/cloud/jobs/submit?provider=p", b'{"config": %b}' % text.encode())
    assert "lone surrogate" in cloud.body["error"]
    with pytest.raises(Invalid, match="lone surrogate"):
        await queue.submit("t", Raw(text.encode()))


async def test_the_largest_input_of_python_is_replayed_over_http(queue: onejob.Ledger, client: Client) -> None:
    largest = "x" * (INPUT_BYTES_MAX - 2)
    key, scope = '"' * 255, "\x7e" * 100
    made = await queue.submit("t", largest, idempotency_key=key, scope=scope)
    body = {"type": "t", "input": largest, "idempotencyKey": key, "scope": scope, "labels": {"n": '"' * 200}}
    answer = await client.post("/api/jobs", body)
    assert answer.headers["idempotent-replayed"] == "true"
    assert answer.body["job"]["id"] == made.job_id


async def test_an_input_beyond_the_limit_is_413_and_uses_no_key(queue: onejob.Ledger, client: Client) -> None:
    beyond = "x" * (INPUT_BYTES_MAX - 1)
    answer = await submit_raw(client, json.dumps({"type": "t", "input": beyond}).encode(), "k")
    assert (answer.status, answer.code) == (413, "PAYLOAD_TOO_LARGE")
    answer = await submit_raw(client, b" " * (BODY_BYTES_MAX + 1), "k")
    assert (answer.status, answer.code) == (413, "PAYLOAD_TOO_LARGE")
    (item,) = await batch(client, json.dumps({"type": "t", "input": beyond}).encode())
    assert item["status"] == 400
    assert await queue.jobs() == []


@pytest.mark.parametrize(
    "item",
    [
        b'{"type": "t", "input": {"a": 1, "a": 1}}',
        b'{"type": "t", "input": {"a": 1, "\\u0061": 1, "b": "\\u0022"}}',
        b'{"type": "t", "type": "t"}',
        b'{"type": "t", "input": 1, "input": 2}',
        b'{"type": "t", "labels": {"a": "1", "a": "2"}}',
        b'{"type": "t", "input": 1e400}',
        b'{"type": "t", "input": [' + b"9" * 1001 + b"]}",
        b'{"type": "t", "input": "\xff"}',
        b'{"type": "t", "input": ' + b"[" * 500 + b"]" * 500 + b"}",
    ],
)
async def test_duplicate_members_fail_only_their_own_item(queue: onejob.Ledger, client: Client, item: bytes) -> None:
    fine = b'{"type": "t", "input": {"name": "a \\" b"}}'
    verdicts = await batch(client, fine, item, fine)
    assert [verdict["status"] for verdict in verdicts] == [202, 400, 202]
    assert verdicts[1]["error"]["code"] == "VALIDATION_ERROR"
    assert len(await queue.jobs()) == 2
    answer = await submit_raw(client, item, "k")
    assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")


@pytest.mark.parametrize(
    "body",
    [
        b'{"jobs": [{"type": "t"}], "jobs": [{"type": "t"}]}',
        b'{"jobs": [], "jobs": [{"type": "t"}]}',
        b'{"jobs": [{"type": "t"}], "\\u006aobs": [{"type": "t"}]}',
        b'{"jobs": [{"type": "t"}, {"type": "t"]}',
        b'{"jobs": [{"type": "t", "input": "\\ud800"}]}',
        b'{"jobs": [{"type": "t", "input": NaN}]}',
        b'{"jobs": [{"type": "t", "input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
    ],
)
async def test_a_batch_with_invalid_json_or_duplicate_jobs_is_refused_as_a_whole(
    queue: onejob.Ledger, client: Client, body: bytes
) -> None:
    answer = await client.ask("POST", "/api/jobs/batch", body)
    assert (answer.status, answer.code in ("BAD_REQUEST", "VALIDATION_ERROR")) == (400, True)
    assert await queue.jobs() == []


@pytest.mark.parametrize(
    "text",
    [
        b"[" + b"1.5," * 262_000 + b"1]",
        b"[" + b"[]," * 349_000 + b"1]",
        b"[" + b'{"a":0.1},' * 104_000 + b"1]",
    ],
)
async def test_a_large_body_does_not_block_other_requests(client: Client, text: bytes) -> None:
    assert INPUT_BYTES_MAX * 0.9 < len(text) <= INPUT_BYTES_MAX
    large = asyncio.ensure_future(submit_raw(client, b'{"type": "t", "input": ' + text + b"}", "k"))
    others = 0
    while not large.done():
        assert (await client.get("/healthz")).status == 200
        others += 1
    assert (await large).status == 202
    assert others >= 3
    again = await submit_raw(client, b'{"type": "t", "input": ' + text + b" }", "k")
    assert again.headers["idempotent-replayed"] == "true"


@pytest.mark.parametrize(
    ("field", "value"),
    [("maxAttempts", 0), ("maxAttempts", 101), ("timeoutSeconds", 0), ("idempotencyTtlSeconds", 0.5)],
)
async def test_a_refusal_names_the_json_members(client: Client, field: str, value: float) -> None:
    answer = await client.post("/api/jobs", {"type": "t", field: value})
    assert (answer.status, answer.body["error"]["details"]) == (400, {"what": field})
    (item,) = await batch(client, json.dumps({"type": "t", field: value}).encode())
    assert item["error"]["details"] == {"what": field}
    assert "_" not in answer.body["detail"] + item["error"]["message"]


@pytest.mark.parametrize("path", ["/api/jobs", "/api/jobs/batch", "/api/clients/c/jobs", "/api/reservations"])
@pytest.mark.parametrize(
    "body", [b"{", b'{"type": "t",}', b"nonsense", b'{"type": NaN}', b'{"type": "\xff"}', b"{} {}"]
)
@pytest.mark.parametrize("url", ["memory"], indirect=True)
async def test_broken_json_is_a_bad_request(client: Client, path: str, body: bytes) -> None:
    answer = await client.ask("POST", path, body)
    assert (answer.status, answer.code) == (400, "BAD_REQUEST")
    assert "not JSON" in answer.body["detail"]


@pytest.mark.parametrize(
    "body", [b"[]", b'{"type": 1}', b"{}", b'{"type": "t", "x": 1}', b'{"type": "t", "priority": 1.5}']
)
@pytest.mark.parametrize("url", ["memory"], indirect=True)
async def test_json_with_a_wrong_value_is_a_validation_error(client: Client, body: bytes) -> None:
    answer = await client.ask("POST", "/api/jobs", body)
    assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")
