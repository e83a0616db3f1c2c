"""What the suite is given to work in, and how it asks."""

from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from onejob.core.command import Command
from onejob.core.facts import Attachment, AttachmentKind, Fact, Kind
from onejob.core.replies import Reply
from onejob.engine import PAGE_MAX, Engine, ListAttachments, ListFacts

from .samples import OTHER, TENANT

R = TypeVar("R", bound=Reply)


class World:
    """One fresh store, engines on it, and time in the suite's hands."""

    def __init__(
        self,
        open_engine: Callable[[], Awaitable[Engine]],
        *,
        advance: Callable[[int], Awaitable[None] | None],
    ) -> None:
        self._open_engine = open_engine
        self._advance = advance
        self._engines: list[Engine] = []

    @property
    def engine(self) -> Engine:
        return self._engines[0]

    async def open_another(self) -> Engine:
        """Another engine on the same store, as another process would have it."""
        engine = await self._open_engine()
        self._engines.append(engine)
        return engine

    async def advance(self, ms: int) -> None:
        passing = self._advance(ms)
        if passing is not None:
            await passing

    async def __aenter__(self) -> Self:
        await self.open_another()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for engine in reversed(self._engines):
            await engine.aclose()


async def expect(engine: Engine, command: Command[Any], kind: type[R]) -> R:
    """Execute one command and insist on the kind of its reply."""
    (reply,) = await engine.execute([command])
    assert isinstance(reply, kind), reply
    return reply


async def list_facts(engine: Engine, kind: Kind, tenant: str = TENANT) -> Sequence[Any]:
    page = await engine.scan(ListFacts(tenant=tenant, kind=kind, limit=PAGE_MAX))
    assert not page.more
    return page.items


async def read_attachments(
    engine: Engine, job_id: bytes, kind: AttachmentKind = AttachmentKind.INPUT, tenant: str = TENANT
) -> list[bytes]:
    query = ListAttachments(tenant=tenant, job_id=job_id, kind=kind, limit=PAGE_MAX)
    return [add.data for add in (await engine.scan(query)).items]


async def dump_store(engine: Engine) -> list[Fact | Attachment]:
    """All that is stored for the suite's tenants, in a fixed order."""
    found: list[Fact | Attachment] = []
    for tenant in (TENANT, OTHER):
        for kind in Kind:
            found += await list_facts(engine, kind, tenant)
        for job in await list_facts(engine, Kind.JOB, tenant):
            for beside in AttachmentKind:
                query = ListAttachments(tenant=tenant, job_id=job.id, kind=beside, limit=PAGE_MAX)
                found += (await engine.scan(query)).items
    return found


def count_replies(replies: Sequence[object], kind: type[Reply]) -> int:
    return sum(isinstance(reply, kind) for reply in replies)
