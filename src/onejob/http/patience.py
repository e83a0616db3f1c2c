"""Waiting on behalf of a client: as long as it is there, and this server is."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from .request import Request

T = TypeVar("T")


async def wait_unless_disconnected(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """What the work gives; None when the client goes away or the server leaves before. The work is cancelled then."""
    working = asyncio.create_task(work)
    others = [
        asyncio.create_task(request.wait_for_disconnect()),
        asyncio.create_task(request.ledger.waiters.wait_for_shutdown()),
    ]
    try:
        await asyncio.wait((working, *others), return_when=asyncio.FIRST_COMPLETED)
        return await working if working.done() else None
    finally:
        for task in (working, *others):
            task.cancel()
