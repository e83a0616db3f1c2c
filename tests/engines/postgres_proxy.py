"""A relay in front of PostgreSQL that sees every message and can cut the line at any of them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

_HEADER_BYTES = 5  # a letter and four bytes of length

# Says of a message whether the line is cut before it: ("query" or "answer", its letter, its bytes).
CutRule = Callable[[str, bytes, bytes], bool]


class PostgresProxy:
    """Both directions, message by message. Nothing is cut until a test says so, and then once."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.cut_rule: CutRule | None = None
        self.cuts = 0
        self.refuses_connections = False
        self.queries: list[bytes] = []

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
        there, to = await asyncio.open_connection(*self._upstream)
        ends = (writer, to)
        self._writers.update(ends)
        try:
            # The first message of a client has no letter.
            size = await reader.readexactly(4)
            to.write(size + await reader.readexactly(int.from_bytes(size, "big") - 4))
            await asyncio.gather(self._forward("query", reader, to, ends), self._forward("answer", there, writer, ends))
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
                if side == "query":
                    self.queries.append(head[:1] + body)
                if self.cut_rule is not None and self.cut_rule(side, head[:1], body):
                    self.cut_rule = None
                    self.cuts += 1
                    break
                writer.write(head + body)
                await writer.drain()
        for end in ends:
            end.transport.abort()


@asynccontextmanager
async def run_postgres_proxy(url: str) -> AsyncIterator[tuple[PostgresProxy, str]]:
    """A relay, and the URL that leads through it."""
    parts = urlsplit(url)
    relay = PostgresProxy(parts.hostname or "", parts.port or 0)
    await relay.start()
    try:
        # Encryption is asked for by a message that has no letter either.
        yield relay, url.replace(f":{parts.port}/", f":{relay.port}/") + "?sslmode=disable"
    finally:
        await relay.aclose()
