"""What a run has found: printed while it is measured, kept as plain data for the tables and plots of `publish.py`."""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import apsw
from msgspec import Struct, field

from .bars import BARS, Bar
from .database import database_program
from .measure import Rate, Run, Spread
from .redis import redis_program

REPOSITORY = Path(__file__).parents[1]
PACKAGES = ("apsw", "asyncpg", "uvicorn", "uvloop", "procrastinate", "dbos", "celery", "asgi-idempotency-header")


class Machine(Struct, frozen=True):
    processor: str
    cores: int
    memory_gib: float
    kernel: str
    versions: dict[str, str]


class RateResult(Struct, frozen=True):
    """A rate, with the case (what is done) and the side (who does it)."""

    part: str
    case: str
    side: str
    rate: Rate
    python: str


class LatencyResult(Struct, frozen=True):
    """Latencies in milliseconds, from the moment at which a request was due, at a share of the side's own maximum."""

    case: str
    side: str
    load: float
    offered: float
    maximum: float
    count: int
    p50: float
    p99: float
    p999: float | None  # None: too few requests to tell
    late: int  # requests that were not answered in time


class PageResult(Struct, frozen=True):
    """Milliseconds from the start of a navigation until a page of the console shows its data."""

    store: str
    path: str
    median: float
    p95: float


class BarResult(Struct, frozen=True):
    bar: Bar
    value: Spread

    @property
    def verdict(self) -> str:
        if not self.bar.is_held(self.value.median):
            return "missed"
        return "wanted" if self.bar.is_wanted(self.value.median) else "held"


class Results(Struct):
    machine: Machine
    commit: str
    date: str
    quick: bool
    rounds: int
    sync_ms: float = 0.0  # a write of 4 KiB and its fdatasync, which every durable answer waits for
    seconds: float = 0.0
    rates: list[RateResult] = field(default_factory=list)
    latencies: list[LatencyResult] = field(default_factory=list)
    pages: list[PageResult] = field(default_factory=list)
    bars: list[BarResult] = field(default_factory=list)
    guards_missed: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class Report:
    """Prints figures and collects them."""

    def __init__(self, *, quick: bool = False, rounds: int = 1) -> None:
        self.results = Results(
            describe_machine(), find_commit(), datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), quick, rounds
        )
        self.part = ""

    @property
    def missed(self) -> list[str]:
        return self.results.guards_missed

    def title(self, text: str) -> None:
        print(f"\n{text}", flush=True)

    def row(self, name: str, value: str) -> None:
        print(f"  {name:<66}{value:>18}", flush=True)

    def rate(self, case: str, side: str, runs: Sequence[Run], *, python: str = "", note: str = "") -> None:
        """A rate, with the processor time of an operation beside it."""
        found = Rate.of(runs)
        this_python = platform.python_version().rpartition(".")[0]
        self.results.rates.append(RateResult(self.part, case, side, found, python or this_python))
        store = f" + store {found.store_cpu_us.median:,.0f}" if found.store_cpu_us else ""
        name = ", ".join(filter(None, (side, case, f"Python {python}" if python not in ("", this_python) else "")))
        print(
            f"  {name:<66}{found.per_second.format():>24}/s  {found.cpu_us.median:>6,.0f} µs{store}{note}", flush=True
        )

    def latency(self, result: LatencyResult) -> None:
        self.results.latencies.append(result)
        p999 = f"{result.p999:,.1f}" if result.p999 is not None else "-"
        name = f"{result.side}, {result.case}, {result.load:.0%} of {result.maximum:,.0f}/s"
        late = f"  ({result.late} not answered in time)" if result.late else ""
        print(f"  {name:<66}{result.p50:>10,.2f}{result.p99:>10,.1f}{p999:>10}{late}", flush=True)

    def page(self, result: PageResult) -> None:
        self.results.pages.append(result)
        self.row(f"{result.store}, {result.path}, median and p95", f"{result.median:,.0f}  {result.p95:,.0f}")

    def judge(self, bar: Bar, value: Spread) -> None:
        """One of the published bars."""
        result = BarResult(bar, value)
        self.results.bars.append(result)
        print(f"  {format_bar(result)}", flush=True)

    def bar(self, name: str, value: float, *, least: float = 0.0, most: float = float("inf")) -> None:
        """A bar that is not published: it only guards against a change for the worse."""
        is_held = least <= value <= most
        bound = f">= {least:g}" if least else f"<= {most:g}"
        print(f"  {name:<66}{value:>10.2f}  {bound:>8}  {'held' if is_held else 'MISSED'}", flush=True)
        if not is_held:
            self.missed.append(name)

    def fail(self, why: str) -> None:
        """A benchmark did not come to its end; the others go on."""
        self.results.failures.append(f"{self.part}: {why}")
        self.row("FAILED", why)

    def has_missed(self) -> bool:
        bars = any(result.verdict == "missed" for result in self.results.bars)
        return bars or bool(self.missed) or bool(self.results.failures)

    def print_summary(self, *, is_partial: bool) -> None:
        """Every published bar, whether it was measured or not."""
        measured = {result.bar.name: result for result in self.results.bars}
        shown = [bar for bar in BARS if bar.name in measured or not is_partial]
        if shown:
            self.title(f"{'Bars':<81}{'value':>8}  {'[lowest-highest]':<18}{'least':>7}{'want':>7}")
        for bar in shown:
            found = measured.get(bar.name)
            print(f"  {format_bar(found)}" if found else f"  {bar.name:<79}{'-':>8}  not measured")
        for name in self.missed:
            print(f"  MISSED: {name}")
        for failure in self.results.failures:
            print(f"  FAILED: {failure}")
        if not self.has_missed():
            print("  all bars that were measured are held")


def format_bar(result: BarResult) -> str:
    bar, value = result.bar, result.value
    spread = f"[{format_number(value.low)}-{format_number(value.high)}]"
    verdict = {"missed": "MISSED", "held": "held", "wanted": "held, as wanted"}[result.verdict]
    return f"{bar.name:<79}{format_number(value.median):>8}  {spread:<18}{bar.limit:>7g}{bar.want:>7g}  {verdict}"


def format_number(value: float) -> str:
    """Three digits that matter."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def describe_machine() -> Machine:
    found = {name: _version(name) for name in PACKAGES}
    programs = {"PostgreSQL": database_program(), "Redis": redis_program(), "wrk": shutil.which("wrk")}
    versions = {"Python": platform.python_version(), "SQLite": apsw.sqlite_lib_version()}
    versions |= {name: _program_version(program) for name, program in programs.items() if program}
    return Machine(
        processor=_first_value(Path("/proc/cpuinfo"), "model name") or platform.machine(),
        cores=os.cpu_count() or 0,
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        kernel=f"{platform.system()} {platform.release()}",
        versions=versions | {name: text for name, text in found.items() if text},
    )


def find_commit() -> str:
    """The commit that is measured, with a mark if files differ from it."""
    try:
        command = ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() or "unknown"


def _program_version(program: str) -> str:
    """The first number that a program says about itself."""
    option = "-v" if program.endswith("wrk") else "--version"
    done = subprocess.run([program, option], capture_output=True, text=True, check=False, timeout=10)
    found = re.search(r"\d+\.\d[\d.]*", done.stdout)
    return found[0].rstrip(".") if found else "?"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _first_value(path: Path, name: str) -> str:
    if not path.exists():
        return ""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
