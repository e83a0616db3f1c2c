"""A FastAPI route class that acquires the key after the dependencies have run, hence after authentication."""

from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from datetime import timedelta
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, ClassVar, NamedTuple, Unpack

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from onejob.core.errors import Invalid
from onejob.core.key import KEY_CHARS_MAX
from onejob.ledger import Ledger

from .asgi import read_key, request_fingerprint
from .exchange import MiddlewareExchange, read_body, send_response, without_response_extensions
from .layer import IdempotencyLayer, LayerOptions
from .problems import LayerResponse
from .rules import SAFE_METHODS, Need, Rule

HEADER = "idempotency-key"
KEY_PARAMETER: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "One key for each intended request, the same on every retry: the request is done once, and a duplicate gets "
    "the stored response.",
    "schema": {"type": "string", "minLength": 1, "maxLength": KEY_CHARS_MAX},
}
_PROBLEM = {
    "application/problem+json": {
        "schema": {
            "type": "object",
            "properties": {
                **{name: {"type": "string"} for name in ("type", "title", "detail")},
                "status": {"type": "integer"},
                "error": {"type": "object"},
            },
        }
    }
}
_VALIDATION_ERROR = {
    "application/json": {
        "schema": {"type": "object", "properties": {"detail": {"type": "array", "items": {"type": "object"}}}}
    }
}


def key_responses(mismatch_status: int) -> dict[int | str, dict[str, Any]]:
    """The responses of the layer itself, for OpenAPI. FastAPI documents its own 422 only where no other one is."""
    causes = {409: ["a request with this key is in progress, see `Retry-After`"], 422: ["the request is not valid"]}
    causes.setdefault(mismatch_status, []).append("the key was used for another request")
    content = {422: _PROBLEM | _VALIDATION_ERROR}
    return {
        status: {"description": " or ".join(texts).capitalize(), "content": content.get(status, _PROBLEM)}
        for status, texts in causes.items()
    }


class _KeyedRequest(NamedTuple):
    key: str
    scope: Scope
    exchange: MiddlewareExchange


_keyed_request: ContextVar[_KeyedRequest | None] = ContextVar("onejob_keyed_request", default=None)


class IdempotentRoute(APIRoute):
    """`APIRouter(route_class=IdempotentRoute.for_ledger(ledger, scope=…))`; `scope` is called with the request."""

    layer: ClassVar[IdempotencyLayer]
    rule: ClassVar[Rule]

    @classmethod
    def for_ledger(
        cls,
        ledger: Ledger | str,
        *,
        scope: Callable[[Request], str | None],
        key: Need = Need.OPTIONAL,
        window: timedelta | None = None,
        **options: Unpack[LayerOptions],
    ) -> type["IdempotentRoute"]:
        """A route class whose routes share a ledger and a rule."""
        members = {
            "layer": IdempotencyLayer(ledger, scope=scope, **options),
            "rule": Rule("POST /**", Need(key), window),
        }
        return type("IdempotentRoute", (cls,), members)

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, self._wrap_endpoint(endpoint), **options)
        if self.rule.key is not Need.OFF and set(self.methods or ()) - SAFE_METHODS:
            self._document_key()

    def _document_key(self) -> None:
        """Add the header and the responses of the key to OpenAPI; what the application says itself stays."""
        extra = dict(self.openapi_extra or {})
        parameters = list(extra.get("parameters", ()))
        declared = [field.alias for field in self.dependant.header_params] + [one.get("name", "") for one in parameters]
        if HEADER not in map(str.lower, declared):
            parameters.append(KEY_PARAMETER | {"required": self.rule.key is Need.REQUIRED})
        self.openapi_extra = extra | {"parameters": parameters}
        self.responses = key_responses(self.layer.mismatch_status) | self.responses

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
        """Wrap the endpoint: it runs only if the request acquires its key; a duplicate gets the stored response."""
        if isasyncgenfunction(endpoint) or isgeneratorfunction(endpoint):
            raise Invalid("endpoint", "a generator has no single response; return a StreamingResponse")
        is_async = iscoroutinefunction(endpoint)

        @wraps(endpoint)
        async def once(*args: Any, **kwargs: Any) -> Any:
            keyed = _keyed_request.get()
            if keyed is not None and (response := await self._acquire_or_respond(keyed)) is not None:
                return response
            if is_async:
                return await endpoint(*args, **kwargs)
            return await run_in_threadpool(endpoint, *args, **kwargs)

        return once

    async def _acquire_or_respond(self, keyed: _KeyedRequest) -> Response | None:
        key_scope = self.layer.resolve_scope(Request(keyed.scope))
        if isinstance(key_scope, LayerResponse):
            return _to_fastapi_response(key_scope)
        fingerprint = request_fingerprint(keyed.scope, keyed.exchange.body)
        if not isinstance(fingerprint, bytes):
            fingerprint = await fingerprint
        acquired = await self.layer.acquire_key(keyed.key, key_scope, fingerprint, self.rule.window)
        if isinstance(acquired, LayerResponse):
            return _to_fastapi_response(acquired)
        keyed.exchange.hold(acquired)
        return None


def _to_fastapi_response(layer_response: LayerResponse) -> Response:
    response = Response(layer_response.body, layer_response.status)
    response.raw_headers = list(layer_response.headers)
    return response
