"""The middleware for Django, and what `@once` shares with it.

The middleware takes the key when the view is known, after the entry of every other middleware: hence after authentication.
REST framework authenticates inside of its views, so there `@once` takes the key, and the middleware leaves it to it.
"""

import logging
from collections.abc import Callable
from typing import Any

from django.core.exceptions import ImproperlyConfigured, RequestDataTooBig
from django.http import HttpResponse
from django.http.request import RawPostDataException, UnreadablePostError

from onejob.middleware.blocking import BlockingLayer, BlockingRequest
from onejob.middleware.problems import LayerResponse, problem_response
from onejob.middleware.request_fingerprint import compute_fingerprint
from onejob.middleware.rules import SAFE_METHODS, IdempotencyRules, Need, Rule, read_key
from onejob.middleware.stored_response import Headers
from onejob.middleware.wsgi import BODY_ENDED_EARLY, request_headers, stated_length

from .ledger import get_layer

# The attributes of a request that went through the middleware, of one whose key is held, and of a view that is
# decorated with `once`.
_IS_SETTLED_OUTSIDE = "onejob_middleware"
HELD = "onejob_held"
IS_ONCE = "onejob_once"

log = logging.getLogger("onejob.middleware")


class DjangoIdempotencyMiddleware:
    """Runs a view once for each `Idempotency-Key` and replays the first response to duplicates."""

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self._get_response = get_response
        self._layer = get_layer()

    def __call__(self, request: Any) -> Any:
        setattr(request, _IS_SETTLED_OUTSIDE, True)
        try:
            response = self._get_response(request)
        except BaseException:
            held = getattr(request, HELD, None)
            if held is not None and not held.is_settled:
                held.release()
            raise
        held = getattr(request, HELD, None)
        if held is None or held.is_settled:
            return response
        return settle_response(held, self._layer.rules, response)

    def process_view(self, request: Any, view: Any, args: Any, kwargs: Any) -> Any:
        """Take the key, or respond in place of the view."""
        if request.method not in SAFE_METHODS and _is_once(view, request.method):
            _keep_body(request, self._layer.rules)
            return None
        rule = self._layer.rules.find_rule(request.method, request.path)
        if rule is None:
            return None
        acquired = acquire_key(request, self._layer, rule)
        if isinstance(acquired, BlockingRequest):
            setattr(request, HELD, acquired)
            return None
        return acquired


def leave_to_middleware(request: Any, held: BlockingRequest) -> None:
    """Let the middleware settle a key with the response that it gets."""
    request = getattr(request, "_request", request)  # that of REST framework wraps Django's
    if not getattr(request, _IS_SETTLED_OUTSIDE, False):
        held.release()
        raise ImproperlyConfigured(
            "@once runs inside of a transaction, whose commit may still fail after the view: nothing was done; "
            "put onejob.django.IdempotencyMiddleware into MIDDLEWARE, or use @once(atomic=True)"
        )
    setattr(request, HELD, held)


def acquire_key(request: Any, layer: BlockingLayer, rule: Rule) -> "BlockingRequest | HttpResponse | None":
    """The held key; the response for a duplicate or a refusal; None if the request has no key and needs none."""
    headers = request_headers(request.META)
    key = read_key(headers, required=rule.key is Need.REQUIRED)
    if key is None:
        return None
    scope = key if isinstance(key, LayerResponse) else layer.rules.resolve_scope(request)
    body = scope if isinstance(scope, LayerResponse) else read_body(request, layer.rules)
    if isinstance(body, LayerResponse):
        return to_http_response(body)
    assert isinstance(key, str)
    assert isinstance(scope, str)
    query = request.META.get("QUERY_STRING", "").encode("latin-1")
    fingerprint = compute_fingerprint(request.method, request.path, query, headers, body)
    acquired = layer.acquire_key(key, scope, fingerprint, rule.window)
    return to_http_response(acquired) if isinstance(acquired, LayerResponse) else acquired


def read_body(request: Any, rules: IdempotencyRules) -> bytes | LayerResponse:
    """The whole body; a problem if it is too large, its length is not known, or it ends early."""
    stated = stated_length(request.META, rules)
    if isinstance(stated, LayerResponse) and (stated.status != 411 or hasattr(request, "environ")):
        return stated  # under ASGI, Django itself has read the body, whatever its length
    try:
        body: bytes = request.body
    except RequestDataTooBig:
        return rules.refuse_large_body()
    except UnreadablePostError:
        return BODY_ENDED_EARLY
    except RawPostDataException:
        log.error("the body was read before its key: put IdempotencyMiddleware into MIDDLEWARE, which keeps it")
        return problem_response("INTERNAL_ERROR", "internal error: the request was not done; the log has the reason")
    if len(body) > rules.body_bytes_max:
        return rules.refuse_large_body()
    return BODY_ENDED_EARLY if isinstance(stated, int) and 0 < stated != len(body) else body


def _keep_body(request: Any, rules: IdempotencyRules) -> None:
    """Read the body while that is possible: REST framework may parse it before `once` needs it."""
    if "HTTP_IDEMPOTENCY_KEY" in request.META:
        read_body(request, rules)


def settle_response(held: BlockingRequest, rules: IdempotencyRules, response: Any) -> Any:
    """Store a response, or release its key; returns the response that is sent."""
    try:
        receipt = receipt_of(response, rules)
    except BaseException:  # a stream that broke
        held.release()
        raise
    settled = held.settle(receipt)
    if isinstance(settled, LayerResponse):
        response.close()
        return to_http_response(settled)
    add_headers(response, settled)
    return response


def receipt_of(response: Any, rules: IdempotencyRules) -> bytes | None:
    """What is stored of a response; None if its key may be used again."""
    body = read_short_stream(response, rules) if response.streaming else response.content
    return rules.receipt_of(response.status_code, _encoded_headers(response), body)


def read_short_stream(response: Any, rules: IdempotencyRules) -> bytes | None:
    """The body of a stream that is short enough to be stored; else None."""
    if not rules.has_small_length(_encoded_headers(response)) or getattr(response, "is_async", False):
        return None
    body = b"".join(response.streaming_content)
    response.streaming_content = [body]
    return body


def _encoded_headers(response: Any) -> Headers:
    return tuple([(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.items()])


def to_http_response(response: LayerResponse) -> Any:
    built = HttpResponse(response.body, status=response.status)
    del built["Content-Type"]  # Django's default; a stored response has its own
    add_headers(built, response.headers)
    return built


def add_headers(response: Any, headers: Headers) -> None:
    for name, value in headers:
        text, known = value.decode("latin-1"), response.get(name.decode("latin-1"))
        response[name.decode("latin-1")] = text if known is None else f"{known}, {text}"


def _is_once(view: Any, method: str) -> bool:
    """True if a view, or its method for these requests, is decorated with `once`."""
    if getattr(view, IS_ONCE, False):
        return True
    instance = getattr(view, "view_class", None) or getattr(view, "cls", None)
    action = (getattr(view, "actions", None) or {}).get(method.lower(), method.lower())
    return any(getattr(getattr(instance, name, None), IS_ONCE, False) for name in (action, "dispatch"))
