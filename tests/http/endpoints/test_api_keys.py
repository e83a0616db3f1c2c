"""API keys over HTTP: made, rotated and revoked by administrators, and the text is shown once."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

import onejob
from onejob.core.credentials import Role
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.ledger.api_keys import ApiKeys
from tests.support.app_server import Client, serve_app


@pytest.fixture
async def client(queue: onejob.Ledger) -> AsyncIterator[Client]:
    async with serve_app(HttpApp(queue, config=ServiceConfig(auth=True))) as client:
        yield client


@pytest.fixture
async def admin(queue: onejob.Ledger) -> bytes:
    return b"x-api-key: " + (await ApiKeys(queue).create("root", roles=[Role.ADMIN])).text.encode()


async def status_with(client: Client, text: str) -> int:
    return (await client.get("/api/jobs", b"x-api-key: " + text.encode())).status


async def test_a_key_is_created_listed_without_its_text_rotated_and_revoked(client: Client, admin: bytes) -> None:
    made = await client.post("/api/api-keys", {"name": "robot", "roles": ["submitter"], "user": "ann"}, admin)
    assert made.status == 201
    key, text = made.body["apiKey"], made.body["text"]
    assert (key["name"], key["user"], key["roles"]) == ("robot", "ann", ["submitter"])
    assert await status_with(client, text) == 200
    listed = (await client.get("/api/api-keys", admin)).body
    assert {one["name"] for one in listed["apiKeys"]} == {"root", "robot"}
    assert text.rpartition(".")[2] not in str(listed)

    path = f"/api/api-keys/{key['id']}"
    overlapping = (await client.post(f"{path}/rotate", {"overlapSeconds": 60}, admin)).body["text"]
    assert await status_with(client, text) == await status_with(client, overlapping) == 200
    renewed = (await client.post(f"{path}/rotate", {"overlapSeconds": 0}, admin)).body["text"]
    assert await status_with(client, text) == await status_with(client, overlapping) == 401
    assert await status_with(client, renewed) == 200
    for _ in range(2):
        assert (await client.ask("POST", f"{path}/revoke", b"", admin)).body["apiKey"]["revokedAt"]
    assert await status_with(client, renewed) == 401
    assert (await client.post(f"{path}/rotate", {}, admin)).status == 400


@pytest.mark.parametrize(
    "body",
    [
        {"name": "x"},
        {"name": "x", "roles": []},
        {"name": "x", "roles": ["king"]},
        {"name": "x", "roles": ["admin"] * 6},
        {"name": "", "roles": ["admin"]},
        {"name": "x" * 93, "roles": ["admin"], "user": "u"},
        {"name": "x", "roles": ["admin"], "user": ""},
        {"name": "x\n", "roles": ["admin"]},
        {"name": "x", "roles": ["admin"], "secret": "mine"},
    ],
)
async def test_a_malformed_key_is_refused(client: Client, admin: bytes, body: dict[str, Any]) -> None:
    assert (await client.post("/api/api-keys", body, admin)).status == 400
    assert len((await client.get("/api/api-keys", admin)).body["apiKeys"]) == 1


@pytest.mark.parametrize("overlap", [-1, 90 * 86_400 + 1, 1e300])
async def test_an_absurd_overlap_is_refused(client: Client, admin: bytes, overlap: float) -> None:
    made = await client.post("/api/api-keys", {"name": "x", "roles": ["worker"]}, admin)
    path = f"/api/api-keys/{made.body['apiKey']['id']}/rotate"
    assert (await client.post(path, {"overlapSeconds": overlap}, admin)).status == 400


@pytest.mark.parametrize(("key_id", "status"), [("0123456789ab", 404), ("nonsense", 400)])
async def test_an_unknown_key_is_not_found(client: Client, admin: bytes, key_id: str, status: int) -> None:
    for verb in ("rotate", "revoke"):
        assert (await client.ask("POST", f"/api/api-keys/{key_id}/{verb}", b"", admin)).status == status


async def test_only_administrators_see_and_make_keys(queue: onejob.Ledger, client: Client) -> None:
    for role in set(Role) - {Role.ADMIN}:
        header = b"x-api-key: " + (await ApiKeys(queue).create(role, roles=[role])).text.encode()
        assert (await client.get("/api/api-keys", header)).status == 403
        assert (await client.post("/api/api-keys", {"name": "x", "roles": ["admin"]}, header)).status == 403
