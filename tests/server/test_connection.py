"""A connection without a socket: how it parses and writes, and what it uses of uvicorn."""

import asyncio
import inspect
import random
from typing import Any

import uvicorn
from uvicorn import Config
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

from onejob.http.config import ServiceConfig
from onejob.server.connection import Connection, HeadReader, connection_class
from tests.support.raw_http import parse_responses


async def test_head_and_body_are_sent_in_one_write() -> None:
    written = await bytes_written(ServiceConfig(), [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"])
    assert written == [b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nGET / 0"]


async def test_however_the_bytes_are_cut_the_answers_are_the_same() -> None:
    chance = random.Random(seed := random.randrange(1 << 32))
    print("seed", seed)
    data = b"".join(
        (
            b"GET /a?b=c HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n",
            b"POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
            b"\r\nPOST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: r\r\n\r\n",
            b"POST /d HTTP/1.1\r\nHost: a\r\nContent-Length: 30000\r\n\r\n" + b"z" * 30_000,
            b"GET /e HTTP/1.1\r\nHost: a\r\n\r\n" * 1000,
            b"GET /f HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        )
    )
    expected = [b"GET /a 0", b"POST /b 5", b"POST /c 5", b"POST /d 30000", *[b"GET /e 0"] * 1000, b"GET /f 0"]
    for _ in range(30):
        cuts = sorted(chance.sample(range(1, len(data)), chance.randrange(40)))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        found = parse_responses(b"".join(await bytes_written(ServiceConfig(), pieces)))
        assert [reply.content for reply in found] == expected


async def bytes_written(config: ServiceConfig, pieces: list[bytes]) -> list[bytes]:
    """What a connection writes when it receives these pieces; the application echoes each request."""
    written: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message["body"]), message["more_body"]
        body = f"{scope['method']} {scope['path']} {size}".encode()
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    class Transport(asyncio.Transport):
        closed = False
        reading = asyncio.Event()

        def write(self, data: bytes | bytearray | memoryview) -> None:
            written.append(bytes(data))

        def is_closing(self) -> bool:
            return self.closed

        def close(self) -> None:
            self.closed = True

        def pause_reading(self) -> None:
            self.reading.clear()

        def resume_reading(self) -> None:
            self.reading.set()

    settings = Config(app, interface="asgi3", log_config=None, proxy_headers=False)
    connection = connection_class(config, lambda request_id, status: None)(settings, ServerState(), {})
    transport = Transport()
    transport.resume_reading()
    connection.connection_made(transport)
    for piece in pieces:
        await transport.reading.wait()
        connection.data_received(piece)
    while connection.tasks:
        await asyncio.gather(*connection.tasks)
    connection.connection_lost(ConnectionError())
    return written


def test_the_uvicorn_internals_we_use_exist() -> None:
    # uvicorn calls the protocol class by these names, and everything it calls on a connection is ours.
    parameters = list(inspect.signature(httptools_impl.HttpToolsProtocol).parameters)
    assert parameters == ["config", "server_state", "app_state", "_loop"]
    assert list(inspect.signature(Connection).parameters) == parameters
    settings = Config(lambda: None, log_config=None)
    settings.load()
    assert callable(settings.loaded_app)
    state = ServerState()
    assert state.tasks == state.connections == set()
    assert state.default_headers == []
    assert state.total_requests == 0
    for name in ("connection_made", "connection_lost", "pause_writing", "resume_writing", "shutdown"):
        assert callable(getattr(httptools_impl.HttpToolsProtocol, name))
        assert callable(getattr(Connection, name))
    for name in ("pause_reading", "resume_reading", "pause_writing", "resume_writing", "drain"):
        assert callable(getattr(FlowControl, name))
    for name in ("startup", "shutdown", "handle_exit", "serve"):
        assert callable(getattr(uvicorn.Server, name))
    assert STATUS_LINE[431] == b"HTTP/1.1 431 Request Header Fields Too Large\r\n"


def test_every_callback_of_the_parser_is_implemented() -> None:
    used_by_uvicorn = {name for name in vars(httptools_impl.HttpToolsProtocol) if name.startswith("on_")}
    ours = {name for reader in (Connection, HeadReader) for name in vars(reader)}
    assert used_by_uvicorn - ours == {"on_response_complete"}  # which the parser does not call
