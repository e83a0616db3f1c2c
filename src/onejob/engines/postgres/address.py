"""What an engine's URL says: the part that is ours, and the rest, which is PostgreSQL's."""

import re
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from onejob.core.invalid import Invalid
from onejob.engine import Durability

SCHEMES = ("postgresql", "postgres")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,49}")
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


def address_of(url: str) -> Address:
    """Read `postgresql://…?schema=&durability=&migrate=&pooled=`; what else is asked goes to the driver."""
    parts = urlsplit(url)
    asked = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema = asked.pop("schema", "public")
    if not _SCHEMA.fullmatch(schema):
        raise Invalid("schema", f"{schema!r} is no plain name of a schema; use small letters, digits and _")
    declared = asked.pop("durability", "")
    if declared and declared not in _DURABILITIES:
        raise Invalid("durability", f"{declared!r} is no durability of PostgreSQL; declare disk or quorum")
    migrate, pooled = (_switch(asked, name, usual=name == "migrate") for name in ("migrate", "pooled"))
    # After a failover the old address may lead to a standby, which takes no writes.
    asked.setdefault("target_session_attrs", "read-write")
    return Address(
        dsn=urlunsplit(parts._replace(query=urlencode(asked))),
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


def _shown(netloc: str, path: str) -> str:
    return f"postgresql://{netloc.rpartition('@')[2]}{path}"
