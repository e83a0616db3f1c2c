"""Health, readiness, metrics, statistics and the published idempotency policy."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from onejob.core.credentials import Permission
from onejob.engine import Durability, EngineInfo
from onejob.errors import OnejobError
from onejob.http.config import ServiceConfig
from onejob.http.metrics import (
    METRICS_MEDIA_TYPE,
    VERSION,
    MetricFamily,
    job_families,
    outcomes_with_zeros,
    render_metrics,
    without_job_types,
)
from onejob.http.problems import STORE_RETRY_AFTER_SECONDS, problem
from onejob.http.request import Request
from onejob.http.responses import Response, json_response, problem_response, raw_response
from onejob.http.routing import Route
from onejob.http.schemas.policy import IdempotencyPolicyOut, build_idempotency_policy
from onejob.http.schemas.types import ResponseBody
from onejob.http.stats import ProcessOut, StatsSnapshot
from onejob.ledger import Ledger
from onejob.ledger.base import runtime_of
from onejob.runtime.counts import ALL_TENANTS
from onejob.runtime.stats import TenantCounts
from onejob.runtime.workers import list_workers

READY_SECONDS_MAX = 2.0
JOB_METRICS_SECONDS_MAX = 2.0

log = logging.getLogger("onejob.http")


class HealthOut(ResponseBody, frozen=True, rename="camel"):
    status: str
    durability: Durability


class ManagerOut(ResponseBody, frozen=True, rename="camel"):
    """A manager as this gate sees it."""

    url: str
    state: str  # reached, unreachable or refused
    wire_version: int
    reason: str  # why it is not reached; empty where callers are not trusted with it


class ReadyOut(ResponseBody, frozen=True, rename="camel", omit_defaults=True):
    status: str
    durability: Durability
    engine: str
    caveat: str  # what the durability does not cover, or empty
    managers: list[ManagerOut] | None = None  # of a gate


class StatsOut(ResponseBody, frozen=True, rename="camel"):
    """Counters of the caller's tenant since the service started."""

    request_id: str
    version: str
    engine: str
    durability: Durability
    uptime_seconds: float
    tenant: str
    outcomes: dict[str, int]
    waiting: int
    process: ProcessOut | None  # only for callers who may administer


class StatsSource(Protocol):
    """Collects the counters of all server processes."""

    async def collect_stats(self, tenant: str) -> StatsSnapshot: ...


class StatusEndpoints:
    def __init__(
        self, config: ServiceConfig, stats_source: StatsSource, monotonic: Callable[[], float], started_at: float
    ) -> None:
        self._config = config
        self._stats_source = stats_source
        self._monotonic = monotonic
        self._started_at = started_at

    async def healthz(self, request: Request) -> Response:
        return json_response(200, HealthOut("ok", request.ledger.durability))

    async def metrics(self, request: Request) -> Response:
        """All tenants together; for a credential without the permission, the jobs of its own tenant alone."""
        families, tenant = (await self._stats_source.collect_stats("")).families, ALL_TENANTS
        if not (self._config.metrics_open or request.credential.may(Permission.SCRAPE_ALL)):
            families, tenant = without_job_types(families), request.credential.caller.tenant
        try:
            async with asyncio.timeout(JOB_METRICS_SECONDS_MAX):
                families = [*families, *await self._job_families(request.ledger, tenant)]
        except (TimeoutError, OnejobError) as error:  # the counters of the process are worth having without the store
            log.warning("metrics of jobs are left out: %s", error)
        return raw_response(200, render_metrics(families), METRICS_MEDIA_TYPE)

    async def _job_families(self, ledger: Ledger, tenant: str) -> list[MetricFamily]:
        counts, now = await runtime_of(ledger).job_counts.load(tenant)
        return job_families(counts, now, len(await list_workers(runtime_of(ledger).gate, ALL_TENANTS)))

    async def readyz(self, request: Request) -> Response:
        """Ready means: the engine answers in time, and its last write succeeded."""
        ledger = request.ledger
        stats = ledger.admin.runtime_stats()
        managers = self._managers_out(runtime_of(ledger).engine_info)
        ready = ReadyOut("ready", ledger.durability, stats.engine, stats.durability_warning, managers)
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                await runtime_of(ledger).check_ready()
        except TimeoutError:
            reason = f"the engine did not answer within {READY_SECONDS_MAX:.0f} s"
        except OnejobError as error:
            log.warning("not ready: %s", error)
            # The caller is not authenticated, so details about the store go to the log only.
            reason = "the store is unavailable; see the log" if self._config.auth else str(error)
        else:
            return json_response(200, ready)
        details: dict[str, Any] = {"durability": ready.durability, "engine": ready.engine}
        if managers := self._managers_out(runtime_of(ledger).engine_info):
            details["managers"] = [f"{manager.url} is {manager.state}" for manager in managers]
        return problem_response(
            problem("SERVICE_UNAVAILABLE", reason, STORE_RETRY_AFTER_SECONDS, **details), request.id
        )

    def _managers_out(self, info: EngineInfo) -> list[ManagerOut] | None:
        """The reasons may tell about the network, so that they are shown only where everybody is trusted."""
        return [
            ManagerOut(manager.url, manager.state, manager.version, "" if self._config.auth else manager.reason)
            for manager in (info.owner.managers if info.owner is not None else ())
        ] or None

    async def stats(self, request: Request) -> Response:
        request.query()
        tenant = request.credential.caller.tenant
        snapshot = await self._stats_source.collect_stats(tenant)
        counts = snapshot.tenants.get(tenant, TenantCounts({}, 0))
        out = StatsOut(
            request_id=request.id,
            version=VERSION,
            engine=request.ledger.admin.runtime_stats().engine,
            durability=request.ledger.durability,
            uptime_seconds=round(self._monotonic() - self._started_at, 3),
            tenant=tenant,
            outcomes=outcomes_with_zeros(counts.outcomes),
            waiting=counts.waiting,
            process=snapshot.process if request.credential.may(Permission.ADMINISTER) else None,
        )
        return json_response(200, out)

    async def policy(self, request: Request) -> Response:
        runtime = runtime_of(request.ledger)
        key_owner = "user" if request.ledger.caller.owns_keys else "tenant"
        policy = build_idempotency_policy(self._config, runtime.stats().config, runtime.windows, key_owner)
        return json_response(200, policy)


def status_routes(
    config: ServiceConfig, stats_source: StatsSource, monotonic: Callable[[], float], started_at: float
) -> tuple[Route, ...]:
    status = StatusEndpoints(config, stats_source, monotonic, started_at)
    metrics_permission = Permission.SCRAPE if config.auth and not config.metrics_open else None
    return (
        Route("GET", "/healthz", status.healthz, None, "Liveness: this process answers", None, HealthOut),
        Route("GET", "/readyz", status.readyz, None, "Readiness: the engine answers and writes", None, ReadyOut),
        Route(
            "GET",
            "/metrics",
            status.metrics,
            metrics_permission,
            "Metrics in the text format of Prometheus",
            None,
            str,
            media_type="text/plain",
        ),
        Route("GET", "/api/stats", status.stats, Permission.READ, "Get the counters of your tenant", None, StatsOut),
        Route(
            "GET",
            "/api/idempotency-policy",
            status.policy,
            None,
            "Get the rules that this server follows for idempotency keys",
            None,
            IdempotencyPolicyOut,
        ),
    )
