"""Examining a live PostgreSQL: does it keep what is promised, may we do our work, what would a failover lose."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from onejob.errors import OnejobError

from .findings import Finding, fail, ok, warn

if TYPE_CHECKING:  # the driver is optional
    from onejob.engines.postgres.condition import Condition

_VERSION_MIN = 140_000
_MONITOR = "grant pg_monitor to the role that examines"


def of_postgres(url: str) -> Iterator[Finding]:
    from onejob.engines.postgres.condition import condition_of

    try:
        seen = asyncio.run(condition_of(url))
    except OnejobError:
        return  # whoever opens the engine next says why
    yield _version(seen)
    yield from _disk(seen)
    yield from _standbys(seen)
    yield _schema(seen)
    yield _role(seen)
    yield _connections(seen)
    yield from _between(seen)
    if not seen.autovacuum:
        yield warn(
            "autovacuum", "off: expired keys are deleted, but their room is not used again", "set it to on"
        )


def _version(seen: "Condition") -> Finding:
    if seen.version < _VERSION_MIN:
        return fail("server", f"PostgreSQL {seen.settings.version} is too old", "use 14 or later")
    return ok("server", f"PostgreSQL {seen.settings.version}")


def _disk(seen: "Condition") -> Iterator[Finding]:
    for wrong, act in seen.wrongs:
        yield fail("promise", f"{wrong}: the engine refuses to serve", act)
    if not seen.settings.full_page_writes:
        yield warn(
            "pages",
            "full_page_writes is off: a crash of the machine may tear a page, and what was answered with it",
            "set it to on, unless the file system writes whole pages",
        )
    if not seen.wrongs:
        settings = seen.settings
        yield ok("promise", f"fsync is on, synchronous_commit is {settings.synchronous_commit}")


def _standbys(seen: "Condition") -> Iterator[Finding]:
    if seen.wal_level == "minimal":
        yield warn(
            "journal", "wal_level is minimal: no standby and no archive can follow", "set it to replica"
        )
    if not seen.settings.waits:
        return  # what a failover may lose is said for every engine
    names = seen.settings.standby_names
    if seen.standbys is None:
        yield warn(
            "standby", f"a commit waits for {names}; whether it is there, this role may not know", _MONITOR
        )
    elif not seen.standbys:
        yield fail(
            "standby", f"a commit waits for {names}, and none is attached: no answer is given", "attach one"
        )
    else:
        yield ok("standby", f"a commit waits for {names}; attached: {seen.standbys}. Set it on every node")


def _schema(seen: "Condition") -> Finding:
    if seen.schema > seen.newest:
        return fail("schema", f"{seen.schema}, this program knows {seen.newest}", "upgrade the program")
    if seen.schema < seen.newest:
        return fail(
            "schema",
            f"{seen.schema or 'none'}, this program needs {seen.newest}",
            "run `onejob migrate` as its owner",
        )
    return ok("schema", f"{seen.schema}, which is the newest")


def _role(seen: "Condition") -> Finding:
    if seen.lacking:
        return fail(
            "role",
            f"{seen.role} lacks rights ({'; '.join(seen.lacking)})",
            "grant it: docs/production.md says how",
        )
    if seen.superuser:
        return warn(
            "role",
            f"{seen.role} is a superuser: whoever takes the service over has the whole server",
            "serve as a role with the grants of docs/production.md, migrate as the owner",
        )
    return ok("role", f"{seen.role} may do its work, and is no superuser")


def _connections(seen: "Condition") -> Finding:
    from onejob.engines.postgres.condition import CONNECTIONS_EACH

    room = max(0, seen.connections_max - seen.connections_used) // CONNECTIONS_EACH
    found = (
        f"{seen.connections_used} of {seen.connections_max} are used; a process takes up to {CONNECTIONS_EACH}: "
        f"room for {room} more"
    )
    if room:
        return ok("connections", found)
    return warn("connections", found, "raise max_connections, or put a pooler between and say pooled=on")


def _between(seen: "Condition") -> Iterator[Finding]:
    if seen.pooled:
        heard = (
            "notices are heard past it" if seen.hears else "nothing is heard, so waiters for a held key poll"
        )
        yield ok("pooler", f"pooled=on: no statement is kept; {heard}")
    elif seen.behind:
        yield warn(
            "pooler",
            "the server is behind another address: if that is a pooler in transaction mode, statements will fail",
            "then add pooled=on to the URL",
        )
