"""Hygiene: proposes what looks due and lets each decision judge for itself. Several may sweep at once."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import astuple

from .census import take_census
from .core.ending import RETENTION_MS
from .core.facts import Job, Kind, Record, Stream
from .core.receipt import Tended
from .core.sequence import Evict
from .core.upkeep import Expire, Tend, Upkept, due_place
from .engine import Due, Engine

PAGE = 500
ROUNDS_MAX = 200
_BEGINNING = (0, b"")


class Swept(Struct, frozen=True):
    records: int = 0
    jobs: int = 0
    streams: int = 0
    tallies: int = 0
    drift: int = 0  # of tallies against their jobs: a defect, mended

    def plus(self, other: "Swept") -> "Swept":
        return Swept(*(mine + more for mine, more in zip(astuple(self), astuple(other), strict=True)))


class Sweeper:
    def __init__(self, engine: Engine, *, retention_ms: int = RETENTION_MS) -> None:
        self._engine = engine
        self._retention_ms = retention_ms
        self._places: dict[Kind, tuple[int, bytes]] = {}

    async def sweep(self) -> Swept:
        """Expired records, lapsed leases, abandoned preparations, jobs past their retention, idle streams, tallies."""
        records, jobs = await self._sweep(Kind.RECORD), await self._sweep(Kind.JOB)
        streams = await self._sweep(Kind.STREAM)
        return Swept(records, jobs, streams, *await take_census(self._engine))

    async def _sweep(self, kind: Kind) -> int:
        """Go on behind what was proposed, changed or not; what must stay as it is blocks nothing behind it."""
        total = 0
        for _ in range(ROUNDS_MAX):
            page = await self._engine.scan(
                Due(kind=kind, after=self._places.get(kind, _BEGINNING), limit=PAGE)
            )
            if page.items:
                proposals = [self._proposal(fact) for fact in _in_key_order(page.items)]
                replies = await self._engine.execute(proposals)
                total += sum(isinstance(reply, Tended) and reply.changed for reply in replies)
            if not page.more:
                self._places.pop(kind, None)
                break
            # Where the next sweep begins if this one ends here.
            self._places[kind] = due_place(page.items[-1])
        return total

    def _proposal(self, fact: Upkept) -> Expire | Tend | Evict:
        match fact:
            case Record():
                return Expire(tenant=fact.tenant, record_id=fact.id)
            case Job():
                return Tend(tenant=fact.tenant, job_id=fact.id, retention_ms=self._retention_ms)
            case Stream():
                return Evict(tenant=fact.tenant, stream_id=fact.id)
        raise TypeError(f"nothing is ever due with a {type(fact).__name__}")


def _in_key_order(facts: Sequence[Upkept]) -> Sequence[Upkept]:
    """Streams are evicted in one order, so that replicas of a log propose alike."""
    return sorted(facts, key=lambda fact: fact.id) if isinstance(facts[0], Stream) else facts
