"""What operators and Prometheus wait for in a store with many jobs: metrics, the API, and the pages in a browser."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

from playwright.sync_api import Browser, sync_playwright

import onejob
from onejob.ledger.base import runtime_of
from onejob.runtime.counts import ALL_TENANTS
from tests.support.serve_process import ServeProcess, run_serve_process

from .bars import PAGES_POSTGRESQL, PAGES_SQLITE, Bar
from .database import running_database
from .fill import Kinds, fill
from .measure import Spread, percentile
from .report import PageResult, Report

METRICS_MS_MAX = 100
REQUEST_MS_MAX = 300
PUBLISHED_JOBS = 1_000_000
TYPES = 20
# Of 1,000 jobs: 10 wait, 1 is lost, 20 have failed.
KINDS = Kinds(
    type=f"'t' || (n % {TYPES})",
    state="CASE WHEN n % 100 = 0 THEN 'pending' WHEN n % 1000 = 1 THEN 'lost' WHEN n % 50 = 2 THEN 'failed' ELSE 'success' END",
)
REQUESTS = (
    "/api/overview",
    "/api/jobs",
    "/api/jobs?limit=100",
    "/api/jobs?state=lost",
    "/api/jobs?state=failed&type=t2",
    "/api/jobs?state=pending&type=t3",
    "/api/jobs?type=none",
    "/api/jobs?user=nobody",
    "/api/jobs?label=customer=none",
    "/api/jobs?state=failed&createdBefore=2026-11-17T12:00:00Z",
    "/api/types",
    "/api/workers",
)
PAGES = (
    "/", "/jobs", "/jobs?state=failed", "/jobs?state=failed&type=t2", "/jobs?user=nobody", "/lost", "/keys", "/types",
    "/workers", "/callbacks", "/quotas", "/reservations", "/sequences", "/schedules", "/api-keys",
)  # fmt: skip
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
LOADS_PER_ROUND = 2
# The page sets `data-since` of #live when it has shown its data. The next frame is what a reader sees.
WATCH = """window.shown = new Promise((resolve, reject) => {
  const seen = new MutationObserver(() => {
    if (!document.getElementById("live")?.dataset.since) return;
    seen.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now())));
  });
  seen.observe(document, { subtree: true, childList: true, attributes: true, attributeFilter: ["data-since"] });
  setTimeout(() => reject(new Error("the page has not shown its data in 20 s")), 20000);
});"""


async def console(folder: Path, report: Report, rounds: int, jobs: int) -> None:
    await _measure("SQLite", f"sqlite:///{folder / 'console.db'}", folder, report, rounds, jobs, PAGES_SQLITE)
    with running_database() as server:
        await _measure("PostgreSQL", server.database(), folder, report, rounds, jobs, PAGES_POSTGRESQL)


async def _measure(store: str, url: str, folder: Path, report: Report, rounds: int, jobs: int, bar: Bar) -> None:
    report.title(f"{store} with {jobs:,} jobs (milliseconds)")
    begin = perf_counter()
    await fill(url, jobs, kinds=KINDS)
    report.row("seconds to fill the store", f"{perf_counter() - begin:.0f}")
    await _count(url, report, jobs)
    await asyncio.to_thread(_ask, store, url, folder, report, rounds, jobs, bar)


async def _count(url: str, report: Report, jobs: int) -> None:
    """Let the store be counted, which requests do not wait for."""
    async with onejob.open(url, sweep=False) as queue:
        for tenant in (ALL_TENANTS, "default"):
            snapshot = (await runtime_of(queue).job_counts.load(tenant))[0]
            while snapshot.by_state().get("success", 0) < jobs // 2:
                await asyncio.sleep(0.2)
                snapshot = (await runtime_of(queue).job_counts.load(tenant))[0]
            report.row(f"counting in the background ({tenant or 'all tenants'})", f"{snapshot.took_ms}")


def _ask(store: str, url: str, folder: Path, report: Report, rounds: int, jobs: int, bar: Bar) -> None:
    with run_serve_process(folder, "--engine", url) as server:
        for path in ("/metrics", *REQUESTS):
            took = [_time_request(server, path) for _ in range(rounds)]
            bound = METRICS_MS_MAX if path == "/metrics" else REQUEST_MS_MAX
            report.bar(f"{path}, median", median(took), most=bound)
        if CHROMIUM is None:
            report.row("without pages: Chromium is not installed", "-")
            return
        with _running_browser(CHROMIUM) as browser:
            pages = _time_pages(browser, server.base_url, rounds)
    results = [PageResult(store, path, median(took), percentile(took, 0.95)) for path, took in pages.items()]
    for result in results:
        report.page(result)
    slowest = max(results, key=lambda result: result.median)
    if jobs >= PUBLISHED_JOBS:
        report.judge(bar, Spread(slowest.median, min(pages[slowest.path]), max(pages[slowest.path])))
    else:
        report.bar(f"{store}, slowest page ({slowest.path}), median", slowest.median, most=bar.limit)
    report.row(
        f"{store}, p95 of all loads of all pages",
        f"{percentile((ms for took in pages.values() for ms in took), 0.95):.0f}",
    )


@contextmanager
def _running_browser(program: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def _time_pages(browser: Browser, base_url: str, rounds: int) -> dict[str, list[float]]:
    """Every page by its address, without the browser's cache, several times; the first load of each is not counted."""
    found: dict[str, list[float]] = {path: [] for path in PAGES}
    page = browser.new_context(base_url=base_url, viewport={"width": 1200, "height": 800}).new_page()
    page.add_init_script(WATCH)
    page.context.new_cdp_session(page).send("Network.setCacheDisabled", {"cacheDisabled": True})
    for number in range(rounds * LOADS_PER_ROUND + 1):
        for path in PAGES:
            page.goto(path, wait_until="commit")
            shown = page.evaluate("window.shown")
            if number:
                found[path].append(float(shown))
    page.context.close()
    return found


def _time_request(server: ServeProcess, path: str) -> float:
    """Over a new connection."""
    begin = perf_counter()
    response = server.get(path)
    assert response.status == 200, response.body[:300]
    if path.startswith("/api/"):
        json.loads(response.body)
    return (perf_counter() - begin) * 1000
