"""Parsing the Idempotency-Key header: a structured-field string (`"K"`), or the common bare form `K`.

The bare form includes numbers and tokens. A byte sequence (`:YWJj:`) or a boolean (`?1`) is refused: a server that
follows the specification of structured fields reads another value than its text.
"""

import re
from collections.abc import Iterable

from onejob.core.key import checked_key

from .core.errors import Invalid

HEADER_NAME = b"idempotency-key"

_STRING = r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"'
_PARAMETER = (
    r'[ \t]*; *[a-z*][a-z0-9_.*-]*(?:=(?:"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"|[\x21\x23-\x3a\x3c-\x7e]+))?'
)
_QUOTED = re.compile(rf"{_STRING}(?:{_PARAMETER})*[ \t]*")
_BARE = re.compile(r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x7e]+")
_BYTES_OR_BOOLEAN = re.compile(r":[A-Za-z0-9+/=]*:|\?[01]")
_ESCAPED = re.compile(r'\\(["\\])')


def resolve_key(header: str | None, body: str | None, name: str) -> str | None:
    """The key of a request that may have it in the header, in the body, or in both."""
    if header is not None and body is not None and checked_key(header) != checked_key(body):
        raise Invalid(name, "the header and the body have different keys; send one of them, or the same key")
    return header if body is None else body


def parse_key_header(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The key of a request; None without the header. A malformed header raises Invalid."""
    lines = [value for name, value in headers if name == HEADER_NAME]
    if not lines:
        return None
    if len(lines) > 1:
        raise Invalid("Idempotency-Key", "the request has several Idempotency-Key headers; send one")
    text = lines[0].decode("latin-1").strip(" \t")
    if _BYTES_OR_BOOLEAN.fullmatch(text):
        message = 'the Idempotency-Key header is a byte sequence or a boolean; send a string: "your-key" in quotes'
        raise Invalid("Idempotency-Key", message)
    if not text:
        key = ""
    elif _BARE.fullmatch(text):
        key = text
    elif quoted := _QUOTED.fullmatch(text):
        key = _ESCAPED.sub(r"\1", quoted[1])
    else:
        raise Invalid("Idempotency-Key", 'the Idempotency-Key header is malformed; send "your-key" in quotes')
    if not key:
        raise Invalid("Idempotency-Key", "the Idempotency-Key header is empty; send a key or no header")
    return key
