"""Migrates the tables of a schema, and refuses tables of a newer or of another program."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from onejob.engines.sql import PRERELEASE_MESSAGE, PRERELEASE_TABLE, load_migrations
from onejob.errors import StoreRefused

from .url import PostgresUrl

_VERSIONS_TABLE = "onejob_schema"
_TABLE_EXISTS_QUERY = """
SELECT count(*) FROM pg_catalog.pg_class AS t JOIN pg_catalog.pg_namespace AS n ON n.oid = t.relnamespace
WHERE n.nspname = $1 AND t.relname = $2
"""
_ADVISORY_LOCK_ID = 0x6F6E656A  # other programs are unlikely to use it


async def apply_migrations(connection: Any, url: PostgresUrl, *, migrate: bool) -> int:
    """Apply all missing migrations in the transaction of the caller; returns how many."""
    steps = load_migrations(__package__)
    if await read_schema_version(connection, url) == len(steps):
        return 0
    if migrate:
        await _lock_schema(connection, url)
    if await connection.fetchval(_TABLE_EXISTS_QUERY, url.schema, PRERELEASE_TABLE):
        raise StoreRefused(
            f"{url.display_url} {PRERELEASE_MESSAGE.format(PRERELEASE_TABLE)}; choose another schema with ?schema="
        )
    version = await read_schema_version(connection, url)  # another process may have migrated it meanwhile
    if version > len(steps):
        raise StoreRefused(
            f"{url.display_url} has schema {version}, this program knows {len(steps)}; upgrade the program"
        )
    if version < len(steps) and not migrate:
        raise StoreRefused(
            f"{url.display_url} has schema {version}, this program needs {len(steps)}; run `onejob migrate`"
        )
    try:
        await _apply_steps(connection, url, version, steps)
    except asyncpg.DuplicateTableError as error:
        raise StoreRefused(
            f"{url.display_url} has another program's tables ({error}); choose another schema with ?schema="
        ) from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise StoreRefused(
            f"{url.display_url} does not let this role create tables ({error}); run `onejob migrate` as their owner"
        ) from error
    return len(steps) - version


class LedgerIdentity:
    """The ledger that the connections of one engine have found; all must find the same."""

    def __init__(self) -> None:
        self.id = ""
        self.checks_due = 0  # counted up when a connection has a reason to doubt it: all others check again

    async def verify(self, connection: Any, url: PostgresUrl) -> None:
        """Raise if another ledger is there than before: keys that were answered would be new."""
        try:
            found = await connection.fetchval(f'SELECT id FROM "{url.schema}".ledger')
        except asyncpg.UndefinedTableError as error:
            raise StoreRefused(
                f"{url.display_url} {PRERELEASE_MESSAGE.format('no ledger')}; choose another schema with ?schema="
            ) from error
        if not found:
            raise StoreRefused(f"{url.display_url} is damaged (it has no ledger id); restore it from a backup")
        if self.id and found != self.id:
            raise StoreRefused(
                f"{url.display_url} holds another ledger ({found}) than this process has served ({self.id}), so that "
                "answered keys would be new; restore the database, or restart to serve this one"
            )
        self.id = found

    async def declare_durability(self, connection: Any, url: PostgresUrl) -> None:
        """Store the durability that the URL declares, which binds the transactions of callers too (`onejob.transaction`)."""
        if url.durability is None:
            return
        table = f'"{url.schema}".ledger'
        stored, may_update = await connection.fetchrow(
            f"SELECT durability, has_table_privilege($1, 'UPDATE') FROM {table}", table
        )
        if stored == url.durability.value:
            return
        if not may_update:
            raise StoreRefused(
                f"{url.display_url} does not let this role declare durability={url.durability.value}; "
                "run `onejob migrate` with the same URL as the owner of the tables"
            )
        await connection.execute(f"UPDATE {table} SET durability = $1", url.durability.value)

    async def refuse_emptied(self, connection: Any, url: PostgresUrl) -> None:
        """Raise if the tables are gone: creating new ones would make every known key new."""
        if self.id and not await read_schema_version(connection, url):
            raise StoreRefused(
                f"{url.display_url} has no tables any more: the answers in them are lost; "
                "restore the database, or restart to begin a new ledger"
            )


def known_schema_version() -> int:
    return len(load_migrations(__package__))


async def _lock_schema(connection: Any, url: PostgresUrl) -> None:
    await connection.execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '60s'")
    await connection.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", _ADVISORY_LOCK_ID, url.schema)


async def read_schema_version(connection: Any, url: PostgresUrl) -> int:
    """The number of the last applied migration; 0 if there are no tables."""
    # A query on pg_class, because the server caches for a while that a table does not exist.
    if not await connection.fetchval(_TABLE_EXISTS_QUERY, url.schema, _VERSIONS_TABLE):
        return 0
    table = f'"{url.schema}".{_VERSIONS_TABLE}'
    return int(await connection.fetchval(f"SELECT coalesce(max(version), 0) FROM {table}"))


async def _apply_steps(connection: Any, url: PostgresUrl, version: int, steps: Sequence[str]) -> None:
    if not await connection.fetchval("SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = $1", url.schema):
        await connection.execute(f'CREATE SCHEMA "{url.schema}"')
    before = await connection.fetchval("SELECT current_setting('search_path')")
    await connection.execute(f'SET LOCAL search_path = "{url.schema}"')
    if not version:
        await connection.execute(
            f"CREATE TABLE {_VERSIONS_TABLE} (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"
        )
    for number, step in enumerate(steps[version:], start=version + 1):
        await connection.execute(step)
        await connection.execute(f"INSERT INTO {_VERSIONS_TABLE} (version) VALUES ({number})")
    await connection.execute("SELECT set_config('search_path', $1, true)", before)
