"""A relay between a gate and a manager, which a test can cut, hold up or freeze as a line or a machine would be."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class Relay:
    """Forwards whole pieces as they come. What a test sets applies to pieces from then on."""

    def __init__(self, target: str) -> None:
        self._writers: set[asyncio.StreamWriter] = set()
        self.redirect(target)
        self._awake = asyncio.Event()
        self._awake.set()
        self.cut_answer: Callable[[bytes], bool] = lambda request: False  # of the last request: drop the line instead
        self.drops_requests = False  # a line that loses everything, one way or the other, and says nothing
        self.drops_answers = False
        self.requests: list[bytes] = []
        self.url = ""

    def redirect(self, target: str) -> None:
        """Lead to this server from now on, as when the one at an address is replaced."""
        parts = urlsplit(target)
        self._target = parts.hostname, parts.port
        self.drop_connections()

    def freeze(self) -> None:
        """Connections stay open, and what is sent on them waits, as in front of a stopped process."""
        self._awake.clear()

    def wake(self) -> None:
        self._awake.set()

    def heal(self) -> None:
        """Lose nothing more. Connections on which something was lost are over, as a gap is never passed on."""
        self.drops_requests = self.drops_answers = False
        self.drop_connections()

    def drop_connections(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            remote_reader, remote_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, remote_writer}
        last_request = b""

        async def forward_requests() -> None:
            nonlocal last_request
            while data := await reader.read(1 << 20):
                self.requests.append(data)
                last_request = data
                await self._awake.wait()
                if not self.drops_requests:
                    remote_writer.write(data)
            remote_writer.close()

        async def forward_answers() -> None:
            while data := await remote_reader.read(1 << 20):
                if self.cut_answer(last_request):
                    writer.transport.abort()
                    return
                await self._awake.wait()
                if not self.drops_answers:
                    writer.write(data)
            writer.close()

        with suppress(OSError):
            await asyncio.gather(forward_requests(), forward_answers())


@asynccontextmanager
async def running_relay(target: str) -> AsyncIterator[Relay]:
    relay = Relay(target)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(relay.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    relay.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        server.close()
        relay.wake()
        relay.drop_connections()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
