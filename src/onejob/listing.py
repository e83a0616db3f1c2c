"""Pages for whoever looks around: jobs and keys of a tenant, with a cursor. Never the basis of a decision."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Sequence

from msgspec import Struct

from .core.facts import Job, Kind, Record
from .core.ids import parse_id, text_of
from .core.invalid import Invalid
from .core.lookup import LookUp
from .core.receipt import Found
from .core.states import JobState
from .core.views import JobView, Story, story
from .engine import PAGE_MAX, Engine, JobPage, Listing, Page
from .intake import Caller, keys_begin

_CURSOR = re.compile(r"[A-Za-z0-9_-]{1,200}")


class JobList(list[JobView]):
    """Jobs, newest first. With a filter it may be short, even empty: go on while there is a next."""

    def __init__(self, jobs: Iterable[JobView], next: str | None) -> None:
        super().__init__(jobs)
        self.next = next  # `before` of the following page


class KeyPage(Struct, frozen=True):
    """Keys with their records, in the order of their identities. A page may be short: go on while there is a next."""

    stories: Sequence[Story]  # without their events
    next: str | None


def job_page(
    tenant: str,
    *,
    state: JobState | str | None,
    type: str | None,
    user: str | None,
    before: str | None,
    limit: int,
) -> JobPage:
    return JobPage(
        tenant=tenant,
        state=None if state is None else _state(state),
        type=type,
        user=user,
        before=b"" if before is None else parse_id(before),
        limit=max(1, min(limit, PAGE_MAX)),
    )


def job_list(page: Page[Job]) -> JobList:
    last = page.seen or (page.items[-1].id if page.items else b"")
    return JobList(map(JobView, page.items), text_of(last) if page.more else None)


async def key_page(
    engine: Engine, caller: Caller, *, scope: str | None, cursor: str | None, limit: int
) -> KeyPage:
    """One page of a tenant's keys, or of one scope's; only the caller's own where keys belong to users."""
    begin = b"" if scope is None else keys_begin(caller, scope)
    after = begin if cursor is None else _place(cursor, begin)
    query = Listing(tenant=caller.tenant, kind=Kind.RECORD, after=after, limit=max(1, min(limit, PAGE_MAX)))
    page = await engine.scan(query)
    inside = [fact for fact in page.items if isinstance(fact, Record) and fact.id.startswith(begin)]
    own = [record for record in inside if not caller.owns_keys or record.user == caller.user]
    # Looked up once more, for only the engine can tell which of them still live.
    replies = await engine.execute([LookUp(tenant=caller.tenant, record_id=record.id) for record in own])
    found = [reply for reply in replies if isinstance(reply, Found)]
    stories = [story(reply.record, reply.job, ()) for reply in found if reply.record is not None]
    more = page.more and len(inside) == len(page.items)
    return KeyPage(stories, _cursor(page.items[-1].id) if more else None)


def _state(word: JobState | str) -> JobState:
    try:
        return JobState(word)
    except ValueError:
        raise Invalid("state", f"a state is one of {', '.join(JobState)}; choose one") from None


def _cursor(record_id: bytes) -> str:
    return urlsafe_b64encode(record_id).decode().rstrip("=")


def _place(cursor: str, begin: bytes) -> bytes:
    place = b""
    if _CURSOR.fullmatch(cursor) and len(cursor) % 4 != 1:
        place = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    if not place:
        raise Invalid("cursor", "this is no cursor of such a list; send `next` of the page before")
    return max(place, begin)  # a place before the scope is its beginning; after it there is nothing
