"""Examining a live PostgreSQL: does it keep what is promised, may we do our work, what would a failover lose."""

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
        seen = asyncio.run(diagnose(url))
    except OnejobError:
        return  # whoever opens the engine next says why
    yield _check_version(seen)
    yield from _check_durability_settings(seen)
    yield from _check_standbys(seen)
    yield _check_schema(seen)
    yield _check_role(seen)
    yield _check_connections(seen)
    yield from _check_pooler(seen)
    if not seen.autovacuum:
        yield warn("autovacuum", "off: expired keys are deleted, but their room is not used again", "set it to on")


def _check_version(diagnostics: "PostgresDiagnostics") -> Finding:
    if diagnostics.version < _VERSION_MIN:
        return fail("server", f"PostgreSQL {diagnostics.settings.version} is too old", "use 14 or later")
    return ok("server", f"PostgreSQL {diagnostics.settings.version}")


def _check_durability_settings(diagnostics: "PostgresDiagnostics") -> Iterator[Finding]:
    for wrong, act in diagnostics.violations:
        yield fail("promise", f"{wrong}: the engine refuses to serve", act)
    if not diagnostics.settings.full_page_writes:
        yield warn(
            "pages",
            "full_page_writes is off: a crash of the machine may tear a page, and what was answered with it",
            "set it to on, unless the file system writes whole pages",
        )
    if not diagnostics.violations:
        settings = diagnostics.settings
        yield ok("promise", f"fsync is on, synchronous_commit is {settings.synchronous_commit}")


def _check_standbys(diagnostics: "PostgresDiagnostics") -> Iterator[Finding]:
    if diagnostics.wal_level == "minimal":
        yield warn("journal", "wal_level is minimal: no standby and no archive can follow", "set it to replica")
    if not diagnostics.settings.waits_for_standby:
        return  # what a failover may lose is said for every engine
    names = diagnostics.settings.standby_names
    if diagnostics.standbys is None:
        yield warn(
            "standby",
            f"a commit waits for {names}; whether it is there, this role may not know",
            _GRANT_MONITOR,
        )
    elif not diagnostics.standbys:
        yield fail("standby", f"a commit waits for {names}, and none is attached: no answer is given", "attach one")
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
            f"{diagnostics.role} lacks rights ({'; '.join(diagnostics.missing_privileges)})",
            "grant it: docs/production.md says how",
        )
    if diagnostics.superuser:
        return warn(
            "role",
            f"{diagnostics.role} is a superuser: whoever takes the service over has the whole server",
            "serve as a role with the grants of docs/production.md, migrate as the owner",
        )
    return ok("role", f"{diagnostics.role} may do its work, and is no superuser")


def _check_connections(diagnostics: "PostgresDiagnostics") -> Finding:
    from onejob.engines.postgres.diagnostics import CONNECTIONS_PER_PROCESS

    room = max(0, diagnostics.connections_max - diagnostics.connections_used) // CONNECTIONS_PER_PROCESS
    found = (
        f"{diagnostics.connections_used} of {diagnostics.connections_max} are used; a process takes up to {CONNECTIONS_PER_PROCESS}: "
        f"room for {room} more"
    )
    if room:
        return ok("connections", found)
    return warn("connections", found, "raise max_connections, or put a pooler between and say pooled=on")


def _check_pooler(diagnostics: "PostgresDiagnostics") -> Iterator[Finding]:
    if diagnostics.pooled:
        heard = (
            "notices are heard past it"
            if diagnostics.can_listen
            else "nothing is heard, so waiters for a held key poll"
        )
        yield ok("pooler", f"pooled=on: no statement is kept; {heard}")
    elif diagnostics.is_proxied:
        yield warn(
            "pooler",
            "the server is behind another address: if that is a pooler in transaction mode, statements will fail",
            "then add pooled=on to the URL",
        )
