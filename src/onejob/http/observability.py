"""For whoever watches over a server: is it ready, what did it count, what does it promise about keys."""

import asyncio
from collections.abc import Callable

from onejob.core.roles import Act
from onejob.engine import Durability
from onejob.engines.cache import CacheStats
from onejob.errors import NotFound, OnejobError

from .answers import Answer, answer, refusal, text
from .config import ServiceConfig
from .idempotency_policy import IdempotencyPolicyOut, idempotency_policy
from .metrics import MEDIA, OUTCOMES, VERSION, Metrics
from .problems import RETRY_AFTER_STORE, problem
from .request import Request
from .routes import Route
from .wire import Body

READY_SECONDS_MAX = 2.0

_NO_JOB = "00000000-0000-0000-0000-000000000000"


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


class StatsOut(Body, frozen=True, rename="camel"):
    """The counts of this process since it started, over all tenants."""

    request_id: str
    version: str
    engine: str
    durability: Durability
    uptime_seconds: float
    outcomes: dict[str, int]
    waiting: int
    gate: CacheStats
    queues: dict[str, QueueOut]
    upkeep: UpkeepOut


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
        """Ready is who can ask the engine and be answered in time; a job of nobody is asked for."""
        ledger = request.ledger
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                await ledger.job(_NO_JOB)
        except NotFound:
            vitals = ledger.vitals()
            return answer(200, ReadyOut("ready", ledger.durability, vitals.engine, vitals.caveat))
        except TimeoutError:
            reason = f"the engine did not answer within {READY_SECONDS_MAX:.0f} s"
        except OnejobError as error:
            reason = str(error)
        else:
            raise AssertionError("nobody has this job")
        return refusal(problem("SERVICE_UNAVAILABLE", reason, RETRY_AFTER_STORE), request.id)

    async def stats(self, request: Request) -> Answer:
        request.query()
        vitals = request.ledger.vitals()
        out = StatsOut(
            request_id=request.id,
            version=VERSION,
            engine=vitals.engine,
            durability=request.ledger.durability,
            uptime_seconds=round(self._monotonic() - self._since, 3),
            outcomes={word: vitals.outcomes.get(word, 0) for word in OUTCOMES},
            waiting=vitals.gate.waiters,
            gate=vitals.gate,
            queues={
                name: QueueOut(load.waiting, load.commands, sum(load.batches))
                for name, load in vitals.queues.items()
            },
            upkeep=UpkeepOut(vitals.swept.records, vitals.swept.jobs, vitals.upkeep_failures),
        )
        return answer(200, out)

    async def policy(self, request: Request) -> Answer:
        return answer(200, idempotency_policy(self._config, request.ledger.vitals().config))


def observability(
    config: ServiceConfig, metrics: Metrics, monotonic: Callable[[], float]
) -> tuple[Route, ...]:
    here = Observability(config, metrics, monotonic)
    return (
        Route("GET", "/healthz", here.healthz, None, "Say that this process lives", None, HealthOut),
        Route(
            "GET",
            "/readyz",
            here.readyz,
            None,
            "Say whether the engine answers",
            None,
            ReadyOut,
        ),
        Route(
            "GET", "/metrics", here.metrics, None, "Counters for Prometheus", None, str, media="text/plain"
        ),
        Route("GET", "/api/stats", here.stats, Act.READ, "What this process counted", None, StatsOut),
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
