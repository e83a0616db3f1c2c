"""How each driver sends a statement in the transaction of its connection. Nothing else knows a driver.

A connection without a transaction is refused: what it sends would commit by itself. The statements have numbered
parameters (`$1`). Drivers that cannot send these get named ones, because a number may occur twice.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any

from onejob.core.errors import Invalid
from onejob.engines.postgres.transaction import Rows, Statement

Fetch = Callable[[Statement], Rows]
AsyncFetch = Callable[[Statement], Awaitable[Rows]]

STATEMENTS_MAX = 512
_PARAMETER = re.compile(r"\$(\d+)")


# The base class by which a connection is recognised, and the method of `InTransaction` for it.
_CONNECTION_TYPES = {
    "asyncpg.connection.Connection": "asyncpg",
    "asyncpg.pool.PoolConnectionProxy": "asyncpg",
    "psycopg.Connection": "psycopg",
    "psycopg.AsyncConnection": "apsycopg",
    "sqlalchemy.orm.session.Session": "session",
    "sqlalchemy.ext.asyncio.session.AsyncSession": "asession",
    "sqlalchemy.orm.scoping.scoped_session": "session",
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": "asession",
    "django.db.backends.base.base.BaseDatabaseWrapper": "django",
    "django.utils.connection.ConnectionProxy": "django",
}


def recognize_driver(connection: Any) -> str:
    """The name of the method of `InTransaction` for a connection, without importing a driver that is not there."""
    for base in type(connection).__mro__:
        if name := _CONNECTION_TYPES.get(f"{base.__module__}.{base.__qualname__}"):
            return name
    raise Invalid(
        "connection",
        f"{type(connection).__module__}.{type(connection).__qualname__} is not a connection of asyncpg, psycopg or Django and "
        "no session of SQLAlchemy; pass one of these",
    )


def asyncpg_fetch(connection: Any) -> AsyncFetch:
    async def fetch(statement: Statement) -> Rows:
        _refuse_unless(connection.is_in_transaction(), "async with connection.transaction()")
        rows: Rows = await connection.fetch(statement.sql, *statement.values)
        return rows

    return fetch


def psycopg_fetch(connection: Any) -> Fetch:
    from psycopg import RawCursor
    from psycopg.rows import tuple_row

    def fetch(statement: Statement) -> Rows:
        _refuse_unless(_is_transactional(connection), "with connection.transaction()")
        with RawCursor(connection, row_factory=tuple_row) as cursor:
            cursor.execute(statement.sql, statement.values)
            return cursor.fetchall() if cursor.description else ()

    return fetch


def async_psycopg_fetch(connection: Any) -> AsyncFetch:
    from psycopg import AsyncRawCursor
    from psycopg.rows import tuple_row

    async def fetch(statement: Statement) -> Rows:
        _refuse_unless(_is_transactional(connection), "async with connection.transaction()")
        async with AsyncRawCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(statement.sql, statement.values)
            return await cursor.fetchall() if cursor.description else ()

    return fetch


def sqlalchemy_fetch(session: Any) -> Fetch:
    """Through the session, never through its driver's connection, which begins its transaction with the first statement."""

    def fetch(statement: Statement) -> Rows:
        session.flush()
        return _execute_on(session.connection(), statement)

    return fetch


def async_sqlalchemy_fetch(session: Any) -> AsyncFetch:
    async def fetch(statement: Statement) -> Rows:
        await session.flush()
        connection = await session.connection()
        rows: Rows = await connection.run_sync(_execute_on, statement)
        return rows

    return fetch


def _execute_on(connection: Any, statement: Statement) -> Rows:
    """Execute on a SQLAlchemy connection; its driver decides the style of the parameters."""
    _refuse_unless(not connection.connection.dbapi_connection.autocommit, "with session.begin()")
    if connection.dialect.driver == "asyncpg":
        result = connection.exec_driver_sql(statement.sql, tuple(statement.values))
    else:
        result = connection.exec_driver_sql(*_to_named(statement))
    return [_plain_row(row) for row in result.fetchall()] if result.returns_rows else ()


def django_fetch(using: str) -> Fetch:
    from django.db import connections

    connection = connections[using]
    if connection.vendor != "postgresql":
        raise Invalid("using", f"the database {using!r} is not PostgreSQL; use `onejob relay` with it")

    def fetch(statement: Statement) -> Rows:
        _refuse_unless(connection.in_atomic_block or not connection.get_autocommit(), "with transaction.atomic()")
        with connection.cursor() as cursor:
            cursor.execute(*_to_named(statement))
            return [_plain_row(row) for row in cursor.fetchall()] if cursor.description else ()

    return fetch


def _is_transactional(connection: Any) -> bool:
    """True in a transaction, and where psycopg begins one with the first statement."""
    return not connection.autocommit or connection.info.transaction_status.name != "IDLE"


def _refuse_unless(in_transaction: bool, how: str) -> None:
    if not in_transaction:
        raise Invalid(
            "connection",
            f"this connection is in no transaction, so that nothing could commit together: nothing was done; "
            f"use `{how}`, or submit with `Ledger.submit`",
        )


def _to_named(statement: Statement) -> tuple[str, Mapping[str, Any]]:
    return _named_sql(statement.sql), {f"p{n}": value for n, value in enumerate(statement.values, start=1)}


@lru_cache(STATEMENTS_MAX)
def _named_sql(sql: str) -> str:
    return _PARAMETER.sub(r"%(p\1)s", sql.replace("%", "%%"))


def _plain_row(row: Any) -> tuple[Any, ...]:
    """A row with bytes, which psycopg2 returns as memoryview."""
    return tuple(bytes(value) if isinstance(value, memoryview) else value for value in row)
