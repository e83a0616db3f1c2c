"""The report of `onejob prove`: its figures, as JSON."""

import platform
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version

import apsw
from msgspec import Struct, json

from onejob.clock import SystemClock
from onejob.core.timestamps import to_utc

from .campaign import Evidence, ProvePlan, ProveVerdict

_BINS = 60
_LATENCY_BOUNDS_MS = (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 60_000)


class Kill(Struct, frozen=True, rename="camel"):
    at_seconds: float
    server: int
    down_seconds: float


class Report(Struct, frozen=True, rename="camel"):
    line: str
    kept: bool
    verdict: ProveVerdict
    engine: str
    durability: str
    tenant: str
    made_at: str
    version: str
    python: str
    system: str
    sqlite: str
    seed: str
    callers: int
    copies: int
    servers: int
    seconds: float
    attempts: int
    answers: int
    outcomes: dict[str, int]
    faults: dict[str, int]
    kills: list[Kill]
    latency_ms: dict[str, float]  # from the first attempt at a key to its first answer
    latency_counts: list[tuple[str, int]]
    attempts_counts: list[tuple[str, int]]
    answers_over_time: list[int]  # keys with a first answer, in equal parts of the time


def build_report(engine: str, plan: ProvePlan, evidence: Evidence, verdict: ProveVerdict) -> Report:
    told = [key for key in evidence.keys.values() if key.answered_at]
    begin = min((key.begun_at for key in evidence.keys.values()), default=0.0)
    end = max((key.answered_at for key in told), default=begin)
    step = max((end - begin) / _BINS, 1e-9)
    over_time = Counter(min(int((key.answered_at - begin) / step), _BINS - 1) for key in told)
    latencies = sorted((key.answered_at - key.begun_at) * 1000 for key in told)
    return Report(
        line=str(verdict),
        kept=verdict.is_kept,
        verdict=verdict,
        engine=engine,
        durability=evidence.durability,
        tenant=evidence.tenant,
        made_at=to_utc(SystemClock().wall_ms()).isoformat(timespec="seconds"),
        version=version("onejob"),
        python=platform.python_version(),
        system=platform.platform(),
        sqlite=apsw.sqlite_lib_version(),
        seed=plan.seed,
        callers=plan.callers,
        copies=plan.copies,
        servers=plan.servers,
        seconds=round(end - begin, 3),
        attempts=sum(key.attempts for key in evidence.keys.values()),
        answers=sum(key.answers for key in evidence.keys.values()),
        outcomes=dict(evidence.outcomes),
        faults=dict(evidence.faults),
        kills=[Kill(round(kill.at - begin, 3), kill.server, round(kill.down_seconds, 3)) for kill in evidence.kills],
        latency_ms={f"p{share}": round(_percentile(latencies, share), 1) for share in (50, 90, 99, 100)},
        latency_counts=_count_latencies(latencies),
        attempts_counts=_count_attempts([key.attempts for key in told]),
        answers_over_time=[over_time[part] for part in range(_BINS)],
    )


def render_json(report: Report) -> str:
    return json.format(json.encode(report)).decode()


def _percentile(ordered: Sequence[float], share: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * share // 100)] if ordered else 0.0


def _count_latencies(latencies: Sequence[float]) -> list[tuple[str, int]]:
    lower, counts = 0.0, list[tuple[str, int]]()
    for bound in _LATENCY_BOUNDS_MS:
        label = f"{bound} ms" if bound < 1000 else f"{bound // 1000} s"
        counts.append((label, sum(1 for ms in latencies if lower < ms <= bound)))
        lower = bound
    return [*counts, ("more", sum(1 for ms in latencies if ms > lower))]


def _count_attempts(attempts: Sequence[int]) -> list[tuple[str, int]]:
    most = 10
    counts = Counter(min(attempt, most) for attempt in attempts)
    return [(f"{n}" if n < most else f"{most}+", counts[n]) for n in range(1, most + 1)]
