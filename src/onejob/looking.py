"""The front door for whoever looks: jobs, keys and their stories, as far as the caller may see them."""

from .core.ids import parse_job_id
from .core.lookup import LookUpKey
from .core.states import JobState
from .core.views import JobView, KeyHistory
from .front import LedgerBase
from .intake import caller_for_user, lookup_record_id
from .listing import JobList, KeyPage, build_job_query, load_key_page, to_job_list
from .outcome import load_input, load_key_history
from .results import LogPage, load_log_page
from .sight import check_job_visible, load_visible_job


class ReadOperations(LedgerBase):
    """A caller in front of an engine; it changes nothing."""

    async def job(self, job_id: str) -> JobView:
        return JobView(await load_visible_job(self._gate, self._caller, parse_job_id(job_id)))

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
        query = build_job_query(self._caller, state=state, type=type, user=user, before=before, limit=limit)
        return to_job_list(await self._gate.scan(query))

    async def input(self, job_id: str) -> bytes:
        """The JSON that a job was submitted with."""
        return await load_input(self._gate, self._caller.tenant, await self._visible_job_id(job_id))

    async def log_lines(self, job_id: str, *, offset: int = 0, limit: int = 100) -> LogPage:
        head = await load_visible_job(self._gate, self._caller, parse_job_id(job_id))
        return await load_log_page(self._gate, head, offset=offset, limit=limit)

    async def explain(self, key: str, *, scope: str, user: str | None = None) -> KeyHistory:
        """The record of a key and its story. The scope is the job type, unless the submission named another."""
        record_id = lookup_record_id(caller_for_user(self._caller, user), key, scope)
        await self._runtime.flush_hits(record_id)
        found = await self._execute(LookUpKey(tenant=self._caller.tenant, record_id=record_id))
        return await load_key_history(self._gate, found, key)

    async def keys(
        self,
        *,
        scope: str | None = None,
        user: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> KeyPage:
        """Keys of this tenant, of one scope or user; `cursor` is `next` of the page before."""
        await self._runtime.flush_hits()
        return await load_key_page(
            self._gate, self._caller, scope=scope, user=user, cursor=cursor, limit=limit
        )

    async def _visible_job_id(self, job_id: str) -> bytes:
        return await check_job_visible(self._gate, self._caller, parse_job_id(job_id))
