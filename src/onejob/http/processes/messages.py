"""What the supervisor and its workers say to each other: messages over a pair of sockets.

The end of one side is seen by the other as the end of the messages, however it came about.
"""

import asyncio
import socket
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct, msgpack

from onejob.http.config import ServiceConfig
from onejob.http.stats import StatsSnapshot

MESSAGE_BYTES_MAX: Final = 1 << 26
_LENGTH_BYTES: Final = 4


class WorkerConfig(Struct, frozen=True, tag=True):
    """The first message to a worker: who it is, and what it has inherited."""

    config: ServiceConfig
    number: int  # from 1
    workers: int
    started_at: float  # on the monotonic clock: when the service started
    listener_fds: tuple[int, ...]
    rates_fd: int | None


class StatsRequest(Struct, frozen=True, tag=True):
    """Report now, also what these tenants have."""

    round: int
    tenants: tuple[str, ...]


class TotalsReply(Struct, frozen=True, tag=True):
    """What a worker asked for."""

    stats: StatsSnapshot


class TakeOverListeners(Struct, frozen=True, tag=True):
    """Accept also from these listeners, whose own workers are away; from no others any more."""

    listener_indexes: tuple[int, ...]


class Shutdown(Struct, frozen=True, tag=True):
    at_once: bool


class WorkerReady(Struct, frozen=True, tag=True):
    pass


class WorkerDraining(Struct, frozen=True, tag=True):
    """The worker accepts nothing any more."""


class StatsReport(Struct, frozen=True, tag=True):
    round: int  # 0: nobody asked
    stats: StatsSnapshot


class TotalsRequest(Struct, frozen=True, tag=True):
    """A worker wants to know what all of them counted, also for these tenants. It asks again when it was told."""

    tenants: tuple[str, ...]


ToWorker = WorkerConfig | StatsRequest | TotalsReply | TakeOverListeners | Shutdown
ToSupervisor = WorkerReady | WorkerDraining | StatsReport | TotalsRequest

R = TypeVar("R")
_encode = msgpack.Encoder().encode


class Channel(Generic[R]):
    """One end, on which messages of these kinds are received."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message_types: Any) -> None:
        self._reader = reader
        self._writer = writer
        self._decode = msgpack.Decoder(message_types).decode

    @classmethod
    async def from_socket(cls, sock: socket.socket, message_types: Any) -> "Channel[R]":
        return cls(*await asyncio.open_unix_connection(sock=sock), message_types)

    @property
    def is_idle(self) -> bool:
        """Nothing waits to be read by the other side; what can be said later is said only then."""
        return not self._writer.transport.get_write_buffer_size()

    def send(self, message: ToWorker | ToSupervisor) -> None:
        data = _encode(message)
        assert len(data) <= MESSAGE_BYTES_MAX
        self._writer.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)

    async def receive(self) -> R | None:
        """None when the other side is gone."""
        try:
            length = int.from_bytes(await self._reader.readexactly(_LENGTH_BYTES), "big")
            assert length <= MESSAGE_BYTES_MAX
            received: R = self._decode(await self._reader.readexactly(length))
        except (OSError, asyncio.IncompleteReadError):
            return None
        return received

    async def close(self) -> None:
        """Returns when all is written, or the other side is gone."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            return
