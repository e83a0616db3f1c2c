"""Read operations of the ledger: jobs, inputs, logs, keys and their histories."""

import re
from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct, json

from onejob.core import identity
from onejob.core.facts import Job, Kind, Record
from onejob.core.identity import format_job_id, parse_job_id
from onejob.core.key import KeyLike
from onejob.core.lookup import LookUpJob, LookUpKey
from onejob.core.replies import Found
from onejob.core.sites import delivery_job_ids, is_site_delivery
from onejob.core.states import JobState
from onejob.core.timestamps import to_ms
from onejob.engine import PAGE_MAX, ListFacts, ListJobs, Page
from onejob.errors import Invalid
from onejob.resources.jobs import EventView, JobView, LogPage, SiteView, to_job_view
from onejob.resources.keys import KeyHistory, KeySummary
from onejob.runtime.present import (
    load_failures,
    load_input,
    load_key_history,
    load_log_page,
    to_key_summary,
    to_site_views,
)

from .base import LedgerBase, check_job_visible, load_visible_job
from .parse import caller_for_user, checked_lookup_scope, lookup_record_id, record_id_prefix

_NO_USER = ""  # no user has this name
_CURSOR = re.compile(r"[A-Za-z0-9_-]{1,200}")


class JobPage(list[JobView]):
    """A page of jobs, newest first. A filtered page may be short or empty: continue while `next` is set."""

    def __init__(self, jobs: Iterable[JobView], next: str | None) -> None:
        super().__init__(jobs)
        self.next = next  # `before` of the following page


class KeyPage(list[KeySummary]):
    """A page of keys, without their events, in the order of record ids. It may be short: continue while `next` is set."""

    def __init__(self, keys: Iterable[KeySummary], next: str | None) -> None:
        super().__init__(keys)
        self.next = next  # `cursor` of the following page


class JobFilter(Struct, frozen=True, kw_only=True):
    """Which jobs to list; what is None does not matter."""

    state: JobState | None = None
    type: str | None = None
    user: str | None = None
    label: tuple[str, str] | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None

    def to_query(self, tenant: str, *, before: str | None = None, limit: int = 100) -> ListJobs:
        return ListJobs(
            tenant=tenant,
            state=self.state,
            type=self.type,
            user=self.user,
            label=b"" if self.label is None else encode_label(*self.label),
            created_from=0 if self.created_after is None else max(to_ms(self.created_after), 1),
            created_to=0 if self.created_before is None else max(to_ms(self.created_before), 1),
            before=b"" if before is None else parse_job_id(before),
            limit=limit,
        )


def encode_label(name: str, value: str) -> bytes:
    """A label as one member of a JSON object, as it is stored."""
    return json.encode({name: value})[1:-1]


class ReadOperations(LedgerBase):
    async def job(self, job_id: str) -> JobView:
        return to_job_view(await load_visible_job(self._gate, self._caller, parse_job_id(job_id)))

    async def jobs(
        self,
        *,
        state: JobState | str | None = None,
        type: str | None = None,
        user: str | None = None,
        label: tuple[str, str] | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> JobPage:
        """The jobs that the caller may see, newest first; `before` is `next` of the previous page, or a job's id.

        Both bounds of the creation time belong to the range.
        """
        caller = self._caller
        if not caller.sees_all_users:
            user = caller.user if user in (None, caller.user) else _NO_USER
        wanted = JobFilter(
            state=None if state is None else parse_state(state),
            type=type,
            user=user,
            label=label,
            created_after=created_after,
            created_before=created_before,
        )
        query = wanted.to_query(caller.tenant, before=before, limit=max(1, min(limit, PAGE_MAX)))
        return to_job_page(await self._gate.scan(query))

    async def sites(self, job_id: str) -> list[SiteView]:
        """How a job stands at each of its data centres, as far as this ledger has heard; empty: it has none."""
        job = await load_visible_job(self._gate, self._caller, parse_job_id(job_id))
        lookups = [LookUpJob(tenant=job.tenant, job_id=id) for id in delivery_job_ids(job.id)]
        replies = await self._gate.execute(lookups)
        deliveries = [reply.job for reply in replies if isinstance(reply, Found) and reply.job is not None]
        return to_site_views(job, filter(is_site_delivery, deliveries), self._runtime.sites)

    async def input(self, job_id: str) -> bytes:
        """The job's input as JSON."""
        return await load_input(self._gate, self._caller.tenant, await self._visible_job_id(job_id))

    async def failures(self, job_id: str) -> tuple[EventView, ...]:
        """The failed attempts of a job whose exception had a message; `detail` is the message."""
        return await load_failures(self._gate, await load_visible_job(self._gate, self._caller, parse_job_id(job_id)))

    async def log_lines(self, job_id: str, *, offset: int = 0, limit: int = 100) -> LogPage:
        job = await load_visible_job(self._gate, self._caller, parse_job_id(job_id))
        return await load_log_page(self._gate, job, offset=offset, limit=limit)

    async def explain(self, key: KeyLike, *, scope: str, user: str | None = None) -> KeyHistory:
        """The record of a key, and its events. The scope is the job type, unless the submission named another."""
        record_id = lookup_record_id(caller_for_user(self._caller, user), key, scope)
        await self._runtime.flush_hits(record_id)
        found = await self._execute(LookUpKey(tenant=self._caller.tenant, record_id=record_id))
        return await load_key_history(self._gate, found, str(key))

    async def keys(
        self, *, scope: str | None = None, user: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> KeyPage:
        """The keys that the caller may see, of one scope or user; `cursor` is `next` of the previous page."""
        await self._runtime.flush_hits()
        caller = caller_for_user(self._caller, user)
        all_users = caller.owns_keys and caller.oversees and user is None
        if caller.owns_keys and not all_users:
            user = caller.user
        # Keys that belong to users have a prefix for each user, and ticks another: then all keys are scanned, and a page
        # may be short.
        has_ticks = caller.owns_keys and scope == identity.SCHEDULE_SCOPE
        prefix = b"" if scope is None or all_users or has_ticks else record_id_prefix(caller, scope)
        after = prefix if cursor is None else decode_cursor(cursor, prefix)
        query = ListFacts(tenant=caller.tenant, kind=Kind.RECORD, after=after, limit=max(1, min(limit, PAGE_MAX)))
        page = await self._gate.scan(query)
        in_scope = [fact for fact in page.items if isinstance(fact, Record) and fact.id.startswith(prefix)]
        scope = None if scope is None else checked_lookup_scope(scope)
        records = [record for record in in_scope if user in (None, record.user) and scope in (None, record.scope)]
        # Looked up again, because only a decision can tell which records have not expired.
        replies = await self._gate.execute([LookUpKey(tenant=caller.tenant, record_id=record.id) for record in records])
        found = [reply for reply in replies if isinstance(reply, Found)]
        keys = [to_key_summary(reply.record, reply.job) for reply in found if reply.record is not None]
        more = page.more and len(in_scope) == len(page.items)
        return KeyPage(keys, identity.encode_base64url(page.items[-1].id) if more else None)

    async def _visible_job_id(self, job_id: str) -> bytes:
        return await check_job_visible(self._gate, self._caller, parse_job_id(job_id))


def to_job_page(page: Page[Job]) -> JobPage:
    last = page.scanned_to or (page.items[-1].id if page.items else b"")
    return JobPage(map(to_job_view, page.items), format_job_id(last) if page.more else None)


def parse_state(state: JobState | str) -> JobState:
    try:
        return JobState(state)
    except ValueError:
        raise Invalid("state", f"a state is one of {', '.join(JobState)}; choose one") from None


def decode_cursor(cursor: str, prefix: bytes = b"") -> bytes:
    record_id = b""
    if _CURSOR.fullmatch(cursor) and len(cursor) % 4 != 1:
        record_id = identity.decode_base64url(cursor)
    if not record_id:
        raise Invalid("cursor", "this is not a cursor of this list; send `next` of the previous page")
    return max(record_id, prefix)  # a cursor from before the scope starts at its beginning
