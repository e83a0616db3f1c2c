"""Steps of a job over HTTP: what has finished is answered, what is stale or in conflict is refused."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

import onejob
from onejob.core.memo import MEMO_RESULT_BYTES_MAX
from onejob.http.app import HttpApp
from tests.support.app_server import Client, serve_app

from .work_requests import claim_and_start, post_verb


@pytest.fixture
async def client(queue: onejob.Ledger) -> AsyncIterator[Client]:
    async with serve_app(HttpApp(queue)) as client:
        yield client


async def begin(client: Client, claimed: Any, name: str = "pay", call: str = "c1", **options: Any) -> Any:
    fields = {"token": claimed["token"], "holder": claimed["holder"], "name": name, "stepHolder": call} | options
    return await client.post(f"/api/jobs/{claimed['job']['id']}/steps/begin", fields)


async def finish(client: Client, claimed: Any, result: Any, name: str = "pay", call: str = "c1") -> Any:
    fields = {"token": claimed["token"], "name": name, "stepHolder": call, "result": result}
    return await client.post(f"/api/jobs/{claimed['job']['id']}/steps/finish", fields)


async def test_a_finished_step_is_answered_in_the_next_attempt(queue: onejob.Ledger, client: Client) -> None:
    await queue.submit("t", max_attempts=3)
    first = await claim_and_start(client)
    for _ in range(2):  # a lost response
        begun = await begin(client, first, arguments=[1, {"b": 2, "a": 1}])
        assert (begun.status, begun.body["step"]["state"], begun.body["result"]) == (200, "begun", None)
    for _ in range(2):
        assert (await finish(client, first, {"paid": True})).body["step"]["state"] == "finished"
    await post_verb(client, first, "release")
    assert (await begin(client, first, "mail")).code == "STALE"
    second = await claim_and_start(client)
    found = await begin(client, second, call="c2", arguments=[1.0, {"a": 1, "b": 2}])
    assert (found.body["step"]["state"], found.body["result"]) == ("finished", {"paid": True})
    assert (await begin(client, second, call="c3", arguments=[2])).code == "STEP_CONFLICT"
    steps = (await client.get(f"/api/jobs/{second['job']['id']}/steps")).body["steps"]
    assert [(step["name"], step["state"], step["runs"], step["token"]) for step in steps] == [("pay", "finished", 1, 1)]


async def test_an_interrupted_at_most_once_step_is_refused(queue: onejob.Ledger, client: Client) -> None:
    await queue.submit("t", max_attempts=3)
    claimed = await claim_and_start(client)
    await begin(client, claimed, delivery="at_most_once")
    assert (await begin(client, claimed, call="c2", delivery="at_most_once")).code == "STEP_INTERRUPTED"
    assert (await begin(client, claimed, call="c2")).body["step"]["runs"] == 2
    assert (await finish(client, claimed, 1, call="c1")).code == "STALE"


async def test_what_cannot_be_stored_is_refused(queue: onejob.Ledger, client: Client) -> None:
    await queue.submit("t", max_attempts=3)
    claimed = await claim_and_start(client)
    await begin(client, claimed)
    assert (await finish(client, claimed, "x" * MEMO_RESULT_BYTES_MAX)).code == "PAYLOAD_TOO_LARGE"
    assert (await begin(client, claimed, "a\x00b")).code == "VALIDATION_ERROR"
    assert (await finish(client, claimed, 1, "a\x00b")).code == "VALIDATION_ERROR"
    assert (await finish(client, claimed, 1, "unknown")).code == "NOT_FOUND"
    assert (await client.get("/api/jobs/00000000-0000-7000-8000-000000000000/steps")).code == "NOT_FOUND"
