"""The report of `onejob prove`: figures as JSON, and one HTML page with plots, which needs nothing else."""

import platform
from collections import Counter
from collections.abc import Sequence
from html import escape
from importlib.metadata import version

import apsw
from msgspec import Struct, json

from onejob.clock import SystemClock
from onejob.core.timestamps import to_utc

from .campaign import Evidence, ProvePlan, ProveVerdict

_BINS = 60
_LATENCY_BOUNDS_MS = (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 60_000)
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 720, 200, 48, 28
_FAULT_TEXTS = {
    "pass": "delivered as they are",
    "drop": "requests lost",
    "lose": "answers lost",
    "cut": "answers cut",
    "twice": "requests delivered twice at once",
}
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 760px; margin: 2rem auto; padding: 0 1rem; color: #1b1f24; }
.line { font-size: 1.5rem; font-weight: 600; padding: .75rem 1rem; border-radius: 8px; }
.kept { background: #dafbe1; } .wrong { background: #ffebe9; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15rem 1rem .15rem 0; vertical-align: top; }
th { font-weight: normal; white-space: nowrap; color: #57606a; }
svg text { font: 11px system-ui, sans-serif; fill: #57606a; } figure { margin: 1.5rem 0; } figcaption { font-weight: 600; }
@media (prefers-color-scheme: dark) {
  body { background: #0d1117; color: #e6edf3; } .kept { background: #12361f; } .wrong { background: #4b1113; }
  svg text { fill: #9da7b3; }
}
"""


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
    told = [one for one in evidence.keys.values() if one.answered_at]
    begin = min((one.begun_at for one in evidence.keys.values()), default=0.0)
    end = max((one.answered_at for one in told), default=begin)
    step = max((end - begin) / _BINS, 1e-9)
    over_time = Counter(min(int((one.answered_at - begin) / step), _BINS - 1) for one in told)
    latencies = sorted((one.answered_at - one.begun_at) * 1000 for one in told)
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
        attempts=sum(one.attempts for one in evidence.keys.values()),
        answers=sum(one.answers for one in evidence.keys.values()),
        outcomes=dict(evidence.outcomes),
        faults=dict(evidence.faults),
        kills=[Kill(round(one.at - begin, 3), one.server, round(one.down_seconds, 3)) for one in evidence.kills],
        latency_ms={f"p{share}": round(_percentile(latencies, share), 1) for share in (50, 90, 99, 100)},
        latency_counts=_count_latencies(latencies),
        attempts_counts=_count_attempts([one.attempts for one in told]),
        answers_over_time=[over_time[part] for part in range(_BINS)],
    )


def render_json(report: Report) -> str:
    return json.format(json.encode(report)).decode()


def render_html(report: Report) -> str:
    kills = [kill.at_seconds / max(report.seconds, 1e-9) for kill in report.kills]
    seconds = ["0 s", f"{report.seconds / 2:.0f} s", f"{report.seconds:.0f} s"]
    plots = [
        ("Keys answered over time; red: kill -9 of a server", _plot(report.answers_over_time, seconds, kills)),
        ("Keys by the time from the first attempt to the first answer, up to", _plot_counts(report.latency_counts)),
        ("Keys by the number of attempts, of all callers together", _plot_counts(report.attempts_counts)),
    ]
    figures = "\n".join(f"<figure><figcaption>{escape(title)}</figcaption>{svg}</figure>" for title, svg in plots)
    problems = "".join(f"<li><code>{escape(one)}</code></li>" for one in report.verdict.problems)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>onejob prove: {escape(report.line)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head><body>
<h1>onejob prove</h1>
<p class="line {"kept" if report.kept else "wrong"}">{escape(report.line)}</p>
{f"<h2>What is wrong</h2><ul>{problems}</ul>" if problems else ""}
{_table(report)}
{figures}
<p>Made by <code>onejob prove</code> {escape(report.version)}; <code>report.json</code> has the same figures.</p>
</body></html>
"""


def _table(report: Report) -> str:
    rows = [
        ("engine", f"{report.engine} (durability: {report.durability})"),
        ("made", f"{report.made_at}, onejob {report.version}, Python {report.python}, {report.system}"),
        ("seed of the network's faults", report.seed),
        ("callers, copies of each key at once", f"{report.callers}, {report.copies}"),
        ("servers, kills", f"{report.servers}, {len(report.kills)}"),
        ("requests sent", str(report.attempts)),
        *((f"  {_FAULT_TEXTS.get(kind, kind)}", str(count)) for kind, count in sorted(report.faults.items())),
        ("answers", ", ".join(f"{count} {outcome}" for outcome, count in sorted(report.outcomes.items()))),
        ("seconds", f"{report.seconds:.1f}"),
        ("time to the first answer", ", ".join(f"{name} {ms:.0f} ms" for name, ms in report.latency_ms.items())),
    ]
    return "<table>" + "".join(f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in rows) + "</table>"


def _plot_counts(counts: Sequence[tuple[str, int]]) -> str:
    return _plot([count for _, count in counts], [label for label, _ in counts], [])


def _plot(values: Sequence[int], labels: Sequence[str], marks: Sequence[float]) -> str:
    """A bar chart; the labels are spread over its width, the marks are shares of it."""
    most, width = max([*values, 1]), (_WIDTH - _LEFT) / max(len(values), 1)
    bars = "".join(
        f'<rect x="{_LEFT + n * width:.1f}" y="{_HEIGHT * (1 - value / most):.1f}" width="{max(width - 1, 0.5):.1f}" '
        f'height="{_HEIGHT * value / most:.1f}" fill="#2da44e"><title>{value}</title></rect>'
        for n, value in enumerate(values)
    )
    lines = "".join(
        f'<line x1="{_LEFT + share * (_WIDTH - _LEFT):.1f}" x2="{_LEFT + share * (_WIDTH - _LEFT):.1f}" y1="0" '
        f'y2="{_HEIGHT}" stroke="#cf222e" stroke-width="1.5"/>'
        for share in marks
    )
    per_bar = len(labels) == len(values)
    spread = (_WIDTH - _LEFT) / max(len(labels) - (not per_bar), 1)
    texts = "".join(
        f'<text x="{_LEFT + (n + 0.5 * per_bar) * spread:.1f}" y="{_HEIGHT + 16}" '
        f'text-anchor="{"middle" if per_bar or 0 < n < len(labels) - 1 else "end" if n else "start"}">{escape(label)}</text>'
        for n, label in enumerate(labels)
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + _BOTTOM}" width="100%" role="img">{bars}{lines}{texts}'
        f'<text x="{_LEFT - 6}" y="11" text-anchor="end">{most}</text>'
        f'<text x="{_LEFT - 6}" y="{_HEIGHT}" text-anchor="end">0</text></svg>'
    )


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
    counts = Counter(min(one, most) for one in attempts)
    return [(f"{n}" if n < most else f"{most}+", counts[n]) for n in range(1, most + 1)]
