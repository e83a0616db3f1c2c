"""Timing in interleaved rounds, so that disturbances affect all sides; medians and ratios within a round are compared."""

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from math import ceil
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple, Self, TypeVar

from msgspec import Struct

T = TypeVar("T")
Work = Callable[[], Awaitable[int]]
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Spread(Struct, frozen=True):
    """The median of some rounds, and the lowest and highest of them."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        found = sorted(values)
        return cls(median(found), found[0], found[-1])

    def format(self, digits: int = 0) -> str:
        return f"{self.median:,.{digits}f} [{self.low:,.{digits}f}-{self.high:,.{digits}f}]"


class Run(NamedTuple):
    """One round of one side: its rate, and microseconds of processor time per operation.

    What a database or Redis used is counted apart. An embedded store is part of the process itself.
    """

    rate: float
    cpu_us: float
    store_cpu_us: float | None = None
    p99_ms: float | None = None  # of a closed load; `latency.py` has those of an open one
    failed: int = 0


class Rate(Struct, frozen=True):
    """All rounds of one side."""

    per_second: Spread
    cpu_us: Spread
    store_cpu_us: Spread | None = None

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Self:
        stores = [run.store_cpu_us for run in runs if run.store_cpu_us is not None]
        return cls(
            Spread.of(run.rate for run in runs),
            Spread.of(run.cpu_us for run in runs),
            Spread.of(stores) if stores else None,
        )


async def interleave(
    sides: Mapping[str, Callable[[], Awaitable[T]]], rounds: int, *, warm_up: int = 1
) -> dict[str, list[T]]:
    """Run every side once per round, in an order that is reversed each round. The first rounds are not counted."""
    measured: dict[str, list[T]] = {name: [] for name in sides}
    for number in range(rounds + warm_up):
        for name in reversed(list(sides)) if number % 2 else list(sides):
            found = await sides[name]()
            if number >= warm_up:
                measured[name].append(found)
    return measured


def ratios(ours: Sequence[Run], theirs: Sequence[Run]) -> Spread:
    """Our rate by theirs, of the same round: a slow minute of the machine affects both."""
    return Spread.of(a.rate / b.rate for a, b in zip(ours, theirs, strict=True))


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least this share does not exceed."""
    ordered = sorted(values)
    return ordered[max(ceil(share * len(ordered)), 1) - 1]


async def measure_here(sides: Mapping[str, Work], rounds: int) -> dict[str, list[Run]]:
    """Sides that run in this process, each returning how many operations it has done."""

    def timed(work: Work) -> Callable[[], Awaitable[Run]]:
        async def run() -> Run:
            begin, cpu = perf_counter(), process_time()
            count = await work()
            return Run(count / (perf_counter() - begin), (process_time() - cpu) / count * 1e6)

        return run

    return await interleave({name: timed(work) for name, work in sides.items()}, rounds)


def processor_seconds(*pids: int, with_children: bool = False) -> float:
    """What these processes have used so far, with their threads, in user and system mode; Linux only."""
    if with_children:
        return sum(_seconds_of_family(pid) for pid in pids)
    return sum(sum(_stat_times(pid)[:2]) for pid in pids)


def _seconds_of_family(parent: int) -> float:
    """Of a process, its children, and the children that have ended."""
    listed = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split()
    total = sum(_stat_times(parent))
    for child in listed:
        try:
            total += sum(_stat_times(int(child))[:2])
        except (FileNotFoundError, ProcessLookupError):  # it ended just now
            continue
    return total


def _stat_times(pid: int) -> list[float]:
    """Seconds in user and system mode, its own and those of children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return [int(ticks) / _TICKS_PER_SECOND for ticks in fields[11:15]]


class Laps:
    """Microseconds of each stage per operation."""

    def __init__(self, operations: int) -> None:
        self._operations = operations
        self._laps: dict[str, list[float]] = {}
        self._last = perf_counter()

    def begin(self) -> None:
        self._last = perf_counter()

    def lap(self, name: str) -> None:
        now = perf_counter()
        self._laps.setdefault(name, []).append((now - self._last) / self._operations * 1e6)
        self._last = perf_counter()

    def medians(self) -> dict[str, float]:
        return {name: median(values) for name, values in self._laps.items()}
