"""What all workers counted: asked for in rounds, each of which answers everybody who asked before it began."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from onejob.host import Counts

from .channel import Ask, Gather, Report, Told
from .child import Child
from .metrics import Family, Sample
from .sums import Sums

ROUND_SECONDS_MAX: Final = 1.0  # who is silent so long is told of by its last report


class Gathering:
    def __init__(self, living: Callable[[], Iterable[Child]]) -> None:
        self._living = living
        self._sums = Sums()
        self._asked: list[tuple[Child, Ask]] = []
        self._round = 0
        self._awaited: set[Child] = set()
        self._all_heard = asyncio.Event()
        self._tenants: dict[str, list[Counts]] = {}
        self._rounds: asyncio.Task[None] | None = None
        self.restarts = 0

    def ask(self, child: Child, ask: Ask) -> None:
        self._asked.append((child, ask))
        if self._rounds is None or self._rounds.done():
            self._rounds = asyncio.create_task(self._hold_rounds())

    def hear(self, child: Child, report: Report) -> None:
        self._sums.hear(child, replace(report.counted, tenants={}))
        if report.round == self._round and child in self._awaited:
            for tenant, counts in report.counted.tenants.items():
                self._tenants.setdefault(tenant, []).append(counts)
            self._heard(child)

    def end(self, child: Child) -> None:
        self._sums.end(child)
        self._heard(child)

    def _heard(self, child: Child) -> None:
        self._awaited.discard(child)
        if not self._awaited:
            self._all_heard.set()

    async def _hold_rounds(self) -> None:
        while self._asked:
            asked, self._asked = self._asked, []
            self._round += 1
            self._tenants = {}
            tenants = tuple({tenant for _, ask in asked for tenant in ask.tenants})
            # Who has not read the last question yet is not asked another one.
            self._awaited = {child for child in self._living() if child.ready and child.channel.idle}
            self._all_heard.clear()
            for child in self._awaited:
                child.channel.send(Gather(self._round, tenants))
            try:
                async with asyncio.timeout(ROUND_SECONDS_MAX):
                    await self._all_heard.wait()
            except TimeoutError:
                self._awaited = set()
            self._answer(asked)

    def _answer(self, asked: list[tuple[Child, Ask]]) -> None:
        whole = self._sums.whole()
        assert whole is not None, "every worker reports before it asks"
        families = [*whole.families, *self._own()]
        for child, ask in asked:
            own = {tenant: _together(self._tenants.get(tenant, [])) for tenant in ask.tenants}
            child.channel.send(Told(replace(whole, families=families, tenants=own)))

    def _own(self) -> list[Family]:
        present = float(sum(child.present for child in self._living()))
        restarts = Sample("onejob_worker_restarts_total", {}, float(self.restarts))
        return [
            Family("onejob_workers", "Workers that serve", "gauge", [Sample("onejob_workers", {}, present)]),
            Family(
                "onejob_worker_restarts",
                "Workers that were started again after they ended",
                "counter",
                [restarts],
            ),
        ]


def _together(counts: list[Counts]) -> Counts:
    outcomes: Counter[str] = Counter()
    for one in counts:
        outcomes.update(one.outcomes)
    return Counts(dict(outcomes), sum(one.waiting for one in counts))
