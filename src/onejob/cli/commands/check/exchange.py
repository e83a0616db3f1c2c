"""One HTTP exchange of `onejob check`: a request as it is written on the wire, and its response.

Each request has a connection of its own. Header lines are written as they are given, since malformed and repeated ones
are part of what is checked; and the last byte of a request can be held back, so that many arrive in the same moment.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from onejob.addresses import is_loopback
from onejob.core.errors import Invalid

KEY_HEADER = "Idempotency-Key"
BODY_BYTES_MAX = 4 << 20
_MISSING: Any = object()


class Unreachable(Exception):
    """There was no complete response: nothing can be said about the API."""


class ApiResponse(Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_problem(self) -> bool:
        """Whether an error says what it is about: a problem document (RFC 9457), or a link to a description."""
        links = self.headers.get("link", "")
        return self.headers.get("content-type", "").startswith("application/problem+json") or "describedby" in links


class ApiTarget(Struct, frozen=True, kw_only=True):
    """The API: where it is, what it is sent, and where its responses name what they made."""

    url: str
    method: str = "POST"
    body: bytes
    other_body: bytes  # the same with another value: under the same key it is a misuse
    headers: tuple[tuple[str, str], ...] = ()
    id_path: str = ""  # in the body of a response; empty: the whole body
    timeout_seconds: float = 30.0

    @property
    def parts(self) -> SplitResult:
        return urlsplit(self.url)

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.parts.hostname or "")

    def identity(self, response: ApiResponse) -> str:
        """What a response says was made: its id, or all of its body."""
        if not self.id_path:
            return response.body.decode(errors="replace")
        try:
            found = find_path(json.loads(response.body), self.id_path)
        except ValueError:
            found = _MISSING
        return "" if found is _MISSING else json.dumps(found)

    def send(
        self,
        *keys: str,
        body: bytes | None = None,
        headers: Sequence[tuple[str, str]] | None = None,
        before_last_byte: Callable[[], object] | None = None,
        key_header: str = KEY_HEADER,
        hang_up: bool = False,
    ) -> ApiResponse:
        """Send the request with these keys, each in a header line of its own."""
        lines = [*(self.headers if headers is None else headers), *((key_header, key) for key in keys)]
        sent = self.body if body is None else body
        return self._exchange(self.method, self.parts, lines, sent, before_last_byte, hang_up=hang_up)

    def get(self, path: str) -> ApiResponse:
        """GET a path of the same server."""
        split = urlsplit(path)
        parts = self.parts._replace(path=split.path, query=split.query)
        return self._exchange("GET", parts, list(self.headers), b"", None)

    def _exchange(
        self,
        method: str,
        parts: SplitResult,
        lines: Sequence[tuple[str, str]],
        body: bytes,
        before_last_byte: Callable[[], object] | None,
        *,
        hang_up: bool = False,
    ) -> ApiResponse:
        connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = connect(parts.hostname or "", parts.port, timeout=self.timeout_seconds)
        try:
            connection.putrequest(method, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
            names = {name.lower() for name, _ in lines}
            if body:
                connection.putheader("Content-Length", str(len(body)))
            if body and "content-type" not in names:
                connection.putheader("Content-Type", "application/json")
            for name, value in lines:
                connection.putheader(name, value)
            connection.endheaders(body[:-1] or None)
            if before_last_byte is not None:
                before_last_byte()
            connection.send(body[-1:])
            if hang_up:
                return ApiResponse(0, {}, b"")
            response = connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return ApiResponse(response.status, headers, response.read(BODY_BYTES_MAX))
        except (OSError, HTTPException) as error:
            raise Unreachable(f"{self.url}: {error or type(error).__name__}") from error
        finally:
            connection.close()


def find_path(value: Any, path: str) -> Any:
    """The member at a path such as `job.id` or `items.0.id`."""
    for name in path.split("."):
        if isinstance(value, Mapping) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return _MISSING
    return value


def has_path(value: Any, path: str) -> bool:
    return find_path(value, path) is not _MISSING


def vary(body: bytes, path: str) -> bytes:
    """The same JSON with another value at the path; without a path, at the first member that is a number or text."""
    try:
        document = json.loads(body)
    except ValueError:
        raise Invalid("body", "the body is not JSON; give the other body with --other-body") from None
    path = path or _first_plain_path(document)
    if not path:
        raise Invalid("body", "the body has no number or text to change; give one with --body, or --other-body too")
    if not has_path(document, path):
        raise Invalid("vary", f"the body has no member {path}; name another with --vary, or give --other-body")
    parent, _, last = path.rpartition(".")
    holder = find_path(document, parent) if parent else document
    old = find_path(document, path)
    new = old + 1 if isinstance(old, int | float) and not isinstance(old, bool) else f"{old} (changed)"
    holder[int(last) if isinstance(holder, list) else last] = new
    return json.dumps(document).encode()


def _first_plain_path(value: Any, prefix: str = "") -> str:
    """Numbers first, and the deepest member last: a name such as the type of a job may be checked."""
    if not isinstance(value, Mapping):
        return ""
    plain = [name for name, member in value.items() if isinstance(member, int | float) and not isinstance(member, bool)]
    nested = (_first_plain_path(member, f"{prefix}{name}.") for name, member in value.items())
    texts = [name for name, member in value.items() if isinstance(member, str)]
    below = next((path for path in nested if path), "")
    return prefix + plain[0] if plain else below or (prefix + texts[0] if texts else "")
