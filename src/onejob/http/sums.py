"""What several processes counted, as one: each reports all it has, and reports are added up.

What was counted stays counted when its process ends; what a process held right then is gone with it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from onejob.engines.cache import CacheStats
from onejob.host import Counts, Vitals

from .metrics import OUTCOMES, Family
from .wire import Body

B = TypeVar("B", bound=Struct)

# Of what is only counted up; everything else is a state, and ends with its process.
_LASTING: Final = ("counter", "histogram", "summary")
# A sum of these would mean nothing.
_NOT_ADDED: Final[Mapping[str, Callable[[float, float], float]]] = {
    "process_start_time_seconds": min,
    "process_max_fds": max,
    "python_info": max,
    "onejob": max,
}


class QueueOut(Body, frozen=True, rename="camel"):
    waiting: int
    commands: int  # executed since the start
    batches: int


class UpkeepOut(Body, frozen=True, rename="camel"):
    records: int
    jobs: int
    failures: int


class ProcessOut(Body, frozen=True, rename="camel"):
    """What the service counted over all tenants."""

    outcomes: dict[str, int]
    waiting: int
    gate: CacheStats
    queues: dict[str, QueueOut]
    upkeep: UpkeepOut


class Counted(Struct, frozen=True):
    """All that one process counted, or several: for the metrics, for the statistics, and for tenants who ask."""

    families: list[Family]
    process: ProcessOut
    tenants: dict[str, Counts]


class Sums:
    """The latest report of each process that lives, and what those that ended had counted."""

    def __init__(self) -> None:
        self._latest: dict[object, Counted] = {}
        self._ended: Counted | None = None

    def hear(self, who: object, report: Counted) -> None:
        self._latest[who] = report

    def end(self, who: object) -> None:
        if (last := self._latest.pop(who, None)) is not None:
            self._ended = added([*([self._ended] if self._ended else []), lasting(last)])

    def whole(self) -> Counted | None:
        """None before anybody has reported."""
        parts = [*([self._ended] if self._ended else []), *self._latest.values()]
        return added(parts) if parts else None


def process_out(vitals: Vitals) -> ProcessOut:
    return ProcessOut(
        outcomes=by_word(vitals.outcomes),
        waiting=vitals.gate.waiters,
        gate=vitals.gate,
        queues={
            name: QueueOut(load.waiting, load.commands, sum(load.batches))
            for name, load in vitals.queues.items()
        },
        upkeep=UpkeepOut(vitals.swept.records, vitals.swept.jobs, vitals.upkeep_failures),
    )


def by_word(outcomes: Mapping[str, int]) -> dict[str, int]:
    return {word: outcomes.get(word, 0) for word in OUTCOMES}


def added(parts: Iterable[Counted]) -> Counted:
    total, *others = parts
    for one in others:
        total = Counted(
            _families(total.families, one.families),
            _numbers(total.process, one.process),
            {
                tenant: _numbers(
                    total.tenants.get(tenant, Counts({}, 0)), one.tenants.get(tenant, Counts({}, 0))
                )
                for tenant in {**total.tenants, **one.tenants}
            },
        )
    return total


def lasting(report: Counted) -> Counted:
    """What remains of a report when its process has ended."""
    process = report.process
    return Counted(
        [family for family in report.families if family.kind in _LASTING],
        replace(
            process,
            waiting=0,
            gate=CacheStats(*[0] * len(CacheStats.__struct_fields__)),
            queues={name: replace(queue, waiting=0) for name, queue in process.queues.items()},
        ),
        {},
    )


def _families(ours: list[Family], theirs: list[Family]) -> list[Family]:
    found = {family.name: family for family in ours}
    for family in theirs:
        before = found.get(family.name)
        found[family.name] = family if before is None else _samples(before, family)
    return list(found.values())


def _samples(ours: Family, theirs: Family) -> Family:
    add = _NOT_ADDED.get(ours.name, float.__add__)
    values = {(sample.name, *sample.labels.items()): sample for sample in ours.samples}
    for sample in theirs.samples:
        place = (sample.name, *sample.labels.items())
        before = values.get(place)
        value = sample.value if before is None else add(float(before.value), float(sample.value))
        values[place] = replace(sample, value=value)
    return replace(ours, samples=list(values.values()))


def _numbers(ours: B, theirs: B) -> B:
    """Every number of one added to the same number of the other, however deep it stands."""
    summed = _plus(msgspec.to_builtins(ours), msgspec.to_builtins(theirs))
    return msgspec.convert(summed, type(ours))


def _plus(ours: Any, theirs: Any) -> Any:
    if isinstance(ours, dict):
        return {
            name: _plus(ours[name], theirs[name])
            if name in ours and name in theirs
            else {**theirs, **ours}[name]
            for name in {**ours, **theirs}
        }
    return ours + theirs
