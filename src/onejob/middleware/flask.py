"""For Flask: the key is taken after the `before_request` functions that were registered earlier, hence after the login.

    Idempotency = FlaskIdempotency(app, "sqlite:///keys.db", scope=lambda request: current_user.get_id())

The WSGI middleware works with Flask too, but it sees requests before any session or user is known.
"""

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Unpack

from flask import Flask, Request, Response, request
from werkzeug.exceptions import ClientDisconnected, RequestEntityTooLarge

from onejob.sync import SyncLedger

from .blocking import BlockingLayer, BlockingRequest
from .problems import LayerResponse, problem_response
from .request_fingerprint import compute_fingerprint
from .rules import DEFAULT_RULES, IdempotencyRules, LayerOptions, Need, Rule, expires_header, read_key
from .stored_response import Headers
from .wsgi import BODY_ENDED_EARLY, request_headers, request_path, stated_length

if TYPE_CHECKING:
    from onejob.transaction import SyncCommands  # needs the driver of PostgreSQL

# In the environment of a request whose key is held, and of one whose key was settled in a transaction.
_HELD = "onejob.held"
_SETTLED_RESPONSE = "onejob.settled_response"

log = logging.getLogger("onejob.middleware")


class FlaskIdempotency:
    """Runs a view once for each `Idempotency-Key` and replays the first response; `scope` is called with the request."""

    def __init__(
        self,
        app: Flask | None,
        ledger: SyncLedger | str,
        *,
        scope: Callable[[Request], str | None],
        rules: Iterable[Rule] = DEFAULT_RULES,
        **options: Unpack[LayerOptions],
    ) -> None:
        self._rules = IdempotencyRules(scope=scope, rules=rules, **options)
        self._layer = BlockingLayer(ledger, self._rules)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        app.before_request(self._take_key)
        app.after_request(self._settle_key)
        app.teardown_request(self._release_key)

    @property
    def ledger(self) -> SyncLedger:
        """The ledger of this process, opened if need be: `idempotency.ledger.submit(…)`."""
        return self._layer.ledger

    def close(self) -> None:
        """Close the store in this process, if it was given by its URL. At the end of a process this happens by itself."""
        self._layer.close()

    def settle_inside(self, commands: "SyncCommands", response: Response) -> Response:
        """Settle the key of this request in a transaction of yours, with the response that the view then returns.

        Call it last in the transaction: `return idempotency.settle_inside(in_transaction.psycopg(connection), response)`. Then
        what the view has written and its response are stored together or not at all. Raises LeaseLost: roll back.
        """
        held: BlockingRequest | None = request.environ.get(_HELD)
        receipt = self._receipt_of(response)
        if held is None or receipt is None:  # it has no key, or its key will be released
            return response
        settled = held.settle_elsewhere(lambda key: commands.settle(key, receipt))
        request.environ[_SETTLED_RESPONSE] = response
        _add_headers(response, (expires_header(settled.expires_ms),))
        return response

    def _take_key(self) -> Response | None:
        environ, path = request.environ, request_path(request.environ)
        rule = self._rules.find_rule(request.method, path)
        if rule is None:
            return None
        headers = request_headers(environ)
        key = read_key(headers, required=rule.key is Need.REQUIRED)
        if key is None:
            return None
        scope = key if isinstance(key, LayerResponse) else self._rules.resolve_scope(request)
        body = scope if isinstance(scope, LayerResponse) else self._read_body()
        if isinstance(body, LayerResponse):
            return _to_flask_response(body)
        assert isinstance(key, str)
        assert isinstance(scope, str)
        fingerprint = compute_fingerprint(request.method, path, request.query_string, headers, body)
        acquired = self._layer.acquire_key(key, scope, fingerprint, rule.window)
        if isinstance(acquired, LayerResponse):
            return _to_flask_response(acquired)
        environ[_HELD] = acquired
        return None

    def _read_body(self) -> bytes | LayerResponse:
        """The whole body, which Flask keeps for the view; a problem if it is too large, not known or ends early."""
        stated = stated_length(request.environ, self._rules)
        if isinstance(stated, LayerResponse):
            return stated
        if "form" in request.__dict__ and stated:  # parsed from the stream, which is gone
            log.error(
                "a form was parsed before its key: read the form after FlaskIdempotency, or call get_data() first"
            )
            return problem_response(
                "INTERNAL_ERROR", "internal error: the request was not done; the log has the reason"
            )
        if request.max_content_length is None:
            request.max_content_length = self._rules.body_bytes_max
        try:
            body = request.get_data()
        except RequestEntityTooLarge:
            return self._rules.refuse_large_body()
        except ClientDisconnected:
            return BODY_ENDED_EARLY
        if len(body) > self._rules.body_bytes_max:
            return self._rules.refuse_large_body()
        return body if stated is None or len(body) == stated else BODY_ENDED_EARLY

    def _settle_key(self, response: Response) -> Response:
        held: BlockingRequest | None = request.environ.pop(_HELD, None)
        if held is None:
            return response
        if held.is_settled:
            if request.environ.pop(_SETTLED_RESPONSE, None) is not response:
                held.release()  # the transaction did not commit; if it did, the fence refuses this
            return response
        try:
            settled = held.settle(self._receipt_of(response))
        except BaseException:  # a stream that broke
            if not held.is_settled:
                held.release()
            raise
        if isinstance(settled, LayerResponse):
            response.close()
            return _to_flask_response(settled)
        _add_headers(response, settled)
        return response

    def _receipt_of(self, response: Response) -> bytes | None:
        headers = tuple([(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers])
        body: bytes | None = None
        if not response.is_streamed or self._rules.has_small_length(headers):
            response.direct_passthrough = False  # a small file
            body = response.get_data()
        return self._rules.receipt_of(response.status_code, headers, body)

    def _release_key(self, error: BaseException | None) -> None:
        """For exceptions that Flask does not answer, as in its tests and debugger."""
        held: BlockingRequest | None = request.environ.pop(_HELD, None)
        if held is not None:
            held.release()


def _add_headers(response: Response, headers: Headers) -> None:
    for name, value in headers:
        response.headers.add(name.decode("latin-1"), value.decode("latin-1"))


def _to_flask_response(response: LayerResponse) -> Response:
    headers: list[Any] = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers]
    built = Response(response.body, response.status, headers)
    if not any(name == "content-type" for name, _ in headers):
        del built.headers["content-type"]
    built.autocorrect_location_header = False
    return built
