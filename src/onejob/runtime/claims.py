"""Claims ready jobs: queries propose candidates, and one compare-and-set for each job decides.

A running job whose lease has expired becomes ready when jobs are claimed: whenever a claim finds fewer jobs than it asked
for, and otherwise once a second, expired leases are ended first.

Tenants with ready jobs are served in turn, so that a tenant with a million jobs does not starve the others. Inputs are
read before the claim, because a claim whose input then cannot be read would block its job for the whole lease.

A job whose input cannot be read, because the store has lost or damaged it, is skipped for a minute and named in the log.

A claim that is retried with its holder gets the jobs that it won before and still holds, so a lost reply loses no job.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any
from zlib import crc32

from msgspec import Struct

from onejob.core.facts import Job
from onejob.core.identity import format_job_id
from onejob.core.replies import AnyReply, Claimed, Refused, Started
from onejob.core.states import JobState
from onejob.core.work import RETENTION_MS, Claim, Release
from onejob.engine import PAGE_MAX, ListBacklogs, ListInputs, ListLeasedJobs, ListReadyJobs, Page
from onejob.engines.gate import Gate
from onejob.errors import StoreRefused, Unknown
from onejob.ids import Ids

from .maintenance import LeaseExpiry
from .paused_types import PausedTypes
from .wakeups import WakeupHub

CLAIM_MAX = 100  # jobs in one claim
TENANTS_MAX = 8  # queried for one claim
ROUNDS_MAX = 3
CONTENTION_SPREAD = 6  # under contention this many times as many candidates are fetched
INPUTS_BYTES_MAX = 8 << 20  # in one claim; it then returns fewer jobs than its limit
UNKNOWN_ATTEMPTS_MAX = 5
LEASE_CHECK_SECONDS = 1.0  # how often expired leases are looked for while there are enough jobs without them
UNREADABLE_SECONDS = 60.0  # until a job is tried again whose input could not be read
_UNKNOWN_PAUSE = 0.1

log = logging.getLogger("onejob")


async def _do_nothing() -> None:
    pass


class ClaimRequest(Struct, frozen=True, kw_only=True):
    """What to claim. The holder is drawn once for each claim and kept when it is retried."""

    types: tuple[str, ...]
    holder: bytes
    limit: int = 1
    lease_ms: int
    start: bool = False
    tenant: str | None = None  # None: of any tenant
    has_named_holder: bool = False  # the caller chose the holder, so it may hold jobs already


class ClaimedJob(Struct, frozen=True):
    """A job as the claim left it, and its input."""

    job: Job
    input: bytes
    at: int  # the engine's time


class Claims:
    """Claims for all workers of a process."""

    def __init__(
        self, gate: Gate, ids: Ids, *, paused_types: PausedTypes | None = None, retention_ms: int = RETENTION_MS
    ) -> None:
        self._gate = gate
        self._paused_types = paused_types  # None: whatever is ready may be claimed
        self._ids = ids
        self._leases = LeaseExpiry(gate, retention_ms=retention_ms)
        self._next_lease_check = 0.0
        self.turns = TenantTurns(gate)
        self._is_contended = False  # another process won a job that the last claim tried
        self._trying: dict[bytes, bytes] = {}  # jobs that claims of this process are trying, and their holders
        self._scans: list[dict[bytes, bytes]] = []  # for each scan that runs: what claims have tried since it began
        self._unreadable: dict[bytes, float] = {}  # jobs that are skipped, and until when
        self._release_tasks: set[asyncio.Task[None]] = set()
        self.wakeups = WakeupHub(gate, ids, self._leases)

    async def claim(self, request: ClaimRequest) -> list[ClaimedJob]:
        """Claim up to `limit` jobs. If the caller is cancelled, the jobs that it won are released.

        Under a named holder they are kept, because a retry of the same claim may have returned them already.
        """
        return await self._claim_shielded(request, self._claim(request))

    async def find_candidates(self, request: ClaimRequest, limit: int) -> tuple[list[Job], dict[bytes, bytes]]:
        """Jobs that can be claimed, and their inputs."""
        candidates = (await self._scan_candidates(request, limit))[:limit]
        inputs = await self._load_inputs(candidates) if candidates else {}
        return list(_limit_by_input_size(self._readable_jobs(candidates), inputs)), inputs

    async def claim_candidates(
        self, request: ClaimRequest, candidates: Sequence[Job], inputs: dict[bytes, bytes]
    ) -> list[ClaimedJob]:
        """Claim jobs that `find_candidates` has returned."""
        return await self._claim_shielded(request, self._claim_loaded(request, candidates, inputs))

    async def _claim_shielded(
        self, request: ClaimRequest, work: Coroutine[Any, Any, list[ClaimedJob]]
    ) -> list[ClaimedJob]:
        claim_task = asyncio.get_running_loop().create_task(work)
        try:
            claimed = await asyncio.shield(claim_task)
        except asyncio.CancelledError:
            if request.has_named_holder:
                claim_task.add_done_callback(_retrieve_exception)
            else:
                self._release_claimed(claim_task, request)
            raise
        if claimed:
            self.wakeups.on_claimed(request.types, request.tenant)
        return claimed

    async def claim_or_wait(
        self, request: ClaimRequest, seconds: float, *, before_retry: Callable[[], Awaitable[None]] = _do_nothing
    ) -> list[ClaimedJob]:
        """Claim, and wait up to `seconds` for a job. `before_retry` runs after each wait and may raise."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while True:
            listener = self.wakeups.subscribe(request.types, request.tenant)
            try:
                claimed = await self.claim(request)
                left = until - loop.time()
                if claimed or left <= 0 or self.wakeups.closed:
                    return claimed
                await listener.wait(left)
                await before_retry()
            finally:
                listener.close()

    def close(self) -> None:
        self.wakeups.close()

    async def _claim(self, request: ClaimRequest) -> list[ClaimedJob]:
        if (
            request.has_named_holder
            and request.tenant is not None
            and (reclaimed := await self._reclaim_held(request, request.tenant))
        ):
            return reclaimed
        claimed: list[ClaimedJob] = []
        tried: set[bytes] = set()
        for round in range(ROUNDS_MAX):
            room = request.limit - len(claimed)
            found, others = await self._scan_untried(request, room)
            ready = [job for job in found if job.id not in tried]
            # In the last round it competes for what others try.
            candidates = [job for job in ready if job.id not in others or round == ROUNDS_MAX - 1][:room]
            if not ready:
                break
            if not candidates:
                continue
            tried.update(job.id for job in candidates)
            with self._mark_tried(request, candidates):
                won, self._is_contended, is_full = await self._load_and_claim(request, candidates)
            claimed += won
            # Under contention the next round fetches more candidates, in an order of this process alone.
            if is_full or not (self._is_contended or any(job.id in self._unreadable for job in candidates)):
                break
        return claimed

    async def _scan_untried(self, request: ClaimRequest, room: int) -> tuple[list[Job], set[bytes]]:
        """Candidates, and which of them other claims of this process try: they would only compete, and scan again.

        A claim that is retried with its holder tries the same jobs.
        """
        tried = dict(self._trying)
        wanted = room + len(tried) + len(self._scans) * room  # others that scan now want as many, more or less
        self._scans.append(tried)
        try:
            candidates = await self._scan_candidates(request, min(wanted, PAGE_MAX))
        finally:
            self._scans = [scan for scan in self._scans if scan is not tried]
        return candidates, {job_id for job_id, holder in tried.items() if holder != request.holder}

    @contextmanager
    def _mark_tried(self, request: ClaimRequest, candidates: Sequence[Job]) -> Iterator[None]:
        tried = {job.id: request.holder for job in candidates}
        self._trying |= tried
        for scan in self._scans:
            scan |= tried
        try:
            yield
        finally:
            for job_id in tried:
                self._trying.pop(job_id, None)

    async def _reclaim_held(self, request: ClaimRequest, tenant: str) -> list[ClaimedJob]:
        page = await self._gate.scan(ListLeasedJobs(tenant=tenant, holder=request.holder, limit=request.limit))
        # A claim without `start` skips running jobs: their holder had its reply, since it started them afterwards.
        leased = [job for job in page.items if request.start or job.state is not JobState.RUNNING]
        return (await self._load_and_claim(request, leased))[0] if leased else []

    async def _load_and_claim(
        self, request: ClaimRequest, candidates: Sequence[Job]
    ) -> tuple[list[ClaimedJob], bool, bool]:
        """The jobs won, whether another process won one of them, and whether some were left out for their size."""
        inputs = await self._load_inputs(candidates)
        readable = self._readable_jobs(candidates)
        fitting = list(_limit_by_input_size(readable, inputs))
        won, is_contended = await self._execute_claims(request, fitting, inputs) if fitting else ([], False)
        return won, is_contended, len(fitting) < len(readable)

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
        """Jobs that are ready, those included whose lease has just expired."""
        room += len(self._unreadable)
        candidates = await self._scan_ready_jobs(request, room)
        now = asyncio.get_running_loop().time()
        if len(candidates) < room or now >= self._next_lease_check:
            self._next_lease_check = now + LEASE_CHECK_SECONDS
            if await self._leases.end_expired():
                candidates = await self._scan_ready_jobs(request, room)
        return self._readable_jobs(candidates)

    async def _scan_ready_jobs(self, request: ClaimRequest, room: int) -> list[Job]:
        """The most urgent jobs of the next tenants, one of each in turn."""
        tenants = (
            [request.tenant]
            if request.tenant is not None
            else (await self.turns.next_tenants(request.types))[:TENANTS_MAX]
        )
        if not tenants:
            return []
        share = -(-room // len(tenants)) * (CONTENTION_SPREAD if self._is_contended else 1)
        limit = min(share, PAGE_MAX)
        pages = await asyncio.gather(*(self._list_ready(tenant, request.types, limit) for tenant in tenants))
        jobs = [self._shuffled_jobs(page.items) if self._is_contended else page.items for page in pages]
        if request.tenant is None:
            self.turns.last_tenant = tenants[-1]
        return [job for row in zip_longest(*jobs) for job in row if job is not None]

    async def _list_ready(self, tenant: str, types: tuple[str, ...], limit: int) -> Page[Job]:
        if self._paused_types is not None:
            types = await self._paused_types.without_paused(tenant, types)
        return (
            await self._gate.scan(ListReadyJobs(types=types, tenant=tenant, limit=limit)) if types else Page((), False)
        )

    def _shuffled_jobs(self, jobs: Sequence[Job]) -> list[Job]:
        """Jobs by priority, and in random order within a priority, so that processes try different ones."""
        seed = int.from_bytes(self._ids.holder()[:4], "big")
        return sorted(jobs, key=lambda job: (-job.priority, crc32(job.id, seed)))

    async def _load_inputs(self, jobs: Sequence[Job]) -> dict[bytes, bytes]:
        try:
            return await self._fetch_inputs(jobs)
        except StoreRefused:
            return await self._load_readable_inputs(jobs)

    async def _load_readable_inputs(self, jobs: Sequence[Job]) -> dict[bytes, bytes]:
        """One by one: what the store says of one input says nothing of the others."""
        inputs: dict[bytes, bytes] = {}
        for job in jobs:
            try:
                inputs |= await self._fetch_inputs([job])
            except StoreRefused as error:
                log.error("job %s cannot be claimed, its input cannot be read: %s", format_job_id(job.id), error)
                self._unreadable[job.id] = asyncio.get_running_loop().time() + UNREADABLE_SECONDS
        return inputs

    async def _fetch_inputs(self, jobs: Sequence[Job]) -> dict[bytes, bytes]:
        ids = tuple(job.id for job in jobs)
        page = await self._gate.scan(ListInputs(job_ids=ids, limit=max(len(ids), 1)))
        return {attachment.job_id: attachment.data for attachment in page.items}

    def _readable_jobs(self, jobs: Sequence[Job]) -> list[Job]:
        if self._unreadable:
            now = asyncio.get_running_loop().time()
            self._unreadable = {job_id: until for job_id, until in self._unreadable.items() if until > now}
        return [job for job in jobs if job.id not in self._unreadable]

    async def _execute_until_known(self, claims: list[Claim]) -> list[AnyReply | BaseException]:
        """Execute claims. One whose outcome is unknown is retried, since the same holder gets the same reply."""
        replies = await self._gate.execute_each(claims)
        for attempt in range(UNKNOWN_ATTEMPTS_MAX):
            unknown = [n for n, reply in enumerate(replies) if isinstance(reply, Unknown)]
            if not unknown:
                break
            await asyncio.sleep(_UNKNOWN_PAUSE * 2**attempt)
            retried = await self._gate.execute_each([claims[n] for n in unknown])
            for n, reply in zip(unknown, retried, strict=True):
                replies[n] = reply if not isinstance(reply, Exception) else replies[n]
        failures = [reply for reply in replies if isinstance(reply, BaseException)]
        if len(failures) == len(replies):
            raise failures[0]
        return replies

    def _release_claimed(self, claim_task: "asyncio.Task[list[ClaimedJob]]", request: ClaimRequest) -> None:
        async def release() -> None:
            jobs = [claimed.job for claimed in await claim_task]
            await self._gate.execute_each(
                [Release(tenant=job.tenant, job_id=job.id, token=job.token, holder=request.holder) for job in jobs]
            )

        task = asyncio.get_running_loop().create_task(release())
        self._release_tasks.add(task)
        task.add_done_callback(_retrieve_exception)
        task.add_done_callback(self._release_tasks.discard)


def _limit_by_input_size(jobs: Iterable[Job], inputs: dict[bytes, bytes]) -> Iterator[Job]:
    """The first jobs whose inputs together stay within INPUTS_BYTES_MAX; at least one."""
    size = 0
    for n, job in enumerate(jobs):
        size += len(inputs.get(job.id, b""))
        if n and size > INPUTS_BYTES_MAX:
            return
        yield job


class TenantTurns:
    """Which tenants have ready jobs, from the one after the last that was served on."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._has_more = False  # more tenants have ready jobs than fit in a page
        self.last_tenant = ""

    async def next_tenants(self, types: tuple[str, ...]) -> list[str]:
        page = await self._gate.scan(ListBacklogs(types=types, after=self.last_tenant if self._has_more else ""))
        if self._has_more and not page.more:  # the last page: start over
            first_page = await self._gate.scan(ListBacklogs(types=types))
            ready = [backlog.tenant for backlog in (*page.items, *first_page.items) if not backlog.wait_ms]
            self._has_more = first_page.more
            return list(dict.fromkeys(ready))
        self._has_more = page.more
        ready = [backlog.tenant for backlog in page.items if not backlog.wait_ms]
        later = [tenant for tenant in ready if tenant > self.last_tenant]
        return [*later, *(tenant for tenant in ready if tenant <= self.last_tenant)]


def _retrieve_exception(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()  # the lease of a job that could not be released expires
