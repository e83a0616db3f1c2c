"""What a worker may claim next, looked up while it runs other jobs, so that a claim is one step and no search.

Nothing is held by it: the jobs are everybody's until they are claimed, and a claim that comes too late is refused.
Whoever is slow looks for no more than it has room for, and nothing that was looked up long ago is used.
"""

import asyncio
from collections import OrderedDict, deque

from onejob.claiming import Claims, Taken, Wanted
from onejob.core.facts import Job
from onejob.errors import OnejobError

AHEAD_MAX = 100
SECONDS_MAX = 0.2
_SEEN_MAX = 1000

Candidate = tuple[Job, bytes]


class Ahead:
    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._found: deque[Candidate] = deque()
        self._looked = 0.0
        self._most = 1
        self._full = False  # the last look gave as many as were asked for
        self._looking: asyncio.Task[None] | None = None
        # What was tried, as it was then: a look that began before the claim was stored sees it still.
        self._tried: OrderedDict[tuple[bytes, int], None] = OrderedDict()

    def take(self, most: int) -> list[Candidate]:
        """Up to so many, if they were looked up just now."""
        if asyncio.get_running_loop().time() - self._looked > SECONDS_MAX:
            self._most = most
            self._found.clear()
        taken: list[Candidate] = []
        while self._found and len(taken) < most:
            job, input = self._found.popleft()
            if (job.id, job.version) not in self._tried:
                taken.append((job, input))
        return taken

    async def look(self, wanted: Wanted) -> None:
        """Look now; wait for the look that is under way, and for another if that gives nothing."""
        if self._looking is not None:
            await asyncio.shield(self._looking)
        if not self._found:
            await self._look(wanted)

    def look_soon(self, wanted: Wanted) -> None:
        """Look beside what else is done, if what there is will soon be used up and there may be more."""
        if self._looking is None and self._full and len(self._found) <= wanted.limit:
            self._looking = asyncio.get_running_loop().create_task(self._look_beside(wanted))

    async def claim(self, wanted: Wanted, candidates: list[Candidate]) -> list[Taken]:
        """What was won of these."""
        inputs = {job.id: input for job, input in candidates}
        for job, _ in candidates:
            self._tried[job.id, job.version] = None
        while len(self._tried) > _SEEN_MAX:
            self._tried.popitem(last=False)
        won: list[Taken] = []
        try:
            won = await self._claims.claim_these(wanted, [job for job, _ in candidates], inputs)
        finally:
            mine = {one.job.id for one in won}
            for job, _ in candidates:
                if job.id not in mine:
                    self._tried.pop((job.id, job.version), None)
        if len(won) * 2 < len(candidates):
            self._found.clear()  # others were there before: what they left must be looked for
        return won

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    async def _look(self, wanted: Wanted) -> None:
        began = asyncio.get_running_loop().time()
        self._most = max(min(self._most * 2, AHEAD_MAX), wanted.limit)
        jobs, inputs = await self._claims.look(wanted, self._most)
        self._full = len(jobs) >= self._most
        self._looked = began
        fresh = [(job, inputs.get(job.id, b"null")) for job in jobs]
        self._found = deque(one for one in fresh if (one[0].id, one[0].version) not in self._tried)

    async def _look_beside(self, wanted: Wanted) -> None:
        try:
            await self._look(wanted)
        except OnejobError:
            self._full = False  # whoever needs it looks again, and is told
        finally:
            self._looking = None
