"""What all callers of one opened ledger share: the engine behind its gate, and the upkeep that runs beside."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from itertools import count

from msgspec import Struct

from . import audit
from .claiming import Claims
from .clock import Clock
from .core.ending import RETENTION_MS
from .engine import Engine, caveat_of
from .engines.cache import CacheStats
from .engines.combine import combined
from .engines.gate import Gate
from .engines.queues import Load
from .erasure import Erased, erase
from .errors import OnejobError
from .ids import Ids
from .intake import Caller
from .readiness import Readiness
from .settings import IdempotencyConfig
from .sweep import Sweeper, Swept
from .tail import Tail
from .waiters import Waiters

_CHUNK = 500

log = logging.getLogger("onejob")


class Vitals(Struct, frozen=True):
    """What a ledger runs with, what it counted since it was opened, what it holds right now."""

    engine: str
    caveat: str  # what the declared durability does not cover, in a line; empty: nothing
    config: IdempotencyConfig
    outcomes: Mapping[str, int]
    refusals: Mapping[str, int]
    gate: CacheStats
    queues: Mapping[str, Load]
    swept: Swept
    upkeep_failures: int


class Counts(Struct, frozen=True):
    """Of one tenant, in this process: its submissions by their answer, and its callers who wait."""

    outcomes: Mapping[str, int]
    waiting: int


class Host:
    def __init__(
        self,
        engine: Engine,
        config: IdempotencyConfig,
        *,
        clock: Clock,
        ids: Ids,
        retention_ms: int = RETENTION_MS,
    ) -> None:
        combine = self._combine = combined(engine)
        self.gate = Gate(combine, config, clock.monotonic)
        self.tail = Tail(self.gate)
        self.waiters = Waiters()
        self.readiness = Readiness(self.gate, clock.monotonic)
        self.ids = ids
        self.claims = Claims(self.gate, ids)
        combine.committed = self.claims.lookout.told
        self.retention_ms = retention_ms
        self.lease_ms = round(config.pending_ttl_seconds * 1000)
        self.rejected_ms = round(config.rejected_ttl_seconds * 1000)
        # The longest that any gate may remember: what `forget` must wait for.
        self.remembered_ms = round(max(config.committed_ttl_seconds, config.rejected_ttl_seconds) * 1000)
        self._config = config
        self._sweeper = Sweeper(self.gate, retention_ms=retention_ms)
        self._upkeep: asyncio.Task[None] | None = None
        self._engine = engine
        self._engine_name = type(engine).__name__.removesuffix("Engine").lower()
        self._swept = Swept()
        self._upkeep_failures = 0

    def expect_many(self) -> None:
        """Connections are read in this process: there is work for the loop while a batch is under way."""
        self._combine.whole = True

    def start_upkeep(self, *, turn: int = 0, turns: int = 1) -> None:
        """Processes that share a store may take turns: what is in memory each tends itself, the store one of them."""
        self._upkeep = asyncio.get_running_loop().create_task(self._keep_up(turn, turns))

    async def sweep(self) -> Swept:
        await self._tend_memory()
        swept = await self._sweeper.sweep()
        self._swept = self._swept.plus(swept)
        return swept

    def vitals(self) -> Vitals:
        return Vitals(
            engine=self._engine_name,
            caveat=caveat_of(self._engine),
            config=self._config,
            outcomes=self.gate.outcomes.total(),
            refusals=dict(self.gate.refusals),
            gate=self.gate.stats(),
            queues=self.gate.loads(),
            swept=self._swept,
            upkeep_failures=self._upkeep_failures,
        )

    def counts(self, tenant: str) -> Counts:
        """What is a tenant's own of all that."""
        return Counts(dict(self.gate.outcomes.of(tenant)), self.gate.waiting(tenant))

    async def flush_hits(self, *record_ids: bytes) -> None:
        """Write down the hits of these records, or of all; a few at a time, so that submissions come through."""
        hits = self.gate.hits.take(*record_ids)
        for start in range(0, len(hits), _CHUNK):
            await self.gate.execute(hits[start : start + _CHUNK])

    async def purge(self, caller: Caller) -> int:
        """Erase all that a caller's tenant has."""
        erased = Erased()
        try:
            await erase(self.gate, caller.tenant, erased)
        finally:  # whatever stopped it, what is gone is gone
            audit.told("purge", tenant=caller.tenant, actor=caller.actor, erased=erased.count)
        return erased.count

    def release_waiters(self) -> None:
        """Whoever waits for something that others do is told to come back: the process is about to leave."""
        self.gate.release_waiters()
        self.waiters.release()

    async def aclose(self) -> None:
        self.waiters.release()
        self.tail.close()
        self.claims.close()
        if self._upkeep is not None:
            self._upkeep.cancel()
            with suppress(asyncio.CancelledError):
                await self._upkeep
        try:
            with suppress(OnejobError):  # some hits may stay uncounted; keys and jobs are safe
                await self.flush_hits()
        finally:
            await self.gate.aclose()

    async def _tend_memory(self) -> None:
        self.gate.cache.clean()
        await self.flush_hits()

    async def _keep_up(self, turn: int, turns: int) -> None:
        for round in count():
            await asyncio.sleep(self._config.cleanup_interval_seconds)
            try:
                await (self.sweep() if round % turns == turn else self._tend_memory())
            except OnejobError as error:
                self._upkeep_failures += 1
                log.warning("upkeep was put off: %s", error)
            except Exception:
                self._upkeep_failures += 1
                log.exception("upkeep failed")
