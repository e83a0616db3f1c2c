"""Parses an engine URL into the options of onejob and the DSN for the driver."""

import re
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from onejob.core.errors import Invalid
from onejob.engine import Durability

SCHEMES = ("postgresql", "postgres")
SCHEMA_DEFAULT = "public"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,49}")
_HOSTS = re.compile(r"[A-Za-z0-9.:,_\[\]-]{1,1000}")
_PORTS = re.compile(r"(?:[^:,\[\]]*|\[[^\[\]]*\])(?::[0-9]{0,5})?(?:,(?:[^:,\[\]]*|\[[^\[\]]*\])(?::[0-9]{0,5})?)*")
_SWITCH = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}
_DURABILITIES = {"disk": Durability.DISK, "quorum": Durability.QUORUM}


class PostgresUrl(Struct, frozen=True, kw_only=True):
    dsn: str
    display_url: str  # without the password
    schema: str = SCHEMA_DEFAULT
    durability: Durability | None = None  # None: undeclared
    migrate: bool = True
    pooled: bool = False  # behind a pooler in transaction mode
    listen_dsn: str = ""  # for LISTEN; empty: do not listen


def parse_postgres_url(url: str) -> PostgresUrl:
    """Parse `postgresql://…?schema=&durability=&migrate=&pooled=&direct=`; other parameters go to the driver."""
    parts = _split_url(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema = checked_schema(options.pop("schema", SCHEMA_DEFAULT))
    declared = options.pop("durability", "")
    if declared and declared not in _DURABILITIES:
        raise Invalid("durability", "durability is not one of PostgreSQL's; declare disk or quorum")
    migrate, pooled = (_parse_switch(options, name, default=name == "migrate") for name in ("migrate", "pooled"))
    direct = _parse_direct_hosts(options, pooled=pooled)
    # After a failover the old address may lead to a standby. The driver checks that outside of a transaction, which is
    # unsafe behind a pooler: each step may reach another server. There find_violations detects a standby.
    if not pooled:
        options.setdefault("target_session_attrs", "read-write")
    dsn = urlunsplit(parts._replace(query=urlencode(options)))
    return PostgresUrl(
        dsn=dsn,
        listen_dsn=_direct_dsn(parts, options, direct) if pooled else dsn,
        display_url=_display_url(parts),
        schema=schema,
        durability=_DURABILITIES.get(declared),
        migrate=migrate,
        pooled=pooled,
    )


def checked_schema(schema: str) -> str:
    if not _SCHEMA.fullmatch(schema):
        raise Invalid("schema", "schema is not a plain name; use lower-case letters, digits and _")
    return schema


def _split_url(url: str) -> SplitResult:
    """The parts of a URL. One that cannot be read, or only with its password in a wrong place, is refused unquoted."""
    try:
        parts = urlsplit(url)
        if _PORTS.fullmatch(parts.netloc.rpartition("@")[2]) and "@" not in parts.path and not parts.fragment:
            return parts
    except ValueError:
        pass  # its message quotes the URL
    raise Invalid(
        "engine",
        "the URL of the PostgreSQL server cannot be parsed; write it as postgresql://user:password@host:5432/database, "
        "with special characters of the password percent-encoded (@ as %40, / as %2F)",
    )


def _parse_switch(options: dict[str, str], name: str, *, default: bool) -> bool:
    word = options.pop(name, "on" if default else "off").lower()
    if word not in _SWITCH:
        raise Invalid(name, f"{name} is neither on nor off; set it to one of them")
    return _SWITCH[word]


def _parse_direct_hosts(options: dict[str, str], *, pooled: bool) -> str:
    hosts = options.pop("direct", "")
    if hosts and (not pooled or not _HOSTS.fullmatch(hosts)):
        raise Invalid(
            "direct", "direct lists the servers behind a pooler, such as db1:5432,db2:5432; use it with pooled=on"
        )
    return hosts


def _direct_dsn(parts: SplitResult, options: dict[str, str], hosts: str) -> str:
    """The same user and database on the servers themselves."""
    if not hosts:
        return ""
    login, at, _ = parts.netloc.rpartition("@")
    query = urlencode({**options, "target_session_attrs": "read-write"})
    return urlunsplit(parts._replace(netloc=f"{login}{at}{hosts}", query=query))


def _display_url(parts: SplitResult) -> str:
    if "@" in parts.query:  # the question mark may be part of a password
        return "postgresql://…"
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"
