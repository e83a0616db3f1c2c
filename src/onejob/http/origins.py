"""CORS, and the protection from pages of other sites.

Without authentication every client on this machine is trusted. A browser on this machine runs pages of other sites,
so requests with a foreign Origin are refused, and so are requests with a foreign Host (DNS rebinding).

With and without it, a page of another site may send a body only as JSON: a browser asks the server first (a preflight)
before it sends that type, and sends the types of HTML forms without asking.
"""

import re
from collections.abc import Awaitable, Callable
from functools import lru_cache

from onejob.addresses import is_loopback
from onejob.core.errors import Invalid

from .config import ServiceConfig
from .problems import Unauthorized
from .request import LOCAL, Credential, Receive, Scope, Send, UnsupportedBody
from .responses import COMMON_HEADERS, Header

PREFLIGHT_MAX_AGE_SECONDS = 600
ALLOWED_METHODS = b"GET, POST, PUT, DELETE"
ALLOWED_HEADERS = b"Idempotency-Key, Authorization, Content-Type, X-Api-Key"
EXPOSED_HEADERS = b"Idempotent-Replayed, Idempotency-Expires, Location, Retry-After, X-Request-Id"

_ORIGIN = re.compile(r"https?://[^\s/?#@,*]+", re.IGNORECASE)
_VARY_HEADER: Header = (b"vary", b"Origin")
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
BODY_CHECK_HEADERS = frozenset((b"content-encoding", b"origin", b"sec-fetch-site"))
_OWN_SITE = (b"same-origin", b"none")  # values of Sec-Fetch-Site
_IDENTITY_ENCODINGS = (b"", b"identity")

Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class CorsMiddleware:
    """Adds CORS headers to an ASGI application. Credentials are in headers, so cookies are not allowed for."""

    def __init__(self, app: Application, origins: tuple[str, ...]) -> None:
        self._app = app
        self._origins = checked_origins(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        cors_headers = self._allow_origin_headers(headers.get(b"origin"))
        if cors_headers and scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            await send({"type": "http.response.start", "status": 204, "headers": [*cors_headers, *_PREFLIGHT_HEADERS]})
            await send({"type": "http.response.body", "body": b""})
            return

        async def send_with_cors(message: Scope) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], _VARY_HEADER, *cors_headers]
            await send(message)

        await self._app(scope, receive, send_with_cors)

    def _allow_origin_headers(self, origin: bytes | None) -> tuple[Header, ...]:
        if origin is None:
            return ()
        if b"*" in self._origins:
            return _ALLOW_ANY_ORIGIN_HEADERS
        if origin in self._origins:
            return ((b"access-control-allow-origin", origin), (b"access-control-expose-headers", EXPOSED_HEADERS))
        return ()


def checked_origins(origins: tuple[str, ...]) -> frozenset[bytes]:
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise Invalid(
                "cors_origins", "cors_origins are like https://app.example:8443, without a path, or *; write them so"
            )
    # Browsers send them in lower case.
    return frozenset(origin.lower().encode() for origin in origins)


def loopback_authenticator(config: ServiceConfig) -> Callable[[Scope], Awaitable[Credential]]:
    """Accepts every request that has a loopback Host and was not sent by a page of another site."""
    origins = checked_origins(config.cors_origins)

    async def authenticate(scope: Scope) -> Credential:
        host = origin = b""
        for name, value in scope["headers"]:
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
        if host and not is_loopback_host(host):
            raise Unauthorized(
                "without authentication this server accepts only localhost and loopback addresses as Host; "
                "use one of these, or set up authentication"
            )
        if origin and origin != b"http://" + host and not origins & {origin, b"*"}:
            raise Unauthorized(
                "without authentication this server accepts no requests of other sites' pages; "
                "add the origin to cors_origins, or set up authentication"
            )
        return LOCAL

    return authenticate


def check_body_headers(scope: Scope, origins: frozenset[bytes]) -> None:
    """Refuse a body that would have to be decoded first, and what a page of another site sends as anything but JSON.

    There is nothing to refuse in a request without one of BODY_CHECK_HEADERS.
    """
    if scope["method"] in _SAFE_METHODS:
        return
    headers: dict[bytes, list[bytes]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name, []).append(value.strip(b" \t"))
    if any(encoding.lower() not in _IDENTITY_ENCODINGS for encoding in headers.get(b"content-encoding", ())):
        raise UnsupportedBody("this server decodes no Content-Encoding; send the body without one")
    if not _is_cross_site(headers):
        return
    types = headers.get(b"content-type", [])
    # A page may send a body without a type, and then the browser does not ask first either.
    is_trusted = b"*" in origins or not origins.isdisjoint(headers.get(b"origin", ()))
    if not all(map(_is_json, types)) or not (types or is_trusted):
        raise UnsupportedBody("a page of another site may send only JSON; send `Content-Type: application/json`")


def _is_cross_site(headers: dict[bytes, list[bytes]]) -> bool:
    """True if a browser sent the request for a page of another origin. Only browsers send these headers."""
    if sites := headers.get(b"sec-fetch-site"):
        return any(site not in _OWN_SITE for site in sites)
    hosts = [host.lower() for host in headers.get(b"host", ())]
    return any(origin.lower().partition(b"://")[2] not in hosts for origin in headers.get(b"origin", ()))


def _is_json(content_type: bytes) -> bool:
    media = content_type.partition(b";")[0].strip().lower()
    return media == b"application/json" or (media.startswith(b"application/") and media.endswith(b"+json"))


@lru_cache(maxsize=64)
def is_loopback_host(host: bytes) -> bool:
    name = re.sub(r":[0-9]*$", "", host.decode("latin-1"))
    return is_loopback(name.removeprefix("[").removesuffix("]"))


_ALLOW_ANY_ORIGIN_HEADERS: tuple[Header, ...] = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", EXPOSED_HEADERS),
)
_PREFLIGHT_HEADERS: tuple[Header, ...] = (
    *COMMON_HEADERS,
    _VARY_HEADER,
    (b"access-control-allow-methods", ALLOWED_METHODS),
    (b"access-control-allow-headers", ALLOWED_HEADERS),
    (b"access-control-max-age", b"%d" % PREFLIGHT_MAX_AGE_SECONDS),
)
