"""The messages between the supervisor and its workers, and the socket pair that carries them.

When one side exits, in whatever way, the other side reads EOF.

The listeners travel on a second socket pair, and only when the worker asks for them: a worker that is starting, or whose
supervisor was killed meanwhile, must not keep the port.
"""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct, msgpack

from onejob.http.config import ServiceConfig
from onejob.http.stats import StatsSnapshot

MESSAGE_BYTES_MAX: Final = 1 << 26
_LENGTH_BYTES: Final = 4
_FDS_AT_ONCE_MAX: Final = 100  # Linux takes 253


class WorkerConfig(Struct, frozen=True, tag=True):
    """The first message to a worker: its number, the settings, and the file descriptors it has inherited."""

    config: ServiceConfig
    number: int  # from 1
    workers: int
    started_at: float  # on the monotonic clock: when the service started
    listener_count: int
    rates_fd: int | None


class ListenersSent(Struct, frozen=True, tag=True):
    """The answer to a ListenersRequest: the listeners are in the other socket."""


class StatsRequest(Struct, frozen=True, tag=True):
    """Asks a worker for a StatsReport, with the counts of these tenants."""

    round: int
    tenants: tuple[str, ...]


class TotalsReply(Struct, frozen=True, tag=True):
    """The answer to a TotalsRequest."""

    stats: StatsSnapshot


class TakeOverListeners(Struct, frozen=True, tag=True):
    """Accept from these listeners too, whose own workers do not run; stop accepting from all others."""

    listener_indexes: tuple[int, ...]


class Ping(Struct, frozen=True, tag=True):
    """Asks a worker for any message; it answers with a Pong."""


class Shutdown(Struct, frozen=True, tag=True):
    at_once: bool


class ListenersRequest(Struct, frozen=True, tag=True):
    """The worker has opened its store and is about to accept."""


class WorkerReady(Struct, frozen=True, tag=True):
    pass


class WorkerDraining(Struct, frozen=True, tag=True):
    """The worker accepts no more connections."""


class Pong(Struct, frozen=True, tag=True):
    pass


class StatsReport(Struct, frozen=True, tag=True):
    round: int  # of the StatsRequest; 0: a periodic report
    stats: StatsSnapshot


class TotalsRequest(Struct, frozen=True, tag=True):
    """Asks for the sums of all workers, also for these tenants. A worker has one request in flight at a time."""

    tenants: tuple[str, ...]


ToWorker = WorkerConfig | ListenersSent | StatsRequest | TotalsReply | TakeOverListeners | Ping | Shutdown
ToSupervisor = ListenersRequest | WorkerReady | WorkerDraining | Pong | StatsReport | TotalsRequest

R = TypeVar("R")
_encode = msgpack.Encoder().encode


class Channel(Generic[R]):
    """One end of the socket pair; receives messages of the given types."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message_types: Any) -> None:
        self._reader = reader
        self._writer = writer
        self._decode = msgpack.Decoder(message_types).decode

    @classmethod
    async def from_socket(cls, sock: socket.socket, message_types: Any) -> "Channel[R]":
        return cls(*await asyncio.open_unix_connection(sock=sock), message_types)

    @property
    def is_idle(self) -> bool:
        """True if the other side keeps up with reading; messages that are not urgent wait for it."""
        return not self._writer.transport.get_write_buffer_size()

    def send(self, message: ToWorker | ToSupervisor) -> None:
        """After the other side has closed this does nothing: the reader hears of it."""
        if self._writer.is_closing():
            return
        data = _encode(message)
        assert len(data) <= MESSAGE_BYTES_MAX
        self._writer.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)

    async def receive(self) -> R | None:
        """The next message; None: the other side has closed."""
        try:
            length = int.from_bytes(await self._reader.readexactly(_LENGTH_BYTES), "big")
            assert length <= MESSAGE_BYTES_MAX
            received: R = self._decode(await self._reader.readexactly(length))
        except (OSError, asyncio.IncompleteReadError):
            return None
        return received

    async def close(self) -> None:
        """Returns when everything is written, or the other side has closed."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            return


def send_listeners(sock: socket.socket, listeners: Sequence[socket.socket]) -> None:
    fds = [listener.fileno() for listener in listeners]
    for start in range(0, len(fds), _FDS_AT_ONCE_MAX):
        socket.send_fds(sock, [b"."], fds[start : start + _FDS_AT_ONCE_MAX])


def receive_listeners(sock: socket.socket, count: int) -> list[socket.socket]:
    """All that were sent; fewer than `count` if the other side has closed."""
    fds: list[int] = []
    while len(fds) < count:
        data, received, _, _ = socket.recv_fds(sock, 1, _FDS_AT_ONCE_MAX)
        if not data:
            break
        fds += received
    return [socket.socket(fileno=fd) for fd in fds]
