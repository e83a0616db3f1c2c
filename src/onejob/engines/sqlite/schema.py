"""Opening a file: prove that it is ours, whole and as durable as promised, then bring its schema forward."""

import os
from contextlib import suppress
from functools import cache
from typing import Any

import apsw
import apsw.sqlite_extra
from msgspec import Struct

from onejob.clock import Clock, boot_id, make_engine_clock, wall_offset_ms
from onejob.engines.sql import load_migrations
from onejob.errors import StoreRefused

from .errors import to_engine_error

APPLICATION_ID = 0x6F6E656A  # "onej"
_BUSY_TIMEOUT_MS = 30_000
_CACHE_KIB = 64 * 1024
_CHECKPOINT_PAGES = 1000
_STATEMENTS_MAX = 512
# Before it, a checkpoint that raced a commit could lose committed transactions (sqlite.org/wal.html, "WAL-reset").
_SQLITE_MIN = (3, 51, 3)
_CHECKSUM_BYTES = 8


def connect(path: str, *, synchronous: str = "FULL") -> apsw.Connection:
    if tuple(map(int, apsw.sqlite_lib_version().split("."))) < _SQLITE_MIN:
        raise StoreRefused(
            f"SQLite {apsw.sqlite_lib_version()} can lose committed transactions; "
            "install apsw's own wheel, which brings its SQLite along"
        )
    # Without the flag that creates: a missing file is somebody's trouble, not a new store.
    db = apsw.Connection(
        path, flags=apsw.SQLITE_OPEN_READWRITE, vfs=load_checksum_vfs(), statementcachesize=_STATEMENTS_MAX
    )
    try:
        if not os.stat(path).st_size:
            db.reserve_bytes("main", _CHECKSUM_BYTES)  # a new file: every page of it carries a checksum
        if db.readonly("main"):
            # Its hold on the shared memory would be read-only for the whole process, even after all is mended.
            raise PermissionError("it may only be read")
        db.set_busy_timeout(_BUSY_TIMEOUT_MS)
        for pragma in (
            f"synchronous = {synchronous}",
            f"cache_size = -{_CACHE_KIB}",
            f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
            "temp_store = MEMORY",
            "trusted_schema = OFF",
        ):
            db.execute(f"PRAGMA {pragma}")
        _sync_journal(path)
    except (apsw.Error, OSError):
        db.close()
        raise
    return db


@cache
def load_checksum_vfs() -> str:
    """The file layer that checks every page it reads, loaded once; SQLite by itself believes a flipped bit."""
    usual = apsw.vfs_names()[0]
    with apsw.Connection(":memory:") as db:
        apsw.sqlite_extra.load(db, "cksumvfs")
    apsw.set_default_vfs(usual)  # others in this process keep what they had
    return "cksmvfs"


def _sync_journal(path: str) -> None:
    """What a killed process wrote but did not sync becomes visible with this opening: make it last first."""
    try:
        journal = os.open(path + "-wal", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(journal)
    finally:
        os.close(journal)


def prepare_file(path: str, *, create: bool) -> None:
    """Make the file if there is none, readable by its owner alone; refuse remains that would corrupt it."""
    size = os.stat(path).st_size if os.path.exists(path) else 0
    wal = path + "-wal"
    if not size and os.path.exists(wal) and os.stat(wal).st_size:
        raise StoreRefused(
            f"{path} is empty or missing, but its journal {wal} is not: the answers in it would be lost. "
            "Restore the database file, or remove both to start anew"
        )
    if not size and not create:
        raise StoreRefused(f"{path} is empty or missing, but was not: the answers in it are lost; restore it")
    # A file that is there is not opened: to close any descriptor of it drops the locks SQLite holds in this process.
    if not os.path.exists(path):
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def migrate(db: apsw.Connection, path: str) -> None:
    """Apply the numbered steps that are missing, all of them or none."""
    _refuse_other_application(db, path)  # before its journal mode is touched
    if _fetch_value(db, "PRAGMA journal_mode = WAL") != "wal":
        raise StoreRefused(f"{path} cannot be put into WAL mode here; use a local disk")
    steps = load_migrations(__package__)
    with _WriteTransaction(db):
        _refuse_other_application(db, path)
        refuse_newer(db)
        version = _fetch_value(db, "PRAGMA user_version")
        for number, step in enumerate(steps[version:], start=version + 1):
            db.execute(step)
            db.execute(f"PRAGMA user_version = {number}")
        if version < len(steps):
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def refuse_newer(db: apsw.Connection) -> None:
    """A newer program may bring the schema forward while an older one has the file open."""
    version, known = _fetch_value(db, "PRAGMA user_version"), len(load_migrations(__package__))
    if version > known:
        raise StoreRefused(f"{db.filename} has schema {version}, this program knows {known}; upgrade the program")


def check_not_truncated(db: apsw.Connection, path: str) -> None:
    """Refuse a main file that was cut short: its missing pages may hold keys that were answered."""
    wal = path + "-wal"
    if os.path.exists(wal) and os.stat(wal).st_size:
        return  # the newest pages are still in the journal, so the main file may be shorter
    pages, page_bytes = _fetch_value(db, "PRAGMA page_count"), _fetch_value(db, "PRAGMA page_size")
    if os.stat(path).st_size < pages * page_bytes:
        raise StoreRefused(f"{path} was cut short: it has not all of its {pages} pages; restore it from a backup")


def load_clock_offset_ms(db: apsw.Connection, clock: Clock) -> int:
    """The tie of wall time to the machine's clock, which all processes of this boot share.

    Time never restarts below what is stored, even if the wall clock was set back while nobody was here.
    """
    boot = boot_id()
    with _WriteTransaction(db):
        if boot is not None:
            known = _fetch_value(db, "SELECT offset_ms FROM clock WHERE boot_id = ?", boot)
            if known is not None:
                return int(known)
        newest = _fetch_value(
            db, "SELECT max(changed_at) FROM (SELECT changed_at FROM record ORDER BY rowid DESC LIMIT 100)"
        )
        mine = wall_offset_ms(clock)
        behind = (newest or 0) - make_engine_clock(clock, mine)()
        mine += max(behind, 0)
        db.execute("DELETE FROM clock")
        db.execute("INSERT INTO clock VALUES (?, ?)", (boot or "", mine))
        return mine


class _WriteTransaction:
    """One transaction, whole or not at all."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")


def _fetch_value(db: apsw.Connection, sql: str, *values: Any) -> Any:
    row = db.execute(sql, values).fetchone()
    return None if row is None else row[0]


def _refuse_other_application(db: apsw.Connection, path: str) -> None:
    if _fetch_value(db, "PRAGMA application_id") == APPLICATION_ID:
        return
    if _fetch_value(db, "SELECT count(*) FROM sqlite_master"):
        raise StoreRefused(f"{path} is another program's database; choose another file")


# What can be told of a file without bringing it forward: for whoever examines a store.


_SYNCHRONOUS_NAMES = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


class SqliteDiagnostics(Struct, frozen=True):
    sqlite_version: str
    is_onejob: bool  # False: empty, or another program's
    is_empty: bool
    schema_version: int
    schema_version_known: int
    journal_mode: str
    synchronous: str
    journal_bytes: int


def diagnose(path: str) -> SqliteDiagnostics:
    """Look at a file that is there; raises StoreRefused where it cannot be read."""
    try:
        db = connect(path)
        try:
            return SqliteDiagnostics(
                sqlite_version=apsw.sqlite_lib_version(),
                is_onejob=db.pragma("application_id") == APPLICATION_ID,
                is_empty=not db.execute("SELECT count(*) FROM sqlite_master").get,
                schema_version=int(db.pragma("user_version")),
                schema_version_known=len(load_migrations(__package__)),
                journal_mode=str(db.pragma("journal_mode")),
                synchronous=_SYNCHRONOUS_NAMES[int(db.pragma("synchronous"))],
                journal_bytes=_file_bytes(path + "-wal"),
            )
        finally:
            db.close()
    except (apsw.Error, OSError) as error:
        raise StoreRefused(str(to_engine_error(path, error))) from error


def read_schema_version(path: str) -> int:
    """The number of a file's schema; 0 where there is none yet."""
    return diagnose(path).schema_version if os.path.exists(path) else 0


def _file_bytes(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
