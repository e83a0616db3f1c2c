"""Operators see the inputs of jobs and the messages of exceptions, unless the service hides them; submitters do not."""

from typing import Any

import pytest

import onejob
from onejob.core.credentials import Role
from onejob.core.work import FIRST_EVENTS_MAX, LAST_EVENTS_MAX, MESSAGE_CHARS_MAX
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from tests.http.auth_server import AuthServer, bearer
from tests.support.app_server import serve_app

SECRET = "card 4711\x00 <img> \ud800"
UNKNOWN = "01a1e393-0000-7000-8000-000000000000"


async def fail_once(queue: onejob.Ledger, message: str = SECRET) -> None:
    (attempt,) = await queue.claim("t")
    await queue.finish(await queue.start(attempt), error="ValueError at x.py:1", message=message)


async def make_failed_job(queue: onejob.Ledger, **options: Any) -> str:
    made = await queue.submit("t", {"card": 4711, "big": 2**70}, max_attempts=1, **options)
    await fail_once(queue)
    return made.job_id


async def test_operators_see_inputs_and_messages_of_exceptions(queue: onejob.Ledger) -> None:
    job_id = await make_failed_job(queue)
    async with serve_app(HttpApp(queue)) as client:
        shown = await client.get(f"/api/jobs/{job_id}/input")
        assert (shown.status, shown.body) == (200, {"card": 4711, "big": 2**70})
        (failure,) = (await client.get(f"/api/jobs/{job_id}/failures")).body["failures"]
        assert (failure["what"], failure["detail"]) == ("attempt 1 failed", "card 4711\ufffd <img> \ufffd")
        for name in ("input", "failures"):
            assert (await client.get(f"/api/jobs/{UNKNOWN}/{name}")).status == 404
        # Everybody who sees the job sees its error, which has no message.
        seen = [f"/api/jobs/{job_id}", "/api/jobs", f"/api/jobs/{job_id}/logs"]
        assert not ["4711" for path in seen if "4711" in str((await client.get(path)).body)]


@pytest.mark.parametrize("url", ["memory"], indirect=True)
async def test_a_service_may_hide_inputs_and_messages_from_operators(queue: onejob.Ledger) -> None:
    job_id = await make_failed_job(queue)
    async with serve_app(HttpApp(queue, config=ServiceConfig(hide_payloads=True))) as client:
        for name in ("input", "failures"):
            hidden = await client.get(f"/api/jobs/{job_id}/{name}")
            assert (hidden.status, hidden.code) == (403, "FORBIDDEN")
            assert "hide_payloads" in hidden.body["detail"]
            assert "4711" not in str(hidden.body)


def test_submitters_see_neither_inputs_nor_messages(auth_server: AuthServer) -> None:
    submitter = auth_server.create_key("a submitter")
    job_id = auth_server.service.submit(submitter, "payload-1").body["job"]["id"]
    operator = auth_server.create_key("an operator", Role.OPERATOR)
    for name in ("input", "failures"):
        path = f"/api/jobs/{job_id}/{name}"
        assert auth_server.service.ask("GET", path, bearer(submitter)).status == 403
        assert auth_server.service.ask("GET", path, bearer(operator)).status == 200


async def test_messages_are_bounded_in_size_and_number(queue: onejob.Ledger, clock: Any) -> None:
    attempts = FIRST_EVENTS_MAX + LAST_EVENTS_MAX + 5
    made = await queue.submit("t", max_attempts=100)
    for n in range(attempts):
        await fail_once(queue, f"{n} " + "x" * 10_000)
        clock.advance(3601)
    failures = await queue.failures(made.job_id)
    assert {len(one.detail) for one in failures} == {MESSAGE_CHARS_MAX}
    numbers = [int(one.detail.split()[0]) for one in failures]
    kept = attempts - LAST_EVENTS_MAX
    assert numbers == [*range(FIRST_EVENTS_MAX - 1), *range(kept, attempts)]


@pytest.mark.parametrize("url", ["memory"], indirect=True)
async def test_a_message_goes_with_the_event_of_its_attempt(queue: onejob.Ledger, clock: Any) -> None:
    made = await queue.submit("t", max_attempts=100)
    for n in range(60):  # every third attempt fails with a message, so that the events trimmed later have none
        await fail_once(queue, str(n) if n % 3 == 0 else "")
        clock.advance(3601)
    numbers = [int(one.detail) for one in await queue.failures(made.job_id)]
    assert numbers == [*range(0, FIRST_EVENTS_MAX - 1, 3), *range(36, 60, 3)]
