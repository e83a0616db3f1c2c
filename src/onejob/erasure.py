"""Erasing a tenant: fact by fact, each by a decision of its own, until nothing is left."""

from collections.abc import Sequence

from .core.facts import Kind
from .core.receipt import Tended
from .core.upkeep import Purge
from .engine import Engine, Listing
from .errors import Unavailable

PASSES_MAX = 10
PAGE = 500


class Erased:
    """How many facts are gone, also when it was stopped half-way."""

    def __init__(self) -> None:
        self.count = 0


async def erase(engine: Engine, tenant: str, erased: Erased) -> None:
    """Again and again until a pass finds nothing, for others may be submitting."""
    for _ in range(PASSES_MAX):
        before = erased.count
        for kind in Kind:
            await _pass(engine, tenant, kind, erased)
        if erased.count == before:
            return
    raise Unavailable("the tenant is still being used; revoke its credentials, then repeat")


async def _pass(engine: Engine, tenant: str, kind: Kind, erased: Erased) -> None:
    """Records take their jobs along, so that no key is left without its job."""
    after = b""
    while True:
        page = await engine.scan(Listing(tenant=tenant, kind=kind, after=after, limit=PAGE))
        ids = [fact.id for fact in page.items]
        if ids:
            replies = await engine.execute(_erasures(tenant, kind, ids))
            erased.count += sum(isinstance(reply, Tended) and reply.changed for reply in replies)
            after = ids[-1]
        if not page.more:
            return


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
