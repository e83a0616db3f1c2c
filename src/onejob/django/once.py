"""`@once`: a view of Django or of REST framework runs once for each `Idempotency-Key`.

With `atomic=True` the key is settled in the view's own transaction: what the view has written and the answer to its key are
one commit. Nothing else is safe from a process that dies between the commit and the answer.

Without it, a view that runs inside of a transaction, such as that of `ATOMIC_REQUESTS`, is not done when it returns: the
commit may still fail. Its key is settled by the middleware, which runs outside.
"""

import logging
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from django.core.exceptions import BadRequest, ImproperlyConfigured, SuspiciousOperation
from django.core.handlers.exception import response_for_exception
from django.db import connections, transaction
from django.http import Http404
from django.http.multipartparser import MultiPartParserError
from msgspec import Struct

from onejob.errors import OnejobError
from onejob.middleware.blocking import BlockingRequest
from onejob.middleware.problems import unavailable_response
from onejob.middleware.rules import SAFE_METHODS, IdempotencyRules, Need, Rule, expires_header
from onejob.runtime.receipts import Receipt

from .ledger import get_layer, in_transaction, ledger_database
from .middleware import (
    HELD,
    IS_ONCE,
    acquire_key,
    add_headers,
    leave_to_middleware,
    read_short_stream,
    receipt_of,
    settle_response,
    to_http_response,
)

V = TypeVar("V", bound=Callable[..., Any])

# Exceptions that Django answers with a status below 500: answers like any other.
_ANSWERED_EXCEPTIONS = (Http404, BadRequest, SuspiciousOperation, MultiPartParserError)

log = logging.getLogger("onejob.middleware")


def once(
    view: V | None = None,
    *,
    key: Need | str = Need.OPTIONAL,
    window: timedelta | None = None,
    atomic: bool = False,
) -> Any:
    """Run a view, or a method of a class-based view or of REST framework, once for each `Idempotency-Key`.

    With `atomic`, a request with a key runs in a transaction, and its key is settled in it. The ledger must be in the
    database that the setting names as `DATABASE`.
    """
    rule = Rule("POST /**", Need(key), window)

    def decorate(view: V) -> V:
        if iscoroutinefunction(view):
            raise ImproperlyConfigured(
                "@once decorates plain views; make this one plain, or leave it to the middleware of onejob.django"
            )

        @wraps(view)
        def call(*args: Any, **kwargs: Any) -> Any:
            request, instance = _request_and_view(args)
            run = _ViewRun(view, args, kwargs, request, instance)
            takes_key = rule.key is not Need.OFF and request.method not in SAFE_METHODS
            return _run_once(run, rule, atomic=atomic) if takes_key else run.call()

        setattr(call, IS_ONCE, True)
        return call  # type: ignore[return-value]  # it takes what the view takes

    return decorate if view is None else decorate(view)


def _run_once(run: "_ViewRun", rule: Rule, *, atomic: bool) -> Any:
    using = ledger_database() if atomic else ""
    layer = get_layer()
    # The middleware has taken the key if it could not see that the view is decorated.
    taken = getattr(run.request, HELD, None)
    if taken is not None and not atomic:
        return run.call()
    held = taken or acquire_key(run.request, layer, rule)
    if not isinstance(held, BlockingRequest):
        return run.call() if held is None else held
    if using:
        return _respond_in_transaction(run, held, layer.rules, using)
    if _is_in_transaction():
        leave_to_middleware(run.request, held)
        response = run.call()
        if getattr(response, "streaming", False):
            read_short_stream(response, layer.rules)  # here, what fails in it is rolled back
        return response
    try:
        response = run.respond()
    except BaseException:
        held.release()
        raise
    return settle_response(held, layer.rules, response)


def _is_in_transaction() -> bool:
    """True if what the view writes is committed after it has returned. The transaction of a `TestCase` never is."""
    blocks = [block for connection in connections.all(initialized_only=True) for block in connection.atomic_blocks]
    return any(not getattr(block, "_from_testcase", False) for block in blocks)


def _respond_in_transaction(run: "_ViewRun", held: BlockingRequest, rules: IdempotencyRules, using: str) -> Any:
    """Run a view and settle its key in one transaction. Where the key is released, the view's writes are rolled back."""
    response: Any = None
    try:
        with transaction.atomic(using=using):
            response = run.respond()
            receipt = receipt_of(response, rules)
            if receipt is None or run.is_exception:
                raise _RolledBack
            settled = _settle_inside(held, receipt)
    except _RolledBack:
        return settle_response(held, rules, response)
    except _NotSettled as error:
        log.error("settling a key in the transaction of its view failed; it was rolled back: %s", error.__cause__)
        held.release()
        response.close()
        return to_http_response(unavailable_response(error.reason))
    except BaseException:
        held.release()
        raise
    add_headers(response, (expires_header(settled.expires_ms),))
    return response


def _settle_inside(held: BlockingRequest, receipt: bytes) -> Receipt:
    try:
        return held.settle_elsewhere(lambda key: in_transaction().settle(key, receipt))
    except OnejobError as error:
        raise _NotSettled(error) from error


class _RolledBack(Exception):
    """The view has failed, and so have its writes; its response is stored or not as that of any other view."""


class _NotSettled(Exception):
    def __init__(self, reason: OnejobError) -> None:
        super().__init__(reason)
        self.reason = reason


class _ViewRun(Struct):
    """One call of a view: its response is rendered, and its exceptions are turned into responses, as Django would do."""

    view: Callable[..., Any]
    args: Any
    kwargs: Any
    request: Any
    instance: Any
    is_exception: bool = False  # True: the response is that to an exception of the view

    def call(self) -> Any:
        return self.view(*self.args, **self.kwargs)

    def respond(self) -> Any:
        # REST framework finishes responses and handles exceptions in methods of the view.
        is_rest = hasattr(self.instance, "finalize_response")
        try:
            response = self.call()
        except Exception as error:
            self.is_exception = True
            if is_rest:
                response = self.instance.handle_exception(error)  # raises what it does not know
            elif isinstance(error, _ANSWERED_EXCEPTIONS):
                response = response_for_exception(self.request, error)
            else:
                raise
        if is_rest:
            response = self.instance.finalize_response(self.request, response, *self.args, **self.kwargs)
        return response.render() if hasattr(response, "render") else response


def _request_and_view(args: tuple[Any, ...]) -> tuple[Any, Any]:
    """The request and the view's instance: for a function, a method, or a REST framework function."""
    first = args[0]
    if not hasattr(first, "META"):
        return args[1], first
    return first, (getattr(first, "parser_context", None) or {}).get("view")
