"""The condition of a live server, as far as it matters to us, asked for without changing anything."""

from typing import Any

import asyncpg
from msgspec import Struct

from onejob.errors import OnejobError

from .address import Address, address_of
from .checkup import Checkup, checkup, wrongs
from .link import CONNECT_SECONDS
from .schema import known, version_of
from .trouble import trouble_of

# What one process takes: its lanes, one to read, one that listens.
CONNECTIONS_EACH = 4
_TABLES = ("record", "job", "attachment", "stream", "tally", "policy")
_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")
_SERVER = """
SELECT current_setting('server_version_num')::integer, current_setting('wal_level'),
    current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer,
    (SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE backend_type = 'client backend'),
    current_user::text, (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user),
    inet_server_port(), current_setting('autovacuum') = 'on',
    pg_has_role('pg_monitor', 'MEMBER') OR pg_has_role('pg_read_all_stats', 'MEMBER'),
    (SELECT count(*) FROM pg_catalog.pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))
"""
_LACKING = """
SELECT t.name || ': ' || string_agg(lower(r.name), ', ' ORDER BY r.at)
FROM unnest($2::text[]) AS t (name) CROSS JOIN unnest($3::text[]) WITH ORDINALITY AS r (name, at)
WHERE NOT has_table_privilege(quote_ident($1) || '.' || quote_ident(t.name), r.name) GROUP BY t.name ORDER BY 1
"""


class Condition(Struct, frozen=True, kw_only=True):
    """What was found, and what of it breaks a promise."""

    settings: Checkup
    version: int  # as 180001
    wal_level: str
    connections_max: int
    connections_used: int
    role: str
    superuser: bool
    behind: bool  # something stands between us and the server
    pooled: bool
    hears: bool  # of keys that other processes settle
    autovacuum: bool
    standbys: int | None  # that commits wait for, and that are there; None: this role may not know
    schema: int
    newest: int
    lacking: list[str]  # rights on tables that the service needs
    wrongs: list[tuple[str, str]]  # why the engine refuses it, and the act


async def condition_of(url: str) -> Condition:
    """Ask the first server that takes writes; raises Unavailable when there is none."""
    address = address_of(url)
    try:
        connection = await asyncpg.connect(
            address.dsn, timeout=CONNECT_SECONDS, statement_cache_size=0, command_timeout=CONNECT_SECONDS
        )
        try:
            async with connection.transaction(readonly=True):
                return await _asked(connection, address)
        finally:
            connection.terminate()
    except OnejobError:
        raise
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
        raise trouble_of(address.shown, error) from error


async def _asked(connection: Any, address: Address) -> Condition:
    settings = await checkup(connection)
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
    ) = await connection.fetchrow(_SERVER)
    schema, lacking = await _tables(connection, address)
    return Condition(
        settings=settings, version=version, wal_level=wal, connections_max=most, connections_used=used, role=role,
        superuser=superuser, behind=port not in (None, _port_asked(connection)), pooled=address.pooled,
        hears=bool(address.listen_dsn),
        autovacuum=autovacuum, standbys=standbys if may_know or superuser else None, schema=schema, newest=known(),
        lacking=lacking, wrongs=wrongs(settings, address.durability),
    )  # fmt: skip


async def _tables(connection: Any, address: Address) -> tuple[int, list[str]]:
    """The number of the schema, and the rights that this role lacks on it."""
    try:
        async with connection.transaction():
            schema = await version_of(connection, address)
    except asyncpg.InsufficientPrivilegeError as error:
        return known(), [str(error)]
    if not schema:
        return 0, []
    return schema, [row[0] for row in await connection.fetch(_LACKING, address.schema, _TABLES, _RIGHTS)]


def _port_asked(connection: Any) -> int | None:
    peer = connection._transport.get_extra_info("peername")
    return peer[1] if isinstance(peer, tuple) else None
