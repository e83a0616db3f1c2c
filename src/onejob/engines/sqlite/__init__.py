"""The embedded engine: one SQLite file, synced before every answer, shared by the processes of one machine."""

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import apsw

from onejob.clock import Clock, SystemClock, tied
from onejob.core.facts import NewerFormat
from onejob.core.receipt import AnyReply
from onejob.core.step import Command
from onejob.engine import Durability, Page, Query, Unavailable, Unknown
from onejob.engines.lane import Lane
from onejob.errors import Outdated

from . import queries, schema
from .store import Store
from .trouble import trouble_of
from .turn import Turn

T = TypeVar("T")
_TURN_TIMEOUT = 30.0
_NEAR_MAX = 256
_NO_FILE = (0, 0)


class SqliteEngine:
    """Writes go through one thread and one connection, scans through another beside it.

    Point reads wait for no lock and no sync, so they are made where they are asked for: a few microseconds on
    the loop are less than the way to a thread and back. Only what is out of the ordinary goes to the reader.
    """

    durability = Durability.DISK

    def __init__(self, path: str, clock: Clock, synchronous: str) -> None:
        self._path = os.path.abspath(path)  # wherever the process goes later
        self._clock = clock
        self._synchronous = synchronous
        self._writer = Lane("onejob-writer")
        self._reader = Lane("onejob-reader")
        self._turn: Turn | None = None
        self._write_store: Store | None = None
        self._read_store: Store | None = None
        self._near_store: Store | None = None  # opened by the reader, used on the loop
        self._file = self._read_file = _NO_FILE
        self._now: Callable[[], int] = clock.wall_ms  # until the file is open
        self._closed = False

    @classmethod
    async def open(
        cls, path: str, *, clock: Clock | None = None, synchronous: str = "FULL"
    ) -> "SqliteEngine":
        engine = cls(path, clock or SystemClock(), synchronous)
        try:
            await engine._writer.call(engine._guarded, engine._open_writer)
        except BaseException:
            await engine.aclose()
            raise
        return engine

    async def execute(self, commands: Sequence[Command[Any]], /) -> Sequence[AnyReply]:
        if self._closed:
            raise Unavailable(f"the engine on {self._path} is closed; open another")
        if any(command.writes for command in commands):
            return await self._writer.call(self._guarded, self._write, commands)
        near = self.read_now(commands)
        if near is not None:
            return near
        return await self._reader.call(self._guarded, self._read, commands)

    async def scan(self, query: Query[T], /) -> Page[T]:
        if self._closed:
            raise Unavailable(f"the engine on {self._path} is closed; open another")
        return await self._reader.call(self._guarded, self._scan, query)

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._reader.call(self._close_reader)
        self._close_near()  # after the last read that might open it
        await self._writer.call(self._close_writer)
        await self._reader.aclose()
        await self._writer.aclose()

    def _write(self, commands: Sequence[Command[Any]]) -> list[AnyReply]:
        store = self._write_store or self._open_writer()
        assert self._turn is not None
        with self._turn.taken():
            _check_in_place(self._path, self._file)
            return store.write(commands)

    def read_now(self, commands: Sequence[Command[Any]], /) -> list[AnyReply] | None:
        """The replies, if they can be had without waiting."""
        store = self._near_store
        if store is None or self._closed or len(commands) > _NEAR_MAX:
            return None
        try:
            _check_in_place(self._path, self._read_file)
            return store.read(commands)
        except (apsw.Error, OSError):
            self._close_near()  # the reader tries again, and says what is wrong
            return None

    def _read(self, commands: Sequence[Command[Any]]) -> list[AnyReply]:
        store = self._read_store or self._open_reader()
        _check_in_place(self._path, self._read_file)
        replies = store.read(commands)
        if self._near_store is None:
            near = schema.connect(self._path)
            near.set_busy_timeout(0)
            self._near_store = Store(near, self._now)
        return replies

    def _scan(self, query: Query[T]) -> Page[T]:
        store = self._read_store or self._open_reader()
        _check_in_place(self._path, self._read_file)
        return queries.answered(store.db, query, store.now())

    def _open_writer(self) -> Store:
        # A file that was there and is gone took answers with it: only an operator may start anew.
        schema.prepare(self._path, make=self._file == _NO_FILE)
        db = schema.connect(self._path, synchronous=self._synchronous)
        try:
            if self._turn is None:
                self._turn = Turn(self._path, timeout=_TURN_TIMEOUT)
            with self._turn.taken():
                schema.migrate(db, self._path)
                schema.whole(db, self._path)
                offset = schema.offset(db, self._clock)
        except BaseException:
            db.close()
            raise
        self._file = _identity(self._path)
        self._now = tied(self._clock, offset)
        self._write_store = Store(db, self._now)
        return self._write_store

    def _open_reader(self) -> Store:
        self._read_store = Store(schema.connect(self._path), self._now)
        self._read_file = _identity(self._path)
        return self._read_store

    def _close_writer(self) -> None:
        if self._write_store is not None:
            self._write_store.db.close()
            self._write_store = None
        if self._turn is not None:
            self._turn.close()
            self._turn = None

    def _close_reader(self) -> None:
        if self._read_store is not None:
            self._read_store.db.close()
            self._read_store = None

    def _close_near(self) -> None:
        if self._near_store is not None:
            self._near_store.db.close()
            self._near_store = None

    def _guarded(self, work: Callable[..., T], *args: Any) -> T:
        """Turn the store's troubles into the two failures of the seam, and begin anew after one."""
        try:
            return work(*args)
        except Unknown:
            self._close_writer()
            raise
        except NewerFormat as error:
            raise Outdated(str(error)) from error
        except (apsw.Error, OSError) as error:
            trouble = trouble_of(self._path, error)
            if work == self._write:
                self._close_writer()
            elif work != self._open_writer:
                self._close_reader()
            raise trouble from error


def _check_in_place(path: str, file: tuple[int, int]) -> None:
    # SQLite would go on with a file that has no name any more.
    if _identity(path) != file:
        raise FileNotFoundError("it was moved, replaced or removed")


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino
