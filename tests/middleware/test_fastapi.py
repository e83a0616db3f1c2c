"""FastAPI routes in a real server: authentication first, then the key."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.middleware.servers import Server, run_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("fastapi")
    with run_server(folder, f"sqlite:///{folder / 'keys.db'}", "fastapi") as running:
        yield running


async def test_concurrent_duplicates_run_the_endpoint_once(server: Server) -> None:
    for path, name in (("/api/orders", "orders"), ("/api/plainly", "plainly")):
        before = server.runs(name)
        requests = (server.ask(path, name, b'{"item": "a"}', authorization="ann") for _ in range(20))
        answers = await asyncio.gather(*requests)
        assert len({(answer.status, answer.body) for answer in answers}) == 1
        assert sum(answer.replayed for answer in answers) == 19
        assert server.runs(name) == before + 1


async def test_an_unauthenticated_request_gets_no_replay(server: Server) -> None:
    body = b'{"item": "b"}'
    assert (await server.ask("/api/orders", "auth", body, authorization="ann")).status == 201
    assert (await server.ask("/api/orders", "auth", body)).status == 401
    assert not (await server.ask("/api/orders", "auth", body, authorization="bob")).replayed


async def test_an_invalid_request_does_not_acquire_its_key(server: Server) -> None:
    assert (await server.ask("/api/orders", "v", b'{"thing": 1}', authorization="ann")).status == 422
    assert (await server.ask("/api/orders", "v", b'{"item": "c"}', authorization="ann")).status == 201


async def test_an_http_exception_is_stored_and_an_internal_error_is_not(server: Server) -> None:
    before = server.runs("orders")
    for _ in range(2):
        answer = await server.ask("/api/orders", "none", b'{"item": "none"}', authorization="ann")
        assert (answer.status, answer.json) == (404, {"detail": "there is no such item"})
    assert server.runs("orders") == before + 1
    for _ in range(2):
        assert (await server.ask("/api/orders", "err", b'{"item": "broken"}', authorization="ann")).status == 500
    assert server.runs("orders") == before + 3


async def test_openapi_has_the_key_and_the_responses_to_its_misuse(server: Server) -> None:
    document = (await server.ask("/openapi.json", None, b"", method="GET")).json
    operations = document["paths"]["/api/orders"]
    (header,) = [one for one in operations["post"]["parameters"] if one["name"].lower() == "idempotency-key"]
    assert (header["in"], header["required"]) == ("header", True)
    responses = operations["post"]["responses"]
    assert {"201", "409", "422"} <= set(responses)
    assert "in progress" in responses["409"]["description"]
    assert "used for another request" in responses["422"]["description"]
    assert set(responses["422"]["content"]) == {"application/problem+json", "application/json"}
    assert "409" not in operations["get"]["responses"]
    assert not [one for one in operations["get"].get("parameters", []) if one["name"].lower() == "idempotency-key"]


async def test_a_missing_key_is_refused_and_a_get_needs_none(server: Server) -> None:
    missing = await server.ask("/api/orders", None, b'{"item": "d"}', authorization="ann")
    assert (missing.status, missing.code) == (400, "KEY_MISSING")
    assert (await server.ask("/api/orders", None, b"", method="GET", authorization="ann")).status == 200
