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

from onejob.core.facts import Job
from onejob.core.replies import AnyReply, Claimed, Refused, Started
from onejob.core.states import JobState
from onejob.core.work import Claim, Release
from onejob.engine import PAGE_MAX, ListBacklogs, ListInputs, ListLeasedJobs, ListReadyJobs
from onejob.engines.gate import Gate
from onejob.errors import Unknown
from onejob.ids import Ids

from .wakeups import WakeupHub

CLAIM_MAX = 100  # at once
TENANTS_MAX = 8  # looked at for one claim
ROUNDS_MAX = 3
CONTENTION_SPREAD = 6  # so many times what is wanted, where others want the same
INPUTS_BYTES_MAX = 8 << 20  # taken at once; whoever gets fewer jobs than it asked for asks again
UNKNOWN_ATTEMPTS_MAX = 5
_UNKNOWN_PAUSE = 0.1


async def _do_nothing() -> None:
    pass


class ClaimRequest(Struct, frozen=True, kw_only=True):
    """What somebody would run. The holder is drawn once for each intention to claim."""

    types: tuple[str, ...]
    holder: bytes
    limit: int = 1
    lease_ms: int
    start: bool = False
    tenant: str | None = None  # None: of any
    has_named_holder: bool = False  # by the caller, so something may be held under it


class ClaimedJob(Struct, frozen=True):
    """A job that was claimed, as it is now, and what it is to be run with."""

    job: Job
    input: bytes
    at: int  # the engine's time


class Claims:
    """One for all who claim in a process."""

    def __init__(self, gate: Gate, ids: Ids) -> None:
        self._gate = gate
        self._ids = ids
        self._last_tenant = ""  # the tenant that was served last
        self._has_more_tenants = False  # more tenants have work than one page tells
        self._is_contended = False  # somebody else took what was wanted here
        self._release_tasks: set[asyncio.Task[None]] = set()
        self.wakeups = WakeupHub(gate, ids)

    async def claim(self, request: ClaimRequest) -> list[ClaimedJob]:
        """Up to so many jobs. Whoever goes away meanwhile holds nothing: what was taken for it is handed back.

        Not so under a named holder, whose retry may have been told of them already.
        """
        return await self._claim_shielded(request, self._claim(request))

    async def find_candidates(self, request: ClaimRequest, limit: int) -> tuple[list[Job], dict[bytes, bytes]]:
        """Jobs that may be claimed, and their inputs."""
        found = (await self._scan_candidates(request, limit))[:limit]
        inputs = await self._load_inputs(found) if found else {}
        return list(_limit_by_input_size(found, inputs)), inputs

    async def claim_candidates(
        self, request: ClaimRequest, candidates: Sequence[Job], inputs: dict[bytes, bytes]
    ) -> list[ClaimedJob]:
        """`claim`, of jobs that were found before."""
        return await self._claim_shielded(request, self._claim_loaded(request, candidates, inputs))

    async def _claim_shielded(
        self, request: ClaimRequest, work: Coroutine[Any, Any, list[ClaimedJob]]
    ) -> list[ClaimedJob]:
        claiming = asyncio.get_running_loop().create_task(work)
        try:
            taken = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            if request.has_named_holder:
                claiming.add_done_callback(_retrieve_exception)
            else:
                self._release_claimed(claiming, request)
            raise
        if taken:
            self.wakeups.on_claimed(request.types, request.tenant)
        return taken

    async def claim_or_wait(
        self,
        request: ClaimRequest,
        seconds: float,
        *,
        before_retry: Callable[[], Awaitable[None]] = _do_nothing,
    ) -> list[ClaimedJob]:
        """`claim`, which waits so long for something to claim; `again` may object, whenever it has waited."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while True:
            ear = self.wakeups.subscribe(request.types, request.tenant)
            try:
                taken = await self.claim(request)
                left = until - loop.time()
                if taken or left <= 0 or self.wakeups.closed:
                    return taken
                await ear.wait(left)
                await before_retry()
            finally:
                ear.close()

    def close(self) -> None:
        self.wakeups.close()

    async def _claim(self, request: ClaimRequest) -> list[ClaimedJob]:
        if (
            request.has_named_holder
            and request.tenant is not None
            and (held := await self._reclaim_held(request, request.tenant))
        ):
            return held
        taken: list[ClaimedJob] = []
        tried: set[bytes] = set()
        for _ in range(ROUNDS_MAX):
            room = request.limit - len(taken)
            found = [job for job in await self._scan_candidates(request, room) if job.id not in tried][:room]
            if not found:
                break
            tried.update(job.id for job in found)
            more, self._is_contended, full = await self._load_and_claim(request, found)
            taken += more
            # Where others take the same jobs, look for more of them, in an order of one's own.
            if not self._is_contended or full:
                break
        return taken

    async def _reclaim_held(self, request: ClaimRequest, tenant: str) -> list[ClaimedJob]:
        page = await self._gate.scan(ListLeasedJobs(tenant=tenant, holder=request.holder, limit=request.limit))
        # What was started since is known to its holder: only the answer of its own verb can be lost.
        mine = [job for job in page.items if request.start or job.state is not JobState.RUNNING]
        return (await self._load_and_claim(request, mine))[0] if mine else []

    async def _load_and_claim(
        self, request: ClaimRequest, candidates: Sequence[Job]
    ) -> tuple[list[ClaimedJob], bool, bool]:
        """What was won of these, whether somebody was faster, and whether not all were tried, for their size."""
        inputs = await self._load_inputs(candidates)
        fitting = list(_limit_by_input_size(candidates, inputs))
        won, crowded = await self._execute_claims(request, fitting, inputs)
        return won, crowded, len(fitting) < len(candidates)

    async def _claim_loaded(
        self, request: ClaimRequest, candidates: Sequence[Job], inputs: dict[bytes, bytes]
    ) -> list[ClaimedJob]:
        won, self._is_contended = await self._execute_claims(request, candidates, inputs)
        return won

    async def _execute_claims(
        self, request: ClaimRequest, candidates: Sequence[Job], inputs: dict[bytes, bytes]
    ) -> tuple[list[ClaimedJob], bool]:
        replies = await self._execute_until_known(
            [
                Claim(
                    tenant=job.tenant,
                    job_id=job.id,
                    holder=request.holder,
                    lease_ms=request.lease_ms,
                    start=request.start,
                )
                for job in candidates
            ]
        )
        won = [
            ClaimedJob(reply.job, inputs.get(job.id, b"null"), reply.at)
            for job, reply in zip(candidates, replies, strict=True)
            if isinstance(reply, Claimed) or (isinstance(reply, Started) and request.start)
        ]
        return won, any(isinstance(reply, Refused) for reply in replies)

    async def _scan_candidates(self, request: ClaimRequest, room: int) -> list[Job]:
        """The most urgent jobs of some tenants, one of each in turn."""
        tenants = [request.tenant] if request.tenant is not None else await self._next_tenants(request.types)
        if not tenants:
            return []
        share = -(-room // len(tenants)) * (CONTENTION_SPREAD if self._is_contended else 1)
        limit = min(share, PAGE_MAX)
        pages = await asyncio.gather(
            *(self._gate.scan(ListReadyJobs(types=request.types, tenant=tenant, limit=limit)) for tenant in tenants)
        )
        jobs = [self._shuffled_jobs(page.items) if self._is_contended else page.items for page in pages]
        if request.tenant is None:
            self._last_tenant = tenants[-1]
        return [job for row in zip_longest(*jobs) for job in row if job is not None]

    async def _next_tenants(self, types: tuple[str, ...]) -> list[str]:
        """The next few that have something ready, from the one after the last on."""
        page = await self._gate.scan(
            ListBacklogs(types=types, after=self._last_tenant if self._has_more_tenants else "")
        )
        if self._has_more_tenants and not page.more:  # the end of the round
            begin = await self._gate.scan(ListBacklogs(types=types))
            ready = [one.tenant for one in (*page.items, *begin.items) if not one.wait_ms]
            self._has_more_tenants = begin.more
            return list(dict.fromkeys(ready))[:TENANTS_MAX]
        self._has_more_tenants = page.more
        ready = [one.tenant for one in page.items if not one.wait_ms]
        later = [tenant for tenant in ready if tenant > self._last_tenant]
        return [*later, *(tenant for tenant in ready if tenant <= self._last_tenant)][:TENANTS_MAX]

    def _shuffled_jobs(self, jobs: Sequence[Job]) -> list[Job]:
        """Among equals in an order that no other process has."""
        seed = int.from_bytes(self._ids.holder()[:4], "big")
        return sorted(jobs, key=lambda job: (-job.priority, crc32(job.id, seed)))

    async def _load_inputs(self, jobs: Iterable[Job]) -> dict[bytes, bytes]:
        ids = tuple(job.id for job in jobs)
        page = await self._gate.scan(ListInputs(job_ids=ids, limit=max(len(ids), 1)))
        return {add.job_id: add.data for add in page.items}

    async def _execute_until_known(self, claims: list[Claim]) -> list[AnyReply | BaseException]:
        """Each claim's reply. One that may be done is repeated, for the same holder gets the same answer."""
        replies = await self._gate.execute_each(claims)
        for attempt in range(UNKNOWN_ATTEMPTS_MAX):
            doubtful = [n for n, reply in enumerate(replies) if isinstance(reply, Unknown)]
            if not doubtful:
                break
            await asyncio.sleep(_UNKNOWN_PAUSE * 2**attempt)
            again = await self._gate.execute_each([claims[n] for n in doubtful])
            for n, reply in zip(doubtful, again, strict=True):
                replies[n] = reply if not isinstance(reply, Exception) else replies[n]
        failures = [reply for reply in replies if isinstance(reply, BaseException)]
        if len(failures) == len(replies):
            raise failures[0]
        return replies

    def _release_claimed(self, claim_task: "asyncio.Task[list[ClaimedJob]]", request: ClaimRequest) -> None:
        async def give_back() -> None:
            taken = await claim_task
            await self._gate.execute_each(
                [
                    Release(tenant=one.job.tenant, job_id=one.job.id, token=one.job.token, holder=request.holder)
                    for one in taken
                ]
            )

        task = asyncio.get_running_loop().create_task(give_back())
        self._release_tasks.add(task)
        task.add_done_callback(_retrieve_exception)
        task.add_done_callback(self._release_tasks.discard)


def _limit_by_input_size(jobs: Iterable[Job], inputs: dict[bytes, bytes]) -> Iterator[Job]:
    """The first of them, as many as have their inputs within the bound; one at least."""
    size = 0
    for n, job in enumerate(jobs):
        size += len(inputs.get(job.id, b""))
        if n and size > INPUTS_BYTES_MAX:
            return
        yield job


def _retrieve_exception(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()  # where it failed, the lease ends by itself
