"""Idempotency for the routes of FastAPI: a key is taken after the dependencies, and so after authentication."""

from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, ClassVar, NamedTuple

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from onejob.core.invalid import Invalid
from onejob.ledger import Ledger

from .asgi import asked_of, named_key
from .exchange import Exchange, body_of, plain, tell
from .layer import Layer
from .refusals import Told
from .rules import SAFE, Need, Rule


class _Asked(NamedTuple):
    key: str
    scope: Scope
    exchange: Exchange


_asked: ContextVar[_Asked | None] = ContextVar("onejob_asked", default=None)


class IdempotentRoute(APIRoute):
    """`APIRouter(route_class=IdempotentRoute.on(ledger, scope=…))`; `scope` is given the request."""

    layer: ClassVar[Layer]
    rule: ClassVar[Rule]

    @classmethod
    def on(
        cls,
        ledger: Ledger | str,
        *,
        scope: Callable[[Request], str | None],
        key: Need = Need.OPTIONAL,
        window: Any = None,
        **options: Any,
    ) -> type["IdempotentRoute"]:
        """A class of routes that share a ledger and a rule."""
        members = {
            "layer": Layer(ledger, scope=scope, **options),
            "rule": Rule("POST /**", Need(key), window),
        }
        return type("IdempotentRoute", (cls,), members)

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, self._once(endpoint), **options)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = None
        if self.rule.key is not Need.OFF and scope["method"] not in SAFE:
            key = named_key(scope, required=self.rule.key is Need.REQUIRED)
        if key is None:
            await super().handle(scope, receive, send)
            return
        body = key if isinstance(key, Told) else await self._body(scope, receive)
        if isinstance(body, Told):
            await tell(send, body)
        elif body is not None:
            assert isinstance(key, str)
            exchange = Exchange(self.layer, receive, send, body)
            token = _asked.set(_Asked(key, scope, exchange))
            try:
                await exchange.run(super().handle, plain(scope))
            finally:
                _asked.reset(token)

    async def _body(self, scope: Scope, receive: Receive) -> bytes | Told | None:
        return await body_of(receive, scope["headers"], most=self.layer.body_bytes_max)

    def _once(self, endpoint: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
        """The endpoint, called only by whoever got the key; a duplicate is answered in its place."""
        if isasyncgenfunction(endpoint) or isgeneratorfunction(endpoint):
            raise Invalid("endpoint", "a generator cannot be answered once; return a StreamingResponse")
        is_async = iscoroutinefunction(endpoint)

        @wraps(endpoint)
        async def once(*args: Any, **kwargs: Any) -> Any:
            asked = _asked.get()
            if asked is not None and (told := await self._told(asked)) is not None:
                return told
            if is_async:
                return await endpoint(*args, **kwargs)
            return await run_in_threadpool(endpoint, *args, **kwargs)

        return once

    async def _told(self, asked: _Asked) -> Response | None:
        whose = self.layer.whose(Request(asked.scope))
        if isinstance(whose, Told):
            return _response(whose)
        mark = asked_of(asked.scope, asked.exchange.body)
        if not isinstance(mark, bytes):
            mark = await mark
        held = await self.layer.taken(asked.key, whose, mark, self.rule.window)
        if isinstance(held, Told):
            return _response(held)
        asked.exchange.hold(held)
        return None


def _response(told: Told) -> Response:
    response = Response(told.body, told.status)
    response.raw_headers = list(told.headers)
    return response
