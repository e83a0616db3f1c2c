"""What can be told of a file without bringing it forward: for whoever examines a store."""

import os
from importlib import resources

import apsw
from msgspec import Struct

from onejob.errors import StoreRefused

from . import schema
from .trouble import trouble_of

_SYNCHRONOUS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


class Checkup(Struct, frozen=True):
    library: str
    ours: bool  # False: empty, or another program's
    empty: bool
    schema: int
    schema_known: int
    journal_mode: str
    synchronous: str
    journal_bytes: int


def checkup(path: str) -> Checkup:
    """Look at a file that is there; raises StoreRefused where it cannot be read."""
    try:
        db = schema.connect(path)
        try:
            return Checkup(
                library=apsw.sqlite_lib_version(),
                ours=db.pragma("application_id") == schema.APPLICATION_ID,
                empty=not db.execute("SELECT count(*) FROM sqlite_master").get,
                schema=int(db.pragma("user_version")),
                schema_known=_known(),
                journal_mode=str(db.pragma("journal_mode")),
                synchronous=_SYNCHRONOUS[int(db.pragma("synchronous"))],
                journal_bytes=_size(path + "-wal"),
            )
        finally:
            db.close()
    except (apsw.Error, OSError) as error:
        raise StoreRefused(str(trouble_of(path, error))) from error


def schema_of(path: str) -> int:
    """The number of a file's schema; 0 where there is none yet."""
    return checkup(path).schema if os.path.exists(path) else 0


def _known() -> int:
    return sum(entry.name.endswith(".sql") for entry in resources.files(__package__).iterdir())


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
