"""The SQL statements of the SQLite engine, whole, in files/statements_sqlite.sql, as the engine sends them to SQLite.

They are recorded while the workload of tests/golden/rules.py runs. Threads decide which path a batch takes, so a run may miss a
statement; it fails if it sends one that is not on record.
"""

import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import apsw
import pytest

from onejob.clock import FakeClock
from onejob.conformance import World
from onejob.conformance.atomicity import AtomicityRules
from onejob.engines import sqlite
from onejob.engines.sql import load_migrations
from onejob.engines.sqlite import SqliteEngine
from tests.golden import rules
from tests.golden.conftest import FILES, RENEW
from tests.golden.sql_text import formatted, normalized

HEADER = """\
-- The SQL statements of the SQLite engine, as a workload with every command and query sends them; `make golden` writes this file.
--
-- A statement that differs only in its number of rows or ids is shown with one and `/* ... n rows */`. The migrations are files
-- of their own (src/onejob/engines/sqlite/*.sql).

"""
_COMMENT = re.compile(r"(?m)^\s*--.*$")


async def test_sqlite_is_sent_no_other_statement(
    tmp_path: Path, sent: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "FAST_PATH_PAUSE_BATCHES", 0)  # every batch of new facts tries the fast path
    numbers = count()

    @asynccontextmanager
    async def fresh_world() -> AsyncIterator[World]:
        clock, path = FakeClock(), str(tmp_path / f"{next(numbers)}.db")

        async def opened() -> SqliteEngine:
            return await SqliteEngine.open(path, clock=clock, synchronous="OFF")

        async with World(opened, advance=lambda ms: clock.advance(ms / 1000)) as world:
            yield world

    await rules.run_rules((*rules.RULES, AtomicityRules), fresh_world)
    path = FILES / "statements_sqlite.sql"
    if RENEW:
        path.write_text(HEADER + "\n".join(f"{formatted(sql)};\n" for sql in sorted(sent)), encoding="utf-8")
    on_record = {_squashed(sql) for sql in _statements(path.read_text(encoding="utf-8"))}
    assert sorted(sql for sql in sent if _squashed(sql) not in on_record) == []


@pytest.fixture
def sent() -> Iterator[set[str]]:
    """The statements that connections execute, but for those of the migrations, until the test ends."""
    found: set[str] = set()

    migrations = _squashed("".join(load_migrations(sqlite.__name__)))

    def note(_cursor: object, sql: str, _values: object) -> bool:
        if _squashed(sql) not in migrations:
            found.add(normalized(_COMMENT.sub("", sql)).removesuffix(";"))
        return True

    def watch(connection: apsw.Connection) -> None:
        connection.exec_trace = note

    sqlite.schema.load_checksum_vfs()  # once per process, on a connection of its own
    apsw.connection_hooks.append(watch)
    yield found
    apsw.connection_hooks.remove(watch)


def _statements(text: str) -> Iterable[str]:
    return text.removeprefix(HEADER).split(";\n\n")


def _squashed(text: str) -> str:
    return "".join(text.split()).removesuffix(";")
