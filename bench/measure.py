"""Timing: rounds are interleaved, so that what disturbs one side disturbs the other; medians are compared."""

from collections.abc import Awaitable, Callable
from statistics import median
from time import perf_counter

Work = Callable[[], Awaitable[int]]


async def rates(sides: dict[str, Work], rounds: int) -> dict[str, float]:
    """Things done per second by each side, the median of the rounds."""
    seen: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, work in sides.items():
            begin = perf_counter()
            done = await work()
            seen[name].append(done / (perf_counter() - begin))
    return {name: median(values) for name, values in seen.items()}


class Laps:
    """Microseconds of each stage, per thing."""

    def __init__(self, things: int) -> None:
        self._things = things
        self._laps: dict[str, list[float]] = {}
        self._last = perf_counter()

    def begin(self) -> None:
        self._last = perf_counter()

    def lap(self, name: str) -> None:
        now = perf_counter()
        self._laps.setdefault(name, []).append((now - self._last) / self._things * 1e6)
        self._last = perf_counter()

    def medians(self) -> dict[str, float]:
        return {name: median(values) for name, values in self._laps.items()}


class Report:
    """Prints figures and remembers whether every bar was held."""

    def __init__(self) -> None:
        self.missed: list[str] = []

    def title(self, text: str) -> None:
        print(f"\n{text}")

    def row(self, name: str, value: str) -> None:
        print(f"  {name:<58}{value:>18}")

    def bar(self, name: str, value: float, *, least: float = 0.0, most: float = float("inf")) -> None:
        held = least <= value <= most
        bound = f">= {least:g}" if least else f"<= {most:g}"
        print(f"  {name:<58}{value:>10.2f}  {bound:>8}  {'held' if held else 'MISSED'}")
        if not held:
            self.missed.append(name)
