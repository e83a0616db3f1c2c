"""What all workers counted: asked for in rounds, each of which answers everybody who asked before it began."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from onejob.host import TenantCounts

from .channel import StatsReport, StatsRequest, TotalsReply, TotalsRequest
from .child import ChildProcess
from .metrics import MetricFamily, MetricSample
from .sums import StatsTotals

ROUND_SECONDS_MAX: Final = 1.0  # who is silent so long is told of by its last report


class StatsAggregator:
    def __init__(self, live_children: Callable[[], Iterable[ChildProcess]]) -> None:
        self._live_children = live_children
        self._totals = StatsTotals()
        self._requests: list[tuple[ChildProcess, TotalsRequest]] = []
        self._round = 0
        self._unreported: set[ChildProcess] = set()
        self._all_reported = asyncio.Event()
        self._tenants: dict[str, list[TenantCounts]] = {}
        self._rounds_task: asyncio.Task[None] | None = None
        self.restarts = 0

    def add_request(self, child: ChildProcess, request: TotalsRequest) -> None:
        self._requests.append((child, request))
        if self._rounds_task is None or self._rounds_task.done():
            self._rounds_task = asyncio.create_task(self._run_rounds())

    def add_report(self, child: ChildProcess, report: StatsReport) -> None:
        self._totals.update(child, replace(report.stats, tenants={}))
        if report.round == self._round and child in self._unreported:
            for tenant, counts in report.stats.tenants.items():
                self._tenants.setdefault(tenant, []).append(counts)
            self._mark_reported(child)

    def remove_child(self, child: ChildProcess) -> None:
        self._totals.retire(child)
        self._mark_reported(child)

    def _mark_reported(self, child: ChildProcess) -> None:
        self._unreported.discard(child)
        if not self._unreported:
            self._all_reported.set()

    async def _run_rounds(self) -> None:
        while self._requests:
            asked, self._requests = self._requests, []
            self._round += 1
            self._tenants = {}
            tenants = tuple({tenant for _, ask in asked for tenant in ask.tenants})
            # Who has not read the last question yet is not asked another one.
            self._unreported = {
                child for child in self._live_children() if child.ready and child.channel.is_idle
            }
            self._all_reported.clear()
            for child in self._unreported:
                child.channel.send(StatsRequest(self._round, tenants))
            try:
                async with asyncio.timeout(ROUND_SECONDS_MAX):
                    await self._all_reported.wait()
            except TimeoutError:
                self._unreported = set()
            self._reply(asked)

    def _reply(self, requests: list[tuple[ChildProcess, TotalsRequest]]) -> None:
        whole = self._totals.total()
        assert whole is not None, "every worker reports before it asks"
        families = [*whole.families, *self._supervisor_families()]
        for child, ask in requests:
            own = {tenant: _sum_counts(self._tenants.get(tenant, [])) for tenant in ask.tenants}
            child.channel.send(TotalsReply(replace(whole, families=families, tenants=own)))

    def _supervisor_families(self) -> list[MetricFamily]:
        present = float(sum(child.is_accepting for child in self._live_children()))
        restarts = MetricSample("onejob_worker_restarts_total", {}, float(self.restarts))
        return [
            MetricFamily(
                "onejob_workers", "Workers that serve", "gauge", [MetricSample("onejob_workers", {}, present)]
            ),
            MetricFamily(
                "onejob_worker_restarts",
                "Workers that were started again after they ended",
                "counter",
                [restarts],
            ),
        ]


def _sum_counts(counts: list[TenantCounts]) -> TenantCounts:
    outcomes: Counter[str] = Counter()
    for one in counts:
        outcomes.update(one.outcomes)
    return TenantCounts(dict(outcomes), sum(one.waiting for one in counts))
