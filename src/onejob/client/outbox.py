"""Durable intent: key, number and bytes are on the disk before the first byte is sent; a crash loses none of them."""

# The rules of this file:
# 1. A row is synced before its call is sent, and leaves only after a definite answer.
# 2. A row never changes what it says. Whoever sends it sends the same bytes, so two who do make one job, and the
#    lease of a row only keeps them from working twice.
# 3. Of a sequence one number at a time is under way. The next is taken when the server has spoken about the last.
# 4. A file that is damaged, or of another client or server, is refused. It is made whole or not at all, so an
#    empty one is damaged too: to begin again at 1 would be to number other submissions alike.

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

from . import shelf
from .calls import Call
from .life import LivenessLock, is_holder_dead

LEASE_MS: Final = 180_000
GENERATED_KEYS_COUNTER: Final = (
    "keys"  # the counter of keys that nobody named; those of sequences are called by their scopes
)

MakeCall = Callable[[IdempotencyKey], Call]


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
            shelf.create_outbox_file(
                self._path, server=server, client_id=client_id or f"outbox-{self._nonce}"
            )
        self._db = shelf.open_outbox_file(self._path)
        try:
            self.client_id = shelf.checked_owner(self._db, self._path, server=server, client_id=client_id)
            self._liveness_lock = LivenessLock(self._path, self._holder)
        except BaseException:
            self._db.close()
            raise

    def write(self, call: Call, scope: str) -> Intent:
        """Keep a submission whose key was given; the same one twice is one row."""
        assert call.key is not None
        with self._write_transaction():
            found = self._find_intent(
                "scope = ? AND key = ? AND sequence = 0", (scope, checked_key(call.key))
            )
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
            now = (
                self._clock.wall_ms()
            )  # read once the turn is ours: what was held meanwhile is not of the future
            found = self._find_intent(
                "id > ? AND (held_until < ? OR held_until > ?)", (after, now, now + LEASE_MS)
            )
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
            self._db.execute(
                "UPDATE intent SET held_until = 0 WHERE id = ? AND holder = ?", (intent.id, self._holder)
            )

    def pending(self) -> list[str]:
        """The keys of everything that has no definite answer yet."""
        with self._lock:
            return [str(key) for (key,) in self._db.execute("SELECT key FROM intent ORDER BY id")]

    def close(self) -> None:
        with self._lock:
            self._db.close()
            self._liveness_lock.release()

    def _insert(self, call: Call, scope: str, sequence: int) -> Intent:
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
                raise StoreRefused(
                    f"{self._path} is damaged: an intent is not as it was written; restore the file"
                )
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
        self._db.execute(
            "UPDATE intent SET holder = ?, held_until = ? WHERE id = ?", (self._holder, until, id)
        )

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
                raise Unavailable(
                    f"{self._path} cannot be written ({error}): nothing was sent; mend it"
                ) from error


def _row_digest(*said: Any) -> bytes:
    """A digest of what a row says: each part framed by its length, so that no two rows look alike."""
    digest = sha256()
    for part in said:
        data = part if isinstance(part, bytes) else str(part).encode()
        digest.update(b"%d:" % len(data) + data)
    return digest.digest()
