"""The replica: the facts of the log in a local SQLite file, with the tables and queries of the SQLite engine.

The file may be lost at any time: it is not synced, and the log has everything. It belongs to one process, which holds a
lock on it. It names the ledger, the boot, the user, its position in the log and the digest of the last entry; whatever
does not fit is discarded, because after a power cut an unsynced file may hold pages that are valid but old.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import apsw
from msgspec.structs import replace

from onejob.clock import boot_id
from onejob.core.batch import execute_isolating_failures
from onejob.core.command import Command
from onejob.core.facts import Attachment, AttachmentKind, Job, Kind, NewerFormat
from onejob.core.identity import format_job_id, policy_id
from onejob.core.maintenance import ERASURE_POLICY_NAME
from onejob.core.replies import AnyReply
from onejob.engine import ListAttachments, ListInputs, Page, Query
from onejob.engines.codec import TABLES, RowChanges, fact_from_row, to_row_changes, u64_to_signed
from onejob.engines.sql import load_migrations
from onejob.engines.sqlite import SqliteStore, queries, schema
from onejob.errors import Outdated, StoreRefused, Unavailable
from onejob.settings import cache_folder

from .log import (
    ACCEPT_LOSS,
    LEDGER_NAME,
    PAYLOAD_BYTES_MIN,
    RESTORE,
    LogEntry,
    LogPart,
    describe_break,
    first_digest,
    origin_of,
)
from .view import ViewObject, record_name, render_record, render_task, task_name

T = TypeVar("T")

ERASURE_POLICY_ID: Final = policy_id("", ERASURE_POLICY_NAME)
_SLOTS_MAX: Final = 256
_SUFFIXES: Final = ("", "-wal", "-shm")
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS replica (
    boot_id TEXT NOT NULL, owner TEXT NOT NULL, digest BLOB NOT NULL, at INTEGER NOT NULL,
    log_bytes INTEGER NOT NULL, snapshot INTEGER NOT NULL, snapshot_bytes INTEGER NOT NULL, snapshot_at INTEGER NOT NULL
);
INSERT INTO replica SELECT '', '', x'', 0, 0, 0, 0, 0 WHERE NOT EXISTS (SELECT 1 FROM replica);

-- Attachments whose data is an object of its own.
CREATE TABLE IF NOT EXISTS payload (
    job_id BLOB NOT NULL, kind INTEGER NOT NULL, "index" INTEGER NOT NULL, digest BLOB NOT NULL, bytes INTEGER NOT NULL,
    PRIMARY KEY (job_id, kind, "index")
) WITHOUT ROWID;

-- Objects of the view that are not known to be written.
CREATE TABLE IF NOT EXISTS view_pending (
    name TEXT NOT NULL PRIMARY KEY, kind INTEGER NOT NULL, id BLOB NOT NULL, entry INTEGER NOT NULL
) WITHOUT ROWID;
"""
_REPLICA_FIELDS: Final = "digest, at, log_bytes, snapshot, snapshot_bytes, snapshot_at"
_RECORD_NAME_FIELDS: Final = "tenant, scope, key, id, user"


class Replica:
    """Blocking, and used from one thread at a time. A batch is decided in a transaction that stays open until its entry is
    in the log; another connection reads meanwhile what was committed."""

    def __init__(self, file: "ReplicaFile", latest_ms: Callable[[], int], *, view: bool) -> None:
        self._file = file
        self._latest_ms = latest_ms
        self._view = view
        self._owner = str(os.getuid())
        self._boot = boot_id() or ""
        self._store: SqliteStore | None = None
        self._reads: SqliteStore | None = None
        self._written: list[tuple[str, int]] = []  # of the view, not yet noted
        self._decided_at = 0
        self.ledger_ids: Sequence[str] = ("",)  # the last is served
        self.state = LogState(0, b"", 0, 0, 0, 0, 0)

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def ledger_id(self) -> str:
        return self.ledger_ids[-1]

    def now(self) -> int:
        return max(self._latest_ms(), self.state.at)

    def open(self, *, discard: bool = False) -> None:
        """Open the file as it was left, or an empty one if it does not fit."""
        self.close()
        try:
            if self.path.exists() and self._boot and not discard:
                self._connect()
                row = self._fetch("SELECT boot_id, owner FROM replica")
                assert self._store is not None
                if tuple(row) == (self._boot, self._owner) and self._is_current(self._store.ledger.id):
                    return
        except LostLedger:
            raise
        except (apsw.Error, OSError, StoreRefused):
            pass  # it is made again below
        self.reset()

    def _is_current(self, ledger_id: str) -> bool:
        if origin_of(ledger_id) == origin_of(self.ledger_id) and ledger_id not in self.ledger_ids:
            raise LostLedger(
                f"{LEDGER_NAME} does not name the ledger {ledger_id}, which this machine has seen here: an older copy was "
                f"put back, and answered keys would be new; {RESTORE}, or serve what is left as a new ledger: {ACCEPT_LOSS} on "
                f"this machine (if that was done on another one, remove the replicas {self._file.pattern})"
            )
        return ledger_id == self.ledger_id

    def read_marks(self) -> "list[Mark]":
        """How far the replicas of other processes on this machine have come."""
        return [mark for ledger_id, mark in self._read_others() if self._is_current(ledger_id)]

    def list_lost_ledgers(self) -> list[str]:
        """The ledgers that this machine has seen in this bucket, and that onejob.json does not name."""
        found = {id: None for id, _ in self._read_others() if origin_of(id) == origin_of(self.ledger_id)}
        return [id for id in found if id not in self.ledger_ids]

    def _read_others(self) -> "list[tuple[str, Mark]]":
        """The replicas of this boot and user, by the ids of their ledgers. One that cannot be read says nothing."""
        found = []
        for path in self._file.list_others():
            try:
                with closing(schema.connect(str(path), synchronous="OFF")) as db:
                    ledger, row = schema.read_ledger(db), db.execute("SELECT boot_id, owner, digest FROM replica").get
            except (apsw.Error, OSError, StoreRefused):
                continue
            if row[:2] == (self._boot, self._owner) and ledger.generation:
                found.append((ledger.id, Mark(ledger.generation, row[2])))
        return found

    def refuse_running(self) -> None:
        """Before the loss of what others have seen is accepted: a process that is ahead would go on in the old ledger."""
        used = self._file.find_used()
        if used is not None:
            raise Unavailable(
                f"another process on this machine serves this bucket (`fuser {used}.lock` names it): nothing was done; stop all "
                "that use it, here and on other machines, then retry"
            )

    def reset(self) -> None:
        """Begin with an empty file, before the first entry."""
        self.close()
        self._file.remove()
        schema.prepare_file(str(self.path), create=True)
        self._connect()
        self._writer().db.execute("UPDATE replica SET digest = ?", (first_digest(origin_of(self.ledger_id)),))
        self._adopt()

    def verify_snapshot(self, snapshot: Path, name: str) -> "Mark":
        """Where in the log it is, before anything is replaced by it."""
        try:
            with closing(schema.connect(str(snapshot), synchronous="OFF")) as db:
                if db.pragma("user_version") > _count_migrations():
                    raise StoreRefused(f"{name} was made by a newer program; upgrade this one")
                ledger, digest = schema.read_ledger(db), db.execute("SELECT digest FROM replica").get
        except (apsw.Error, OSError) as error:
            raise StoreRefused(f"{name} cannot be read ({error}); {RESTORE}") from None
        if ledger.id not in self.ledger_ids:
            raise StoreRefused(
                f"{name} is of another ledger than {LEDGER_NAME}; restore both from one copy of the bucket"
            )
        return Mark(ledger.generation, digest)

    def load(self, snapshot: Path, *, bytes: int, at: int) -> None:
        """Begin with a file that another process, or an earlier one, has made. It is verified."""
        self.close()
        self._file.remove()
        os.replace(snapshot, self.path)
        self._connect()
        assert self._store is not None
        self._store.db.execute(
            "UPDATE replica SET log_bytes = 0, snapshot = ?, snapshot_bytes = ?, snapshot_at = ?",
            (self._store.ledger.generation, bytes, at),
        )
        self._adopt()

    def _connect(self) -> None:
        writer = schema.connect(str(self.path), synchronous="OFF")
        try:
            if writer.pragma("user_version") > _count_migrations():
                raise StoreRefused("the replica was made by a newer program; upgrade this one")
            schema.migrate(writer, str(self.path))
            writer.execute(_TABLES)
            ledger = schema.read_ledger(writer)
            reader = schema.connect(str(self.path), synchronous="OFF")
        except BaseException:
            writer.close()
            raise
        self._store = SqliteStore(writer, lambda: self._decided_at, ledger)
        self._reads = SqliteStore(reader, self.now, ledger)
        self._refresh()

    def _adopt(self) -> None:
        assert self._store is not None
        db = self._store.db
        db.execute("UPDATE replica SET boot_id = ?, owner = ?", (self._boot, self._owner))
        db.execute("UPDATE ledger SET id = ?", (self.ledger_id,))
        self._store.ledger = schema.read_ledger(db)
        self._refresh()

    def _refresh(self) -> None:
        """Read where the replica is, after a commit."""
        assert self._store is not None
        row = self._fetch(f"SELECT {_REPLICA_FIELDS} FROM replica")
        self._store.ledger = schema.read_ledger(self._store.db)
        self.state = LogState(self._store.ledger.generation, *row)
        self._written = [] if not self._store.db.in_transaction else self._written

    def close(self) -> None:
        stores, self._store, self._reads = (self._reads, self._store), None, None
        for store in stores:
            if store is not None:
                store.rollback()
                with suppress(apsw.Error):  # a damaged file is removed or rebuilt
                    store.db.close(True)

    def release(self) -> None:
        self.close()
        self._file.release()

    def _writer(self) -> SqliteStore:
        if self._store is None:
            raise Unavailable("the local replica is closed; retry")
        return self._store

    def _reader(self) -> SqliteStore:
        if self._reads is None:
            raise Unavailable("the local replica is closed; retry")
        return self._reads

    def decide(self, commands: Sequence[Command[Any]]) -> "Decided":
        """Decide a batch and store it in a transaction, which stays open if anything changed."""
        store = self._writer()
        store.rollback()
        store.begin()
        self._decided_at = at = self.now()  # one time for the batch and its entry
        parts: list[LogPart] = []
        payloads: list[Payload] = []

        def decide_part(some: Sequence[Command[Any]]) -> list[AnyReply]:
            store.db.execute("SAVEPOINT part")
            try:
                replies, changes = store.decide(some)
                if changes:
                    part, large = _split_payloads(to_row_changes(changes))
                    self._save(store, part)
                    parts.append(part)
                    payloads.extend(large)
            except BaseException:
                with suppress(apsw.Error):  # the first error is reported; it may have ended the transaction
                    store.db.execute("ROLLBACK TO part")
                    store.db.execute("RELEASE part")
                raise
            store.db.execute("RELEASE part")
            return replies

        try:
            # Nothing is sent yet, so a failure of the replica is certain whatever was decided before.
            replies = execute_isolating_failures(
                decide_part, commands, lambda error, _: store.raise_store_failure(error, 0)
            )
        except BaseException:
            store.rollback()
            raise
        if not parts:
            store.rollback()
        return Decided(replies, parts, payloads, at)

    def commit(self, entry: LogEntry) -> "ViewChanges":
        """Commit the open transaction, whose entry is in the log."""
        store = self._writer()
        committed = self._note_view(entry.parts, entry.position)
        self._advance(entry)
        store.db.execute("COMMIT")
        self._refresh()
        return committed

    def rollback(self) -> None:
        if self._store is not None:
            self._store.rollback()

    def apply(self, entries: Sequence[LogEntry]) -> None:
        """Store entries of others in one transaction."""
        store = self._writer()
        store.rollback()
        store.begin()
        try:
            previous = self.state.digest
            for entry in entries:
                if entry.position != store.ledger.generation + 1 or entry.previous != previous:
                    raise BrokenLog(entry.position)
                for part in entry.parts:
                    self._save(store, part)
                self._note_view(entry.parts, entry.position)
                self._advance(entry)
                store.ledger = schema.LedgerState(store.ledger.id, entry.position)
                previous = entry.digest
            store.db.execute("COMMIT")
        finally:
            store.rollback()
            self._refresh()

    def _advance(self, entry: LogEntry) -> None:
        store = self._writer()
        self._flush_written()
        # Without a snapshot, its age counts from the first entry.
        store.db.execute(
            "UPDATE replica SET digest = ?, at = ?2, log_bytes = log_bytes + ?, "
            "snapshot_at = CASE snapshot_at WHEN 0 THEN ?2 ELSE snapshot_at END",
            (entry.digest, entry.at, len(entry.data)),
        )
        store.advance_generation()

    def _save(self, store: SqliteStore, part: LogPart) -> None:
        rows = part.rows
        if rows.deletes or rows.trims:
            self._note_drops([part], store.ledger.generation + 1)
        store.save(rows)
        jobs = [(id,) for id, _ in rows.deletes.get(Kind.JOB, ())]
        store.db.executemany("DELETE FROM payload WHERE job_id = ?", jobs)
        store.db.executemany('DELETE FROM payload WHERE job_id = ? AND kind = ? AND "index" = ?', rows.trims)
        store.db.executemany("INSERT INTO payload VALUES (?, ?, ?, ?, ?)", part.payloads)

    def _note_drops(self, parts: Iterable[LogPart], entry: int) -> None:
        """Before facts are deleted: the names of their objects cannot be known afterwards."""
        if not self._view:
            return
        db = self._writer().db
        for part in parts:
            for id, _ in part.rows.deletes.get(Kind.RECORD, ()):
                rows: Any = db.execute(f"SELECT {_RECORD_NAME_FIELDS} FROM record WHERE id = ?", (id,)).fetchall()
                for row in rows:
                    self._mark_pending(record_name(*row), Kind.RECORD, id, entry)
            for id, _ in part.rows.deletes.get(Kind.JOB, ()):
                for (tenant,) in db.execute("SELECT tenant FROM job WHERE id = ?", (id,)).fetchall():
                    self._mark_pending(task_name(str(tenant), id), Kind.JOB, id, entry)

    def _note_view(self, parts: Sequence[LogPart], entry: int) -> "ViewChanges":
        """Note the objects of the view that these changes concern."""
        created: list[str] = []
        changed: list[str] = []
        if self._view:
            for part in parts:
                created += self._note_rows(part.rows.inserts, entry)
                changed += self._note_rows(
                    {kind: [row for row, _ in updates] for kind, updates in part.rows.updates.items()}, entry
                )
                if part.rows.deletes:
                    changed += [
                        str(name)
                        for (name,) in self._writer().db.execute(
                            "SELECT name FROM view_pending WHERE entry = ?", (entry,)
                        )
                    ]
        return ViewChanges(created, changed)

    def _note_rows(self, rows: dict[Kind, list[Sequence[Any]]], entry: int) -> list[str]:
        names: list[str] = []
        for row in rows.get(Kind.RECORD, ()):
            record = fact_from_row(Kind.RECORD, row)
            names.append(record_name(record.tenant, record.scope, record.key, record.id, record.user))
            self._mark_pending(names[-1], Kind.RECORD, record.id, entry)
        for row in rows.get(Kind.JOB, ()):
            names.append(task_name(row[1], row[0]))
            self._mark_pending(names[-1], Kind.JOB, row[0], entry)
        return names

    def _mark_pending(self, name: str, kind: Kind, id: bytes, entry: int) -> None:
        self._writer().db.execute(
            "INSERT INTO view_pending VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET id = ?3, entry = ?4",
            (name, int(kind), id, entry),
        )

    def run_at(self, position: int, work: Callable[..., T], *args: Any) -> T:
        """Run a read if the replica is not behind a position; it may have been discarded and not caught up yet."""
        if self._reads is None or self.state.position < position:
            raise BehindLog
        return work(*args)

    def read(self, commands: Sequence[Command[Any]]) -> list[AnyReply]:
        return self._reader().read(commands)

    def scan(self, query: Query[T]) -> "tuple[Page[T], dict[int, Payload]]":
        """A page, and for those of its attachments that are objects of their own what they must be."""
        db = self._reader().db
        page = queries.run_query(db, query, self.now())
        large: dict[int, Payload] = {}
        if isinstance(query, (ListAttachments, ListInputs)):
            for n, item in enumerate(page.items):
                assert isinstance(item, Attachment)
                place = (item.job_id, int(item.kind), u64_to_signed(item.index))
                if not item.data and (found := self._find_payload(*place)) is not None:
                    large[n] = found
        return page, large

    def _find_payload(self, job_id: bytes, kind: int, index: int) -> "Payload | None":
        row: Any = (
            self._reader()
            .db.execute(
                'SELECT digest FROM payload WHERE job_id = ? AND kind = ? AND "index" = ?', (job_id, kind, index)
            )
            .fetchone()
        )
        return None if row is None else Payload(payload_name(job_id, kind, index, row[0]), row[0], b"")

    def list_payloads(self) -> "list[Payload]":
        rows: Any = self._reader().db.execute('SELECT job_id, kind, "index", digest FROM payload')
        return [Payload(payload_name(*row), row[3], b"") for row in rows]

    def list_payloads_dropped_by(self, parts: Sequence[LogPart]) -> list[str]:
        """Asked before the commit, on what is committed."""
        names: list[str] = []
        db = self._reader().db
        for part in parts:
            for id, _ in part.rows.deletes.get(Kind.JOB, ()):
                rows: Any = db.execute('SELECT job_id, kind, "index", digest FROM payload WHERE job_id = ?', (id,))
                names += [payload_name(*row) for row in rows]
            for job_id, kind, index in part.rows.trims:
                if (found := self._find_payload(job_id, kind, index)) is not None:
                    names.append(found.name)
        return names

    def list_pending_view(self, limit: int) -> list[str]:
        rows: Any = self._reader().db.execute("SELECT name FROM view_pending ORDER BY entry LIMIT ?", (limit,))
        return [name for (name,) in rows]

    def render_view(self, names: Sequence[str]) -> list[ViewObject]:
        """What the objects should be now; those that are not pending any more are left out."""
        found: list[ViewObject] = []
        for name in names:
            row: Any = (
                self._reader().db.execute("SELECT kind, id, entry FROM view_pending WHERE name = ?", (name,)).fetchone()
            )
            if row is not None:
                found.append(ViewObject(name, self.render_fact(Kind(row[0]), row[1], row[2]), row[2]))
        return found

    def list_view_names(self, kind: Kind, after: bytes, limit: int) -> list[tuple[str, bytes]]:
        """The objects that the view should have, by the ids of their facts."""
        fields = _RECORD_NAME_FIELDS if kind is Kind.RECORD else "tenant, id"
        rows: Any = self._reader().db.execute(
            f"SELECT {fields} FROM {TABLES[kind]} WHERE id > ? ORDER BY id LIMIT ?", (after, limit)
        )
        if kind is Kind.RECORD:
            return [(record_name(*row), row[3]) for row in rows]
        return [(task_name(*row), row[1]) for row in rows]

    def render_fact(self, kind: Kind, id: bytes, entry: int) -> bytes | None:
        if kind is Kind.RECORD:
            record = self._find_fact(Kind.RECORD, id)
            return None if record is None else render_record(record, self._find_fact(Kind.JOB, record.job_id), entry)
        job: Job | None = self._find_fact(Kind.JOB, id)
        if job is None:
            return None
        kind_of_input = int(AttachmentKind.INPUT)
        row: Any = (
            self._reader()
            .db.execute(
                'SELECT data FROM attachment WHERE job_id = ? AND kind = ? AND "index" = 0', (id, kind_of_input)
            )
            .fetchone()
        )
        large = self._find_payload(id, kind_of_input, 0)
        return render_task(job, row and row[0], large.name if large else "", entry)

    def _find_fact(self, kind: Kind, id: bytes) -> Any:
        rows = self._reader().select(kind, [id]) if id else []
        return fact_from_row(kind, rows[0]) if rows else None

    def clear_pending_view(self, written: Sequence[ViewObject]) -> None:
        """Forget what is written; while a batch is open, with the next commit."""
        self._written += [(view_object.name, view_object.entry) for view_object in written]
        if not self._writer().db.in_transaction:
            self._flush_written()

    def _flush_written(self) -> None:
        self._writer().db.executemany("DELETE FROM view_pending WHERE name = ? AND entry <= ?", self._written)

    def forget_view_before(self, entry: int) -> None:
        """Another process has written the view up to an entry."""
        self._writer().db.execute("DELETE FROM view_pending WHERE entry <= ?", (entry,))

    def copy_to(self, path: Path) -> "LogState":
        """Copy what is committed, page by page. On connections of its own, so that it may run in another thread."""
        schema.prepare_file(str(path), create=True)
        source = schema.connect(str(self.path), synchronous="OFF")
        target = schema.connect(str(path), synchronous="OFF")
        try:
            # Write the first page, which says that pages have checksums: pages that leave the cache before it get none.
            target.execute("PRAGMA user_version = 1")
            with target.backup("main", source, "main") as backup:
                backup.step()
            target.execute("PRAGMA journal_mode = DELETE")
            target.execute("VACUUM")  # nothing of deleted rows is left in free pages
            row: Any = target.execute(f"SELECT {_REPLICA_FIELDS} FROM replica").fetchone()
            return LogState(schema.read_ledger(target).generation, *row)
        finally:
            target.close()
            source.close()

    def erasure_requested_at(self) -> int:
        """When a tenant was purged for the last time; 0: never."""
        rows = self._reader().select(Kind.POLICY, [ERASURE_POLICY_ID])
        return int(fact_from_row(Kind.POLICY, rows[0]).changed_at) if rows else 0

    def summarize(self) -> "Summary":
        db = self._reader().db
        keys, jobs = (int(db.execute(f"SELECT count(*) FROM {TABLES[kind]}").get) for kind in (Kind.RECORD, Kind.JOB))
        return Summary(self.ledger_id, self.state.position, int(db.pragma("user_version")), keys, jobs, self.state.at)

    def note_snapshot(self, position: int, bytes: int, at: int, log_bytes: int) -> None:
        """A snapshot was made when the log had grown by this many bytes."""
        self._writer().db.execute(
            "UPDATE replica SET snapshot = ?, snapshot_bytes = ?, snapshot_at = ?, log_bytes = max(0, log_bytes - ?)",
            (position, bytes, at, log_bytes),
        )
        self._refresh()

    def _fetch(self, sql: str) -> Any:
        assert self._store is not None
        return self._store.db.execute(sql).fetchone()


class LogState(NamedTuple):
    """Where a replica is in the log, and what the log has grown since the last snapshot."""

    position: int
    digest: bytes  # of the last entry
    at: int
    log_bytes: int
    snapshot: int
    snapshot_bytes: int
    snapshot_at: int


class Mark(NamedTuple):
    """An entry that a process of this machine has seen: the log must have it, or have deleted it behind a snapshot."""

    position: int
    digest: bytes  # empty: it is not known


class Summary(NamedTuple):
    """What is in a bucket."""

    ledger_id: str
    commits: int
    schema_version: int
    keys: int
    jobs: int
    last_change_at: int


class Payload(NamedTuple):
    name: str
    digest: bytes
    data: bytes


class Decided(NamedTuple):
    """A batch that is decided and stored in the open transaction of the replica."""

    replies: list[AnyReply]
    parts: list[LogPart]
    payloads: list[Payload]  # to be put before the entry
    at: int


class ViewChanges(NamedTuple):
    """The objects of the view that an entry concerns."""

    created: list[str]
    changed: list[str]


def payload_name(job_id: bytes, kind: int, index: int, digest: bytes) -> str:
    return f"payload/{format_job_id(job_id)}/{AttachmentKind(kind).name.lower()}-{index}-{digest.hex()}"


class ReplicaFile:
    """A file that no other process uses: the first whose lock can be had, or a temporary one, which leaves all as they are."""

    def __init__(self, folder: str, place: str, *, temporary: bool = False) -> None:
        root = Path(folder) if folder else cache_folder()
        self._place = place
        self._temporary: Path | None = None
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            # No home folder. A fixed name in the temporary folder could be somebody else's.
            root = self._temporary = Path(tempfile.mkdtemp(prefix="onejob-"))
        self._root = root
        if temporary:
            root = Path(tempfile.mkdtemp(prefix="onejob-", dir=root))
            self._temporary = self._temporary or root
        for number in range(_SLOTS_MAX):
            self.path = root / f"bucket-{place}-{number}.db"
            self._lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                os.close(self._lock)
        raise Unavailable(
            f"{_SLOTS_MAX} processes use replicas in {root}; name another folder with replica= in the URL"
        )

    def list_others(self) -> list[Path]:
        """The replicas of other processes on the same bucket, whether they run or not. They may come and go meanwhile."""
        begin, end = self.pattern.name.split("*")
        found: list[Path] = []
        with suppress(FileNotFoundError):
            found = [
                self._root / name for name in os.listdir(self._root) if name.startswith(begin) and name.endswith(end)
            ]
        return [path for path in found if path != self.path and _has_content(path)]

    def find_used(self) -> Path | None:
        """The replica of another process that runs."""
        for number in range(_SLOTS_MAX):
            path = self._root / f"bucket-{self._place}-{number}.db"
            try:
                lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError:  # nobody has had this place, or it is another user's
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if path != self.path:
                    return path
            finally:
                os.close(lock)
        return None

    @property
    def pattern(self) -> Path:
        return self._root / f"bucket-{self._place}-*.db"

    def remove(self) -> None:
        for suffix in _SUFFIXES:
            with suppress(FileNotFoundError):
                os.remove(f"{self.path}{suffix}")

    def release(self) -> None:
        os.close(self._lock)
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


class LostLedger(StoreRefused):
    """The bucket does not know a ledger that this machine has seen in it."""


class BehindLog(Exception):
    """The replica lacks entries that it had: it is being reopened."""


class BrokenLog(Exception):
    """An entry does not continue what the replica has: the log is damaged, or was put back."""

    def __init__(self, position: int) -> None:
        super().__init__(describe_break(position))
        self.position = position


def _count_migrations() -> int:
    return len(load_migrations(schema.__package__ or ""))


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False


def to_replica_failure(replica: Replica, error: Exception) -> Exception:
    if isinstance(error, NewerFormat):
        return Outdated(str(error))
    if isinstance(error, apsw.FullError):
        return Unavailable(
            f"the disk of the local replica {replica.path} is full: nothing was done; free some space, then retry"
        )
    return Unavailable(
        f"the local replica {replica.path} failed ({error}): nothing was done; it is being rebuilt, retry"
    )


def _split_payloads(rows: RowChanges) -> tuple[LogPart, list[Payload]]:
    """Take large attachments out of the rows; what is left of them is empty."""
    if not any(len(data) > PAYLOAD_BYTES_MIN for _, _, _, data in rows.attachments):
        return LogPart(rows), []
    kept, named, payloads = [], [], []
    for job_id, kind, index, data in rows.attachments:
        if len(data) > PAYLOAD_BYTES_MIN:
            digest = sha256(data).digest()
            payloads.append(Payload(payload_name(job_id, kind, index, digest), digest, data))
            named.append((job_id, kind, index, digest, len(data)))
            data = b""
        kept.append((job_id, kind, index, data))
    return LogPart(replace(rows, attachments=kept), named), payloads
