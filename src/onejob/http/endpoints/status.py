"""For whoever watches over a server: is it ready, what did it count, what does it promise about keys."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from onejob.core.credentials import Permission
from onejob.engine import Durability
from onejob.errors import OnejobError
from onejob.http.config import ServiceConfig
from onejob.http.metrics import METRICS_MEDIA_TYPE, VERSION, outcomes_with_zeros, render_metrics
from onejob.http.problems import STORE_RETRY_AFTER_SECONDS, problem
from onejob.http.request import Request
from onejob.http.responses import Response, json_response, problem_response, raw_response
from onejob.http.routing import Route
from onejob.http.schemas.policy import IdempotencyPolicyOut, build_idempotency_policy
from onejob.http.schemas.types import ResponseBody
from onejob.http.stats import ProcessOut, StatsSnapshot
from onejob.ledger.runtime import TenantCounts

READY_SECONDS_MAX = 2.0

log = logging.getLogger("onejob.http")


class HealthOut(ResponseBody, frozen=True, rename="camel"):
    status: str
    durability: Durability


class ReadyOut(ResponseBody, frozen=True, rename="camel"):
    status: str
    durability: Durability
    engine: str
    caveat: str  # what the durability does not cover; empty: nothing


class StatsOut(ResponseBody, frozen=True, rename="camel"):
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


class StatsSource(Protocol):
    """Who can say what the whole service counted, and for this tenant."""

    async def collect_stats(self, tenant: str) -> StatsSnapshot: ...


class StatusEndpoints:
    def __init__(
        self,
        config: ServiceConfig,
        stats_source: StatsSource,
        monotonic: Callable[[], float],
        started_at: float,
    ) -> None:
        self._config = config
        self._stats_source = stats_source
        self._monotonic = monotonic
        self._started_at = started_at

    async def healthz(self, request: Request) -> Response:
        return json_response(200, HealthOut("ok", request.ledger.durability))

    async def metrics(self, request: Request) -> Response:
        return raw_response(
            200, render_metrics((await self._stats_source.collect_stats("")).families), METRICS_MEDIA_TYPE
        )

    async def readyz(self, request: Request) -> Response:
        """Ready is who is answered by the engine in time, and whose last write it took."""
        ledger = request.ledger
        vitals = ledger.runtime_stats()
        facts = ReadyOut("ready", ledger.durability, vitals.engine, vitals.durability_warning)
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                await ledger.runtime.readiness.check()
        except TimeoutError:
            reason = f"the engine did not answer within {READY_SECONDS_MAX:.0f} s"
        except OnejobError as error:
            log.warning("not ready: %s", error)
            # Whoever asks is a stranger where there are credentials: what ails the store is for the log.
            reason = "the store cannot be used now; the log says why" if self._config.auth else str(error)
        else:
            return json_response(200, facts)
        found = problem(
            "SERVICE_UNAVAILABLE",
            reason,
            STORE_RETRY_AFTER_SECONDS,
            durability=facts.durability,
            engine=facts.engine,
        )
        return problem_response(found, request.id)

    async def stats(self, request: Request) -> Response:
        request.query()
        vitals = request.ledger.runtime_stats()
        tenant = request.credential.caller.tenant
        counted = await self._stats_source.collect_stats(tenant)
        own = counted.tenants.get(tenant, TenantCounts({}, 0))
        out = StatsOut(
            request_id=request.id,
            version=VERSION,
            engine=vitals.engine,
            durability=request.ledger.durability,
            uptime_seconds=round(self._monotonic() - self._started_at, 3),
            tenant=tenant,
            outcomes=outcomes_with_zeros(own.outcomes),
            waiting=own.waiting,
            process=counted.process if request.credential.may(Permission.ADMINISTER) else None,
        )
        return json_response(200, out)

    async def policy(self, request: Request) -> Response:
        return json_response(200, build_idempotency_policy(self._config, request.ledger.runtime_stats().config))


def status_routes(
    config: ServiceConfig, stats_source: StatsSource, monotonic: Callable[[], float], started_at: float
) -> tuple[Route, ...]:
    here = StatusEndpoints(config, stats_source, monotonic, started_at)
    scraper = None if config.metrics_open else Permission.ADMINISTER
    return (
        Route("GET", "/healthz", here.healthz, None, "Say that this process lives", None, HealthOut),
        Route("GET", "/readyz", here.readyz, None, "Say whether the engine answers and writes", None, ReadyOut),
        Route(
            "GET",
            "/metrics",
            here.metrics,
            scraper,
            "Counters for Prometheus",
            None,
            str,
            media_type="text/plain",
        ),
        Route(
            "GET",
            "/api/stats",
            here.stats,
            Permission.READ,
            "What the service counted for you",
            None,
            StatsOut,
        ),
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
