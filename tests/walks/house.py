"""A process of the house: the real gate and combiner over a line to the store, until it crashes."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from onejob.core.replies import AnyReply, Created, Rejected, Replayed
from onejob.core.submit import SubmissionCommand
from onejob.engines.batcher import Batcher
from onejob.engines.gate import Gate, InFlightCaller
from onejob.engines.receipts import GateIdempotencyCache
from onejob.settings import IdempotencyConfig

from .loop import Owner
from .plan import Plan
from .store import Line, SimStore

Results = list[AnyReply | BaseException]
Reply = asyncio.Future[Results | None]

RESET_SECONDS = 0.01  # until a client notices that its process is gone


class Process(Owner):
    """Its memory dies with it; whatever it has sent to the store arrives all the same."""

    def __init__(self, store: SimStore, plan: Plan, chance: Random, parts: "Parts") -> None:
        super().__init__()
        self.store = store
        self.loop = store.loop
        self.plan = plan
        self.serving: dict[Reply, asyncio.Task[None]] = {}
        self.harmed: list[Reply] = []  # callers that were cancelled though they never hung up
        self._hung_up: set[Reply] = set()
        config = config_of(plan)
        rate = 1 + store.faults.drift * (2 * chance.random() - 1)
        offset = 1e5 * chance.random()
        self.line = parts.line(store)
        self.line.skew_ms = chance.randrange(-5000, 5000)
        self.combine = parts.combine(self.line, batch_max=plan.batch_max, queue_max=plan.queue_max)
        self.gate = parts.gate(self.combine, config, lambda: offset + rate * self.loop.time())
        self.gate.cache = parts.cache(config, self.gate._monotonic)
        if isinstance(self.gate.cache, CountedCache):
            self.gate.cache.count = self._evicted

    def ask(self, work: Callable[[Gate], Awaitable[Results]], reply: Reply) -> None:
        """A question arrives over the wire."""
        self.serving[reply] = self.context.run(self.loop.create_task, self._serve(work, reply))
        if self.store.strikes("hang_up"):
            self.loop.call_later(self.store.chance.random(), self._hang_up, reply, context=self.context)

    def crash(self) -> None:
        self.dead = True
        for reply in self.serving:
            self.loop.call_later(RESET_SECONDS, lose, reply, context=self.store.home)

    def close(self) -> None:
        """Serve nobody new, answer who is here."""
        self.context.run(self.loop.create_task, self.gate.aclose())

    def busy(self) -> bool:
        # Whoever is cancelled before the first step leaves without striking its name.
        return not self.dead and any(not task.done() for task in self.serving.values())

    async def _serve(self, work: Callable[[Gate], Awaitable[Results]], reply: Reply) -> None:
        try:
            results = await work(self.gate)
        except Exception as error:  # noqa: BLE001 - whoever asked judges it
            results = [error]
        except asyncio.CancelledError:
            if reply not in self._hung_up:
                self.harmed.append(reply)
            raise
        finally:
            del self.serving[reply]
        if not reply.done() and not self.store.strikes("wire_lost"):
            reply.set_result(results)

    def _hang_up(self, reply: Reply) -> None:
        if reply in self.serving:
            self._hung_up.add(reply)
            self.serving[reply].cancel()

    def _evicted(self) -> None:
        self.store.counts["evicted"] += 1


class CountedCache(GateIdempotencyCache[InFlightCaller]):
    """The real one; evictions are counted."""

    count: Callable[[], None]

    def remember(self, command: SubmissionCommand, reply: Created | Replayed | Rejected, sent_at: float) -> None:
        fresh = command.record_id not in self._receipts
        full = len(self._receipts) >= self._config.max_entries
        super().remember(command, reply, sent_at)
        if fresh and full:
            self.count()


class Parts:
    """What a process is made of; the zoo replaces some of it."""

    store: type[SimStore] = SimStore
    line: type[Line] = Line
    combine: type[Batcher] = Batcher
    gate: type[Gate] = Gate
    cache: type[GateIdempotencyCache[InFlightCaller]] = CountedCache


def config_of(plan: Plan) -> IdempotencyConfig:
    return IdempotencyConfig(
        committed_ttl_seconds=plan.committed_ttl,
        rejected_ttl_seconds=plan.rejected_ttl,
        max_entries=plan.max_entries,
        wait_for_pending=plan.wait_for_pending,
        pending_wait_timeout=plan.wait_timeout,
    )


def lose(reply: Reply) -> None:
    if not reply.done():
        reply.set_result(None)
