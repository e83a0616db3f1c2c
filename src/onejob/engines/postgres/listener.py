"""Hearing of keys that were settled by other processes. It only shortens waiting: polling stays the truth."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import asyncpg

from .connection import CONNECT_SECONDS, NonCancellingConnection
from .url import PostgresUrl

_PAUSE_FIRST = 0.5
_PAUSE_MAX = 30.0
_ID_CHARS_MAX = 1000

OnSettled = Callable[[bytes], None]


class NotificationListener:
    """A connection of its own, past any pooler: behind one, what a session listens to is lost."""

    def __init__(self, url: PostgresUrl, channel: str) -> None:
        self._url = url
        self._channel = channel
        self._task: asyncio.Task[None] | None = None

    def subscribe(self, on_settled: OnSettled) -> None:
        if self._task is None and self._url.listen_dsn:
            self._task = asyncio.get_running_loop().create_task(self._keep_listening(on_settled))

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _keep_listening(self, on_settled: OnSettled) -> None:
        pause = _PAUSE_FIRST
        while True:
            with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError):
                await self._listen_until_lost(on_settled)
                pause = _PAUSE_FIRST
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSE_MAX)

    async def _listen_until_lost(self, on_settled: OnSettled) -> None:
        """Until the connection is lost."""

        def heard(_connection: object, _pid: int, _channel: str, payload: str) -> None:
            with suppress(ValueError):  # not one of ours
                on_settled(bytes.fromhex(payload[:_ID_CHARS_MAX]))

        lost = asyncio.Event()
        connection: Any = await asyncpg.connect(
            self._url.listen_dsn, timeout=CONNECT_SECONDS, connection_class=NonCancellingConnection
        )
        try:
            connection.enable_keepalive()
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(self._channel, heard)
            await lost.wait()
        finally:
            connection.terminate()
