"""The service as an ASGI application: routes, authenticates, calls the handler, sends the response.

A request takes one of three ways through `HttpApp`: anonymous (an open route, no credential is read), checked first (the
credential is read before the handler runs), or optimistic (`OptimisticAuth`, a fast path of the second).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial

from onejob.clock import SystemClock
from onejob.core.credentials import Permission, has_permission, roles_with
from onejob.errors import OnejobError, SubmissionInProgress
from onejob.ids import Ids, SystemIds
from onejob.ledger import Ledger
from onejob.ledger.base import runtime_of
from onejob.ledger.service import ServiceLedger
from onejob.logs import redacted_traceback
from onejob.runtime.callers import Caller
from onejob.runtime.rate_limit import RateLimiter
from onejob.server.exchange import HttpExchange, encode_headers

from .auth import Authenticate, Authenticator, OptimisticAuth, optimistic_auth_for
from .config import ServiceConfig
from .endpoints import api_keys, events, jobs, keys, listings, overview, quotas, sequences, steps, work
from .endpoints.cloud import CloudEndpoints
from .endpoints.pages import PAGES
from .endpoints.preparation import Hook, Preparations
from .endpoints.sessions import SessionEndpoints
from .endpoints.status import StatsSource, status_routes
from .metrics import Metrics
from .openapi import with_openapi_route
from .origins import BODY_CHECK_HEADERS, check_body_headers, checked_origins, loopback_authenticator
from .problems import (
    INTERNAL_ERROR_MESSAGE,
    STORE_RETRY_AFTER_SECONDS,
    Unauthorized,
    is_out_of_memory,
    problem,
    to_public_problem,
    unavailable_problem,
)
from .rate_limit import RateLimitedLedger
from .request import (
    ANONYMOUS,
    BodyTooLarge,
    BodyTooSlow,
    Credential,
    Receive,
    Request,
    Scope,
    Send,
    UnsupportedBody,
    is_retryable,
)
from .responses import CACHEABLE_HEADERS, COMMON_HEADERS, Header, Response, problem_response
from .routing import Route, RouteMatch, Routes, allowed_methods, decode_placeholders, raw_path, route_for_method
from .stats import StatsSnapshot, process_out
from .streaming import stream_response

log = logging.getLogger("onejob.http")

BASE_ROUTES = (
    *jobs.ROUTES,
    *sequences.ROUTES,
    *events.ROUTES,
    *jobs.RESULT_ROUTES,
    *work.ROUTES,
    *steps.ROUTES,
    *keys.ROUTES,
    *overview.ROUTES,
    *listings.ROUTES,
    *api_keys.ROUTES,
    *quotas.ROUTES,
    *quotas.RESERVATION_ROUTES,
    *PAGES,
)
_SUBMIT = Permission.SUBMIT  # looking up an enum member is slow in Python 3.11
_LONG_POLL_PERMISSIONS = (
    Permission.READ,
    Permission.WORK,
)  # their responses may come long after the credential was checked
CACHED_LEDGERS_MAX = 1024  # one per caller
_ID_LINES = b"%b" + encode_headers(COMMON_HEADERS) + b"x-request-id: %b\r\n"
_AUTH_CHALLENGE = (b"www-authenticate", b"Bearer")
_ACCEPTED_HEADERS = ((b"accept", b"application/json"), (b"accept-encoding", b"identity"))

# Called for responses: request id, method, route (None: no such path), response, seconds.
Observe = Callable[[str, str, Route | None, Response, float], None]


class HttpApp:
    def __init__(
        self,
        ledger: Ledger,
        *,
        config: ServiceConfig | None = None,
        authenticate: Authenticate | None = None,  # None: as the config says
        observe: Observe | None = None,
        observe_failed_only: bool = False,  # a log line for every request costs a tenth of the response time
        extra_routes: tuple[Route, ...] = (),
        ids: Ids | None = None,
        prepare: Mapping[str, Hook] | None = None,  # by provider; besides those of the config
        stats_source: StatsSource | None = None,  # None: this process is the whole service
        rate_limiter: RateLimiter | None = None,  # None: as the config says, for this process
        started_at: float | None = None,  # on the monotonic clock: when the service started
    ) -> None:
        self._ledger = ledger = ServiceLedger.of(ledger)
        self._ledger_for = lru_cache(CACHED_LEDGERS_MAX)(ledger.for_caller)
        self._anonymous_ledger = ledger.for_caller(ANONYMOUS.caller)
        self._config = config or ServiceConfig()
        self._authenticate = authenticate or _build_authenticate(ledger, self._config)
        self._origins = checked_origins(self._config.cors_origins)
        self._tracing = runtime_of(ledger).tracing
        self._observe = observe
        self._observe_failed_only = observe_failed_only
        self._monotonic = SystemClock().monotonic
        if rate_limiter is None:
            rate_limiter = _build_rate_limiter(self._config, self._monotonic)
        self._submitting_ledger_for = lru_cache(CACHED_LEDGERS_MAX)(partial(_submitting_ledger, ledger, rate_limiter))
        # The rate limiter counts by credential before it submits, so it needs a checked one.
        self._optimistic_auth = optimistic_auth_for(self._authenticate, ledger) if rate_limiter is None else None
        self._ids = ids or SystemIds()
        self.preparations = Preparations(self._config)
        self._metrics = Metrics(ledger, self.preparations)
        self._cloud = CloudEndpoints(self._config, prepare or {}, self.preparations, self._ids)
        signing_in = SessionEndpoints(self._authenticate).routes()
        started_at = self._monotonic() if started_at is None else started_at
        status = status_routes(self._config, stats_source or _SingleProcessStats(self), self._monotonic, started_at)
        self.routes = Routes(
            with_openapi_route((*BASE_ROUTES, *self._cloud.routes(), *signing_in, *extra_routes, *status), self._config)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request_id = self._ids.request_id()
        begin = self._monotonic()
        match = self.routes.find(raw_path(scope))
        route = None if match is None else route_for_method(match[0], scope["method"])
        try:
            if route is None or match is None:
                response = _no_such_route(match, request_id)
            elif self._tracing is None:
                response = await self._respond(route, match[1], scope, receive, send, request_id)
            else:
                with self._tracing.continue_trace(scope["headers"]):
                    response = await self._respond(route, match[1], scope, receive, send, request_id)
        except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - it is logged, and the client gets a problem
            response = self._error_response(error, request_id, scope)
        if response.stream is None and not response.is_cacheable and isinstance(send, HttpExchange):
            lines = response.encoded_headers or encode_headers(response.headers)
            lines = _ID_LINES % (lines, request_id.encode())
            await send.send_response_fast(response.status, lines, response.body)
        else:
            await _send_response(response, request_id, scope["method"], receive, send)
        seconds = self._monotonic() - begin
        self._metrics.observe(route, response.status, seconds)
        if self._observe is not None and (response.status >= 400 or not self._observe_failed_only):
            self._observe(request_id, scope["method"], route, response, seconds)

    def _respond(
        self,
        route: Route,
        placeholders: Sequence[str],
        scope: Scope,
        receive: Receive,
        send: Send,
        request_id: str,
    ) -> Awaitable[Response]:
        ledger = self._anonymous_ledger
        request = Request(scope, receive, id=request_id, credential=ANONYMOUS, ledger=ledger, limits=self._config)
        if isinstance(send, HttpExchange):
            request.buffered_body = send.take_body_fast
            request.body_is_complete = not send.more_body
        if route.permission is None:
            request.path_params = decode_placeholders(placeholders)
            return route.handler(request)
        if self._optimistic_auth is not None and BODY_CHECK_HEADERS.isdisjoint(dict(request.headers)):
            return self._respond_optimistically(self._optimistic_auth, route, route.permission, request, placeholders)
        return self._respond_checked(route, route.permission, request, placeholders)

    async def _respond_optimistically(
        self,
        auth: OptimisticAuth,
        route: Route,
        permission: Permission,
        request: Request,
        placeholders: Sequence[str],
    ) -> Response:
        response = await auth.respond_fast(route, request)
        if response is not None:
            return response
        return await self._respond_checked(route, permission, request, placeholders)

    async def _respond_checked(
        self, route: Route, permission: Permission, request: Request, placeholders: Sequence[str]
    ) -> Response:
        """The plain way: the credential is read before anything else of the request is looked at."""
        credential = await self._authenticate(request.scope)
        if not has_permission(credential.roles, permission):
            message = f"this needs the role {' or '.join(roles_with(permission))}; use a credential that has it"
            return problem_response(problem("FORBIDDEN", message), request.id)
        if not BODY_CHECK_HEADERS.isdisjoint(dict(request.headers)):
            check_body_headers(request.scope, self._origins)
        request.credential = credential
        ledger_for = self._submitting_ledger_for if permission is _SUBMIT else self._ledger_for
        request.ledger = ledger_for(credential.caller)
        if placeholders:
            request.path_params = decode_placeholders(placeholders)
        if permission in _LONG_POLL_PERMISSIONS or not request.body_is_complete:
            request.still_authorized = partial(self._is_still_authorized, request.scope, credential, permission)
        response = await route.handler(request)
        if response.stream is not None:
            check = partial(self._is_still_authorized, request.scope, credential, permission)
            return response._replace(still_authorized=check)
        return response

    async def _is_still_authorized(self, scope: Scope, credential: Credential, permission: Permission) -> bool:
        """A response that takes long must not outlive the credential that it is given to."""
        try:
            now = await self._authenticate(scope)
        except OnejobError:  # revoked; or the store cannot be read, and then the client may ask again
            return False
        return now.caller == credential.caller and now.may(permission)

    def start_background_tasks(self) -> None:
        """Called when the server is ready. They end with `preparations.shut_down`."""
        if self._cloud.has_hooks:
            self.preparations.start_resuming(lambda: self._cloud.resume_abandoned(self._ledger))

    def collect_stats(self, tenants: Iterable[str]) -> StatsSnapshot:
        """The counters of this process."""
        runtime = runtime_of(self._ledger)
        by_tenant = {tenant: runtime.tenant_counts(tenant) for tenant in tenants}
        return StatsSnapshot(self._metrics.families(), process_out(runtime.stats()), by_tenant)

    def count_refusal(self, status: int) -> None:
        """Count a request that its connection refused before a path was read."""
        self._metrics.count_refusal(status)

    def _error_response(self, error: BaseException, request_id: str, scope: Scope) -> Response:
        match error:
            case BodyTooLarge():
                answer = problem("PAYLOAD_TOO_LARGE", str(error))
            case BodyTooSlow():
                answer = problem("BAD_REQUEST", str(error))._replace(status=408)  # as a slow head
            case UnsupportedBody():
                answer = problem("UNSUPPORTED_MEDIA_TYPE", str(error))
            case SubmissionInProgress() if runtime_of(self._ledger).waiters.is_shutting_down:
                # Another process can wait for the holder of the key, so the client need not.
                soon = SubmissionInProgress(key=error.key, job_id=error.job_id, retry_after=STORE_RETRY_AFTER_SECONDS)
                answer = to_public_problem(soon, mismatch_status=self._config.mismatch_status)
            case OnejobError():
                answer = to_public_problem(error, mismatch_status=self._config.mismatch_status)
            case _ if is_out_of_memory(error):
                answer = unavailable_problem("the server is out of memory", retryable=is_retryable(scope))
            case _:
                answer = problem("INTERNAL_ERROR", INTERNAL_ERROR_MESSAGE)
        if answer.code == "INTERNAL_ERROR":
            log.error("request %s failed: %s", request_id, redacted_traceback(error))
        elif answer.code == "SERVICE_UNAVAILABLE":
            cause = error if isinstance(error, OnejobError) else type(error).__name__
            log.warning("request %s got 503: %s", request_id, cause)
        response = problem_response(answer, request_id)
        if isinstance(error, Unauthorized):
            return response._replace(headers=(*response.headers, _AUTH_CHALLENGE))
        if isinstance(error, UnsupportedBody):
            return response._replace(headers=(*response.headers, *_ACCEPTED_HEADERS))
        return response


class _SingleProcessStats:
    """The statistics of a service that is one process."""

    def __init__(self, app: HttpApp) -> None:
        self._app = app

    async def collect_stats(self, tenant: str) -> StatsSnapshot:
        return self._app.collect_stats((tenant,))


def _build_authenticate(ledger: Ledger, config: ServiceConfig) -> Authenticate:
    return Authenticator(ledger, config) if config.auth else loopback_authenticator(config)


def _submitting_ledger(ledger: ServiceLedger, rate_limiter: RateLimiter | None, caller: Caller) -> ServiceLedger:
    own = ledger.for_caller(caller)
    return own if rate_limiter is None else RateLimitedLedger(runtime_of(own), own.caller, rate_limiter)


def _build_rate_limiter(config: ServiceConfig, monotonic: Callable[[], float]) -> RateLimiter | None:
    if config.rate_per_second is None:
        return None
    return RateLimiter(per_second=config.rate_per_second, burst=config.rate_burst, monotonic=monotonic)


def _no_such_route(match: RouteMatch | None, request_id: str) -> Response:
    if match is None:
        return problem_response(problem("NOT_FOUND", "there is no such path"), request_id)
    allowed = ", ".join(allowed_methods(match[0]))
    response = problem_response(problem("METHOD_NOT_ALLOWED", f"this path takes {allowed}"), request_id)
    return response._replace(headers=(*response.headers, (b"allow", allowed.encode())))


async def _send_response(response: Response, request_id: str, method: str, receive: Receive, send: Send) -> None:
    headers = _response_headers(response, request_id)
    head = {"type": "http.response.start", "status": response.status, "headers": headers}
    if response.stream is not None and method != "HEAD":
        await stream_response(head, response.stream, receive, send, response.still_authorized)
        return
    if response.stream is not None:
        await response.stream.aclose()
    await send(head)
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else response.body})


def _response_headers(response: Response, request_id: str) -> list[Header]:
    common = CACHEABLE_HEADERS if response.is_cacheable else COMMON_HEADERS
    headers = [*response.headers, *common, (b"x-request-id", request_id.encode())]
    if response.stream is None and response.status != 204:
        headers.append((b"content-length", b"%d" % len(response.body)))
    return headers
