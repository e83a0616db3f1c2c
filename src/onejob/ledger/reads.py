"""The front door for whoever looks: jobs, keys and their stories, as far as the caller may see them."""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from onejob.core import identity
from onejob.core.facts import Job, Kind, Record
from onejob.core.identity import format_job_id, parse_job_id
from onejob.core.lookup import LookUpKey
from onejob.core.replies import Found
from onejob.core.states import JobState
from onejob.core.views import JobView, KeyHistory, to_key_history
from onejob.engine import PAGE_MAX, Engine, ListFacts, ListJobs, Page
from onejob.errors import Invalid

from .base import LedgerBase, check_job_visible, load_visible_job
from .parse import Caller, caller_for_user, checked_lookup_scope, lookup_record_id, record_id_prefix
from .present import LogPage, load_input, load_key_history, load_log_page

# Pages for whoever looks around: jobs and keys of a tenant, with a cursor. Never the basis of a decision.


_NO_USER = ""  # no user has this name
_CURSOR = re.compile(r"[A-Za-z0-9_-]{1,200}")


class JobList(list[JobView]):
    """Jobs, newest first. With a filter it may be short, even empty: go on while there is a next."""

    def __init__(self, jobs: Iterable[JobView], next: str | None) -> None:
        super().__init__(jobs)
        self.next = next  # `before` of the following page


class KeyPage(Struct, frozen=True):
    """Keys with their records, in the order of their identities. A page may be short: go on while there is a next."""

    histories: Sequence[KeyHistory]  # without their events
    next: str | None


def build_job_query(
    caller: Caller,
    *,
    state: JobState | str | None,
    type: str | None,
    user: str | None,
    before: str | None,
    limit: int,
) -> ListJobs:
    """One page of a tenant's jobs; only the caller's own where it may see no others."""
    if not caller.oversees:
        user = caller.user if user in (None, caller.user) else _NO_USER
    return ListJobs(
        tenant=caller.tenant,
        state=None if state is None else _parse_state(state),
        type=type,
        user=user,
        before=b"" if before is None else parse_job_id(before),
        limit=max(1, min(limit, PAGE_MAX)),
    )


def to_job_list(page: Page[Job]) -> JobList:
    last = page.scanned_to or (page.items[-1].id if page.items else b"")
    return JobList(map(JobView, page.items), format_job_id(last) if page.more else None)


async def load_key_page(
    engine: Engine,
    caller: Caller,
    *,
    scope: str | None,
    user: str | None,
    cursor: str | None,
    limit: int,
) -> KeyPage:
    """One page of a tenant's keys, of one scope's or one user's; only the caller's own where no other may be seen."""
    caller = caller_for_user(caller, user)
    of_all = caller.owns_keys and caller.oversees and user is None
    if caller.owns_keys and not of_all:
        user = caller.user
    # The scopes of different users begin differently: then all is looked at, and a page may be short.
    begin = b"" if scope is None or of_all else record_id_prefix(caller, scope)
    after = begin if cursor is None else _decode_cursor(cursor, begin)
    query = ListFacts(tenant=caller.tenant, kind=Kind.RECORD, after=after, limit=max(1, min(limit, PAGE_MAX)))
    page = await engine.scan(query)
    inside = [fact for fact in page.items if isinstance(fact, Record) and fact.id.startswith(begin)]
    wanted = None if scope is None else checked_lookup_scope(scope)
    own = [record for record in inside if user in (None, record.user) and wanted in (None, record.scope)]
    # Looked up once more, for only the engine can tell which of them still live.
    replies = await engine.execute([LookUpKey(tenant=caller.tenant, record_id=record.id) for record in own])
    found = [reply for reply in replies if isinstance(reply, Found)]
    stories = [to_key_history(reply.record, reply.job, ()) for reply in found if reply.record is not None]
    more = page.more and len(inside) == len(page.items)
    return KeyPage(stories, _encode_cursor(page.items[-1].id) if more else None)


def _parse_state(word: JobState | str) -> JobState:
    try:
        return JobState(word)
    except ValueError:
        raise Invalid("state", f"a state is one of {', '.join(JobState)}; choose one") from None


def _encode_cursor(record_id: bytes) -> str:
    return identity.encode_base64url(record_id)


def _decode_cursor(cursor: str, prefix: bytes) -> bytes:
    place = b""
    if _CURSOR.fullmatch(cursor) and len(cursor) % 4 != 1:
        place = identity.decode_base64url(cursor)
    if not place:
        raise Invalid("cursor", "this is no cursor of such a list; send `next` of the page before")
    return max(place, prefix)  # a place before the scope is its beginning; after it there is nothing


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
        return await load_key_page(self._gate, self._caller, scope=scope, user=user, cursor=cursor, limit=limit)

    async def _visible_job_id(self, job_id: str) -> bytes:
        return await check_job_visible(self._gate, self._caller, parse_job_id(job_id))
