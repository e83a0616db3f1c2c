"""What a request asks for, as one digest, and whose it is."""

import asyncio
from collections.abc import Coroutine
from functools import lru_cache
from hashlib import sha256
from typing import Any

from onejob.core.actor import UNFIT
from onejob.core.fingerprint import canonical, fingerprint
from onejob.core.identity import NAME_CHARS_MAX
from onejob.core.invalid import Invalid

TYPE = "http"
PREFIX = "http:"
HASHED = "sha256:"
BESIDE_BYTES = 64 << 10
SMALL_BYTES = 2048
REPEATED_MAX = 1024


@lru_cache(REPEATED_MAX)
def scope_name(given: str, prefix: str = PREFIX) -> str:
    """The scope of a key, apart from those of jobs; a long one is hashed, and none can pose as such a hash."""
    fits = len(prefix) + len(given) <= NAME_CHARS_MAX and not UNFIT.search(given)
    if fits and not given.startswith(HASHED):
        return prefix + given
    return prefix + HASHED + sha256(given.encode("utf-8", "surrogatepass")).hexdigest()


def printed(
    method: str, path: str, query: bytes, kind: bytes, body: bytes
) -> bytes | Coroutine[Any, Any, bytes]:
    """The fingerprint of method, path, query and body; that of a large body is to be waited for, beside the loop."""
    if len(body) <= SMALL_BYTES:
        return _print_again(method, path, query, kind, body)
    if len(body) <= BESIDE_BYTES:
        return _print_of(method, path, query, kind, body)
    return asyncio.to_thread(_print_of, method, path, query, kind, body)


def _print_of(method: str, path: str, query: bytes, kind: bytes, body: bytes) -> bytes:
    parts = (method.encode(), path.encode("utf-8", "surrogatepass"), query, *_form(kind, body))
    # Each with its length before it, so that no two requests are the same row of bytes.
    whole = sha256(b"".join([b"%d:%b" % (len(part), part) for part in parts]))
    return fingerprint(TYPE, b'"%b"' % whole.hexdigest().encode())


# Retries bring the very same request: its fingerprint is worked out once.
_print_again = lru_cache(REPEATED_MAX)(_print_of)


def _form(kind: bytes, body: bytes) -> tuple[bytes, bytes]:
    """The media type and the one form of a body: JSON that can be told apart is canonical, anything else as sent."""
    media = kind.partition(b";")[0].strip().lower()
    if media != b"application/json" and not media.endswith(b"+json"):
        return media, body
    try:
        return b"json", canonical(body)
    except Invalid:
        return media, body
