"""The relay: submits the rows of an application's outbox table, each once, and deletes what was accepted.

For applications whose database is not the ledger's PostgreSQL. The application inserts a row in its own transaction; the
relay reads it, submits it under its key and deletes it. The rules of this file:

1. A row is marked as tried before it is sent, and deleted only after a definite response. What is sent twice is one job,
   because a submission is idempotent: so any number of relays may read one table, and any of them may die.
2. A key is remembered for 30 days. A row that was first tried so long ago is reported and not sent again: it could
   make a second job.
3. A row that can never succeed (an invalid input, another body under its key) is reported in the table, without its payload,
   and left there. A row that is refused for now is tried again later, and keeps no other row waiting.
"""

import logging
import re
import sqlite3
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from msgspec import Raw

from onejob.clock import Clock
from onejob.core.errors import Invalid
from onejob.errors import (
    FactsLocked,
    IdempotencyConflict,
    OnejobError,
    SubmissionInProgress,
    SubmissionRefused,
    SubmissionRejected,
)
from onejob.ledger.parse import Submission

if TYPE_CHECKING:  # it is optional
    from sqlalchemy import URL, Engine

TABLE_DEFAULT: Final = "onejob_outbox"
WINDOW: Final = timedelta(days=30)
# The clocks of two relays, or one clock at two times, may differ by this much.
_MARGIN: Final = timedelta(hours=1)
_MILLISECOND: Final = timedelta(milliseconds=1)
PAGE_ROWS: Final = 500
ERROR_CHARS_MAX: Final = 500
BUSY_SECONDS: Final = 30.0
MYSQL_OPTIONS: Final = ("ssl_ca", "unix_socket")
MYSQL_SECONDS: Final = 60  # longer than a server waits for a lock, 50 s
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?")
# MySQL can be set to cut off what is too long: the one character more than any name may have makes the relay refuse it.
_TEXT_TYPES = {"sqlite": ("TEXT", "TEXT"), "postgresql": ("text", "text"), "mysql": ("VARCHAR(256)", "LONGTEXT")}
_IDENTITIES = {
    "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "postgresql": "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "mysql": "BIGINT AUTO_INCREMENT PRIMARY KEY",
}
# The defaults of a MySQL server may be a table without transactions, and letters of one language.
_TABLE_OPTIONS = {"mysql": " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"}
DIALECTS: Final = tuple(_IDENTITIES)

log = logging.getLogger("onejob.relay")


def outbox_schema(dialect: str, table: str = TABLE_DEFAULT) -> str:
    """The statement that creates the table of an application."""
    name, text = _TEXT_TYPES[dialect]
    return f"""\
CREATE TABLE {checked_table(table)} (
    id {_IDENTITIES[dialect]},
    type {name} NOT NULL,             -- the type of the job
    input {text} NOT NULL,            -- JSON
    idempotency_key {name} NOT NULL,  -- one for each intended job, such as charge-ORD-123
    scope {name},                     -- the namespace of the key; NULL: the type
    first_tried_at BIGINT,            -- set by the relay: milliseconds since 1970
    failed {text}                     -- set by the relay: why the row is not sent; set it to NULL to send it again
){_TABLE_OPTIONS.get(dialect, "")};
"""


def checked_table(table: str) -> str:
    if not _TABLE.fullmatch(table):
        raise Invalid("table", "the table is not a plain name; use letters, digits and _, e.g. schema.table")
    return table


class OutboxRow(NamedTuple):
    """A row as it was read. SQLite stores any value in any column, so that only the id is what it should be."""

    id: int
    type: Any
    input: Any
    key: Any
    scope: Any
    first_tried_at: Any

    def build_submission(self) -> Submission:
        """Raises Invalid, without a word of the payload, if a column holds something else than the table asks for."""
        scope = None if self.scope is None else _checked_text("scope", self.scope)
        # Encoders that return bytes are common: they are JSON as well.
        data = self.input if isinstance(self.input, bytes) else _checked_text("input", self.input).encode()
        return Submission(
            type=_checked_text("type", self.type),
            input=Raw(data),
            idempotency_key=_checked_text("idempotency_key", self.key),
            idempotency_ttl=WINDOW,
            scope=scope,
        )


def _checked_text(column: str, value: object) -> str:
    if not isinstance(value, str):
        kind = "bytes" if isinstance(value, (bytes, memoryview)) else type(value).__name__
        raise Invalid(column, f"the column {column} holds {kind}, not text in UTF-8; correct it")
    return value


class RelayCounts(NamedTuple):
    """What one pass over the table did."""

    submitted: int = 0
    failed: int = 0  # reported in the table
    left: int = 0  # refused for now

    def __add__(self, other: "RelayCounts") -> "RelayCounts":  # type: ignore[override]  # it adds, unlike a tuple
        return RelayCounts(*(mine + its for mine, its in zip(self, other, strict=True)))

    def __sub__(self, other: "RelayCounts") -> "RelayCounts":
        return RelayCounts(*(mine - its for mine, its in zip(self, other, strict=True)))


class OutboxTable:
    """Every statement commits by itself."""

    def __init__(self, database: "Engine", table: str = TABLE_DEFAULT) -> None:
        self._database = database
        self._table = checked_table(table)

    def read(self, after: int) -> list[OutboxRow]:
        """The next rows that have not failed, in the order of their ids."""
        columns = "id, type, input, idempotency_key, scope, first_tried_at"
        rows = self._execute(
            f"SELECT {columns} FROM {self._table} WHERE failed IS NULL AND id > :after ORDER BY id LIMIT {PAGE_ROWS}",
            after=after,
        )
        return [OutboxRow(*row) for row in rows]

    def mark_tried(self, row: OutboxRow, now_ms: int) -> None:
        self._execute(
            f"UPDATE {self._table} SET first_tried_at = :now WHERE id = :id AND first_tried_at IS NULL",
            now=now_ms,
            id=row.id,
        )

    def mark_failed(self, row: OutboxRow, reason: str) -> None:
        self._execute(
            f"UPDATE {self._table} SET failed = :reason WHERE id = :id", reason=reason[:ERROR_CHARS_MAX], id=row.id
        )

    def delete(self, row: OutboxRow) -> None:
        self._execute(f"DELETE FROM {self._table} WHERE id = :id", id=row.id)

    def close(self) -> None:
        """Close the connection; the next statement opens one."""
        self._database.dispose()

    def _execute(self, sql: str, **values: Any) -> Sequence[Sequence[Any]]:
        from sqlalchemy import text

        with self._database.connect() as connection:
            result = connection.execute(text(sql), values)
            return result.all() if result.returns_rows else ()


class Relay:
    def __init__(self, outbox: OutboxTable, submit: Callable[[Submission], object], clock: Clock) -> None:
        self.outbox = outbox
        self.total = RelayCounts()
        self._submit = submit
        self._clock = clock

    def run_once(self) -> RelayCounts:
        """Submit every row that is there now. Raises if the ledger is unavailable: no later row would fare better."""
        before, after = self.total, 0
        while rows := self.outbox.read(after):
            for row in rows:
                self.total = self.total + self._relay(row)
            after = rows[-1].id
        return self.total - before

    def _relay(self, row: OutboxRow) -> RelayCounts:
        now_ms = self._clock.wall_ms()
        try:
            submission = row.build_submission()
        except Invalid as error:
            return self._fail(row, str(error))
        if row.first_tried_at is None:
            self.outbox.mark_tried(row, now_ms)
        elif not _is_in_window(row.first_tried_at, now_ms):
            return self._fail(
                row,
                "first tried about 30 days ago or in the future, so that its key may be forgotten; see whether its job "
                "exists, then delete the row, or set first_tried_at and failed to NULL",
            )
        try:
            self._submit(submission)
        except OnejobError as error:
            match classify_refusal(error):
                case Refusal.LASTING:
                    return self._fail(row, str(error))
                case Refusal.FOR_NOW:
                    log.info("row %s was not accepted and will be tried again: %s", row.id, error)
                    return RelayCounts(left=1)
            raise
        self.outbox.delete(row)
        return RelayCounts(submitted=1)

    def _fail(self, row: OutboxRow, reason: str) -> RelayCounts:
        log.error("row %s is not sent again: %s", row.id, reason)
        self.outbox.mark_failed(row, reason)
        return RelayCounts(failed=1)


def _is_in_window(first_tried_at: object, now_ms: int) -> bool:
    """True if the ledger certainly remembers the key of a row that was first tried then, by the clock of any relay."""
    if not isinstance(first_tried_at, int):
        return False
    margin_ms, window_ms = _MARGIN // _MILLISECOND, WINDOW // _MILLISECOND
    return -margin_ms <= now_ms - first_tried_at < window_ms - margin_ms


class Refusal(Enum):
    LASTING = 1  # of this very row: no repetition changes it
    FOR_NOW = 2  # of this row: another one may be accepted
    OF_ALL = 3  # the ledger is unavailable, or refuses this relay


_REFUSALS: Final = {
    **dict.fromkeys(("BAD_REQUEST", "CONFLICT", "PAYLOAD_TOO_LARGE", "VALIDATION_ERROR"), Refusal.LASTING),
    **dict.fromkeys(("IN_PROGRESS", "QUOTA_EXCEEDED", "COST_LIMIT_EXCEEDED", "RATE_LIMITED"), Refusal.FOR_NOW),
}


def classify_refusal(error: OnejobError) -> Refusal:
    """Of an engine by the class of the error, of a server by its code."""
    match error:
        case IdempotencyConflict() | SubmissionRejected() | Invalid():
            return Refusal.LASTING
        case SubmissionInProgress() | SubmissionRefused() | FactsLocked():
            return Refusal.FOR_NOW
    problem = getattr(error, "problem", None)
    return Refusal.OF_ALL if problem is None else _REFUSALS.get(problem.code, Refusal.OF_ALL)


def open_database(url: str) -> "Engine":
    """The application's database, with one connection, which is opened by the first statement."""
    from sqlalchemy import create_engine

    place: str | URL = url
    options: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"}
    match url.partition(":")[0]:
        case "sqlite" | "sqlite+pysqlite":
            place, options["creator"] = "sqlite:///file", partial(_connect_sqlite, unquote(url.partition(":///")[2]))
        case "postgresql" | "postgres":
            import psycopg

            place, options["creator"] = "postgresql+psycopg://", partial(psycopg.connect, url)
        case "mysql" | "mariadb":
            place, options["connect_args"] = _parse_mysql_url(url)
    return create_engine(place, pool_size=1, max_overflow=0, **options)


def _connect_sqlite(path: str) -> sqlite3.Connection:
    # With a mode that does not create: an empty file would answer that there is nothing to send.
    uri = f"{Path(path).absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, check_same_thread=False)
    connection.text_factory = _decode_text
    return connection


def _decode_text(data: bytes) -> str | bytes:
    """SQLite does not check that a text is UTF-8. The row of one that is not is reported; the others are read."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _parse_mysql_url(url: str) -> tuple["URL", dict[str, Any]]:
    """The URL without its options, and how PyMySQL connects."""
    from sqlalchemy import make_url

    parts = make_url(url)
    if unknown := sorted(parts.query.keys() - MYSQL_OPTIONS):
        raise Invalid("from", f"{unknown[0]} is not an option of a MySQL URL; use {' or '.join(MYSQL_OPTIONS)}")
    options: dict[str, Any] = {
        "charset": "utf8mb4",
        "read_timeout": MYSQL_SECONDS,
        "write_timeout": MYSQL_SECONDS,
        "ssl_verify_identity": "ssl_ca" in parts.query,
        **parts.query,
    }
    return parts.set(drivername="mysql+pymysql", host=parts.host or "127.0.0.1", query={}), options
