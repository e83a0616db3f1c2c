"""Claiming: what is ready is found by looking, and decided by one compare-and-set for each job.

Tenants with work are taken in turn, so that one with a million jobs keeps nobody from theirs. Inputs are read
before the claim, for after it a job that cannot be run here would be held in vain.

Whoever names its holder gets what it won before and still holds, so a lost answer loses no job.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any
from zlib import crc32

from msgspec import Struct

from .core.facts import Job
from .core.receipt import AnyReply, Claimed, Refused, Started
from .core.states import JobState
from .core.work import Claim, Release
from .engine import PAGE_MAX, Held, Inputs, Ready, Waiting
from .engines.gate import Gate
from .errors import Unknown
from .ids import Ids
from .lookout import Lookout

CLAIM_MAX = 100  # at once
TENANTS_MAX = 8  # looked at for one claim
ROUNDS_MAX = 3
CROWD_SPREAD = 6  # so many times what is wanted, where others want the same
INPUTS_BYTES_MAX = 8 << 20  # taken at once; whoever gets fewer jobs than it asked for asks again
UNKNOWN_ATTEMPTS_MAX = 5
_UNKNOWN_PAUSE = 0.1


async def _nothing() -> None:
    pass


class Wanted(Struct, frozen=True, kw_only=True):
    """What somebody would run. The holder is drawn once for each intention to claim."""

    types: tuple[str, ...]
    holder: bytes
    limit: int = 1
    lease_ms: int
    start: bool = False
    tenant: str | None = None  # None: of any
    named: bool = False  # by the caller, so something may be held under it


class Taken(Struct, frozen=True):
    """A job that was claimed, as it is now, and what it is to be run with."""

    job: Job
    input: bytes
    at: int  # the engine's time


class Claims:
    """One for all who claim in a process."""

    def __init__(self, gate: Gate, ids: Ids) -> None:
        self._gate = gate
        self._ids = ids
        self._last = ""  # the tenant that was served last
        self._many = False  # more tenants have work than one page tells
        self._crowded = False  # somebody else took what was wanted here
        self._giving_back: set[asyncio.Task[None]] = set()
        self.lookout = Lookout(gate, ids)

    async def claim(self, wanted: Wanted) -> list[Taken]:
        """Up to so many jobs. Whoever goes away meanwhile holds nothing: what was taken for it is handed back.

        Not so under a named holder, whose retry may have been told of them already.
        """
        return await self._safely(wanted, self._claim(wanted))

    async def look(self, wanted: Wanted, most: int) -> tuple[list[Job], dict[bytes, bytes]]:
        """Jobs that may be claimed, and their inputs."""
        found = (await self._candidates(wanted, most))[:most]
        inputs = await self._inputs(found) if found else {}
        return list(_fitting(found, inputs)), inputs

    async def claim_these(
        self, wanted: Wanted, found: Sequence[Job], inputs: dict[bytes, bytes]
    ) -> list[Taken]:
        """`claim`, of jobs that were found before."""
        return await self._safely(wanted, self._take_these(wanted, found, inputs))

    async def _safely(self, wanted: Wanted, work: Coroutine[Any, Any, list[Taken]]) -> list[Taken]:
        claiming = asyncio.get_running_loop().create_task(work)
        try:
            taken = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            if wanted.named:
                claiming.add_done_callback(_ended)
            else:
                self._give_back(claiming, wanted)
            raise
        if taken:
            self.lookout.found(wanted.types, wanted.tenant)
        return taken

    async def claim_in_time(
        self, wanted: Wanted, seconds: float, *, again: Callable[[], Awaitable[None]] = _nothing
    ) -> list[Taken]:
        """`claim`, which waits so long for something to claim; `again` may object, whenever it has waited."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while True:
            ear = self.lookout.listen(wanted.types, wanted.tenant)
            try:
                taken = await self.claim(wanted)
                left = until - loop.time()
                if taken or left <= 0 or self.lookout.closed:
                    return taken
                await ear.wait(left)
                await again()
            finally:
                ear.close()

    def close(self) -> None:
        self.lookout.close()

    async def _claim(self, wanted: Wanted) -> list[Taken]:
        if wanted.named and wanted.tenant is not None and (held := await self._held(wanted, wanted.tenant)):
            return held
        taken: list[Taken] = []
        tried: set[bytes] = set()
        for _ in range(ROUNDS_MAX):
            room = wanted.limit - len(taken)
            found = [job for job in await self._candidates(wanted, room) if job.id not in tried][:room]
            if not found:
                break
            tried.update(job.id for job in found)
            more, self._crowded, full = await self._take(wanted, found)
            taken += more
            # Where others take the same jobs, look for more of them, in an order of one's own.
            if not self._crowded or full:
                break
        return taken

    async def _held(self, wanted: Wanted, tenant: str) -> list[Taken]:
        page = await self._gate.scan(Held(tenant=tenant, holder=wanted.holder, limit=wanted.limit))
        # What was started since is known to its holder: only the answer of its own verb can be lost.
        mine = [job for job in page.items if wanted.start or job.state is not JobState.RUNNING]
        return (await self._take(wanted, mine))[0] if mine else []

    async def _take(self, wanted: Wanted, found: Sequence[Job]) -> tuple[list[Taken], bool, bool]:
        """What was won of these, whether somebody was faster, and whether not all were tried, for their size."""
        inputs = await self._inputs(found)
        fitting = list(_fitting(found, inputs))
        won, crowded = await self._won(wanted, fitting, inputs)
        return won, crowded, len(fitting) < len(found)

    async def _take_these(
        self, wanted: Wanted, found: Sequence[Job], inputs: dict[bytes, bytes]
    ) -> list[Taken]:
        won, self._crowded = await self._won(wanted, found, inputs)
        return won

    async def _won(
        self, wanted: Wanted, fitting: Sequence[Job], inputs: dict[bytes, bytes]
    ) -> tuple[list[Taken], bool]:
        replies = await self._decided(
            [
                Claim(
                    tenant=job.tenant,
                    job_id=job.id,
                    holder=wanted.holder,
                    lease_ms=wanted.lease_ms,
                    start=wanted.start,
                )
                for job in fitting
            ]
        )
        won = [
            Taken(reply.job, inputs.get(job.id, b"null"), reply.at)
            for job, reply in zip(fitting, replies, strict=True)
            if isinstance(reply, Claimed) or (isinstance(reply, Started) and wanted.start)
        ]
        return won, any(isinstance(reply, Refused) for reply in replies)

    async def _candidates(self, wanted: Wanted, room: int) -> list[Job]:
        """The most urgent jobs of some tenants, one of each in turn."""
        tenants = [wanted.tenant] if wanted.tenant is not None else await self._tenants(wanted.types)
        if not tenants:
            return []
        share = -(-room // len(tenants)) * (CROWD_SPREAD if self._crowded else 1)
        limit = min(share, PAGE_MAX)
        pages = await asyncio.gather(
            *(self._gate.scan(Ready(types=wanted.types, tenant=tenant, limit=limit)) for tenant in tenants)
        )
        jobs = [self._shuffled(page.items) if self._crowded else page.items for page in pages]
        if wanted.tenant is None:
            self._last = tenants[-1]
        return [job for row in zip_longest(*jobs) for job in row if job is not None]

    async def _tenants(self, types: tuple[str, ...]) -> list[str]:
        """The next few that have something ready, from the one after the last on."""
        page = await self._gate.scan(Waiting(types=types, after=self._last if self._many else ""))
        if self._many and not page.more:  # the end of the round
            begin = await self._gate.scan(Waiting(types=types))
            ready = [one.tenant for one in (*page.items, *begin.items) if not one.wait_ms]
            self._many = begin.more
            return list(dict.fromkeys(ready))[:TENANTS_MAX]
        self._many = page.more
        ready = [one.tenant for one in page.items if not one.wait_ms]
        later = [tenant for tenant in ready if tenant > self._last]
        return [*later, *(tenant for tenant in ready if tenant <= self._last)][:TENANTS_MAX]

    def _shuffled(self, jobs: Sequence[Job]) -> list[Job]:
        """Among equals in an order that no other process has."""
        seed = int.from_bytes(self._ids.holder()[:4], "big")
        return sorted(jobs, key=lambda job: (-job.priority, crc32(job.id, seed)))

    async def _inputs(self, jobs: Iterable[Job]) -> dict[bytes, bytes]:
        ids = tuple(job.id for job in jobs)
        page = await self._gate.scan(Inputs(job_ids=ids, limit=max(len(ids), 1)))
        return {add.job_id: add.data for add in page.items}

    async def _decided(self, claims: list[Claim]) -> list[AnyReply | BaseException]:
        """Each claim's reply. One that may be done is repeated, for the same holder gets the same answer."""
        replies = await self._gate.results(claims)
        for attempt in range(UNKNOWN_ATTEMPTS_MAX):
            doubtful = [n for n, reply in enumerate(replies) if isinstance(reply, Unknown)]
            if not doubtful:
                break
            await asyncio.sleep(_UNKNOWN_PAUSE * 2**attempt)
            again = await self._gate.results([claims[n] for n in doubtful])
            for n, reply in zip(doubtful, again, strict=True):
                replies[n] = reply if not isinstance(reply, Exception) else replies[n]
        failures = [reply for reply in replies if isinstance(reply, BaseException)]
        if len(failures) == len(replies):
            raise failures[0]
        return replies

    def _give_back(self, claiming: "asyncio.Task[list[Taken]]", wanted: Wanted) -> None:
        async def give_back() -> None:
            taken = await claiming
            await self._gate.results(
                [
                    Release(
                        tenant=one.job.tenant, job_id=one.job.id, token=one.job.token, holder=wanted.holder
                    )
                    for one in taken
                ]
            )

        task = asyncio.get_running_loop().create_task(give_back())
        self._giving_back.add(task)
        task.add_done_callback(_ended)
        task.add_done_callback(self._giving_back.discard)


def _fitting(jobs: Iterable[Job], inputs: dict[bytes, bytes]) -> Iterator[Job]:
    """The first of them, as many as have their inputs within the bound; one at least."""
    size = 0
    for n, job in enumerate(jobs):
        size += len(inputs.get(job.id, b""))
        if n and size > INPUTS_BYTES_MAX:
            return
        yield job


def _ended(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()  # where it failed, the lease ends by itself
