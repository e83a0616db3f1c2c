"""What a console shows besides jobs and keys: a search, a job's details, callbacks, users with their usage, sequenced clients."""

import re
from collections.abc import Iterable
from typing import Generic, TypeVar

from msgspec import Struct, json

from onejob.core.callback import CallbackInput, callback_job_id
from onejob.core.facts import Fact, Job, Kind, NewerFormat, Stream, Usage
from onejob.core.identity import (
    CALLBACK_TYPE,
    GLOBAL_SCOPE,
    encode_base64url,
    format_job_id,
    is_service_type,
    parse_job_id,
    resolve_scope,
)
from onejob.core.key import checked_key
from onejob.core.limits import MICROS_PER_UNIT, QUOTA_POLICY_NAME, Limits, decode_limits
from onejob.core.lookup import LookUpKey
from onejob.core.replies import Found, UsageFound
from onejob.core.states import JobState
from onejob.core.timestamps import to_utc
from onejob.engine import PAGE_MAX, ListFacts, ListInputs, Page
from onejob.errors import Invalid, NotFound, Outdated
from onejob.resources.jobs import JobView, to_job_view
from onejob.resources.listings import CallbackView, JobHistory, SearchResult, SequencedClient
from onejob.resources.quotas import SlotReservation
from onejob.runtime.policies import load_policy
from onejob.runtime.present import load_events, to_key_summary, to_utc_or_none
from onejob.runtime.quota_views import UsageView, to_slot_reservations, to_usage_view

from .base import load_visible_job
from .operators import OverviewOperations
from .parse import caller_for_user, lookup_record_id
from .reads import ReadOperations, decode_cursor

SEARCHED_JOBS_MAX = 300  # the newest, whose scopes and users a search tries
SEARCHED_SCOPES_MAX = 300
# A holder that was drawn for a named worker: the name is shown, the nonce is part of what authorises it.
_NAMED_HOLDER = re.compile(r"(.+):[0-9a-f]{16,}")

T = TypeVar("T")


class ListingPage(list[T], Generic[T]):
    """A page of a list; continue while `next` is set."""

    def __init__(self, items: Iterable[T], next: str | None) -> None:
        super().__init__(items)
        self.next = next  # `cursor` of the following page


class UserUsage(Struct, frozen=True):
    usage: UsageView
    limits: Limits  # the user's own


class ListingOperations(OverviewOperations):
    async def search(self, text: str) -> SearchResult:
        """The job with this id, and the records of this key in all scopes that are known here.

        Known are the job types, and the scopes of the newest jobs; a key of another scope is found by `explain`.
        """
        try:
            job = await self._reads.job(text)
        except (Invalid, NotFound):
            job = None
        try:
            key = checked_key(text)
        except Invalid:
            return SearchResult(job, ())
        caller, recent = self._caller, await self._reads.jobs(limit=SEARCHED_JOBS_MAX)
        counts, _ = await self._runtime.job_counts.load(caller.tenant)
        types = (resolve_scope(type, None) for type in counts.types if not is_service_type(type))
        recent_scopes = (recent_job.scope for recent_job in recent if not is_service_type(recent_job.type))
        scopes = dict.fromkeys([GLOBAL_SCOPE, *recent_scopes, *types])
        places = {(recent_job.scope, recent_job.user) for recent_job in recent if recent_job.key == key}
        places |= {(scope, caller.user) for scope in [*scopes][:SEARCHED_SCOPES_MAX]}
        record_ids = {lookup_record_id(caller_for_user(caller, user), key, scope) for scope, user in places}
        replies = await self._gate.execute(
            [LookUpKey(tenant=caller.tenant, record_id=record_id) for record_id in sorted(record_ids)]
        )
        found = [reply for reply in replies if isinstance(reply, Found)]
        return SearchResult(
            job, tuple(to_key_summary(answer.record, answer.job) for answer in found if answer.record is not None)
        )

    async def job_details(self, job_id: str) -> JobHistory:
        """A job with its events and its callback."""
        row = await load_visible_job(self._gate, self._caller, parse_job_id(job_id))
        try:
            callback = await load_visible_job(self._gate, self._caller, callback_job_id(row.id))
        except NotFound:
            callbacks = list[CallbackView]()
        else:
            callbacks = await self._with_urls([to_job_view(callback)] if callback.type == CALLBACK_TYPE else [])
        return JobHistory(
            job=to_job_view(row),
            attempts_max=row.attempts_max,
            timeout_seconds=row.timeout_ms / 1000 if row.timeout_ms else None,
            estimated_cost=row.cost_held / MICROS_PER_UNIT if row.cost_held else None,
            lease_until=to_utc_or_none(row.lease_until),
            worker=_worker_name(row),
            delete_after=to_utc(max(row.due_at, row.keep_until)) if row.ended_at and row.due_at else None,
            log_lines=row.logs,
            events=await load_events(self._gate, row),
            events_total=row.events,
            callback=callbacks[0] if callbacks else None,
        )

    async def callbacks(
        self, *, state: JobState | str | None = None, before: str | None = None, limit: int = 100
    ) -> ListingPage[CallbackView]:
        """The callbacks that the caller may see, newest first; one that waits for the end of its job is `preparing`."""
        page = await self._reads.jobs(type=CALLBACK_TYPE, state=state, before=before, limit=limit)
        return ListingPage(await self._with_urls(page), page.next)

    async def users(self, *, cursor: str | None = None, limit: int = 100) -> ListingPage[UserUsage]:
        """What each user uses of its limits. Where no limits are set, nothing is counted and nobody listed."""
        found, next = await self._list_usages(cursor, limit)
        try:
            items = [
                UserUsage(to_usage_view(entry.usage.user, entry), decode_limits(entry.usage.limits))
                for entry in found
                if entry.usage is not None
            ]
        except NewerFormat as error:
            raise Outdated(str(error)) from error
        return ListingPage(items, next)

    async def all_reservations(self, *, cursor: str | None = None, limit: int = 100) -> ListingPage[SlotReservation]:
        """The reservations of all users; a page is one of users, and may be short or empty."""
        found, next = await self._list_usages(cursor, limit)
        return ListingPage(
            [
                slot
                for entry in found
                if entry.usage is not None
                for slot in to_slot_reservations(entry.usage.user, entry)
            ],
            next,
        )

    async def clients(self, *, cursor: str | None = None, limit: int = 100) -> ListingPage[SequencedClient]:
        """The clients that number their submissions, of all owners."""
        self._require_overseer()
        page = await self._list_facts(Kind.STREAM, cursor, limit)
        streams = [_sequenced_client(stream) for stream in page.items if isinstance(stream, Stream)]
        return ListingPage(streams, _next_cursor(page))

    @property
    def _reads(self) -> ReadOperations:
        return ReadOperations(self._runtime, self._caller)

    async def _list_usages(self, cursor: str | None, limit: int) -> tuple[list[UsageFound], str | None]:
        self._require_overseer()
        page = await self._list_facts(Kind.USAGE, cursor, limit)
        policy, now = await load_policy(self._gate, self._caller.tenant, QUOTA_POLICY_NAME)
        return [UsageFound(usage, policy, now) for usage in page.items if isinstance(usage, Usage)], _next_cursor(page)

    async def _list_facts(self, kind: Kind, cursor: str | None, limit: int) -> Page[Fact]:
        after = b"" if cursor is None else decode_cursor(cursor)
        query = ListFacts(tenant=self._caller.tenant, kind=kind, after=after, limit=max(1, min(limit, PAGE_MAX)))
        return await self._gate.scan(query)

    async def _with_urls(self, jobs: list[JobView]) -> list[CallbackView]:
        """The callbacks with their URLs. Only jobs that the caller may see are passed here."""
        if not jobs:
            return []
        ids = [parse_job_id(job.id) for job in jobs]
        inputs = (await self._gate.scan(ListInputs(job_ids=tuple(ids), limit=len(ids)))).items
        urls = {input.job_id: json.decode(input.data, type=CallbackInput).url for input in inputs}
        # The id of a callback is computed from that of its job, and the other way round.
        return [
            CallbackView(job, format_job_id(callback_job_id(id)), urls.get(id, ""))
            for job, id in zip(jobs, ids, strict=True)
        ]


def _sequenced_client(stream: Stream) -> SequencedClient:
    return SequencedClient(
        stream.client_id,
        stream.scope,
        stream.owner,
        int(stream.last),
        to_utc(stream.last_seen),
        to_utc(stream.expires_at),
        bool(stream.evicted),
    )


def _next_cursor(page: Page[Fact]) -> str | None:
    return encode_base64url(page.items[-1].id) if page.more and page.items else None


def _worker_name(row: Job) -> str | None:
    found = _NAMED_HOLDER.fullmatch(row.holder.decode(errors="replace"))
    return found[1] if found else None
