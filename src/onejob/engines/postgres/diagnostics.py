"""Examines a live server for `onejob doctor`, without changing anything."""

from typing import Any

import asyncpg
from msgspec import Struct

from onejob.errors import OnejobError

from .connection import CONNECT_SECONDS, NonCancellingConnection, ServerSettings, find_violations, read_server_settings
from .errors import to_postgres_failure, to_url_error
from .schema import known_schema_version, read_schema_version
from .url import PostgresUrl, parse_postgres_url

CONNECTIONS_PER_PROCESS = 5  # two for new facts, one for updates, one for reads, one for LISTEN
_TABLES = ("record", "job", "attachment", "stream", "usage", "policy", "memo")
_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE")
_SERVER_QUERY = """
SELECT current_setting('server_version_num')::integer AS version, current_setting('wal_level') AS wal_level,
    current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
        AS connections_max,
    (SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE backend_type = 'client backend') AS connections_used,
    current_user::text AS role,
    (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) AS superuser,
    inet_server_port() AS port, current_setting('autovacuum') = 'on' AS autovacuum,
    pg_has_role('pg_monitor', 'MEMBER') OR pg_has_role('pg_read_all_stats', 'MEMBER') AS may_see_standbys,
    (SELECT count(*) FROM pg_catalog.pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS standbys
"""
_MISSING_PRIVILEGES_QUERY = """
SELECT t.name || ': ' || string_agg(lower(r.name), ', ' ORDER BY r.at)
FROM unnest($2::text[]) AS t (name) CROSS JOIN unnest($3::text[]) WITH ORDINALITY AS r (name, at)
WHERE NOT has_table_privilege(quote_ident($1) || '.' || quote_ident(t.name), r.name) GROUP BY t.name ORDER BY 1
"""


class PostgresDiagnostics(Struct, frozen=True, kw_only=True):
    settings: ServerSettings
    version: int  # such as 180001
    wal_level: str
    connections_max: int
    connections_used: int
    role: str
    superuser: bool
    is_proxied: bool  # there is a proxy or pooler in front of the server
    pooled: bool
    can_listen: bool
    autovacuum: bool
    standbys: int | None  # connected ones that commits wait for; None: this role may not see them
    schema_version: int
    schema_version_known: int
    missing_privileges: list[str]
    violations: list[tuple[str, str]]  # why the engine refuses the server, and the next act


async def diagnose(url: str) -> PostgresDiagnostics:
    """Examine the first server that accepts writes; raises Unavailable if there is none."""
    target = parse_postgres_url(url)
    try:
        connection = await asyncpg.connect(
            target.dsn,
            timeout=CONNECT_SECONDS,
            connection_class=NonCancellingConnection,
            statement_cache_size=0,
            command_timeout=CONNECT_SECONDS,
        )
        try:
            async with connection.transaction(readonly=True):
                return await _run_diagnostics(connection, target)
        finally:
            connection.terminate()
    except OnejobError:
        raise
    except ValueError as error:  # a part of the URL that the driver cannot parse, which its message quotes
        raise to_url_error(target.display_url, error) from None
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
        raise to_postgres_failure(target.display_url, error) from error


async def _run_diagnostics(connection: Any, url: PostgresUrl) -> PostgresDiagnostics:
    settings = await read_server_settings(connection)
    row = await connection.fetchrow(_SERVER_QUERY)
    schema_version, missing_privileges = await _check_tables(connection, url)
    return PostgresDiagnostics(
        settings=settings,
        version=row["version"],
        wal_level=row["wal_level"],
        connections_max=row["connections_max"],
        connections_used=row["connections_used"],
        role=row["role"],
        superuser=row["superuser"],
        is_proxied=row["port"] not in (None, connection.peer_port()),
        pooled=url.pooled,
        can_listen=bool(url.listen_dsn),
        autovacuum=row["autovacuum"],
        standbys=row["standbys"] if row["may_see_standbys"] or row["superuser"] else None,
        schema_version=schema_version,
        schema_version_known=known_schema_version(),
        missing_privileges=missing_privileges,
        violations=find_violations(settings, url.durability),
    )


async def _check_tables(connection: Any, url: PostgresUrl) -> tuple[int, list[str]]:
    """The schema version, and the privileges on its tables that this role lacks."""
    try:
        async with connection.transaction():
            version = await read_schema_version(connection, url)
    except asyncpg.InsufficientPrivilegeError as error:
        return known_schema_version(), [str(error)]
    if not version:
        return 0, []
    rows = await connection.fetch(_MISSING_PRIVILEGES_QUERY, url.schema, _TABLES, _PRIVILEGES)
    return version, [row[0] for row in rows]
