"""The shape of a response does not decide whether its request runs again."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

import onejob
from tests.middleware.test_exchange import Send, ask, wrap

KINDS = (
    b"application/json",
    b"application/json; charset=utf-8",
    b"application/vnd.api+json",
    b"text/plain",
    b"text/html; charset=latin-1",
    b"application/octet-stream",
    b"multipart/mixed; boundary=x",
    b"image/png",
    b"",
)
BODY = b'{"n": 1, "text": "1234"}'


@pytest.fixture
async def queue() -> AsyncIterator[onejob.Ledger]:
    async with onejob.open("memory://") as ledger:
        yield ledger


class RespondingApp:
    """Sends these parts; the last message has no body."""

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], *parts: bytes) -> None:
        self.runs = 0
        self._status = status
        self._headers = headers
        self._parts = parts

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        self.runs += 1
        await send({"type": "http.response.start", "status": self._status, "headers": self._headers})
        for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})


def body_sent(sent: list[Any]) -> bytes:
    return b"".join(message.get("body", b"") for message in sent[1:])


@pytest.mark.parametrize("status", [200, 201, 202, 204, 205, 301, 304, 400, 404, 410, 422])
@pytest.mark.parametrize("kind", KINDS)
async def test_every_status_and_media_type_runs_once_and_is_replayed_unchanged(
    queue: onejob.Ledger, status: int, kind: bytes
) -> None:
    parts = () if status in (204, 205, 304) else (BODY,)
    size = b"%d" % sum(map(len, parts))
    app = RespondingApp(status, [(b"content-type", kind), (b"content-length", size)], *parts)
    once = wrap(app, queue)
    first, again = await ask(once), await ask(once)
    assert app.runs == 1
    assert (first[0]["status"], body_sent(first)) == (status, b"".join(parts))
    assert (again[0]["status"], body_sent(again)) == (status, b"".join(parts))
    assert (b"content-type", kind) in again[0]["headers"]
    assert (b"idempotent-replayed", b"true") in again[0]["headers"]


async def test_an_empty_response_without_headers_runs_once(queue: onejob.Ledger) -> None:
    app = RespondingApp(202, [])
    once = wrap(app, queue)
    assert [(await ask(once))[0]["status"] for _ in range(3)] == [202] * 3
    assert app.runs == 1


@pytest.mark.parametrize("cut", range(len(BODY) + 1))
async def test_a_response_split_anywhere_is_replayed_whole(queue: onejob.Ledger, cut: int) -> None:
    headers = [(b"content-type", b"application/json"), (b"Content-Length", b"%d" % len(BODY))]
    app = RespondingApp(200, headers, BODY[:cut], BODY[cut:])
    once = wrap(app, queue)
    assert [body_sent(await ask(once)) for _ in range(2)] == [BODY, BODY]
    assert app.runs == 1


@pytest.mark.parametrize("stated", [True, False])
async def test_a_stream_or_a_large_response_passes_through_and_never_runs_again(
    queue: onejob.Ledger, stated: bool
) -> None:
    parts = [b"%07d\n" % n * 128 for n in range(32)]
    size = b"%d" % sum(map(len, parts))
    app = RespondingApp(200, [(b"content-length", size)] if stated else [], *parts)
    once = wrap(app, queue, answer_bytes_max=1024)
    first = await ask(once)
    assert (first[0]["status"], body_sent(first)) == (200, b"".join(parts))
    for _ in range(2):
        assert (await ask(once))[0]["status"] == 410
    assert app.runs == 1
