"""Group commit: what waits while a batch is being made durable goes into the next one. There is no timer.

An idle engine adds no latency, a busy one commits hundreds of commands at once. Tenants are taken in turn, the
queue is bounded, and a caller that goes away harms nobody: its command is executed, its answer dropped.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from onejob.core.command import Command, is_precondition_failure
from onejob.core.replies import AnyReply
from onejob.engine import Carrying, Crowded, Durability, Engine, Near, Paced, Page, Query, Telling
from onejob.errors import Unavailable, Unknown

# Commands that wait to be executed, by tenant, within bounds.


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


# Many replies that come one by one, each of which may be a failure of its own.


async def collect_results(replies: Sequence["asyncio.Future[AnyReply]"]) -> list[AnyReply | BaseException]:
    """Every reply or its failure; cheaper than gather, and a cancelled caller leaves none unlooked at."""
    results: list[AnyReply | BaseException] = []
    try:
        for reply in replies:
            try:
                results.append(await reply)
            except Exception as error:  # noqa: BLE001 - it is the result
                results.append(error)
    finally:
        for reply in replies[len(results) :]:
            if not reply.cancel() and not reply.cancelled():
                reply.exception()  # seen, though there is nobody left to tell
    return results


def replies_or_raise(results: Sequence[AnyReply | BaseException]) -> list[AnyReply]:
    """The replies; or, where one failed, the one failure that is true of all of them together."""
    failures = [result for result in results if isinstance(result, BaseException)]
    if not failures:
        return list(results)  # type: ignore[arg-type]  # none of them is a failure
    if len(failures) == len(results):
        # One that may be done makes the whole uncertain, whatever the first one says.
        raise next((failure for failure in failures if not isinstance(failure, Unavailable)), failures[0])
    raise Unknown("part of the batch failed; repeat all of it with the same keys") from failures[0]


T = TypeVar("T")
OnCommit = Callable[[Sequence[AnyReply | Exception]], None]
ExecuteWithTimeout = Callable[[Sequence[Command[Any]], Callable[[Exception], None]], Awaitable[Sequence[AnyReply]]]

log = logging.getLogger("onejob")

BATCH_MAX = 1024
LANE_SHARE_MIN = 4
COALESCE_ITERATIONS_MAX = 4
QUEUE_MAX = 32_768
UNKNOWN_ATTEMPTS_MAX = 3
STALL_SECONDS = 5.0  # who waited behind a batch that failed only after this long has waited enough
_RETRY_PAUSE_SECONDS = 0.02
_CLOSE_POLL_SECONDS = 0.05


class Batcher:
    """An engine in front of an engine. Reads have a queue of their own: they wait for no commit."""

    def __init__(
        self,
        engine: Engine,
        *,
        batch_max: int = BATCH_MAX,
        queue_max: int = QUEUE_MAX,
        write_lanes: int = 1,
        update_lanes: int = 0,
    ) -> None:
        self._engine = engine
        self._batch_max = batch_max
        self._writes = CommandQueue(queue_max, write_lanes)
        self._updates = CommandQueue(queue_max, update_lanes) if update_lanes else self._writes
        self._reads = CommandQueue(queue_max)
        self._sync_reader = engine if isinstance(engine, Near) else None
        self._execute_with_timeout: ExecuteWithTimeout = (
            engine.execute_with_timeout if isinstance(engine, Carrying) else _execute_without_timeout(engine)
        )
        self._detached_tasks: set[asyncio.Task[None]] = set()  # what goes on, though nobody waits for it
        self._closed = False
        self.coalesce = False  # True: whoever is on the way is waited for, and all go in one batch
        self.last_error: Exception | None = None  # of the last batch of writes; None: it went well
        self.on_commit: OnCommit | None = None  # told of every batch of writes
        self.on_read_batch: Callable[[], None] | None = None  # told when a batch of reads sets out

    @property
    def durability(self) -> Durability:
        return self._engine.durability

    def enqueue(self, command: Command[Any], deliver: Deliver) -> None:
        """Queue a command; `deliver` is called once, with its reply or with what went wrong."""
        queue = self._reads
        if command.writes:
            queue = self._writes if command.creates else self._updates
        if self._closed or not queue.put(command, deliver):
            deliver(Unavailable(_not_accepted_message("closed" if self._closed else "overloaded")))
            return
        if not queue.starting and len(queue.running) < queue.lanes:
            self._start_batch(queue)

    @property
    def reads_are_synchronous(self) -> bool:
        """Whether `read_now` answers."""
        return self._sync_reader is not None

    def read_now(self, command: Command[Any]) -> AnyReply | None:
        """The reply to a point read, where it can be had without waiting."""
        replies = None if self._sync_reader is None or self._closed else self._sync_reader.read_now((command,))
        if replies is None:
            return None
        self._reads.count_batch(1)
        return replies[0]

    async def execute(self, commands: Sequence[Command[Any]], /) -> Sequence[AnyReply]:
        loop = asyncio.get_running_loop()
        replies = [loop.create_future() for _ in commands]
        for command, reply in zip(commands, replies, strict=True):
            self.enqueue(command, deliver_to(reply))
        return replies_or_raise(await collect_results(replies))

    async def scan(self, query: Query[T], /) -> Page[T]:
        return await self._engine.scan(query)

    async def barrier(self) -> None:
        """Until whoever was writing to the engine has ended, where many write at once."""
        if isinstance(self._engine, Crowded):
            await self._engine.barrier()

    def subscribe(self, on_settled: Callable[[bytes], None]) -> None:
        """Hear of records that others settle, where the engine tells; nobody may rely on it."""
        if isinstance(self._engine, Telling):
            self._engine.subscribe(on_settled)

    def queue_stats(self) -> dict[str, QueueStats]:
        writes = self._writes.stats()
        if self._updates is not self._writes:
            writes = writes.plus(self._updates.stats())
        return {"write": writes, "read": self._reads.stats()}

    async def aclose(self) -> None:
        """Refuse what comes, answer what is here, then close the engine."""
        self._closed = True
        for queue in (self._writes, self._updates, self._reads):
            while queue.running or queue.starting:
                # Looked at again and again: a batch may be given up, and its task go on.
                await (asyncio.wait(queue.running, timeout=_CLOSE_POLL_SECONDS) if queue.running else asyncio.sleep(0))
        await self._engine.aclose()

    def _start_batch(self, queue: "CommandQueue") -> None:
        """A batch is taken at the end of this turn of the loop, so that whoever else is ready joins it."""
        queue.starting = True
        queue.running.add(asyncio.get_running_loop().create_task(self._run_batch(queue)))

    async def _run_batch(self, queue: "CommandQueue") -> None:
        if self.coalesce and queue is not self._reads:
            await _wait_for_stable_size(queue)
        queue.starting = False
        if queue is self._reads and self.on_read_batch is not None:
            self.on_read_batch()
        free = queue.lanes - len(queue.running) + 1
        # Shared out, so that one batch is prepared while another is made durable; unless there is other work then.
        share = queue.size if self.coalesce else max(LANE_SHARE_MIN, -(-queue.size // free))
        entries = queue.take(min(share, self._batch_max))
        if queue.size and free > 1:
            self._start_batch(queue)
        this = asyncio.current_task()
        assert this is not None
        if not entries:  # they were turned away meanwhile
            queue.running.discard(this)
            return
        batch = _Batch(queue, entries, this, asyncio.get_running_loop().time())
        results: Sequence[AnyReply | Exception] | Exception
        try:
            results = await self._execute(batch, [command for command, _ in entries])
            if len(results) != len(entries):
                raise ValueError(f"{len(results)} replies to {len(entries)} commands")
            if self.on_commit is not None and queue is not self._reads:
                self.on_commit(results)
        except Exception as error:  # noqa: BLE001 - every caller is told
            results = error
        if batch.timed_out:
            self._detached_tasks.discard(this)
        else:
            self._finish_batch(batch, results)

    async def _execute(self, batch: "_Batch", commands: list[Command[Any]]) -> Sequence[AnyReply | Exception]:
        """Execute; what may or may not be done is executed again, for every command knows its own echo.

        But one whose warrant has lapsed since is not looked at: that does not tell what became of it before.
        """
        give_up = partial(self._on_timeout, batch)
        for attempt in range(UNKNOWN_ATTEMPTS_MAX):
            if attempt:
                await asyncio.sleep(_RETRY_PAUSE_SECONDS * attempt)
            try:
                replies = await self._execute_with_timeout(commands, give_up)
                if batch.unknown_error is None:
                    return replies
                return [
                    _to_engine_error(batch.unknown_error) if is_precondition_failure(reply) else reply
                    for reply in replies
                ]
            except Unknown as error:
                batch.unknown_error = error
                if batch.timed_out:
                    break
            except Unavailable as error:
                if batch.unknown_error is None:
                    raise
                raise batch.unknown_error from error  # this attempt did nothing, but an earlier one may have
        assert batch.unknown_error is not None
        raise batch.unknown_error

    def _on_timeout(self, batch: "_Batch", error: Exception) -> None:
        """The engine goes on, but nobody is to wait for it any longer."""
        batch.timed_out = True
        self._detached_tasks.add(batch.task)
        self._finish_batch(batch, batch.unknown_error or error)

    def _finish_batch(self, batch: "_Batch", results: Sequence[AnyReply | Exception] | Exception) -> None:
        queue = batch.queue
        told: Sequence[AnyReply | Exception]
        if isinstance(results, Exception):
            told = [_to_engine_error(results) for _ in batch.entries]
            if asyncio.get_running_loop().time() - batch.started_at >= STALL_SECONDS:
                for deliver in queue.drain():
                    _deliver_safely(deliver, Unavailable(_not_accepted_message("cut off from its store")))
        else:
            told = results
        if queue is not self._reads:
            self.last_error = results if isinstance(results, Exception) else None
        # The next batch sets out before this one is answered.
        queue.running.discard(batch.task)
        if queue.size and not queue.starting:
            self._start_batch(queue)
        for (_, deliver), result in zip(batch.entries, told, strict=True):
            _deliver_safely(deliver, result)


class _Batch:
    """Commands on their way, and who is to be told."""

    __slots__ = ("entries", "queue", "started_at", "task", "timed_out", "unknown_error")

    def __init__(
        self,
        queue: CommandQueue,
        entries: list[tuple[Command[Any], Deliver]],
        task: "asyncio.Task[None]",
        started_at: float,
    ) -> None:
        self.queue = queue
        self.entries = entries
        self.task = task
        self.started_at = started_at
        self.unknown_error: Unknown | None = None  # of an attempt that may have done it
        self.timed_out = False  # whoever waited was told to wait no longer


async def _wait_for_stable_size(queue: CommandQueue) -> None:
    """Until a turn of the loop brings nobody new: whoever is being read in this moment joins. One alone never waits."""
    seen = 1 if len(queue.running) == 1 else 0
    for _ in range(COALESCE_ITERATIONS_MAX):
        if queue.size <= seen:
            return
        seen = queue.size
        await asyncio.sleep(0)


def _execute_without_timeout(engine: Engine) -> ExecuteWithTimeout:
    return lambda commands, _: engine.execute(commands)


def batcher_for(engine: Engine) -> Batcher:
    """A combiner that feeds an engine as it likes to be fed: one large batch at a time, unless it says otherwise."""
    if isinstance(engine, Paced):
        return Batcher(
            engine,
            write_lanes=engine.write_lanes,
            batch_max=engine.batch_max,
            update_lanes=engine.update_lanes,
        )
    return Batcher(engine)


def _not_accepted_message(state: str) -> str:
    return f"the ledger is {state}: nothing was done; repeat later with the same key"


def _deliver_safely(deliver: Deliver, result: AnyReply | Exception) -> None:
    try:
        deliver(result)
    except Exception:
        log.exception("an answer could not be delivered")


def deliver_to(reply: "asyncio.Future[AnyReply]") -> Deliver:
    def deliver(result: AnyReply | Exception) -> None:
        if reply.done():
            return
        if isinstance(result, Exception):
            reply.set_exception(result)
        else:
            reply.set_result(result)

    return deliver


def _to_engine_error(error: Exception) -> Exception:
    """An engine has two failures; anything else is a defect in it, after which nothing is certain."""
    if isinstance(error, (Unavailable, Unknown)):
        # One for each caller, since raising writes on the exception.
        mine = type(error)(*error.args)
        mine.__cause__ = error.__cause__
        return mine
    failure = Unknown(f"the engine failed in an unforeseen way ({type(error).__name__}: {error})")
    failure.__cause__ = error
    return failure
