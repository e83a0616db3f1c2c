"""The ledger: the front door in Python, with one file per group of verbs."""

from types import TracebackType
from typing import Self

from onejob.core.identity import Actor, checked_name
from onejob.engine import Durability
from onejob.engines.receipts import CacheStats

from .parse import Caller
from .quotas import QuotaOperations
from .reads import ReadOperations
from .reservations import HeldKeyOperations
from .runtime import Stats
from .sequences import SequenceOperations
from .submissions import SubmissionOperations
from .wakeups import Waiters
from .watch import JobWatcher
from .work import WorkOperations


class Ledger(
    SubmissionOperations, HeldKeyOperations, SequenceOperations, ReadOperations, QuotaOperations, WorkOperations
):
    """A caller's view of an engine; `onejob.open` returns one. What is not a result is raised."""

    def acting_as(self, *, tenant: str, user: str, actor: Actor, owns_keys: bool = False) -> "Ledger":
        """The same ledger for another caller. Closing the one that was opened closes both."""
        names = checked_name("tenant", tenant), checked_name("user", user)
        return self.for_caller(Caller(*names, str(actor), owns_keys))

    def for_caller(self, caller: Caller) -> "Ledger":
        return self if caller == self._caller else Ledger(self._runtime, caller)

    @property
    def durability(self) -> Durability:
        return self._gate.info.durability

    @property
    def job_watcher(self) -> JobWatcher:
        """Keeps watched jobs up to date; all ledgers of the process share it."""
        return self._runtime.job_watcher

    @property
    def waiters(self) -> Waiters:
        """The bounded places for callers that wait for jobs; all ledgers of the process share them."""
        return self._runtime.waiters

    def cache_stats(self) -> CacheStats:
        return self._gate.stats()

    def runtime_stats(self) -> Stats:
        """Counters since this ledger was opened."""
        return self._runtime.stats()

    async def sweep(self) -> None:
        """Run now the maintenance that otherwise runs every `cleanup_interval_seconds`."""
        await self._runtime.sweep()

    async def purge(self) -> int:
        """Delete everything this tenant has; returns how many facts. Revoke its credentials first."""
        return await self._runtime.purge(self._caller)

    async def aclose(self) -> None:
        await self._runtime.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
