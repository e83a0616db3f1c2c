"""Invalid requests of workers are refused and change nothing."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

import onejob
from onejob.http.app import HttpApp
from tests.support.app_server import Client, serve_app

from .work_requests import claim, claim_and_start, post_verb


@pytest.fixture
async def client(queue: onejob.Ledger) -> AsyncIterator[Client]:
    async with serve_app(HttpApp(queue)) as client:
        yield client


@pytest.mark.parametrize(
    "wrong",
    [
        {"types": []},
        {"types": ["x"] * 101},
        {"types": ["a\n"]},
        {"limit": 0},
        {"limit": 101},
        {"limit": 1.5},
        {"limit": "1"},
        {"leaseSeconds": 0},
        {"leaseSeconds": -1},
        {"leaseSeconds": 86_401},
        {"leaseSeconds": 1e300},
        {"wait": 31},
        {"wait": -1},
        {"holder": ""},
        {"holder": "x" * 65},
        {"holder": "a\nb"},
        {"worker": "x" * 60},
        {"worker": "\x7f"},
        {"start": "yes"},
        {"more": 1},
    ],
)
async def test_invalid_claims_are_refused(queue: onejob.Ledger, client: Client, wrong: dict[str, Any]) -> None:
    await queue.submit("t")
    answer = await client.post("/api/work/claim", {"types": ["t"]} | wrong)
    assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")
    assert len(await claim(client)) == 1


@pytest.mark.parametrize(
    ("verb", "wrong"),
    [
        ("start", {"token": 0}),
        ("start", {"token": 2**70}),
        ("start", {"leaseSeconds": 1e9}),
        ("extend", {"logs": ["x"] * 101}),
        ("extend", {"logs": [1]}),
        ("extend", {"offset": -1}),
        ("extend", {"progress": "x" * 600}),
        ("finish", {"retryAfterSeconds": -1}),
        ("finish", {"cost": -1}),
        ("release", {"delaySeconds": 1e12}),
    ],
)
async def test_invalid_reports_are_refused(
    queue: onejob.Ledger, client: Client, verb: str, wrong: dict[str, Any]
) -> None:
    await queue.submit("t")
    claimed = await claim_and_start(client)
    answer = await post_verb(client, claimed, verb, **wrong)
    assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")
    assert (await post_verb(client, claimed, "finish")).status == 200
