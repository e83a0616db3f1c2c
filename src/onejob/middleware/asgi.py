"""The ASGI middleware: requests whose path a rule covers take an Idempotency-Key."""

from collections.abc import Callable, Iterable
from typing import Any, Unpack

from onejob.errors import OnejobError
from onejob.ledger import Ledger

from .exchange import (
    AsgiApp,
    MiddlewareExchange,
    Receive,
    Scope,
    Send,
    read_body,
    request_fingerprint,
    send_response,
    without_response_extensions,
)
from .layer import IdempotencyLayer
from .problems import LayerResponse
from .rules import DEFAULT_RULES, IdempotencyRules, LayerOptions, Need, Rule, read_key

_LIFESPAN_ENDS = ("lifespan.startup.failed", "lifespan.shutdown.complete", "lifespan.shutdown.failed")


class IdempotencyMiddleware:
    """Runs the application once for each `Idempotency-Key` and replays the first response to duplicates."""

    def __init__(
        self,
        app: AsgiApp,
        ledger: Ledger | str,
        *,
        scope: Callable[[Scope], str | None],
        rules: Iterable[Rule] = DEFAULT_RULES,
        **options: Unpack[LayerOptions],
    ) -> None:
        self._app = app
        self._rules = IdempotencyRules(scope=scope, rules=rules, **options)
        self._layer = IdempotencyLayer(ledger, self._rules)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(scope, receive, send)
            return
        rule = self._rules.find_rule(scope["method"], scope["path"]) if scope["type"] == "http" else None
        if rule is None:
            await self._app(scope, receive, send)
            return
        key = read_key(scope["headers"], required=rule.key is Need.REQUIRED)
        if key is None:
            await self._app(scope, receive, send)
        elif isinstance(key, LayerResponse):
            await send_response(send, key)
        else:
            await self._handle_keyed(key, rule, scope, receive, send)

    async def _handle_keyed(self, key: str, rule: Rule, scope: Scope, receive: Receive, send: Send) -> None:
        key_scope = self._rules.resolve_scope(scope)
        if isinstance(key_scope, LayerResponse):
            await send_response(send, key_scope)
            return
        body = await read_body(receive, scope["headers"], self._rules)
        if body is None:
            return
        if isinstance(body, LayerResponse):
            await send_response(send, body)
            return
        fingerprint = request_fingerprint(scope, body)
        if not isinstance(fingerprint, bytes):
            fingerprint = await fingerprint
        acquired = await self._layer.acquire_key(key, key_scope, fingerprint, rule.window)
        if isinstance(acquired, LayerResponse):
            await send_response(send, acquired)
            return
        exchange = MiddlewareExchange(self._layer, receive, send, body)
        exchange.hold(acquired)
        await exchange.run(self._app, without_response_extensions(scope))

    async def _run_lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Open the store before the application starts, and close it after the application has shut down.

        It is closed before the server hears of the end, because the server may then exit at once.
        """

        async def receive_and_open() -> Any:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self._open_or_fail_startup(send)
            return message

        async def close_and_send(message: Any) -> None:
            if message["type"] in _LIFESPAN_ENDS:
                await self._layer.aclose()
            await send(message)

        try:
            await self._app(scope, receive_and_open, close_and_send)
        finally:
            await self._layer.aclose()

    async def _open_or_fail_startup(self, send: Send) -> None:
        """Open the store. A server takes an exception for a missing lifespan protocol and serves, so it is told."""
        try:
            await self._layer.ensure_open()
        except OnejobError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
