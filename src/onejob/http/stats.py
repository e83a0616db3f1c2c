"""The counters of a process as they are reported: to /metrics, to /api/stats and between processes.

Of several processes they are added up. The counters of a process that has exited stay in the sums; its gauges do not.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct, msgpack
from msgspec.structs import replace

from onejob.engines.gate import CacheStats
from onejob.runtime.stats import Stats, TenantCounts
from onejob.server.workers import SupervisorLink, Totals

from .metrics import MetricFamily, MetricSample, outcomes_with_zeros
from .schemas.types import ResponseBody

S = TypeVar("S", bound=Struct)

# The types of metrics that only grow; all others are states, which end with their process.
_CUMULATIVE_TYPES: Final = ("counter", "histogram", "summary")
# A sum of these would mean nothing.
_COMBINE_BY_METRIC: Final[Mapping[str, Callable[[float, float], float]]] = {
    "process_start_time_seconds": min,
    "process_max_fds": max,
    "python_info": max,
    "onejob": max,
}


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


_NO_COUNTS: Final = TenantCounts({}, 0)
_encode = msgpack.Encoder().encode
_decode = msgpack.Decoder(StatsSnapshot).decode


class ServiceStats:
    """The counters of all processes of a service, asked through its supervisor."""

    def __init__(self, link: SupervisorLink, earlier: bytes) -> None:
        self._link = link
        self._earlier = [counters_only(_decode(earlier))] if earlier else []

    def report(self, own: StatsSnapshot) -> bytes:
        """The counters of this process and of those that it replaces."""
        return _encode(sum_snapshots([own, *self._earlier]))

    async def collect_stats(self, tenant: str) -> StatsSnapshot:
        totals = await self._link.collect(tenant)
        exited = (counters_only(_decode(report)) for report in totals.exited)
        total = sum_snapshots([*map(_decode, totals.live), *exited])
        counts = total.tenants.get(tenant, _NO_COUNTS)
        return replace(total, families=[*total.families, *supervisor_families(totals)], tenants={tenant: counts})


def supervisor_families(totals: Totals) -> list[MetricFamily]:
    accepting = MetricSample("onejob_workers", {}, float(totals.accepting))
    restarts = MetricSample("onejob_worker_restarts_total", {}, float(totals.restarts))
    return [
        MetricFamily("onejob_workers", "Server processes that accept connections", "gauge", [accepting]),
        MetricFamily("onejob_worker_restarts", "Restarts of server processes", "counter", [restarts]),
    ]


def sum_snapshots(snapshots: Iterable[StatsSnapshot]) -> StatsSnapshot:
    total, *others = snapshots
    for other in others:
        total = StatsSnapshot(
            _sum_families(total.families, other.families),
            _sum_structs(total.process, other.process),
            {
                tenant: _sum_structs(total.tenants.get(tenant, _NO_COUNTS), other.tenants.get(tenant, _NO_COUNTS))
                for tenant in {**total.tenants, **other.tenants}
            },
        )
    return total


def counters_only(snapshot: StatsSnapshot) -> StatsSnapshot:
    """What remains of a report after its process has exited."""
    process = snapshot.process
    return StatsSnapshot(
        [family for family in snapshot.families if family.kind in _CUMULATIVE_TYPES],
        replace(
            process,
            waiting=0,
            gate=CacheStats(*[0] * len(CacheStats.__struct_fields__)),
            queues={name: replace(queue, waiting=0) for name, queue in process.queues.items()},
        ),
        {},
    )


def _sum_families(ours: list[MetricFamily], theirs: list[MetricFamily]) -> list[MetricFamily]:
    sums = {family.name: family for family in ours}
    for family in theirs:
        before = sums.get(family.name)
        sums[family.name] = family if before is None else _sum_samples(before, family)
    return list(sums.values())


def _sum_samples(ours: MetricFamily, theirs: MetricFamily) -> MetricFamily:
    add = _COMBINE_BY_METRIC.get(ours.name, float.__add__)
    values = {(sample.name, *sample.labels.items()): sample for sample in ours.samples}
    for sample in theirs.samples:
        series = (sample.name, *sample.labels.items())
        before = values.get(series)
        value = sample.value if before is None else add(float(before.value), float(sample.value))
        values[series] = replace(sample, value=value)
    return replace(ours, samples=list(values.values()))


def _sum_structs(ours: S, theirs: S) -> S:
    """Add every number to the same number of the other, at any depth."""
    summed = _sum_values(msgspec.to_builtins(ours), msgspec.to_builtins(theirs))
    return msgspec.convert(summed, type(ours))


def _sum_values(ours: Any, theirs: Any) -> Any:
    if isinstance(ours, dict):
        return {
            name: _sum_values(ours[name], theirs[name]) if name in ours and name in theirs else {**theirs, **ours}[name]
            for name in {**ours, **theirs}
        }
    return ours + theirs
