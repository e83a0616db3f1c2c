"""Every path of the service in one table: what it does, who may, what travels. Dispatch and OpenAPI both read it."""

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
    act: Permission | None  # None: open to everybody
    summary: str
    body_type: type[Any] | None = None
    response_type: type[Any] | None = None
    status: int = 200
    query: tuple[Parameter, ...] = ()
    takes_key: bool = False  # reads the Idempotency-Key header
    errors: tuple[str, ...] = ()  # codes, besides those that every path may answer with
    repeat_status: int | None = None  # the status of what was done before, where it is another
    media_type: str = "application/json"  # of the answer, when all is well
    optimistic_auth: bool = False  # without a query it acts only by a command that takes the warrant of the request


# The methods of a path, and what stands in its placeholders, not decoded yet.
RouteMatch = tuple[dict[str, Route], tuple[str, ...]]


class Routes:
    """Finds the route of a request: exact paths by one look, the others by their patterns.

    Paths are compared as they were sent, so that a placeholder may stand for anything, slashes included.
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
        """What is at a raw path."""
        methods = self._exact.get(path)
        if methods is not None:
            return methods, ()
        for pattern, methods in self._patterns:
            if found := pattern.fullmatch(path):
                return methods, found.groups()
        return None


def route_for_method(methods: dict[str, Route], method: str) -> Route | None:
    """Where there is something to get, its head alone may be asked for."""
    return methods.get("GET" if method == "HEAD" else method)


def allowed_methods(methods: dict[str, Route]) -> list[str]:
    return [*methods, "HEAD"] if "GET" in methods else list(methods)


def raw_path(scope: Scope) -> str:
    raw: bytes | None = scope.get("raw_path")  # servers may leave it out
    return quote(scope["path"]) if raw is None else raw.decode("latin-1")


def decode_placeholders(placeholders: Iterable[str]) -> tuple[str, ...]:
    """What placeholders stand for: each is decoded once, and must be whole and UTF-8."""
    return tuple(map(_decode_placeholder, placeholders))


def _decode_placeholder(text: str) -> str:
    try:
        if not _BROKEN_ESCAPE.search(text):
            return unquote_to_bytes(text.encode("latin-1")).decode()
    except UnicodeDecodeError:
        pass
    raise Invalid("path", "the path cannot be read; send it in UTF-8, percent-encoded once")
