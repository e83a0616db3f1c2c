"""Callers of one HTTP service at random moments: `python -m bench.http_side URL SECRET`.

It reads lines `open 500 1.5` (500 requests per second for 1.5 s, each with a new key) and prints how many were not answered
in time and the microseconds of each.
"""

import asyncio
import random
import re
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import uvloop

from .open_loop import offer
from .submissions import REQUEST_BODY, random_keys

CONNECTIONS = 64
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)


class Connection(asyncio.Protocol):
    """One request at a time, and as little work for it as possible: the client shares the machine with the server."""

    def __init__(self) -> None:
        self._buffer = b""
        self._response: asyncio.Future[int] | None = None
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def send(self, request: bytes) -> asyncio.Future[int]:
        self._response = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._response

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, ends, body = self._buffer.partition(b"\r\n\r\n")
        if not ends:
            return
        length = _LENGTH.search(head + b"\r\n")
        if len(body) >= (int(length[1]) if length else 0) and self._response is not None:
            self._buffer = b""
            response, self._response = self._response, None
            if not response.done():
                response.set_result(int(head[9:12]))

    def connection_lost(self, error: Exception | None) -> None:
        if self._response is not None and not self._response.done():
            self._response.set_exception(error or ConnectionError("the server has closed the connection"))


class Callers:
    """Requests over kept connections; one that finds none free waits, and its latency counts that."""

    def __init__(self, secret: str, host: str) -> None:
        self._head = (
            f"POST /api/jobs HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {secret}\r\nContent-Length: {len(REQUEST_BODY)}\r\nIdempotency-Key: "
        ).encode()
        self._idle: deque[Connection] = deque()
        self._waiting: deque[asyncio.Future[Connection]] = deque()
        self._keys = random_keys(random.Random())

    @asynccontextmanager
    async def connected(self, host: str, port: int) -> AsyncIterator[None]:
        """With new connections each time, because servers close those that were idle for some seconds."""
        loop = asyncio.get_running_loop()
        connections = [(await loop.create_connection(Connection, host, port))[1] for _ in range(CONNECTIONS)]
        self._idle = deque(connections)
        self._waiting.clear()
        try:
            yield
        finally:
            for connection in connections:
                connection.close()

    async def submit(self) -> None:
        connection = self._idle.popleft() if self._idle else await self._wait()
        status = await connection.send(self._head + next(self._keys).encode() + b"\r\n\r\n" + REQUEST_BODY.encode())
        if self._waiting:
            self._waiting.popleft().set_result(connection)
        else:
            self._idle.append(connection)
        assert 200 <= status < 300, status

    def _wait(self) -> asyncio.Future[Connection]:
        waiting: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        return waiting


async def main(url: str, secret: str) -> None:
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    callers = Callers(secret, address.netloc)
    print("ready", flush=True)
    rng = random.Random()
    while line := (await asyncio.to_thread(sys.stdin.readline)).split():
        _, rate, seconds = line
        async with callers.connected(address.hostname, address.port):
            found = await offer(callers.submit, float(rate), float(seconds), rng)
        print(found.late, *(round(latency * 1e6) for latency in found.latencies), flush=True)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
