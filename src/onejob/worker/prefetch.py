"""Looks up the jobs a worker may claim next while its handlers run, so that a claim needs no query first.

A candidate is not reserved: any worker may claim it, and a claim that comes too late is refused. A slow worker fetches no more
than it has capacity for, and candidates are dropped after PREFETCH_AGE_SECONDS_MAX.
"""

import asyncio
from collections import OrderedDict, deque

from onejob.core.facts import Job
from onejob.errors import OnejobError
from onejob.runtime.claims import ClaimedJob, ClaimRequest, Claims

PREFETCH_MAX = 100
PREFETCH_AGE_SECONDS_MAX = 0.2
_TRIED_MAX = 1000

Candidate = tuple[Job, bytes]


class Prefetcher:
    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._candidates: deque[Candidate] = deque()
        self._fetched_at = 0.0
        self._fetch_limit = 1
        self._may_have_more = False  # the last fetch was full
        self._fetch_task: asyncio.Task[None] | None = None
        # Job versions that were claimed: a fetch that began before the claim committed still returns them.
        self._tried: OrderedDict[tuple[bytes, int], None] = OrderedDict()

    def take(self, limit: int) -> list[Candidate]:
        """Up to `limit` candidates, unless they are too old."""
        if asyncio.get_running_loop().time() - self._fetched_at > PREFETCH_AGE_SECONDS_MAX:
            self._fetch_limit = limit
            self._candidates.clear()
        candidates: list[Candidate] = []
        while self._candidates and len(candidates) < limit:
            job, input = self._candidates.popleft()
            if (job.id, job.version) not in self._tried:
                candidates.append((job, input))
        return candidates

    async def fetch(self, claim_request: ClaimRequest) -> None:
        """Wait for a fetch in progress; fetch again if it found nothing."""
        if self._fetch_task is not None:
            await asyncio.shield(self._fetch_task)
        if not self._candidates:
            await self._fetch(claim_request)

    def schedule_fetch(self, claim_request: ClaimRequest) -> None:
        """Fetch in the background if the candidates run low and the last fetch was full."""
        if self._fetch_task is None and self._may_have_more and len(self._candidates) <= claim_request.limit:
            self._fetch_task = asyncio.get_running_loop().create_task(self._background_fetch(claim_request))

    async def claim(self, claim_request: ClaimRequest, candidates: list[Candidate]) -> list[ClaimedJob]:
        """Claim these candidates; returns the jobs that were won."""
        inputs = {job.id: input for job, input in candidates}
        for job, _ in candidates:
            self._tried[job.id, job.version] = None
        while len(self._tried) > _TRIED_MAX:
            self._tried.popitem(last=False)
        won: list[ClaimedJob] = []
        try:
            won = await self._claims.claim_candidates(claim_request, [job for job, _ in candidates], inputs)
        finally:
            won_ids = {claimed.job.id for claimed in won}
            for job, _ in candidates:
                if job.id not in won_ids:
                    self._tried.pop((job.id, job.version), None)
        if len(won) * 2 < len(candidates):
            self._candidates.clear()  # other workers are faster: the rest is stale, too
        return won

    def close(self) -> None:
        if self._fetch_task is not None:
            self._fetch_task.cancel()

    async def _fetch(self, claim_request: ClaimRequest) -> None:
        began = asyncio.get_running_loop().time()
        self._fetch_limit = max(min(self._fetch_limit * 2, PREFETCH_MAX), claim_request.limit)
        jobs, inputs = await self._claims.find_candidates(claim_request, self._fetch_limit)
        self._may_have_more = len(jobs) >= self._fetch_limit
        self._fetched_at = began
        fresh = [(job, inputs.get(job.id, b"null")) for job in jobs]
        self._candidates = deque((job, input) for job, input in fresh if (job.id, job.version) not in self._tried)

    async def _background_fetch(self, claim_request: ClaimRequest) -> None:
        try:
            await self._fetch(claim_request)
        except OnejobError:
            self._may_have_more = False  # the next `fetch` raises the error
        finally:
            self._fetch_task = None
