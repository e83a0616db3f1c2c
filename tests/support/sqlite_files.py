"""Read and change the files of a SQLite store from outside of the engine."""

from pathlib import Path
from typing import Any

import apsw

from onejob.engines.sqlite.schema import load_checksum_vfs


class RawConnection:
    """Another connection to the file, by the same library: two libraries in one process break each other's locks."""

    def __init__(self, path: str) -> None:
        self._db = apsw.Connection(path, vfs=load_checksum_vfs())

    def __enter__(self) -> apsw.Connection:
        return self._db

    def __exit__(self, *_: object) -> None:
        self._db.close()


def pragma(path: str, name: str) -> Any:
    with RawConnection(path) as db:
        return db.pragma(name)


def tables(path: str) -> list[Any]:
    with RawConnection(path) as db:
        return db.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


def read_content(path: str) -> bytes:
    return Path(path).read_bytes()


def write_content(path: str, data: bytes) -> None:
    Path(path).write_bytes(data)


def exists(path: str) -> bool:
    return Path(path).exists()
