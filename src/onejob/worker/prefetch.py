"""What a worker may claim next, looked up while it runs other jobs, so that a claim is one step and no search.

Nothing is held by it: the jobs are everybody's until they are claimed, and a claim that comes too late is refused.
Whoever is slow looks for no more than it has room for, and nothing that was looked up long ago is used.
"""

import asyncio
from collections import OrderedDict, deque

from onejob.core.facts import Job
from onejob.errors import OnejobError
from onejob.ledger.claims import ClaimedJob, ClaimRequest, Claims

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
        self._may_have_more = False  # the last look gave as many as were asked for
        self._fetch_task: asyncio.Task[None] | None = None
        # What was tried, as it was then: a look that began before the claim was stored sees it still.
        self._tried: OrderedDict[tuple[bytes, int], None] = OrderedDict()

    def take(self, limit: int) -> list[Candidate]:
        """Up to so many, if they were looked up just now."""
        if asyncio.get_running_loop().time() - self._fetched_at > PREFETCH_AGE_SECONDS_MAX:
            self._fetch_limit = limit
            self._candidates.clear()
        taken: list[Candidate] = []
        while self._candidates and len(taken) < limit:
            job, input = self._candidates.popleft()
            if (job.id, job.version) not in self._tried:
                taken.append((job, input))
        return taken

    async def fetch(self, claim_request: ClaimRequest) -> None:
        """Look now; wait for the look that is under way, and for another if that gives nothing."""
        if self._fetch_task is not None:
            await asyncio.shield(self._fetch_task)
        if not self._candidates:
            await self._fetch(claim_request)

    def schedule_fetch(self, claim_request: ClaimRequest) -> None:
        """Look beside what else is done, if what there is will soon be used up and there may be more."""
        if self._fetch_task is None and self._may_have_more and len(self._candidates) <= claim_request.limit:
            self._fetch_task = asyncio.get_running_loop().create_task(self._background_fetch(claim_request))

    async def claim(self, claim_request: ClaimRequest, candidates: list[Candidate]) -> list[ClaimedJob]:
        """What was won of these."""
        inputs = {job.id: input for job, input in candidates}
        for job, _ in candidates:
            self._tried[job.id, job.version] = None
        while len(self._tried) > _TRIED_MAX:
            self._tried.popitem(last=False)
        won: list[ClaimedJob] = []
        try:
            won = await self._claims.claim_candidates(claim_request, [job for job, _ in candidates], inputs)
        finally:
            mine = {one.job.id for one in won}
            for job, _ in candidates:
                if job.id not in mine:
                    self._tried.pop((job.id, job.version), None)
        if len(won) * 2 < len(candidates):
            self._candidates.clear()  # others were there before: what they left must be looked for
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
        self._candidates = deque(one for one in fresh if (one[0].id, one[0].version) not in self._tried)

    async def _background_fetch(self, claim_request: ClaimRequest) -> None:
        try:
            await self._fetch(claim_request)
        except OnejobError:
            self._may_have_more = False  # whoever needs it looks again, and is told
        finally:
            self._fetch_task = None
