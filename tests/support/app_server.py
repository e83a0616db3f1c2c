"""An HttpApp on a real socket in the event loop of the test, and a client that sends given bytes."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple, Self

from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.http.serve import build_context
from onejob.logs import Log
from onejob.server.listener import HttpServer, bind_socket


class HttpResponse(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any

    @property
    def code(self) -> str:
        return str(self.body["error"]["code"])


class ServerSentEvent(NamedTuple):
    """One server-sent event; a comment has no fields."""

    id: int | str | None = None  # a string if log lines are counted too
    event: str = ""
    data: Any = None


class EventStream:
    """A streamed response, event by event."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.status = 0
        self.headers: dict[str, str] = {}
        self._events: deque[ServerSentEvent] = deque()

    async def __anext__(self) -> ServerSentEvent:
        if not self._events:
            size = int(await asyncio.wait_for(self._reader.readline(), 60), 16)
            if not size:
                raise StopAsyncIteration
            text = (await self._reader.readexactly(size + 2))[:-2].decode()
            assert text.endswith("\n\n")
            self._events += map(_parse_event, text[:-2].split("\n\n"))
        return self._events.popleft()

    def __aiter__(self) -> Self:
        return self

    async def read_all(self) -> list[ServerSentEvent]:
        return [frame async for frame in self]

    def disconnect(self) -> None:
        """Abort the connection."""
        self._writer.transport.abort()


class Client:
    def __init__(self, port: int, server: HttpServer) -> None:
        self.port = port
        self.server = server
        self._writers: list[asyncio.StreamWriter] = []

    async def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    async def ask(self, method: str, target: str | bytes, body: bytes = b"", *headers: bytes) -> HttpResponse:
        headers = (*headers, b"connection: close", b"content-length: %d" % len(body))
        watching = await self.open_stream(target, *headers, method=method, body=body)
        try:
            data = await asyncio.wait_for(watching._reader.read(), 60)
        finally:
            watching.disconnect()
        return HttpResponse(watching.status, watching.headers, json.loads(data) if data else None)

    async def get(self, target: str | bytes, *headers: bytes) -> HttpResponse:
        return await self.ask("GET", target, b"", *headers)

    async def post(self, target: str, body: object, *headers: bytes) -> HttpResponse:
        return await self.ask("POST", target, json.dumps(body).encode(), *headers)

    async def open_stream(
        self, target: str | bytes, *headers: bytes, method: str = "GET", body: bytes = b""
    ) -> EventStream:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        where = target if isinstance(target, bytes) else target.encode()
        host = () if any(header.startswith(b"host:") for header in headers) else (b"host: 127.0.0.1",)
        lines = [b"%b %b HTTP/1.1" % (method.encode(), where), *host, *headers]
        writer.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)
        watching = EventStream(reader, writer)
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)).decode("latin-1").splitlines()
        watching.status = int(head[0].split()[1])
        watching.headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-1])
        }
        return watching


@asynccontextmanager
async def serve_app(app: HttpApp) -> AsyncIterator[Client]:
    context = build_context(ServiceConfig(log_requests="none"), app, Log("text", write=lambda data: None))
    server = HttpServer(context, drain_seconds_max=5)
    listener = bind_socket("127.0.0.1", 0)
    ready = asyncio.Event()
    serving = asyncio.create_task(server.serve([listener], ready.set))
    await ready.wait()
    client = Client(listener.getsockname()[1], server)
    try:
        yield client
    finally:
        await client.close()
        server.stop()
        await serving


def _parse_event(block: str) -> ServerSentEvent:
    fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
    data = fields.get("data")
    return ServerSentEvent(
        _parse_event_id(fields["id"]) if "id" in fields else None,
        fields.get("event", ""),
        None if data is None else json.loads(data),
    )


def _parse_event_id(id: str) -> int | str:
    return int(id) if id.isdigit() else id
