"""Endpoints for sequenced clients: the specification's tables, roles, and the answers to malformed requests."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import onejob
from onejob.core.command import Facts, Step
from onejob.core.credentials import Role
from onejob.core.facts import U64, next_version
from onejob.core.identity import stream_id
from onejob.core.replies import Maintained
from onejob.core.sequence import StreamCommand
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.ledger.api_keys import ApiKeys
from tests.support.app_server import Client, HttpResponse, serve_app
from tests.support.raw_http import run_server

CLIENT, SCOPE = "host1.dc1:12345/a", "acme/vault-1"
PATH = f"/api/clients/{quote(CLIENT, safe='')}"


class SetLastSequence(StreamCommand, frozen=True, gc=False, kw_only=True):
    """Move a stream close to the largest number."""

    def decide(self, facts: Facts, now: int) -> Step[Maintained]:
        assert facts.stream is not None
        return Step(Maintained(True, now), (next_version(facts.stream, now, last=U64(2**64 - 3)),))


@pytest.fixture
async def client(queue: onejob.Ledger) -> AsyncIterator[Client]:
    async with serve_app(HttpApp(queue)) as client:
        yield client


def sequence_body(sequence: Any, **changes: Any) -> dict[str, Any]:
    plain = {"scope": SCOPE, "sequence": sequence, "idempotencyKey": f"key-{sequence}"}
    job = {} if "jobs" in changes else {"type": "write", "input": {"n": sequence}}
    return {name: value for name, value in (plain | job | changes).items() if value is not ...}


async def send(client: Client, sequence: Any, *headers: bytes, **changes: Any) -> HttpResponse:
    return await client.post(f"{PATH}/jobs", sequence_body(sequence, **changes), *headers)


async def state(client: Client, *headers: bytes, scope: str = SCOPE) -> HttpResponse:
    return await client.get(f"{PATH}/state?scope={quote(scope)}", *headers)


def outcome_and_sequences(answer: HttpResponse) -> tuple[int, str, int, int]:
    body = answer.body
    return answer.status, body["outcome"], body["assignedSequence"], body["lastCommittedSequence"]


async def test_a_number_is_committed_once_and_then_replayed(client: Client) -> None:
    first = await send(client, 1)
    assert outcome_and_sequences(first) == (202, "COMMITTED", 1, 1)
    assert (first.body["clientId"], first.body["scope"], first.body["key"]) == (CLIENT, SCOPE, "key-1")
    assert first.body["jobs"] == [first.body["job"]]
    assert first.headers["location"] == f"/api/jobs/{first.body['job']['id']}"
    assert "idempotent-replayed" not in first.headers
    await send(client, 2)
    await client.ask("POST", f"/api/jobs/{first.body['job']['id']}/cancel")
    again = await send(client, 1)
    assert outcome_and_sequences(again) == (200, "ALREADY_COMMITTED", 1, 2)
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["idempotency-expires"] == first.headers["idempotency-expires"]
    assert again.body["expiresAt"] == first.body["expiresAt"]
    assert again.body["job"]["id"] == first.body["job"]["id"]
    assert again.body["job"]["state"] == "cancelled"
    assert again.body["requestId"] != first.body["requestId"]


async def test_a_gap_names_the_last_number(client: Client) -> None:
    unknown = await state(client)
    assert (unknown.status, unknown.body["lastCommittedSequence"], unknown.body["lastSeen"]) == (200, 0, None)
    await send(client, 1)
    gap = await send(client, 3)
    assert (gap.status, gap.code) == (409, "SEQUENCE_GAP")
    assert gap.body["error"]["details"] == {"lastCommittedSequence": 1}
    assert not gap.body["error"]["retryable"]
    found = (await state(client)).body
    assert (found["clientId"], found["scope"], found["lastCommittedSequence"]) == (CLIENT, SCOPE, 1)
    assert found["lastSeen"] is not None
    assert outcome_and_sequences(await send(client, 2)) == (202, "COMMITTED", 2, 2)


async def test_a_used_number_with_another_key_is_a_refusal_that_is_not_retryable(client: Client) -> None:
    await send(client, 1)
    for sequence, last in ((1, 1), (2, 2), (1, 2)):
        if sequence == last == 2:
            await send(client, 2)
        other = await send(client, sequence, idempotencyKey="other")
        assert (other.status, other.code) == (409, "ALREADY_COMMITTED")
        assert other.body["error"]["details"] == {"assignedSequence": sequence, "lastCommittedSequence": last}
        assert not other.body["error"]["retryable"]
        assert "retry-after" not in other.headers
        assert "jobs" not in other.body


async def test_moved_and_reused_keys_get_different_answers(client: Client) -> None:
    first = await send(client, 1)
    moved = await send(client, 2, idempotencyKey="key-1", input={"n": 1})
    assert outcome_and_sequences(moved) == (200, "ALREADY_COMMITTED", 1, 1)
    assert moved.body["job"]["id"] == first.body["job"]["id"]
    for sequence in (1, 2, 9):
        reused = await send(client, sequence, idempotencyKey="key-1", input="another")
        assert (reused.status, reused.code) == (409, "IDEMPOTENCY_KEY_REUSED")
        assert reused.body["error"]["details"] == {"assignedSequence": 1}
    plain = {"type": "write", "input": {"n": 1}, "scope": SCOPE}
    unsequenced = await client.post("/api/jobs", plain, b"idempotency-key: key-1")
    assert (unsequenced.status, unsequenced.code) == (409, "IDEMPOTENCY_KEY_REUSED")


async def test_an_invalid_number_is_refused(queue: onejob.Ledger, client: Client) -> None:
    values: list[Any] = [0, -1, 2**64, 10**30, 1.5, "1", True, None, [], {}, -0.0, 1e16]
    for value in values:
        answer = await send(client, value)
        assert (answer.status, answer.code) == (400, "VALIDATION_ERROR"), value
    missing = {name: value for name, value in sequence_body(1).items() if name != "sequence"}
    assert (await client.post(f"{PATH}/jobs", missing)).status == 400
    assert await queue.jobs() == []


async def test_a_number_with_a_point_or_an_exponent_is_refused(queue: onejob.Ledger, client: Client) -> None:
    for text in ("1.0", "1e0", "2e0", "1E+0", "10e-1"):
        body = json.dumps(sequence_body(1)).replace('"sequence": 1', f'"sequence": {text}').encode()
        answer = await client.ask("POST", f"{PATH}/jobs", body)
        assert (answer.status, answer.code) == (400, "VALIDATION_ERROR"), text
    assert await queue.jobs() == []


async def test_the_last_number_says_to_rotate_the_client_id(queue: onejob.Ledger, client: Client) -> None:
    await send(client, 1)
    await queue._execute(SetLastSequence(tenant="default", stream_id=stream_id("default", SCOPE, CLIENT)))
    await send(client, 2**64 - 2)
    last = await send(client, 2**64 - 1)
    assert (last.status, [warning["limit"] for warning in last.body["warnings"]]) == (202, ["sequence"])
    refused = await send(client, 2**64 - 1, idempotencyKey="other")
    beyond = await send(client, 2**64)
    assert [answer.status for answer in (refused, beyond)] == [409, 400]
    messages = (answer.body["error"]["message"] for answer in (refused, beyond))
    for message in (last.body["warnings"][0]["message"], *messages):
        assert "rotate the client id" in message


async def test_numbers_beyond_a_double_travel_in_full_digits(queue: onejob.Ledger, client: Client) -> None:
    await send(client, 1)
    await queue._execute(SetLastSequence(tenant="default", stream_id=stream_id("default", SCOPE, CLIENT)))
    for sequence in (2**64 - 2, 2**64 - 1):
        answer = await client.ask("POST", f"{PATH}/jobs", json.dumps(sequence_body(sequence)).encode())
        assert outcome_and_sequences(answer) == (202, "COMMITTED", sequence, sequence)
    assert (await state(client)).body["lastCommittedSequence"] == 2**64 - 1
    used = (await send(client, 2**53 + 1)).body["error"]["details"]
    assert used == {"assignedSequence": 2**53 + 1, "lastCommittedSequence": 2**64 - 1}


WRONG: list[dict[str, Any]] = [
    {"scope": ...}, {"scope": ""}, {"scope": None}, {"scope": "type:queue"}, {"scope": ["a", "b"]},
    {"idempotencyKey": ...}, {"idempotencyKey": ""}, {"idempotencyKey": None}, {"idempotencyKey": "a\n"},
    {"type": ...}, {"type": ""}, {"type": ..., "input": ...}, {"jobs": []}, {"jobs": None}, {"jobs": {}},
    {"jobs": [{}]}, {"jobs": [{"type": "w"}], "type": "w"}, {"jobs": [{"type": "w"}], "input": 1},
    {"jobs": [{"type": "w"}], "priority": 0}, {"jobs": [{"type": "w"}, {"type": ""}]},
    {"jobs": [{"type": "w", "idempotencyKey": "k"}]}, {"jobs": [{"type": "w", "scope": "s"}]},
    {"jobs": [{"type": "w"}] * 101}, {"jobs": [{"type": "w"}, {"type": "w", "priority": 1.5}]},
    {"actor": "user:eve"}, {"clientId": "x"}, {"idempotencyTtlSeconds": 0}, {"idempotencyTtlSeconds": 1e300},
    {"timeoutSeconds": -1}, {"labels": {"a": 1}},
]  # fmt: skip


async def test_an_invalid_request_leaves_the_number_free(queue: onejob.Ledger, client: Client) -> None:
    for changes in WRONG:
        answer = await send(client, 1, **changes)
        assert (answer.status, answer.code) == (400, "VALIDATION_ERROR"), changes
    assert await queue.jobs() == []
    assert outcome_and_sequences(await send(client, 1)) == (202, "COMMITTED", 1, 1)


async def test_the_key_may_be_in_the_header_and_in_both_only_if_equal(client: Client) -> None:
    header = b'idempotency-key: "k-1"'
    first = await send(client, 1, header, idempotencyKey=...)
    both = await send(client, 1, header, idempotencyKey="k-1")
    body = await send(client, 1, idempotencyKey="k-1")
    assert [answer.body["job"]["id"] for answer in (both, body)] == [first.body["job"]["id"]] * 2
    different = await send(client, 2, header, idempotencyKey="k-2")
    assert (different.status, different.code) == (400, "VALIDATION_ERROR")


async def test_a_batch_is_all_or_nothing_under_one_number(client: Client) -> None:
    jobs = [{"type": f"t{n}", "input": n, "priority": n, "labels": {"n": str(n)}} for n in range(100)]
    first = await send(client, 1, jobs=jobs)
    assert outcome_and_sequences(first) == (202, "COMMITTED", 1, 1)
    assert first.body["job"] is None
    assert "location" not in first.headers
    assert [(job["type"], job["priority"]) for job in first.body["jobs"]] == [(f"t{n}", n) for n in range(100)]
    again = await send(client, 1, jobs=jobs)
    assert outcome_and_sequences(again) == (200, "ALREADY_COMMITTED", 1, 1)
    assert again.body["jobs"] == first.body["jobs"]
    alone = await send(client, 2, jobs=[{"type": "w", "input": 1}])
    assert (await send(client, 2, type="w", input=1)).body["job"]["id"] == alone.body["job"]["id"]


async def test_an_invalid_query_is_refused(client: Client) -> None:
    for query in ("", "?scope=", "?scope=a&scope=b", "?x=1", "?scope=a&x=1", "?scope=%00"):
        answer = await client.get(f"{PATH}/state{query}")
        assert (answer.status, answer.code) == (400, "VALIDATION_ERROR"), query


async def test_an_invalid_client_id_is_refused(client: Client) -> None:
    for name in ("%00", "%ff", "x" * 201, "%E2%80%A8"):
        for answer in (
            await client.get(f"/api/clients/{name}/state?scope=s"),
            await client.post(f"/api/clients/{name}/jobs", sequence_body(1)),
        ):
            assert (answer.status, answer.code) == (400, "VALIDATION_ERROR"), name


async def test_a_client_id_is_visible_to_its_owner_and_to_operators(queue: onejob.Ledger) -> None:
    keys = ApiKeys(queue.acting_as(tenant="acme", user="root", actor=onejob.Actor.user("root")))
    headers = {
        name: b"x-api-key: " + (await keys.create(name, roles=[role])).text.encode()
        for name, role in (
            ("billing", Role.SUBMITTER),
            ("other", Role.SUBMITTER),
            ("worker", Role.WORKER),
            ("ops", Role.OPERATOR),
        )
    }
    async with serve_app(HttpApp(queue, config=ServiceConfig(auth=True))) as client:
        first = await send(client, 1, headers["billing"])
        assert first.body["job"]["actor"] == "client:billing"
        for sequence in (1, 2, 9):
            for name in ("other", "ops"):
                stolen = await send(client, sequence, headers[name])
                assert (stolen.status, stolen.code) == (403, "FORBIDDEN")
                assert stolen.body["error"]["details"] == {}
        seen = {name: await state(client, header) for name, header in headers.items()}
        assert {name: answer.status for name, answer in seen.items()} == {
            "billing": 200, "other": 403, "worker": 403, "ops": 200,
        }  # fmt: skip
        assert seen["ops"].body["lastCommittedSequence"] == 1
        assert (await state(client, headers["other"], scope="elsewhere")).body["lastCommittedSequence"] == 0
        assert (await state(client)).status == 401
        assert (await send(client, 2, headers["worker"])).status == 403
        assert (await send(client, 2, headers["billing"])).status == 202


async def test_a_rate_counts_numbers_and_answers_known_ones(queue: onejob.Ledger) -> None:
    config = ServiceConfig(rate_per_second=0.001, rate_burst=2)
    async with serve_app(HttpApp(queue, config=config)) as client:
        batch = [{"type": "w", "input": n} for n in range(50)]
        assert (await send(client, 1, jobs=batch)).status == 202
        assert (await send(client, 9)).code == "SEQUENCE_GAP"
        assert (await send(client, 2, type="")).status == 400
        assert (await send(client, 2)).status == 202
        limited = await send(client, 3)
        assert (limited.status, limited.code) == (429, "RATE_LIMITED")
        assert int(limited.headers["retry-after"]) > 0
        for again in (await send(client, 1, jobs=batch), await send(client, 2)):
            assert (again.status, again.body["outcome"]) == (200, "ALREADY_COMMITTED")
        assert (await send(client, 9)).code == "SEQUENCE_GAP"
        assert (await state(client)).body["lastCommittedSequence"] == 2


def test_every_answer_is_the_same_after_a_restart(tmp_path: Path, settings: str) -> None:
    def sent(sequence: int, **changes: Any) -> Any:
        return server.ask("POST", f"{PATH}/jobs", sequence_body(sequence, **changes))

    batch = [{"type": "w", "input": n} for n in range(5)]
    with run_server(tmp_path, settings) as server:
        first = [sent(1), sent(2, jobs=batch), sent(3)]
        assert [reply.status for reply in first] == [202] * 3
    with run_server(tmp_path, settings) as server:
        again = [sent(1), sent(2, jobs=batch), sent(3)]
        for sequence, (before, after) in enumerate(zip(first, again, strict=True), 1):
            assert (after.status, after.body["outcome"]) == (200, "ALREADY_COMMITTED")
            assert after.body["assignedSequence"] == sequence
            assert after.body["jobs"] == before.body["jobs"]
            assert after.body["expiresAt"] == before.body["expiresAt"]
        gap = sent(5)
        assert (gap.code, gap.body["error"]["details"]) == ("SEQUENCE_GAP", {"lastCommittedSequence": 3})
        assert sent(1, input="another").code == "IDEMPOTENCY_KEY_REUSED"
        assert sent(2, idempotencyKey="other").code == "ALREADY_COMMITTED"
        assert sent(4).status == 202
