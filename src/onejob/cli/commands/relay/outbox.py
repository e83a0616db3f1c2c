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

import asyncio
import logging
import re
import sqlite3
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

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
        raise Invalid("table", "the table is not a plain name; use letters, digits and _, as schema.table")
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


class Database(Protocol):
    """One connection to the application's database. Every statement commits by itself."""

    def placeholder(self, number: int) -> str: ...
    def execute(self, sql: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]: ...
    def close(self) -> None: ...


class OutboxTable:
    def __init__(self, database: Database, table: str = TABLE_DEFAULT) -> None:
        self._database = database
        self._table = checked_table(table)

    def read(self, after: int) -> list[OutboxRow]:
        """The next rows that have not failed, in the order of their ids."""
        columns = "id, type, input, idempotency_key, scope, first_tried_at"
        rows = self._execute(
            f"SELECT {columns} FROM {self._table} WHERE failed IS NULL AND id > {{}} ORDER BY id LIMIT {PAGE_ROWS}",
            after,
        )
        return [OutboxRow(*row) for row in rows]

    def mark_tried(self, row: OutboxRow, now_ms: int) -> None:
        self._execute(
            f"UPDATE {self._table} SET first_tried_at = {{}} WHERE id = {{}} AND first_tried_at IS NULL", now_ms, row.id
        )

    def mark_failed(self, row: OutboxRow, reason: str) -> None:
        self._execute(f"UPDATE {self._table} SET failed = {{}} WHERE id = {{}}", reason[:ERROR_CHARS_MAX], row.id)

    def delete(self, row: OutboxRow) -> None:
        self._execute(f"DELETE FROM {self._table} WHERE id = {{}}", row.id)

    def close(self) -> None:
        self._database.close()

    def _execute(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]:
        numbered = sql.format(*(self._database.placeholder(number) for number in range(1, len(values) + 1)))
        return self._database.execute(numbered, values)


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


def open_database(url: str) -> Database:
    """SQLite, PostgreSQL and MySQL by themselves, every other database with SQLAlchemy."""
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        return SqliteDatabase(unquote(url.removeprefix("sqlite:///")))
    if scheme in ("postgresql", "postgres"):
        return PostgresDatabase(url)
    if scheme in ("mysql", "mariadb"):
        return MysqlDatabase(url)
    return SqlAlchemyDatabase(url)


class SqliteDatabase:
    def __init__(self, path: str) -> None:
        # With a mode that does not create: an empty file would answer that there is nothing to send.
        self._connection = sqlite3.connect(
            f"file:{path}?mode=rw", uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        self._connection.text_factory = _decode_text

    def placeholder(self, number: int) -> str:
        return f"?{number}"

    def execute(self, sql: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        return self._connection.execute(sql, values).fetchall()

    def close(self) -> None:
        self._connection.close()


def _decode_text(data: bytes) -> str | bytes:
    """SQLite does not check that a text is UTF-8. The row of one that is not is reported; the others are read."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _set_text_factory(connection: Any, _: object) -> None:
    connection.text_factory = _decode_text


class PostgresDatabase:
    """By asyncpg, which the engine needs too, on an event loop of its own."""

    def __init__(self, url: str) -> None:
        import asyncpg

        self._runner = asyncio.Runner()
        self._connection = self._runner.run(asyncpg.connect(url))

    def placeholder(self, number: int) -> str:
        return f"${number}"

    def execute(self, sql: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        rows: Sequence[Sequence[Any]] = self._runner.run(self._fetch(sql, values))
        return rows

    async def _fetch(self, sql: str, values: Sequence[Any]) -> Any:
        return await self._connection.fetch(sql, *values)

    def close(self) -> None:
        self._runner.run(self._connection.close())
        self._runner.close()


class MysqlDatabase:
    """MySQL and MariaDB, by PyMySQL."""

    def __init__(self, url: str) -> None:
        import pymysql

        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        if unknown := sorted(options.keys() - MYSQL_OPTIONS):
            raise Invalid("from", f"{unknown[0]} is no option of a MySQL URL; choose {' or '.join(MYSQL_OPTIONS)}")
        self._connection = pymysql.connect(
            host=parts.hostname or "127.0.0.1",
            port=parts.port or 3306,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=unquote(parts.path.removeprefix("/")),
            unix_socket=options.get("unix_socket"),
            ssl_ca=options.get("ssl_ca"),
            ssl_verify_identity="ssl_ca" in options,
            charset="utf8mb4",
            autocommit=True,
            read_timeout=MYSQL_SECONDS,
            write_timeout=MYSQL_SECONDS,
        )

    def placeholder(self, number: int) -> str:
        return "%s"

    def execute(self, sql: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, values)
            rows: Sequence[Sequence[Any]] = cursor.fetchall()
            return rows

    def close(self) -> None:
        self._connection.close()


class SqlAlchemyDatabase:
    def __init__(self, url: str) -> None:
        try:
            from sqlalchemy import create_engine, event
        except ModuleNotFoundError:
            raise Invalid("from", f"{url.partition(':')[0]} needs SQLAlchemy and its driver; install them") from None
        self._engine = create_engine(url, isolation_level="AUTOCOMMIT")
        if self._engine.dialect.name == "sqlite":
            event.listen(self._engine, "connect", _set_text_factory)

    def placeholder(self, number: int) -> str:
        return f":p{number}"

    def execute(self, sql: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        from sqlalchemy import text

        named = {f"p{number}": value for number, value in enumerate(values, start=1)}
        with self._engine.connect() as connection:
            result = connection.execute(text(sql), named)
            return [tuple(row) for row in result] if result.returns_rows else ()

    def close(self) -> None:
        self._engine.dispose()
