"""The metrics for Prometheus: request latencies, and the counters of the ledger.

Labels are route patterns, methods of the routing table, status classes and a bounded number of job types. Nothing else
that clients send becomes a label.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sized
from importlib.metadata import version

from msgspec import Struct
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from onejob.core.replies import Outcome, Reason
from onejob.core.states import JobState
from onejob.engine import BATCH_MAX
from onejob.engines.batcher import QueueStats
from onejob.ledger import Ledger
from onejob.ledger.base import runtime_of
from onejob.runtime.counts import CountsSnapshot, TypeCounts
from onejob.runtime.stats import BUCKETS_SECONDS, OTHER_TYPE, RETRIED, TYPES_MAX, AttemptStats, Stats

from .routing import Route

VERSION = version("onejob")
METRICS_MEDIA_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
LATENCY_BUCKETS_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

# Connections refuse malformed requests, slow heads and large heads, and everything when there is no memory.
CONNECTION_ERROR_STATUSES = (400, 408, 417, 431, 503)
# Every series exists from the start: a rate needs a zero to rise from.
OUTCOMES = (*Outcome, "reserved", "failed")
REFUSAL_REASONS = (
    Reason.QUOTA_EXCEEDED,
    Reason.RATE_LIMITED,
    Reason.COST_LIMIT_EXCEEDED,
    Reason.SLOT_LOST,
    Reason.SEQUENCE_GAP,
    Reason.ALREADY_COMMITTED,
    Reason.IDEMPOTENCY_KEY_REUSED,
)
LEASE_EXPIRY_ENDS = (RETRIED, JobState.FAILED.value, JobState.LOST.value)
# The ends of a callback's attempts, and what they mean for its delivery. "failed": given up after the last attempt.
CALLBACK_ENDS = {JobState.SUCCESS.value: "delivered", RETRIED: "retried", JobState.FAILED.value: "failed"}


class LatencyHistogram:
    """The latencies of one route and status class."""

    __slots__ = ("_route", "counts", "labels", "total_seconds")

    def __init__(self, route: Route | None, status: str) -> None:
        self._route = route  # referenced, so that no other object gets its id()
        self.labels = ("unmatched", "-", status) if route is None else (route.path, route.method, status)
        self.counts = [0] * (len(LATENCY_BUCKETS_SECONDS) + 1)
        self.total_seconds = 0.0


class MetricSample(Struct, frozen=True, array_like=True):
    name: str
    labels: dict[str, str]
    value: float


class MetricFamily(Struct, frozen=True, array_like=True):
    """The samples of one metric, in a form that can be sent between processes."""

    name: str
    text: str
    kind: str
    samples: list[MetricSample]


class FamilyCollector(Collector):
    def __init__(self, families: Iterable[MetricFamily]) -> None:
        self._families = families

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            metric = Metric(family.name, family.text, family.kind)
            for sample in family.samples:
                metric.add_sample(sample.name, sample.labels, sample.value)
            yield metric


class Metrics(Collector):
    """The metrics of one HttpApp, in a registry of their own."""

    def __init__(self, ledger: Ledger, preparations: Sized = ()) -> None:
        self._ledger = ledger
        self._preparations = preparations
        self._latencies: dict[tuple[int, int], LatencyHistogram] = {}
        self._refusals: Counter[str] = Counter({str(status): 0 for status in CONNECTION_ERROR_STATUSES})
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def observe(self, route: Route | None, status: int, seconds: float) -> None:
        # By identity, which is cheaper than hashing a route.
        key = (id(route), status // 100)
        latency = self._latencies.get(key)
        if latency is None:
            latency = self._latencies[key] = LatencyHistogram(route, f"{key[1]}xx")
        latency.counts[bisect_left(LATENCY_BUCKETS_SECONDS, seconds)] += 1
        latency.total_seconds += seconds

    def count_refusal(self, status: int) -> None:
        self._refusals[str(status)] += 1

    def families(self) -> list[MetricFamily]:
        return [
            MetricFamily(
                metric.name,
                metric.documentation,
                metric.type,
                [MetricSample(sample.name, sample.labels, sample.value) for sample in metric.samples],
            )
            for metric in self._registry.collect()
        ]

    def describe(self) -> Iterable[Metric]:
        return ()  # called at registration, to find name clashes

    def collect(self) -> Iterator[Metric]:
        stats = self._ledger.admin.runtime_stats()
        yield InfoMetricFamily(
            "onejob",
            "Version, engine and durability",
            {"version": VERSION, "engine": stats.engine, "durability": self._ledger.durability},
        )
        outcomes = outcomes_with_zeros(stats.outcomes)
        yield _counter_family("onejob_submissions", "Submissions by outcome", "outcome", outcomes)
        refusals = {reason.value: stats.refusals.get(reason, 0) for reason in REFUSAL_REASONS}
        yield _counter_family("onejob_refusals", "Refused submissions by reason", "reason", refusals)
        yield from _gate_metrics(stats)
        yield from _queue_metrics(stats.queues)
        yield from _maintenance_metrics(stats)
        yield from _attempt_metrics(runtime_of(self._ledger).attempt_stats)
        yield GaugeMetricFamily(
            "onejob_preparations", "Jobs whose preparation runs in this process", len(self._preparations)
        )
        yield _counter_family(
            "onejob_http_refusals", "Requests refused before their path was read, by status", "status", self._refusals
        )
        yield self._request_latencies()

    def _request_latencies(self) -> Metric:
        family = HistogramMetricFamily(
            "onejob_http_request_seconds",
            "Time until the response was sent, by route and status class",
            labels=("route", "method", "status"),
        )
        for latency in self._latencies.values():
            buckets = _cumulative_buckets(map(str, LATENCY_BUCKETS_SECONDS), latency.counts)
            family.add_metric(latency.labels, buckets, latency.total_seconds)
        return family


def outcomes_with_zeros(outcomes: Mapping[str, int]) -> dict[str, int]:
    return {outcome: outcomes.get(outcome, 0) for outcome in OUTCOMES}


def render_metrics(families: Iterable[MetricFamily]) -> bytes:
    registry = CollectorRegistry()
    registry.register(FamilyCollector(families))
    return generate_latest(registry)


def without_job_types(families: Iterable[MetricFamily]) -> list[MetricFamily]:
    """The families whose samples name no job types: a process counts the attempts of all tenants together."""
    return [family for family in families if not any("type" in sample.labels for sample in family.samples)]


def _gate_metrics(stats: Stats) -> Iterator[Metric]:
    gate = stats.gate
    entries = GaugeMetricFamily("onejob_gate_entries", "What the gate remembers, by kind", labels=("kind",))
    for kind in ("pending", "committed", "rejected"):
        entries.add_metric((kind,), getattr(gate, kind))
    yield entries
    yield GaugeMetricFamily("onejob_gate_entries_limit", "How many settled receipts the gate may remember", gate.limit)
    yield GaugeMetricFamily("onejob_waiters", "Callers that wait for another caller's submission", gate.waiters)


def _queue_metrics(queues: Mapping[str, QueueStats]) -> Iterator[Metric]:
    waiting = GaugeMetricFamily("onejob_queue_commands", "Commands that wait for a batch", labels=("queue",))
    sizes = HistogramMetricFamily("onejob_batch_commands", "Commands per batch", labels=("queue",))
    bounds = [str(float(1 << n)) for n in range(BATCH_MAX.bit_length())]
    for queue, load in queues.items():
        waiting.add_metric((queue,), load.waiting)
        beyond = sum(load.batches[len(bounds) :])
        counts = [*load.batches[: len(bounds)], beyond]
        sizes.add_metric((queue,), _cumulative_buckets(bounds, counts), load.commands)
    yield waiting
    yield sizes


def _maintenance_metrics(stats: Stats) -> Iterator[Metric]:
    totals = stats.sweep_totals
    swept = {"record": totals.records, "job": totals.jobs, "stream": totals.streams, "usage": totals.usages}
    yield _counter_family("onejob_maintenance_swept", "Facts changed by maintenance, by kind", "kind", swept)
    yield CounterMetricFamily("onejob_maintenance_failures", "Failed maintenance runs", stats.maintenance_failures)
    yield CounterMetricFamily(
        "onejob_quota_drift", "Slots found miscounted by maintenance; anything but 0 is a bug", totals.drift
    )


def _attempt_metrics(stats: AttemptStats) -> Iterator[Metric]:
    ends = CounterMetricFamily("onejob_attempts", "Ended attempts by type and end", labels=("type", "end"))
    waits = HistogramMetricFamily(
        "onejob_job_wait_seconds", "Time from when a job may run to the start of its first attempt", labels=("type",)
    )
    runs = HistogramMetricFamily(
        "onejob_attempt_seconds", "Time from the start of an attempt to its end", labels=("type",)
    )
    expiries = CounterMetricFamily(
        "onejob_lease_expiries",
        "Attempts whose lease expired because their worker stopped responding, by type and what became of the job",
        labels=("type", "end"),
    )
    bounds = tuple(map(str, BUCKETS_SECONDS))
    for type, type_stats in sorted(stats.types.items()):
        for end, count in sorted(type_stats.ends.items()):
            ends.add_metric((type, end), count)
        for end in LEASE_EXPIRY_ENDS:
            expiries.add_metric((type, end), type_stats.lease_expiries.get(end, 0))
        waits.add_metric((type,), _cumulative_buckets(bounds, type_stats.waits.counts), type_stats.waits.total_seconds)
        runs.add_metric((type,), _cumulative_buckets(bounds, type_stats.runs.counts), type_stats.runs.total_seconds)
    yield from (ends, expiries, waits, runs)
    yield CounterMetricFamily(
        "onejob_schedule_conflicts",
        "Ticks that made no job because their key has another job or input",
        stats.schedule_conflicts,
    )
    deliveries = {CALLBACK_ENDS[end]: stats.callbacks.get(end, 0) for end in CALLBACK_ENDS}
    yield _counter_family("onejob_callbacks", "Deliveries of webhook callbacks by end", "end", deliveries)


def job_families(counts: CountsSnapshot, now: int, workers: int) -> list[MetricFamily]:
    """Gauges of the whole store, which are the same in all processes and so are not added up."""
    jobs, ready, ages = list[MetricSample](), list[MetricSample](), list[MetricSample]()
    for type, type_counts in sorted(_capped_types(counts.types).items()):
        for state, count in sorted(type_counts.states.items()):
            jobs.append(MetricSample("onejob_jobs", {"type": type, "state": state}, count))
        ready.append(MetricSample("onejob_ready_jobs", {"type": type}, type_counts.ready))
        age = max(now - type_counts.oldest_ready_at, 0) / 1000 if type_counts.oldest_ready_at else 0
        ages.append(MetricSample("onejob_oldest_ready_seconds", {"type": type}, age))
    counted = (now - counts.at) / 1000 if counts.at else 0.0
    return [
        MetricFamily("onejob_jobs", "Jobs in the store by type and state", "gauge", jobs),
        MetricFamily("onejob_ready_jobs", "Jobs that wait for a worker, by type", "gauge", ready),
        MetricFamily("onejob_oldest_ready_seconds", "How long the oldest of them has waited, by type", "gauge", ages),
        MetricFamily(
            "onejob_jobs_counted_seconds",
            "Age of the counts of jobs",
            "gauge",
            [MetricSample("onejob_jobs_counted_seconds", {}, counted)],
        ),
        MetricFamily(
            "onejob_job_workers",
            "Workers that serve all tenants and were heard of within the last minute",
            "gauge",
            [MetricSample("onejob_job_workers", {}, workers)],
        ),
    ]


def _capped_types(types: Mapping[str, TypeCounts]) -> Mapping[str, TypeCounts]:
    """At most TYPES_MAX types, those with the most jobs; the others are added up."""
    if len(types) <= TYPES_MAX:
        return types
    by_size = sorted(types, key=lambda type: -sum(types[type].states.values()))
    others = Counter[str]()
    for type in by_size[TYPES_MAX:]:
        others.update(types[type].states)
    rest = [types[type] for type in by_size[TYPES_MAX:]]
    oldest = min((counts.oldest_ready_at for counts in rest if counts.oldest_ready_at), default=0)
    summed = TypeCounts(dict(others), sum(counts.ready for counts in rest), oldest)
    return {type: types[type] for type in by_size[:TYPES_MAX]} | {OTHER_TYPE: summed}


def _counter_family(name: str, text: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=(label,))
    for value, count in counts.items():
        family.add_metric((value,), count)
    return family


def _cumulative_buckets(bounds: Iterable[str], counts: Iterable[int]) -> list[tuple[str, float]]:
    """Prometheus buckets are cumulative; the last one counts everything."""
    total = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip((*bounds, "+Inf"), counts, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets
