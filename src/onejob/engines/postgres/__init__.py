"""The engine for many processes on many machines: one PostgreSQL database, and its clock for all of them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from onejob.clock import Clock, SystemClock
from onejob.core.receipt import AnyReply
from onejob.core.step import Command
from onejob.engine import Durability, Page, Query, Unavailable, Unknown

from . import queries
from .address import Address, address_of
from .answering import answered, on_link
from .attempt import Attempt
from .checkup import caveat
from .link import Link
from .notices import Notices, Wake
from .patience import GiveUp, Patience
from .schema import known
from .statements import Statements
from .store import Store
from .trouble import is_unwritable, trouble_of

T = TypeVar("T")

OPEN_SECONDS = 5.0
# Whoever waits longer is told the truth as far as it is known; what was sent goes on.
ANSWER_SECONDS = 15.0
LANES = 2
# What only makes something new is inserted in one statement; a single command beside it that changes something
# would cost the whole batch its way.
APART = 1
_QUIET_PAUSE = 0.005


class PostgresEngine:
    """Two connections for what is new, one for what changes, opened as they are needed, and one for reading.

    A batch goes on without whoever waits for it: no caller that leaves, and no time-out, ends what may be committing.
    """

    lanes = LANES
    apart = APART
    batch_max = 256

    def __init__(self, address: Address, clock: Clock) -> None:
        self._address = address
        self._words = Statements(address.schema)
        self._links = [Link(address, clock.monotonic) for _ in range(LANES + APART + 1)]
        stores = [Store(link, self._words, address.durability) for link in self._links]
        self._reader: asyncio.LifoQueue[Store] = asyncio.LifoQueue()
        self._writers: asyncio.LifoQueue[Store] = asyncio.LifoQueue()
        self._reader.put_nowait(stores[0])
        for store in reversed(stores[1:]):
            self._writers.put_nowait(store)
        self._notices = Notices(address, self._words.channel)
        self._patience = Patience(self._given_up)
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    @classmethod
    async def open(cls, url: str, *, clock: Clock | None = None) -> "PostgresEngine":
        engine = cls(address_of(url), clock or SystemClock())
        until = asyncio.get_running_loop().time() + OPEN_SECONDS
        await engine._links[1].ready(until)
        return engine

    @classmethod
    async def migrate(cls, url: str) -> tuple[int, int]:
        """Bring the tables forward, whatever the URL says about it: the schema before and after."""
        link = Link(replace(address_of(url), migrate=True), SystemClock().monotonic)
        try:
            await link.ready(asyncio.get_running_loop().time() + OPEN_SECONDS)
            return known() - link.applied, known()
        finally:
            await link.aclose()

    @property
    def durability(self) -> Durability:
        return self._address.durability or Durability.DISK

    @property
    def caveat(self) -> str:
        """One line: what a failover may lose. Empty when that is nothing."""
        seen = self._links[1].seen
        return "" if seen is None else caveat(seen, self._address.durability)

    async def execute(self, commands: Sequence[Command[Any]], /) -> Sequence[AnyReply]:
        return await self._waited_for(lambda give_up: self.carry(commands, give_up))

    def carry(
        self, commands: Sequence[Command[Any]], give_up: GiveUp, /
    ) -> Coroutine[Any, Any, Sequence[AnyReply]]:
        """Execute in the task of whoever calls, which nobody cancels; if it takes too long, say so and go on."""
        return self._timed(partial(self._execute, commands), give_up)

    async def scan(self, query: Query[T], /) -> Page[T]:
        return await self._waited_for(lambda give_up: self._timed(partial(self._scan, query), give_up))

    async def quiet(self) -> None:
        """A statement locks its tables before it looks: who has no lock yet will see all that is committed by now."""
        writers = await self._writing(None)
        until = asyncio.get_running_loop().time() + ANSWER_SECONDS
        while writers:
            if asyncio.get_running_loop().time() >= until:
                raise Unavailable(f"others are still writing to {self._address.shown}; repeat")
            await asyncio.sleep(_QUIET_PAUSE)
            writers = await self._writing(writers)

    def listen(self, wake: Wake) -> None:
        """Call with the identity of every record that is settled, here or in another process, as far as it is heard."""
        if not self._closed:
            self._notices.listen(wake)

    async def aclose(self) -> None:
        self._closed = True
        await self._notices.aclose()
        await self._patience.over(ANSWER_SECONDS)
        for link in self._links:
            if self._patience:
                link.drop()
            await link.aclose()

    async def _timed(self, work: Callable[[Attempt], Awaitable[T]], give_up: GiveUp) -> T:
        self._refuse_closed()
        attempt = Attempt()
        self._patience.begin(attempt, ANSWER_SECONDS, give_up)
        try:
            return await work(attempt)
        finally:
            self._patience.end(attempt)

    async def _execute(self, commands: Sequence[Command[Any]], attempt: Attempt) -> list[AnyReply]:
        if not commands:
            return []
        writes = any(command.writes for command in commands)
        lanes = self._writers if writes else self._reader
        store = await lanes.get() if lanes.empty() else lanes.get_nowait()
        try:
            attempt.begin()
            return await answered(store.link, store.write if writes else store.read, commands, attempt)
        finally:
            lanes.put_nowait(store)

    async def _scan(self, query: Query[Any], attempt: Attempt) -> Page[Any]:
        least, rows = b"", []
        async with self._reading(attempt) as store:
            try:
                if (bound := queries.bound(self._words, query)) is not None:
                    found = await self._fetched(store, bound, attempt)
                    least = found[0][0] if found else b""
                rows = await self._fetched(store, queries.asked(self._words, query, least), attempt)
            except Exception as error:
                if not is_unwritable(error):
                    raise
                # A text that cannot be written was never written.
        return queries.page(query, rows, least)

    async def _writing(self, among: list[str] | None) -> list[str]:
        """The transactions that write jobs; where some are named, those among them."""
        return await self._waited_for(lambda give_up: self._timed(partial(self._writers_of, among), give_up))

    async def _writers_of(self, among: list[str] | None, attempt: Attempt) -> list[str]:
        async with self._reading(attempt) as store:
            rows = await self._fetched(store, (self._words.writers, [among]), attempt)
        return [row[0] for row in rows]

    @asynccontextmanager
    async def _reading(self, attempt: Attempt) -> AsyncIterator[Store]:
        """The reading connection, for what somebody still waits for; what goes wrong is told as ours."""
        store = await self._reader.get()
        try:
            attempt.begin()
            yield store
        except (Unavailable, Unknown):
            raise
        except Exception as error:
            raise trouble_of(self._address.shown, error) from error
        finally:
            self._reader.put_nowait(store)

    async def _fetched(self, store: Store, asked: tuple[str, list[Any]], attempt: Attempt) -> list[Any]:
        return await on_link(store.link, lambda connection: store.fetch(connection, *asked), attempt)

    async def _waited_for(self, work: Callable[[GiveUp], Coroutine[Any, Any, T]]) -> T:
        """Done in a task of its own: whoever waits may leave."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[T] = loop.create_future()
        task = loop.create_task(_done(work(partial(_fail, told)), told))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await told

    def _given_up(self, attempt: Attempt) -> Exception:
        """The truth for whoever waits. What was sent to commit goes on, what was not will not be."""
        late = f"{self._address.shown} has not answered for {ANSWER_SECONDS:.0f} s"
        if attempt.committing or attempt.done:
            return Unknown(f"{late}; repeat it")
        return Unavailable(f"{late}: nothing was done; repeat")

    def _refuse_closed(self) -> None:
        if self._closed:
            raise Unavailable(f"the engine on {self._address.shown} is closed; open another")


async def _done(work: Coroutine[Any, Any, T], told: "asyncio.Future[T]") -> None:
    """Do it to its end, whether or not somebody is still there to be told."""
    try:
        result = await work
    except Exception as error:  # noqa: BLE001 - it is told
        _fail(told, error)
    else:
        if not told.done():
            told.set_result(result)


def _fail(told: "asyncio.Future[Any]", error: Exception) -> None:
    if not told.done():
        told.set_exception(error)
