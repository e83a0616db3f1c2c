"""A proxy between a client and a real server that spoils what passes: it drops, delays, doubles and cuts."""

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from threading import Event, Thread
from typing import NamedTuple


class Fate(NamedTuple):
    """What happens to one attempt."""

    what: str = "pass"
    at: float = 0


PASS = Fate()
DROP = Fate("drop")  # the request never reaches the server
LOSE = Fate("lose")  # the server does the work, the answer is lost
TWICE = Fate("twice")  # the server gets the request twice, at once
ECHO = Fate("echo")  # the client gets the answer twice, on one connection
Choose = Callable[[str, int], Fate]  # of a key and the number of its attempt, from 0


def cut(at: int) -> Fate:
    return Fate("cut", at)


def delay(seconds: float) -> Fate:
    return Fate("delay", seconds)


def chosen(seed: int, *, faults_max: int, answer_bytes: int, delay_seconds: float) -> Choose:
    """Each attempt of a key has its own fate, the same for the same seed; after so many faults it passes."""

    def choose(key: str, attempt: int) -> Fate:
        chance = Random(f"{seed}/{key}/{attempt}")
        if attempt >= faults_max or chance.random() < 0.4:
            return PASS
        kinds = [
            DROP,
            LOSE,
            TWICE,
            ECHO,
            cut(chance.randrange(answer_bytes)),
            cut(chance.randrange(answer_bytes)),
        ]
        kinds += [delay(delay_seconds)] if chance.random() < 0.1 else []
        return chance.choice(kinds)

    return choose


class Proxy:
    def __init__(self, upstream: int, choose: Choose) -> None:
        self._upstream = upstream
        self._choose = choose
        self.seen: dict[str, list[bytes]] = defaultdict(list)  # key -> the bytes of every attempt
        self.fates: dict[str, int] = defaultdict(int)
        self.answer_bytes_max = 0
        self.port = 0
        self._tasks: set[asyncio.Task[None] | None] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, ready: Event, stop: asyncio.Event) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = None
        task = asyncio.current_task()
        self._tasks.add(task)  # the loop itself would let it be collected while it waits
        try:
            upstream = await asyncio.open_connection("127.0.0.1", self._upstream)
            while request := await _message(reader):
                if not await self._passed(request, upstream, writer):
                    break
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # somebody hung up, which is what this is about
        finally:
            self._tasks.discard(task)
            for one in (writer, upstream[1] if upstream else None):
                if one is not None:
                    one.close()

    async def _passed(
        self,
        request: bytes,
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Whether the connection goes on."""
        key = _key(request)
        fate = self._choose(key, len(self.seen[key])) if key else PASS
        self.seen[key].append(request)
        self.fates[fate.what] += 1
        if fate is DROP:
            return False
        if fate is TWICE:
            twin = asyncio.create_task(self._other(request))
            answer = await _asked(request, upstream)
            await twin
        else:
            answer = await _asked(request, upstream)
        self.answer_bytes_max = max(self.answer_bytes_max, len(answer))
        if fate is LOSE:
            return False
        if fate.what == "cut":
            writer.write(answer[: int(fate.at)])
            await writer.drain()
            return False
        if fate.what == "delay":
            await asyncio.sleep(fate.at)
        writer.write(answer * 2 if fate is ECHO else answer)
        await writer.drain()
        return True

    async def _other(self, request: bytes) -> None:
        upstream = await asyncio.open_connection("127.0.0.1", self._upstream)
        try:
            await _asked(request, upstream)
        finally:
            upstream[1].close()


@contextmanager
def proxied(upstream: int, choose: Choose) -> Iterator[Proxy]:
    """A proxy in a thread and a loop of its own."""
    proxy = Proxy(upstream, choose)
    ready, loop, stop = Event(), asyncio.new_event_loop(), asyncio.Event()

    async def until_stopped() -> None:
        await proxy.serve(ready, stop)
        for _ in range(20):  # a connection that was just accepted begins a task of its own
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
            await asyncio.sleep(0.001)

    thread = Thread(target=loop.run_until_complete, args=(until_stopped(),), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()


async def _asked(request: bytes, upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bytes:
    upstream[1].write(request)
    return await _message(upstream[0])


async def _message(reader: asyncio.StreamReader) -> bytes:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""
    length = re.search(rb"\r\ncontent-length: *(\d+)", head.lower())
    return head + (await reader.readexactly(int(length[1])) if length else b"")


def _key(request: bytes) -> str:
    _, _, body = request.partition(b"\r\n\r\n")
    try:
        return str(json.loads(body)["idempotencyKey"])
    except (ValueError, KeyError, TypeError):
        return ""
