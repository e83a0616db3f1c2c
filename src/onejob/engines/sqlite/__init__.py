"""The embedded engine: one SQLite file, synced before every answer, shared by the processes of one machine.

`SqliteEngine` is the engine; `SqliteStore` executes a batch on one connection (BEGIN IMMEDIATE, load, decide, store,
COMMIT); `WorkerThread` runs blocking calls off the event loop; `FairFileLock` lets processes write in turn. A batch of
new facts takes one statement (`insert_fast.py`).
"""

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import apsw
from msgspec.structs import replace

from onejob.backoff import Backoff
from onejob.clock import Clock, SystemClock, make_engine_clock
from onejob.core.batch import (
    Changes,
    FootprintViolation,
    LoadRequest,
    WorkingSet,
    decide_batch,
    execute_isolating_failures,
    load_facts_sync,
    single_fact_request,
)
from onejob.core.command import Command
from onejob.core.facts import Kind, NewerFormat
from onejob.core.replies import AnyReply
from onejob.engine import Durability, EngineBase, EngineInfo, OnTimeout, Page, Query
from onejob.engines.codec import TABLES, RowChanges, columns, fact_from_row, to_row_changes
from onejob.errors import Outdated, StoreRefused, Unavailable, Unknown

from . import insert_fast, queries, schema

T = TypeVar("T")

_LOCK_POLL_SECONDS_FIRST = 0.0002
_LOCK_POLL_SECONDS_MAX = 0.002
_QUEUE_SHARE_MAX = 0.2  # of the timeout: how long a queue that does not move is waited for
_STUCK_QUEUE_SECONDS = 0.02  # the same after that: ten looks of a process that is there
_BUSY_SECONDS_MIN = 0.1
_SELECT = {kind: f"SELECT {', '.join(columns(kind))} FROM {TABLES[kind]} WHERE id IN " for kind in Kind}
_SELECT_ONE = {kind: sql + "(?)" for kind, sql in _SELECT.items()}
_INSERT = {kind: f"INSERT INTO {TABLES[kind]} ({', '.join(columns(kind))}) VALUES " for kind in Kind}
# An id and a tenant never change (core/batch.py, rule 3). Named here, they would make SQLite delete and insert their entries in
# each index: one more random page for every settled key.
_UPDATED = {kind: [name for name in columns(kind) if name not in ("id", "tenant")] for kind in Kind}
_UPDATE = {
    kind: f"UPDATE {TABLES[kind]} SET {', '.join(f'{name} = ?' for name in names)} WHERE id = ? AND version = ?"
    for kind, names in _UPDATED.items()
}
assert all(columns(kind)[:2] == ("id", "tenant") for kind in Kind), "the columns that an update leaves out"
_DELETE = {kind: f"DELETE FROM {TABLES[kind]} WHERE id = ? AND version = ?" for kind in Kind}
_INSERT_ATTACHMENT = 'INSERT INTO attachment (job_id, kind, "index", data) VALUES '
_DELETE_ATTACHMENT = 'DELETE FROM attachment WHERE job_id = ? AND kind = ? AND "index" = ?'
_DELETE_ATTACHMENTS_OF_JOB = "DELETE FROM attachment WHERE job_id = ?"
_DELETE_MEMOS_OF_JOB = "DELETE FROM memo WHERE job_id = ?"
_NEXT_GENERATION = "UPDATE ledger SET generation = generation + 1 WHERE id = ? AND generation >= ? RETURNING generation"
_IDS_MAX = 4096
_ROWS_MAX = 64
_ROWS_STEP = 8
_COMMAND_ERRORS = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError)
_READ_NOW_MAX = 256
# While the writer has a batch of new facts, without the GIL, the event loop decides another one. Two batches need two syncs, so
# that pays only for large batches, and only while the writer computes rather than waits for the disk or a processor.
WRITE_LANES = 2
# What changes facts is decided by the writer, and would cost a batch of new facts its one statement.
UPDATE_LANES = 1
# After a refusal other writers are busy with the same keys or the same file: this many batches take the plain path.
FAST_PATH_PAUSE_BATCHES = 8


class SqliteEngine(EngineBase):
    """Writes go through one thread and one connection, scans through another thread and connection.

    Point reads wait for no lock and no sync, so they run on the event loop (`read_now`). Only when that fails, or a
    batch of reads is large, the reader thread takes over.
    """

    def __init__(self, path: str, clock: Clock, synchronous: str) -> None:
        self._name = os.path.abspath(path)  # the working directory may change
        self._path = schema.resolve_path(path)
        self._clock = clock
        self._synchronous = synchronous
        self._writer = WorkerThread("onejob-writer")
        self._reader = WorkerThread("onejob-reader")
        self._write_lock: FairFileLock | None = None
        self._write_store: SqliteStore | None = None
        self._read_store: SqliteStore | None = None
        self._read_now_store: SqliteStore | None = None  # opened by the reader, used on the loop
        self._write_file: FileIdentity | None = None  # kept after a failure, to compare it with what is there later
        self._read_file: FileIdentity | None = None
        self._ledger = schema.NO_LEDGER  # as this process has last seen it
        self.info = _describe(self._ledger)
        self._now: Callable[[], int] = clock.wall_ms  # until the file is open
        self._fast_path_pause = 0
        self._lanes = WriteLanePolicy()
        self._closed = False

    @classmethod
    async def open(cls, path: str, *, clock: Clock | None = None, synchronous: str = "FULL") -> "SqliteEngine":
        engine = cls(path, clock or SystemClock(), synchronous)
        try:
            await engine._writer.call(engine._translate_errors, engine._open_writer)
        except BaseException:
            await engine.aclose()
            raise
        return engine

    async def execute(
        self, commands: Sequence[Command[Any]], /, *, on_timeout: OnTimeout | None = None
    ) -> Sequence[AnyReply]:
        if self._closed:
            raise Unavailable(f"the engine on {self._path} is closed; open another")
        if any(command.writes for command in commands):
            prepared = self._prepare_insert(commands)
            replies: list[AnyReply] = await self._writer.call(self._translate_errors, self._write, commands, prepared)
            if self._ledger.generation != self.info.generation:
                self.info = replace(self.info, generation=self._ledger.generation)
            return replies
        found = self.read_now(commands)
        if found is not None:
            return found
        return await self._reader.call(self._translate_errors, self._read, commands)

    async def scan(self, query: Query[T], /) -> Page[T]:
        if self._closed:
            raise Unavailable(f"the engine on {self._path} is closed; open another")
        return await self._reader.call(self._translate_errors, self._scan, query)

    async def barrier(self, tenant: str | None, user: str | None = None) -> None:
        """Wait for the writer thread and for the write lock: what had begun, here or elsewhere, then has ended."""
        if self._closed:
            raise Unavailable(f"the engine on {self._path} is closed; open another")
        await self._writer.call(self._translate_errors, self._wait_for_writers)

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._reader.call(self._close_reader)
        self._close_read_now()  # after the last read that might open it
        await self._writer.call(self._close_writer)
        await self._reader.aclose()
        await self._writer.aclose()

    def _prepare_insert(self, commands: Sequence[Command[Any]]) -> insert_fast.PreparedInsert | None:
        if not all(command.creates for command in commands):
            return None
        prepared = None
        if len(commands) > insert_fast.ROWS_MAX or self._fast_path_pause or self._write_store is None:
            self._fast_path_pause = max(0, self._fast_path_pause - 1)
        else:
            prepared = insert_fast.prepare_insert(commands, self._now())
        lanes = self._lanes.choose(len(commands) if prepared is not None else 0)
        if lanes != self.info.write_lanes:
            self.info = replace(self.info, write_lanes=lanes)
        return prepared

    def _write(
        self, commands: Sequence[Command[Any]], prepared: insert_fast.PreparedInsert | None = None
    ) -> list[AnyReply]:
        store = self._write_store or self._open_writer()
        assert self._write_lock is not None
        assert self._write_file is not None
        with self._write_lock.acquire() as seconds_left:
            self._write_file.check()
            store.db.set_busy_timeout(int(seconds_left * 1000))
            try:
                if prepared is not None:
                    # A small batch is alone in any case: what the writer waits for decides nothing.
                    is_small = len(commands) < self._lanes.SIZE_LOW
                    if store.insert_fast(prepared) if is_small else self._insert_measured(store, prepared):
                        return prepared.replies
                    self._fast_path_pause = FAST_PATH_PAUSE_BATCHES
                return store.write(commands)
            finally:
                if store.ledger != self._ledger:
                    self._ledger = store.ledger
                    self._write_lock.write_note(self._ledger)

    def _insert_measured(self, store: "SqliteStore", prepared: insert_fast.PreparedInsert) -> bool:
        with self._lanes.measure():
            return store.insert_fast(prepared)

    def _wait_for_writers(self) -> None:
        if self._write_store is None:
            self._open_writer()
        assert self._write_lock is not None
        with self._write_lock.acquire():
            pass

    def read_now(self, commands: Sequence[Command[Any]], /) -> list[AnyReply] | None:
        """A point read takes a few microseconds on the loop, less than the way to a thread and back."""
        store = self._read_now_store
        if store is None or self._closed or len(commands) > _READ_NOW_MAX:
            return None
        assert self._read_file is not None
        try:
            self._read_file.check()
            return store.read(commands)
        except (apsw.Error, OSError):
            self._close_read_now()  # the reader thread tries again and reports the error
            return None

    def _read(self, commands: Sequence[Command[Any]]) -> list[AnyReply]:
        replies = self._checked_reader().read(commands)
        if self._read_now_store is None:
            db = schema.connect(self._path)
            db.set_busy_timeout(0)
            schema.read_ledger(db)  # attached to the journal now, it does not recover it later
            self._read_now_store = SqliteStore(db, self._now, self._ledger)
        return replies

    def _scan(self, query: Query[T]) -> Page[T]:
        store = self._checked_reader()
        return queries.run_query(store.db, query, store.now())

    def _open_writer(self) -> "SqliteStore":
        # A file that was there and is gone took acknowledged answers with it: only an operator may make a new one.
        schema.refuse_lost_target(self._name)
        schema.prepare_file(self._path, create=self._write_file is None)
        if self._write_file is not None and self._write_file.is_truncated():
            raise StoreRefused(f"{self._path} was truncated: answers in it are lost; restore it from a backup")
        file = FileIdentity(self._path, self._name)  # before it is opened: a restore may replace it meanwhile
        db = schema.connect(self._path, synchronous=self._synchronous, cache_kib=schema.WRITER_CACHE_KIB)
        try:
            if self._write_lock is None:
                self._write_lock = FairFileLock(self._path, timeout=schema.LOCK_TIMEOUT_SECONDS)
            with self._write_lock.acquire() as seconds_left:
                db.set_busy_timeout(int(seconds_left * 1000))
                file.check(may_be_shorter=True)  # SQLite undoes what a process that died had begun
                schema.refuse_unusable(db, self._path, self._ledger)  # before anything in it is changed
                schema.migrate(db, self._path)
                schema.rewrite_journal(db, self._path)
                schema.check_not_truncated(db, self._path)
                ledger = self._load_ledger(db, self._write_lock)
                offset = schema.load_clock_offset_ms(db, self._clock)
            insert_fast.set_up(db)
        except BaseException:
            _close_unchanged(db)
            raise
        self._write_file = file
        self._now = make_engine_clock(self._clock, offset)
        self._ledger = ledger
        self.info = _describe(ledger)
        self._write_store = SqliteStore(db, self._now, ledger, opened_at=self._now())
        return self._write_store

    def _load_ledger(self, db: apsw.Connection, lock: "FairFileLock") -> schema.LedgerState:
        """The ledger in the file, which must be the one that this process has served so far."""
        mark, ledger = schema.read_mark(self._path), schema.read_ledger(db)
        schema.refuse_wrong_ledger(self._path, mark, ledger, self._ledger)
        if mark != ledger:
            lock.write_note(ledger)
        return ledger

    def _checked_reader(self) -> "SqliteStore":
        if self._read_store is None:
            known = self._ledger  # before the file is read: the writer goes on
            file = FileIdentity(self._path, self._name)
            db = schema.connect(self._path)
            try:
                schema.refuse_other_ledger(self._path, schema.read_ledger(db), known)
                if self._write_store is None:  # after a failure, so that this connection may have recovered the journal
                    self._rewrite_journal(db)
                file.check()
                self._read_file = file
            except BaseException:
                _close_unchanged(db)
                raise
            self._read_store = SqliteStore(db, self._now, known)
        assert self._read_file is not None
        self._read_file.check()
        return self._read_store

    def _rewrite_journal(self, db: apsw.Connection) -> None:
        lock = FairFileLock(self._path, timeout=schema.LOCK_TIMEOUT_SECONDS)
        try:
            with lock.acquire():
                schema.rewrite_journal(db, self._path)
        finally:
            lock.close()

    def _close_writer(self) -> None:
        if self._write_store is not None:
            self._close_store(self._write_store, self._write_file)
            self._write_store = None
        if self._write_lock is not None:
            self._write_lock.close()
            self._write_lock = None

    def _close_reader(self) -> None:
        if self._read_store is not None:
            self._close_store(self._read_store, self._read_file)
            self._read_store = None

    def _close_read_now(self) -> None:
        if self._read_now_store is not None:
            self._close_store(self._read_now_store, self._read_file)
            self._read_now_store = None

    def _close_store(self, store: "SqliteStore", file: "FileIdentity | None") -> None:
        if file is not None and file.is_truncated():
            _close_unchanged(store.db)
        else:
            store.db.close()

    def _translate_errors(self, work: Callable[..., T], *args: Any) -> T:
        """Turn the errors of the store into the two failures of the seam, and reconnect after one."""
        try:
            return work(*args)
        except (Unknown, StoreRefused):
            self._close_connection_of(work)
            raise
        except NewerFormat as error:
            raise Outdated(str(error)) from error
        except (apsw.Error, OSError) as error:
            engine_error = schema.to_sqlite_failure(self._path, error)
            self._close_connection_of(work)
            raise engine_error from error

    def _close_connection_of(self, work: Callable[..., Any]) -> None:
        if work in (self._write, self._wait_for_writers):
            self._close_writer()
        elif work != self._open_writer:
            self._close_reader()


def _close_unchanged(db: apsw.Connection) -> None:
    """Close a connection whose file is not what it was, or may not be.

    Otherwise the last connection would write the pages of the journal into it, between missing ones or into another file, and
    remove the journal.
    """
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    db.close()


def _describe(ledger: schema.LedgerState) -> EngineInfo:
    return EngineInfo(
        name="sqlite",
        ledger_id=ledger.id,
        generation=ledger.generation,
        durability=Durability.DISK,
        update_lanes=UPDATE_LANES,
        synchronous_reads=True,
    )


class WriteLanePolicy:
    """How many batches of new facts may be in flight: two, where it pays (see WRITE_LANES), else one."""

    SIZE_MIN, SIZE_LOW = 32, 12  # two lanes from the first on, and below the second only one
    WAITING_MAX, WAITING_HIGH = 0.4, 0.6  # the same for the share of its time in which the writer waits
    _MEMORY = 8  # batches, roughly, over which that share is averaged

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._lanes = 1
        self.waiting = 1.0

    def choose(self, batch_size: int) -> int:
        if batch_size >= self.SIZE_MIN and self.waiting <= self.WAITING_MAX:
            self._lanes = WRITE_LANES
        elif batch_size < self.SIZE_LOW or self.waiting >= self.WAITING_HIGH:
            self._lanes = 1
        return self._lanes

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Called by the writer."""
        begin, cpu = self._clock.monotonic(), self._clock.thread_cpu()
        yield
        took = max(self._clock.monotonic() - begin, 1e-6)
        waiting = min(max(1 - (self._clock.thread_cpu() - cpu) / took, 0.0), 1.0)
        self.waiting += (waiting - self.waiting) / self._MEMORY


class FileIdentity:
    """The file behind a connection: SQLite itself would continue with one that was unlinked, replaced or emptied.

    It is looked at by the name that was given, so that a symbolic link that names another file by now is noticed.
    """

    def __init__(self, path: str, name: str) -> None:
        status = os.stat(path)
        self._name = name
        self._id = status.st_dev, status.st_ino
        self._bytes = status.st_size

    def check(self, *, may_be_shorter: bool = False) -> None:
        status = os.stat(self._name)
        if (status.st_dev, status.st_ino) != self._id:
            raise FileNotFoundError("it was moved, replaced or removed")
        if status.st_size < self._bytes and not may_be_shorter:
            raise FileNotFoundError("it was emptied or truncated")
        self._bytes = status.st_size

    def is_truncated(self) -> bool:
        """True if the same file is there, but shorter than it was: a store never shrinks."""
        try:
            self.check()
        except FileNotFoundError:
            with suppress(OSError):
                status = os.stat(self._name)
                return (status.st_dev, status.st_ino) == self._id
        return False


class SqliteStore:
    """Used from one thread only."""

    def __init__(
        self, db: apsw.Connection, now: Callable[[], int], ledger: schema.LedgerState, *, opened_at: int = 0
    ) -> None:
        self.db = db
        self.now = now
        self.ledger = ledger  # as of the last commit here
        self._date_guard = insert_fast.TimestampGuard(opened_at)

    def insert_fast(self, prepared: insert_fast.PreparedInsert) -> bool:
        """Store a batch that was decided before; False if it must be decided again, by `write`."""
        if not self._date_guard.allows(prepared.decided_at, self.now()):
            return False
        ledger = self.ledger
        if not insert_fast.insert(self.db, prepared, ledger.id, ledger.generation):
            return False
        self.ledger = schema.LedgerState(ledger.id, ledger.generation + 1)
        return True

    def write(self, commands: Sequence[Command[Any]]) -> list[AnyReply]:
        return execute_isolating_failures(self._write_batch, commands, self.raise_store_failure)

    def read(self, commands: Sequence[Command[Any]]) -> list[AnyReply]:
        """Decide commands that change nothing on committed rows, which are synced before they are visible."""
        return execute_isolating_failures(self._read_batch, commands, self.raise_store_failure)

    def raise_store_failure(self, error: Exception, executed: int) -> None:
        """Raise if the store failed; the outcome is unknown if a part of the batch was executed before."""
        failure = error
        if isinstance(error, apsw.Error):
            try:
                with suppress(apsw.Error):  # report the first error
                    schema.refuse_newer(self.db)  # a newer schema, not this command, may be the cause
            except Unavailable as refused:
                failure = refused
        if isinstance(failure, _COMMAND_ERRORS) or not isinstance(failure, (apsw.Error, Unavailable, Unknown)):
            return
        if executed and not isinstance(failure, Unknown):
            raise Unknown(f"the store failed in the middle of a batch ({failure}); retry it") from failure
        raise failure

    def _read_batch(self, commands: Sequence[Command[Any]]) -> list[AnyReply]:
        footprints = [command.footprint for command in commands]
        request = single_fact_request(footprints[0]) if len(footprints) == 1 else None
        if request is not None:
            # One statement is a snapshot. Without BEGIN and ROLLBACK such a read takes half the time, and every
            # request with an API key and every duplicate makes one.
            working = WorkingSet()
            working.add_loaded(request, self._fetch(request))
            return decide_batch(commands, footprints, working, self.now())
        self.db.execute("BEGIN")
        try:
            working = load_facts_sync(footprints, self._fetch)
            replies = decide_batch(commands, footprints, working, self.now())
            assert not working.changes()
            return replies
        finally:
            self.rollback()

    def _write_batch(self, commands: Sequence[Command[Any]]) -> list[AnyReply]:
        self.begin()
        try:
            replies, changes = self.decide(commands)
            if changes:
                self.save(to_row_changes(changes))
                ledger = self.advance_generation()
                self._commit()
                generations = ledger.generation - self.ledger.generation
                self._date_guard.record_commit(self.now(), generations=generations, has_deletes=bool(changes.deletes))
                self.ledger = ledger
            return replies
        finally:
            self.rollback()

    def begin(self) -> None:
        self.db.execute("BEGIN IMMEDIATE")

    def decide(self, commands: Sequence[Command[Any]]) -> tuple[list[AnyReply], Changes]:
        """Load the facts and decide, inside the transaction that is open."""
        footprints = [command.footprint for command in commands]
        working = load_facts_sync(footprints, self._fetch)
        replies = decide_batch(commands, footprints, working, self.now())
        return replies, working.changes()

    def advance_generation(self) -> schema.LedgerState:
        rows: list[Any] = self.db.execute(_NEXT_GENERATION, (self.ledger.id, self.ledger.generation)).fetchall()
        if not rows:
            schema.refuse_other_ledger(self.db.filename, schema.read_ledger(self.db), self.ledger)
        return schema.LedgerState(self.ledger.id, rows[0][0])

    def _commit(self) -> None:
        try:
            self.db.execute("COMMIT")
        except apsw.IOError as error:
            # The last frame may have reached the disk although its sync failed.
            raise Unknown(f"the disk failed during a commit ({error}); retry with the same key") from error

    def rollback(self) -> None:
        if self.db.in_transaction:
            with suppress(apsw.Error):  # report the first error; the engine closes the connection after it
                self.db.execute("ROLLBACK")

    def _fetch(self, request: LoadRequest) -> list[Any]:
        return [
            fact_from_row(request.kind, row)
            for start in range(0, len(request.ids), _IDS_MAX)
            for row in self.select(request.kind, request.ids[start : start + _IDS_MAX])
        ]

    def select(self, kind: Kind, ids: list[bytes]) -> list[Any]:
        if len(ids) == 1:
            return self.db.execute(_SELECT_ONE[kind], ids).fetchall()
        # The last id is repeated up to a power of two: fewer lengths, fewer prepared statements.
        padded = ids + ids[-1:] * ((1 << (len(ids) - 1).bit_length()) - len(ids))
        marks = f"({','.join('?' * len(padded))})"
        return self.db.execute(_SELECT[kind] + marks, padded).fetchall()

    def save(self, changes: RowChanges) -> None:
        """Store the changes inside the transaction that is open; raise unless every fact has the expected version."""
        db = self.db
        for kind, deletes in changes.deletes.items():
            self._change_exactly(_DELETE[kind], deletes)
            if kind is Kind.JOB:
                db.executemany(_DELETE_ATTACHMENTS_OF_JOB, [(id,) for id, _ in deletes])
                db.executemany(_DELETE_MEMOS_OF_JOB, [(id,) for id, _ in deletes])
        for kind, inserts in changes.inserts.items():
            self._insert(_INSERT[kind], inserts)
        for kind, updates in changes.updates.items():
            self._change_exactly(_UPDATE[kind], [(*row[2:], row[0], version) for row, version in updates])
        if changes.attachments:
            self._insert(_INSERT_ATTACHMENT, changes.attachments)
        if changes.trims:
            db.executemany(_DELETE_ATTACHMENT, changes.trims)

    def _insert(self, prefix: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert up to 64 rows per statement, because every statement releases the GIL and must win it back.

        Compared with one row per statement it serves 1.05 to 1.2 times the new keys over HTTP (docs/decisions/0014).
        """
        start = 0
        while start < len(rows):
            # Multiples of 8 and one remainder: few lengths, so few prepared statements.
            rest = min(_ROWS_MAX, len(rows) - start)
            size = rest - rest % _ROWS_STEP or rest
            part = rows[start : start + size]
            self.db.execute(_with_placeholders(prefix, len(part[0]), size), list(chain.from_iterable(part)))
            start += size

    def _change_exactly(self, sql: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Raise unless every row has the expected version."""
        before = self.db.total_changes()
        self.db.executemany(sql, rows)
        if self.db.total_changes() - before != len(rows):
            raise FootprintViolation("a fact was changed by another transaction in the middle of this one")


@cache
def _with_placeholders(prefix: str, columns: int, rows: int) -> str:
    row = f"({','.join('?' * columns)})"
    return prefix + ",".join([row] * rows)


class WorkerThread:
    """Runs blocking calls off the event loop, in order. Cancelling a caller does not stop its call."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                result = work(*args)
            except BaseException as error:  # noqa: BLE001 - the caller gets it
                _call_in_loop(loop, _set_exception, future, error)
            else:
                _call_in_loop(loop, _set_result, future, result)

        self._calls.put(run)
        return future

    async def aclose(self) -> None:
        # Not with another thread, which cannot be started any more when the interpreter shuts down.
        await self.call(lambda: None)
        self._calls.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


def _call_in_loop(loop: asyncio.AbstractEventLoop, work: Callable[..., None], *args: Any) -> None:
    # If the loop was closed meanwhile, no caller is left.
    if not loop.is_closed():
        loop.call_soon_threadsafe(work, *args)


def _set_result(future: "asyncio.Future[T]", result: T) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: "asyncio.Future[T]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


class FairFileLock:
    """A fair lock between the processes that write one file.

    SQLite's busy handler polls, so a busy process starves the others. Here a process locks the queue file, then the
    lock file, and unlocks the queue file only when it has both: a process that has just written must queue behind the one
    that waits. The kernel releases both locks when a process dies. The holder notes in the lock file what is committed.

    Only the lock file keeps others from writing. A process that was stopped while it waits must not: if the queue does not
    move for a second, the lock file is locked directly as soon as it is free. While that lasts, a process that has just
    written gives a live one at the head of the queue time to be next.
    """

    def __init__(self, path: str, *, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._queue_seconds_max = timeout * _QUEUE_SHARE_MAX
        self._queue_seconds = self._queue_seconds_max  # how long the queue is waited for
        self._clock = SystemClock()
        self._queue_fd = _open_lock_file(path + "-next")
        self._lock_fd = _open_lock_file(path + schema.LOCK_FILE_SUFFIX)

    @contextmanager
    def acquire(self) -> Iterator[float]:
        """Yields the remaining seconds, to be used as SQLite's busy timeout."""
        monotonic = self._clock.monotonic
        until = monotonic() + self._timeout
        try:
            self._lock(until)
        finally:
            fcntl.flock(self._queue_fd, fcntl.LOCK_UN)
        try:
            yield max(until - monotonic(), _BUSY_SECONDS_MIN)
        finally:
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    def write_note(self, ledger: schema.LedgerState) -> None:
        """Called by the holder. A note that cannot be written is missing or old, which its readers allow for."""
        with suppress(OSError):
            os.pwrite(self._lock_fd, (schema.MARK_FORMAT % (ledger.id, ledger.generation)).encode(), 0)

    def write_note_durably(self, ledger: schema.LedgerState) -> None:
        """Write the note and sync it: one that is older would name another ledger than the file."""
        os.pwrite(self._lock_fd, (schema.MARK_FORMAT % (ledger.id, ledger.generation)).encode(), 0)
        os.fsync(self._lock_fd)

    def close(self) -> None:
        os.close(self._queue_fd)
        os.close(self._lock_fd)

    def _lock(self, until: float) -> None:
        is_next = _try_lock(self._queue_fd)
        if is_next and _try_lock(self._lock_fd):
            self._queue_seconds = self._queue_seconds_max
            return
        direct_at = until - self._timeout + self._queue_seconds
        backoff = Backoff(_LOCK_POLL_SECONDS_FIRST, _LOCK_POLL_SECONDS_MAX)
        while not ((is_next or self._clock.monotonic() >= direct_at) and _try_lock(self._lock_fd)):
            if self._clock.monotonic() > until:
                raise Unavailable(self._describe_timeout())
            self._clock.sleep(next(backoff))
            is_next = is_next or _try_lock(self._queue_fd)
        self._queue_seconds = self._queue_seconds_max if is_next else _STUCK_QUEUE_SECONDS

    def _describe_timeout(self) -> str:
        holder = schema.find_lock_holder(self._path + schema.LOCK_FILE_SUFFIX)
        name, advice = (f" ({holder})", holder.advice) if holder else ("", "see whether it hangs")
        return (
            f"another process{name} has held the write lock of {self._path} for {self._timeout:.0f} s: nothing was done; "
            f"{advice}, then retry"
        )


def _open_lock_file(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
