"""Answers without a known end: sent piece by piece, until they end or the client goes away."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import aclosing
from typing import Any

from .request import Receive, Send

PIECE_SECONDS_MAX = 30.0  # a client that does not take a piece for so long is given up


async def pour(
    head: MutableMapping[str, Any], pieces: AsyncGenerator[bytes, None], receive: Receive, send: Send
) -> None:
    """Whatever happens, the pieces are closed when this returns, and all that they hold is free."""
    tasks: list[asyncio.Task[None]] = []
    try:
        await send(head)
        tasks = [asyncio.create_task(_sent(pieces, send)), asyncio.create_task(_gone(receive))]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await pieces.aclose()


async def while_allowed(
    pieces: AsyncGenerator[bytes, None], allowed: Callable[[], Awaitable[bool]]
) -> AsyncGenerator[bytes, None]:
    """The pieces, for as long as whoever asked for them may have them: that is asked anew before each."""
    async with aclosing(pieces):
        async for piece in pieces:
            if not await allowed():
                return
            yield piece


async def _sent(pieces: AsyncGenerator[bytes, None], send: Send) -> None:
    async for piece in pieces:
        async with asyncio.timeout(PIECE_SECONDS_MAX):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
