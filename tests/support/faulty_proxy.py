"""The proxy of `onejob prove`, for tests without an event loop."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from onejob.cli.commands.prove.faulty_proxy import ChooseFault, FaultyProxy


@contextmanager
def run_faulty_proxy(upstream: int, choose: ChooseFault) -> Iterator[FaultyProxy]:
    """A proxy with its own thread and event loop."""
    proxy = FaultyProxy(upstream, choose)
    ready, loop, stop = Event(), asyncio.new_event_loop(), asyncio.Event()

    async def until_stopped() -> None:
        server = await proxy.start()
        ready.set()
        await stop.wait()
        server.close()
        for _ in range(20):  # a connection that was just accepted starts another task
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
