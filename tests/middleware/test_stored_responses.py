"""The shape of a response does not decide whether its request runs again."""

from collections.abc import AsyncIterator

import pytest

from tests.middleware.doors import DOORS, Door, ScriptedApp, Sent, open_door

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


@pytest.fixture(params=DOORS)
async def door(request: pytest.FixtureRequest) -> AsyncIterator[Door]:
    async with open_door(request.param) as opened:
        yield opened


def body_sent(sent: Sent) -> bytes:
    return b"".join(message.get("body", b"") for message in sent[1:])


@pytest.mark.parametrize("status", [200, 201, 202, 204, 205, 301, 304, 400, 404, 410, 422])
@pytest.mark.parametrize("kind", KINDS)
async def test_every_status_and_media_type_runs_once_and_is_replayed_unchanged(
    door: Door, status: int, kind: bytes
) -> None:
    parts = () if status in (204, 205, 304) else (BODY,)
    size = b"%d" % sum(map(len, parts))
    app = ScriptedApp(status, [(b"content-type", kind), (b"content-length", size)], *parts)
    once = door.wrap(app)
    first, again = await door.ask(once), await door.ask(once)
    assert app.runs == 1
    assert (first[0]["status"], body_sent(first)) == (status, b"".join(parts))
    assert (again[0]["status"], body_sent(again)) == (status, b"".join(parts))
    # Werkzeug sends a 304 without it.
    assert ((b"content-type", kind) in again[0]["headers"]) is ((b"content-type", kind) in first[0]["headers"])
    assert (b"idempotent-replayed", b"true") in again[0]["headers"]


async def test_an_empty_response_without_headers_runs_once(door: Door) -> None:
    app = ScriptedApp(202, [])
    once = door.wrap(app)
    assert [(await door.ask(once))[0]["status"] for _ in range(3)] == [202] * 3
    assert app.runs == 1


@pytest.mark.parametrize("cut", range(len(BODY) + 1))
async def test_a_response_split_anywhere_is_replayed_whole(door: Door, cut: int) -> None:
    headers = [(b"content-type", b"application/json"), (b"Content-Length", b"%d" % len(BODY))]
    app = ScriptedApp(200, headers, BODY[:cut], BODY[cut:])
    once = door.wrap(app)
    assert [body_sent(await door.ask(once)) for _ in range(2)] == [BODY, BODY]
    assert app.runs == 1


@pytest.mark.parametrize("stated", [True, False])
async def test_a_stream_or_a_large_response_passes_through_and_never_runs_again(door: Door, stated: bool) -> None:
    parts = [b"%07d\n" % n * 128 for n in range(32)]
    size = b"%d" % sum(map(len, parts))
    app = ScriptedApp(200, [(b"content-length", size)] if stated else [], *parts)
    once = door.wrap(app, answer_bytes_max=1024)
    first = await door.ask(once)
    assert (first[0]["status"], body_sent(first)) == (200, b"".join(parts))
    for _ in range(2):
        assert (await door.ask(once))[0]["status"] == 410
    assert app.runs == 1
