"""The embedded engine: one SQLite file, synced before every answer, shared by the processes of one machine."""

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import apsw

from onejob.clock import Clock, SystemClock, make_engine_clock
from onejob.core.command import Command
from onejob.core.facts import NewerFormat
from onejob.core.replies import AnyReply
from onejob.engine import Durability, EngineBase, EngineInfo, OnTimeout, Page, Query
from onejob.errors import Outdated, Unavailable, Unknown

from . import queries, schema
from .store import SqliteStore
from .threads import FairFileLock, WorkerThread

T = TypeVar("T")
_WRITE_LOCK_TIMEOUT_SECONDS = 30.0
_READ_NOW_MAX = 256
_NO_FILE_ID = (0, 0)


class SqliteEngine(EngineBase):
    """Writes go through one thread and one connection, scans through another thread and connection.

    Point reads wait for no lock and no sync, so they run on the event loop (`read_now`). Only when that fails, or a
    batch of reads is large, the reader thread takes over.
    """

    info = EngineInfo(name="sqlite", durability=Durability.DISK, synchronous_reads=True)

    def __init__(self, path: str, clock: Clock, synchronous: str) -> None:
        self._path = os.path.abspath(path)  # the working directory may change
        self._clock = clock
        self._synchronous = synchronous
        self._writer = WorkerThread("onejob-writer")
        self._reader = WorkerThread("onejob-reader")
        self._write_lock: FairFileLock | None = None
        self._write_store: SqliteStore | None = None
        self._read_store: SqliteStore | None = None
        self._read_now_store: SqliteStore | None = None  # opened by the reader, used on the loop
        self._write_file_id = self._read_file_id = _NO_FILE_ID
        self._now: Callable[[], int] = clock.wall_ms  # until the file is open
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
            return await self._writer.call(self._translate_errors, self._write, commands)
        replies = self.read_now(commands)
        if replies is not None:
            return replies
        return await self._reader.call(self._translate_errors, self._read, commands)

    async def scan(self, query: Query[T], /) -> Page[T]:
        if self._closed:
            raise Unavailable(f"the engine on {self._path} is closed; open another")
        return await self._reader.call(self._translate_errors, self._scan, query)

    async def barrier(self, tenant: str, user: str | None = None) -> None:
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

    def _write(self, commands: Sequence[Command[Any]]) -> list[AnyReply]:
        store = self._write_store or self._open_writer()
        assert self._write_lock is not None
        with self._write_lock.acquire():
            _check_not_replaced(self._path, self._write_file_id)
            return store.write(commands)

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
        try:
            _check_not_replaced(self._path, self._read_file_id)
            return store.read(commands)
        except (apsw.Error, OSError):
            self._close_read_now()  # the reader thread tries again and reports the error
            return None

    def _read(self, commands: Sequence[Command[Any]]) -> list[AnyReply]:
        store = self._read_store or self._open_reader()
        _check_not_replaced(self._path, self._read_file_id)
        replies = store.read(commands)
        if self._read_now_store is None:
            db = schema.connect(self._path)
            db.set_busy_timeout(0)
            self._read_now_store = SqliteStore(db, self._now)
        return replies

    def _scan(self, query: Query[T]) -> Page[T]:
        store = self._read_store or self._open_reader()
        _check_not_replaced(self._path, self._read_file_id)
        return queries.run_query(store.db, query, store.now())

    def _open_writer(self) -> SqliteStore:
        # A file that was there and is gone took acknowledged answers with it: only an operator may make a new one.
        schema.prepare_file(self._path, create=self._write_file_id == _NO_FILE_ID)
        db = schema.connect(self._path, synchronous=self._synchronous)
        try:
            if self._write_lock is None:
                self._write_lock = FairFileLock(self._path, timeout=_WRITE_LOCK_TIMEOUT_SECONDS)
            with self._write_lock.acquire():
                schema.migrate(db, self._path)
                schema.check_not_truncated(db, self._path)
                offset = schema.load_clock_offset_ms(db, self._clock)
        except BaseException:
            db.close()
            raise
        self._write_file_id = _file_id(self._path)
        self._now = make_engine_clock(self._clock, offset)
        self._write_store = SqliteStore(db, self._now)
        return self._write_store

    def _open_reader(self) -> SqliteStore:
        self._read_store = SqliteStore(schema.connect(self._path), self._now)
        self._read_file_id = _file_id(self._path)
        return self._read_store

    def _close_writer(self) -> None:
        if self._write_store is not None:
            self._write_store.db.close()
            self._write_store = None
        if self._write_lock is not None:
            self._write_lock.close()
            self._write_lock = None

    def _close_reader(self) -> None:
        if self._read_store is not None:
            self._read_store.db.close()
            self._read_store = None

    def _close_read_now(self) -> None:
        if self._read_now_store is not None:
            self._read_now_store.db.close()
            self._read_now_store = None

    def _translate_errors(self, work: Callable[..., T], *args: Any) -> T:
        """Turn the errors of the store into the two failures of the seam, and reconnect after one."""
        try:
            return work(*args)
        except Unknown:
            self._close_writer()
            raise
        except NewerFormat as error:
            raise Outdated(str(error)) from error
        except (apsw.Error, OSError) as error:
            engine_error = schema.to_engine_error(self._path, error)
            if work in (self._write, self._wait_for_writers):
                self._close_writer()
            elif work != self._open_writer:
                self._close_reader()
            raise engine_error from error


def _check_not_replaced(path: str, file_id: tuple[int, int]) -> None:
    # SQLite would go on with a file that was unlinked.
    if _file_id(path) != file_id:
        raise FileNotFoundError("it was moved, replaced or removed")


def _file_id(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino
