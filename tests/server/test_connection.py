"""A connection without a socket: how it parses and writes."""

import asyncio
import random
from typing import Any

from onejob.http.config import ServiceConfig
from onejob.http.serve import build_context
from onejob.logs import Log
from onejob.server.connection import Connection, HeadReader
from onejob.server.exchange import STATUS_LINES
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

    echo: Any = app
    connection = Connection(build_context(config, echo, Log("text", write=lambda data: None)))
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


def test_every_callback_of_the_parser_is_implemented() -> None:
    ours = {name for reader in (Connection, HeadReader) for name in vars(reader)}
    # A URL and a body come in pieces; what the parser calls besides these says nothing that these do not say.
    assert ours >= {
        "on_message_begin", "on_url", "on_header", "on_headers_complete", "on_body", "on_message_complete",
    }  # fmt: skip


def test_a_status_line_has_the_phrase_of_the_standard() -> None:
    assert STATUS_LINES[431] == b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
