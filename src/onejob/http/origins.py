"""Pages of other sites that ask through a browser: which may, and with which headers.

A server without authentication trusts whoever is on the machine. The browser is on the machine too, but the pages in
it are not: there, what a page of another site asks is refused, and so is a host name that only leads here by deceit.
"""

import ipaddress
import re
from collections.abc import Awaitable, Callable
from functools import lru_cache

from msgspec.structs import replace

from onejob.core.errors import Invalid

from .config import ServiceConfig
from .problems import Unauthorized
from .request import LOCAL, Credential, Receive, Scope, Send
from .responses import Header

PREFLIGHT_MAX_AGE_SECONDS = 600
ALLOWED_METHODS = b"GET, POST, PUT, DELETE"
ALLOWED_HEADERS = b"Idempotency-Key, Authorization, Content-Type, X-Api-Key"
EXPOSED_HEADERS = b"Idempotent-Replayed, Idempotency-Expires, Location, Retry-After, X-Request-Id"

_ORIGIN = re.compile(r"https?://[^\s/?#@,*]+", re.IGNORECASE)
_VARY_HEADER: Header = (b"vary", b"Origin")

Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class CorsMiddleware:
    """An application in front of an application. No cookies and the like: credentials are in headers here."""

    def __init__(self, app: Application, origins: tuple[str, ...]) -> None:
        self._app = app
        self._origins = checked_origins(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = dict(scope["headers"])
        admitted = self._allow_origin_headers(asked.get(b"origin"))
        if admitted and scope["method"] == "OPTIONS" and b"access-control-request-method" in asked:
            await send({"type": "http.response.start", "status": 204, "headers": [*admitted, *_PREFLIGHT_HEADERS]})
            await send({"type": "http.response.body", "body": b""})
            return

        async def present(message: Scope) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], _VARY_HEADER, *admitted]
            await send(message)

        await self._app(scope, receive, present)

    def _allow_origin_headers(self, origin: bytes | None) -> tuple[Header, ...]:
        if origin is None:
            return ()
        if b"*" in self._origins:
            return _ALLOW_ANY_ORIGIN_HEADERS
        if origin in self._origins:
            return (
                (b"access-control-allow-origin", origin),
                (b"access-control-expose-headers", EXPOSED_HEADERS),
            )
        return ()


def checked_origins(origins: tuple[str, ...]) -> frozenset[bytes]:
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise Invalid(
                "cors_origins",
                "cors_origins are like https://app.example:8443, without a path, or *; write them so",
            )
    # Browsers send them in lower case.
    return frozenset(origin.lower().encode() for origin in origins)


def loopback_authenticator(config: ServiceConfig) -> Callable[[Scope], Awaitable[Credential]]:
    """Everybody is let in who is on this machine, and whom no page of another site has sent."""
    origins = checked_origins(config.cors_origins)
    local = replace(LOCAL, caller=replace(LOCAL.caller, owns_keys=config.key_owner == "user"))

    async def credential(scope: Scope) -> Credential:
        host = origin = b""
        for name, value in scope["headers"]:
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
        if host and not _is_loopback_host(host):
            raise Unauthorized(
                "without authentication this server answers only to localhost and loopback addresses; "
                "ask it by one of these, or set up authentication"
            )
        if origin and origin != b"http://" + host and not origins & {origin, b"*"}:
            raise Unauthorized(
                "without authentication this server answers no pages of other sites; "
                "name this one in cors_origins, or set up authentication"
            )
        return local

    return credential


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=64)
def _is_loopback_host(host: bytes) -> bool:
    name = re.sub(r":[0-9]*$", "", host.decode("latin-1"))
    return is_loopback(name.removeprefix("[").removesuffix("]"))


_ALLOW_ANY_ORIGIN_HEADERS: tuple[Header, ...] = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", EXPOSED_HEADERS),
)
_PREFLIGHT_HEADERS: tuple[Header, ...] = (
    _VARY_HEADER,
    (b"access-control-allow-methods", ALLOWED_METHODS),
    (b"access-control-allow-headers", ALLOWED_HEADERS),
    (b"access-control-max-age", b"%d" % PREFLIGHT_MAX_AGE_SECONDS),
)
