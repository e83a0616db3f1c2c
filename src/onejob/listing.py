"""Pages for whoever looks around: jobs and keys of a tenant, with a cursor. Never the basis of a decision."""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from .core import base64url
from .core.facts import Job, Kind, Record
from .core.ids import parse_id, text_of
from .core.invalid import Invalid
from .core.lookup import LookUp
from .core.receipt import Found
from .core.states import JobState
from .core.views import JobView, Story, story
from .engine import PAGE_MAX, Engine, JobPage, Listing, Page
from .intake import Caller, for_user, keys_begin, named_scope

_NOBODY = ""  # no user has this name
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
    caller: Caller,
    *,
    state: JobState | str | None,
    type: str | None,
    user: str | None,
    before: str | None,
    limit: int,
) -> JobPage:
    """One page of a tenant's jobs; only the caller's own where it may see no others."""
    if not caller.oversees:
        user = caller.user if user in (None, caller.user) else _NOBODY
    return JobPage(
        tenant=caller.tenant,
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
    engine: Engine,
    caller: Caller,
    *,
    scope: str | None,
    user: str | None,
    cursor: str | None,
    limit: int,
) -> KeyPage:
    """One page of a tenant's keys, of one scope's or one user's; only the caller's own where no other may be seen."""
    caller = for_user(caller, user)
    of_all = caller.owns_keys and caller.oversees and user is None
    if caller.owns_keys and not of_all:
        user = caller.user
    # The scopes of different users begin differently: then all is looked at, and a page may be short.
    begin = b"" if scope is None or of_all else keys_begin(caller, scope)
    after = begin if cursor is None else _place(cursor, begin)
    query = Listing(tenant=caller.tenant, kind=Kind.RECORD, after=after, limit=max(1, min(limit, PAGE_MAX)))
    page = await engine.scan(query)
    inside = [fact for fact in page.items if isinstance(fact, Record) and fact.id.startswith(begin)]
    wanted = None if scope is None else named_scope(scope)
    own = [record for record in inside if user in (None, record.user) and wanted in (None, record.scope)]
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
    return base64url.encode(record_id)


def _place(cursor: str, begin: bytes) -> bytes:
    place = b""
    if _CURSOR.fullmatch(cursor) and len(cursor) % 4 != 1:
        place = base64url.decode(cursor)
    if not place:
        raise Invalid("cursor", "this is no cursor of such a list; send `next` of the page before")
    return max(place, begin)  # a place before the scope is its beginning; after it there is nothing
