"""What several processes counted, as one: each reports all it has, and reports are added up.

What was counted stays counted when its process ends; what a process held right then is gone with it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from onejob.engines.receipts import CacheStats
from onejob.http.metrics import OUTCOMES, MetricFamily
from onejob.http.schemas.jobs import ResponseBody
from onejob.ledger.runtime import Stats, TenantCounts

B = TypeVar("B", bound=Struct)

# Of what is only counted up; everything else is a state, and ends with its process.
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
    """What the service counted over all tenants."""

    outcomes: dict[str, int]
    waiting: int
    gate: CacheStats
    queues: dict[str, QueueOut]
    upkeep: MaintenanceOut


class StatsSnapshot(Struct, frozen=True):
    """All that one process counted, or several: for the metrics, for the statistics, and for tenants who ask."""

    families: list[MetricFamily]
    process: ProcessOut
    tenants: dict[str, TenantCounts]


class StatsTotals:
    """The latest report of each process that lives, and what those that ended had counted."""

    def __init__(self) -> None:
        self._latest: dict[object, StatsSnapshot] = {}
        self._exited: StatsSnapshot | None = None

    def update(self, process: object, snapshot: StatsSnapshot) -> None:
        self._latest[process] = snapshot

    def retire(self, process: object) -> None:
        if (last := self._latest.pop(process, None)) is not None:
            self._exited = sum_snapshots([*([self._exited] if self._exited else []), counters_only(last)])

    def total(self) -> StatsSnapshot | None:
        """None before anybody has reported."""
        parts = [*([self._exited] if self._exited else []), *self._latest.values()]
        return sum_snapshots(parts) if parts else None


def process_out(stats: Stats) -> ProcessOut:
    return ProcessOut(
        outcomes=outcomes_with_zeros(stats.outcomes),
        waiting=stats.gate.waiters,
        gate=stats.gate,
        queues={name: QueueOut(load.waiting, load.commands, sum(load.batches)) for name, load in stats.queues.items()},
        upkeep=MaintenanceOut(stats.sweep_totals.records, stats.sweep_totals.jobs, stats.maintenance_failures),
    )


def outcomes_with_zeros(outcomes: Mapping[str, int]) -> dict[str, int]:
    return {word: outcomes.get(word, 0) for word in OUTCOMES}


def sum_snapshots(snapshots: Iterable[StatsSnapshot]) -> StatsSnapshot:
    total, *others = snapshots
    for one in others:
        total = StatsSnapshot(
            _sum_families(total.families, one.families),
            _sum_structs(total.process, one.process),
            {
                tenant: _sum_structs(
                    total.tenants.get(tenant, TenantCounts({}, 0)),
                    one.tenants.get(tenant, TenantCounts({}, 0)),
                )
                for tenant in {**total.tenants, **one.tenants}
            },
        )
    return total


def counters_only(snapshot: StatsSnapshot) -> StatsSnapshot:
    """What remains of a report when its process has ended."""
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
    found = {family.name: family for family in ours}
    for family in theirs:
        before = found.get(family.name)
        found[family.name] = family if before is None else _sum_samples(before, family)
    return list(found.values())


def _sum_samples(ours: MetricFamily, theirs: MetricFamily) -> MetricFamily:
    add = _COMBINE_BY_METRIC.get(ours.name, float.__add__)
    values = {(sample.name, *sample.labels.items()): sample for sample in ours.samples}
    for sample in theirs.samples:
        place = (sample.name, *sample.labels.items())
        before = values.get(place)
        value = sample.value if before is None else add(float(before.value), float(sample.value))
        values[place] = replace(sample, value=value)
    return replace(ours, samples=list(values.values()))


def _sum_structs(ours: B, theirs: B) -> B:
    """Every number of one added to the same number of the other, however deep it stands."""
    summed = _sum_values(msgspec.to_builtins(ours), msgspec.to_builtins(theirs))
    return msgspec.convert(summed, type(ours))


def _sum_values(ours: Any, theirs: Any) -> Any:
    if isinstance(ours, dict):
        return {
            name: _sum_values(ours[name], theirs[name]) if name in ours and name in theirs else {**theirs, **ours}[name]
            for name in {**ours, **theirs}
        }
    return ours + theirs
