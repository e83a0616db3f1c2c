"""Hygiene: proposes what looks due and lets each decision judge for itself. Several may sweep at once."""

from msgspec import Struct

from .core.ending import RETENTION_MS
from .core.facts import Job, Kind, Record
from .core.receipt import Tended
from .core.upkeep import Expire, Tend, Upkept, due_place
from .engine import Due, Engine

PAGE = 500
ROUNDS_MAX = 200
_BEGINNING = (0, b"")


class Swept(Struct, frozen=True):
    records: int = 0
    jobs: int = 0


class Sweeper:
    def __init__(self, engine: Engine, *, retention_ms: int = RETENTION_MS) -> None:
        self._engine = engine
        self._retention_ms = retention_ms
        self._places: dict[Kind, tuple[int, bytes]] = {}

    async def sweep(self) -> Swept:
        """Expired records, lapsed leases, abandoned preparations, jobs past their retention."""
        return Swept(await self._sweep(Kind.RECORD), await self._sweep(Kind.JOB))

    async def _sweep(self, kind: Kind) -> int:
        """Go on behind what was proposed, changed or not; what must stay as it is blocks nothing behind it."""
        total = 0
        for _ in range(ROUNDS_MAX):
            page = await self._engine.scan(
                Due(kind=kind, after=self._places.get(kind, _BEGINNING), limit=PAGE)
            )
            if page.items:
                replies = await self._engine.execute([self._proposal(fact) for fact in page.items])
                total += sum(isinstance(reply, Tended) and reply.changed for reply in replies)
            if not page.more:
                self._places.pop(kind, None)
                break
            self._places[kind] = due_place(
                page.items[-1]
            )  # where the next sweep begins if this one ends here
        return total

    def _proposal(self, fact: Upkept) -> Expire | Tend:
        match fact:
            case Record():
                return Expire(tenant=fact.tenant, record_id=fact.id)
            case Job():
                return Tend(tenant=fact.tenant, job_id=fact.id, retention_ms=self._retention_ms)
        raise TypeError(f"nothing is ever due with a {type(fact).__name__}")
