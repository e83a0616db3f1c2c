"""Group commit: what waits while a batch is being made durable goes into the next one. There is no timer.

An idle engine adds no latency, a busy one commits hundreds of commands at once. Tenants are taken in turn, the
queue is bounded, and a caller that goes away harms nobody: its command is executed, its answer dropped.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from onejob.core.receipt import AnyReply
from onejob.core.step import Command
from onejob.engine import Durability, Engine, Near, Paced, Page, Query, Telling, Unavailable, Unknown

from .replies import all_or_failure, each

T = TypeVar("T")

log = logging.getLogger("onejob")

Deliver = Callable[[AnyReply | Exception], None]

BATCH_MAX = 1024
BATCH_BYTES_MAX = 16 << 20
SHARE_MIN = 4
QUEUE_MAX = 32_768
QUEUE_BYTES_MAX = 256 << 20
UNKNOWN_ATTEMPTS_MAX = 3
STALL_SECONDS = 5.0  # who waited behind a batch that failed only after this long has waited enough
_UNKNOWN_PAUSE = 0.02


class Load(NamedTuple):
    """What a queue holds and has done. `batches[n]` counts those of at most 2**n commands, and more than half."""

    waiting: int
    commands: int
    batches: tuple[int, ...]

    def plus(self, other: "Load") -> "Load":
        batches = tuple(a + b for a, b in zip(self.batches, other.batches, strict=True))
        return Load(self.waiting + other.waiting, self.commands + other.commands, batches)


class Combine:
    """An engine in front of an engine. Reads have a queue of their own: they wait for no commit."""

    def __init__(
        self,
        engine: Engine,
        *,
        batch_max: int = BATCH_MAX,
        queue_max: int = QUEUE_MAX,
        lanes: int = 1,
        apart: int = 0,
    ) -> None:
        self._engine = engine
        self._batch_max = batch_max
        self._writes = _Queue(queue_max, lanes)
        self._changes = _Queue(queue_max, apart) if apart else self._writes
        self._reads = _Queue(queue_max)
        self._near = engine if isinstance(engine, Near) else None
        self._closed = False
        self.trouble: Exception | None = None  # of the last batch of writes; None: it went well
        self.committed: Callable[[Sequence[AnyReply]], None] | None = None  # told of every batch of writes
        self.before_reads: Callable[[], None] | None = None  # told when a batch of reads sets out

    @property
    def durability(self) -> Durability:
        return self._engine.durability

    def post(self, command: Command[Any], deliver: Deliver) -> None:
        """Queue a command; `deliver` is called once, with its reply or with what went wrong."""
        queue = self._reads
        if command.writes:
            queue = self._writes if command.makes else self._changes
        if self._closed or not queue.put(command, deliver):
            deliver(Unavailable(_not_taken("closed" if self._closed else "overloaded")))
            return
        if not queue.starting and len(queue.running) < queue.lanes:
            self._start(queue)

    def read_now(self, command: Command[Any]) -> AnyReply | None:
        """The reply to a point read, where it can be had without waiting."""
        replies = None if self._near is None or self._closed else self._near.read_now((command,))
        if replies is None:
            return None
        self._reads.count(1)
        return replies[0]

    async def execute(self, commands: Sequence[Command[Any]], /) -> Sequence[AnyReply]:
        loop = asyncio.get_running_loop()
        replies = [loop.create_future() for _ in commands]
        for command, reply in zip(commands, replies, strict=True):
            self.post(command, delivery(reply))
        return all_or_failure(await each(replies))

    async def scan(self, query: Query[T], /) -> Page[T]:
        return await self._engine.scan(query)

    def listen(self, wake: Callable[[bytes], None]) -> None:
        """Hear of records that others settle, where the engine tells; nobody may rely on it."""
        if isinstance(self._engine, Telling):
            self._engine.listen(wake)

    def loads(self) -> dict[str, Load]:
        writes = self._writes.load()
        if self._changes is not self._writes:
            writes = writes.plus(self._changes.load())
        return {"write": writes, "read": self._reads.load()}

    async def aclose(self) -> None:
        """Refuse what comes, answer what is here, then close the engine."""
        self._closed = True
        for queue in (self._writes, self._changes, self._reads):
            while queue.running or queue.starting:
                await (asyncio.wait(queue.running) if queue.running else asyncio.sleep(0))
        await self._engine.aclose()

    def _start(self, queue: "_Queue") -> None:
        """A batch is taken at the end of this turn of the loop, so that whoever else is ready joins it."""
        queue.starting = True
        queue.running.add(asyncio.get_running_loop().create_task(self._run(queue)))

    async def _run(self, queue: "_Queue") -> None:
        queue.starting = False
        if queue is self._reads and self.before_reads is not None:
            self.before_reads()
        # Shared out, so that one batch is prepared while another is made durable.
        free = queue.lanes - len(queue.running) + 1
        batch = queue.take(min(max(SHARE_MIN, -(-queue.size // free)), self._batch_max))
        if queue.size and free > 1:
            self._start(queue)
        this = asyncio.current_task()
        assert this is not None
        if not batch:  # they were turned away meanwhile
            queue.running.discard(this)
            return
        results: Sequence[AnyReply | Exception]
        trouble: Exception | None = None
        loop = asyncio.get_running_loop()
        begin = loop.time()
        try:
            replies = await self._execute([command for command, _ in batch])
            if len(replies) != len(batch):
                raise ValueError(f"{len(replies)} replies to {len(batch)} commands")
            if self.committed is not None and queue is not self._reads:
                self.committed(replies)
            results = replies
        except Exception as error:  # noqa: BLE001 - every caller is told
            trouble = error
            results = [_as_failure(error) for _ in batch]
            if loop.time() - begin >= STALL_SECONDS:
                queue.turn_away(_not_taken("cut off from its store"))
        if queue is not self._reads:
            self.trouble = trouble
        # The next batch sets out before this one is answered.
        queue.running.discard(this)
        if queue.size and not queue.starting:
            self._start(queue)
        for (_, deliver), result in zip(batch, results, strict=True):
            _tell(deliver, result)

    async def _execute(self, commands: list[Command[Any]]) -> Sequence[AnyReply]:
        """Execute; what may or may not be done is executed again, for every command knows its own echo."""
        doubt: Unknown | None = None
        for attempt in range(UNKNOWN_ATTEMPTS_MAX):
            if attempt:
                await asyncio.sleep(_UNKNOWN_PAUSE * attempt)
            try:
                return await self._engine.execute(commands)
            except Unknown as error:
                doubt = error
            except Unavailable as error:
                if doubt is None:
                    raise
                raise doubt from error  # this attempt did nothing, but an earlier one may have
        assert doubt is not None
        raise doubt


def combined(engine: Engine) -> Combine:
    """A combiner that feeds an engine as it likes to be fed: one large batch at a time, unless it says otherwise."""
    if isinstance(engine, Paced):
        return Combine(engine, lanes=engine.lanes, batch_max=engine.batch_max, apart=engine.apart)
    return Combine(engine)


class _Line:
    """What one tenant has waiting."""

    __slots__ = ("bulk", "entries")

    def __init__(self) -> None:
        self.entries: deque[tuple[Command[Any], Deliver]] = deque()
        self.bulk = 0


class _Queue:
    """Commands that wait, by tenant."""

    __slots__ = ("_batches", "_bound", "_bytes", "_taken", "_tenants", "lanes", "running", "size", "starting")

    def __init__(self, bound: int, lanes: int = 1) -> None:
        self._bound = bound
        self.lanes = lanes  # how many batches may be under way at once
        self._tenants: OrderedDict[str, _Line] = OrderedDict()
        self._bytes = 0
        self._taken = 0
        self._batches = [0] * (bound.bit_length() + 1)
        self.size = 0
        self.starting = False
        self.running: set[asyncio.Task[None]] = set()

    def put(self, command: Command[Any], deliver: Deliver) -> bool:
        """False when there is no room: at most half of it is for one tenant."""
        own = self._tenants.get(command.tenant)
        if self.size >= self._bound or self._bytes >= QUEUE_BYTES_MAX:
            return False
        if own is None:
            own = self._tenants[command.tenant] = _Line()
        elif len(own.entries) * 2 >= self._bound or own.bulk * 2 >= QUEUE_BYTES_MAX:
            return False
        own.entries.append((command, deliver))
        own.bulk += command.bulk
        self.size += 1
        self._bytes += command.bulk
        return True

    def take(self, most: int) -> list[tuple[Command[Any], Deliver]]:
        """Up to so many, one of each tenant in turn; whoever was cut short comes first the next time."""
        batch: list[tuple[Command[Any], Deliver]] = []
        room = BATCH_BYTES_MAX
        while self._tenants and len(batch) < most and room > 0:
            tenant, own = self._tenants.popitem(last=False)
            entry = own.entries.popleft()
            batch.append(entry)
            bulk = entry[0].bulk
            own.bulk -= bulk
            room -= bulk
            if own.entries:
                self._tenants[tenant] = own  # at the end of the line
        self.size -= len(batch)
        self._bytes -= BATCH_BYTES_MAX - room
        if batch:
            self.count(len(batch))
        return batch

    def count(self, commands: int) -> None:
        """A batch of so many is executed."""
        self._taken += commands
        self._batches[(commands - 1).bit_length()] += 1

    def turn_away(self, message: str) -> None:
        """Tell all who wait that they wait in vain."""
        waiting = [deliver for line in self._tenants.values() for _, deliver in line.entries]
        self._tenants.clear()
        self.size = self._bytes = 0
        for deliver in waiting:
            _tell(deliver, Unavailable(message))

    def load(self) -> Load:
        return Load(self.size, self._taken, tuple(self._batches))


def _not_taken(word: str) -> str:
    return f"the ledger is {word}: nothing was done; repeat later with the same key"


def _tell(deliver: Deliver, result: AnyReply | Exception) -> None:
    try:
        deliver(result)
    except Exception:
        log.exception("an answer could not be delivered")


def delivery(reply: "asyncio.Future[AnyReply]") -> Deliver:
    def deliver(result: AnyReply | Exception) -> None:
        if reply.done():
            return
        if isinstance(result, Exception):
            reply.set_exception(result)
        else:
            reply.set_result(result)

    return deliver


def _as_failure(error: Exception) -> Exception:
    """An engine has two failures; anything else is a defect in it, after which nothing is certain."""
    if isinstance(error, (Unavailable, Unknown)):
        # One for each caller, since raising writes on the exception.
        mine = type(error)(*error.args)
        mine.__cause__ = error.__cause__
        return mine
    failure = Unknown(f"the engine failed in an unforeseen way ({type(error).__name__}: {error})")
    failure.__cause__ = error
    return failure
