"""Responses without ASGI messages are the same as with them."""

import asyncio
import errno
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import onejob
from onejob.core.credentials import Permission
from onejob.core.submit import Submit
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.http.request import Request
from onejob.http.responses import Response
from onejob.http.routing import Route
from onejob.http.serve import build_context
from onejob.logs import Log
from onejob.server.connection import Connection

BODY = b'{"type": "t", "input": {"n": 1}}'
Application = Callable[[Any, Any, Any], Awaitable[None]]


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class SocketlessClient:
    """A connection without a socket."""

    def __init__(self, app: Application, **config: Any) -> None:
        served: Any = app
        log = Log("text", write=lambda data: None)
        self.connection = Connection(build_context(ServiceConfig(**config, log_requests="none"), served, log))
        self.transport = Transport()
        self.connection.connection_made(self.transport)

    async def ask(self, *requests: bytes) -> list[bytes]:
        """What is written for these requests."""
        self.connection.data_received(b"".join(requests))
        await self.wait_for_response()
        return self.transport.written

    async def wait_for_response(self) -> None:
        while self.connection.tasks:
            await asyncio.gather(*self.connection.tasks)
        await asyncio.sleep(0)  # corked writes are flushed


def request(method: str, path: str, body: bytes = b"", *lines: bytes) -> bytes:
    head = b"%b %b HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d" % (method.encode(), path.encode(), len(body))
    return b"\r\n".join((head, *lines, b"", body))


def submission(key: str) -> bytes:
    return request("POST", "/api/jobs", BODY, b"idempotency-key: " + key.encode())


def over_plain_asgi(app: HttpApp) -> Application:
    """The same application behind a plain ASGI wrapper."""

    async def plain(scope: Any, receive: Any, send: Any) -> None:
        async def passed_on(message: Any) -> None:
            await send(message)

        await app(scope, receive, passed_on)

    return plain


async def empty_response(request: Request) -> Response:
    return Response(204, b"", ((b"x-kind", b"none"),))


async def response_with_header_injection(request: Request) -> Response:
    return Response(200, b"", ((b"x-kind", b"a\r\nx-forged: b"),))


MORE = (
    Route("POST", "/test/bodiless", empty_response, Permission.READ, "Say nothing"),
    Route("POST", "/test/split", response_with_header_injection, Permission.READ, "Say too much"),
)


@pytest.fixture
async def app() -> AsyncIterator[HttpApp]:
    async with onejob.open("memory://", sweep=False) as ledger:
        yield HttpApp(ledger, extra_routes=MORE)


@pytest.mark.parametrize(
    "asked",
    [
        request("GET", "/healthz"),
        request("HEAD", "/healthz"),
        request("GET", "/nowhere"),
        request("GET", "/healthz", b"", b"connection: close"),
        request("POST", "/api/jobs", b"{"),
        request("POST", "/test/bodiless"),
        submission("known"),
    ],
)
async def test_an_answer_is_the_same_with_messages_and_without(app: HttpApp, asked: bytes) -> None:
    await SocketlessClient(app).ask(submission("known"))
    without_messages = await SocketlessClient(app).ask(asked)
    with_messages = await SocketlessClient(over_plain_asgi(app)).ask(asked)
    assert [_without_request_id(piece) for piece in without_messages] == [
        _without_request_id(piece) for piece in with_messages
    ]
    assert b"x-request-id: " in without_messages[0]


async def test_a_client_that_does_not_read_is_waited_for(app: HttpApp) -> None:
    caller = SocketlessClient(app)
    caller.connection.pause_writing()
    caller.connection.data_received(submission("k"))
    for _ in range(50):
        await asyncio.sleep(0)
    assert caller.transport.written == []
    caller.connection.resume_writing()
    await caller.wait_for_response()
    assert len(caller.transport.written) == 1
    assert caller.transport.written[0].startswith(b"HTTP/1.1 202 ")


async def test_nothing_is_written_to_a_client_that_left(app: HttpApp) -> None:
    caller = SocketlessClient(app)
    caller.connection.pause_writing()
    caller.connection.data_received(submission("k"))
    for _ in range(50):
        await asyncio.sleep(0)
    caller.connection.connection_lost(None)
    await caller.wait_for_response()
    assert caller.transport.written == []
    again = await SocketlessClient(app).ask(submission("k"))
    assert b"idempotent-replayed: true" in again[0], "it was done, though no response was read"


async def test_pipelined_duplicates_are_answered_in_order(app: HttpApp) -> None:
    first = await SocketlessClient(app).ask(submission("a"), submission("b"), submission("a"), request("GET", "/x"))
    assert [re.findall(rb'"key":"(\w)"|NOT_FOUND', piece)[:1] for piece in first] == [
        [b"a"],
        [b"b"],
        [b"a"],
        [b""],
    ]
    assert [b"idempotent-replayed" in piece for piece in first] == [False, False, True, False]


async def test_a_header_with_a_line_break_is_not_sent(app: HttpApp) -> None:
    caller = SocketlessClient(app)
    assert await caller.ask(request("POST", "/test/split")) == []
    assert caller.transport.closed


def _without_request_id(piece: bytes) -> bytes:
    return re.sub(rb'(x-request-id: |"requestId":")[0-9a-f]{16}', rb"\1", piece)


@pytest.mark.parametrize("end", [BaseException(), BaseExceptionGroup("g", [ValueError()]), SystemExit(1)], ids=repr)
async def test_whatever_a_handler_raises_is_answered(queue: onejob.Ledger, end: BaseException) -> None:
    async def handler(request: Request) -> Response:
        raise end

    route = Route("GET", "/odd", handler, Permission.READ, "Raises", None, None)
    (given,) = await SocketlessClient(HttpApp(queue, extra_routes=(route,))).ask(request("GET", "/odd"))
    assert given.startswith(b"HTTP/1.1 500 ")


@pytest.mark.parametrize(
    "error",
    [MemoryError(), OSError(errno.ENOMEM, "no memory"), RuntimeError("can't start new thread")],
    ids=repr,
)
async def test_out_of_memory_is_a_503_that_can_be_repeated(queue: onejob.Ledger, error: Exception) -> None:
    async def handler(request: Request) -> Response:
        raise error

    route = Route("POST", "/large", handler, Permission.READ, "Raises", None, None)
    app = HttpApp(queue, extra_routes=(route,))
    (given,) = await SocketlessClient(app).ask(request("POST", "/large", b"{}", b"idempotency-key: k"))
    assert given.startswith(b"HTTP/1.1 503 ")
    assert b'"retryable":true' in given
    assert b"retry-after: 1\r\n" in given
    (given,) = await SocketlessClient(app).ask(request("POST", "/large", b"{}"))
    assert given.startswith(b"HTTP/1.1 503 ")
    assert b"look before you retry" in given, "without a key it may be done twice"


@pytest.mark.parametrize("callback", ["on_header", "on_body", "on_message_complete"])
async def test_out_of_memory_while_a_request_is_read_is_a_503_that_can_be_repeated(
    queue: onejob.Ledger, monkeypatch: pytest.MonkeyPatch, callback: str
) -> None:
    def fail(connection: Connection, *args: bytes) -> None:
        raise MemoryError

    monkeypatch.setattr(Connection, callback, fail)
    (given,) = await SocketlessClient(HttpApp(queue)).ask(submission("k"))
    assert given.startswith(b"HTTP/1.1 503 ")
    assert b'"retryable":true' in given
    assert b"retry-after: 1\r\n" in given


async def test_out_of_memory_in_a_decision_is_a_503_that_can_be_repeated(
    queue: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(command: Submit, facts: object, now: int) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Submit, "decide", fail)
        (given,) = await SocketlessClient(HttpApp(queue)).ask(submission("k"))
    assert given.startswith(b"HTTP/1.1 503 ")
    assert b'"retryable":true' in given
    (given,) = await SocketlessClient(HttpApp(queue)).ask(submission("k"))
    assert given.startswith(b"HTTP/1.1 202 ")


async def test_whatever_an_application_raises_closes_the_connection() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise BaseException("x")

    caller = SocketlessClient(app)
    assert await caller.ask(request("GET", "/")) == []
    assert caller.transport.closed
