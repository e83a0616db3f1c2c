"""Group commit: what waits while a batch is being made durable goes into the next one. There is no timer.

An idle engine adds no latency, a busy one commits hundreds of commands at once. Tenants are taken in turn, the
queue is bounded, and a caller that goes away harms nobody: its command is executed, its answer dropped.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from onejob.core.receipt import AnyReply
from onejob.core.step import Command, is_lapsed
from onejob.engine import (
    Carrying,
    Crowded,
    Durability,
    Engine,
    Near,
    Paced,
    Page,
    Query,
    Telling,
    Unavailable,
    Unknown,
)

from .queues import Deliver, Load, Queue
from .replies import all_or_failure, each

T = TypeVar("T")
Listener = Callable[[Sequence[AnyReply | Exception]], None]
Carry = Callable[[Sequence[Command[Any]], Callable[[Exception], None]], Awaitable[Sequence[AnyReply]]]

log = logging.getLogger("onejob")

BATCH_MAX = 1024
SHARE_MIN = 4
TURNS_MAX = 4
QUEUE_MAX = 32_768
UNKNOWN_ATTEMPTS_MAX = 3
STALL_SECONDS = 5.0  # who waited behind a batch that failed only after this long has waited enough
_UNKNOWN_PAUSE = 0.02
_CLOSE_PAUSE = 0.05


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
        self._writes = Queue(queue_max, lanes)
        self._changes = Queue(queue_max, apart) if apart else self._writes
        self._reads = Queue(queue_max)
        self._near = engine if isinstance(engine, Near) else None
        self._carry: Carry = engine.carry if isinstance(engine, Carrying) else _carried_by(engine)
        self._lingering: set[asyncio.Task[None]] = set()  # what goes on, though nobody waits for it
        self._closed = False
        self.whole = False  # True: whoever is on the way is waited for, and all go in one batch
        self.trouble: Exception | None = None  # of the last batch of writes; None: it went well
        self.committed: Listener | None = None  # told of every batch of writes
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

    @property
    def has_at_hand(self) -> bool:
        """Whether `read_now` answers."""
        return self._near is not None

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

    async def quiet(self) -> None:
        """Until whoever was writing to the engine has ended, where many write at once."""
        if isinstance(self._engine, Crowded):
            await self._engine.quiet()

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
                # Looked at again and again: a batch may be given up, and its task go on.
                await (
                    asyncio.wait(queue.running, timeout=_CLOSE_PAUSE) if queue.running else asyncio.sleep(0)
                )
        await self._engine.aclose()

    def _start(self, queue: "Queue") -> None:
        """A batch is taken at the end of this turn of the loop, so that whoever else is ready joins it."""
        queue.starting = True
        queue.running.add(asyncio.get_running_loop().create_task(self._run(queue)))

    async def _run(self, queue: "Queue") -> None:
        if self.whole and queue is not self._reads:
            await _settled(queue)
        queue.starting = False
        if queue is self._reads and self.before_reads is not None:
            self.before_reads()
        free = queue.lanes - len(queue.running) + 1
        # Shared out, so that one batch is prepared while another is made durable; unless there is other work then.
        share = queue.size if self.whole else max(SHARE_MIN, -(-queue.size // free))
        entries = queue.take(min(share, self._batch_max))
        if queue.size and free > 1:
            self._start(queue)
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
            if self.committed is not None and queue is not self._reads:
                self.committed(results)
        except Exception as error:  # noqa: BLE001 - every caller is told
            results = error
        if batch.left:
            self._lingering.discard(this)
        else:
            self._end(batch, results)

    async def _execute(self, batch: "_Batch", commands: list[Command[Any]]) -> Sequence[AnyReply | Exception]:
        """Execute; what may or may not be done is executed again, for every command knows its own echo.

        But one whose warrant has lapsed since is not looked at: that does not tell what became of it before.
        """
        give_up = partial(self._give_up, batch)
        for attempt in range(UNKNOWN_ATTEMPTS_MAX):
            if attempt:
                await asyncio.sleep(_UNKNOWN_PAUSE * attempt)
            try:
                replies = await self._carry(commands, give_up)
                if batch.doubt is None:
                    return replies
                return [_as_failure(batch.doubt) if is_lapsed(reply) else reply for reply in replies]
            except Unknown as error:
                batch.doubt = error
                if batch.left:
                    break
            except Unavailable as error:
                if batch.doubt is None:
                    raise
                raise batch.doubt from error  # this attempt did nothing, but an earlier one may have
        assert batch.doubt is not None
        raise batch.doubt

    def _give_up(self, batch: "_Batch", error: Exception) -> None:
        """The engine goes on, but nobody is to wait for it any longer."""
        batch.left = True
        self._lingering.add(batch.task)
        self._end(batch, batch.doubt or error)

    def _end(self, batch: "_Batch", results: Sequence[AnyReply | Exception] | Exception) -> None:
        queue = batch.queue
        told: Sequence[AnyReply | Exception]
        if isinstance(results, Exception):
            told = [_as_failure(results) for _ in batch.entries]
            if asyncio.get_running_loop().time() - batch.begin >= STALL_SECONDS:
                for deliver in queue.emptied():
                    _tell(deliver, Unavailable(_not_taken("cut off from its store")))
        else:
            told = results
        if queue is not self._reads:
            self.trouble = results if isinstance(results, Exception) else None
        # The next batch sets out before this one is answered.
        queue.running.discard(batch.task)
        if queue.size and not queue.starting:
            self._start(queue)
        for (_, deliver), result in zip(batch.entries, told, strict=True):
            _tell(deliver, result)


class _Batch:
    """Commands on their way, and who is to be told."""

    __slots__ = ("begin", "doubt", "entries", "left", "queue", "task")

    def __init__(
        self,
        queue: Queue,
        entries: list[tuple[Command[Any], Deliver]],
        task: "asyncio.Task[None]",
        begin: float,
    ) -> None:
        self.queue = queue
        self.entries = entries
        self.task = task
        self.begin = begin
        self.doubt: Unknown | None = None  # of an attempt that may have done it
        self.left = False  # whoever waited was told to wait no longer


async def _settled(queue: Queue) -> None:
    """Until a turn of the loop brings nobody new: whoever is being read in this moment joins. One alone never waits."""
    seen = 1 if len(queue.running) == 1 else 0
    for _ in range(TURNS_MAX):
        if queue.size <= seen:
            return
        seen = queue.size
        await asyncio.sleep(0)


def _carried_by(engine: Engine) -> Carry:
    return lambda commands, _: engine.execute(commands)


def combined(engine: Engine) -> Combine:
    """A combiner that feeds an engine as it likes to be fed: one large batch at a time, unless it says otherwise."""
    if isinstance(engine, Paced):
        return Combine(engine, lanes=engine.lanes, batch_max=engine.batch_max, apart=engine.apart)
    return Combine(engine)


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
