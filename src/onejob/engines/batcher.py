"""Group commit: commands that arrive while a batch is being made durable form the next batch.

There is no timer: an idle engine adds no latency, a busy one commits hundreds of commands per sync or round trip.
Tenants are taken in turn, the queues are bounded, and a caller that is cancelled does not affect others: its command is
executed and its reply dropped. The bytes that share a commit are bounded too, and large commands wait in a line of their
own, so that a small one does not wait until many large ones are on the disk. A batch whose outcome is unknown is executed
again, because commands are idempotent.

    enqueue(Pending) -> CommandQueue -> one task per batch: engine.execute -> Pending.complete(reply or failure)
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from onejob.core.command import Command, is_late_arrival, is_precondition_failure, is_temporary_refusal
from onejob.core.replies import AnyReply
from onejob.engine import Engine, EngineInfo, OnSettled, OnTimeout, Page, Query
from onejob.errors import FactsLocked, NotAccepted, PartlyDone, Unavailable, Unknown

T = TypeVar("T")
Result = AnyReply | Exception
ReplyFuture = asyncio.Future[AnyReply]
OnCommit = Callable[[Sequence[Result]], None]

log = logging.getLogger("onejob")

BATCH_BYTES_MAX = 1 << 20  # of the small commands of a batch, and of its large ones
LARGE_COMMAND_BYTES = 64 << 10
QUEUE_BYTES_MAX = 256 << 20
QUEUE_MAX = 32_768
COALESCE_ITERATIONS_MAX = 4
UNKNOWN_ATTEMPTS_MAX = 3
STALL_SECONDS = 4.5  # commands queued behind a batch that failed after this long are refused, not executed
_RETRY_PAUSE_SECONDS = 0.02
_CLOSE_POLL_SECONDS = 0.05


class Pending:
    """A command on its way to the engine, and the caller that waits for it.

    The batcher calls `complete` once. Without `on_reply` that resolves the caller's future; with it, `on_reply`
    decides when and with what to `resolve`. An object instead of a closure, because one exists per command in flight
    and each is visited by every garbage collection.
    """

    __slots__ = ("command", "future", "on_reply", "payload_bytes", "sent_at")

    def __init__(
        self,
        command: Command[Any],
        future: ReplyFuture,
        on_reply: "Callable[[Any, Result], None] | None" = None,
        sent_at: float = 0.0,
    ) -> None:
        self.command = command
        self.future = future
        self.on_reply = on_reply
        self.payload_bytes = 0  # set by the queue, which asks for it several times
        self.sent_at = sent_at

    def complete(self, result: Result) -> None:
        if self.on_reply is None:
            self.resolve(result)
        else:
            self.on_reply(self, result)

    def resolve(self, result: Result) -> None:
        if self.future.done():  # the caller is gone
            return
        if isinstance(result, Exception):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


class _ResultsOfCall:
    """The results of the commands of one call, which are complete when each of them has its own."""

    __slots__ = ("_left", "_results", "future")

    def __init__(self, count: int) -> None:
        self.future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._results: list[Any] = [None] * count
        self._left = count

    def set(self, index: int, result: Result) -> None:
        self._results[index] = result
        self._left -= 1
        if not self._left and not self.future.done():  # done: the caller is gone
            self.future.set_result(self._results)


class _PartOfCall(Pending):
    """A command of a call that waits for all its commands together."""

    __slots__ = ("call", "index")

    def __init__(self, command: Command[Any], call: _ResultsOfCall, index: int) -> None:
        self.command = command
        self.on_reply = None
        self.call = call
        self.index = index

    def complete(self, result: Result) -> None:
        self.call.set(self.index, result)


class QueueStats(NamedTuple):
    """Length and history of a queue. `batches[n]` counts batches of more than 2**(n-1) and at most 2**n commands."""

    waiting: int
    commands: int
    batches: tuple[int, ...]

    def plus(self, other: "QueueStats") -> "QueueStats":
        batches = tuple(a + b for a, b in zip(self.batches, other.batches, strict=True))
        return QueueStats(self.waiting + other.waiting, self.commands + other.commands, batches)


class _TenantLine:
    """What waits of one tenant, first in, first out."""

    __slots__ = ("entries", "payload_bytes")

    def __init__(self) -> None:
        self.entries: deque[Pending] = deque()
        self.payload_bytes = 0


class _Line:
    """A line for each tenant, and tenants in turn."""

    def __init__(self) -> None:
        self.tenants: OrderedDict[str, _TenantLine] = OrderedDict()

    def take(self, limit: int) -> list[Pending]:
        """Up to `limit` commands, one of each tenant in turn; tenants that were not reached come first in the next batch."""
        batch: list[Pending] = []
        room = BATCH_BYTES_MAX
        tenants = self.tenants
        while tenants and len(batch) < limit and room > 0:
            tenant, line = next(iter(tenants.items()))
            entries = line.entries
            # A tenant that is alone is always next.
            for _ in range(limit - len(batch) if len(tenants) == 1 else 1):
                payload_bytes = entries[0].payload_bytes
                if payload_bytes > room and payload_bytes > LARGE_COMMAND_BYTES and batch:
                    return batch
                room -= payload_bytes
                line.payload_bytes -= payload_bytes
                batch.append(entries.popleft())
                if not entries or room <= 0:
                    break
            if entries:
                tenants.move_to_end(tenant)
            else:
                del tenants[tenant]
        return batch

    def drain(self) -> list[Pending]:
        waiting = [pending for line in self.tenants.values() for pending in line.entries]
        self.tenants.clear()
        return waiting


class CommandQueue:
    """Commands that wait to be executed, the large ones apart, within bounds."""

    def __init__(self, commands_max: int, lanes: int = 1) -> None:
        self.lanes = lanes  # how many batches may be in flight at once, at the moment
        self.size = 0
        self.starting = False  # a batch task exists that has not taken its commands yet
        self.running: set[asyncio.Task[None]] = set()
        self._commands_max = commands_max
        self._tenant_commands_max = -(-commands_max // 2)
        self._line = _Line()
        self._large_line = _Line()
        self._took_large = False  # the last batch was of large commands
        self._bytes = 0
        self._commands_total = 0
        self._batch_sizes = [0] * (commands_max.bit_length() + 1)

    def put(self, pending: Pending) -> bool:
        """False when the queue is full. One tenant gets at most half of it."""
        command = pending.command
        tenant = command.tenant
        # As long as less than half of it is used, nobody has half of it.
        if (self.size >= self._tenant_commands_max or self._bytes * 2 >= QUEUE_BYTES_MAX) and self._is_full_for(tenant):
            return False
        payload_bytes = pending.payload_bytes = command.payload_bytes
        is_large = payload_bytes > LARGE_COMMAND_BYTES and command.may_be_overtaken
        tenants = (self._large_line if is_large else self._line).tenants
        line = tenants.get(tenant)
        if line is None:
            line = tenants[tenant] = _TenantLine()
        line.entries.append(pending)
        line.payload_bytes += payload_bytes
        self.size += 1
        self._bytes += payload_bytes
        return True

    def _is_full_for(self, tenant: str) -> bool:
        if self.size >= self._commands_max or self._bytes >= QUEUE_BYTES_MAX:
            return True
        own = [line.tenants[tenant] for line in (self._line, self._large_line) if tenant in line.tenants]
        commands, payload_bytes = sum(len(line.entries) for line in own), sum(line.payload_bytes for line in own)
        return bool(own) and (commands >= self._tenant_commands_max or payload_bytes * 2 >= QUEUE_BYTES_MAX)

    def take(self, limit: int) -> list[Pending]:
        """Up to `limit` commands: small ones and large ones by turns, so that no small one is written with a large one."""
        takes_large = bool(self._large_line.tenants) and not (self._took_large and self._line.tenants)
        self._took_large = takes_large
        batch = (self._large_line if takes_large else self._line).take(limit)
        self._bytes -= sum([pending.payload_bytes for pending in batch])
        self.size -= len(batch)
        if batch:
            self.count_batch(len(batch))
        return batch

    def drain(self) -> list[Pending]:
        """Remove and return everything that waits."""
        waiting = self._line.drain() + self._large_line.drain()
        self.size = self._bytes = 0
        return waiting

    def count_batch(self, commands: int) -> None:
        self._commands_total += commands
        self._batch_sizes[(commands - 1).bit_length()] += 1

    def stats(self) -> QueueStats:
        return QueueStats(self.size, self._commands_total, tuple(self._batch_sizes))


class Batcher:
    """Wraps an engine and implements `Engine`. Reads have a queue of their own, so they never wait for a commit.

    With `coalesce`, a batch of writes waits a few loop iterations for requests that are still being parsed and takes
    all of them: right for a process that serves connections, where the loop has other work while a batch commits.
    """

    def __init__(self, engine: Engine, *, queue_max: int = QUEUE_MAX, coalesce: bool = False) -> None:
        info = engine.info
        self._engine = engine
        self._batch_max = info.batch_max
        self._lane_batch_min = info.lane_batch_min
        self._writes = CommandQueue(queue_max, info.write_lanes)
        self._updates = CommandQueue(queue_max, info.update_lanes) if info.update_lanes else self._writes
        self._reads = CommandQueue(queue_max)
        self._coalesce = coalesce
        self._commit_listeners: list[tuple[frozenset[type[Any]], OnCommit]] = []
        self._detached_tasks: set[asyncio.Task[None]] = set()  # their callers got a timeout error, the batches go on
        self._closed = False
        self.last_error: Exception | None = None  # of the last batch of writes; None: it succeeded
        self.read_batches = 0  # read batches that were sent: equal reads may share a command only before that

    @property
    def info(self) -> EngineInfo:
        return self._engine.info

    def enqueue(self, pending: Pending) -> None:
        """Queue a command; its `complete` is called once, with the reply or the failure."""
        command = pending.command
        queue = self._reads
        if command.writes:
            queue = self._writes if command.creates else self._updates
        if self._closed or not queue.put(pending):
            pending.complete(_not_accepted_error("closed" if self._closed else "overloaded"))
            return
        if not queue.starting and len(queue.running) < queue.lanes:
            self._start_batch(queue)

    async def execute(
        self, commands: Sequence[Command[Any]], /, *, on_timeout: OnTimeout | None = None
    ) -> Sequence[AnyReply]:
        return replies_or_raise(await self.execute_each(commands))

    async def execute_each(self, commands: Sequence[Command[Any]]) -> list[Result]:
        """Each command's reply or its own failure."""
        if not commands:
            return []
        call = _ResultsOfCall(len(commands))
        for index, command in enumerate(commands):
            self.enqueue(_PartOfCall(command, call, index))
        return await call.future

    async def scan(self, query: Query[T], /) -> Page[T]:
        return await self._engine.scan(query)

    async def barrier(self, tenant: str | None, user: str | None = None) -> None:
        await self._engine.barrier(tenant, user)

    def read_now(self, commands: Sequence[Command[Any]], /) -> Sequence[AnyReply] | None:
        replies = None if self._closed else self._engine.read_now(commands)
        if replies is not None:
            self._reads.count_batch(len(commands))
        return replies

    def subscribe(self, on_settled: OnSettled, /) -> None:
        self._engine.subscribe(on_settled)

    def add_commit_listener(self, listener: OnCommit, reply_types: Iterable[type[Any]] = ()) -> None:
        """Call back with the replies to every write batch, or only to those that contain a reply of these types."""
        self._commit_listeners.append((frozenset(reply_types), listener))

    def queue_stats(self) -> dict[str, QueueStats]:
        writes = self._writes.stats()
        if self._updates is not self._writes:
            writes = writes.plus(self._updates.stats())
        return {"write": writes, "read": self._reads.stats()}

    async def aclose(self) -> None:
        """Refuse new commands, answer those that are queued, then close the engine."""
        self._closed = True
        for queue in (self._writes, self._updates, self._reads):
            while queue.running or queue.starting:
                # Polled, because a batch that timed out is detached from its queue while its task goes on.
                await (asyncio.wait(queue.running, timeout=_CLOSE_POLL_SECONDS) if queue.running else asyncio.sleep(0))
        await self._engine.aclose()

    def _start_batch(self, queue: CommandQueue) -> None:
        """The batch takes its commands when its task first runs, so commands of this loop iteration join it."""
        queue.starting = True
        queue.running.add(asyncio.get_running_loop().create_task(self._run_batch(queue)))

    async def _run_batch(self, queue: CommandQueue) -> None:
        is_read = queue is self._reads
        if self._coalesce and not is_read:
            await _wait_for_stable_size(queue)
        queue.starting = False
        self.read_batches += is_read
        free = max(1, queue.lanes - len(queue.running) + 1)
        # Free lanes share the queue, so that one batch is prepared while another commits.
        share = queue.size if self._coalesce else max(self._lane_batch_min, -(-queue.size // free))
        entries = queue.take(min(share, self._batch_max))
        if queue.size and free > 1:
            self._start_batch(queue)
        task = asyncio.current_task()
        assert task is not None
        if not entries:  # they were refused meanwhile
            queue.running.discard(task)
            return
        batch = _Batch(queue, entries, task, asyncio.get_running_loop().time())
        results: Sequence[Result] | Exception
        try:
            results = await self._execute(batch, [pending.command for pending in entries])
            if len(results) != len(entries):
                raise ValueError(f"{len(results)} replies to {len(entries)} commands")
            if not is_read:
                for reply_types, listener in self._commit_listeners:
                    if not reply_types or not reply_types.isdisjoint(map(type, results)):
                        listener(results)
        except Exception as error:  # noqa: BLE001 - every caller gets it
            results = error
        if batch.timed_out:
            self._detached_tasks.discard(task)
        else:
            self._finish_batch(batch, results)

    async def _execute(self, batch: "_Batch", commands: list[Command[Any]]) -> Sequence[Result]:
        """Execute, and execute again while the outcome is unknown.

        A command that fails its precondition in a repeated attempt was not executed then; the earlier attempt may still
        have committed, so its outcome stays unknown.
        """
        on_timeout = partial(self._on_timeout, batch)
        results: Sequence[Result]
        for attempt in range(UNKNOWN_ATTEMPTS_MAX):
            if attempt:
                await asyncio.sleep(_RETRY_PAUSE_SECONDS * attempt)
            try:
                results = await self._engine.execute(commands, on_timeout=on_timeout)
                return results if batch.unknown_error is None else _keep_unknown(results, batch.unknown_error)
            except PartlyDone as error:
                results = error.results
                return results if batch.unknown_error is None else _keep_unknown(results, batch.unknown_error)
            except Unknown as error:
                batch.unknown_error = error
                if batch.timed_out:
                    break
            except Unavailable as error:
                if batch.unknown_error is None and isinstance(error, FactsLocked):
                    # The store works: neither is it down, nor does it stall what is queued.
                    return [_copied_failure(error) for _ in commands]
                if batch.unknown_error is None:
                    raise
                raise batch.unknown_error from error  # this attempt did nothing, but an earlier one may have
        assert batch.unknown_error is not None
        raise batch.unknown_error

    def _on_timeout(self, batch: "_Batch", error: Exception) -> None:
        """The engine continues the batch, but its callers stop waiting."""
        batch.timed_out = True
        self._detached_tasks.add(batch.task)
        self._finish_batch(batch, batch.unknown_error or error)

    def _finish_batch(self, batch: "_Batch", results: Sequence[Result] | Exception) -> None:
        queue = batch.queue
        error = results if isinstance(results, Exception) else None
        if queue is not self._reads:
            self.last_error = error
        if error is not None and asyncio.get_running_loop().time() - batch.started_at >= STALL_SECONDS:
            refused = queue.drain()
            complete_all(refused, [_not_accepted_error("cut off from its store") for _ in refused])
        # The next batch is sent before the callers of this one go on.
        queue.running.discard(batch.task)
        if queue is self._writes:
            queue.lanes = self._engine.info.write_lanes
        if queue.size and not queue.starting and len(queue.running) < queue.lanes:
            self._start_batch(queue)
        if isinstance(results, Exception):
            results = [_copied_failure(results) for _ in batch.entries]
        complete_all(batch.entries, results)


class _Batch:
    __slots__ = ("entries", "queue", "started_at", "task", "timed_out", "unknown_error")

    def __init__(
        self, queue: CommandQueue, entries: list[Pending], task: "asyncio.Task[None]", started_at: float
    ) -> None:
        self.queue = queue
        self.entries = entries
        self.task = task
        self.started_at = started_at
        self.unknown_error: Unknown | None = None  # of an attempt that may have committed
        self.timed_out = False  # its callers got a timeout error


async def _wait_for_stable_size(queue: CommandQueue) -> None:
    """Wait until a loop iteration adds no command. A single caller never waits."""
    seen = 1 if len(queue.running) == 1 else 0
    for _ in range(COALESCE_ITERATIONS_MAX):
        if queue.size <= seen:
            return
        seen = queue.size
        await asyncio.sleep(0)


async def collect_results(futures: Sequence[ReplyFuture]) -> list[AnyReply | BaseException]:
    """Every reply or its failure. Cheaper than gather, and a cancelled caller leaves no exception unretrieved."""
    results: list[AnyReply | BaseException] = []
    try:
        for future in futures:
            try:
                results.append(await future)
            except Exception as error:  # noqa: BLE001 - it is the result
                results.append(error)
    finally:
        for future in futures[len(results) :]:
            if not future.cancel() and not future.cancelled():
                future.exception()  # mark it retrieved
    return results


def replies_or_raise(results: Sequence[AnyReply | BaseException]) -> list[AnyReply]:
    """The replies; or, if one failed, the strongest error: `Unknown` if any command may have been executed."""
    failures = [result for result in results if isinstance(result, BaseException)]
    if not failures:
        return list(results)  # type: ignore[arg-type]  # none of them is a failure
    if len(failures) == len(results):
        # One command that may be done makes the whole uncertain, whatever the first failure says.
        raise next((failure for failure in failures if not isinstance(failure, Unavailable)), failures[0])
    raise Unknown("part of the batch failed; retry all of it with the same keys") from failures[0]


def replies_or_partly_done(results: Sequence[AnyReply | Exception]) -> Sequence[AnyReply]:
    """What an engine returns; if some commands failed alone, it raises one exception that has the results of all."""
    failures = [result for result in results if isinstance(result, Exception)]
    if not failures:
        return cast("Sequence[AnyReply]", results)
    if len(failures) == len(results) and len({type(failure) for failure in failures}) == 1:
        raise failures[0]
    raise PartlyDone(f"part of the batch was not executed ({failures[0]}); retry all of it", results)


def _keep_unknown(results: Sequence[Result], unknown: Unknown) -> Sequence[Result]:
    """A command that was not executed in a repeated attempt is as unknown as it was after the attempt before.

    So is one that was refused for a limit or a gap: a copy of it may be under way, and be admitted later.
    """
    return [_copied_failure(unknown) if _is_undecided(result) else result for result in results]


def _is_undecided(result: Result) -> bool:
    if isinstance(result, Unavailable) or is_precondition_failure(result) or is_late_arrival(result):
        return True
    return is_temporary_refusal(result)


def complete_all(entries: Iterable[Pending], results: Iterable[Result]) -> None:
    """One whose callback fails does not keep the others from theirs."""
    for pending, result in zip(entries, results, strict=True):
        try:
            if pending.on_reply is not None:  # as `complete`, without its call
                pending.on_reply(pending, result)
            else:
                pending.complete(result)
        except Exception:
            log.exception("the reply callback of %s failed", type(pending.command).__name__)


def _not_accepted_error(state: str) -> NotAccepted:
    return NotAccepted(f"the ledger is {state}: nothing was done; retry later with the same key")


def _copied_failure(error: Exception) -> Exception:
    """An engine has two failures; anything else is a defect in it, after which nothing is certain."""
    if isinstance(error, (Unavailable, Unknown)):
        # A copy per caller, since raising an exception sets its traceback.
        copy = type(error)(*error.args)
        copy.__cause__ = error.__cause__
        return copy
    failure = Unknown(f"unexpected engine error ({type(error).__name__}: {error})")
    failure.__cause__ = error
    return failure
