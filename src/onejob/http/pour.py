"""Answers without a known end: sent piece by piece, until they end or the client goes away."""

import asyncio
from collections.abc import AsyncGenerator, MutableMapping
from typing import Any

from .answers import AuthorizationCheck
from .request import Receive, Send

CHUNK_SECONDS_MAX = 30.0  # a client that does not take a piece for so long is given up


async def stream_response(
    head: MutableMapping[str, Any],
    chunks: AsyncGenerator[bytes, None],
    receive: Receive,
    send: Send,
    still_authorized: AuthorizationCheck | None = None,
) -> None:
    """Send what the client may still have. The pieces are closed when this returns, and all that they hold is free."""
    tasks: list[asyncio.Task[None]] = []
    try:
        await send(head)
        tasks = [
            asyncio.create_task(_send_chunks(chunks, send, still_authorized)),
            asyncio.create_task(_wait_for_disconnect(receive)),
        ]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await chunks.aclose()


async def _send_chunks(
    chunks: AsyncGenerator[bytes, None], send: Send, still_authorized: AuthorizationCheck | None
) -> None:
    async for piece in chunks:
        if still_authorized is not None and not await still_authorized():
            break
        async with asyncio.timeout(CHUNK_SECONDS_MAX):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
