"""The condition of a live server, as far as it matters to us, asked for without changing anything."""

from typing import Any

import asyncpg
from msgspec import Struct

from onejob.errors import OnejobError

from .connection import CONNECT_SECONDS, ServerSettings, find_violations, read_server_settings
from .errors import to_engine_error
from .schema import known_schema_version, read_schema_version
from .url import PostgresUrl, parse_postgres_url

# What one process takes: its lanes, one to read, one that listens.
CONNECTIONS_PER_PROCESS = 4
_TABLES = ("record", "job", "attachment", "stream", "tally", "policy")
_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE")
_SERVER_QUERY = """
SELECT current_setting('server_version_num')::integer, current_setting('wal_level'),
    current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer,
    (SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE backend_type = 'client backend'),
    current_user::text, (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user),
    inet_server_port(), current_setting('autovacuum') = 'on',
    pg_has_role('pg_monitor', 'MEMBER') OR pg_has_role('pg_read_all_stats', 'MEMBER'),
    (SELECT count(*) FROM pg_catalog.pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))
"""
_MISSING_PRIVILEGES_QUERY = """
SELECT t.name || ': ' || string_agg(lower(r.name), ', ' ORDER BY r.at)
FROM unnest($2::text[]) AS t (name) CROSS JOIN unnest($3::text[]) WITH ORDINALITY AS r (name, at)
WHERE NOT has_table_privilege(quote_ident($1) || '.' || quote_ident(t.name), r.name) GROUP BY t.name ORDER BY 1
"""


class PostgresDiagnostics(Struct, frozen=True, kw_only=True):
    """What was found, and what of it breaks a promise."""

    settings: ServerSettings
    version: int  # as 180001
    wal_level: str
    connections_max: int
    connections_used: int
    role: str
    superuser: bool
    is_proxied: bool  # something stands between us and the server
    pooled: bool
    can_listen: bool  # of keys that other processes settle
    autovacuum: bool
    standbys: int | None  # that commits wait for, and that are there; None: this role may not know
    schema_version: int
    schema_version_known: int
    missing_privileges: list[str]  # rights on tables that the service needs
    violations: list[tuple[str, str]]  # why the engine refuses it, and the act


async def diagnose(url: str) -> PostgresDiagnostics:
    """Ask the first server that takes writes; raises Unavailable when there is none."""
    address = parse_postgres_url(url)
    try:
        connection = await asyncpg.connect(
            address.dsn, timeout=CONNECT_SECONDS, statement_cache_size=0, command_timeout=CONNECT_SECONDS
        )
        try:
            async with connection.transaction(readonly=True):
                return await _run_diagnostics(connection, address)
        finally:
            connection.terminate()
    except OnejobError:
        raise
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
        raise to_engine_error(address.display_url, error) from error


async def _run_diagnostics(connection: Any, url: PostgresUrl) -> PostgresDiagnostics:
    settings = await read_server_settings(connection)
    (
        version,
        wal,
        most,
        used,
        role,
        superuser,
        port,
        autovacuum,
        may_know,
        standbys,
    ) = await connection.fetchrow(_SERVER_QUERY)
    schema, lacking = await _check_tables(connection, url)
    return PostgresDiagnostics(
        settings=settings, version=version, wal_level=wal, connections_max=most, connections_used=used, role=role,
        superuser=superuser, is_proxied=port not in (None, _connected_port(connection)), pooled=url.pooled,
        can_listen=bool(url.listen_dsn),
        autovacuum=autovacuum, standbys=standbys if may_know or superuser else None, schema_version=schema, schema_version_known=known_schema_version(),
        missing_privileges=lacking, violations=find_violations(settings, url.durability),
    )  # fmt: skip


async def _check_tables(connection: Any, url: PostgresUrl) -> tuple[int, list[str]]:
    """The number of the schema, and the rights that this role lacks on it."""
    try:
        async with connection.transaction():
            schema = await read_schema_version(connection, url)
    except asyncpg.InsufficientPrivilegeError as error:
        return known_schema_version(), [str(error)]
    if not schema:
        return 0, []
    return schema, [
        row[0] for row in await connection.fetch(_MISSING_PRIVILEGES_QUERY, url.schema, _TABLES, _PRIVILEGES)
    ]


def _connected_port(connection: Any) -> int | None:
    peer = connection._transport.get_extra_info("peername")  # noqa: SLF001 - asyncpg has no public way to ask
    return peer[1] if isinstance(peer, tuple) else None
