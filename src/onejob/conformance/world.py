"""The environment of the tests (store, engines, time), and helpers to execute commands and read facts."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from onejob.core.command import Command
from onejob.core.facts import Attachment, AttachmentKind, Fact, Kind
from onejob.core.replies import AnyReply, Reply
from onejob.engine import PAGE_MAX, Engine, ListAttachments, ListFacts

from .commands import FactsRead, read_facts
from .samples import OTHER, TENANT, a_policy

R = TypeVar("R", bound=Reply)


class World:
    """One fresh store, engines on it, and control over time."""

    def __init__(
        self, open_engine: Callable[[], Awaitable[Engine]], *, advance: Callable[[int], Awaitable[None] | None]
    ) -> None:
        self._open_engine = open_engine
        self._advance = advance
        self._engines: list[Engine] = []

    @property
    def engine(self) -> Engine:
        return self._engines[0]

    async def open_another(self) -> Engine:
        """Open another engine on the same store, as another process would."""
        engine = await self._open_engine()
        self._engines.append(engine)
        return engine

    async def advance(self, ms: int) -> None:
        result = self._advance(ms)
        if result is not None:
            await result

    async def __aenter__(self) -> Self:
        await self.open_another()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for engine in reversed(self._engines):
            await engine.aclose()


async def expect(engine: Engine, command: Command[Any], kind: type[R]) -> R:
    """Execute one command and assert the type of its reply."""
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
    return [attachment.data for attachment in (await engine.scan(query)).items]


async def dump_store(engine: Engine) -> list[Fact | Attachment]:
    """All facts and attachments of the suite's tenants, in a fixed order."""
    found: list[Fact | Attachment] = []
    for tenant in (TENANT, OTHER):
        for kind in Kind:
            found += await list_facts(engine, kind, tenant)
        for job in await list_facts(engine, Kind.JOB, tenant):
            for attachment_kind in AttachmentKind:
                query = ListAttachments(tenant=tenant, job_id=job.id, kind=attachment_kind, limit=PAGE_MAX)
                found += (await engine.scan(query)).items
    return found


async def read_time(engine: Engine) -> int:
    """The engine's time in milliseconds."""
    return (await expect(engine, read_facts(a_policy("none")), FactsRead)).at


async def race(engines: Sequence[Engine], commands: Sequence[Command[Any]]) -> list[AnyReply]:
    """Execute each command in a call of its own, all at once, spread over the engines."""
    calls = (engines[n % len(engines)].execute([command]) for n, command in enumerate(commands))
    return [reply for (reply,) in await asyncio.gather(*calls)]


def count_replies(replies: Sequence[object], kind: type[Reply]) -> int:
    return sum(isinstance(reply, kind) for reply in replies)
