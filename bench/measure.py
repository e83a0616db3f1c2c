"""Timing in interleaved rounds, so that disturbances affect all sides; medians are compared."""

from collections.abc import Awaitable, Callable
from statistics import median
from time import perf_counter

Work = Callable[[], Awaitable[int]]


async def rates(sides: dict[str, Work], rounds: int) -> dict[str, float]:
    """Operations per second of each side, as the median of the rounds."""
    measured: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, work in sides.items():
            begin = perf_counter()
            count = await work()
            measured[name].append(count / (perf_counter() - begin))
    return {name: median(values) for name, values in measured.items()}


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


class Report:
    """Prints figures and collects the bars that were missed."""

    def __init__(self) -> None:
        self.missed: list[str] = []

    def title(self, text: str) -> None:
        print(f"\n{text}")

    def row(self, name: str, value: str) -> None:
        print(f"  {name:<58}{value:>18}")

    def bar(self, name: str, value: float, *, least: float = 0.0, most: float = float("inf")) -> None:
        is_held = least <= value <= most
        bound = f">= {least:g}" if least else f"<= {most:g}"
        print(f"  {name:<58}{value:>10.2f}  {bound:>8}  {'held' if is_held else 'MISSED'}")
        if not is_held:
            self.missed.append(name)
