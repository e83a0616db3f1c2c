"""The cookie of a console session: how it is set and read, and when it counts.

Under HTTPS its name begins with `__Host-`: a browser then accepts it only from this host, over TLS and for all paths, and
no other cookie counts: the other one could have been set by a page of a sibling domain, or over plain HTTP.
"""

from http.cookies import CookieError, SimpleCookie

from .origins import is_loopback_host
from .problems import Unauthorized
from .request import Scope
from .responses import Header

COOKIE_NAME = "onejob-session"
SECURE_COOKIE_NAME = "__Host-onejob-session"
CONSOLE_HEADER = b"x-onejob-console"
MAX_AGE_SECONDS = 12 * 3600
_SAFE_METHODS = ("GET", "HEAD")
_COOKIES_BYTES_MAX = 16_384


def read_cookie(scope: Scope) -> str | None:
    """The session of the request, if it counts.

    Raises Unauthorized for a request that changes something and was not sent by a page of this server.
    """
    lines = [value for name, value in scope["headers"] if name == b"cookie"]
    text = _find_cookie(b"; ".join(lines), SECURE_COOKIE_NAME if _is_https(scope) else COOKIE_NAME)
    if text is None or _is_from_other_page(scope):
        return None
    if scope["method"] not in _SAFE_METHODS and not is_from_own_page(scope):
        raise Unauthorized("a session counts for changes only in the console itself; send an API key instead")
    return text


def is_from_own_page(scope: Scope) -> bool:
    """True if the request has this server's Origin and the header that only a script of the same origin can send."""
    origin, host = _header(scope, b"origin"), _header(scope, b"host")
    is_own = bool(host) and origin.lower() in (b"http://" + host.lower(), b"https://" + host.lower())
    return is_own and bool(_header(scope, CONSOLE_HEADER))


def set_cookie(scope: Scope, text: str) -> Header:
    return _cookie_header(scope, text, MAX_AGE_SECONDS)


def clear_cookie(scope: Scope) -> Header:
    return _cookie_header(scope, "", 0)


def _cookie_header(scope: Scope, value: str, max_age: int) -> Header:
    is_secure = _is_https(scope)
    name = SECURE_COOKIE_NAME if is_secure else COOKIE_NAME
    secure = "; Secure" if is_secure else ""
    text = f"{name}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Strict{secure}"
    return b"set-cookie", text.encode()


def _is_https(scope: Scope) -> bool:
    """True if the browser speaks HTTPS. Where TLS ends at a proxy, the Origin tells it, or what the proxy adds.

    A GET may have neither; browsers send Sec-Fetch-Site only over HTTPS and to loopback hosts.
    """
    if scope.get("scheme") == "https":
        return True
    if origin := _header(scope, b"origin"):
        return origin.lower().startswith(b"https:")
    if _header(scope, b"x-forwarded-proto").lower().startswith(b"https"):
        return True
    host = _header(scope, b"host")
    return bool(_header(scope, b"sec-fetch-site")) and not is_loopback_host(host)


def _find_cookie(line: bytes, name: str) -> str | None:
    if not line or len(line) > _COOKIES_BYTES_MAX:
        return None
    try:
        cookies = SimpleCookie(line.decode("latin-1"))
    except CookieError:
        return None
    found = cookies.get(name)
    return found.value if found is not None and found.value else None


def _is_from_other_page(scope: Scope) -> bool:
    """A browser sends an Origin or Sec-Fetch-Site; navigating to a page by a link of another site has neither effect."""
    origin, host = _header(scope, b"origin"), _header(scope, b"host")
    if origin and origin.lower().partition(b"://")[2] != host.lower():
        return True
    return _header(scope, b"sec-fetch-site") in (b"cross-site", b"same-site")


def _header(scope: Scope, wanted: bytes) -> bytes:
    found = [value.strip(b" \t") for name, value in scope["headers"] if name == wanted]
    return found[0] if len(found) == 1 else b""
