"""What a request asks for, as one digest, and whose it is."""

import asyncio
from collections.abc import Coroutine
from functools import lru_cache
from hashlib import sha256
from typing import Any

from onejob.core.errors import Invalid
from onejob.core.fingerprint import canonical_json, fingerprint
from onejob.core.identity import FORBIDDEN_CHARACTERS, NAME_CHARS_MAX

RECORD_TYPE = "http"
SCOPE_PREFIX = "http:"
HASHED_PREFIX = "sha256:"
ON_LOOP_BYTES_MAX = 64 << 10
CACHED_BODY_BYTES_MAX = 2048
CACHE_ENTRIES_MAX = 1024


@lru_cache(CACHE_ENTRIES_MAX)
def scope_name(given: str, prefix: str = SCOPE_PREFIX) -> str:
    """The scope of a key, apart from those of jobs; a long one is hashed, and none can pose as such a hash."""
    fits = len(prefix) + len(given) <= NAME_CHARS_MAX and not FORBIDDEN_CHARACTERS.search(given)
    if fits and not given.startswith(HASHED_PREFIX):
        return prefix + given
    return prefix + HASHED_PREFIX + sha256(given.encode("utf-8", "surrogatepass")).hexdigest()


def compute_fingerprint(
    method: str, path: str, query: bytes, content_type: bytes, body: bytes
) -> bytes | Coroutine[Any, Any, bytes]:
    """The fingerprint of method, path, query and body; that of a large body is to be waited for, beside the loop."""
    if len(body) <= CACHED_BODY_BYTES_MAX:
        return _fingerprint_cached(method, path, query, content_type, body)
    if len(body) <= ON_LOOP_BYTES_MAX:
        return _fingerprint_now(method, path, query, content_type, body)
    return asyncio.to_thread(_fingerprint_now, method, path, query, content_type, body)


def _fingerprint_now(method: str, path: str, query: bytes, content_type: bytes, body: bytes) -> bytes:
    parts = (
        method.encode(),
        path.encode("utf-8", "surrogatepass"),
        query,
        *_normalize_body(content_type, body),
    )
    # Each with its length before it, so that no two requests are the same row of bytes.
    whole = sha256(b"".join([b"%d:%b" % (len(part), part) for part in parts]))
    return fingerprint(RECORD_TYPE, b'"%b"' % whole.hexdigest().encode())


# Retries bring the very same request: its fingerprint is worked out once.
_fingerprint_cached = lru_cache(CACHE_ENTRIES_MAX)(_fingerprint_now)


def _normalize_body(content_type: bytes, body: bytes) -> tuple[bytes, bytes]:
    """The media type and the one form of a body: JSON that can be told apart is canonical, anything else as sent."""
    media = content_type.partition(b";")[0].strip().lower()
    if media != b"application/json" and not media.endswith(b"+json"):
        return media, body
    try:
        return b"json", canonical_json(body)
    except Invalid:
        return media, body
