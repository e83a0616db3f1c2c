"""A proxy in front of PostgreSQL that can cut the connection before any message, and put the server far away."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

_HEADER_BYTES = 5  # a type byte and four bytes of length
_LAST_OF_A_TRIP = b"QSZ"  # the messages after which one side waits for the other

# True if the connection is cut before a message: ("query" or "answer", its type byte, its body).
CutRule = Callable[[str, bytes, bytes], bool]


class PostgresProxy:
    """Forwards both directions message by message. `cut_rule` cuts once, and is then reset."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.cut_rule: CutRule | None = None
        self.cuts = 0
        self.refuses_connections = False
        self.delay_seconds = 0.0  # each way

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def aclose(self) -> None:
        assert self._server is not None
        self._server.close()
        self.abort_all()
        await asyncio.sleep(0)

    def abort_all(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses_connections:
            writer.transport.abort()
            return
        server_reader, server_writer = await asyncio.open_connection(*self._upstream)
        ends = (writer, server_writer)
        self._writers.update(ends)
        try:
            # The first message of a client has no type byte.
            size = await reader.readexactly(4)
            server_writer.write(size + await reader.readexactly(int.from_bytes(size, "big") - 4))
            await asyncio.gather(
                self._forward("query", reader, server_writer, ends),
                self._forward("answer", server_reader, writer, ends),
            )
        except (OSError, EOFError):
            pass
        finally:
            for end in ends:
                end.transport.abort()
            self._writers.difference_update(ends)

    async def _forward(
        self,
        side: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        ends: tuple[asyncio.StreamWriter, ...],
    ) -> None:
        with suppress(OSError, EOFError):
            while True:
                head = await reader.readexactly(_HEADER_BYTES)
                body = await reader.readexactly(int.from_bytes(head[1:], "big") - 4)
                if self.cut_rule is not None and self.cut_rule(side, head[:1], body):
                    self.cut_rule = None
                    self.cuts += 1
                    break
                if self.delay_seconds and head[:1] in _LAST_OF_A_TRIP:
                    await asyncio.sleep(self.delay_seconds)
                writer.write(head + body)
                await writer.drain()
        for end in ends:
            end.transport.abort()


@asynccontextmanager
async def run_postgres_proxy(url: str) -> AsyncIterator[tuple[PostgresProxy, str]]:
    """A proxy, and the URL that leads through it."""
    parts = urlsplit(url)
    proxy = PostgresProxy(parts.hostname or "", parts.port or 0)
    await proxy.start()
    try:
        # A request for TLS has no type byte either.
        yield proxy, url.replace(f":{parts.port}/", f":{proxy.port}/") + "?sslmode=disable"
    finally:
        await proxy.aclose()
