"""The file of an outbox: made whole or not at all, and proved to be ours before anything is read from it."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import apsw

from onejob.errors import StoreRefused, Unavailable
from onejob.ids import new_nonce

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
