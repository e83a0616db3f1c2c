"""The verbs of operators: `queue.admin`."""

from onejob.engines.gate import CacheStats
from onejob.resources.keys import PurgeResult
from onejob.runtime.stats import Stats

from .listings import ListingOperations
from .quotas import TenantQuotaOperations
from .schedules import ScheduleOperations


class Admin(ListingOperations, ScheduleOperations, TenantQuotaOperations):
    """What operators ask and do: counts, lists, paused types, schedules, the tenant's limits, maintenance."""

    def cache_stats(self) -> CacheStats:
        return self._gate.stats()

    def runtime_stats(self) -> Stats:
        """Counters since this ledger was opened."""
        return self._runtime.stats()

    async def sweep(self) -> None:
        """Run now the maintenance that otherwise runs every `cleanup_interval_seconds`."""
        await self._runtime.sweep()

    async def purge(self) -> PurgeResult:
        """Delete everything this tenant has; returns how many facts, and when their bytes are gone. Revoke credentials first."""
        return await self._runtime.purge(self._caller)
