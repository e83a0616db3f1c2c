"""Erasing a tenant: fact by fact, each by a decision of its own, until nothing is left."""

from collections.abc import Sequence

from .core.facts import Kind
from .core.receipt import Maintained
from .core.upkeep import Purge
from .engine import Engine, ListFacts
from .errors import Unavailable

PURGE_PASSES_MAX = 10
PURGE_PAGE_SIZE = 500


class PurgeProgress:
    """How many facts are gone, also when it was stopped half-way."""

    def __init__(self) -> None:
        self.count = 0


async def purge_tenant(engine: Engine, tenant: str, progress: PurgeProgress) -> None:
    """Again and again until a pass finds nothing, for others may be submitting."""
    for _ in range(PURGE_PASSES_MAX):
        before = progress.count
        for kind in Kind:
            await _purge_kind(engine, tenant, kind, progress)
        if progress.count == before:
            return
    raise Unavailable("the tenant is still being used; revoke its credentials, then repeat")


async def _purge_kind(engine: Engine, tenant: str, kind: Kind, progress: PurgeProgress) -> None:
    """Records take their jobs along, so that no key is left without its job."""
    after = b""
    while True:
        page = await engine.scan(ListFacts(tenant=tenant, kind=kind, after=after, limit=PURGE_PAGE_SIZE))
        ids = [fact.id for fact in page.items]
        if ids:
            replies = await engine.execute(_build_purges(tenant, kind, ids))
            progress.count += sum(isinstance(reply, Maintained) and reply.changed for reply in replies)
            after = ids[-1]
        if not page.more:
            return


def _build_purges(tenant: str, kind: Kind, ids: Sequence[bytes]) -> list[Purge]:
    match kind:
        case Kind.RECORD:
            return [Purge(tenant=tenant, record_id=id) for id in ids]
        case Kind.JOB:
            return [Purge(tenant=tenant, job_ids=(id,)) for id in ids]
        case Kind.STREAM:
            return [Purge(tenant=tenant, stream_id=id) for id in ids]
        case Kind.USAGE:
            return [Purge(tenant=tenant, usage_id=id) for id in ids]
        case Kind.POLICY:
            return [Purge(tenant=tenant, policy_id=id) for id in ids]
