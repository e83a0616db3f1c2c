"""Hygiene: proposes what looks due and lets each decision judge for itself. Several may sweep at once."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import astuple

from .census import reconcile_usage
from .core.ending import RETENTION_MS
from .core.facts import Job, Kind, Record, Stream
from .core.receipt import Maintained
from .core.sequence import Evict
from .core.upkeep import Expire, Maintain, MaintenanceItem, due_sort_key
from .engine import Engine, ListDueFacts

SWEEP_PAGE_SIZE = 500
SWEEP_ROUNDS_MAX = 200
_START_CURSOR = (0, b"")


class SweepResult(Struct, frozen=True):
    records: int = 0
    jobs: int = 0
    streams: int = 0
    usages: int = 0
    drift: int = 0  # of tallies against their jobs: a defect, mended

    def plus(self, other: "SweepResult") -> "SweepResult":
        return SweepResult(*(mine + more for mine, more in zip(astuple(self), astuple(other), strict=True)))


class Sweeper:
    def __init__(self, engine: Engine, *, retention_ms: int = RETENTION_MS) -> None:
        self._engine = engine
        self._retention_ms = retention_ms
        self._cursors: dict[Kind, tuple[int, bytes]] = {}

    async def sweep(self) -> SweepResult:
        """Expired records, lapsed leases, abandoned preparations, jobs past their retention, idle streams, tallies."""
        records, jobs = await self._sweep_kind(Kind.RECORD), await self._sweep_kind(Kind.JOB)
        streams = await self._sweep_kind(Kind.STREAM)
        return SweepResult(records, jobs, streams, *await reconcile_usage(self._engine))

    async def _sweep_kind(self, kind: Kind) -> int:
        """Go on behind what was proposed, changed or not; what must stay as it is blocks nothing behind it."""
        total = 0
        for _ in range(SWEEP_ROUNDS_MAX):
            page = await self._engine.scan(
                ListDueFacts(kind=kind, after=self._cursors.get(kind, _START_CURSOR), limit=SWEEP_PAGE_SIZE)
            )
            if page.items:
                proposals = [self._build_command(fact) for fact in _in_key_order(page.items)]
                replies = await self._engine.execute(proposals)
                total += sum(isinstance(reply, Maintained) and reply.changed for reply in replies)
            if not page.more:
                self._cursors.pop(kind, None)
                break
            # Where the next sweep begins if this one ends here.
            self._cursors[kind] = due_sort_key(page.items[-1])
        return total

    def _build_command(self, fact: MaintenanceItem) -> Expire | Maintain | Evict:
        match fact:
            case Record():
                return Expire(tenant=fact.tenant, record_id=fact.id)
            case Job():
                return Maintain(tenant=fact.tenant, job_id=fact.id, retention_ms=self._retention_ms)
            case Stream():
                return Evict(tenant=fact.tenant, stream_id=fact.id)
        raise TypeError(f"nothing is ever due with a {type(fact).__name__}")


def _in_key_order(facts: Sequence[MaintenanceItem]) -> Sequence[MaintenanceItem]:
    """Streams are evicted in one order, so that replicas of a log propose alike."""
    return sorted(facts, key=lambda fact: fact.id) if isinstance(facts[0], Stream) else facts
