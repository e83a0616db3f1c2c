"""Answers without a known end: sent piece by piece, until they end or the client goes away."""

import asyncio
from collections.abc import AsyncGenerator, MutableMapping
from typing import Any

from .answers import Allowed
from .request import Receive, Send

PIECE_SECONDS_MAX = 30.0  # a client that does not take a piece for so long is given up


async def pour(
    head: MutableMapping[str, Any],
    pieces: AsyncGenerator[bytes, None],
    receive: Receive,
    send: Send,
    allowed: Allowed | None = None,
) -> None:
    """Send what the client may still have. The pieces are closed when this returns, and all that they hold is free."""
    tasks: list[asyncio.Task[None]] = []
    try:
        await send(head)
        tasks = [asyncio.create_task(_sent(pieces, send, allowed)), asyncio.create_task(_gone(receive))]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await pieces.aclose()


async def _sent(pieces: AsyncGenerator[bytes, None], send: Send, allowed: Allowed | None) -> None:
    async for piece in pieces:
        if allowed is not None and not await allowed():
            break
        async with asyncio.timeout(PIECE_SECONDS_MAX):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
