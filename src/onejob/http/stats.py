"""The counters of a process as they are reported: to /metrics, to /api/stats and between processes."""

from msgspec import Struct

from onejob.engines.gate import CacheStats
from onejob.runtime import Stats, TenantCounts

from .metrics import MetricFamily, outcomes_with_zeros
from .schemas.types import ResponseBody


class QueueOut(ResponseBody, frozen=True, rename="camel"):
    waiting: int
    commands: int  # executed since the start
    batches: int


class MaintenanceOut(ResponseBody, frozen=True, rename="camel"):
    records: int
    jobs: int
    failures: int


class ProcessOut(ResponseBody, frozen=True, rename="camel"):
    """The counters of the service over all tenants."""

    outcomes: dict[str, int]
    waiting: int
    gate: CacheStats
    queues: dict[str, QueueOut]
    upkeep: MaintenanceOut


class StatsSnapshot(Struct, frozen=True):
    """All counters of one process, or the sums of several."""

    families: list[MetricFamily]
    process: ProcessOut
    tenants: dict[str, TenantCounts]  # only the tenants that were asked for


def process_out(stats: Stats) -> ProcessOut:
    return ProcessOut(
        outcomes=outcomes_with_zeros(stats.outcomes),
        waiting=stats.gate.waiters,
        gate=stats.gate,
        queues={name: QueueOut(load.waiting, load.commands, sum(load.batches)) for name, load in stats.queues.items()},
        upkeep=MaintenanceOut(stats.sweep_totals.records, stats.sweep_totals.jobs, stats.maintenance_failures),
    )
