"""What all callers of one opened ledger share: the engine behind its gate, and the upkeep that runs beside."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

from .clock import Clock
from .core.ending import RETENTION_MS
from .core.facts import Kind
from .core.receipt import Tended
from .core.upkeep import Purge
from .engine import Engine, Listing
from .engines.cache import CacheStats
from .engines.combine import Load, combined
from .engines.gate import Gate
from .errors import OnejobError, Unavailable
from .ids import Ids
from .settings import IdempotencyConfig
from .sweep import Sweeper, Swept
from .tail import Tail

_CHUNK = 500
_PURGE_PASSES_MAX = 10

log = logging.getLogger("onejob")


class Vitals(Struct, frozen=True):
    """What a ledger runs with, what it counted since it was opened, what it holds right now."""

    engine: str
    caveat: str  # what the declared durability does not cover, in a line; empty: nothing
    config: IdempotencyConfig
    outcomes: Mapping[str, int]
    gate: CacheStats
    queues: Mapping[str, Load]
    swept: Swept
    upkeep_failures: int


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
        self.gate = Gate(combined(engine), config, clock.monotonic)
        self.tail = Tail(self.gate)
        self.ids = ids
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

    def start_upkeep(self) -> None:
        self._upkeep = asyncio.get_running_loop().create_task(self._keep_up())

    async def sweep(self) -> Swept:
        self.gate.cache.clean()
        await self.flush_hits()
        swept = await self._sweeper.sweep()
        self._swept = Swept(self._swept.records + swept.records, self._swept.jobs + swept.jobs)
        return swept

    def vitals(self) -> Vitals:
        return Vitals(
            engine=self._engine_name,
            caveat=getattr(self._engine, "caveat", ""),
            config=self._config,
            outcomes=dict(self.gate.outcomes),
            gate=self.gate.stats(),
            queues=self.gate.loads(),
            swept=self._swept,
            upkeep_failures=self._upkeep_failures,
        )

    async def flush_hits(self, *record_ids: bytes) -> None:
        """Write down the hits of these records, or of all; a few at a time, so that submissions come through."""
        hits = self.gate.take_hits(*record_ids)
        for start in range(0, len(hits), _CHUNK):
            await self.gate.execute(hits[start : start + _CHUNK])

    async def purge(self, tenant: str) -> int:
        """Erase a tenant's facts, again and again until there is nothing left, for others may be submitting."""
        total = 0
        for _ in range(_PURGE_PASSES_MAX):
            erased = sum([await self._purge(tenant, kind) for kind in Kind])
            if not erased:
                return total
            total += erased
        raise Unavailable("the tenant is still being used; revoke its credentials, then repeat")

    async def _purge(self, tenant: str, kind: Kind) -> int:
        """One pass. Records take their jobs along, so that no key is left without its job."""
        total, after = 0, b""
        while True:
            page = await self.gate.scan(Listing(tenant=tenant, kind=kind, after=after, limit=_CHUNK))
            ids = [fact.id for fact in page.items]
            if ids:
                replies = await self.gate.execute(_erasures(tenant, kind, ids))
                total += sum(isinstance(reply, Tended) and reply.changed for reply in replies)
                after = ids[-1]
            if not page.more:
                return total

    async def aclose(self) -> None:
        self.tail.close()
        if self._upkeep is not None:
            self._upkeep.cancel()
            with suppress(asyncio.CancelledError):
                await self._upkeep
        try:
            with suppress(OnejobError):  # some hits may stay uncounted; keys and jobs are safe
                await self.flush_hits()
        finally:
            await self.gate.aclose()

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(self._config.cleanup_interval_seconds)
            try:
                await self.sweep()
            except OnejobError as error:
                self._upkeep_failures += 1
                log.warning("upkeep was put off: %s", error)
            except Exception:
                self._upkeep_failures += 1
                log.exception("upkeep failed")


def _erasures(tenant: str, kind: Kind, ids: Sequence[bytes]) -> list[Purge]:
    match kind:
        case Kind.RECORD:
            return [Purge(tenant=tenant, record_id=id) for id in ids]
        case Kind.JOB:
            return [Purge(tenant=tenant, job_ids=(id,)) for id in ids]
        case Kind.STREAM:
            return [Purge(tenant=tenant, stream_id=id) for id in ids]
        case Kind.TALLY:
            return [Purge(tenant=tenant, tally_id=id) for id in ids]
        case Kind.POLICY:
            return [Purge(tenant=tenant, policy_id=id) for id in ids]
