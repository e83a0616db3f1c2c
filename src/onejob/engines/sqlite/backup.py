"""Copies a store while others write it, and puts such a copy in the place of a store.

A copy is made from one snapshot, through the VFS that writes page checksums: a plain `sqlite3` changes the first page and leaves
its checksum wrong. It gets its name when it has been read back, compared with the snapshot and synced; a run that is
killed leaves `NAME.partial`, which the next one overwrites.

A restore holds the locks of the store, so that nobody has it open. Before it moves anything it leaves a note (`-restore`): a
store with that note is refused until a restore has come to its end. The restored store is another ledger, by its id, because
it may have forgotten keys: a process that has served the old one, and every gate in front of it, notices. A store that lacks
acknowledged commits is refused until the loss is accepted, which makes it another ledger in the same way.

The file of any other ledger than the one that was served last is refused, too, by the high-water mark beside it. So both
write the mark of the new ledger: a restore before it puts the file in its place, under the protection of its note, and an
accepted loss after the commit that changes the id, so that the old mark is there as long as the old file could be put back.
"""

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw
from msgspec import Struct

from onejob.clock import SystemClock
from onejob.core.facts import Kind
from onejob.core.timestamps import to_utc
from onejob.engines.codec import TABLES
from onejob.errors import Invalid, OnejobError, StoreRefused, Unavailable

from . import FairFileLock, schema

PARTIAL_SUFFIX = ".partial"
_JOURNAL_SUFFIXES = ("-wal", "-shm")
_STEP_PAGES = 2048  # between two calls of `on_progress`
_COPY_BYTES = 1 << 20
_RESERVED_BYTES_AT = 20  # in the header of a SQLite file: the bytes at the end of a page that hold its checksum
_HEADER_BYTES = 100
# What SQLite's unix VFS locks: a connection has a shared lock on one of these ranges as long as it is open.
_LOCKED_RANGES = (("", 0x40000000, 512), ("-shm", 120, 9))
_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)

OnProgress = Callable[[int, int], None]  # called with the pages that are copied, and with all


class StoreSummary(Struct, frozen=True):
    """What is in a store, or in a copy of it."""

    ledger_id: str
    commits: int
    schema_version: int
    counts: dict[str, int]  # the rows of every table
    last_change_at: int  # in milliseconds; 0: nothing was ever stored

    @property
    def ledger(self) -> schema.LedgerState:
        return schema.LedgerState(self.ledger_id, self.commits)

    @property
    def keys(self) -> int:
        return self.counts.get(TABLES[Kind.RECORD], 0)

    @property
    def jobs(self) -> int:
        return self.counts.get(TABLES[Kind.JOB], 0)


class RestoreResult(Struct, frozen=True):
    restored: StoreSummary  # as it is now, with its new ledger id
    replaced: StoreSummary | None  # None: there was none, or it could not be read
    set_aside: str  # where the replaced file is; empty: there was none
    commits_lost: int | None  # acknowledged ones that are not in the backup; None: it is of another ledger


class LossResult(Struct, frozen=True):
    store: StoreSummary  # as it is now, with its new ledger id
    commits_lost: int | None  # 0: none is known to be missing; None: another ledger was served here last


def back_up(source: str, target: str, *, force: bool = False, on_progress: OnProgress | None = None) -> StoreSummary:
    """Copy a store, which others may be writing, to a new file; with `force` in the place of an older copy."""
    source, target = schema.resolve_path(source), os.path.abspath(target)
    if not os.path.exists(source):
        raise Invalid("engine", f"there is no store at {source}; name another with --engine")
    schema.refuse_hard_links(source)
    schema.refuse_interrupted_restore(source)
    schema.refuse_emptied(source)
    _check_target(source, target, force=force)
    with _partial_file(target) as partial:
        try:
            expected = _copy_snapshot(source, partial, on_progress)
            _compare(verify_copy(partial), expected, partial)
        except (apsw.Error, OSError) as error:
            raise _to_copy_error(source, target, error) from error
        _give_name(partial, target, force=force)
    return expected


def verify_copy(path: str) -> StoreSummary:
    """Read a copy that nobody writes: every checksum, every index, its ledger. Raises StoreRefused if anything is wrong."""
    path = schema.resolve_path(path)
    if _bytes_of(path + "-wal"):
        raise StoreRefused(
            f"{path} has a journal beside it: it is a store, or a part of one; name a file of `onejob backup`"
        )
    try:
        with open(path, "rb") as file:
            header = file.read(_HEADER_BYTES)
        if not header.startswith(b"SQLite format 3\0") or len(header) < _HEADER_BYTES:
            raise StoreRefused(f"{path} is not a SQLite file; name a file of `onejob backup`")
        if header[_RESERVED_BYTES_AT] != schema.CHECKSUM_BYTES:
            raise StoreRefused(f"the pages of {path} have no checksums; name a file of `onejob backup`")
        db = apsw.Connection(
            f"file:{quote(path)}?immutable=1",
            flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
            vfs=schema.load_checksum_vfs(),
        )
        with _closing(db):
            return _verify(db, path)
    except (apsw.Error, OSError) as error:
        raise StoreRefused(str(schema.to_sqlite_failure(path, error))) from error


def restore(backup: str, target: str) -> RestoreResult:
    """Put a copy of `back_up` in the place of a store that no process has open, under a new ledger id.

    The replaced files are moved aside. Not for a process that has the store open itself: it would lose its own locks.
    """
    schema.refuse_lost_target(target)
    backup, target = os.path.abspath(backup), schema.resolve_path(target)
    if not os.path.exists(backup):
        raise Invalid("file", f"there is no file {backup}; name one that `onejob backup` made")
    schema.refuse_hard_links(target)
    if os.path.exists(target) and os.path.samefile(backup, target):
        raise Invalid("file", f"{backup} is the store itself; name a backup of it")
    expected = verify_copy(backup)
    replaced = _summarize_replaced(target)
    with ExitStack() as stack:
        lock = stack.enter_context(_hold_store(target))
        mark = schema.read_mark(target)
        partial = stack.enter_context(_partial_file(target))
        try:
            restored = _copy_as_new_ledger(backup, partial, expected)
            set_aside = _replace(partial, target, restored, lock)
        except (apsw.Error, OSError) as error:
            raise _to_copy_error(backup, target, error) from error
    known = [mark, None if replaced is None else replaced.ledger]
    return RestoreResult(restored, replaced, set_aside, _count_lost(known, expected.ledger))


def accept_loss(target: str, *, force: bool = False) -> LossResult:
    """Let a store that no process has open, and that may lack acknowledged commits, be served again: as another ledger.

    With `force` also if nothing is known to be missing: an older folder may have been put back as a whole.
    """
    schema.refuse_lost_target(target)
    target = schema.resolve_path(target)
    schema.refuse_hard_links(target)
    schema.refuse_interrupted_restore(target)
    schema.refuse_emptied(target)
    if not os.path.exists(target):
        raise Invalid("engine", f"there is no store at {target}; name another with --engine")
    with _hold_store(target) as lock:
        mark = schema.read_mark(target)
        try:
            db = schema.connect(target)
            is_done = False
            try:
                found = _verify_with_loss(db, target, mark, force=force)
                lock.write_note_durably(schema.begin_new_ledger(db))
                summary = _summarize(db)
                is_done = True
            finally:
                if not is_done:  # what is left of the journal is evidence
                    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                db.close()
        except (apsw.Error, OSError) as error:
            raise schema.to_sqlite_failure(target, error) from error
    lost = None if schema.is_other_ledger(mark, found.ledger) else schema.count_missing_commits(mark, found.ledger)
    return LossResult(summary, lost)


def _verify_with_loss(
    db: apsw.Connection, target: str, mark: schema.LedgerState | None, *, force: bool
) -> StoreSummary:
    schema.refuse_blank(db, target)
    schema.check_not_truncated(db, target)
    found = _verify(db, target)
    if not force and not schema.find_loss(mark, found.ledger):
        raise Invalid(
            "accept_loss",
            f"no commit is known to be missing in {target}: nothing was done; if an older folder was put back with its "
            f"{schema.LOCK_FILE_SUFFIX}, repeat it with --force, and restart everything that has served this ledger",
        )
    return found


def _count_lost(known: Sequence[schema.LedgerState | None], backup: schema.LedgerState) -> int | None:
    """How many commits of its ledger a backup lacks; None if nothing is known of that ledger here."""
    commits = [ledger.generation for ledger in known if ledger is not None and ledger.id == backup.id]
    return max(0, max(commits) - backup.generation) if commits else None


def _check_target(source: str, target: str, *, force: bool) -> None:
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise Invalid("file", f"there is no folder {folder}; create it, or name another file")
    if os.path.exists(target):
        if os.path.samefile(source, target):
            raise Invalid("file", f"{target} is the store itself; name another file")
        if os.path.isdir(target):
            raise Invalid("file", f"{target} is a folder; name a file in it")
        if not force:
            raise Invalid("file", f"{target} exists; name another file, or replace it with --force")
    for suffix in (*_JOURNAL_SUFFIXES, schema.LOCK_FILE_SUFFIX):
        if os.path.exists(target + suffix):
            raise Invalid("file", f"{target} is or was a store ({target}{suffix} is there); name another file")


@contextmanager
def _partial_file(target: str) -> Iterator[str]:
    """An empty file beside the target that no other run uses; removed unless it was renamed."""
    path = target + PARTIAL_SUFFIX
    file = _open_partial(path)
    try:
        os.ftruncate(file, 0)
        _remove_journals(path)
        yield path
    except BaseException:
        _remove_partial(path, file)
        raise
    finally:
        os.close(file)


def _open_partial(path: str) -> int:
    """Open the file and lock it; the kernel unlocks it when this process dies."""
    while True:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise Unavailable(
                f"{path} cannot be written ({error.strerror}); fix its permissions, then retry"
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(file)
            raise Unavailable(f"another run is writing {path}; wait for its end, then retry") from error
        if os.fstat(file).st_nlink == 1:
            return file
        # Killed between the two steps of `_give_name`, a run leaves a second name of a finished copy; or it ended just now.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(file)):
                os.remove(path)
        os.close(file)


def _remove_partial(path: str, file: int) -> None:
    with suppress(OSError):
        mine = os.fstat(file)
        if os.path.exists(path) and os.path.samestat(os.stat(path), mine):
            os.remove(path)
            _remove_journals(path)


def _remove_journals(path: str) -> None:
    for suffix in (*_JOURNAL_SUFFIXES, "-journal"):
        with suppress(FileNotFoundError):
            os.remove(path + suffix)


def _copy_snapshot(source: str, partial: str, on_progress: OnProgress | None) -> StoreSummary:
    """Copy every page of one snapshot. Writers are not held up; the journal grows until the copy is done."""
    mark = schema.read_mark(source)  # before the snapshot: others go on
    db = schema.connect(source)
    is_done = False
    try:
        schema.refuse_other_application(db, source)
        schema.refuse_newer(db)
        schema.check_not_truncated(db, source)
        db.execute("BEGIN")
        summary = _summarize(db)
        schema.refuse_loss(source, mark, summary.ledger)
        with _closing(_connect_partial(partial)) as copy:
            # Write the first page, which says that pages have checksums: pages that leave the cache before it get none.
            copy.execute("PRAGMA user_version = 1")
            with copy.backup("main", db, "main") as pages:
                while not pages.done:
                    pages.step(_STEP_PAGES)
                    if on_progress is not None:
                        on_progress(pages.page_count - pages.remaining, pages.page_count)
            copy.execute("PRAGMA journal_mode = DELETE")  # a file without a journal beside it
        db.execute("COMMIT")
        is_done = True
        return summary
    finally:
        if not is_done:  # what is left of the journal is evidence
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        db.close()


def _connect_partial(partial: str) -> apsw.Connection:
    db = schema.connect(partial, synchronous="OFF")  # it is synced once, when it is complete
    db.execute("PRAGMA journal_mode = MEMORY")
    return db


def _copy_as_new_ledger(backup: str, partial: str, expected: StoreSummary) -> StoreSummary:
    with open(backup, "rb") as source, open(partial, "r+b") as copy:
        shutil.copyfileobj(source, copy, _COPY_BYTES)
    with _closing(_connect_partial(partial)) as db:
        wanted = schema.begin_new_ledger(db)
    restored = verify_copy(partial)
    changed = StoreSummary(
        wanted.id, expected.commits + 1, expected.schema_version, expected.counts, expected.last_change_at
    )
    _compare(restored, changed, partial)
    return restored


def _verify(db: apsw.Connection, path: str) -> StoreSummary:
    schema.refuse_other_application(db, path)
    schema.refuse_newer(db)
    if found := schema.find_damage(db):
        raise StoreRefused(f"{path} is damaged ({found}); use another backup")
    return _summarize(db)


def _summarize(db: apsw.Connection) -> StoreSummary:
    ledger = schema.read_ledger(db)
    names: list[Any] = db.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    ).fetchall()
    counts = {name: int(db.execute(f'SELECT count(*) FROM "{name}"').get) for (name,) in names}
    last = db.execute(
        "SELECT ifnull(max(changed_at), 0) FROM (SELECT changed_at FROM record UNION ALL SELECT changed_at FROM job)"
    )
    return StoreSummary(ledger.id, ledger.generation, int(db.pragma("user_version")), counts, int(last.get))


def _compare(found: StoreSummary, expected: StoreSummary, path: str) -> None:
    if found != expected:
        raise StoreRefused(
            f"{path} differs from what was copied: the disk or its file system lost data; use another disk"
        )


def _summarize_replaced(target: str) -> StoreSummary | None:
    """What is in the store that will be replaced; None if there is none, or if it cannot be read."""
    if not _bytes_of(target):
        return None
    try:
        db = schema.connect(target)
        with _closing(db):
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # it is replaced as it is
            is_other = db.pragma("application_id") != schema.APPLICATION_ID
            if is_other and db.execute("SELECT count(*) FROM sqlite_master").get:
                raise Invalid("engine", f"{target} is another program's database; name another file with --engine")
            return _summarize(db)
    except (apsw.Error, OSError, StoreRefused):
        return None  # damaged: the reason to restore it


@contextmanager
def _hold_store(target: str) -> Iterator[FairFileLock]:
    """Keep other processes from opening the store, unless one has it open already."""
    if not os.path.isdir(os.path.dirname(target)):
        raise Invalid("engine", f"there is no folder {os.path.dirname(target)}; create it, or name another file")
    lock = FairFileLock(target, timeout=schema.LOCK_TIMEOUT_SECONDS)
    files: list[int] = []
    try:
        with lock.acquire():
            for suffix, start, length in _LOCKED_RANGES:
                with suppress(FileNotFoundError):
                    files.append(os.open(target + suffix, os.O_RDWR | os.O_CLOEXEC))
                    fcntl.lockf(files[-1], fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
            yield lock
    except BlockingIOError as error:
        raise Unavailable(
            f"{target} is open in another process (`fuser {target}` names it): nothing was done; stop it, then retry"
        ) from error
    finally:
        for file in files:
            os.close(file)
        lock.close()


def _replace(partial: str, target: str, restored: StoreSummary, lock: FairFileLock) -> str:
    """Move the old store aside and the new one in its place; where the old one is."""
    folder, note = os.path.dirname(target), target + schema.RESTORE_NOTE_SUFFIX
    aside = _begin_replacing(target, note)
    for old in (target, aside):
        if old and os.path.exists(old):
            _copy_owner(old, partial)
            break
    _sync(partial)
    if aside:
        # The journal first: with it goes the state that an older file beside it would not have.
        for suffix in ("-wal", "") if _bytes_of(target + "-wal") else ("",):
            if os.path.exists(target + suffix) and not os.path.exists(aside + suffix):
                os.rename(target + suffix, aside + suffix)
        _remove_journals(target)
        _sync(folder)
    lock.write_note_durably(restored.ledger)
    os.replace(partial, target)
    _sync(folder)
    if aside:
        os.remove(note)
        _sync(folder)
    return aside


def _copy_owner(old: str, new: str) -> None:
    """Whoever could use the old file can use the new one, also if root restores it."""
    status = os.stat(old)
    os.chmod(new, stat.S_IMODE(status.st_mode))
    if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(new, status.st_uid, status.st_gid)


def _begin_replacing(target: str, note: str) -> str:
    """Leave the note, or take up the one of an interrupted restore; the name for the old store, empty if there is none."""
    with suppress(FileNotFoundError):
        # Its name was chosen then, so that file and journal end up together.
        if name := Path(note).read_text(encoding="utf-8").strip():
            return os.path.join(os.path.dirname(target), name)
    if not any(os.path.exists(target + suffix) for suffix in ("", "-wal")):
        return ""
    aside = f"{target}.before-restore-{to_utc(SystemClock().wall_ms()):%Y%m%dT%H%M%S.%f}"[:-3] + "Z"
    Path(note + PARTIAL_SUFFIX).write_text(os.path.basename(aside) + "\n", encoding="utf-8")
    _sync(note + PARTIAL_SUFFIX)
    os.replace(note + PARTIAL_SUFFIX, note)
    _sync(os.path.dirname(target))
    return aside


def _give_name(partial: str, target: str, *, force: bool) -> None:
    _sync(partial)
    if force:
        os.replace(partial, target)
    else:
        try:
            os.link(partial, target)  # unlike a rename, it never replaces a file
        except FileExistsError:
            raise Invalid("file", f"{target} exists by now; name another file, or replace it with --force") from None
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS or os.path.exists(target):
                raise
            os.rename(partial, target)
        else:
            os.remove(partial)
    _sync(os.path.dirname(target))


def _sync(path: str) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


@contextmanager
def _closing(db: apsw.Connection) -> Iterator[apsw.Connection]:
    try:
        yield db
    finally:
        db.close()


def _to_copy_error(source: str, target: str, error: Exception) -> OnejobError:
    is_full = isinstance(error, apsw.FullError) or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    if is_full:
        return Unavailable(f"the disk of {target} is full: nothing was done; free some space, then retry")
    if isinstance(error, apsw.Error):
        return schema.to_sqlite_failure(source, error)
    return Unavailable(f"{target} cannot be written ({error}): nothing was done; fix it, then retry")


def _bytes_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
