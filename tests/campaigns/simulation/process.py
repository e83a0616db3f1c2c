"""A simulated process: the real gate and batcher on an engine of the simulated store, until it crashes."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from onejob.core.replies import AnyReply, Created, Rejected, Replayed
from onejob.core.submit import SubmissionCommand
from onejob.engines.batcher import Batcher
from onejob.engines.gate import Gate, GateIdempotencyCache
from onejob.settings import IdempotencyConfig

from .loop import Owner
from .plan import Plan
from .store import SimEngine, SimStore

CallResults = list[AnyReply | BaseException]
PendingReply = asyncio.Future[CallResults | None]

RESET_SECONDS = 0.01  # until a client notices that its connection was reset


class Process(Owner):
    """A crash loses its memory; what it has sent to the store still arrives."""

    def __init__(self, store: SimStore, plan: Plan, rng: Random, components: "Components") -> None:
        super().__init__()
        self.store = store
        self.loop = store.loop
        self.plan = plan
        self.in_flight: dict[PendingReply, asyncio.Task[None]] = {}
        self.wrongly_cancelled: list[PendingReply] = []  # callers that were cancelled although they did not disconnect
        self._hung_up: set[PendingReply] = set()
        config = config_of(plan)
        rate = 1 + store.faults.drift * (2 * rng.random() - 1)
        offset = 1e5 * rng.random()
        self.engine = components.engine(store, plan.batch_max)
        self.engine.skew_ms = rng.randrange(-5000, 5000)
        self.batcher = components.batcher(self.engine, queue_max=plan.queue_max)
        self.gate = components.gate(self.batcher, config, lambda: offset + rate * self.loop.time())
        self.gate.cache = components.cache(config, self.gate._monotonic)
        if isinstance(self.gate.cache, CountingCache):
            self.gate.cache.on_eviction = self._count_eviction

    def receive(self, work: Callable[[Gate], Awaitable[CallResults]], reply: PendingReply) -> None:
        """A call arrives over the network."""
        self.in_flight[reply] = self.context.run(self.loop.create_task, self._serve(work, reply))
        if self.store.fault_occurs("hang_up"):
            self.loop.call_later(self.store.rng.random(), self._hang_up, reply, context=self.context)

    def crash(self) -> None:
        self.dead = True
        for reply in self.in_flight:
            self.loop.call_later(RESET_SECONDS, drop_reply, reply, context=self.store.context)

    def close(self) -> None:
        """Shut down gracefully: refuse new calls, answer those in flight."""
        self.context.run(self.loop.create_task, self.gate.aclose())

    def is_busy(self) -> bool:
        # A task that is cancelled before its first step never removes itself.
        return not self.dead and any(not task.done() for task in self.in_flight.values())

    async def _serve(self, work: Callable[[Gate], Awaitable[CallResults]], reply: PendingReply) -> None:
        try:
            results = await work(self.gate)
        except Exception as error:  # noqa: BLE001 - the caller checks it
            results = [error]
        except asyncio.CancelledError:
            if reply not in self._hung_up:
                self.wrongly_cancelled.append(reply)
            raise
        finally:
            del self.in_flight[reply]
        if not reply.done() and not self.store.fault_occurs("wire_lost"):
            reply.set_result(results)

    def _hang_up(self, reply: PendingReply) -> None:
        if reply in self.in_flight:
            self._hung_up.add(reply)
            self.in_flight[reply].cancel()

    def _count_eviction(self) -> None:
        self.store.counts["evicted"] += 1


class CountingCache(GateIdempotencyCache):
    """The real cache, with counted evictions."""

    on_eviction: Callable[[], None]

    def remember(self, command: SubmissionCommand, reply: Created | Replayed | Rejected, sent_at: float) -> None:
        fresh = command.record_id not in self._receipts
        full = len(self._receipts) >= self._config.max_entries
        super().remember(command, reply, sent_at)
        if fresh and full:
            self.on_eviction()


class Components:
    """The parts of a process; a mutant replaces some of them."""

    store: type[SimStore] = SimStore
    engine: type[SimEngine] = SimEngine
    batcher: type[Batcher] = Batcher
    gate: type[Gate] = Gate
    cache: type[GateIdempotencyCache] = CountingCache


def config_of(plan: Plan) -> IdempotencyConfig:
    return IdempotencyConfig(
        committed_ttl_seconds=plan.committed_ttl,
        rejected_ttl_seconds=plan.rejected_ttl,
        max_entries=plan.max_entries,
        wait_for_pending=plan.wait_for_pending,
        pending_wait_timeout=plan.wait_timeout,
    )


def drop_reply(reply: PendingReply) -> None:
    if not reply.done():
        reply.set_result(None)
