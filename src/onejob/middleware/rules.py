"""What the middleware decides, without I/O: which requests take a key, what is refused, which responses are stored.

ASGI, WSGI and Django differ in how a request arrives and a response leaves. What happens to it is decided here, once.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, TypedDict

from msgspec import Struct

from onejob.core.errors import Invalid
from onejob.core.replies import Replayed
from onejob.core.reserve import Verdict
from onejob.core.timestamps import to_utc
from onejob.errors import OnejobError
from onejob.idempotency_key_header import parse_key_header
from onejob.ledger.parse import parse_lease_ms, parse_window_ms

from .problems import LayerResponse, error_response, problem_response, replay_response
from .stored_response import RECEIPT_BYTES_MAX, Headers, StoredResponse, pack_response, unpack_response

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
PATTERNS_MAX = 1024
BODY_BYTES_MAX = 1 << 20
CACHED_REPLAYS_MAX = 1024
CACHED_REPLAY_BYTES_MAX = 1024
CACHED_TIMESTAMPS_MAX = 64
# Headers of the first response that a replay repeats. A cookie may be a session and is never stored.
HEADERS = (
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "etag",
    "last-modified",
    "link",
    "location",
    "vary",
)

_NOT_DONE = "internal error: the request was not done; the server log has the reason"

log = logging.getLogger("onejob.middleware")


class Need(StrEnum):
    REQUIRED = "required"
    OPTIONAL = "optional"
    OFF = "off"


class Rule(Struct, frozen=True):
    """`POST|PATCH /orders/*`: methods, then a path in which `*` is one segment and `**` any number of them."""

    where: str
    key: Need = Need.OPTIONAL
    window: timedelta | None = None  # None: the default of the ledger, 24 hours unless it was opened with another

    def __post_init__(self) -> None:
        methods, _ = _pattern(self.where)
        if self.key not in set(Need):
            raise Invalid("key", f"key is not one of {', '.join(Need)}; choose one")
        if self.key is not Need.OFF and methods & SAFE_METHODS:
            raise Invalid(
                "where", f"{', '.join(sorted(methods & SAFE_METHODS))} is a safe method and takes no key; remove it"
            )
        if self.window is not None:
            window_ms(self.window)

    def covers(self, method: str, path: str) -> bool:
        methods, pattern = _pattern(self.where)
        return method in methods and pattern.fullmatch(path) is not None


# By status, else by status class. A committed response is replayed; after a failed one the key may be used again.
# A 4xx is failed if it does not depend on the request alone: authentication, size, media type, rate.
VERDICTS: Mapping[int, Verdict] = {
    2: Verdict.COMMIT,
    3: Verdict.COMMIT,
    4: Verdict.COMMIT,
    5: Verdict.FAIL,
    **dict.fromkeys((401, 403, 407, 408, 413, 415, 421, 425, 429), Verdict.FAIL),
}


def verdict_of(verdicts: Mapping[int, Verdict], status: int) -> Verdict:
    return verdicts.get(status) or verdicts.get(status // 100) or Verdict.FAIL


def checked_verdicts(verdicts: Mapping[int, Verdict]) -> Mapping[int, Verdict]:
    """The default table with these rows replaced."""
    if not set(verdicts.values()) <= {Verdict.COMMIT, Verdict.FAIL}:
        raise Invalid("verdicts", "a verdict is neither COMMIT nor FAIL; choose one of these for every status")
    return {**VERDICTS, **verdicts}


@lru_cache(PATTERNS_MAX)
def window_ms(window: timedelta) -> int:
    return parse_window_ms("window", window)


@lru_cache(PATTERNS_MAX)
def _pattern(where: str) -> tuple[frozenset[str], re.Pattern[str]]:
    methods, space, path = where.partition(" ")
    if not space or not methods.replace("|", "").isalpha() or not path.startswith("/"):
        raise Invalid("where", f"{where!r} is not a rule; write methods and a path, such as 'POST|PATCH /orders/*'")
    wildcards = {"**": ".*", "*": "[^/]+"}
    parts = (wildcards.get(part, re.escape(part)) for part in re.split(r"(\*\*|\*)", path))
    return frozenset(methods.upper().split("|")), re.compile("".join(parts), re.DOTALL)


DEFAULT_RULES = (Rule("POST|PATCH /**"),)


class LayerOptions(TypedDict, total=False):
    """The options that all forms of the middleware share, as keyword arguments."""

    lease: timedelta | None
    headers: Iterable[str]
    body_bytes_max: int
    answer_bytes_max: int
    mismatch_status: int
    verdicts: Mapping[int, Verdict] | None


class IdempotencyRules:
    """The options of a middleware, checked, and what follows from them for a request and its response."""

    def __init__(
        self,
        *,
        scope: Callable[[Any], str | None],
        rules: Iterable[Rule] = DEFAULT_RULES,
        lease: timedelta | None = None,
        headers: Iterable[str] = HEADERS,
        body_bytes_max: int = BODY_BYTES_MAX,
        answer_bytes_max: int = RECEIPT_BYTES_MAX,
        mismatch_status: int = 422,
        verdicts: Mapping[int, Verdict] | None = None,
    ) -> None:
        """`scope` returns the owner of the key, such as the authenticated user; None refuses the request with 401."""
        if not callable(scope):
            raise Invalid(
                "scope",
                "scope is not callable; pass a function that returns the owner of a key, else users would share keys",
            )
        self._scope_of = scope
        self._rules = tuple(rules)
        self.lease_ms = 0 if lease is None else parse_lease_ms(lease)  # 0: the ledger's default
        self._replayable_headers = frozenset(name.lower().encode() for name in headers)
        if b"set-cookie" in self._replayable_headers:
            raise Invalid("headers", "a cookie may be a session and is never stored; remove set-cookie")
        self.body_bytes_max = body_bytes_max
        self.answer_bytes_max = min(answer_bytes_max, RECEIPT_BYTES_MAX)
        self.mismatch_status = mismatch_status
        self._verdicts = checked_verdicts(verdicts or {})

    def find_rule(self, method: str, path: str) -> Rule | None:
        """The first rule that covers a request; None if it takes no key."""
        if method in SAFE_METHODS:
            return None
        for rule in self._rules:
            if rule.covers(method, path):
                return None if rule.key is Need.OFF else rule
        return None

    def resolve_scope(self, source: Any) -> str | LayerResponse:
        """The scope of a key, or the response that refuses the request."""
        try:
            scope = self._scope_of(source)
        except Exception:
            log.exception("the scope function raised; the request was refused")
            return problem_response("INTERNAL_ERROR", _NOT_DONE)
        if scope is not None and not isinstance(scope, str):
            log.error("the scope function returned %s instead of str; the request was refused", type(scope).__name__)
            return problem_response("INTERNAL_ERROR", _NOT_DONE)
        if not scope:
            message = "an Idempotency-Key requires an authenticated client: the request was not done; authenticate"
            return problem_response("UNAUTHORIZED", message)
        return scope

    def refuse_large_body(self) -> LayerResponse:
        return problem_response(
            "PAYLOAD_TOO_LARGE", f"the body of a request with a key has at most {self.body_bytes_max} bytes; send less"
        )

    def respond_to_error(self, error: OnejobError) -> LayerResponse:
        """The response if a key could not be acquired."""
        return error_response(error, mismatch_status=self.mismatch_status)

    def releases_key(self, status: int) -> bool:
        """True if a response with this status is not stored: its key may be used again."""
        return verdict_of(self._verdicts, status) is _FAIL

    def receipt_of(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes | None) -> bytes | None:
        """What is stored of a response; None if its key may be used again. `body` is None if it cannot be stored."""
        if self.releases_key(status):
            return None
        if body is None or len(body) > self.answer_bytes_max:
            return pack_response(StoredResponse(status))  # a tombstone
        replayable = self._replayable_headers
        stored = tuple([(lower, value) for name, value in headers if (lower := name.lower()) in replayable])
        return pack_response(StoredResponse(status, stored, body))

    def has_small_length(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """True if Content-Length says that the whole response is small enough to store."""
        for name, value in headers:
            if name.lower() == b"content-length" and value.isdigit():
                return int(value) <= self.answer_bytes_max
        return False


# Looked up once: access to an enum member is slow, and every response needs it.
_FAIL = Verdict.FAIL


class ResponseBuffer:
    """Collects the parts of a response until it is known what can be stored of it: all of it, or that it is a stream."""

    __slots__ = ("_parts", "_rules", "_size", "headers", "status")

    def __init__(self, rules: IdempotencyRules) -> None:
        self._rules = rules
        self.status = 0
        self.headers: Headers = ()
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, part: bytes, *, more: bool) -> bytes | None:
        """All parts so far, as soon as the response may leave; None if its next part has to be awaited."""
        if not more and not self._parts:
            return part
        self._parts.append(part)
        self._size += len(part)
        rules = self._rules
        if more and self._size <= rules.answer_bytes_max and rules.has_small_length(self.headers):
            return None
        collected = b"".join(self._parts)
        self._parts = []
        return collected

    def receipt(self, collected: bytes, *, more: bool) -> bytes | None:
        """What is stored of the response; None if its key may be used again."""
        return self._rules.receipt_of(self.status, self.headers, None if more else collected)


def read_key(headers: Iterable[tuple[bytes, bytes]], *, required: bool) -> str | LayerResponse | None:
    """The key of a request, a problem if it is malformed or missing, or None if none is required."""
    try:
        key = parse_key_header(headers)
    except Invalid as error:
        return problem_response("VALIDATION_ERROR", str(error))
    if key is None and required:
        return problem_response(
            "KEY_MISSING",
            "this path requires an Idempotency-Key; send a new key per operation, the same on every retry",
        )
    return key


@lru_cache(CACHED_TIMESTAMPS_MAX)
def expires_header(ms: int) -> tuple[bytes, bytes]:
    """Cached, because responses that were committed together expire together."""
    return (b"idempotency-expires", to_utc(ms).isoformat().encode())


def decode_replay(replayed: Replayed) -> LayerResponse:
    """The response to a duplicate; raises Outdated for a receipt that is not known here."""
    decode = _decode_replay_cached if len(replayed.receipt) <= CACHED_REPLAY_BYTES_MAX else _decode_replay
    return decode(replayed.receipt, replayed.expires_at)


def _decode_replay(receipt: bytes, expires_at: int) -> LayerResponse:
    return replay_response(unpack_response(receipt), expires_header(expires_at))


# A retry often replays the response that was replayed just before. The cache is keyed by all that the response depends on.
_decode_replay_cached = lru_cache(CACHED_REPLAYS_MAX)(_decode_replay)
