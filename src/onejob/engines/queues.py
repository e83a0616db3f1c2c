"""Commands that wait to be executed, by tenant, within bounds."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from onejob.core.receipt import AnyReply
from onejob.core.step import Command

Deliver = Callable[[AnyReply | Exception], None]

BATCH_BYTES_MAX = 16 << 20
QUEUE_BYTES_MAX = 256 << 20


class QueueStats(NamedTuple):
    """What a queue holds and has done. `batches[n]` counts those of at most 2**n commands, and more than half."""

    waiting: int
    commands: int
    batches: tuple[int, ...]

    def plus(self, other: "QueueStats") -> "QueueStats":
        batches = tuple(a + b for a, b in zip(self.batches, other.batches, strict=True))
        return QueueStats(self.waiting + other.waiting, self.commands + other.commands, batches)


class _TenantQueue:
    """What one tenant has waiting."""

    __slots__ = ("entries", "payload_bytes")

    def __init__(self) -> None:
        self.entries: deque[tuple[Command[Any], Deliver]] = deque()
        self.payload_bytes = 0


class CommandQueue:
    """Commands that wait, by tenant."""

    __slots__ = (
        "_batch_sizes",
        "_bytes",
        "_commands_max",
        "_commands_total",
        "_tenants",
        "lanes",
        "running",
        "size",
        "starting",
    )

    def __init__(self, commands_max: int, lanes: int = 1) -> None:
        self._commands_max = commands_max
        self.lanes = lanes  # how many batches may be under way at once
        self._tenants: OrderedDict[str, _TenantQueue] = OrderedDict()
        self._bytes = 0
        self._commands_total = 0
        self._batch_sizes = [0] * (commands_max.bit_length() + 1)
        self.size = 0
        self.starting = False
        self.running: set[asyncio.Task[None]] = set()

    def put(self, command: Command[Any], deliver: Deliver) -> bool:
        """False when there is no room: at most half of it is for one tenant."""
        own = self._tenants.get(command.tenant)
        if self.size >= self._commands_max or self._bytes >= QUEUE_BYTES_MAX:
            return False
        if own is None:
            own = self._tenants[command.tenant] = _TenantQueue()
        elif len(own.entries) * 2 >= self._commands_max or own.payload_bytes * 2 >= QUEUE_BYTES_MAX:
            return False
        own.entries.append((command, deliver))
        own.payload_bytes += command.payload_bytes
        self.size += 1
        self._bytes += command.payload_bytes
        return True

    def take(self, limit: int) -> list[tuple[Command[Any], Deliver]]:
        """Up to so many, one of each tenant in turn; whoever was cut short comes first the next time."""
        batch: list[tuple[Command[Any], Deliver]] = []
        room = BATCH_BYTES_MAX
        while self._tenants and len(batch) < limit and room > 0:
            tenant, own = self._tenants.popitem(last=False)
            entry = own.entries.popleft()
            batch.append(entry)
            bulk = entry[0].payload_bytes
            own.payload_bytes -= bulk
            room -= bulk
            if own.entries:
                self._tenants[tenant] = own  # at the end of the line
        self.size -= len(batch)
        self._bytes -= BATCH_BYTES_MAX - room
        if batch:
            self.count_batch(len(batch))
        return batch

    def count_batch(self, commands: int) -> None:
        """A batch of so many is executed."""
        self._commands_total += commands
        self._batch_sizes[(commands - 1).bit_length()] += 1

    def drain(self) -> list[Deliver]:
        """Whoever waited, to be told that it was in vain."""
        waiting = [deliver for line in self._tenants.values() for _, deliver in line.entries]
        self._tenants.clear()
        self.size = self._bytes = 0
        return waiting

    def stats(self) -> QueueStats:
        return QueueStats(self.size, self._commands_total, tuple(self._batch_sizes))
