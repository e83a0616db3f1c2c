"""For whoever watches over a server: is it ready, what did it count, what does it promise about keys."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from onejob.core.roles import Act
from onejob.engine import Durability
from onejob.errors import OnejobError
from onejob.host import Counts

from .answers import Answer, answer, refusal, text
from .config import ServiceConfig
from .idempotency_policy import IdempotencyPolicyOut, idempotency_policy
from .metrics import MEDIA, VERSION, page
from .problems import RETRY_AFTER_STORE, problem
from .request import Request
from .routes import Route
from .sums import Counted, ProcessOut, by_word
from .wire import Body

READY_SECONDS_MAX = 2.0

log = logging.getLogger("onejob.http")


class HealthOut(Body, frozen=True, rename="camel"):
    status: str
    durability: Durability


class ReadyOut(Body, frozen=True, rename="camel"):
    status: str
    durability: Durability
    engine: str
    caveat: str  # what the durability does not cover; empty: nothing


class StatsOut(Body, frozen=True, rename="camel"):
    """What the service counted for the caller's tenant since it started."""

    request_id: str
    version: str
    engine: str
    durability: Durability
    uptime_seconds: float
    tenant: str
    outcomes: dict[str, int]
    waiting: int
    process: ProcessOut | None  # for whoever may administer


class Whole(Protocol):
    """Who can say what the whole service counted, and for this tenant."""

    async def counted(self, tenant: str) -> Counted: ...


class Observability:
    def __init__(
        self, config: ServiceConfig, whole: Whole, monotonic: Callable[[], float], since: float
    ) -> None:
        self._config = config
        self._whole = whole
        self._monotonic = monotonic
        self._since = since

    async def healthz(self, request: Request) -> Answer:
        return answer(200, HealthOut("ok", request.ledger.durability))

    async def metrics(self, request: Request) -> Answer:
        return text(200, page((await self._whole.counted("")).families), MEDIA)

    async def readyz(self, request: Request) -> Answer:
        """Ready is who is answered by the engine in time, and whose last write it took."""
        ledger = request.ledger
        vitals = ledger.vitals()
        facts = ReadyOut("ready", ledger.durability, vitals.engine, vitals.caveat)
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                await ledger._host.readiness.check()
        except TimeoutError:
            reason = f"the engine did not answer within {READY_SECONDS_MAX:.0f} s"
        except OnejobError as error:
            log.warning("not ready: %s", error)
            # Whoever asks is a stranger where there are credentials: what ails the store is for the log.
            reason = "the store cannot be used now; the log says why" if self._config.auth else str(error)
        else:
            return answer(200, facts)
        found = problem(
            "SERVICE_UNAVAILABLE",
            reason,
            RETRY_AFTER_STORE,
            durability=facts.durability,
            engine=facts.engine,
        )
        return refusal(found, request.id)

    async def stats(self, request: Request) -> Answer:
        request.query()
        vitals = request.ledger.vitals()
        tenant = request.credential.caller.tenant
        counted = await self._whole.counted(tenant)
        own = counted.tenants.get(tenant, Counts({}, 0))
        out = StatsOut(
            request_id=request.id,
            version=VERSION,
            engine=vitals.engine,
            durability=request.ledger.durability,
            uptime_seconds=round(self._monotonic() - self._since, 3),
            tenant=tenant,
            outcomes=by_word(own.outcomes),
            waiting=own.waiting,
            process=counted.process if request.credential.may(Act.ADMINISTER) else None,
        )
        return answer(200, out)

    async def policy(self, request: Request) -> Answer:
        return answer(200, idempotency_policy(self._config, request.ledger.vitals().config))


def observability(
    config: ServiceConfig, whole: Whole, monotonic: Callable[[], float], since: float
) -> tuple[Route, ...]:
    here = Observability(config, whole, monotonic, since)
    scraper = None if config.metrics_open else Act.ADMINISTER
    return (
        Route("GET", "/healthz", here.healthz, None, "Say that this process lives", None, HealthOut),
        Route(
            "GET", "/readyz", here.readyz, None, "Say whether the engine answers and writes", None, ReadyOut
        ),
        Route(
            "GET", "/metrics", here.metrics, scraper, "Counters for Prometheus", None, str, media="text/plain"
        ),
        Route("GET", "/api/stats", here.stats, Act.READ, "What the service counted for you", None, StatsOut),
        Route(
            "GET",
            "/api/idempotency-policy",
            here.policy,
            None,
            "What this server promises about keys",
            None,
            IdempotencyPolicyOut,
        ),
    )
