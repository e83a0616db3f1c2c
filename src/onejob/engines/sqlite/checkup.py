"""What can be told of a file without bringing it forward: for whoever examines a store."""

import os
from importlib import resources

import apsw
from msgspec import Struct

from onejob.errors import StoreRefused

from . import schema
from .trouble import to_engine_error

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
        db = schema.connect(path)
        try:
            return SqliteDiagnostics(
                sqlite_version=apsw.sqlite_lib_version(),
                is_onejob=db.pragma("application_id") == schema.APPLICATION_ID,
                is_empty=not db.execute("SELECT count(*) FROM sqlite_master").get,
                schema_version=int(db.pragma("user_version")),
                schema_version_known=_known_schema_version(),
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


def _known_schema_version() -> int:
    return sum(entry.name.endswith(".sql") for entry in resources.files(__package__).iterdir())


def _file_bytes(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
