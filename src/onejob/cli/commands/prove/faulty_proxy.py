"""A proxy between a client and a real server that drops, delays, duplicates and cuts messages."""

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple


class NetworkFault(NamedTuple):
    """What happens to one attempt."""

    kind: str = "pass"
    at: float = 0


PASS = NetworkFault()
DROP = NetworkFault("drop")  # the request never reaches the server
LOSE = NetworkFault("lose")  # the server does the work, the response is lost
TWICE = NetworkFault("twice")  # the server gets the request twice, at once
ECHO = NetworkFault("echo")  # the client gets the response twice, on one connection
_KEY_HEADER = re.compile(rb'\r\nidempotency-key: *"?([^"\r]+)', re.IGNORECASE)
ChooseFault = Callable[[str, int], NetworkFault]  # of a key and the number of its attempt, from 0


def cut(at: int) -> NetworkFault:
    return NetworkFault("cut", at)


def delay(seconds: float) -> NetworkFault:
    return NetworkFault("delay", seconds)


class FaultyProxy:
    def __init__(self, upstream: int, choose: ChooseFault) -> None:
        self._upstream = upstream
        self._choose = choose
        self.attempts_by_key: dict[str, list[bytes]] = defaultdict(list)  # key -> the bytes of every attempt
        self.fault_counts: dict[str, int] = defaultdict(int)
        self.answer_bytes_max = 0
        self.port = 0
        self._tasks: set[asyncio.Task[None] | None] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> asyncio.Server:
        server = await asyncio.start_server(self._handle_connection, "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def aclose(self) -> None:
        """End the connections that are left."""
        tasks = [task for task in self._tasks if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = None
        task = asyncio.current_task()
        self._tasks.add(task)  # a reference, because the loop keeps only a weak one
        try:
            upstream = await asyncio.open_connection("127.0.0.1", self._upstream)
            while request := await _read_message(reader):
                if not await self._forward(request, upstream, writer):
                    break
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # one side closed the connection, as intended
        finally:
            self._tasks.discard(task)
            for stream in (writer, upstream[1] if upstream else None):
                if stream is not None:
                    stream.close()

    async def _forward(
        self, request: bytes, upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter], writer: asyncio.StreamWriter
    ) -> bool:
        """True if the connection stays open."""
        key = _key_of(request)
        fault = self._choose(key, len(self.attempts_by_key[key])) if key else PASS
        self.attempts_by_key[key].append(request)
        self.fault_counts[fault.kind] += 1
        if fault is DROP:
            return False
        if fault is TWICE:
            answer, _ = await asyncio.gather(_exchange(request, upstream), self._send_duplicate(request))
        else:
            answer = await _exchange(request, upstream)
        self.answer_bytes_max = max(self.answer_bytes_max, len(answer))
        if fault is LOSE or not answer:  # without an answer, the server died or hung up
            return False
        if fault.kind == "cut":
            writer.write(answer[: int(fault.at)])
            await writer.drain()
            return False
        if fault.kind == "delay":
            await asyncio.sleep(fault.at)
        writer.write(answer * 2 if fault is ECHO else answer)
        await writer.drain()
        return True

    async def _send_duplicate(self, request: bytes) -> None:
        upstream = await asyncio.open_connection("127.0.0.1", self._upstream)
        try:
            await _exchange(request, upstream)
        finally:
            upstream[1].close()


async def _exchange(request: bytes, upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bytes:
    upstream[1].write(request)
    return await _read_message(upstream[0])


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""
    length = re.search(rb"\r\ncontent-length: *(\d+)", head.lower())
    return head + (await reader.readexactly(int(length[1])) if length else b"")


def _key_of(request: bytes) -> str:
    head, _, body = request.partition(b"\r\n\r\n")
    if header := _KEY_HEADER.search(head):
        return header[1].decode("latin-1")
    try:
        return str(json.loads(body)["idempotencyKey"])
    except (ValueError, KeyError, TypeError):
        return ""
