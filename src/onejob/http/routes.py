"""Every path of the service in one table: what it does, who may, what travels. Dispatch and OpenAPI both read it."""

import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from onejob.core.roles import Act

from .answers import Answer
from .request import Request

Handler = Callable[[Request], Awaitable[Answer]]


class Parameter(NamedTuple):
    name: str
    text: str
    schema: dict[str, Any] = {"type": "string"}  # noqa: RUF012 - never changed
    required: bool = False


class Route(NamedTuple):
    method: str
    path: str  # with {placeholders}
    handler: Handler
    act: Act | None  # None: open to everybody
    summary: str
    takes: type[Any] | None = None
    gives: type[Any] | None = None
    status: int = 200
    query: tuple[Parameter, ...] = ()
    takes_key: bool = False  # reads the Idempotency-Key header
    errors: tuple[str, ...] = ()  # codes, besides those that every path may answer with


class Routes:
    """Finds the route of a request: exact paths by one look, the others by their patterns."""

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

    def find(self, path: str) -> tuple[dict[str, Route], tuple[str, ...]] | None:
        """The methods of a path, and what its placeholders stand for."""
        methods = self._exact.get(path)
        if methods is not None:
            return methods, ()
        for pattern, methods in self._patterns:
            if found := pattern.fullmatch(path):
                return methods, found.groups()
        return None
