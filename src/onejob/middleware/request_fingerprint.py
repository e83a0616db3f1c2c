"""The fingerprint of a request, and the scope of its key."""

from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256

from onejob.core.errors import Invalid
from onejob.core.fingerprint import canonical_json, fingerprint
from onejob.core.identity import FORBIDDEN_CHARACTERS, NAME_CHARS_MAX

RECORD_TYPE = "http"
SCOPE_PREFIX = "http:"
HASHED_PREFIX = "sha256:"
CACHED_BODY_BYTES_MAX = 2048
CACHE_ENTRIES_MAX = 1024
# Headers that change what a request asks for. Without them the fingerprint is as if they did not exist.
COMPARED_HEADERS = frozenset(
    (
        b"content-encoding",
        b"content-range",
        b"if-match",
        b"if-modified-since",
        b"if-none-match",
        b"if-unmodified-since",
    )
)


@lru_cache(CACHE_ENTRIES_MAX)
def scope_name(given: str, prefix: str = SCOPE_PREFIX) -> str:
    """The stored scope of a key: the prefix separates it from the scopes of jobs; a long name is hashed.

    A short name that looks like a hash is hashed too, so that two names never share a scope.
    """
    fits = len(prefix) + len(given) <= NAME_CHARS_MAX and not FORBIDDEN_CHARACTERS.search(given)
    if fits and not given.startswith(HASHED_PREFIX):
        return prefix + given
    return prefix + HASHED_PREFIX + sha256(given.encode("utf-8", "surrogatepass")).hexdigest()


def compute_fingerprint(
    method: str, path: str, query: bytes, headers: Iterable[tuple[bytes, bytes]], body: bytes
) -> bytes:
    """The fingerprint of method, path, query, some headers and body."""
    content_type, compared = b"", []
    for name, value in headers:
        if name == b"content-type":
            content_type = content_type or value
        elif name in COMPARED_HEADERS:
            compared.append((name, value))
    args = method, path, query, content_type, tuple(sorted(compared)), body
    if len(body) <= CACHED_BODY_BYTES_MAX:
        return _fingerprint_cached(*args)
    return _fingerprint_now(*args)


def _fingerprint_now(
    method: str, path: str, query: bytes, content_type: bytes, compared: tuple[tuple[bytes, bytes], ...], body: bytes
) -> bytes:
    request = (method.encode(), path.encode("utf-8", "surrogatepass"), query, *_normalize_body(content_type, body))
    parts = (*request, *(part for header in compared for part in header))
    # Each part follows its length, so that no two requests hash the same bytes.
    digest = sha256(b"".join([b"%d:%b" % (len(part), part) for part in parts]))
    return fingerprint(RECORD_TYPE, b'"%b"' % digest.hexdigest().encode())


# A retry sends the same bytes again.
_fingerprint_cached = lru_cache(CACHE_ENTRIES_MAX)(_fingerprint_now)


def _normalize_body(content_type: bytes, body: bytes) -> tuple[bytes, bytes]:
    """The media type and the bytes to compare: canonical for valid JSON, as sent for anything else."""
    media = content_type.partition(b";")[0].strip().lower()
    if media != b"application/json" and not media.endswith(b"+json"):
        return media, body
    try:
        return b"json", canonical_json(body)
    except Invalid:
        return media, body
