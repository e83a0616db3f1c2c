"""What an engine's URL says: the part that is ours, and the rest, which is PostgreSQL's."""

import re
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from onejob.core.errors import Invalid
from onejob.engine import Durability

SCHEMES = ("postgresql", "postgres")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,49}")
_HOSTS = re.compile(r"[A-Za-z0-9.:,_\[\]-]{1,1000}")
_SWITCH = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}
_DURABILITIES = {"disk": Durability.DISK, "quorum": Durability.QUORUM}


class PostgresUrl(Struct, frozen=True, kw_only=True):
    """Where a store is, and how it is to be used."""

    dsn: str
    display_url: str  # without the password
    schema: str = "public"
    durability: Durability | None = None  # None: undeclared
    migrate: bool = True
    pooled: bool = False  # behind a pooler that hands out servers per transaction
    listen_dsn: str = ""  # where notices are heard; empty: nowhere


def parse_postgres_url(url: str) -> PostgresUrl:
    """Read `postgresql://…?schema=&durability=&migrate=&pooled=&direct=`; what else is asked goes to the driver."""
    parts = urlsplit(url)
    asked = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema = asked.pop("schema", "public")
    if not _SCHEMA.fullmatch(schema):
        raise Invalid("schema", f"{schema!r} is no plain name of a schema; use small letters, digits and _")
    declared = asked.pop("durability", "")
    if declared and declared not in _DURABILITIES:
        raise Invalid("durability", f"{declared!r} is no durability of PostgreSQL; declare disk or quorum")
    migrate, pooled = (_parse_switch(asked, name, default=name == "migrate") for name in ("migrate", "pooled"))
    direct = _parse_direct_hosts(asked, pooled=pooled)
    # After a failover the old address may lead to a standby, which takes no writes. The driver asks for it outside of
    # a transaction: behind a pooler two halves of that question may meet two servers. There the checkup finds out.
    if not pooled:
        asked.setdefault("target_session_attrs", "read-write")
    dsn = urlunsplit(parts._replace(query=urlencode(asked)))
    return PostgresUrl(
        dsn=dsn,
        listen_dsn=_direct_dsn(parts, asked, direct) if pooled else dsn,
        display_url=_display_url(parts.netloc, parts.path),
        schema=schema,
        durability=_DURABILITIES.get(declared),
        migrate=migrate,
        pooled=pooled,
    )


def _parse_switch(options: dict[str, str], name: str, *, default: bool) -> bool:
    word = options.pop(name, "on" if default else "off").lower()
    if word not in _SWITCH:
        raise Invalid(name, f"{name} is {word!r}; set it to on or off")
    return _SWITCH[word]


def _parse_direct_hosts(options: dict[str, str], *, pooled: bool) -> str:
    """The hosts behind a pooler; empty where none are named."""
    hosts = options.pop("direct", "")
    if hosts and (not pooled or not _HOSTS.fullmatch(hosts)):
        raise Invalid("direct", "direct names the servers behind a pooler, as db1:5432,db2:5432, beside pooled=on")
    return hosts


def _direct_dsn(parts: SplitResult, options: dict[str, str], hosts: str) -> str:
    """The same user and database on the servers themselves."""
    if not hosts:
        return ""
    login, at, _ = parts.netloc.rpartition("@")
    query = urlencode({**options, "target_session_attrs": "read-write"})
    return urlunsplit(parts._replace(netloc=f"{login}{at}{hosts}", query=query))


def _display_url(netloc: str, path: str) -> str:
    return f"postgresql://{netloc.rpartition('@')[2]}{path}"
