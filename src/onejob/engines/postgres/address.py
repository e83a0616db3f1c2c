"""What an engine's URL says: the part that is ours, and the rest, which is PostgreSQL's."""

import re
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from onejob.core.invalid import Invalid
from onejob.engine import Durability

SCHEMES = ("postgresql", "postgres")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,49}")
_HOSTS = re.compile(r"[A-Za-z0-9.:,_\[\]-]{1,1000}")
_SWITCH = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}
_DURABILITIES = {"disk": Durability.DISK, "quorum": Durability.QUORUM}


class Address(Struct, frozen=True, kw_only=True):
    """Where a store is, and how it is to be used."""

    dsn: str
    shown: str  # without the password
    schema: str = "public"
    durability: Durability | None = None  # None: undeclared
    migrate: bool = True
    pooled: bool = False  # behind a pooler that hands out servers per transaction
    listen_dsn: str = ""  # where notices are heard; empty: nowhere


def address_of(url: str) -> Address:
    """Read `postgresql://…?schema=&durability=&migrate=&pooled=&direct=`; what else is asked goes to the driver."""
    parts = urlsplit(url)
    asked = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema = asked.pop("schema", "public")
    if not _SCHEMA.fullmatch(schema):
        raise Invalid("schema", f"{schema!r} is no plain name of a schema; use small letters, digits and _")
    declared = asked.pop("durability", "")
    if declared and declared not in _DURABILITIES:
        raise Invalid("durability", f"{declared!r} is no durability of PostgreSQL; declare disk or quorum")
    migrate, pooled = (_switch(asked, name, usual=name == "migrate") for name in ("migrate", "pooled"))
    direct = _direct(asked, pooled=pooled)
    # After a failover the old address may lead to a standby, which takes no writes. The driver asks for it outside of
    # a transaction: behind a pooler two halves of that question may meet two servers. There the checkup finds out.
    if not pooled:
        asked.setdefault("target_session_attrs", "read-write")
    dsn = urlunsplit(parts._replace(query=urlencode(asked)))
    return Address(
        dsn=dsn,
        listen_dsn=_past_the_pooler(parts, asked, direct) if pooled else dsn,
        shown=_shown(parts.netloc, parts.path),
        schema=schema,
        durability=_DURABILITIES.get(declared),
        migrate=migrate,
        pooled=pooled,
    )


def _switch(asked: dict[str, str], name: str, *, usual: bool) -> bool:
    word = asked.pop(name, "on" if usual else "off").lower()
    if word not in _SWITCH:
        raise Invalid(name, f"{name} is {word!r}; set it to on or off")
    return _SWITCH[word]


def _direct(asked: dict[str, str], *, pooled: bool) -> str:
    """The hosts behind a pooler; empty where none are named."""
    hosts = asked.pop("direct", "")
    if hosts and (not pooled or not _HOSTS.fullmatch(hosts)):
        raise Invalid(
            "direct", "direct names the servers behind a pooler, as db1:5432,db2:5432, beside pooled=on"
        )
    return hosts


def _past_the_pooler(parts: SplitResult, asked: dict[str, str], direct: str) -> str:
    """The same user and database on the servers themselves."""
    if not direct:
        return ""
    login, at, _ = parts.netloc.rpartition("@")
    query = urlencode({**asked, "target_session_attrs": "read-write"})
    return urlunsplit(parts._replace(netloc=f"{login}{at}{direct}", query=query))


def _shown(netloc: str, path: str) -> str:
    return f"postgresql://{netloc.rpartition('@')[2]}{path}"
