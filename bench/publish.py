"""Results as tables and plots: `docs/benchmarks.md`, and what `make bench` leaves in `build/bench`.

`python -m bench.publish` makes the published page again from its results, after a change of this file;
`python -m bench.publish build/bench/results.json` publishes the last run.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from .bars import BARS
from .measure import Spread
from .plot import BarMark, BarRow, LatencyRow, plot_bars, plot_latencies, plot_rates
from .report import REPOSITORY, BarResult, RateResult, Results, format_number

DOCS = REPOSITORY / "docs"
PAGE = DOCS / "benchmarks.md"
BEGIN, END = "<!-- results -->", "<!-- /results -->"
FOLDER = "benchmarks"
RESULTS_FILE = "results.json"
PARTS = {
    "engines": "The library on SQLite and on PostgreSQL",
    "postgres": "The library and its peers on PostgreSQL",
    "http": "The service over HTTP",
    "pgbench": "The service over HTTP on PostgreSQL, and pgbench",
    "middleware": "The middleware and its peer",
    "work": "Jobs from submission to end",
    "growth": "A small store and a large one",
}
BASELINES = ("empty application", "no middleware", "pgbench")
VERDICTS = {"missed": "**missed**", "held": "held", "wanted": "held, as wanted"}


def publish(results: Results) -> None:
    """Write the page, its plots and the results themselves."""
    write_files(results, DOCS / FOLDER)
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(replace_results(page, results), encoding="utf-8")


def write_files(results: Results, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RESULTS_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    for name, text in make_plots(results).items():
        (folder / name).write_text(text, encoding="utf-8")


def load_results(path: Path) -> Results:
    return msgspec.json.decode(path.read_bytes(), type=Results)


def replace_results(page: str, results: Results) -> str:
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    assert found, f"docs/benchmarks.md has no {BEGIN} and {END}"
    return f"{before}{BEGIN}\n\n{render(results)}\n{END}{after}"


def render(results: Results) -> str:
    """The tables and plots in Markdown."""
    plots = make_plots(results)
    blocks = [_about(results), "### The bars", _plot("bars", "The bars", plots), _bars(results)]
    for part, title in PARTS.items():
        rates = [rate for rate in results.rates if rate.part == part]
        if rates:
            blocks += [f"### {title}", _plot(part, title, plots), _rates(rates)]
    if _pythons(results):
        blocks += ["### Versions of Python", _python_table(results)]
    if results.latencies:
        blocks += ["### Latency under load", _plot("latency", "Latency under load", plots), _latencies(results)]
    if results.pages:
        blocks += ["### Pages of the console", _pages(results)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def make_plots(results: Results) -> dict[str, str]:
    """SVG by the name of its file."""
    found = {}
    if results.bars:
        found["bars.svg"] = _plot_bars(results)
    for part, title in PARTS.items():
        rates = [rate for rate in results.rates if rate.part == part]
        if rates:
            found[f"{part}.svg"] = _plot_rates(title, rates)
    if results.latencies:
        found["latency.svg"] = _plot_latencies(results)
    return found


def _about(results: Results) -> str:
    machine = results.machine
    versions = ", ".join(f"{name} {text}" for name, text in machine.versions.items())
    where = f"{machine.processor}, {machine.cores} cores, {machine.memory_gib:g} GiB, {machine.kernel}"
    lines = [
        f"Measured {results.date} at commit `{results.commit}` in {results.seconds / 60:.0f} minutes.",
        f"The machine: {where}; a 4 KiB write with its sync takes {results.sync_ms:.2f} ms.",
        f"{versions}.",
        f"Medians of {results.rounds} interleaved rounds, with the lowest and the highest in brackets.",
    ]
    if results.quick:
        lines.append("**A quick run, to try the benchmarks; its figures are not to be relied on.**")
    lines += [f"Not measured: {failure}." for failure in results.failures]
    lines += [
        f"Missed too, a limit that only guards against a change for the worse: {name}."
        for name in results.guards_missed
    ]
    return "\n".join(lines)


def _bars(results: Results) -> str:
    measured = {result.bar.name: result for result in results.bars}
    rows = []
    for bar in BARS:
        limit = f"{'≥' if bar.least is not None else '≤'} {bar.limit:g}"
        found = measured.get(bar.name)
        value = f"{_spread(found.value)}" if found else "-"
        rows.append((bar.name, value, limit, f"{bar.want:g}", VERDICTS[found.verdict] if found else "not measured"))
    return _table(("", "value", "least accepted", "wanted", ""), rows)


def _rates(rates: list[RateResult]) -> str:
    first = _first_python(rates)
    has_store = any(rate.rate.store_cpu_us for rate in rates)
    rows = []
    for rate in rates:
        if rate.python != first:
            continue
        store = rate.rate.store_cpu_us
        cells = [rate.case, rate.side, _spread(rate.rate.per_second), f"{rate.rate.cpu_us.median:,.0f}"]
        rows.append((*cells, f"{store.median:,.0f}" if store else "-") if has_store else tuple(cells))
    heads = ("", "", "per second", "processor time, µs each")
    return _table((*heads, "of the store") if has_store else heads, rows)


def _python_table(results: Results) -> str:
    first, *others = _pythons(results)
    base = {_place(rate): rate for rate in results.rates if rate.python == first}
    rows = []
    for place, rate in base.items():
        found = [
            next((one for one in results.rates if one.python == version and _place(one) == place), None)
            for version in others
        ]
        if not any(found):
            continue
        cells = [f"{rate.side}, {rate.case}", f"{rate.rate.per_second.median:,.0f}"]
        for one in found:
            if one is None:
                cells.append("-")
            else:
                ratio = one.rate.per_second.median / rate.rate.per_second.median
                cells.append(f"{one.rate.per_second.median:,.0f} ({ratio:.2f})")
        rows.append(tuple(cells))
    return _table(("per second", f"Python {first}", *(f"Python {version} (ratio)" for version in others)), rows)


def _latencies(results: Results) -> str:
    rows = []
    for one in results.latencies:
        p999 = "too few" if one.p999 is None else format_number(one.p999)
        late = f" ({one.late} late)" if one.late else ""
        name = f"{one.side}, {one.case}"
        load = f"{one.load * 100:.0f} % of {one.maximum:,.0f}/s"
        rows.append((name, load, f"{one.count:,}{late}", format_number(one.p50), format_number(one.p99), p999))
    return _table(("milliseconds", "load", "requests", "p50", "p99", "p99.9"), rows)


def _pages(results: Results) -> str:
    stores = list(dict.fromkeys(page.store for page in results.pages))
    paths = list(dict.fromkeys(page.path for page in results.pages))
    found = {(page.store, page.path): f"{page.median:.0f} / {page.p95:.0f}" for page in results.pages}
    rows = [(f"`{path}`", *(found.get((store, path), "-") for store in stores)) for path in paths]
    return _table(("median / p95, milliseconds", *stores), rows)


def _plot_bars(results: Results) -> str:
    marks = [_mark(result) for result in results.bars]
    return plot_bars("The bars", "Against the least that is accepted; the upright marks are what is wanted", marks)


def _mark(result: BarResult) -> BarMark:
    bar, value = result.bar, result.value.median
    reached, want = (value, bar.want) if bar.least is not None else (1 / value, 1 / bar.want)
    limit = bar.limit if bar.least is not None else 1 / bar.limit
    return BarMark(bar.name, reached / limit, want / limit, format_number(value), bar.is_held(value))


def _plot_rates(title: str, rates: list[RateResult]) -> str:
    groups: dict[str, list[BarRow]] = {}
    first = _first_python(rates)
    has_others = any(rate.python != first for rate in rates)
    for rate in rates:
        group, label = _group(rate)
        spread, cpu, store = rate.rate.per_second, rate.rate.cpu_us, rate.rate.store_cpu_us
        note = f"{spread.median:,.0f}/s · {cpu.median:,.0f}{f' + {store.median:,.0f}' if store else ''} µs"
        label += f", Python {rate.python}" * has_others
        row = BarRow(label, spread.median, spread.low, spread.high, note, _style(rate.side))
        groups.setdefault(group, []).append(row)
    subtitle = "Per second (lines: lowest to highest round), and processor time of each"
    if any(rate.rate.store_cpu_us for rate in rates):
        subtitle += ", of the process + of its store"
    return plot_rates(title, subtitle, groups)


def _plot_latencies(results: Results) -> str:
    groups: dict[str, list[LatencyRow]] = {}
    for one in results.latencies:
        points = [one.p50, one.p99] + ([one.p999] if one.p999 is not None else [])
        label = f"{one.load * 100:.0f} % of {one.maximum:,.0f}/s"
        groups.setdefault(f"{one.side} ({one.case})", []).append(LatencyRow(label, points, _style(one.side)))
    subtitle = "Open load; full dot: p50, ring: p99, small dot: p99.9, from when a request was due; logarithmic"
    return plot_latencies("Latency under load", subtitle, groups)


def _group(rate: RateResult) -> tuple[str, str]:
    """Which group of a plot a rate belongs to, and its label there."""
    if rate.part == "growth":
        return rate.side, rate.case
    if rate.part in ("http", "pgbench"):
        what, _, connections = rate.case.rpartition(", ")
        return connections, f"{rate.side}, {what}" if what not in rate.side else rate.side
    return rate.case, rate.side


def _style(side: str) -> str:
    return "base" if side in BASELINES else "ours" if "onejob" in side else "peer"


def _plot(name: str, title: str, plots: dict[str, str]) -> str:
    return f"![{title}]({FOLDER}/{name}.svg)" if f"{name}.svg" in plots else ""


def _pythons(results: Results) -> list[str]:
    """The versions, if there are several."""
    found = list(dict.fromkeys(rate.python for rate in results.rates))
    return found if len(found) > 1 else []


def _first_python(rates: list[RateResult]) -> str:
    return rates[0].python


def _place(rate: RateResult) -> tuple[str, str, str]:
    return rate.part, rate.case, rate.side


def _spread(value: Spread) -> str:
    low, high = format_number(value.low), format_number(value.high)
    return f"{format_number(value.median)} [{low}-{high}]"


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    publish(load_results(Path(sys.argv[1]) if sys.argv[1:] else DOCS / FOLDER / RESULTS_FILE))
