"""Campaigns: many simulations on several cores, their totals, and the command that repeats each failure."""

import gc
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import nullcontext
from itertools import count
from time import perf_counter

from msgspec import Struct, field, json
from msgspec.structs import replace

from .mutants import ALL_MUTANTS
from .plan import Plan, draw_plan
from .process import Components
from .shrink import shrink, size
from .simulator import SimulationResult, simulate

CHUNK = 25
COMMAND = "python -m tests.campaigns.simulation"
FAILURES_SHOWN_MAX = 10

# Counters of the report: injected faults, and events that a good campaign has met often.
FAULTS = (
    "unavailable", "request_lost", "reply_lost", "late", "slow", "wire_lost", "hang_up",
    "crash", "roll", "pause", "back", "forward", "roll_back",
)  # fmt: skip
EVENTS = (
    "expired", "re-created", "take-overs", "abandoned", "retained", "evicted", "version conflict", "numbers",
)  # fmt: skip


class Report(Struct):
    """Totals of several simulations."""

    seeds: int = 0
    steps: int = 0
    seconds: float = 0.0  # virtual
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)

    def add(self, result: SimulationResult) -> None:
        self.seeds += 1
        self.steps += result.steps
        self.seconds += result.seconds
        self.counts.update(result.counts)
        if result.violations:
            self.failures.append((result.seed, result.violations))

    def merge(self, other: "Report") -> None:
        self.seeds += other.seeds
        self.steps += other.steps
        self.seconds += other.seconds
        self.counts.update(other.counts)
        self.failures += other.failures

    @property
    def unknown(self) -> int:
        """Calls with an unknown outcome: if every call failed, a campaign would show no duplicates and prove nothing."""
        return self.counts["answer unknown"] + self.counts["no answer"]

    @property
    def faults(self) -> int:
        return sum(self.counts[fault] for fault in FAULTS)


def simulate_seeds(start: int, seeds: int, *, steps: int = 0) -> Report:
    """Simulate consecutive seeds; with `steps`, stop once so many are done."""
    report = Report()
    collecting = gc.isenabled()
    gc.disable()  # collected once after each simulation instead
    try:
        for seed in range(start, start + seeds):
            report.add(simulate(draw_plan(seed)))
            gc.collect(1)
            if steps and report.steps >= steps:
                break
    finally:
        if collecting:
            gc.enable()
    return report


def campaign(start: int, seeds: int, *, steps: int, jobs: int) -> Report:
    """Simulate on several cores until all seeds or so many steps are done."""
    report = Report()
    chunks = _chunks(start, seeds)
    with ProcessPoolExecutor(jobs) as pool:
        waiting: set[Future[Report]] = set()
        while True:
            while len(waiting) < 2 * jobs and not (steps and report.steps >= steps):
                chunk = next(chunks, None)
                if chunk is None:
                    break
                waiting.add(pool.submit(simulate_seeds, *chunk))
            if not waiting:
                return report
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                report.merge(future.result())


def show(report: Report, elapsed: float) -> None:
    counts = report.counts
    print(f"seeds        {report.seeds:,}")
    print(f"steps        {report.steps:,} callbacks, {report.steps / elapsed:,.0f} a second")
    print(f"time         {elapsed:,.1f} s for {report.seconds / 3600:,.1f} h of virtual time")
    print(f"operations   {_format_counts(counts, 'op ')}")
    print(f"answers      {_format_counts(counts, 'answer ')}")
    print(f"unknown      {report.unknown:,} ({counts['no answer']:,} without any answer)")
    print(f"faults       {report.faults:,}: {', '.join(f'{name} {counts[name]:,}' for name in FAULTS)}")
    print(f"events       {', '.join(f'{name} {counts[name]:,}' for name in EVENTS)}")
    print(f"tolerated    stale state {counts['stale state']:,}, echo lost {counts['echo lost']:,}")
    print(f"violations   {len(report.failures):,}")
    for seed, violations in sorted(report.failures)[:FAILURES_SHOWN_MAX]:
        print(f"  seed {seed}: {violations[0]}")
        print(f"    {COMMAND} --replay {seed}      {COMMAND} --shrink {seed}")


def run_campaign(start: int, seeds: int, *, steps: int, jobs: int) -> bool:
    began = perf_counter()
    report = campaign(start, seeds, steps=steps, jobs=jobs)
    show(report, perf_counter() - began)
    return not report.failures


def replay(plan: Plan, mutant: str | None = None) -> SimulationResult:
    with ALL_MUTANTS[mutant]() if mutant else nullcontext(Components()) as parts:
        return simulate(plan, parts, tracing=True)


def shrink_failing_plan(plan: Plan, mutant: str | None = None) -> Plan:
    """A smaller plan that violates the same invariant."""
    return shrink(plan, lambda smaller: first_violation(smaller, mutant))


def first_violation(plan: Plan, mutant: str | None = None) -> str | None:
    with ALL_MUTANTS[mutant]() if mutant else nullcontext(Components()) as parts:
        violations = simulate(plan, parts).violations
    return violations[0].partition(":")[0] if violations else None


def show_result(result: SimulationResult) -> None:
    print("\n".join(result.trace))
    print(f"seed {result.seed}: {result.steps} steps, digest {result.digest}")
    for violation in result.violations:
        print(f"VIOLATION {violation}")


def show_plan(plan: Plan) -> None:
    settings = json.encode(replace(plan, clients=())).decode()
    print(f"a plan of size {size(plan)}: {settings}")
    for number, ops in enumerate(plan.clients):
        for op in ops:
            print(f"  client {number}: {json.encode(op).decode()}")


def _format_counts(counts: Counter[str], prefix: str) -> str:
    found = sorted(name for name in counts if name.startswith(prefix))
    return ", ".join(f"{name.removeprefix(prefix)} {counts[name]:,}" for name in found)


def _chunks(start: int, seeds: int) -> Iterator[tuple[int, int]]:
    """Ranges of seeds (start, count); endless if `seeds` is 0."""
    for n in count():
        remaining = seeds - n * CHUNK if seeds else CHUNK
        if remaining <= 0:
            return
        yield start + n * CHUNK, min(CHUNK, remaining)
