"""The service as bare ASGI: authenticate, authorise, hand over, present. No rule lives here."""

import logging
from collections.abc import Awaitable, Callable

from onejob.clock import SystemClock
from onejob.core.roles import Act
from onejob.errors import OnejobError
from onejob.ids import Ids, SystemIds
from onejob.ledger import Ledger

from . import jobs
from .answers import Answer, answer, refusal
from .config import ServiceConfig
from .problems import problem, problem_of
from .request import BODY_BYTES_MAX, LOCAL, Credential, Receive, Request, Scope, Send, TooLarge
from .routes import Route, Routes

log = logging.getLogger("onejob.http")


# Who asks; raises Unauthorized where nobody can tell.
Authenticate = Callable[[Scope], Awaitable[Credential]]
# Called once for every answer: the route (None: no such path), the status, the seconds it took.
Observe = Callable[[Route | None, int, float], None]


async def local(scope: Scope) -> Credential:
    return LOCAL


def unobserved(route: Route | None, status: int, seconds: float) -> None:
    pass


class App:
    def __init__(
        self,
        ledger: Ledger,
        *,
        config: ServiceConfig | None = None,
        authenticate: Authenticate = local,
        observe: Observe = unobserved,
        more: tuple[Route, ...] = (),
        ids: Ids | None = None,
    ) -> None:
        self._ledger = ledger
        self._config = config or ServiceConfig()
        self._authenticate = authenticate
        self._observe = observe
        self._monotonic = SystemClock().monotonic
        self._ids = ids or SystemIds()
        self.routes = Routes(
            (*jobs.ROUTES, Route("GET", "/healthz", healthz, None, "Say that this process lives"))
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request_id = self._ids.nonce()
        begin = self._monotonic()
        try:
            given = await self._answer(scope, receive, request_id)
        except TooLarge:
            message = f"a body has at most {BODY_BYTES_MAX} bytes; send less"
            given = refusal(problem("PAYLOAD_TOO_LARGE", message), request_id)
        except OnejobError as error:
            given = refusal(problem_of(error), request_id)
        except Exception:
            log.exception("request %s failed", request_id)
            message = "something unforeseen happened; the log has it under the request id"
            given = refusal(problem("INTERNAL_ERROR", message), request_id)
        await _present(given, request_id, send)
        found = self.routes.find(scope["path"])
        self._observe(
            found[0].get(scope["method"]) if found else None, given.status, self._monotonic() - begin
        )

    async def _answer(self, scope: Scope, receive: Receive, request_id: str) -> Answer:
        path, method = scope["path"], scope["method"]
        found = self.routes.find(path)
        if found is None:
            return refusal(problem("NOT_FOUND", "there is no such path"), request_id)
        methods, placeholders = found
        route = methods.get(method)
        if route is None:
            allowed = ", ".join(methods)
            refused = refusal(problem("METHOD_NOT_ALLOWED", f"this path takes {allowed}"), request_id)
            return refused._replace(headers=(*refused.headers, (b"allow", allowed.encode())))
        credential = await self._authenticate(scope)
        if route.act is not None and not credential.may(route.act):
            return refusal(problem("FORBIDDEN", _forbidden(route.act)), request_id)
        ledger = self._ledger.for_caller(credential.caller)
        request = Request(
            scope, receive, id=request_id, credential=credential, ledger=ledger, path=placeholders
        )
        return await route.handler(request)


async def healthz(request: Request) -> Answer:
    return answer(200, {"status": "ok", "durability": request.ledger.durability})


HEALTHZ = Route("GET", "/healthz", healthz, None, "Say that this process lives")


def _forbidden(act: Act) -> str:
    return f"your role does not allow to {act}; ask for a credential that does"


async def _present(given: Answer, request_id: str, send: Send) -> None:
    headers = [
        *given.headers,
        (b"cache-control", b"no-store"),
        (b"x-request-id", request_id.encode()),
    ]
    if given.stream is None:
        headers.append((b"content-length", b"%d" % len(given.body)))
        await send({"type": "http.response.start", "status": given.status, "headers": headers})
        await send({"type": "http.response.body", "body": given.body})
        return
    await send({"type": "http.response.start", "status": given.status, "headers": headers})
    async for chunk in given.stream:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
