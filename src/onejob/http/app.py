"""The service as bare ASGI: authenticate, authorise, hand over, present. No rule lives here."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

from onejob.clock import SystemClock
from onejob.core.roles import Act
from onejob.errors import OnejobError, Reason, SubmissionRefused, Unavailable, Unknown
from onejob.ids import Ids, SystemIds
from onejob.ledger import Ledger

from . import clients, events, jobs, keys, quotas, reservations, results, work
from .answers import Allowed, Answer, Header, refusal
from .auth import Authenticator, Presumed
from .cloud import Cloud
from .config import ServiceConfig
from .cors import from_this_machine
from .exchange import Exchange
from .hooks import Hook
from .logs import trail
from .metrics import Metrics
from .observability import Whole, observability
from .openapi import described
from .pages import PAGES
from .pour import pour
from .preparing import Preparations
from .problems import Unauthorized, presented, problem
from .rates import Rates
from .request import (
    ANONYMOUS,
    Credential,
    Receive,
    Request,
    Scope,
    Send,
    TooLarge,
    WholeBody,
    no_body,
)
from .routes import Found, Route, Routes, allowed_of, decoded, raw_path, route_of
from .sums import Counted, process_out

log = logging.getLogger("onejob.http")

ALWAYS = (
    *jobs.ROUTES,
    *clients.ROUTES,
    *events.ROUTES,
    *results.ROUTES,
    *work.ROUTES,
    *keys.ROUTES,
    *quotas.ROUTES,
    *reservations.ROUTES,
    *PAGES,
)
_MAY_WAIT = (Act.READ, Act.WORK)  # whose requests may be answered long after they came
_CHALLENGE = (b"www-authenticate", b"Bearer")


# Who asks; raises Unauthorized where nobody can tell.
Authenticate = Callable[[Scope], Awaitable[Credential]]
# Called once for every answer: request id, method, route (None: no such path), what was given, the seconds it took.
Observe = Callable[[str, str, Route | None, Answer, float], None]


def unobserved(request_id: str, method: str, route: Route | None, given: Answer, seconds: float) -> None:
    pass


class App:
    def __init__(
        self,
        ledger: Ledger,
        *,
        config: ServiceConfig | None = None,
        authenticate: Authenticate | None = None,  # None: as the config says
        observe: Observe = unobserved,
        more: tuple[Route, ...] = (),
        ids: Ids | None = None,
        prepare: Mapping[str, Hook] | None = None,  # by provider; besides those of the config
        whole: Whole | None = None,  # None: this process is the whole service
        rates: Rates | None = None,  # None: as the config says, for this process
        since: float | None = None,  # on the monotonic clock: when the service started
    ) -> None:
        ledger._host.expect_many()
        self._ledger = ledger
        self._config = config or ServiceConfig()
        self._authenticate = authenticate or _as_configured(ledger, self._config)
        self._observe = observe
        self._monotonic = SystemClock().monotonic
        self._rates = _rates(self._config, self._monotonic) if rates is None else rates
        self._presume = _presuming(self._authenticate) if self._rates is None else None
        self._ids = ids or SystemIds()
        self.preparations = Preparations(self._config)
        self._metrics = Metrics(ledger, self.preparations)
        cloud = Cloud(self._config, prepare or {}, self.preparations, self._ids).routes()
        since = self._monotonic() if since is None else since
        watched = observability(self._config, whole or _Alone(self), self._monotonic, since)
        served = (*ALWAYS, *cloud, *more, *watched)
        self.routes = Routes(described(served, self._config))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request_id = self._ids.request_id()
        begin = self._monotonic()
        found = self.routes.find(raw_path(scope))
        try:
            given = await self._answer(found, scope, receive, send, request_id)
        except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - every caller is told, and the log
            given = self._refused(error, request_id)
        if scope["method"] == "HEAD":
            await _present_head(given, request_id, send)
        elif given.stream is None and isinstance(send, Exchange):
            await send.give(given, request_id)  # our own connections take an answer whole
        else:
            await _present(given, request_id, receive, send)
        route, seconds = route_of(found[0], scope["method"]) if found else None, self._monotonic() - begin
        self._metrics.observe(route, given.status, seconds)
        self._observe(request_id, scope["method"], route, given, seconds)

    async def _answer(
        self, found: Found | None, scope: Scope, receive: Receive, send: Send, request_id: str
    ) -> Answer:
        method = scope["method"]
        if found is None:
            return refusal(problem("NOT_FOUND", "there is no such path"), request_id)
        methods, placeholders = found
        route = route_of(methods, method)
        if route is None:
            allowed = ", ".join(allowed_of(methods))
            refused = refusal(problem("METHOD_NOT_ALLOWED", f"this path takes {allowed}"), request_id)
            return refused._replace(headers=(*refused.headers, (b"allow", allowed.encode())))
        whole: WholeBody = no_body
        here = False
        if isinstance(send, Exchange):
            whole, here = send.whole_body, not send.more_body  # our own connections know it without a message
        if self._presume is not None and route.leans and here and not scope["query_string"]:
            presumed = self._presume(scope, Act.SUBMIT)
            if presumed is not None and (body := whole()) is not None:
                whole = partial(bytes, body)
                request = self._request(scope, receive, request_id, presumed.credential, whole)
                request.warrant = presumed.warrant
                if (given := await self._leaning(route, request)) is not None:
                    return given
        # What is open to everybody asks nobody who they are, and acts for nobody.
        credential = ANONYMOUS if route.act is None else await self._authenticate(scope)
        if route.act is not None and not credential.may(route.act):
            return refusal(problem("FORBIDDEN", _forbidden(route.act)), request_id)
        request = self._request(scope, receive, request_id, credential, whole)
        if placeholders:
            request.path = decoded(placeholders)
        if self._rates is not None and route.act is Act.SUBMIT:
            request.ledger = self._rates.limited(request.ledger)
        if route.act is not None and (route.act in _MAY_WAIT or not here):
            request.allowed = self._still_allowed(scope, credential, route.act)
        given = await route.handler(request)
        if given.stream is not None and route.act is not None:
            return given._replace(allowed=self._still_allowed(scope, credential, route.act))
        return given

    async def _leaning(self, route: Route, request: Request) -> Answer | None:
        """The answer under a warrant that is proved where the request is decided; None: it does not stand."""
        try:
            return await route.handler(request)
        except (Unavailable, Unknown):
            raise
        except Exception as error:
            if isinstance(error, SubmissionRefused) and error.reason is Reason.LAPSED:
                return None
            await self._authenticate(request.scope)  # who is not let in is told nothing else
            raise

    def _request(
        self, scope: Scope, receive: Receive, id: str, credential: Credential, whole: WholeBody
    ) -> Request:
        ledger = self._ledger.for_caller(credential.caller)
        request = Request(scope, receive, id=id, credential=credential, ledger=ledger, limits=self._config)
        request.whole = whole
        return request

    def _still_allowed(self, scope: Scope, before: Credential, act: Act) -> Allowed:
        """An answer without an end must not outlive the credential that it was given to."""

        async def allowed() -> bool:
            try:
                now = await self._authenticate(scope)
            except (
                OnejobError
            ):  # revoked; or nobody can tell, and then the client may come back and ask again
                return False
            return now.caller == before.caller and now.may(act)

        return allowed

    def counted(self, tenants: Iterable[str]) -> Counted:
        """All that this process has counted."""
        host = self._ledger._host
        own = {tenant: host.counts(tenant) for tenant in tenants}
        return Counted(self._metrics.families(), process_out(host.vitals()), own)

    def refused(self, status: int) -> None:
        """A connection refused what could not be read as far as its path."""
        self._metrics.refuse(status)

    def _refused(self, error: BaseException, request_id: str) -> Answer:
        match error:
            case TooLarge():
                found = problem("PAYLOAD_TOO_LARGE", str(error))
            case OnejobError():
                found = presented(error, mismatch_status=self._config.mismatch_status)
            case _:
                message = "something unforeseen happened; the log has it under the request id"
                found = problem("INTERNAL_ERROR", message)
        if found.code == "INTERNAL_ERROR":
            log.error("request %s failed: %s", request_id, trail(error))
        elif found.code == "SERVICE_UNAVAILABLE":
            log.warning("request %s was put off: %s", request_id, error)
        given = refusal(found, request_id)
        if isinstance(error, Unauthorized):
            return given._replace(headers=(*given.headers, _CHALLENGE))
        return given


class _Alone:
    """The whole service, where it is one process."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def counted(self, tenant: str) -> Counted:
        return self._app.counted((tenant,))


def _as_configured(ledger: Ledger, config: ServiceConfig) -> Authenticate:
    return Authenticator(ledger, config) if config.auth else from_this_machine(config)


def _presuming(authenticate: Authenticate) -> Callable[[Scope, Act], Presumed | None] | None:
    """None where a credential is looked at as quickly as it is presumed."""
    return authenticate.presumed if isinstance(authenticate, Authenticator) and authenticate.waits else None


def _rates(config: ServiceConfig, monotonic: Callable[[], float]) -> Rates | None:
    if config.rate_per_second is None:
        return None
    return Rates(per_second=config.rate_per_second, burst=config.rate_burst, monotonic=monotonic)


def _forbidden(act: Act) -> str:
    return f"your role does not allow to {act}; ask for a credential that does"


async def _present_head(given: Answer, request_id: str, send: Send) -> None:
    """What a GET would be answered with, but for the body."""
    if given.stream is not None:
        await given.stream.aclose()
    await send(
        {"type": "http.response.start", "status": given.status, "headers": _headers(given, request_id)}
    )
    await send({"type": "http.response.body", "body": b""})


async def _present(given: Answer, request_id: str, receive: Receive, send: Send) -> None:
    head = {"type": "http.response.start", "status": given.status, "headers": _headers(given, request_id)}
    if given.stream is not None:
        await pour(head, given.stream, receive, send, given.allowed)
        return
    await send(head)
    await send({"type": "http.response.body", "body": given.body})


def _headers(given: Answer, request_id: str) -> list[Header]:
    headers = [
        *given.headers,
        (b"cache-control", b"no-store"),
        (b"x-request-id", request_id.encode()),
    ]
    if given.stream is None and given.status != 204:
        headers.append((b"content-length", b"%d" % len(given.body)))
    return headers
