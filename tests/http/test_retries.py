"""A request that is sent again with the same bytes is not parsed again; its responses are the same as if it were."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import onejob
from onejob.core.credentials import Role
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.ledger.api_keys import ApiKeys
from onejob.ledger.service import ServiceLedger
from tests.support.app_server import Client, HttpResponse, serve_app

BODY = b'{"type": "charge", "input": {"amount": 42}}'
OTHER_BODY = b'{"type": "charge", "input": {"amount": 43}}'


@asynccontextmanager
async def run_service(path: Path, rate: float | None) -> AsyncIterator[tuple[Client, onejob.Ledger, ApiKeys]]:
    async with (
        onejob.open(f"sqlite:///{path}", sweep=False) as ledger,
        onejob.open(f"sqlite:///{path}", sweep=False) as other_process,
        serve_app(HttpApp(ledger, config=ServiceConfig(auth=True, rate_per_second=rate))) as client,
    ):
        yield client, other_process, ApiKeys(other_process)


def comparable(answer: HttpResponse, ids: list[str]) -> Any:
    """A response without what differs between two runs: ids of requests, times; jobs are numbered."""
    if answer.status != 202:
        return answer.status, None, answer.code
    body = dict(answer.body)
    body.pop("requestId")
    job = body["job"]
    if job["id"] not in ids:
        ids.append(job["id"])
    job |= {"id": ids.index(job["id"]), "createdAt": "", "changedAt": "", "endedAt": bool(job["endedAt"])}
    body["idempotency"]["expiresAt"] = ""
    return answer.status, answer.headers.get("idempotent-replayed"), body


async def play(path: Path, rate: float | None) -> Sequence[Any]:
    """What clients see of a job that is retried while it changes."""
    ids: list[str] = []
    seen: list[Any] = []
    async with run_service(path, rate) as (client, other_process, keys):
        ann, bob = [await keys.create(name, roles=[Role.SUBMITTER]) for name in ("ann", "bob")]

        async def send(secret: str, key: str, body: bytes = BODY) -> None:
            headers = (b"authorization: Bearer " + secret.encode(), b"idempotency-key: " + key.encode())
            seen.append(comparable(await client.ask("POST", "/api/jobs", body, *headers), ids))

        for _ in range(3):
            await send(ann.text, "a")
        await send(ann.text, "a", OTHER_BODY)
        await send(ann.text, "A")
        await send(bob.text, "a")
        await send(bob.text, "a")
        await other_process.cancel(ids[0])
        await send(ann.text, "a")
        await send(ann.text, "a", b"{")
        await send(ann.text, "a", b"{")
        await keys.rotate(ann.key.id, overlap=timedelta(0))
        await send(ann.text, "a")
        await keys.revoke(bob.key.id)
        await send(bob.text, "a")
    return seen


@pytest.mark.parametrize("rate", [None, 1000.0])
async def test_a_retry_is_answered_as_if_it_were_parsed_again(
    tmp_path: Path, rate: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = await play(tmp_path / "fast.db", rate)
    monkeypatch.setattr(ServiceLedger, "replay_now", lambda ledger, prepared: None)
    assert await play(tmp_path / "plain.db", rate) == fast
    assert [status for status, _, _ in fast] == [202, 202, 202, 409, 202, 202, 202, 202, 400, 400, 401, 401]
    assert [replayed for _, replayed, _ in fast] == [None, "true", "true", None, None, *["true"] * 3, *[None] * 4]
    assert fast[7][2]["job"]["state"] == "cancelled"


async def test_a_retry_neither_builds_a_command_nor_waits_for_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        onejob.open(f"sqlite:///{tmp_path / 'jobs.db'}", sweep=False) as ledger,
        serve_app(HttpApp(ledger)) as client,
    ):
        for _ in range(2):  # the second is the first retry
            assert (await client.ask("POST", "/api/jobs", BODY, b"idempotency-key: k")).status == 202
        for name in ("submit_prepared", "prepare"):
            monkeypatch.setattr(ServiceLedger, name, None)
        for _ in range(2):
            answer = await client.ask("POST", "/api/jobs", BODY, b"idempotency-key: k")
            assert answer.headers["idempotent-replayed"] == "true"
