"""For whoever watches over a server: is it ready, what did it count, what does it promise about keys."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from onejob.core.roles import Act
from onejob.engine import Durability
from onejob.engines.cache import CacheStats
from onejob.errors import OnejobError
from onejob.host import Vitals

from .answers import Answer, answer, refusal, text
from .config import ServiceConfig
from .idempotency_policy import IdempotencyPolicyOut, idempotency_policy
from .metrics import MEDIA, OUTCOMES, VERSION, Metrics
from .problems import RETRY_AFTER_STORE, problem
from .request import Request
from .routes import Route
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


class QueueOut(Body, frozen=True, rename="camel"):
    waiting: int
    commands: int  # executed since the start
    batches: int


class UpkeepOut(Body, frozen=True, rename="camel"):
    records: int
    jobs: int
    failures: int


class ProcessOut(Body, frozen=True, rename="camel"):
    """What this process counted over all tenants."""

    outcomes: dict[str, int]
    waiting: int
    gate: CacheStats
    queues: dict[str, QueueOut]
    upkeep: UpkeepOut


class StatsOut(Body, frozen=True, rename="camel"):
    """What this process counted for the caller's tenant since it started."""

    request_id: str
    version: str
    engine: str
    durability: Durability
    uptime_seconds: float
    tenant: str
    outcomes: dict[str, int]
    waiting: int
    process: ProcessOut | None  # for whoever may administer


class Observability:
    def __init__(self, config: ServiceConfig, metrics: Metrics, monotonic: Callable[[], float]) -> None:
        self._config = config
        self._metrics = metrics
        self._monotonic = monotonic
        self._since = monotonic()

    async def healthz(self, request: Request) -> Answer:
        return answer(200, HealthOut("ok", request.ledger.durability))

    async def metrics(self, request: Request) -> Answer:
        return text(200, self._metrics.text(), MEDIA)

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
        own = request.ledger._host.counts(tenant)
        out = StatsOut(
            request_id=request.id,
            version=VERSION,
            engine=vitals.engine,
            durability=request.ledger.durability,
            uptime_seconds=round(self._monotonic() - self._since, 3),
            tenant=tenant,
            outcomes=_by_word(own.outcomes),
            waiting=own.waiting,
            process=_process(vitals) if request.credential.may(Act.ADMINISTER) else None,
        )
        return answer(200, out)

    async def policy(self, request: Request) -> Answer:
        return answer(200, idempotency_policy(self._config, request.ledger.vitals().config))


def _by_word(outcomes: Mapping[str, int]) -> dict[str, int]:
    return {word: outcomes.get(word, 0) for word in OUTCOMES}


def _process(vitals: Vitals) -> ProcessOut:
    return ProcessOut(
        outcomes=_by_word(vitals.outcomes),
        waiting=vitals.gate.waiters,
        gate=vitals.gate,
        queues={
            name: QueueOut(load.waiting, load.commands, sum(load.batches))
            for name, load in vitals.queues.items()
        },
        upkeep=UpkeepOut(vitals.swept.records, vitals.swept.jobs, vitals.upkeep_failures),
    )


def observability(
    config: ServiceConfig, metrics: Metrics, monotonic: Callable[[], float]
) -> tuple[Route, ...]:
    here = Observability(config, metrics, monotonic)
    scraper = None if config.metrics_open else Act.ADMINISTER
    return (
        Route("GET", "/healthz", here.healthz, None, "Say that this process lives", None, HealthOut),
        Route(
            "GET", "/readyz", here.readyz, None, "Say whether the engine answers and writes", None, ReadyOut
        ),
        Route(
            "GET", "/metrics", here.metrics, scraper, "Counters for Prometheus", None, str, media="text/plain"
        ),
        Route("GET", "/api/stats", here.stats, Act.READ, "What this process counted for you", None, StatsOut),
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
