"""A proxy in front of an object store that counts the HTTP requests which really arrive, by method and folder."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

_PIECE_BYTES = 1 << 16


class CountingProxy:
    """Forwards every byte as it is. A request is counted before it is forwarded, so none is answered uncounted."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = parts.hostname, parts.port
        self.counts: Counter[tuple[str, str]] = Counter()
        self.endpoint = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        store_reader, store_writer = await asyncio.open_connection(*self._target)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                async with asyncio.TaskGroup() as group:
                    group.create_task(_forward_all(store_reader, writer))
                    group.create_task(self._forward_requests(reader, store_writer))
        finally:
            writer.close()
            store_writer.close()

    async def _forward_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            head = await reader.readuntil(b"\r\n\r\n")
            start, *lines = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            assert "transfer-encoding" not in headers, "the end of a request without a length is not found here"
            method, path, _ = start.split(" ")
            self.counts[method, _folder_of(path)] += 1
            writer.write(head + await reader.readexactly(int(headers.get("content-length", "0"))))
        writer.close()


def _folder_of(path: str) -> str:
    """Of an object, /bucket/prefix/folder/name; empty: the request is for no object, as those of lists and dates."""
    parts = path.split("/", 4)
    return parts[3] if len(parts) == 5 else ""


async def _forward_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_PIECE_BYTES):
        writer.write(data)
    writer.close()


@asynccontextmanager
async def running_counting_proxy(target: str) -> AsyncIterator[CountingProxy]:
    proxy = CountingProxy(target)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.get_running_loop().create_task(proxy.serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    proxy.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
