"""The front door for whoever looks: jobs, keys and their stories, as far as the caller may see them."""

from .core.ids import parse_id
from .core.lookup import LookUp
from .core.states import JobState
from .core.views import JobView, Story
from .front import Front
from .intake import for_user, looked_up_id
from .listing import JobList, KeyPage, job_list, job_page, key_page
from .outcome import input_of, story_of
from .results import LogPage, log_page
from .sight import check_sight, seen_job


class Looking(Front):
    """A caller in front of an engine; it changes nothing."""

    async def job(self, job_id: str) -> JobView:
        return JobView(await seen_job(self._gate, self._caller, parse_id(job_id)))

    async def jobs(
        self,
        *,
        state: JobState | str | None = None,
        type: str | None = None,
        user: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> JobList:
        """Jobs of this tenant, newest first; `before` is `next` of the page before, or a job's id."""
        query = job_page(self._caller, state=state, type=type, user=user, before=before, limit=limit)
        return job_list(await self._gate.scan(query))

    async def input(self, job_id: str) -> bytes:
        """The JSON that a job was submitted with."""
        return await input_of(self._gate, self._caller.tenant, await self._seen(job_id))

    async def log_lines(self, job_id: str, *, offset: int = 0, limit: int = 100) -> LogPage:
        head = await seen_job(self._gate, self._caller, parse_id(job_id))
        return await log_page(self._gate, head, offset=offset, limit=limit)

    async def explain(self, key: str, *, scope: str, user: str | None = None) -> Story:
        """The record of a key and its story. The scope is the job type, unless the submission named another."""
        record_id = looked_up_id(for_user(self._caller, user), key, scope)
        await self._host.flush_hits(record_id)
        found = await self._ask(LookUp(tenant=self._caller.tenant, record_id=record_id))
        return await story_of(self._gate, found, key)

    async def keys(
        self,
        *,
        scope: str | None = None,
        user: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> KeyPage:
        """Keys of this tenant, of one scope or user; `cursor` is `next` of the page before."""
        await self._host.flush_hits()
        return await key_page(self._gate, self._caller, scope=scope, user=user, cursor=cursor, limit=limit)

    async def _seen(self, job_id: str) -> bytes:
        return await check_sight(self._gate, self._caller, parse_id(job_id))
