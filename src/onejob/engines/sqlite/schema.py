"""Opening a file: prove that it is ours, whole and as durable as promised, then bring its schema forward."""

import os
import sqlite3
from importlib import resources

from onejob.clock import Clock, boot_id, tie
from onejob.errors import StoreRefused

APPLICATION_ID = 0x6F6E656A  # "onej"
_BUSY_MS = 30_000
_CACHE_KIB = 64 * 1024
_CHECKPOINT_PAGES = 1000
_STATEMENTS_MAX = 512


def connect(path: str, *, synchronous: str = "FULL") -> sqlite3.Connection:
    db = sqlite3.connect(
        path, timeout=_BUSY_MS / 1000, isolation_level=None, cached_statements=_STATEMENTS_MAX
    )
    try:
        for pragma in (
            f"synchronous = {synchronous}",
            f"cache_size = -{_CACHE_KIB}",
            f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
            "temp_store = MEMORY",
            "trusted_schema = OFF",
        ):
            db.execute(f"PRAGMA {pragma}")
    except sqlite3.Error:
        db.close()
        raise
    return db


def prepare(path: str) -> None:
    """Make the file if there is none, readable by its owner alone; refuse remains that would corrupt it."""
    size = os.stat(path).st_size if os.path.exists(path) else 0
    wal = path + "-wal"
    if not size and os.path.exists(wal) and os.stat(wal).st_size:
        raise StoreRefused(
            f"{path} is empty or missing, but its journal {wal} is not: the answers in it would be lost. "
            "Restore the database file, or remove both to start anew"
        )
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def migrate(db: sqlite3.Connection, path: str) -> None:
    """Apply the numbered steps that are missing, each whole or not at all."""
    if db.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
        raise StoreRefused(f"{path} cannot be put into WAL mode here; use a local disk")
    steps = _steps()
    db.execute("BEGIN IMMEDIATE")
    try:
        _refuse_foreign(db, path)
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > len(steps):
            raise StoreRefused(
                f"{path} has schema {version}, this program knows {len(steps)}; upgrade the program"
            )
        for number, statements in enumerate(steps[version:], start=version + 1):
            for statement in statements:
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {number}")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def whole(db: sqlite3.Connection, path: str) -> None:
    """Refuse a main file that was cut short: its missing pages may hold keys that were answered."""
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    size = os.stat(path).st_size
    wal = path + "-wal"
    unmoved = os.path.exists(wal) and os.stat(wal).st_size
    if not unmoved and size < pages * db.execute("PRAGMA page_size").fetchone()[0]:
        raise StoreRefused(f"{path} was cut short: {pages} pages are missing some; restore it from a backup")


def offset(db: sqlite3.Connection, clock: Clock) -> int:
    """The tie of wall time to the machine's clock, which all processes of this boot share.

    Time never restarts below what is stored, even if the wall clock was set back while nobody was here.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        boot = boot_id()
        row = db.execute("SELECT offset_ms FROM clock WHERE boot_id = ?", (boot or "",)).fetchone()
        if row is not None and boot is not None:
            mine: int = row[0]
        else:
            newest = db.execute(
                "SELECT max(changed_at) FROM (SELECT changed_at FROM record ORDER BY rowid DESC LIMIT 100)"
            ).fetchone()[0]
            mine = tie(clock)
            behind = (newest or 0) - (mine + round(clock.monotonic() * 1000))
            mine += max(behind, 0)
            db.execute("DELETE FROM clock")
            db.execute("INSERT INTO clock VALUES (?, ?)", (boot or "", mine))
        db.execute("COMMIT")
        return mine
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _refuse_foreign(db: sqlite3.Connection, path: str) -> None:
    owner = db.execute("PRAGMA application_id").fetchone()[0]
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if owner != APPLICATION_ID and tables:
        raise StoreRefused(f"{path} is another program's database; choose another file")


def _steps() -> list[list[str]]:
    """The migrations 0001_….sql, 0002_….sql, … as lists of statements."""
    folder = resources.files(__package__)
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    return [_statements((folder / name).read_text(encoding="utf-8")) for name in names]


def _statements(script: str) -> list[str]:
    statements: list[str] = []
    pending = ""
    for line in script.splitlines():
        if line.startswith("--") or not line.strip():
            continue
        pending += line + "\n"
        if sqlite3.complete_statement(pending):
            statements.append(pending)
            pending = ""
    assert not pending
    return statements
