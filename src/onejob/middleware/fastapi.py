"""A FastAPI route class that acquires the key after the dependencies have run, hence after authentication."""

import logging
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from datetime import timedelta
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Unpack

from fastapi import Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from onejob.core.errors import Invalid
from onejob.core.key import KEY_CHARS_MAX
from onejob.ledger import Ledger
from onejob.ledger.held_keys import PreparedKeyHeld
from onejob.runtime.receipts import Receipt

from .exchange import MiddlewareExchange, read_body, request_fingerprint, send_response, without_response_extensions
from .layer import IdempotencyLayer
from .problems import LayerResponse
from .rules import SAFE_METHODS, IdempotencyRules, LayerOptions, Need, Rule, read_key

if TYPE_CHECKING:
    from onejob.transaction import InTransaction

log = logging.getLogger("onejob.middleware")

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


class _RequestState:
    """What the parts of one request share: its key, and the transaction that a dependency has opened for it."""

    def __init__(self, keyed: _KeyedRequest | None = None) -> None:
        self.keyed = keyed
        self.transaction: SessionTransaction | None = None


_request_state: ContextVar[_RequestState | None] = ContextVar("onejob_request_state", default=None)


class SessionTransaction:
    """The transaction of a SQLAlchemy session, ended when the response is complete and before it is sent."""

    def __init__(self, session: Any, in_transaction: "InTransaction") -> None:
        self._session = session
        self._inside = in_transaction
        self._is_async = hasattr(session, "sync_session")
        self._began = self._transaction()
        self.has_returned = False  # the endpoint, without an exception

    @property
    def is_open(self) -> bool:
        return self.has_returned

    async def settle_and_commit(self, held: PreparedKeyHeld, receipt: bytes) -> Receipt:
        if self._began is not None and self._transaction() is not self._began:
            log.error("an endpoint ended the transaction by itself: its effects and its key were not one commit")
        if self._is_async:
            settled = await self._inside.asession(self._session).settle(held, receipt)
        else:
            settled = await run_in_threadpool(self._inside.session(self._session).settle, held, receipt)
        await self.commit()
        return settled

    async def commit(self) -> None:
        await self._call(self._session.commit)

    async def roll_back(self) -> None:
        self.has_returned = False
        try:
            await self._call(self._session.rollback)
        except Exception:  # the server rolls back what a lost connection had begun
            log.exception("rolling back the transaction of a request failed")

    async def _call(self, function: Callable[[], Any]) -> None:
        if self._is_async:
            await function()
        else:
            await run_in_threadpool(function)

    def _transaction(self) -> Any:
        return (self._session.sync_session if self._is_async else self._session).get_transaction()


def settled_session(
    get_session: Callable[..., Any], in_transaction: "InTransaction | None" = None
) -> Callable[..., Any]:
    """A dependency with the session of `get_session`, in whose transaction the request's key is settled.

    `session: AsyncSession = Depends(settled_session(get_session))` in a route of an IdempotentRoute. The endpoint does not
    commit: the key and what the endpoint wrote are committed together before the response is sent. An exception or a
    response that is not kept rolls back. `inside` names the tenant and the schema, if they are not the defaults.
    """
    from onejob.transaction import InTransaction  # imported here: other applications may have no PostgreSQL driver

    commands = in_transaction or InTransaction()

    async def open_transaction(session: Any = Depends(get_session)) -> Any:  # noqa: B008 - FastAPI reads it from here
        state = _request_state.get()
        if state is None:
            raise Invalid("session", "a settled session needs the route class of IdempotentRoute.for_ledger; set it")
        if state.transaction is not None:
            raise Invalid("session", "a request has one settled session; use it in all places")
        if not session.in_transaction():
            begun = session.begin()
            if hasattr(session, "sync_session"):
                await begun
        state.transaction = SessionTransaction(session, commands)
        if state.keyed is not None:
            state.keyed.exchange.transaction = state.transaction
        return session

    return open_transaction


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
            "layer": IdempotencyLayer(ledger, IdempotencyRules(scope=scope, **options)),
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
        declared = [field.alias for field in self.dependant.header_params] + [
            parameter.get("name", "") for parameter in parameters
        ]
        if HEADER not in map(str.lower, declared):
            parameters.append(KEY_PARAMETER | {"required": self.rule.key is Need.REQUIRED})
        self.openapi_extra = extra | {"parameters": parameters}
        self.responses = key_responses(self.layer.rules.mismatch_status) | self.responses

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = None
        if self.rule.key is not Need.OFF and scope["method"] not in SAFE_METHODS:
            key = read_key(scope["headers"], required=self.rule.key is Need.REQUIRED)
        if key is None:
            await self._handle_without_key(scope, receive, send)
            return
        body = key if isinstance(key, LayerResponse) else await self._read_body(scope, receive)
        if isinstance(body, LayerResponse):
            await send_response(send, body)
        elif body is not None:
            assert isinstance(key, str)
            exchange = MiddlewareExchange(self.layer, receive, send, body)
            token = _request_state.set(_RequestState(_KeyedRequest(key, scope, exchange)))
            try:
                await exchange.run(super().handle, without_response_extensions(scope))
            finally:
                _request_state.reset(token)

    async def _handle_without_key(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A transaction that a dependency has opened ends before the response begins, as with a key."""
        state = _RequestState()

        async def end_transaction_and_send(message: Any) -> None:
            transaction, state.transaction = state.transaction, None
            if transaction is not None and message["type"] == "http.response.start":
                is_kept = transaction.is_open and not self.layer.rules.releases_key(message["status"])
                await (transaction.commit() if is_kept else transaction.roll_back())
            await send(message)

        token = _request_state.set(state)
        try:
            await super().handle(scope, receive, end_transaction_and_send)
        finally:
            _request_state.reset(token)

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes | LayerResponse | None:
        return await read_body(receive, scope["headers"], self.layer.rules)

    def _wrap_endpoint(self, endpoint: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
        """Wrap the endpoint: it runs only if the request acquires its key; a duplicate gets the stored response."""
        if isasyncgenfunction(endpoint) or isgeneratorfunction(endpoint):
            raise Invalid("endpoint", "a generator has no single response; return a StreamingResponse")
        is_async = iscoroutinefunction(endpoint)

        @wraps(endpoint)
        async def once(*args: Any, **kwargs: Any) -> Any:
            state = _request_state.get()
            keyed = state.keyed if state is not None else None
            if keyed is not None and (response := await self._acquire_or_respond(keyed)) is not None:
                return response
            returned = await (endpoint(*args, **kwargs) if is_async else run_in_threadpool(endpoint, *args, **kwargs))
            if state is not None and state.transaction is not None:
                state.transaction.has_returned = True
            return returned

        return once

    async def _acquire_or_respond(self, keyed: _KeyedRequest) -> Response | None:
        key_scope = self.layer.rules.resolve_scope(Request(keyed.scope))
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
