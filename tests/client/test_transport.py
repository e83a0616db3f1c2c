"""The httpx transport: a key on every POST and PATCH, the same bytes on every attempt, no retry without a key."""

import asyncio
import io
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from time import monotonic
from typing import Any, Protocol

import httpx
import pytest

import onejob
from onejob.client.requests import quote_key
from onejob.client.transport import AsyncIdempotentTransport, IdempotentTransport, unquote_key
from tests.support.command_line import ScriptedServer, http_response

QUICK = onejob.RetryPolicy(deadline=10.0, attempt_timeout=5.0, pause_first=0.001, pause_max=0.01)
OK = http_response(200, {"ok": True})
LOST = b""


class MakeScriptedServer(Protocol):
    def __call__(self, *answers: bytes) -> ScriptedServer: ...


@pytest.fixture
def make_scripted_server() -> Iterator[MakeScriptedServer]:
    with ExitStack() as stack:
        yield lambda *answers: stack.enter_context(closing(ScriptedServer(*answers)))


def client(**options: Any) -> httpx.Client:
    return httpx.Client(transport=IdempotentTransport(retry=QUICK, **options))


def keys_received(server: ScriptedServer) -> list[bytes]:
    return [
        line.split(b": ", 1)[1]
        for request in server.requests
        for line in request.split(b"\r\n")
        if line.lower().startswith(b"idempotency-key:")
    ]


@pytest.mark.parametrize(
    "failure", [LOST, OK[:-1], OK[:20], *(http_response(status, "") for status in (408, 500, 502, 503, 504))]
)
def test_a_post_is_repeated_with_the_same_key_and_bytes(
    make_scripted_server: MakeScriptedServer, failure: bytes
) -> None:
    server = make_scripted_server(failure, failure, OK)
    with client() as http:
        assert http.post(server.url, json={"b": 1, "a": 2}).json() == {"ok": True}
    assert len(server.requests) == 3
    assert len(set(server.requests)) == 1
    assert len(keys_received(server)) == 3


async def test_the_async_transport_does_the_same(make_scripted_server: MakeScriptedServer) -> None:
    server = make_scripted_server(LOST, http_response(503, ""), OK)
    async with httpx.AsyncClient(transport=AsyncIdempotentTransport(retry=QUICK)) as http:
        assert (await http.post(server.url, json=1)).json() == {"ok": True}
    assert len(server.requests) == 3
    assert len(set(server.requests)) == 1


def test_two_requests_of_one_client_have_two_keys(make_scripted_server: MakeScriptedServer) -> None:
    server = make_scripted_server(OK, OK)
    with client() as http:
        http.post(server.url)
        http.post(server.url)
    assert len(set(keys_received(server))) == 2


def test_the_key_of_the_caller_is_sent(make_scripted_server: MakeScriptedServer) -> None:
    server = make_scripted_server(LOST, OK, LOST, OK)
    with client() as http:
        http.post(server.url, headers={"Idempotency-Key": "bare"})
        http.post(server.url, extensions={"idempotency_key": 'say "x"'})
    assert keys_received(server) == [b"bare", b"bare", b'"say \\"x\\""', b'"say \\"x\\""']


def test_a_file_is_read_once(make_scripted_server: MakeScriptedServer) -> None:
    server = make_scripted_server(LOST, OK)
    with client() as http:
        http.post(server.url, content=io.BytesIO(b"from a file"))
    assert [request.endswith(b"from a file") for request in server.requests] == [True, True]


def test_other_methods_get_no_key_and_no_retry(make_scripted_server: MakeScriptedServer) -> None:
    server = make_scripted_server(http_response(503, ""), http_response(503, ""))
    with client() as http:
        assert http.get(server.url).status_code == 503
        assert http.put(server.url).status_code == 503
    assert keys_received(server) == []


def test_a_request_without_a_key_is_sent_once(make_scripted_server: MakeScriptedServer) -> None:
    server = make_scripted_server(http_response(503, ""), OK)
    with client(key_factory=None) as http:
        assert http.post(server.url).status_code == 503
    server = make_scripted_server(LOST, OK)
    with client(key_factory=None) as http, pytest.raises(httpx.RemoteProtocolError):
        http.post(server.url)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422])
def test_a_refusal_is_returned_unchanged(make_scripted_server: MakeScriptedServer, status: int) -> None:
    server = make_scripted_server(http_response(status, {"why": 1}), OK)
    with client() as http:
        assert http.post(server.url).status_code == status
    assert len(server.requests) == 1


def test_a_conflict_with_retry_after_is_waited_for(make_scripted_server: MakeScriptedServer) -> None:
    server = make_scripted_server(
        http_response(409, "", "Retry-After: 0"), http_response(429, "", "Retry-After: 0"), OK
    )
    with client() as http:
        assert http.post(server.url).status_code == 200


def test_no_response_is_ambiguous_and_carries_the_key(make_scripted_server: MakeScriptedServer) -> None:
    server = make_scripted_server(*[LOST] * 3)
    retry = onejob.RetryPolicy(attempts_max=3, pause_first=0.001)
    with (
        httpx.Client(transport=IdempotentTransport(retry=retry)) as http,
        pytest.raises(onejob.AmbiguousOutcome) as ambiguous,
    ):
        http.post(server.url, headers={"Idempotency-Key": '"given"'})
    assert ambiguous.value.key == "given"
    assert ambiguous.value.attempts == 3


def expiring(seconds: float, *more: str) -> bytes:
    """A response whose key expires so many seconds after its Date."""
    date = datetime(2026, 1, 1, tzinfo=UTC)
    until = (date + timedelta(seconds=seconds)).isoformat()
    return http_response(
        200, {"ok": True}, f"Date: {format_datetime(date, usegmt=True)}", f"Idempotency-Expires: {until}", *more
    )


STALL_SECONDS = 8.0  # between the sending of a request and its arrival, on a busy machine; attempts go on for longer
SLOW = onejob.RetryPolicy(deadline=30.0, attempt_timeout=5.0, pause_first=0.05, pause_max=0.05)


def test_nothing_is_sent_again_after_the_window_that_an_earlier_response_told(
    make_scripted_server: MakeScriptedServer,
) -> None:
    server = make_scripted_server(expiring(3.2), *[LOST] * 400)
    with httpx.Client(transport=IdempotentTransport(retry=SLOW)) as http:
        http.post(server.url)
        begin = monotonic()
        with pytest.raises(onejob.WindowPassed, match="look for its effect"):
            http.post(f"{server.url}/other")
    assert server.received_at[-1] - begin < 3.2 + STALL_SECONDS
    assert len(server.requests) > 2


def test_nothing_is_sent_again_after_the_window_that_the_caller_stated(
    make_scripted_server: MakeScriptedServer,
) -> None:
    server = make_scripted_server(*[LOST] * 400)
    begin = monotonic()
    transport = IdempotentTransport(retry=SLOW, window=timedelta(seconds=0.3))
    with httpx.Client(transport=transport) as http, pytest.raises(onejob.WindowPassed):
        http.post(server.url)
    assert server.received_at[-1] - begin < 0.3 + STALL_SECONDS
    with pytest.raises(onejob.Invalid, match="window"):
        IdempotentTransport(window=timedelta(0))


async def test_a_window_is_learned_from_a_response_whose_body_is_lost(make_scripted_server: MakeScriptedServer) -> None:
    server = make_scripted_server(*[expiring(1.3)[:-3]] * 400)
    begin = monotonic()
    async with httpx.AsyncClient(transport=AsyncIdempotentTransport(retry=SLOW)) as http:
        with pytest.raises(onejob.WindowPassed):
            await http.post(server.url)
    assert server.received_at[-1] - begin < 1.3 + STALL_SECONDS


def test_a_replay_does_not_tell_the_window(make_scripted_server: MakeScriptedServer) -> None:
    server = make_scripted_server(expiring(1.0, "Idempotent-Replayed: true"), LOST, OK)
    with client() as http:
        assert http.post(server.url).status_code == 200
        assert http.post(server.url).status_code == 200


def test_the_first_attempt_may_take_longer_than_the_window(make_scripted_server: MakeScriptedServer) -> None:
    seen: list[Any] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request.extensions["timeout"])
        return httpx.Response(200)

    transport = IdempotentTransport(httpx.MockTransport(handle), retry=SLOW, window=timedelta(seconds=0.2))
    with httpx.Client(transport=transport, timeout=None) as http:
        http.post("http://x")
    assert seen[0]["read"] == SLOW.attempt_timeout


def test_an_unreachable_server_raises_the_error_of_httpx(make_scripted_server: MakeScriptedServer) -> None:
    server = make_scripted_server()
    server.close()
    retry = onejob.RetryPolicy(attempts_max=2, pause_first=0.001)
    with httpx.Client(transport=IdempotentTransport(retry=retry)) as http, pytest.raises(httpx.ConnectError):
        http.post(server.url)


async def test_a_cancelled_call_has_the_key_in_its_notes(server: Any) -> None:
    async with onejob.AsyncClient(server.base_url) as http:
        task = asyncio.create_task(http.submit("t", 1, idempotency_key="cancelled-1"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await task
    assert "cancelled-1" in "".join(getattr(cancelled.value, "__notes__", []))


@pytest.mark.parametrize("status", [307, 308])
def test_a_key_follows_a_redirect_on_the_same_origin_only(
    make_scripted_server: MakeScriptedServer, status: int
) -> None:
    away = make_scripted_server(OK)
    here = make_scripted_server(
        http_response(status, "", "Location: /moved"), OK, http_response(status, "", f"Location: {away.url}/moved")
    )
    with client() as http:
        http.post(here.url, json=1, follow_redirects=True)
        http.post(here.url, json=1, follow_redirects=True)
    same, moved, other = keys_received(here)
    assert same == moved != other
    assert here.requests[1].startswith(b"POST /moved")
    assert keys_received(away) == []


def test_a_key_is_quoted_as_a_structured_field_string() -> None:
    for key in ("plain", 'with "quotes"', "back\\slash", "a, b; c"):
        assert unquote_key(quote_key(key)) == key
    for wrong in ("", "Ω", "x" * 256, "a\nb"):
        with pytest.raises(onejob.Invalid):
            quote_key(wrong)
