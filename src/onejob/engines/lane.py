"""A thread of its own for calls that block, fed from the event loop."""

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


class WorkerThread:
    """Runs calls one after another, in order, off the loop. Cancelling a caller does not stop its call."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                result = work(*args)
            except BaseException as error:  # noqa: BLE001 - it is handed to the caller, whatever it is
                _call_in_loop(loop, _set_exception, future, error)
            else:
                _call_in_loop(loop, _set_result, future, result)

        self._calls.put(run)
        return future

    async def aclose(self) -> None:
        self._calls.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


def _call_in_loop(loop: asyncio.AbstractEventLoop, work: Callable[..., None], *args: Any) -> None:
    # A loop that was closed meanwhile has nobody left to tell.
    if not loop.is_closed():
        loop.call_soon_threadsafe(work, *args)


def _set_result(future: "asyncio.Future[T]", result: T) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: "asyncio.Future[T]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
