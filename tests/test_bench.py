"""The benchmarks can be started, judge by their bars, and publish what they have found."""

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path
from time import sleep
from xml.etree import ElementTree

import pytest

import onejob
from bench.__main__ import PARTS, PUBLISHED, Setting, parse_options, run_part
from bench.bars import BARS, Bar
from bench.fill import fill
from bench.measure import Run, Spread, interleave, percentile, processor_seconds, ratios
from bench.open_loop import offer
from bench.publish import (
    BEGIN,
    DOCS,
    END,
    FOLDER,
    PAGE,
    RESULTS_FILE,
    load_results,
    make_plots,
    render,
    replace_results,
    write_files,
)
from bench.report import LatencyResult, PageResult, Report
from bench.submissions import commands, insert_raw, open_raw_connection
from onejob.core.command import Facts
from onejob.core.facts import KINDS, Kind
from onejob.engines.codec import columns, fact_to_row

ROOT = Path(__file__).parents[1]
RATIO = Bar("ours / theirs", least=2, want=4)
COST = Bar("cost", most=1.5, want=1.2)


def make_report() -> Report:
    report = Report(rounds=3)
    report.part = "engines"
    for python in ("3.11", "3.13"):
        report.rate("64 callers", "onejob, SQLite", [Run(900.0, 90.0), Run(1100.0, 80.0)], python=python)
        report.rate("64 callers", "onejob, PostgreSQL", [Run(500.0, 70.0, 60.0)], python=python)
    report.judge(BARS[0], Spread(2.0, 1.9, 2.1))
    report.latency(LatencyResult("library", "a <peer> & its store", 0.3, 90.0, 300.0, 400, 1.0, 9.0, None, 2))
    report.page(PageResult("SQLite", "/jobs", 100.0, 120.0))
    return report


@pytest.mark.parametrize(
    ("bar", "value", "verdict"),
    [
        (RATIO, 1.9, "missed"), (RATIO, 2.0, "held"), (RATIO, 4.0, "wanted"),
        (COST, 1.6, "missed"), (COST, 1.5, "held"), (COST, 1.1, "wanted"),
    ],
)  # fmt: skip
def test_a_bar_is_missed_held_or_as_wanted(bar: Bar, value: float, verdict: str) -> None:
    report = Report()
    report.judge(bar, Spread(value, value, value))
    assert report.results.bars[0].verdict == verdict
    assert report.has_missed() == (verdict == "missed")


def test_every_bar_is_in_the_summary_whether_measured_or_not(capsys: pytest.CaptureFixture[str]) -> None:
    make_report().print_summary(is_partial=False)
    lines = capsys.readouterr().out.splitlines()
    for bar in BARS:
        (line,) = [line for line in lines if line.strip().startswith(bar.name)][-1:]
        assert ("not measured" in line) == (bar is not BARS[0])
    assert len({bar.name for bar in BARS}) == len(BARS)


async def test_sides_take_turns_in_an_order_that_is_reversed_each_round() -> None:
    order = []

    def side(name: str, rate: float) -> Run:
        order.append(name)
        return Run(rate, 1.0)

    async def a() -> Run:
        return side("a", 30.0)

    async def b() -> Run:
        return side("b", 10.0)

    runs = await interleave({"a": a, "b": b}, 2)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert len(runs["a"]) == 2  # the first round is a warm-up
    assert ratios(runs["a"], runs["b"]) == Spread(3.0, 3.0, 3.0)


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentile(range(1, 1001), 0.5) == 500
    assert percentile(range(1, 1001), 0.999) == 999
    assert percentile([7.0], 0.99) == 7.0


def test_processor_time_of_this_process_and_its_children_grows() -> None:
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
    pid = os.getpid()
    assert 0 < processor_seconds(pid) < processor_seconds(pid, with_children=True)


async def test_an_open_load_counts_a_stall_for_everybody_who_was_due() -> None:
    stalled = False

    async def submit() -> None:
        nonlocal stalled
        if not stalled:
            stalled = True
            await asyncio.sleep(0.02)  # the others go on
            sleep(0.1)  # noqa: ASYNC251 - and now nobody does

    run = await offer(submit, 500, 0.3, random.Random(1))
    assert run.late == 0
    assert 60 < len(run.latencies) < 300
    waited = sum(latency > 0.05 for latency in run.latencies)
    assert waited > 10  # those that came in the first half of the stall
    assert percentile(run.latencies, 0.3) < 0.05


async def test_requests_without_an_answer_are_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.open_loop.GRACE_SECONDS", 0.05)
    run = await offer(asyncio.Event().wait, 200, 0.05, random.Random(2))
    assert run.late == len(run.latencies) > 0


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_filled_store_knows_its_keys(tmp_path: Path, ordered: bool) -> None:
    url = f"sqlite:///{tmp_path / 'filled.db'}"
    await fill(url, 100, ordered=ordered)
    async with onejob.open(url, sweep=False) as queue:
        jobs = await queue.jobs(limit=100)
        assert len({job.key for job in jobs}) == 100
        with pytest.raises(onejob.IdempotencyConflict):  # all have the input of the first
            await queue.submit("charge_customer", {"other": 1}, idempotency_key=jobs[50].key)


def test_rows_written_by_hand_are_those_of_the_engine(tmp_path: Path) -> None:
    (command,) = commands(iter(["by-hand"]), 1)
    db = open_raw_connection(tmp_path / "hand.db")
    insert_raw(db, [command], 1_000)
    facts = {KINDS[type(fact)]: fact for fact in command.decide(Facts(), 1_000).puts}
    for kind in (Kind.RECORD, Kind.JOB):
        (row,) = db.execute(f"SELECT * FROM {kind.name}")
        assert dict(zip(columns(kind), row, strict=True)) == dict(
            zip(columns(kind), fact_to_row(facts[kind]), strict=True)
        )
    db.close()


def test_a_report_becomes_tables_and_plots() -> None:
    results = make_report().results
    text = render(results)
    for expected in (
        "2.00 [1.90-2.10]",
        "1,000 [900-1,100]",
        "too few",
        "400 (2 late)",
        "100 / 120",
        "| Python 3.11 |",
    ):
        assert expected in text
    plots = make_plots(results)
    assert set(plots) == {"bars.svg", "engines.svg", "latency.svg"}
    for plot in plots.values():
        ElementTree.fromstring(plot)
        assert "prefers-color-scheme: dark" in plot


def test_the_published_page_is_made_from_its_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    if not (DOCS / FOLDER / RESULTS_FILE).exists():
        assert "No run is published here yet" in page
        return
    results = load_results(DOCS / FOLDER / RESULTS_FILE)
    assert page == replace_results(page, results), "run `python -m bench.publish`"
    for name, plot in make_plots(results).items():
        assert (DOCS / FOLDER / name).read_text(encoding="utf-8") == plot, "run `python -m bench.publish`"


def test_publishing_writes_results_that_make_the_same_page(tmp_path: Path) -> None:
    results = make_report().results
    write_files(results, tmp_path)
    loaded = load_results(tmp_path / RESULTS_FILE)
    page = f"# Benchmarks\n{BEGIN}\nold\n{END}\nend\n"
    published = replace_results(page, loaded)
    assert "old" not in published
    assert published.endswith(f"{END}\nend\n")
    assert published == replace_results(published, results)
    assert {file.name for file in tmp_path.iterdir()} == {RESULTS_FILE, *make_plots(results)}


async def test_a_benchmark_that_fails_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(setting: Setting) -> None:
        raise OSError("the disk is full")

    async def stuck(setting: Setting) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("bench.__main__.SECONDS_MAX", 0.01)
    report = Report()
    setting = Setting(tmp_path, report, 1, {}, quick=True, published=False)
    for name, part in (("http", broken), ("work", stuck)):
        monkeypatch.setitem(PARTS, name, part)
        await run_part(setting, name)
    assert [failure.partition(":")[0] for failure in report.results.failures] == ["http", "work"]
    assert report.has_missed()


def test_options_name_every_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_options(["--help"])
    shown = capsys.readouterr().out
    assert all(part in shown for part in PARTS)
    assert set(PUBLISHED) <= set(PARTS)
    assert parse_options(["--quick", "--only", "http"]).only == "http"
    with pytest.raises(SystemExit):
        parse_options(["--publish", "--quick"])
