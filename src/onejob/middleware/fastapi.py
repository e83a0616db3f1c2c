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

from onejob.core.errors import Invalid
from onejob.ledger import Ledger

from .asgi import read_key, request_fingerprint
from .exchange import MiddlewareExchange, read_body, send_response, without_response_extensions
from .layer import IdempotencyLayer
from .problems import LayerResponse
from .rules import SAFE_METHODS, Need, Rule


class _KeyedRequest(NamedTuple):
    key: str
    scope: Scope
    exchange: MiddlewareExchange


_keyed_request: ContextVar[_KeyedRequest | None] = ContextVar("onejob_asked", default=None)


class IdempotentRoute(APIRoute):
    """`APIRouter(route_class=IdempotentRoute.on(ledger, scope=…))`; `scope` is given the request."""

    layer: ClassVar[IdempotencyLayer]
    rule: ClassVar[Rule]

    @classmethod
    def for_ledger(
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
            "layer": IdempotencyLayer(ledger, scope=scope, **options),
            "rule": Rule("POST /**", Need(key), window),
        }
        return type("IdempotentRoute", (cls,), members)

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, self._wrap_endpoint(endpoint), **options)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = None
        if self.rule.key is not Need.OFF and scope["method"] not in SAFE_METHODS:
            key = read_key(scope, required=self.rule.key is Need.REQUIRED)
        if key is None:
            await super().handle(scope, receive, send)
            return
        body = key if isinstance(key, LayerResponse) else await self._read_body(scope, receive)
        if isinstance(body, LayerResponse):
            await send_response(send, body)
        elif body is not None:
            assert isinstance(key, str)
            exchange = MiddlewareExchange(self.layer, receive, send, body)
            token = _keyed_request.set(_KeyedRequest(key, scope, exchange))
            try:
                await exchange.run(super().handle, without_response_extensions(scope))
            finally:
                _keyed_request.reset(token)

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes | LayerResponse | None:
        return await read_body(receive, scope["headers"], bytes_max=self.layer.body_bytes_max)

    def _wrap_endpoint(self, endpoint: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
        """The endpoint, called only by whoever got the key; a duplicate is answered in its place."""
        if isasyncgenfunction(endpoint) or isgeneratorfunction(endpoint):
            raise Invalid("endpoint", "a generator cannot be answered once; return a StreamingResponse")
        is_async = iscoroutinefunction(endpoint)

        @wraps(endpoint)
        async def once(*args: Any, **kwargs: Any) -> Any:
            asked = _keyed_request.get()
            if asked is not None and (told := await self._acquire_or_respond(asked)) is not None:
                return told
            if is_async:
                return await endpoint(*args, **kwargs)
            return await run_in_threadpool(endpoint, *args, **kwargs)

        return once

    async def _acquire_or_respond(self, keyed_request: _KeyedRequest) -> Response | None:
        whose = self.layer.resolve_scope(Request(keyed_request.scope))
        if isinstance(whose, LayerResponse):
            return _to_fastapi_response(whose)
        mark = request_fingerprint(keyed_request.scope, keyed_request.exchange.body)
        if not isinstance(mark, bytes):
            mark = await mark
        held = await self.layer.acquire_key(keyed_request.key, whose, mark, self.rule.window)
        if isinstance(held, LayerResponse):
            return _to_fastapi_response(held)
        keyed_request.exchange.hold(held)
        return None


def _to_fastapi_response(layer_response: LayerResponse) -> Response:
    response = Response(layer_response.body, layer_response.status)
    response.raw_headers = list(layer_response.headers)
    return response
