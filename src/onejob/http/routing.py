"""The routing table: paths, methods, permissions and body types; dispatch and OpenAPI both read it."""

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from onejob.core.credentials import Permission
from onejob.core.errors import Invalid

from .request import Request, Scope
from .responses import Response

RouteHandler = Callable[[Request], Awaitable[Response]]

_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Parameter(NamedTuple):
    name: str
    description: str
    schema: dict[str, Any] = {"type": "string"}  # noqa: RUF012 - never changed
    required: bool = False


class Route(NamedTuple):
    method: str
    path: str  # with {placeholders}
    handler: RouteHandler
    permission: Permission | None  # None: open to everybody
    summary: str
    body_type: type[Any] | None = None
    response_type: type[Any] | None = None
    status: int = 200
    query: tuple[Parameter, ...] = ()
    takes_key: bool = False  # reads the Idempotency-Key header
    errors: tuple[str, ...] = ()  # codes, besides those of every path
    replay_status: int | None = None  # of a duplicate, if it differs
    media_type: str = "application/json"  # of a successful response
    is_page: bool = False  # for people: not part of the API, and not in its description
    optimistic_auth: bool = False  # without a query, its only command carries the precondition of the request


# The methods of a path, and the values of its placeholders, not yet decoded.
RouteMatch = tuple[dict[str, Route], tuple[str, ...]]


class Routes:
    """Finds routes: exact paths in a dictionary, the others by their patterns.

    Paths are compared as they were sent, so that an escaped slash may be part of a placeholder.
    """

    def __init__(self, routes: tuple[Route, ...]) -> None:
        self.all = routes
        self._exact: dict[str, dict[str, Route]] = {}
        self._patterns: list[tuple[re.Pattern[str], dict[str, Route]]] = []
        by_path: dict[str, dict[str, Route]] = {}
        for route in routes:
            by_path.setdefault(route.path, {})[route.method] = route
        for path, methods in by_path.items():
            if "{" in path:
                pattern = re.compile(re.sub(r"\\\{\w+\\\}", "([^/]+)", re.escape(path)))
                self._patterns.append((pattern, methods))
            else:
                self._exact[path] = methods

    def find(self, path: str) -> RouteMatch | None:
        """The methods and placeholders of a raw path; None: there is no such path."""
        methods = self._exact.get(path)
        if methods is not None:
            return methods, ()
        for pattern, methods in self._patterns:
            if match := pattern.fullmatch(path):
                return methods, match.groups()
        return None


def route_for_method(methods: dict[str, Route], method: str) -> Route | None:
    """HEAD is served by the route of GET."""
    return methods.get("GET" if method == "HEAD" else method)


def allowed_methods(methods: dict[str, Route]) -> list[str]:
    return [*methods, "HEAD"] if "GET" in methods else list(methods)


def raw_path(scope: Scope) -> str:
    raw: bytes | None = scope.get("raw_path")  # optional in ASGI
    return quote(scope["path"]) if raw is None else raw.decode("latin-1")


def decode_placeholders(placeholders: Iterable[str]) -> tuple[str, ...]:
    """Each value is percent-decoded once and must be UTF-8."""
    return tuple(map(_decode_placeholder, placeholders))


def _decode_placeholder(text: str) -> str:
    try:
        if not _BROKEN_ESCAPE.search(text):
            return unquote_to_bytes(text.encode("latin-1")).decode()
    except UnicodeDecodeError:
        pass
    raise Invalid("path", "the path cannot be read; send it in UTF-8, percent-encoded once")
