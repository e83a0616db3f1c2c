"""The ASGI middleware: requests whose path a rule covers take an Idempotency-Key."""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Unpack

from onejob.core.errors import Invalid
from onejob.errors import OnejobError
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
from .layer import IdempotencyLayer, LayerOptions
from .problems import LayerResponse, problem_response
from .request_fingerprint import compute_fingerprint
from .rules import DEFAULT_RULES, SAFE_METHODS, Need, Rule

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
        key_scope = self._layer.resolve_scope(scope)
        if isinstance(key_scope, LayerResponse):
            await send_response(send, key_scope)
            return
        body = await read_body(receive, scope["headers"], bytes_max=self._layer.body_bytes_max)
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

    def _find_rule(self, scope: Scope) -> Rule | None:
        method, path = scope["method"], scope["path"]
        if method in SAFE_METHODS:
            return None
        for rule in self._rules:
            if rule.covers(method, path):
                return rule
        return None

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


def read_key(scope: Scope, *, required: bool) -> str | LayerResponse | None:
    """The key of a request, a problem if it is malformed or missing, or None if none is required."""
    try:
        key = parse_key_header(scope["headers"])
    except Invalid as error:
        return problem_response("VALIDATION_ERROR", str(error))
    if key is None and required:
        return problem_response(
            "KEY_MISSING",
            "this path requires an Idempotency-Key; send a new key per operation, the same on every retry",
        )
    return key


def request_fingerprint(scope: Scope, body: bytes) -> bytes | Coroutine[Any, Any, bytes]:
    """The fingerprint of a request; a coroutine if the body is large."""
    return compute_fingerprint(scope["method"], scope["path"], scope.get("query_string", b""), scope["headers"], body)
