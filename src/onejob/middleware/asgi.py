"""Idempotency for any ASGI application, by rules for its paths."""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from onejob.core.invalid import Invalid
from onejob.key_header import key_of
from onejob.ledger import Ledger

from .asked import printed
from .exchange import App, Exchange, Receive, Scope, Send, body_of, plain, tell
from .layer import Layer
from .refusals import Told, refusal
from .rules import RULES, SAFE, Need, Rule


class IdempotencyMiddleware:
    """Does a request with an `Idempotency-Key` once, and answers its duplicates with the first answer."""

    def __init__(
        self,
        app: App,
        ledger: Ledger | str,
        *,
        scope: Callable[[Scope], str | None],
        rules: Iterable[Rule] = RULES,
        **options: Any,
    ) -> None:
        self._app = app
        self._rules = tuple(rules)
        self._layer = Layer(ledger, scope=scope, **options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
            return
        rule = self._rule(scope) if scope["type"] == "http" else None
        if rule is None or rule.key is Need.OFF:
            await self._app(scope, receive, send)
            return
        key = named_key(scope, required=rule.key is Need.REQUIRED)
        if key is None:
            await self._app(scope, receive, send)
        elif isinstance(key, Told):
            await tell(send, key)
        else:
            await self._once(key, rule, scope, receive, send)

    async def _once(self, key: str, rule: Rule, scope: Scope, receive: Receive, send: Send) -> None:
        whose = self._layer.whose(scope)
        if isinstance(whose, Told):
            await tell(send, whose)
            return
        body = await body_of(receive, scope["headers"], most=self._layer.body_bytes_max)
        if body is None:
            return
        if isinstance(body, Told):
            await tell(send, body)
            return
        mark = asked_of(scope, body)
        if not isinstance(mark, bytes):
            mark = await mark
        held = await self._layer.taken(key, whose, mark, rule.window)
        if isinstance(held, Told):
            await tell(send, held)
            return
        exchange = Exchange(self._layer, receive, send, body)
        exchange.hold(held)
        await exchange.run(self._app, plain(scope))

    def _rule(self, scope: Scope) -> Rule | None:
        method, path = scope["method"], scope["path"]
        if method in SAFE:
            return None
        for rule in self._rules:
            if rule.covers(method, path):
                return rule
        return None

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Open the store before the application starts, and close it when that has ended."""

        async def received() -> Any:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self._layer.opened()
            return message

        try:
            await self._app(scope, received, send)
        finally:
            await self._layer.aclose()


def named_key(scope: Scope, *, required: bool) -> str | Told | None:
    """The key of a request, or why it has none that can be taken; None where none is needed."""
    try:
        key = key_of(scope["headers"])
    except Invalid as error:
        return refusal("VALIDATION_ERROR", str(error))
    if key is None and required:
        return refusal(
            "KEY_MISSING", "this path needs an Idempotency-Key: one for each intended act, kept on retries"
        )
    return key


def asked_of(scope: Scope, body: bytes) -> bytes | Coroutine[Any, Any, bytes]:
    """The fingerprint of a request; that of a large one is to be waited for."""
    kind = b""
    for name, value in scope["headers"]:
        if name == b"content-type":
            kind = value
            break
    return printed(scope["method"], scope["path"], scope.get("query_string", b""), kind, body)
