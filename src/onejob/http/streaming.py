"""Streamed responses and long polling: both end when the client disconnects."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, MutableMapping
from typing import Any, TypeVar

from onejob.ledger.base import runtime_of

from .request import AuthorizationCheck, Receive, Request, Send

CHUNK_SECONDS_MAX = 30.0  # within which the client must have read a piece

T = TypeVar("T")


async def wait_unless_disconnected(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of the work. If the client disconnects or the server shuts down first: None, and it is cancelled."""
    working = asyncio.create_task(work)
    others = [
        asyncio.create_task(request.wait_for_disconnect()),
        asyncio.create_task(runtime_of(request.ledger).waiters.wait_for_shutdown()),
    ]
    try:
        await asyncio.wait((working, *others), return_when=asyncio.FIRST_COMPLETED)
        return await working if working.done() else None
    finally:
        for task in (working, *others):
            task.cancel()


async def stream_response(
    head: MutableMapping[str, Any],
    chunks: AsyncGenerator[bytes, None],
    receive: Receive,
    send: Send,
    still_authorized: AuthorizationCheck | None = None,
) -> None:
    """Send the pieces while the client is connected and authorized. The generator is closed on return."""
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
    async for chunk in chunks:
        if still_authorized is not None and not await still_authorized():
            break
        async with asyncio.timeout(CHUNK_SECONDS_MAX):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
