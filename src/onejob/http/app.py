"""The service as bare ASGI: authenticate, authorise, hand over, present. No rule lives here."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

from onejob.clock import SystemClock
from onejob.core.credentials import Permission
from onejob.errors import OnejobError, Reason, SubmissionRefused, Unavailable, Unknown
from onejob.ids import Ids, SystemIds
from onejob.ledger import Ledger

from .auth import Authenticator, OptimisticAuth
from .config import ServiceConfig
from .endpoints import events, jobs, keys, quotas, sequences, work
from .endpoints import jobs as results
from .endpoints import quotas as reservations
from .endpoints.cloud import CloudEndpoints
from .endpoints.pages import PAGES
from .endpoints.preparation import Hook, Preparations
from .endpoints.status import StatsSource, status_routes
from .logs import redacted_traceback
from .metrics import Metrics
from .openapi import with_openapi_route
from .origins import loopback_authenticator
from .problems import Unauthorized, problem, to_public_problem
from .rate_limit import RateLimiter
from .request import ANONYMOUS, BodyTooLarge, BufferedBody, Credential, Receive, Request, Scope, Send, no_buffered_body
from .responses import AuthorizationCheck, Header, Response, problem_response
from .routing import Route, RouteMatch, Routes, allowed_methods, decode_placeholders, raw_path, route_for_method
from .server.exchange import HttpExchange
from .stats import StatsSnapshot, process_out
from .streaming import stream_response

log = logging.getLogger("onejob.http")

BASE_ROUTES = (
    *jobs.ROUTES,
    *sequences.ROUTES,
    *events.ROUTES,
    *results.RESULT_ROUTES,
    *work.ROUTES,
    *keys.ROUTES,
    *quotas.ROUTES,
    *reservations.RESERVATION_ROUTES,
    *PAGES,
)
_LONG_POLL_ACTS = (Permission.READ, Permission.WORK)  # whose requests may be answered long after they came
_AUTH_CHALLENGE = (b"www-authenticate", b"Bearer")


# Who asks; raises Unauthorized where nobody can tell.
Authenticate = Callable[[Scope], Awaitable[Credential]]
# Called once for every answer: request id, method, route (None: no such path), what was given, the seconds it took.
Observe = Callable[[str, str, Route | None, Response, float], None]


def ignore_request(request_id: str, method: str, route: Route | None, response: Response, seconds: float) -> None:
    pass


class HttpApp:
    def __init__(
        self,
        ledger: Ledger,
        *,
        config: ServiceConfig | None = None,
        authenticate: Authenticate | None = None,  # None: as the config says
        observe: Observe = ignore_request,
        extra_routes: tuple[Route, ...] = (),
        ids: Ids | None = None,
        prepare: Mapping[str, Hook] | None = None,  # by provider; besides those of the config
        stats_source: StatsSource | None = None,  # None: this process is the whole service
        rate_limiter: RateLimiter | None = None,  # None: as the config says, for this process
        started_at: float | None = None,  # on the monotonic clock: when the service started
    ) -> None:
        self._ledger = ledger
        self._config = config or ServiceConfig()
        self._authenticate = authenticate or _build_authenticate(ledger, self._config)
        self._observe = observe
        self._monotonic = SystemClock().monotonic
        self._rate_limiter = (
            _build_rate_limiter(self._config, self._monotonic) if rate_limiter is None else rate_limiter
        )
        self._authenticate_optimistically = (
            _optimistic_authenticate(self._authenticate) if self._rate_limiter is None else None
        )
        self._ids = ids or SystemIds()
        self.preparations = Preparations(self._config)
        self._metrics = Metrics(ledger, self.preparations)
        cloud = CloudEndpoints(self._config, prepare or {}, self.preparations, self._ids).routes()
        started_at = self._monotonic() if started_at is None else started_at
        watched = status_routes(self._config, stats_source or _SingleProcessStats(self), self._monotonic, started_at)
        served = (*BASE_ROUTES, *cloud, *extra_routes, *watched)
        self.routes = Routes(with_openapi_route(served, self._config))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request_id = self._ids.request_id()
        begin = self._monotonic()
        found = self.routes.find(raw_path(scope))
        try:
            given = await self._respond(found, scope, receive, send, request_id)
        except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - every caller is told, and the log
            given = self._error_response(error, request_id)
        if scope["method"] == "HEAD":
            await _send_head_response(given, request_id, send)
        elif given.stream is None and isinstance(send, HttpExchange):
            await send.send_response(given, request_id)  # our own connections take an answer whole
        else:
            await _send_response(given, request_id, receive, send)
        route, seconds = (
            route_for_method(found[0], scope["method"]) if found else None,
            self._monotonic() - begin,
        )
        self._metrics.observe(route, given.status, seconds)
        self._observe(request_id, scope["method"], route, given, seconds)

    async def _respond(
        self, route_match: RouteMatch | None, scope: Scope, receive: Receive, send: Send, request_id: str
    ) -> Response:
        method = scope["method"]
        if route_match is None:
            return problem_response(problem("NOT_FOUND", "there is no such path"), request_id)
        methods, placeholders = route_match
        route = route_for_method(methods, method)
        if route is None:
            allowed = ", ".join(allowed_methods(methods))
            refused = problem_response(problem("METHOD_NOT_ALLOWED", f"this path takes {allowed}"), request_id)
            return refused._replace(headers=(*refused.headers, (b"allow", allowed.encode())))
        whole: BufferedBody = no_buffered_body
        here = False
        if isinstance(send, HttpExchange):
            whole, here = (
                send.buffered_body,
                not send.more_body,
            )  # our own connections know it without a message
        if (
            self._authenticate_optimistically is not None
            and route.optimistic_auth
            and here
            and not scope["query_string"]
        ):
            presumed = self._authenticate_optimistically(scope, Permission.SUBMIT)
            if presumed is not None and (body := whole()) is not None:
                whole = partial(bytes, body)
                request = self._build_request(scope, receive, request_id, presumed.credential, whole)
                request.precondition = presumed.precondition
                if (given := await self._respond_optimistically(route, request)) is not None:
                    return given
        # What is open to everybody asks nobody who they are, and acts for nobody.
        credential = ANONYMOUS if route.act is None else await self._authenticate(scope)
        if route.act is not None and not credential.may(route.act):
            return problem_response(problem("FORBIDDEN", _forbidden_message(route.act)), request_id)
        request = self._build_request(scope, receive, request_id, credential, whole)
        if placeholders:
            request.path_params = decode_placeholders(placeholders)
        if self._rate_limiter is not None and route.act is Permission.SUBMIT:
            request.ledger = self._rate_limiter.limited_ledger(request.ledger)
        if route.act is not None and (route.act in _LONG_POLL_ACTS or not here):
            request.still_authorized = self._build_authorization_check(scope, credential, route.act)
        given = await route.handler(request)
        if given.stream is not None and route.act is not None:
            return given._replace(still_authorized=self._build_authorization_check(scope, credential, route.act))
        return given

    async def _respond_optimistically(self, route: Route, request: Request) -> Response | None:
        """The answer under a warrant that is proved where the request is decided; None: it does not stand."""
        try:
            return await route.handler(request)
        except (Unavailable, Unknown):
            raise
        except Exception as error:
            if isinstance(error, SubmissionRefused) and error.reason is Reason.CREDENTIAL_CHANGED:
                return None
            await self._authenticate(request.scope)  # who is not let in is told nothing else
            raise

    def _build_request(
        self, scope: Scope, receive: Receive, id: str, credential: Credential, buffered_body: BufferedBody
    ) -> Request:
        ledger = self._ledger.for_caller(credential.caller)
        request = Request(scope, receive, id=id, credential=credential, ledger=ledger, limits=self._config)
        request.buffered_body = buffered_body
        return request

    def _build_authorization_check(self, scope: Scope, credential: Credential, act: Permission) -> AuthorizationCheck:
        """An answer without an end must not outlive the credential that it was given to."""

        async def allowed() -> bool:
            try:
                now = await self._authenticate(scope)
            except OnejobError:  # revoked; or nobody can tell, and then the client may come back and ask again
                return False
            return now.caller == credential.caller and now.may(act)

        return allowed

    def collect_stats(self, tenants: Iterable[str]) -> StatsSnapshot:
        """All that this process has counted."""
        host = self._ledger.runtime
        own = {tenant: host.tenant_counts(tenant) for tenant in tenants}
        return StatsSnapshot(self._metrics.families(), process_out(host.stats()), own)

    def count_refusal(self, status: int) -> None:
        """A connection refused what could not be read as far as its path."""
        self._metrics.count_refusal(status)

    def _error_response(self, error: BaseException, request_id: str) -> Response:
        match error:
            case BodyTooLarge():
                found = problem("PAYLOAD_TOO_LARGE", str(error))
            case OnejobError():
                found = to_public_problem(error, mismatch_status=self._config.mismatch_status)
            case _:
                message = "something unforeseen happened; the log has it under the request id"
                found = problem("INTERNAL_ERROR", message)
        if found.code == "INTERNAL_ERROR":
            log.error("request %s failed: %s", request_id, redacted_traceback(error))
        elif found.code == "SERVICE_UNAVAILABLE":
            log.warning("request %s was put off: %s", request_id, error)
        given = problem_response(found, request_id)
        if isinstance(error, Unauthorized):
            return given._replace(headers=(*given.headers, _AUTH_CHALLENGE))
        return given


class _SingleProcessStats:
    """The whole service, where it is one process."""

    def __init__(self, app: HttpApp) -> None:
        self._app = app

    async def collect_stats(self, tenant: str) -> StatsSnapshot:
        return self._app.collect_stats((tenant,))


def _build_authenticate(ledger: Ledger, config: ServiceConfig) -> Authenticate:
    return Authenticator(ledger, config) if config.auth else loopback_authenticator(config)


def _optimistic_authenticate(
    authenticate: Authenticate,
) -> Callable[[Scope, Permission], OptimisticAuth | None] | None:
    """None where a credential is looked at as quickly as it is presumed."""
    return (
        authenticate.authenticate_optimistically
        if isinstance(authenticate, Authenticator) and authenticate.reads_are_asynchronous
        else None
    )


def _build_rate_limiter(config: ServiceConfig, monotonic: Callable[[], float]) -> RateLimiter | None:
    if config.rate_per_second is None:
        return None
    return RateLimiter(per_second=config.rate_per_second, burst=config.rate_burst, monotonic=monotonic)


def _forbidden_message(act: Permission) -> str:
    return f"your role does not allow to {act}; ask for a credential that does"


async def _send_head_response(response: Response, request_id: str, send: Send) -> None:
    """What a GET would be answered with, but for the body."""
    if response.stream is not None:
        await response.stream.aclose()
    await send(
        {
            "type": "http.response.start",
            "status": response.status,
            "headers": _response_headers(response, request_id),
        }
    )
    await send({"type": "http.response.body", "body": b""})


async def _send_response(response: Response, request_id: str, receive: Receive, send: Send) -> None:
    head = {
        "type": "http.response.start",
        "status": response.status,
        "headers": _response_headers(response, request_id),
    }
    if response.stream is not None:
        await stream_response(head, response.stream, receive, send, response.still_authorized)
        return
    await send(head)
    await send({"type": "http.response.body", "body": response.body})


def _response_headers(response: Response, request_id: str) -> list[Header]:
    headers = [
        *response.headers,
        (b"cache-control", b"no-store"),
        (b"x-request-id", request_id.encode()),
    ]
    if response.stream is None and response.status != 204:
        headers.append((b"content-length", b"%d" % len(response.body)))
    return headers
