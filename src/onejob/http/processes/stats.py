"""Adds up the counters of several processes.

The counters of a process that has exited stay in the sums; its gauges are dropped.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from onejob.engines.gate import CacheStats
from onejob.http.metrics import MetricFamily
from onejob.http.stats import StatsSnapshot
from onejob.runtime import TenantCounts

B = TypeVar("B", bound=Struct)

# The types of metrics that only grow; all others are states, which end with their process.
_CUMULATIVE_TYPES: Final = ("counter", "histogram", "summary")
# A sum of these would mean nothing.
_COMBINE_BY_METRIC: Final[Mapping[str, Callable[[float, float], float]]] = {
    "process_start_time_seconds": min,
    "process_max_fds": max,
    "python_info": max,
    "onejob": max,
}


class StatsTotals:
    """The latest report of each running process, and the counters of those that have exited."""

    def __init__(self) -> None:
        self._latest: dict[object, StatsSnapshot] = {}
        self._exited: StatsSnapshot | None = None

    def update(self, process: object, snapshot: StatsSnapshot) -> None:
        self._latest[process] = snapshot

    def retire(self, process: object) -> None:
        if (last := self._latest.pop(process, None)) is not None:
            self._exited = sum_snapshots([*([self._exited] if self._exited else []), counters_only(last)])

    def total(self) -> StatsSnapshot | None:
        """None before the first report."""
        parts = [*([self._exited] if self._exited else []), *self._latest.values()]
        return sum_snapshots(parts) if parts else None


def sum_snapshots(snapshots: Iterable[StatsSnapshot]) -> StatsSnapshot:
    total, *others = snapshots
    for one in others:
        total = StatsSnapshot(
            _sum_families(total.families, one.families),
            _sum_structs(total.process, one.process),
            {
                tenant: _sum_structs(
                    total.tenants.get(tenant, TenantCounts({}, 0)), one.tenants.get(tenant, TenantCounts({}, 0))
                )
                for tenant in {**total.tenants, **one.tenants}
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


def _sum_structs(ours: B, theirs: B) -> B:
    """Add every number of one to the same number of the other, at any depth."""
    summed = _sum_values(msgspec.to_builtins(ours), msgspec.to_builtins(theirs))
    return msgspec.convert(summed, type(ours))


def _sum_values(ours: Any, theirs: Any) -> Any:
    if isinstance(ours, dict):
        return {
            name: _sum_values(ours[name], theirs[name]) if name in ours and name in theirs else {**theirs, **ours}[name]
            for name in {**ours, **theirs}
        }
    return ours + theirs
