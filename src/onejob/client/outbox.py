"""Durable intent: key, number and bytes are on the disk before the first byte is sent; a crash loses none of them."""

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

# The file of an outbox: made whole or not at all, and proved to be ours before anything is read from it.


APPLICATION_ID: Final = 0x6F6E656F  # "oneo"
FORMAT_VERSION: Final = 1
BUSY_MS: Final = 30_000
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


def create_outbox_file(path: Path, *, server: str, client_id: str) -> None:
    """Make the file beside its place and link it there: of several who do so at once, one wins."""
    made = path.with_name(f".{path.name}.{new_nonce()}")
    try:
        db = apsw.Connection(str(made))
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
            os.link(made, path)
        _fsync_folder(path)
    except (OSError, apsw.Error) as error:
        raise Unavailable(f"{path} cannot be made ({error}): nothing was sent; mend it") from error
    finally:
        with suppress(OSError):
            made.unlink()


def open_outbox_file(path: Path) -> apsw.Connection:
    """Open a file that exists; refused where it is not wholly ours."""
    try:
        if not path.stat().st_size:
            raise StoreRefused(f"{path} is empty: it was cut; restore it, or remove it to begin anew")
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
        raise Unavailable(f"{path} cannot be opened ({error}): nothing was sent; mend it") from error


def checked_owner(db: apsw.Connection, path: Path, *, server: str, client_id: str | None) -> str:
    """Whose file it is; refused where it was begun by another client or for another server."""
    meta = {str(name): str(value) for name, value in db.execute("SELECT name, value FROM meta")}
    if meta.get("server") != server:
        raise StoreRefused(
            f"{path} was begun for {meta.get('server')}, and sending it to {server} could make second jobs; "
            "use its own server, or another file"
        )
    owner = str(meta.get("client_id") or "")
    if not owner or client_id not in (None, owner):
        raise StoreRefused(f"{path} belongs to client {owner}; use that client id, or another file")
    return owner


def _check_format(db: apsw.Connection, path: Path) -> None:
    application = db.execute("PRAGMA application_id").fetchone()
    version = db.execute("PRAGMA user_version").fetchone()
    if application != (APPLICATION_ID,):
        raise StoreRefused(f"{path} is no outbox; name another file")
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


# Whether a holder still lives, told by the system: a lock on a file, which ends with the process that has it.


try:
    import fcntl
except ImportError:  # not on Windows: there a lease must run out
    fcntl = None  # type: ignore[assignment]  # the one word for "not here"


class LivenessLock:
    """A file beside an outbox, locked for as long as its process lives."""

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
    """Whether this holder has surely ended; its file is removed then."""
    if fcntl is None:
        return False
    place = _lock_path(path, holder)
    try:
        file = os.open(place, os.O_RDWR | os.O_CLOEXEC)
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
            place.unlink()
        return True
    finally:
        os.close(file)


def _lock_path(path: Path, holder: bytes) -> Path:
    return path.with_name(f"{path.name}-{holder.hex()}.life")


# The rules of this file:
# 1. A row is synced before its call is sent, and leaves only after a definite answer.
# 2. A row never changes what it says. Whoever sends it sends the same bytes, so two who do make one job, and the
#    lease of a row only keeps them from working twice.
# 3. Of a sequence one number at a time is under way. The next is taken when the server has spoken about the last.
# 4. A file that is damaged, or of another client or server, is refused. It is made whole or not at all, so an
#    empty one is damaged too: to begin again at 1 would be to number other submissions alike.


LEASE_MS: Final = 180_000
GENERATED_KEYS_COUNTER: Final = (
    "keys"  # the counter of keys that nobody named; those of sequences are called by their scopes
)

MakeCall = Callable[[IdempotencyKey], Call[Any]]


class Intent(Struct, frozen=True):
    """One row: what is to be sent, and what is known of earlier attempts."""

    id: int
    scope: str
    key: str
    sequence: int  # 0: not a number of a sequence
    path: str
    body: bytes
    window_ms: int
    elapsed_ms: int  # since it was first sent; -1: the clocks cannot tell
    is_new: bool  # nobody may have sent it before
    is_leased: bool  # somebody is at it

    @property
    def remaining_ms(self) -> float:
        """How much of the key's window is surely left; a number of a sequence needs none."""
        if not self.window_ms:
            return float("inf")
        return self.window_ms - self.elapsed_ms if self.elapsed_ms >= 0 else 0


class Outbox:
    """A file of intents, shared by any number of threads and processes of one client."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        server: str,
        client_id: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._path = Path(path)
        self._clock = clock or SystemClock()
        self._boot_id = boot_id() or ""
        self._holder = new_holder()
        self._nonce = new_nonce()
        self._lock = RLock()
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
        """Keep a submission whose key was given; the same one twice is one row."""
        assert call.key is not None
        with self._write_transaction():
            found = self._find_intent("scope = ? AND key = ? AND sequence = 0", (scope, checked_key(call.key)))
            if found is None:
                return self._insert(call, scope, 0)
            if found.body != call.body:
                raise IdempotencyConflict(key=call.key, job_id="")
            self._lease(found.id)
            return found

    def write_with_new_key(self, scope: str, make: MakeCall) -> Intent:
        """Keep a submission that nobody named: its key has the next number of this file."""
        with self._write_transaction():
            sequence = self._read_counter(GENERATED_KEYS_COUNTER) + 1
            self._set_counter(GENERATED_KEYS_COUNTER, sequence)
            return self._insert(make(self._new_key(sequence, self._nonce)), scope, 0)

    def write_next_sequence(self, scope: str, last_committed: int, make: MakeCall) -> tuple[Intent, bool]:
        """Keep the next number of a sequence; or get the one that is still under way, and False."""
        self._reclaim_dead_leases()
        with self._write_transaction():
            found = self._find_intent("scope = ? AND sequence > 0", (scope,))
            if found is not None:
                if not found.is_leased:
                    self._lease(found.id)
                return found, False
            sequence = max(self._read_counter(f"scope {scope}"), last_committed) + 1
            self._set_counter(f"scope {scope}", sequence)
            return self._insert(make(self._new_key(sequence, new_nonce())), scope, sequence), True

    def claim(self, after: int = 0) -> Intent | None:
        """Take the next row that nobody is at, in the order they were written."""
        self._reclaim_dead_leases()
        with self._write_transaction():
            now = self._clock.wall_ms()  # read once the turn is ours: what was held meanwhile is not of the future
            found = self._find_intent("id > ? AND (held_until < ? OR held_until > ?)", (after, now, now + LEASE_MS))
            if found is not None:
                self._lease(found.id)
            return found

    def settle(self, intent: Intent, *, executed: bool = True) -> None:
        """The server has spoken: the row leaves. A number that was not executed is free again."""
        with self._write_transaction():
            self._db.execute("DELETE FROM intent WHERE id = ?", (intent.id,))
            name = f"scope {intent.scope}"
            if intent.sequence and not executed and self._read_counter(name) == intent.sequence:
                self._set_counter(name, intent.sequence - 1)

    def release(self, intent: Intent) -> None:
        """Nothing is known yet: whoever resumes may have it."""
        with self._write_transaction():
            self._db.execute("UPDATE intent SET held_until = 0 WHERE id = ? AND holder = ?", (intent.id, self._holder))

    def pending(self) -> list[str]:
        """The keys of everything that has no definite answer yet."""
        with self._lock:
            return [str(key) for (key,) in self._db.execute("SELECT key FROM intent ORDER BY id")]

    def close(self) -> None:
        with self._lock:
            self._db.close()
            self._liveness_lock.release()

    def _insert(self, call: Call[Any], scope: str, sequence: int) -> Intent:
        assert call.key is not None
        key = checked_key(call.key)
        now = self._clock.wall_ms()
        said = (scope, key, sequence, call.path, call.body, call.window_ms)
        self._db.execute(
            "INSERT INTO intent (scope, key, sequence, path, body, window_ms, mark, holder, held_until, sent_wall,"
            " sent_boot, sent_tick) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *said,
                _row_digest(*said),
                self._holder,
                now + LEASE_MS,
                now,
                self._boot_id,
                self._monotonic_ms(),
            ),
        )
        return Intent(self._db.last_insert_rowid(), *said, 0, True, False)

    def _find_intent(self, where: str, bindings: tuple[Any, ...]) -> Intent | None:
        rows = self._db.execute(
            "SELECT id, scope, key, sequence, path, body, window_ms, mark, held_until, sent_wall, sent_boot,"
            f" sent_tick FROM intent WHERE {where} ORDER BY id LIMIT 1",
            bindings,
        )
        for id, *said, mark, held_until, wall, boot, tick in rows:
            if _row_digest(*said) != mark:
                raise StoreRefused(f"{self._path} is damaged: an intent is not as it was written; restore the file")
            now = self._clock.wall_ms()
            held = now <= held_until <= now + LEASE_MS
            known: tuple[Any, ...] = (*said, self._elapsed(wall, boot, tick), False, held)
            return Intent(id, *known)
        return None

    def _elapsed(self, wall: int, boot: str, tick: int) -> int:
        since = self._clock.wall_ms() - wall
        if boot and boot == self._boot_id:
            return max(since, self._monotonic_ms() - tick)  # the wall clock may have been set back meanwhile
        return since if since >= 0 else -1

    def _reclaim_dead_leases(self) -> None:
        """What a dead process held is free at once."""
        with self._write_transaction():
            held = self._db.execute("SELECT DISTINCT holder FROM intent WHERE held_until > 0").fetchall()
            for (holder,) in held:
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
        # The nonce keeps two counters, and two lives of a file that was restored, from making the same key.
        return IdempotencyKey(self.client_id, sequence, nonce)

    def _monotonic_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    @contextmanager
    def _write_transaction(self) -> Iterator[None]:
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    yield
                    self._db.execute("COMMIT")
                except BaseException:
                    with suppress(apsw.Error):
                        self._db.execute("ROLLBACK")
                    raise
            except (apsw.CorruptError, apsw.NotADBError) as error:
                raise StoreRefused(f"{self._path} is damaged ({error}); restore the file") from error
            except apsw.Error as error:
                raise Unavailable(f"{self._path} cannot be written ({error}): nothing was sent; mend it") from error


def _row_digest(*said: Any) -> bytes:
    """A digest of what a row says: each part framed by its length, so that no two rows look alike."""
    digest = sha256()
    for part in said:
        data = part if isinstance(part, bytes) else str(part).encode()
        digest.update(b"%d:" % len(data) + data)
    return digest.digest()
