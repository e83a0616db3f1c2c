"""The outbox: a SQLite file that stores each submission before it is sent, so that a crash loses none.

1. A row is synced before its call is sent, and is deleted only after a definite response.
2. A row never changes its content. All processes send the same bytes, so that two of them create one job; the lease of
   a row only avoids double work.
3. One sequence number per scope is in progress at a time. The next one is taken after the server has answered the last.
4. A file that is damaged, or belongs to another client or server, is refused. It is created completely or not at all, so
   an empty file is damaged too: counting again from 1 would give other submissions the same numbers.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from threading import RLock
from typing import Any, Final

import apsw
from msgspec import Struct

from onejob.clock import Clock, SystemClock, boot_id
from onejob.core.key import IdempotencyKey, checked_key
from onejob.errors import IdempotencyConflict, StoreRefused, Unavailable
from onejob.ids import new_holder, new_nonce

from .requests import Call

try:
    import fcntl
except ImportError:  # on Windows, where a lease must expire
    fcntl = None  # type: ignore[assignment]  # a module that may be missing

APPLICATION_ID: Final = 0x6F6E656F  # "oneo"
FORMAT_VERSION: Final = 1
BUSY_MS: Final = 30_000
LEASE_MS: Final = 180_000
GENERATED_KEYS_COUNTER: Final = "keys"  # the counter of generated keys; those of sequences are named by their scopes
SCHEMA: Final = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE counter (name TEXT PRIMARY KEY, last TEXT NOT NULL) STRICT;
CREATE TABLE intent (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    path TEXT NOT NULL,
    body BLOB NOT NULL,
    window_ms INTEGER NOT NULL,
    mark BLOB NOT NULL,
    holder BLOB NOT NULL,
    held_until INTEGER NOT NULL,
    sent_wall INTEGER NOT NULL,
    sent_boot TEXT NOT NULL,
    sent_tick INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX intent_key ON intent (scope, key);
CREATE UNIQUE INDEX intent_number ON intent (scope) WHERE sequence > 0;
"""
log = logging.getLogger("onejob.client")

MakeCall = Callable[[IdempotencyKey], Call[Any]]


class Intent(Struct, frozen=True):
    """One row: the call to send, and the state of its earlier attempts."""

    id: int
    scope: str
    key: str
    sequence: int  # 0: not part of a sequence
    path: str
    body: bytes
    window_ms: int
    elapsed_ms: int  # since it was first sent; -1: unknown
    is_new: bool  # never sent before
    is_leased: bool  # another holder is sending it

    @property
    def remaining_ms(self) -> float:
        """The part of the key's window that is certainly left; unlimited for a sequence number."""
        if not self.window_ms:
            return float("inf")
        return self.window_ms - self.elapsed_ms if self.elapsed_ms >= 0 else 0


class Outbox:
    """A file of intents, shared by any number of threads and processes of one client."""

    def __init__(
        self, path: str | os.PathLike[str], *, server: str, client_id: str | None = None, clock: Clock | None = None
    ) -> None:
        self._path = Path(path)
        self._clock = clock or SystemClock()
        self._boot_id = boot_id() or ""
        self._holder = new_holder()
        self._nonce = new_nonce()
        self._lock = RLock()
        self._unwritten: list[Callable[[], None]] = []  # updates that could not be written yet
        if not self._path.exists():
            create_outbox_file(self._path, server=server, client_id=client_id or f"outbox-{self._nonce}")
        self._db = open_outbox_file(self._path)
        try:
            self.client_id = checked_owner(self._db, self._path, server=server, client_id=client_id)
            self._liveness_lock = LivenessLock(self._path, self._holder)
        except BaseException:
            self._db.close()
            raise

    def write(self, call: Call[Any], scope: str) -> Intent:
        """Store a submission with a given key; the same submission twice is one row."""
        assert call.key is not None
        with self._write_transaction():
            intent = self._find_intent("scope = ? AND key = ? AND sequence = 0", (scope, checked_key(call.key)))
            if intent is None:
                return self._insert(call, scope, 0)
            if intent.body != call.body:
                raise IdempotencyConflict(key=call.key, job_id="")
            self._lease(intent.id)
            return intent

    def write_with_new_key(self, scope: str, make_call: MakeCall) -> Intent:
        """Store a submission without a key: its key gets the next number of this file."""
        with self._write_transaction():
            sequence = self._read_counter(GENERATED_KEYS_COUNTER) + 1
            self._set_counter(GENERATED_KEYS_COUNTER, sequence)
            return self._insert(make_call(self._new_key(sequence, self._nonce)), scope, 0)

    def write_next_sequence(self, scope: str, last_committed: int, make_call: MakeCall) -> tuple[Intent, bool]:
        """Store the next sequence number, and True; or return the one that is still in progress, and False."""
        self._reclaim_dead_leases()
        with self._write_transaction():
            intent = self._find_intent("scope = ? AND sequence > 0", (scope,))
            if intent is not None:
                if not intent.is_leased:
                    self._lease(intent.id)
                return intent, False
            sequence = max(self._read_counter(f"scope {scope}"), last_committed) + 1
            self._set_counter(f"scope {scope}", sequence)
            return self._insert(make_call(self._new_key(sequence, new_nonce())), scope, sequence), True

    def claim(self, after: int = 0) -> Intent | None:
        """Lease the next row that is not leased, in the order they were written."""
        self._reclaim_dead_leases()
        with self._write_transaction():
            now = self._clock.wall_ms()  # read under the lock, so that no lease of another holder is in the future
            intent = self._find_intent("id > ? AND (held_until < ? OR held_until > ?)", (after, now, now + LEASE_MS))
            if intent is not None:
                self._lease(intent.id)
            return intent

    def settle(self, intent: Intent, *, executed: bool = True) -> bool:
        """Delete a row after a definite response; False if that could not be stored.

        A sequence number that was not executed is free again.
        """

        def delete() -> None:
            self._db.execute("DELETE FROM intent WHERE id = ?", (intent.id,))
            is_deleted, name = self._db.changes() > 0, f"scope {intent.scope}"
            if is_deleted and intent.sequence and not executed and self._read_counter(name) == intent.sequence:
                self._set_counter(name, intent.sequence - 1)

        return self._write_now_or_later(delete)

    def release(self, intent: Intent) -> bool:
        """End the lease of a row without a definite response, so that `claim` returns it; False if not stored."""

        def end_lease() -> None:
            self._db.execute("UPDATE intent SET held_until = 0 WHERE id = ? AND holder = ?", (intent.id, self._holder))

        return self._write_now_or_later(end_lease)

    def pending(self) -> list[str]:
        """The keys of all rows, which have no definite response yet."""
        with self._lock:
            return [str(key) for (key,) in self._db.execute("SELECT key FROM intent ORDER BY id")]

    def close(self) -> None:
        with self._lock:
            if self._unwritten:
                with suppress(StoreRefused, Unavailable), self._write_transaction():
                    pass
            self._db.close()
            self._liveness_lock.release()

    def _insert(self, call: Call[Any], scope: str, sequence: int) -> Intent:
        assert call.key is not None
        key = checked_key(call.key)
        now = self._clock.wall_ms()
        content = (scope, key, sequence, call.path, call.body, call.window_ms)
        self._db.execute(
            "INSERT INTO intent (scope, key, sequence, path, body, window_ms, mark, holder, held_until, sent_wall,"
            " sent_boot, sent_tick) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*content, _row_digest(*content), self._holder, now + LEASE_MS, now, self._boot_id, self._monotonic_ms()),
        )
        return Intent(self._db.last_insert_rowid(), *content, 0, True, False)

    def _find_intent(self, where: str, bindings: tuple[Any, ...]) -> Intent | None:
        rows = self._db.execute(
            "SELECT id, scope, key, sequence, path, body, window_ms, mark, held_until, sent_wall, sent_boot,"
            f" sent_tick FROM intent WHERE {where} ORDER BY id LIMIT 1",
            bindings,
        )
        for id, *content, digest, held_until, wall, boot, tick in rows:
            if _row_digest(*content) != digest:
                raise StoreRefused(f"{self._path} is damaged: an intent is not as it was written; restore the file")
            now = self._clock.wall_ms()
            is_leased = now <= held_until <= now + LEASE_MS
            fields: tuple[Any, ...] = (*content, self._elapsed(wall, boot, tick), False, is_leased)
            return Intent(id, *fields)
        return None

    def _elapsed(self, wall: int, boot: str, tick: int) -> int:
        elapsed = self._clock.wall_ms() - wall
        if boot and boot == self._boot_id:
            return max(elapsed, self._monotonic_ms() - tick)  # the wall clock may have been set back meanwhile
        return elapsed if elapsed >= 0 else -1

    def _reclaim_dead_leases(self) -> None:
        """End the leases of processes that no longer exist."""
        with self._write_transaction():
            holders = self._db.execute("SELECT DISTINCT holder FROM intent WHERE held_until > 0").fetchall()
            for (holder,) in holders:
                assert isinstance(holder, bytes)
                if holder != self._holder and is_holder_dead(self._path, holder):
                    self._db.execute("UPDATE intent SET held_until = 0 WHERE holder = ?", (holder,))

    def _lease(self, id: int) -> None:
        until = self._clock.wall_ms() + LEASE_MS
        self._db.execute("UPDATE intent SET holder = ?, held_until = ? WHERE id = ?", (self._holder, until, id))

    def _read_counter(self, name: str) -> int:
        for (last,) in self._db.execute("SELECT last FROM counter WHERE name = ?", (name,)):
            return int(last)
        return 0

    def _set_counter(self, name: str, last: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO counter (name, last) VALUES (?, ?)", (name, str(last)))

    def _new_key(self, sequence: int, nonce: str) -> IdempotencyKey:
        # The nonce keeps two counters, and a file that was restored from a backup, from producing the same key.
        return IdempotencyKey(self.client_id, sequence, nonce)

    def _monotonic_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _write_now_or_later(self, update: Callable[[], None]) -> bool:
        """For updates after the call was sent: that the file cannot be written does not change how the call ended.

        The update is written with the next one. If this process ends before that, the row stays as it is, and `resume`
        sends the same bytes again.
        """
        with self._lock:
            self._unwritten.append(update)
            try:
                with self._write_transaction():
                    pass
            except (StoreRefused, Unavailable) as error:
                cause = error.__cause__ or error
                log.warning("%s cannot be written (%s): resume() may send a submission again", self._path, cause)
                return False
            return True

    @contextmanager
    def _write_transaction(self) -> Iterator[None]:
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    for update in self._unwritten:
                        update()
                    yield
                    self._db.execute("COMMIT")
                    self._unwritten.clear()
                except BaseException:
                    with suppress(apsw.Error):
                        self._db.execute("ROLLBACK")
                    raise
            except (apsw.CorruptError, apsw.NotADBError) as error:
                raise StoreRefused(f"{self._path} is damaged ({error}); restore the file") from error
            except apsw.Error as error:
                raise Unavailable(f"{self._path} cannot be written ({error}): nothing was sent; correct it") from error


def _row_digest(*content: Any) -> bytes:
    """A digest of the row's content; each part is framed by its length, so that no two rows have the same."""
    digest = sha256()
    for part in content:
        data = part if isinstance(part, bytes) else str(part).encode()
        digest.update(b"%d:" % len(data) + data)
    return digest.digest()


def create_outbox_file(path: Path, *, server: str, client_id: str) -> None:
    """Create the file under another name and link it to its path: of several processes at once, one wins."""
    temporary = path.with_name(f".{path.name}.{new_nonce()}")
    try:
        # For its owner only, since it holds inputs. SQLite gives the journal the permissions of the file.
        os.close(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        db = apsw.Connection(str(temporary))
        try:
            db.execute("PRAGMA synchronous = EXTRA")
            db.execute("BEGIN")
            db.execute(SCHEMA)
            db.execute("INSERT INTO meta VALUES ('server', ?), ('client_id', ?)", (server, client_id))
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            db.execute("COMMIT")
        finally:
            db.close()
        with suppress(FileExistsError):
            os.link(temporary, path)
        _fsync_folder(path)
    except (OSError, apsw.Error) as error:
        raise Unavailable(f"{path} cannot be created ({error}): nothing was sent; correct it") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def open_outbox_file(path: Path) -> apsw.Connection:
    """Open an existing file; a file that is not a complete outbox is refused."""
    try:
        if not path.stat().st_size:
            raise StoreRefused(f"{path} is empty: it was truncated; restore it, or remove it to start over")
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            db.set_busy_timeout(BUSY_MS)
            db.execute("PRAGMA synchronous = FULL")
            _check_format(db, path)
            db.execute("PRAGMA journal_mode = WAL").fetchall()
        except BaseException:
            db.close()
            raise
        return db
    except (apsw.NotADBError, apsw.CorruptError) as error:
        raise StoreRefused(f"{path} is damaged or no outbox ({error}); restore it") from error
    except (apsw.Error, OSError) as error:
        raise Unavailable(f"{path} cannot be opened ({error}): nothing was sent; correct it") from error


def checked_owner(db: apsw.Connection, path: Path, *, server: str, client_id: str | None) -> str:
    """The client id of the file; a file of another client or for another server is refused."""
    meta = {str(name): str(value) for name, value in db.execute("SELECT name, value FROM meta")}
    if meta.get("server") != server:
        raise StoreRefused(
            f"{path} was created for {meta.get('server')}, and sending it to {server} could create second jobs; "
            "use its server, or another file"
        )
    owner = str(meta.get("client_id") or "")
    if not owner or client_id not in (None, owner):
        raise StoreRefused(f"{path} belongs to client {owner}; use that client id, or another file")
    return owner


def _check_format(db: apsw.Connection, path: Path) -> None:
    application = db.execute("PRAGMA application_id").fetchone()
    version = db.execute("PRAGMA user_version").fetchone()
    if application != (APPLICATION_ID,):
        raise StoreRefused(f"{path} is not an outbox; name another file")
    if version != (FORMAT_VERSION,):
        raise StoreRefused(f"{path} was written by a newer program; upgrade this one")
    if db.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
        raise StoreRefused(f"{path} is damaged; restore it")


def _fsync_folder(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class LivenessLock:
    """A lock file of one holder. The operating system releases the lock when the process ends."""

    def __init__(self, path: Path, holder: bytes) -> None:
        self._path = _lock_path(path, holder)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if fcntl is not None:
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def release(self) -> None:
        with suppress(OSError):
            self._path.unlink()
        os.close(self._file)


def is_holder_dead(path: Path, holder: bytes) -> bool:
    """True if the process of this holder has certainly ended; then its lock file is removed."""
    if fcntl is None:
        return False
    lock_path = _lock_path(path, holder)
    try:
        file = os.open(lock_path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        with suppress(OSError):
            lock_path.unlink()
        return True
    finally:
        os.close(file)


def _lock_path(path: Path, holder: bytes) -> Path:
    return path.with_name(f"{path.name}-{holder.hex()}.life")
