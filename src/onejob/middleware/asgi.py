"""Idempotency for any ASGI application, by rules for its paths."""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from onejob.core.errors import Invalid
from onejob.idempotency_key_header import parse_key_header
from onejob.ledger import Ledger

from .exchange import (
    AsgiApp,
    MiddlewareExchange,
    Receive,
    Scope,
    Send,
    read_body,
    send_response,
    without_response_extensions,
)
from .layer import IdempotencyLayer
from .problems import LayerResponse, problem_response
from .request_fingerprint import compute_fingerprint
from .rules import DEFAULT_RULES, SAFE_METHODS, Need, Rule


class IdempotencyMiddleware:
    """Does a request with an `Idempotency-Key` once, and answers its duplicates with the first answer."""

    def __init__(
        self,
        app: AsgiApp,
        ledger: Ledger | str,
        *,
        scope: Callable[[Scope], str | None],
        rules: Iterable[Rule] = DEFAULT_RULES,
        **options: Any,
    ) -> None:
        self._app = app
        self._rules = tuple(rules)
        self._layer = IdempotencyLayer(ledger, scope=scope, **options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(scope, receive, send)
            return
        rule = self._find_rule(scope) if scope["type"] == "http" else None
        if rule is None or rule.key is Need.OFF:
            await self._app(scope, receive, send)
            return
        key = read_key(scope, required=rule.key is Need.REQUIRED)
        if key is None:
            await self._app(scope, receive, send)
        elif isinstance(key, LayerResponse):
            await send_response(send, key)
        else:
            await self._handle_keyed(key, rule, scope, receive, send)

    async def _handle_keyed(self, key: str, rule: Rule, scope: Scope, receive: Receive, send: Send) -> None:
        whose = self._layer.resolve_scope(scope)
        if isinstance(whose, LayerResponse):
            await send_response(send, whose)
            return
        body = await read_body(receive, scope["headers"], bytes_max=self._layer.body_bytes_max)
        if body is None:
            return
        if isinstance(body, LayerResponse):
            await send_response(send, body)
            return
        mark = request_fingerprint(scope, body)
        if not isinstance(mark, bytes):
            mark = await mark
        held = await self._layer.acquire_key(key, whose, mark, rule.window)
        if isinstance(held, LayerResponse):
            await send_response(send, held)
            return
        exchange = MiddlewareExchange(self._layer, receive, send, body)
        exchange.hold(held)
        await exchange.run(self._app, without_response_extensions(scope))

    def _find_rule(self, scope: Scope) -> Rule | None:
        method, path = scope["method"], scope["path"]
        if method in SAFE_METHODS:
            return None
        for rule in self._rules:
            if rule.covers(method, path):
                return rule
        return None

    async def _run_lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Open the store before the application starts, and close it when that has ended."""

        async def received() -> Any:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self._layer.ensure_open()
            return message

        try:
            await self._app(scope, received, send)
        finally:
            await self._layer.aclose()


def read_key(scope: Scope, *, required: bool) -> str | LayerResponse | None:
    """The key of a request, or why it has none that can be taken; None where none is needed."""
    try:
        key = parse_key_header(scope["headers"])
    except Invalid as error:
        return problem_response("VALIDATION_ERROR", str(error))
    if key is None and required:
        return problem_response(
            "KEY_MISSING", "this path needs an Idempotency-Key: one for each intended act, kept on retries"
        )
    return key


def request_fingerprint(scope: Scope, body: bytes) -> bytes | Coroutine[Any, Any, bytes]:
    """The fingerprint of a request; that of a large one is to be waited for."""
    kind = b""
    for name, value in scope["headers"]:
        if name == b"content-type":
            kind = value
            break
    return compute_fingerprint(scope["method"], scope["path"], scope.get("query_string", b""), kind, body)
