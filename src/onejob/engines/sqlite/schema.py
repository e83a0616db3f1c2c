"""Opens a SQLite file: checks that it is onejob's, complete and durable, migrates it, and diagnoses it."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import apsw
import apsw.sqlite_extra
from msgspec import Struct

from onejob.clock import Clock, boot_id, make_engine_clock, wall_offset_ms
from onejob.engines.sql import PRERELEASE_MESSAGE, PRERELEASE_TABLE, load_migrations
from onejob.errors import StoreRefused, Unavailable
from onejob.ids import new_ledger_id

APPLICATION_ID = 0x6F6E656A  # "onej"
LOCK_TIMEOUT_SECONDS = 5.0  # how long a call waits for the locks of other processes and programs
_CACHE_KIB = 64 * 1024
# Whenever a commit has split a page of an index, SQLite walks all pages in the cache of the connection, which is 200 µs for
# 64 MiB. The pages themselves are in the system's cache: with 8 MiB new keys are 1.1 times as fast, from 100,000 to
# 1,000,000 in the file (docs/decisions/0043).
WRITER_CACHE_KIB = 8 * 1024
_CHECKPOINT_PAGES = 1000
_STATEMENTS_MAX = 512
# In older versions a checkpoint that raced a commit could lose transactions (sqlite.org/wal.html, "WAL-reset").
_SQLITE_MIN = (3, 51, 3)
CHECKSUM_BYTES = 8
_REWRITE_BYTES = 1 << 20
LOCK_FILE_SUFFIX = "-turn"
RESTORE_NOTE_SUFFIX = "-restore"
_LOCKS = Path("/proc/locks")
_MARK = re.compile(rb"([0-9a-f]{32}) ([0-9]{20})\n")
_MARK_BYTES = 54
_HOW_TO_SERVE_AGAIN = (
    "put the file and journal that were served last back, or serve this one as a new ledger: "
    "`onejob restore --accept-loss`"
)
_SYNCHRONOUS_NAMES = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


# The high-water mark of acknowledged commits, which is noted in the lock file after each of them: ledger id, generation.
MARK_FORMAT = "%s %020d\n"


class LedgerState(Struct, frozen=True):
    """The identity of a store, and how often it was written."""

    id: str
    generation: int


NO_LEDGER = LedgerState("", 0)


def resolve_path(path: str) -> str:
    """The file that a path names: the journal and the locks are beside it, whichever symbolic link leads to it."""
    return os.path.realpath(path)


def connect(path: str, *, synchronous: str = "FULL", cache_kib: int = _CACHE_KIB) -> apsw.Connection:
    if tuple(map(int, apsw.sqlite_lib_version().split("."))) < _SQLITE_MIN:
        raise StoreRefused(
            f"SQLite {apsw.sqlite_lib_version()} can lose committed transactions; "
            "install apsw's own wheel, which brings its SQLite along"
        )
    # Without SQLITE_OPEN_CREATE: a missing file is an error, not a new store.
    db = apsw.Connection(
        path, flags=apsw.SQLITE_OPEN_READWRITE, vfs=load_checksum_vfs(), statementcachesize=_STATEMENTS_MAX
    )
    try:
        if not os.stat(path).st_size:
            db.reserve_bytes("main", CHECKSUM_BYTES)  # of every page of a new file
        if db.readonly("main"):
            # SQLite would map the shared memory read-only for the whole process, even after the file is fixed.
            raise PermissionError("it is read-only")
        db.set_busy_timeout(int(LOCK_TIMEOUT_SECONDS * 1000))
        for pragma in (
            f"synchronous = {synchronous}",
            f"cache_size = -{cache_kib}",
            f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
            "temp_store = MEMORY",
            "trusted_schema = OFF",
        ):
            db.execute(f"PRAGMA {pragma}")
    except (apsw.Error, OSError):
        db.close()
        raise
    return db


@cache
def load_checksum_vfs() -> str:
    """Load the VFS that verifies the checksum of every page it reads; plain SQLite does not notice a flipped bit."""
    default = apsw.vfs_names()[0]
    with apsw.Connection(":memory:") as db:
        apsw.sqlite_extra.load(db, "cksumvfs")
    apsw.set_default_vfs(default)  # other connections of this process keep their VFS
    return "cksmvfs"


def rewrite_journal(db: apsw.Connection, path: str) -> None:
    """Write the journal again and sync it, before anything that it holds is answered.

    The first connection shows what a killed process wrote but did not sync, or what a sync failed to write. After a failed sync
    Linux calls the pages clean: the next sync succeeds and proves nothing, unless they are written again.
    """
    db.execute("BEGIN IMMEDIATE")  # nobody appends to the journal, restarts or truncates it
    try:
        with suppress(FileNotFoundError):
            journal = os.open(path + "-wal", os.O_RDWR | os.O_CLOEXEC)
            try:
                _rewrite_file(journal)
            finally:
                os.close(journal)
    finally:
        db.execute("ROLLBACK")


def _rewrite_file(file: int) -> None:
    at = 0
    while data := os.pread(file, _REWRITE_BYTES, at):
        at += os.pwrite(file, data, at)
    os.fsync(file)


def refuse_lost_target(name: str) -> None:
    """Refuse a symbolic link to a missing file: its disk may not be mounted, and a new store would know no key."""
    if os.path.islink(name) and not os.path.exists(name):
        target = os.path.realpath(name)
        raise Unavailable(
            f"{name} is a symbolic link to {target}, which is missing: nothing was done; mount its disk, or name {target} itself "
            "to create a store there"
        )


def refuse_hard_links(path: str) -> None:
    """Refuse a file with several names: a process that opens another one has another journal, and neither sees all keys."""
    if os.path.isfile(path) and (names := os.stat(path).st_nlink) > 1:
        raise StoreRefused(
            f"{path} has {names} names (hard links), so that processes could use it with different journals and lose keys; "
            f"remove the others (`find DIRECTORY -samefile {path}` lists them), or replace them by copies"
        )


def prepare_file(path: str, *, create: bool) -> None:
    """Create a missing file with mode 0600; refuse one that was emptied or removed."""
    if not create and not _file_bytes(path) and not _file_bytes(path + "-wal"):
        raise StoreRefused(f"{path} is empty or missing, but was not: the answers in it are lost; restore it")
    refuse_interrupted_restore(path)
    refuse_emptied(path)
    refuse_hard_links(path)
    # An existing file is not opened here: closing any descriptor of it drops the locks SQLite holds in this process.
    if not os.path.exists(path):
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def refuse_interrupted_restore(path: str) -> None:
    """Refuse a store of which a restore may have replaced only a part."""
    if os.path.exists(path + RESTORE_NOTE_SUFFIX):
        raise StoreRefused(f"a restore of {path} has not come to its end; run `onejob restore` again")


def refuse_emptied(path: str) -> None:
    """Refuse a journal without its database, and an empty or missing file that a high-water mark says was neither."""
    if _file_bytes(path):
        return
    wal = path + "-wal"
    if _file_bytes(wal):
        raise StoreRefused(
            f"{path} is empty or missing, but its journal {wal} is not: the answers in it would be lost. "
            "Restore the database file, or remove both to start over"
        )
    _refuse_lost_ledger(path, "empty" if os.path.exists(path) else "missing")


def refuse_blank(db: apsw.Connection, path: str) -> None:
    """Refuse a file whose tables were all in a journal that is gone: it would become a new, empty ledger."""
    if not _fetch_value(db, "PRAGMA user_version"):
        _refuse_lost_ledger(path, "without its journal and has no tables")


def _refuse_lost_ledger(path: str, state: str) -> None:
    mark = read_mark(path)
    if mark is not None and mark.generation:
        raise StoreRefused(
            f"{path} is {state}, but {mark.generation} commits were acknowledged there: the answers in it are lost. "
            f"Restore it, or remove it and {path}{LOCK_FILE_SUFFIX} to start over"
        )


def refuse_unusable(db: apsw.Connection, path: str, known: LedgerState) -> None:
    """Refuse, without changing it, a file that is not the ledger which is served here, with everything it has answered."""
    refuse_other_application(db, path)
    _refuse_prerelease(db, path)
    refuse_newer(db)
    refuse_blank(db, path)
    if _fetch_value(db, "PRAGMA user_version"):
        check_not_truncated(db, path)
        refuse_wrong_ledger(path, read_mark(path), read_ledger(db), known)


def migrate(db: apsw.Connection, path: str) -> None:
    """Apply all missing migrations in one transaction."""
    if _fetch_value(db, "PRAGMA journal_mode = WAL") != "wal":
        raise StoreRefused(f"{path} cannot be set to WAL mode here; use a local disk")
    steps = load_migrations(__package__)
    with _write_transaction(db):
        refuse_other_application(db, path)
        _refuse_prerelease(db, path)
        refuse_blank(db, path)
        refuse_newer(db)
        version = _fetch_value(db, "PRAGMA user_version")
        for number, step in enumerate(steps[version:], start=version + 1):
            db.execute(step)
            db.execute(f"PRAGMA user_version = {number}")
        if version < len(steps):
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def refuse_newer(db: apsw.Connection) -> None:
    """Raise if a newer program migrated the file, maybe while it was open here."""
    version, known = _fetch_value(db, "PRAGMA user_version"), len(load_migrations(__package__))
    if version > known:
        raise StoreRefused(f"{db.filename} has schema {version}, this program knows {known}; upgrade the program")


def read_ledger(db: apsw.Connection) -> LedgerState:
    rows: list[Any] = db.execute("SELECT id, generation FROM ledger").fetchall()
    if len(rows) != 1:
        raise StoreRefused(f"{db.filename} is damaged (it has no ledger id); restore it from a backup")
    return LedgerState(*rows[0])


def refuse_wrong_ledger(path: str, mark: LedgerState | None, found: LedgerState, known: LedgerState) -> None:
    """Raise unless it is the ledger that was served here, by this process (`known`) and by others (`mark`)."""
    if known != NO_LEDGER:
        refuse_other_ledger(path, found, known)
    refuse_loss(path, mark, found)


def refuse_other_ledger(path: str, found: LedgerState, known: LedgerState) -> None:
    """Raise unless it is the ledger that this process has served, with everything that it has seen there."""
    if found.id != known.id:
        raise StoreRefused(
            f"{path} holds another ledger ({found.id}) than this process has served ({known.id}), so that answered keys "
            "would be new; put the right file back, or restart this process if `onejob restore` made that ledger"
        )
    if found.generation < known.generation:
        raise StoreRefused(
            f"{path} is an older copy: it has {found.generation} commits, this process has seen {known.generation}, so "
            f"that answered keys would be new; {_HOW_TO_SERVE_AGAIN}"
        )


def read_mark(path: str) -> LedgerState | None:
    """The high-water mark; None if there is none.

    It is synced when the store becomes another ledger, and not with each commit: it may be too low, but never too high.
    """
    try:
        file = os.open(path + LOCK_FILE_SUFFIX, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = _MARK.fullmatch(os.pread(file, _MARK_BYTES, 0))
    finally:
        os.close(file)
    return LedgerState(found[1].decode(), int(found[2])) if found else None


def count_missing_commits(mark: LedgerState | None, ledger: LedgerState) -> int:
    """How many commits were acknowledged that the store does not have: its journal was cut, or it is an older copy.

    The mark is read before the ledger, since other processes may go on.
    """
    return max(0, mark.generation - ledger.generation) if mark is not None and mark.id == ledger.id else 0


def is_other_ledger(mark: LedgerState | None, ledger: LedgerState) -> bool:
    """True if commits of another ledger were acknowledged here last: its file was replaced.

    A restore and an accepted loss give the store its new id and write the mark of it themselves.
    """
    return mark is not None and mark.generation > 0 and mark.id != ledger.id


def find_loss(mark: LedgerState | None, ledger: LedgerState) -> str:
    """What is known of acknowledged commits that the store does not have; empty: nothing."""
    if mark is not None and is_other_ledger(mark, ledger):
        return (
            f"holds another ledger ({ledger.id}, {ledger.generation} commits) than was served here last "
            f"({mark.id}, {mark.generation} commits)"
        )
    if missing := count_missing_commits(mark, ledger):
        return (
            f"lacks its last {missing} acknowledged commits: its journal was cut off or removed, or it is an older copy"
        )
    return ""


def refuse_loss(path: str, mark: LedgerState | None, ledger: LedgerState) -> None:
    if loss := find_loss(mark, ledger):
        raise StoreRefused(f"{path} {loss}, so that answered keys would be new; {_HOW_TO_SERVE_AGAIN}")


def begin_new_ledger(db: apsw.Connection) -> LedgerState:
    """Give the store another id, because it may have forgotten keys: a process that knows the old one refuses it."""
    with _write_transaction(db):
        db.execute("UPDATE ledger SET id = ?, generation = generation + 1", (new_ledger_id(),))
    return read_ledger(db)


def check_not_truncated(db: apsw.Connection, path: str) -> None:
    """Refuse a truncated file: its missing pages may hold keys that were answered."""
    if _file_bytes(path + "-wal"):
        return  # the newest pages are still in the journal, so the main file may be shorter
    pages, page_bytes = _fetch_value(db, "PRAGMA page_count"), _fetch_value(db, "PRAGMA page_size")
    if os.stat(path).st_size < pages * page_bytes:
        raise StoreRefused(f"{path} is truncated: it should have {pages} pages; restore it from a backup")


def load_clock_offset_ms(db: apsw.Connection, clock: Clock) -> int:
    """The offset of wall time to the monotonic clock, which all processes of this boot share.

    Time never restarts below what is stored, even if the wall clock was set back while the file was closed.
    """
    boot = boot_id()
    with _write_transaction(db):
        if boot is not None:
            known = _fetch_value(db, "SELECT offset_ms FROM clock WHERE boot_id = ?", boot)
            if known is not None:
                return int(known)
        newest = _fetch_value(
            db, "SELECT max(changed_at) FROM (SELECT changed_at FROM record ORDER BY rowid DESC LIMIT 100)"
        )
        offset_ms = wall_offset_ms(clock)
        behind_ms = (newest or 0) - make_engine_clock(clock, offset_ms)()
        offset_ms += max(behind_ms, 0)
        db.execute("DELETE FROM clock")
        db.execute("INSERT INTO clock VALUES (?, ?)", (boot or "", offset_ms))
        return offset_ms


@contextmanager
def _write_transaction(db: apsw.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _fetch_value(db: apsw.Connection, sql: str, *values: Any) -> Any:
    row = db.execute(sql, values).fetchone()
    return None if row is None else row[0]


def refuse_other_application(db: apsw.Connection, path: str) -> None:
    if _fetch_value(db, "PRAGMA application_id") == APPLICATION_ID:
        return
    if _fetch_value(db, "SELECT count(*) FROM sqlite_master"):
        raise StoreRefused(f"{path} is another program's database; choose another file")


def _refuse_prerelease(db: apsw.Connection, path: str) -> None:
    if _fetch_value(db, "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?", PRERELEASE_TABLE):
        raise StoreRefused(f"{path} {PRERELEASE_MESSAGE.format(PRERELEASE_TABLE)}; choose another file")
    has_ledger = _fetch_value(db, "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'ledger'")
    if _fetch_value(db, "PRAGMA user_version") and not has_ledger:
        raise StoreRefused(f"{path} {PRERELEASE_MESSAGE.format('no ledger')}; choose another file")


class SqliteDiagnostics(Struct, frozen=True):
    sqlite_version: str
    is_onejob: bool  # False: the file is empty, or another program's
    is_empty: bool
    schema_version: int
    schema_version_known: int
    journal_mode: str
    synchronous: str
    journal_bytes: int
    damage: str  # the first that reading every page found; empty: none
    loss: str  # what is known of acknowledged commits that are not there; empty: nothing


def diagnose(path: str) -> SqliteDiagnostics:
    """Examine an existing file without changing it; raises StoreRefused if it cannot be read."""
    path = resolve_path(path)
    refuse_interrupted_restore(path)
    refuse_emptied(path)
    refuse_hard_links(path)
    try:
        db = connect(path)
        is_healthy = False
        try:
            diagnostics = _examine(db, path)
            is_healthy = not diagnostics.damage and not diagnostics.loss
            return diagnostics
        finally:
            if not is_healthy:  # what is left of the journal is evidence
                db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            db.close()
    except (apsw.Error, OSError) as error:
        raise StoreRefused(str(to_sqlite_failure(path, error))) from error


def _examine(db: apsw.Connection, path: str) -> SqliteDiagnostics:
    is_onejob = db.pragma("application_id") == APPLICATION_ID
    version, known = int(db.pragma("user_version")), len(load_migrations(__package__))
    is_readable = is_onejob and 0 < version <= known
    if is_onejob:
        check_not_truncated(db, path)
    is_empty = not db.execute("SELECT count(*) FROM sqlite_master").get
    if is_empty:
        refuse_blank(db, path)
    return SqliteDiagnostics(
        sqlite_version=apsw.sqlite_lib_version(),
        is_onejob=is_onejob,
        is_empty=is_empty,
        schema_version=version,
        schema_version_known=known,
        journal_mode=str(db.pragma("journal_mode")),
        synchronous=_SYNCHRONOUS_NAMES[int(db.pragma("synchronous"))],
        journal_bytes=_file_bytes(path + "-wal"),
        damage=find_damage(db) if is_onejob else "",
        loss=find_loss(read_mark(path), read_ledger(db)) if is_readable else "",
    )


def find_damage(db: apsw.Connection) -> str:
    """Read every page, which verifies its checksum, and compare every index with its table."""
    found = str(_fetch_value(db, "PRAGMA integrity_check(1)"))
    return "" if found == "ok" else found


def read_schema_version(path: str) -> int:
    """The schema version of a file; 0 if it does not exist."""
    return diagnose(path).schema_version if os.path.exists(path) else 0


class LockHolder(Struct, frozen=True):
    pid: int
    is_stopped: bool

    def __str__(self) -> str:
        return f"process {self.pid}{', which is stopped' if self.is_stopped else ''}"

    @property
    def advice(self) -> str:
        return f"continue it (`kill -CONT {self.pid}`) or end it" if self.is_stopped else "see whether it hangs"


def find_lock_holder(path: str) -> LockHolder | None:
    """Another process that keeps others from writing a file; None where the kernel does not tell."""
    with suppress(OSError):
        status = os.stat(path)
        file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        for line in _LOCKS.read_text(encoding="ascii").splitlines():
            match line.split():
                case [_, "FLOCK" | "POSIX", _, "WRITE", pid, found, *_] if found == file and int(pid) not in (
                    0,
                    os.getpid(),
                ):
                    return LockHolder(int(pid), _is_stopped(pid))
    return None


def _is_stopped(pid: str) -> bool:
    with suppress(OSError, IndexError):
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return status.rpartition(")")[2].split()[0] in ("T", "t")  # by a signal, or by a debugger
    return False


def _file_bytes(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def to_sqlite_failure(path: str, error: Exception) -> Unavailable | StoreRefused:
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA:
        return StoreRefused(
            f"{path} is damaged, or another program wrote it: a page has a wrong checksum; "
            "restore a file of `onejob backup` (a copy by another program has such pages), then open it again"
        )
    match error:
        case apsw.CorruptError() | apsw.NotADBError():
            return StoreRefused(f"{path} is damaged ({error}); restore it from a backup, then open it again")
        case apsw.FullError():
            return Unavailable(f"the disk of {path} is full: nothing was done; free some space, then retry")
        case apsw.BusyError() | apsw.LockedError():
            holder = find_lock_holder(path + "-shm") or find_lock_holder(path)
            name = f"another program ({holder})" if holder else "another program"
            return Unavailable(f"{path} is locked by {name}: nothing was done; end its transaction, then retry")
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError() | PermissionError():
            return Unavailable(f"{path} cannot be written ({error}): nothing was done; fix its permissions, then retry")
    return Unavailable(f"{path} cannot be used ({error}): nothing was done; fix it, then retry")
