"""Hearing of keys that were settled by other processes. It only shortens waiting: polling stays the truth."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import asyncpg

from .address import Address
from .link import CONNECT_SECONDS, Uncancelled

_PAUSE_FIRST = 0.5
_PAUSE_MAX = 30.0
_ID_CHARS_MAX = 1000

Wake = Callable[[bytes], None]


class Notices:
    """A connection of its own, past any pooler: behind one, what a session listens to is lost."""

    def __init__(self, address: Address, channel: str) -> None:
        self._address = address
        self._channel = channel
        self._task: asyncio.Task[None] | None = None

    def listen(self, wake: Wake) -> None:
        if self._task is None and self._address.listen_dsn:
            self._task = asyncio.get_running_loop().create_task(self._keep_listening(wake))

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _keep_listening(self, wake: Wake) -> None:
        pause = _PAUSE_FIRST
        while True:
            with suppress(
                asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError
            ):
                await self._listened(wake)
                pause = _PAUSE_FIRST
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSE_MAX)

    async def _listened(self, wake: Wake) -> None:
        """Until the connection is lost."""

        def heard(_connection: object, _pid: int, _channel: str, payload: str) -> None:
            with suppress(ValueError):  # not one of ours
                wake(bytes.fromhex(payload[:_ID_CHARS_MAX]))

        lost = asyncio.Event()
        connection: Any = await asyncpg.connect(
            self._address.listen_dsn, timeout=CONNECT_SECONDS, connection_class=Uncancelled
        )
        try:
            connection.keep_alive()
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(self._channel, heard)
            await lost.wait()
        finally:
            connection.terminate()
