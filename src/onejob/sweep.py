"""Hygiene: proposes what looks due and lets each decision judge for itself. Several may sweep at once."""

from msgspec import Struct

from .core.ending import RETENTION_MS
from .core.facts import Fact, Job, Kind, Record
from .core.receipt import Tended
from .core.upkeep import Expire, Tend
from .engine import Due, Engine

PAGE = 500
ROUNDS_MAX = 200


class Swept(Struct, frozen=True):
    records: int = 0
    jobs: int = 0


class Sweeper:
    def __init__(self, engine: Engine, *, retention_ms: int = RETENTION_MS) -> None:
        self._engine = engine
        self._retention_ms = retention_ms

    async def sweep(self) -> Swept:
        """Expired records, lapsed leases, abandoned preparations, jobs past their retention."""
        return Swept(await self._sweep(Kind.RECORD), await self._sweep(Kind.JOB))

    async def _sweep(self, kind: Kind) -> int:
        total = 0
        for _ in range(ROUNDS_MAX):
            page = await self._engine.scan(Due(kind=kind, limit=PAGE))
            if not page.items:
                break
            replies = await self._engine.execute([self._proposal(fact) for fact in page.items])
            changed = sum(isinstance(reply, Tended) and reply.changed for reply in replies)
            total += changed
            if not page.more or not changed:
                break
        return total

    def _proposal(self, fact: Fact) -> Expire | Tend:
        match fact:
            case Record():
                return Expire(tenant=fact.tenant, record_id=fact.id)
            case Job():
                return Tend(tenant=fact.tenant, job_id=fact.id, retention_ms=self._retention_ms)
        raise TypeError(f"nothing is ever due with a {type(fact).__name__}")
