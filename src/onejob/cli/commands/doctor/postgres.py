"""Doctor checks of a PostgreSQL server: durability, standbys, schema, privileges and connections."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from onejob.errors import OnejobError

from .findings import Finding, fail, ok, warn

if TYPE_CHECKING:  # the driver is optional
    from onejob.engines.postgres.diagnostics import PostgresDiagnostics

_VERSION_MIN = 140_000
_GRANT_MONITOR = "grant pg_monitor to the role that examines"


def check_postgres(url: str) -> Iterator[Finding]:
    from onejob.engines.postgres.diagnostics import diagnose

    try:
        diagnostics = asyncio.run(diagnose(url))
    except OnejobError:
        return  # opening the engine, which is checked next, fails with the reason
    yield _check_version(diagnostics)
    yield from _check_durability_settings(diagnostics)
    yield from _check_standbys(diagnostics)
    yield _check_schema(diagnostics)
    yield _check_role(diagnostics)
    yield _check_connections(diagnostics)
    yield from _check_pooler(diagnostics)
    if not diagnostics.autovacuum:
        yield warn("autovacuum", "off: the space of deleted keys is not reused", "set it to on")


def _check_version(diagnostics: "PostgresDiagnostics") -> Finding:
    if diagnostics.version < _VERSION_MIN:
        return fail("server", f"PostgreSQL {diagnostics.settings.version} is too old", "use 14 or later")
    return ok("server", f"PostgreSQL {diagnostics.settings.version}")


def _check_durability_settings(diagnostics: "PostgresDiagnostics") -> Iterator[Finding]:
    for violation, act in diagnostics.violations:
        yield fail("promise", f"{violation}: the engine refuses to serve", act)
    if not diagnostics.settings.full_page_writes:
        yield warn(
            "pages",
            "full_page_writes is off: a crash of the machine may tear a page and lose acknowledged jobs",
            "set it to on, unless the file system writes whole pages",
        )
    if not diagnostics.violations:
        settings = diagnostics.settings
        yield ok("promise", f"fsync is on, synchronous_commit is {settings.synchronous_commit}")


def _check_standbys(diagnostics: "PostgresDiagnostics") -> Iterator[Finding]:
    if diagnostics.wal_level == "minimal":
        yield warn("journal", "wal_level is minimal: no standby and no archive can follow", "set it to replica")
    if not diagnostics.settings.waits_for_standby:
        return  # what a failover may lose is reported for every engine
    names = diagnostics.settings.standby_names
    if diagnostics.standbys is None:
        yield warn(
            "standby", f"a commit waits for {names}; this role may not see whether it is attached", _GRANT_MONITOR
        )
    elif not diagnostics.standbys:
        yield fail("standby", f"a commit waits for {names}, and none is attached: no commit returns", "attach one")
    else:
        yield ok("standby", f"a commit waits for {names}; attached: {diagnostics.standbys}. Set it on every node")


def _check_schema(diagnostics: "PostgresDiagnostics") -> Finding:
    if diagnostics.schema_version > diagnostics.schema_version_known:
        return fail(
            "schema",
            f"{diagnostics.schema_version}, this program knows {diagnostics.schema_version_known}",
            "upgrade the program",
        )
    if diagnostics.schema_version < diagnostics.schema_version_known:
        return fail(
            "schema",
            f"{diagnostics.schema_version or 'none'}, this program needs {diagnostics.schema_version_known}",
            "run `onejob migrate` as its owner",
        )
    return ok("schema", f"{diagnostics.schema_version}, which is the newest")


def _check_role(diagnostics: "PostgresDiagnostics") -> Finding:
    if diagnostics.missing_privileges:
        return fail(
            "role",
            f"{diagnostics.role} lacks privileges ({'; '.join(diagnostics.missing_privileges)})",
            "grant them as in docs/production.md",
        )
    if diagnostics.superuser:
        return warn(
            "role",
            f"{diagnostics.role} is a superuser: an attacker of the service would control the whole server",
            "serve as a role with the grants of docs/production.md, migrate as the owner",
        )
    return ok("role", f"{diagnostics.role} has the privileges it needs, and is not a superuser")


def _check_connections(diagnostics: "PostgresDiagnostics") -> Finding:
    from onejob.engines.postgres.diagnostics import CONNECTIONS_PER_PROCESS

    used, limit = diagnostics.connections_used, diagnostics.connections_max
    room = max(0, limit - used) // CONNECTIONS_PER_PROCESS
    found = f"{used} of {limit} are used; a process takes up to {CONNECTIONS_PER_PROCESS}: room for {room} more"
    if room:
        return ok("connections", found)
    return warn("connections", found, "raise max_connections, or use a pooler and pooled=on in the URL")


def _check_pooler(diagnostics: "PostgresDiagnostics") -> Iterator[Finding]:
    if diagnostics.pooled:
        listens = "LISTEN bypasses it" if diagnostics.can_listen else "no LISTEN, so waiters for a held key poll"
        yield ok("pooler", f"pooled=on: no prepared statements; {listens}")
    elif diagnostics.is_proxied:
        yield warn(
            "pooler",
            "the server is behind another address: if that is a pooler in transaction mode, statements will fail",
            "then add pooled=on to the URL",
        )
