"""Handing jobs to whoever asks for some: candidates by a scan, decided by claims in one batch."""

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from .core.facts import Beside, Job
from .core.receipt import AnyReply, Claimed, Started
from .core.states import JobState
from .core.work import Claim
from .engine import PAGE_MAX, Attachments, Engine, Held, Ready

ROUNDS_MAX = 3
# Inputs in one answer; whoever gets fewer jobs than it asked for asks again.
ANSWER_BYTES_MAX = 8 << 20
_PAGE = 100


class Wish(Struct, frozen=True, kw_only=True):
    """One wish for jobs. Repeated with its holder it is the same wish, and gets the same jobs."""

    tenant: str
    types: tuple[str, ...]
    limit: int
    holder: bytes
    lease_ms: int
    start: bool = False  # begin to run them in the same step
    named: bool = True  # False: the holder was just drawn, so nothing can be held under it


class Handed(Struct, frozen=True):
    """A job that is yours until its lease ends."""

    job: Job
    input: bytes


async def handed(engine: Engine, wish: Wish) -> list[Handed]:
    """What the wish has won before and still holds, else ready jobs, most urgent first; perhaps none."""
    if wish.named and (held := await _held(engine, wish)):
        return held
    for _ in range(ROUNDS_MAX):
        candidates = await ready(engine, wish.tenant, wish.types, wish.limit)
        won = await _won(engine, wish, candidates) if candidates else []
        if won or not candidates:
            return won
    return []  # others were faster each time


async def ready(engine: Engine, tenant: str, types: tuple[str, ...], limit: int) -> list[Job]:
    """Jobs of a tenant that could be claimed."""
    own: list[Job] = []
    for size in (min(limit + _PAGE, PAGE_MAX), PAGE_MAX):
        page = await engine.scan(Ready(types=types, limit=size))
        own = [job for job in page.items if job.tenant == tenant][:limit]
        if len(own) == limit or not page.more:
            break
    return own


async def _held(engine: Engine, wish: Wish) -> list[Handed]:
    page = await engine.scan(Held(tenant=wish.tenant, holder=wish.holder, limit=wish.limit))
    # What was started since is known to its holder: only the answer of its own verb can be lost.
    mine = [job for job in page.items if wish.start or job.state is not JobState.RUNNING]
    return await _won(engine, wish, mine) if mine else []


async def _won(engine: Engine, wish: Wish, candidates: Sequence[Job]) -> list[Handed]:
    # Inputs never change, so they are read first: what does not fit into the answer is not claimed.
    inputs = await asyncio.gather(*(_input(engine, job) for job in candidates))
    fitting, size = 0, 0
    for data in inputs:
        size += len(data)
        if fitting and size > ANSWER_BYTES_MAX:
            break
        fitting += 1
    claims = [
        Claim(tenant=wish.tenant, job_id=job.id, holder=wish.holder, lease_ms=wish.lease_ms, start=wish.start)
        for job in candidates[:fitting]
    ]
    replies = await engine.execute(claims)
    return [
        Handed(reply.job, data)
        for reply, data in zip(replies, inputs, strict=False)
        if _is_won(reply, wish) and isinstance(reply, (Claimed, Started))
    ]


def _is_won(reply: AnyReply, wish: Wish) -> bool:
    return isinstance(reply, Claimed) or (wish.start and isinstance(reply, Started))


async def _input(engine: Engine, job: Job) -> bytes:
    query = Attachments(tenant=job.tenant, job_id=job.id, beside=Beside.INPUT, limit=1)
    page = await engine.scan(query)
    return page.items[0].data if page.items else b"null"
