"""Texts that some stores cannot hold, such as NUL: the same rule on every engine, and never a server error."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

import onejob
from onejob.http.app import HttpApp
from tests.support.app_server import Client, HttpResponse, serve_app

NUL = "a\x00b"
ESCAPED_NUL = "a\ufffdb"
LONE_SURROGATE = "\ud800"


@pytest.fixture
async def client(queue: onejob.Ledger) -> AsyncIterator[Client]:
    async with serve_app(HttpApp(queue)) as client:
        yield client


async def submit(client: Client, **more: Any) -> HttpResponse:
    return await client.post("/api/jobs", {"type": "t", "input": {NUL: NUL}} | more, b"idempotency-key: k")


async def test_json_values_keep_any_text(client: Client, queue: onejob.Ledger) -> None:
    made = await submit(client, labels={NUL: NUL})
    assert (made.status, made.body["job"]["labels"]) == (202, {NUL: NUL})
    again = await submit(client)
    assert again.body["job"]["id"] == made.body["job"]["id"]
    assert (await submit(client, input={NUL: "ab"})).code == "CONFLICT"
    (attempt,) = await queue.claim("t", start=True)
    assert attempt.input == b'{"a\\u0000b": "a\\u0000b"}'
    attempt = await queue.extend(attempt, progress={"at": NUL}, logs=[NUL])
    await queue.finish(attempt, {"text": NUL})
    job_id = made.body["job"]["id"]
    assert (await client.get(f"/api/jobs/{job_id}/result")).body == {"text": NUL}
    assert (await client.get(f"/api/jobs/{job_id}")).body["job"]["progress"] == {"at": NUL}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/jobs", {"type": NUL}),
        ("POST", "/api/jobs", {"type": "t", "scope": NUL}),
        ("POST", "/api/jobs", {"type": "t", "idempotencyKey": NUL}),
        (
            "POST",
            "/api/clients/a%00b/jobs",
            {"scope": "s", "sequence": 1, "idempotencyKey": "k", "type": "t"},
        ),
        ("GET", "/api/clients/a%00b/state?scope=s", None),
        ("GET", "/api/keys/a%00b?scope=t", None),
        ("GET", "/api/keys/k?scope=a%00b", None),
        ("PUT", "/api/quotas/a%00b", {"maxConcurrent": 1}),
        ("GET", "/api/usage?user=a%00b", None),
        ("POST", "/api/reservations", {"user": NUL}),
        ("POST", "/api/work/claim", {"types": [NUL], "start": True, "leaseSeconds": 60}),
    ],
)
async def test_names_and_keys_with_a_nul_are_refused(client: Client, method: str, path: str, body: object) -> None:
    reply = await (client.get(path) if body is None else client.ask(method, path, json.dumps(body).encode()))
    assert (reply.status, reply.body["error"]["retryable"]) == (400, False), reply
    assert not (await client.get("/api/jobs")).body["jobs"]


@pytest.mark.parametrize("path", ["/api/jobs?type=a%00b", "/api/jobs?user=a%00b"])
async def test_looking_up_an_impossible_key_finds_nothing(client: Client, path: str) -> None:
    await submit(client)
    reply = await client.get(path)
    assert reply.status in (200, 400)
    assert reply.status == 400 or not reply.body["jobs"]


@pytest.mark.parametrize("final", [False, True])
async def test_an_attempt_ends_whatever_its_error_contains(client: Client, queue: onejob.Ledger, final: bool) -> None:
    made = await submit(client)
    (attempt,) = await queue.claim("t", start=True)
    report = {"token": attempt.token, "holder": attempt.holder.decode(), "error": NUL, "final": final}
    path = f"/api/jobs/{made.body['job']['id']}"
    for _ in range(2):  # a repeated report gets the same response
        ended = await client.post(f"{path}/finish", report)
        assert (ended.status, ended.body["job"]["error"]) == (200, ESCAPED_NUL)
    history = await queue.explain("k", scope="t")
    assert ESCAPED_NUL in [event.detail for event in history.events]


async def test_in_python_a_lone_surrogate_in_an_error_ends_the_attempt_too(queue: onejob.Ledger) -> None:
    await queue.submit("t", max_attempts=1)
    (attempt,) = await queue.claim("t", start=True)
    ended = await queue.finish(attempt, error=f"no file {LONE_SURROGATE}{NUL}")
    assert (ended.state, ended.error) == ("failed", f"no file \ufffd{ESCAPED_NUL}")
    again = await queue.rerun(ended.id, note=f"{LONE_SURROGATE}{NUL}")
    assert again.state == "pending"
    held = await queue.check_or_reserve("t", idempotency_key="k")
    assert isinstance(held, onejob.HeldKey)
    assert (await queue.fail(held, LONE_SURROGATE)).job_id == held.job_id
