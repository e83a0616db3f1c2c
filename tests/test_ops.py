"""The alerts and the dashboard parse, every metric they name is served, and every alert has its place in the runbook."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import yaml

import onejob
from onejob.http.metrics import Metrics, job_families, render_metrics
from onejob.http.metrics_server import worker_families
from onejob.http.stats import supervisor_families
from onejob.ledger.base import runtime_of
from onejob.runtime.counts import ALL_TENANTS
from onejob.server.workers import Totals

ROOT = Path(__file__).parents[1]
RULE_FIELDS = {"alert", "expr", "for", "labels", "annotations"}
SUFFIXES = {"histogram": ("_bucket", "_count", "_sum")}
# Words of PromQL, and labels: what else looks like a name is a metric.
NAME = re.compile(r"\b(?:onejob|process|python)_[a-z_]+\b")


def alerts() -> list[dict[str, Any]]:
    rules = yaml.decode((ROOT / "ops" / "prometheus" / "onejob.rules.yml").read_bytes())
    return [rule for group in rules["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((ROOT / "ops" / "grafana" / "onejob.json").read_text(encoding="utf-8"))[
        "panels"
    ]
    return found


def served_names(text: str) -> set[str]:
    """Also those of families that have no samples yet."""
    families = re.findall(r"^# TYPE (\S+) (\S+)$", text, flags=re.MULTILINE)
    return {name + suffix for name, kind in families for suffix in SUFFIXES.get(kind, ("",))}


@pytest.fixture
async def served() -> set[str]:
    app = onejob.App()
    app.job("t")(lambda: None)
    async with onejob.open("memory://", sweep=False) as queue:
        counts, now = await runtime_of(queue).job_counts.load(ALL_TENANTS)
        families = [
            *Metrics(queue).families(),
            *job_families(counts, now, workers=0),
            *worker_families(app.worker(queue)),
            *supervisor_families(Totals([], [], 1, 0)),
        ]
    return served_names(render_metrics(families).decode())


async def test_every_metric_of_the_alerts_and_the_dashboard_is_served(served: set[str]) -> None:
    expressions = [rule["expr"] for rule in alerts()] + [
        target["expr"] for panel in panels() for target in panel["targets"]
    ]
    named = {name for expression in expressions for name in NAME.findall(re.sub(r'"[^"]*"', "", expression))}
    assert len(named) > 15
    assert named <= served, sorted(named - served)


def test_alerts_have_what_prometheus_and_a_reader_need() -> None:
    runbook = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    sections = {line.removeprefix("## ") for line in runbook.splitlines() if line.startswith("## ")}
    assert {rule["alert"] for rule in alerts()} == sections
    for rule in alerts():
        assert rule.keys() <= RULE_FIELDS
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}"
        assert rule["expr"].count("(") == rule["expr"].count(")")


def test_panels_have_titles_and_places_of_their_own() -> None:
    assert all(panel["title"] and panel["targets"] for panel in panels())
    for part in ("id", "title"):
        assert len({panel[part] for panel in panels()}) == len(panels())
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels()}) == len(panels())
