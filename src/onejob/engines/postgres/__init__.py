"""The PostgreSQL engine: for many processes on many machines, on the clock of the database.

A batch outlives its callers: neither a caller that is cancelled nor a time-out ends what may be committing. Each call
has a CallState that records how far it got, so that a time-out tells the truth: nothing was done, or unknown.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from itertools import groupby
from typing import Any, TypeVar

from msgspec.structs import replace

from onejob.clock import Clock, SystemClock
from onejob.core.batch import to_defect
from onejob.core.command import Command, Footprint
from onejob.core.ledger_settings import FIRST_SETTINGS, SETTINGS_POLICY_ID
from onejob.core.replies import AnyReply
from onejob.engine import (
    CountCommits,
    Durability,
    EngineBase,
    EngineInfo,
    ListReadyJobs,
    OnSettled,
    OnTimeout,
    Page,
    Query,
)
from onejob.engines.batcher import replies_or_partly_done
from onejob.engines.sql import ScanPlan
from onejob.errors import FactsLocked, Unavailable, Unknown

from . import queries
from .announcements import barrier_values
from .connection import Connector, NotificationListener, ServerSettings, durability_warning
from .errors import (
    is_command_error,
    is_connection_loss,
    is_missing_table,
    is_outcome_unknown,
    is_unstorable_text,
    to_postgres_failure,
)
from .fact_cache import FactCache
from .schema import LedgerIdentity, known_schema_version
from .statements import Statements
from .store import CONTENDED_SECONDS, CallState, ExpiringIds, PostgresStore
from .url import PostgresUrl, parse_postgres_url

OPEN_SECONDS = 5.0
RECONNECT_SECONDS = 10.0
# Callers that wait longer are answered with what is known; the call goes on.
ANSWER_SECONDS = 15.0
WRITE_LANES = 2
# New facts are inserted in one statement; a single update in the same batch would put all of it on the slow path.
UPDATE_LANES = 1
BATCH_MAX = 256
PART_LOCK_TIMEOUT_MS = 50
SINGLE_LOCK_TIMEOUT_MS = 200
SPLIT_SECONDS_MAX = 3.0  # afterwards each part is tried once more, and not split any further
LOCKED_FACT_SECONDS = 5.0
_IDLE_POLL_SECONDS = 0.01
_BARRIER_POLL_SECONDS = 0.005

T = TypeVar("T")
Result = AnyReply | Exception
BatchFunction = Callable[[Any, Sequence[Command[Any]], Sequence[Footprint], CallState], Awaitable[list[AnyReply]]]


class PostgresEngine(EngineBase):
    """Two connections for new facts, one for updates, opened as needed, and one for reads."""

    def __init__(self, url: PostgresUrl, clock: Clock) -> None:
        self._url = url
        self._statements = Statements(url.schema)
        self._ledger = LedgerIdentity()
        lanes = WRITE_LANES + UPDATE_LANES + 1
        self._connectors = [Connector(url, clock.monotonic, self._ledger) for _ in range(lanes)]
        contended, self._fact_cache = ExpiringIds(CONTENDED_SECONDS), FactCache(clock.monotonic)
        stores = [
            PostgresStore(connector, self._statements, url.durability, contended, self._fact_cache)
            for connector in self._connectors
        ]
        self._idle_readers: asyncio.LifoQueue[PostgresStore] = asyncio.LifoQueue()
        self._idle_writers: asyncio.LifoQueue[PostgresStore] = asyncio.LifoQueue()
        self._idle_readers.put_nowait(stores[0])
        for store in reversed(stores[1:]):
            self._idle_writers.put_nowait(store)
        self._listener = NotificationListener(url, self._statements.channel)
        self._watchdog = TimeoutWatchdog(self._timeout_error)
        self._locked_facts = LockedFacts()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    @classmethod
    async def open(cls, url: str, *, clock: Clock | None = None) -> "PostgresEngine":
        engine = cls(parse_postgres_url(url), clock or SystemClock())
        until = asyncio.get_running_loop().time() + OPEN_SECONDS
        await engine._connectors[1].ensure_connected(until)
        return engine

    @classmethod
    async def migrate(cls, url: str) -> tuple[int, int]:
        """Migrate the schema, whatever the URL says about it; returns its version before and after.

        New tables get their first settings here. A caller's transaction that makes them would lock them until its end, and
        nobody else could open the ledger.
        """
        parsed = replace(parse_postgres_url(url), migrate=True)
        connector = Connector(parsed, SystemClock().monotonic, LedgerIdentity())
        try:
            connection = await connector.ensure_connected(asyncio.get_running_loop().time() + OPEN_SECONDS)
            if connector.migrations_applied:
                insert = Statements(parsed.schema).insert_settings_sql
                await connection.execute(insert, SETTINGS_POLICY_ID, FIRST_SETTINGS)
            return known_schema_version() - connector.migrations_applied, known_schema_version()
        finally:
            await connector.aclose()

    @property
    def info(self) -> EngineInfo:
        return _engine_info(self._ledger.id, self._connectors[1].server_settings, self._url.durability)

    async def execute(
        self, commands: Sequence[Command[Any]], /, *, on_timeout: OnTimeout | None = None
    ) -> Sequence[AnyReply]:
        """With `on_timeout` in the task of the caller, which nobody cancels; else in a task of its own."""
        work = partial(self._execute, commands)
        if on_timeout is None:
            return await self._run_in_own_task(work)
        return await self._run_with_timeout(work, on_timeout)

    async def scan(self, query: Query[T], /) -> Page[T]:
        self._refuse_closed()
        if isinstance(query, CountCommits):
            return Page([], more=False)  # one row that every commit changes would let only one commit at a time
        return await self._run_in_own_task(partial(self._scan, query))

    async def barrier(self, tenant: str | None, user: str | None = None) -> None:
        """A statement locks its tables before it reads: a writer without a lock will see all that is committed now.

        A batch takes its first lock on the jobs before it reads limits. It announces whom it concerns with the first
        facts that it loads.
        """
        concerned = barrier_values(tenant, user)
        writers = await self._list_writers(None, concerned)
        until = asyncio.get_running_loop().time() + ANSWER_SECONDS
        while writers:
            if asyncio.get_running_loop().time() >= until:
                raise Unavailable(f"others are still writing to {self._url.display_url}; retry")
            await asyncio.sleep(_BARRIER_POLL_SECONDS)
            writers = await self._list_writers(writers, concerned)

    def subscribe(self, on_settled: OnSettled, /) -> None:
        if not self._closed:
            self._listener.subscribe(on_settled)

    async def aclose(self) -> None:
        self._closed = True
        await self._listener.aclose()
        await self._watchdog.wait_until_idle(ANSWER_SECONDS)
        for connector in self._connectors:
            if self._watchdog:
                connector.terminate()
            await connector.aclose()

    async def _run_with_timeout(self, work: Callable[[CallState], Awaitable[T]], on_timeout: OnTimeout) -> T:
        self._refuse_closed()
        call = CallState()
        self._watchdog.begin(call, ANSWER_SECONDS, on_timeout)
        try:
            return await work(call)
        finally:
            self._watchdog.end(call)

    async def _execute(self, commands: Sequence[Command[Any]], call: CallState) -> Sequence[AnyReply]:
        """As one batch; if another transaction holds some of its facts, in parts."""
        if not commands:
            return []
        writes = any(command.writes for command in commands)
        lanes = self._idle_writers if writes else self._idle_readers
        store = await lanes.get() if lanes.empty() else lanes.get_nowait()
        try:
            call.raise_if_timed_out()
            if not writes:
                results = await execute_with_reconnect(store.connector, store.read, commands, call)
            elif self._locked_facts and self._locked_facts.are_named_by_any(commands):
                results = await self._execute_split(store, commands, call)
            else:
                try:
                    results = await execute_with_reconnect(store.connector, store.write, commands, call)
                except FactsLocked as error:
                    if len(commands) == 1:
                        self._locked_facts.remember(find_locked_ids(error, commands[0]))
                        raise
                    results = await self._execute_split(store, commands, call)
            return replies_or_partly_done(results)
        finally:
            lanes.put_nowait(store)

    async def _execute_split(
        self, store: PostgresStore, commands: Sequence[Command[Any]], call: CallState
    ) -> Sequence[Result]:
        split = SplitBatch(store, call, self._locked_facts)
        try:
            results = await split.execute(commands)
        except Unavailable as error:
            if not call.has_committed:
                raise
            raise _failed_midway(error) from error
        if len(commands) > 1 and split.is_out_of_time and all(isinstance(result, FactsLocked) for result in results):
            raise Unavailable(str(results[0]))  # all of the store seems to be locked
        return results

    async def _scan(self, query: Query[Any], call: CallState) -> Page[Any]:
        plan, rows = ScanPlan(), []
        async with self._borrow_reader(call) as store:
            try:
                plan = await self._plan_scan(store, query, call)
                rows = await self._fetch_rows(store, queries.build_statement(self._statements, query, plan), call)
            except Exception as error:
                if not is_unstorable_text(error):
                    raise
                # A text that cannot be stored was never stored, so nothing matches it.
        if not isinstance(query, ListReadyJobs):
            return queries.build_page(query, rows, plan)
        page = queries.build_page(query, [row[:-1] for row in rows], plan)
        self._fact_cache.remember_ready(zip(page.items, [row[-1] for row in rows], strict=False))
        return page

    async def _plan_scan(self, store: PostgresStore, query: Query[Any], call: CallState) -> ScanPlan:
        steps = queries.plan_scan(self._statements, query)
        try:
            statement = next(steps)
            while True:
                statement = steps.send(await self._fetch_rows(store, statement, call))
        except StopIteration as done:
            plan: ScanPlan = done.value
            return plan

    async def _list_writers(self, only: list[str] | None, concerned: list[Any]) -> list[str]:
        """The transactions that may write jobs of those concerned, or those of `only` that still do."""
        return await self._run_in_own_task(partial(self._fetch_writers, only, concerned))

    async def _fetch_writers(self, only: list[str] | None, concerned: list[Any], call: CallState) -> list[str]:
        async with self._borrow_reader(call) as store:
            rows = await self._fetch_rows(store, (self._statements.writers_sql, [only, *concerned]), call)
        return [row[0] for row in rows]

    @asynccontextmanager
    async def _borrow_reader(self, call: CallState) -> AsyncIterator[PostgresStore]:
        """The read connection; errors of the driver become failures of the seam."""
        store = await self._idle_readers.get()
        try:
            call.raise_if_timed_out()
            yield store
        except (Unavailable, Unknown):
            raise
        except Exception as error:
            raise to_postgres_failure(self._url.display_url, error) from error
        finally:
            self._idle_readers.put_nowait(store)

    async def _fetch_rows(self, store: PostgresStore, statement: tuple[str, list[Any]], call: CallState) -> list[Any]:
        return await run_with_reconnect(store.connector, lambda connection: store.fetch(connection, *statement), call)

    async def _run_in_own_task(self, work: Callable[[CallState], Awaitable[T]]) -> T:
        """Run to the end in a task of its own: the caller may be cancelled."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        task = loop.create_task(_run_to_completion(self._run_with_timeout(work, partial(_fail_future, future)), future))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await future

    def _timeout_error(self, call: CallState) -> Exception:
        """A commit that was sent may still succeed; a call that has sent none will send none any more."""
        cause = f"{self._url.display_url} has not answered for {ANSWER_SECONDS:.0f} s"
        if call.committing or call.has_committed:
            return Unknown(f"{cause}; retry it")
        return Unavailable(f"{cause}: nothing was done; retry")

    def _refuse_closed(self) -> None:
        if self._closed:
            raise Unavailable(f"the engine on {self._url.display_url} is closed; open another")


@lru_cache(maxsize=8)
def _engine_info(ledger_id: str, settings: ServerSettings | None, declared: Durability | None) -> EngineInfo:
    return EngineInfo(
        name="postgres",
        ledger_id=ledger_id,
        durability=declared or Durability.DISK,
        durability_warning="" if settings is None else durability_warning(settings, declared),
        write_lanes=WRITE_LANES,
        update_lanes=UPDATE_LANES,
        batch_max=BATCH_MAX,
    )


class TimeoutWatchdog:
    """One timer for all calls in flight. A call that takes too long calls `on_timeout` once, and goes on."""

    def __init__(self, timeout_error: Callable[[CallState], Exception]) -> None:
        self._timeout_error = timeout_error
        self._calls: dict[CallState, tuple[float, OnTimeout]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0

    def begin(self, call: CallState, seconds: float, on_timeout: OnTimeout) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        self._calls[call] = until, on_timeout
        if self._timer is None or until < self._timer_due:
            self._set_timer(loop, until)

    def end(self, call: CallState) -> None:
        del self._calls[call]

    def __bool__(self) -> bool:
        return bool(self._calls)

    async def wait_until_idle(self, seconds: float) -> None:
        """Wait until no call is in flight that has callers, but no longer than this."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not all(call.timed_out for call in self._calls) and loop.time() < until:  # noqa: ASYNC110 - once
            await asyncio.sleep(_IDLE_POLL_SECONDS)
        if self._timer is not None:
            self._timer.cancel()

    def _on_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """The timer was set for a call that has most often ended long ago: see which are late, and set the next."""
        now, self._timer = max(loop.time(), self._timer_due), None  # a timer may run out a little early
        late = [call for call, (until, _) in self._calls.items() if until <= now and not call.timed_out]
        for call in late:
            call.timed_out = True
            self._calls[call][1](self._timeout_error(call))
        next_one = min((until for until, _ in self._calls.values() if until > now), default=None)
        if next_one is not None:
            self._set_timer(loop, next_one)

    def _set_timer(self, loop: asyncio.AbstractEventLoop, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_due = loop.call_at(until, self._on_timer, loop), until


class SplitBatch:
    """Executes a batch in parts, because another transaction holds locks on some of its facts, or a statement took too long.

    The parts keep the order of the batch. A part that meets a lock is halved, until the command that needs it is alone:
    only that one fails, and so do those that name the same fact, without waiting for it once more.
    """

    def __init__(self, store: PostgresStore, call: CallState, locked_before: "LockedFacts") -> None:
        self._store = store
        self._call = call
        self._locked_before = locked_before
        self._locked_now: dict[bytes, str] = {}  # the messages by id
        self._until = asyncio.get_running_loop().time() + SPLIT_SECONDS_MAX

    @property
    def is_out_of_time(self) -> bool:
        return asyncio.get_running_loop().time() >= self._until

    async def execute(self, commands: Sequence[Command[Any]]) -> list[Result]:
        results: list[Result] = []
        for is_suspect, part in groupby(commands, self._is_suspect):
            for commands_of_part in ([command] for command in part) if is_suspect else (list(part),):
                results += await self._execute_part(commands_of_part)
        return results

    def _is_suspect(self, command: Command[Any]) -> bool:
        if not self._locked_now.keys().isdisjoint(_named_ids(command, policies=True)):
            return True
        return self._locked_before.are_named_by(command)

    async def _execute_part(self, commands: Sequence[Command[Any]]) -> Sequence[Result]:
        if len(commands) == 1:
            return [await self._execute_single(commands[0])]
        try:
            return await self._write(commands, PART_LOCK_TIMEOUT_MS)
        except FactsLocked as error:
            if self.is_out_of_time:
                return [FactsLocked(str(error)) for _ in commands]
        middle = len(commands) // 2
        return [*await self.execute(commands[:middle]), *await self.execute(commands[middle:])]

    async def _execute_single(self, command: Command[Any]) -> Result:
        ids = _named_ids(command, policies=True)
        for id in ids & self._locked_now.keys():
            return FactsLocked(self._locked_now[id], (id,))
        if self.is_out_of_time and self._locked_before.are_named_by(command):
            return FactsLocked(
                "other transactions hold many of these facts: nothing was done; see what hangs, then retry"
            )
        try:
            (result,) = await self._write([command], SINGLE_LOCK_TIMEOUT_MS)
        except FactsLocked as error:
            locked = find_locked_ids(error, command)
            self._locked_now.update(dict.fromkeys(locked, str(error)))
            self._locked_before.remember(locked)
            return error
        self._locked_before.forget(ids)
        return result

    async def _write(self, commands: Sequence[Command[Any]], lock_timeout_ms: int) -> Sequence[Result]:
        self._call.raise_if_timed_out()
        write = partial(self._store.write_locked, lock_timeout_ms=lock_timeout_ms)
        return await execute_with_reconnect(self._store.connector, write, commands, self._call)


class LockedFacts(ExpiringIds):
    """The ids of facts that another transaction held a few seconds ago. Commands that name one are executed alone."""

    def __init__(self) -> None:
        super().__init__(LOCKED_FACT_SECONDS)

    def are_named_by_any(self, commands: Sequence[Command[Any]]) -> bool:
        self.drop_old()
        return any(map(self.are_named_by, commands))

    def are_named_by(self, command: Command[Any]) -> bool:
        """Policies do not count: one statement that inserts needs no lock on them, and executing it alone would."""
        return self.has_any(_named_ids(command))


def _named_ids(command: Command[Any], *, policies: bool = False) -> set[bytes]:
    try:
        f = command.footprint
    except Exception:  # noqa: BLE001 - reported when the command is executed
        return set()
    ids = {f.record, *f.jobs, f.stream, f.usage}
    if policies:
        ids |= {f.policy, f.precondition.policy_id if f.precondition is not None else b""}
    return ids - {b""}


def find_locked_ids(error: FactsLocked, command: Command[Any]) -> Sequence[bytes]:
    """The id that is locked, as far as it is certain. An insert of a single command waits for another one of its key."""
    if error.ids:
        return error.ids if len(error.ids) == 1 else ()
    record = command.footprint.record
    return (record,) if record else ()


async def execute_with_reconnect(
    connector: Connector, execute: BatchFunction, commands: Sequence[Command[Any]], call: CallState
) -> Sequence[Result]:
    """Execute a batch; if a command breaks it, execute each alone, so that only that one fails."""
    try:
        footprints = [command.footprint for command in commands]
        return await run_with_reconnect(
            connector, lambda connection: execute(connection, commands, footprints, call), call
        )
    except (Unavailable, Unknown):
        raise
    except Exception as error:
        if not is_command_error(error):
            raise to_postgres_failure(connector.display_url, error) from error
        if len(commands) == 1:
            return [to_defect(commands[0], error)]
    return await _execute_one_by_one(connector, execute, commands, call)


async def run_with_reconnect(connector: Connector, work: Callable[[Any], Awaitable[T]], call: CallState) -> T:
    """Run it; after a connection loss run it again on a new connection, unless it may have committed."""
    loop = asyncio.get_running_loop()
    until = loop.time() + RECONNECT_SECONDS
    while True:
        connection = connector.connection or await connector.ensure_connected(until)
        call.committing = False
        try:
            return await work(connection)
        except (Unavailable, Unknown):
            raise
        except Exception as error:
            if call.committing and is_outcome_unknown(error):
                connector.terminate()
                raise Unknown(f"{connector.display_url} was lost during a commit ({error}); retry it") from error
            if is_missing_table(error):
                connector.doubt_ledger()
            if not is_connection_loss(error):
                raise
            connector.terminate()
            if loop.time() >= until:
                raise to_postgres_failure(connector.display_url, error) from error


async def _execute_one_by_one(
    connector: Connector, execute: BatchFunction, commands: Sequence[Command[Any]], call: CallState
) -> list[Result]:
    results: list[Result] = []
    for command in commands:
        try:
            call.raise_if_timed_out()
            results += await execute_with_reconnect(connector, execute, [command], call)
        except FactsLocked as error:
            results.append(error)
        except Unavailable as error:
            if not call.has_committed:
                raise
            raise _failed_midway(error) from error
    return results


def _failed_midway(error: Unavailable) -> Unknown:
    return Unknown(f"the store failed in the middle of a batch ({error}); retry it")


async def _run_to_completion(work: Coroutine[Any, Any, T], future: "asyncio.Future[T]") -> None:
    """Await it to its end, whether or not the caller is still there."""
    try:
        result = await work
    except Exception as error:  # noqa: BLE001 - the caller gets it
        _fail_future(future, error)
    else:
        if not future.done():
            future.set_result(result)


def _fail_future(future: "asyncio.Future[Any]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
