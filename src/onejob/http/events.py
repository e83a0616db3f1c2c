"""A job's story as server-sent events: what has happened, then what happens, until the job ends.

Besides the events of its history there are `state` (it began, or waits for another attempt), `progress` and `log`.
The id of each says what was seen, events and log lines, so whoever was cut off goes on where it was: browsers do
so by themselves.
"""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple

from msgspec import Raw, json

from onejob.clock import SystemClock
from onejob.core.ids import parse_id
from onejob.core.invalid import Invalid
from onejob.core.moment import utc
from onejob.core.roles import Act
from onejob.core.states import ENDED, JobState
from onejob.errors import NotFound
from onejob.results import LogPage
from onejob.tail import Tail, TooManyWatchers, Watched

from .answers import Answer
from .problems import RateLimited
from .request import Request
from .routes import Parameter, Route
from .wire import Body, EndOut, GapOut, event_out
from .work_wire import LineOut, ProgressOut, StateOut

PING_SECONDS = 15.0
# Then the client comes back by itself, perhaps to another process. Its credential is looked at before every piece.
WATCH_SECONDS_MAX = 900.0
COME_BACK_SECONDS = 10
RECONNECT_MS = 1000
CURSOR_MAX = 2**53

_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"x-accel-buffering", b"no"),  # proxies must not wait for more
)
_ID = re.compile(r"[0-9]{1,16}(?:[.][0-9]{1,16})?")
_PING = b": ping\n\n"
_encode = json.Encoder().encode


class Seen(NamedTuple):
    """How far a watcher is."""

    events: int = -1  # the index of the last one
    lines: int = 0  # of the log
    state: tuple[JobState, int] = (JobState.PENDING, 0)  # and attempts; as `submitted` implies
    progress: str = ""

    @property
    def id(self) -> bytes:
        events = max(self.events, 0)
        return b"%d.%d" % (events, self.lines) if self.lines else b"%d" % events


_NOTHING_SEEN = Seen()


async def events(request: Request) -> Answer:
    asked = request.query("cursor")
    job_id = parse_id(request.path[0])
    # A browser that comes back repeats its first query, and says in the header what it has seen since.
    last_seen = request.header(b"last-event-id")
    place = asked.get("cursor") if last_seen is None else last_seen
    seen = _NOTHING_SEEN if place is None else _place(place)
    caller = request.credential.caller
    if not caller.oversees:
        await request.ledger.job(request.path[0])  # whose job it is never changes
    story = _story(request.ledger.tail, caller.tenant, job_id, seen)
    try:
        something_left = await anext(story)
    except TooManyWatchers as error:
        raise RateLimited(str(error), COME_BACK_SECONDS) from error
    if last_seen is not None and not something_left:
        await story.aclose()
        return Answer(204, b"", ())  # which tells a browser to stay away
    return Answer(200, b"", _HEADERS, story)


async def _story(tail: Tail, tenant: str, job_id: bytes, seen: Seen) -> AsyncGenerator[bytes, None]:
    """The pieces to send. The first is empty when there is nothing left to tell, and is not sent."""
    async with tail.watching(tenant, job_id) as watched:
        if seen.events > watched.last or seen.lines > watched.head.logs:
            raise NotFound("nothing so late has happened to this job; send the id of an event you saw")
        yield b"" if watched.ended(seen.events, seen.lines) else _PING
        yield b"retry: %d\n\n" % RECONNECT_MS
        async with aclosing(_told(tail, watched, seen)) as told:
            async for piece in told:
                yield piece


async def _told(tail: Tail, watched: Watched, seen: Seen) -> AsyncGenerator[bytes, None]:
    monotonic = SystemClock().monotonic
    until = monotonic() + WATCH_SECONDS_MAX
    while not watched.closed and monotonic() < until:
        news = watched.news
        piece, seen = _since(watched, seen)
        if watched.head.logs > seen.lines and not watched.gone:
            page = await tail.lines(watched.head, seen.lines)
            frames, seen = _lines(page, seen)
            piece += frames
        if watched.ended(seen.events, seen.lines):
            yield piece + _frame("end", EndOut(None if watched.gone else watched.head.state))
            return
        if piece:
            yield piece
        elif not await watched.wait(news, PING_SECONDS):
            yield _PING


def _since(watched: Watched, seen: Seen) -> tuple[bytes, Seen]:
    """Everything but log lines in one piece, and what was seen after it."""
    frames = []
    for index, event in watched.since(seen.events):
        if index > seen.events + 1:
            before = seen._replace(events=index - 1)
            frames.append(_frame("gap", GapOut(index - seen.events - 1), before))
        seen = seen._replace(events=index)
        frames.append(_frame(event.what, event_out(event), seen))
    head = watched.head
    now = (head.state, head.attempts)
    # Before the first attempt the events of the history say it all.
    if now != seen.state and head.state not in ENDED and (head.attempts or seen.state[1]):
        seen = seen._replace(state=now)
        frames.append(_frame("state", StateOut(head.state, head.attempts, utc(head.changed_at)), seen))
    if head.progress != seen.progress:
        seen = seen._replace(progress=head.progress)
        if head.progress:
            frames.append(_frame("progress", ProgressOut(Raw(head.progress), utc(head.changed_at)), seen))
    return b"".join(frames), seen


def _lines(page: LogPage, seen: Seen) -> tuple[bytes, Seen]:
    frames = []
    for index, line in enumerate(page.lines, start=page.offset):
        seen = seen._replace(lines=index + 1)
        frames.append(_frame("log", LineOut(index, line), seen))
    # What is not kept any more will not come.
    return b"".join(frames), seen._replace(lines=page.next)


def _frame(what: str, data: Body, seen: Seen | None = None) -> bytes:
    place = b"" if seen is None else b"id: %b\n" % seen.id
    return b"%bevent: %b\ndata: %b\n\n" % (place, what.encode(), _encode(data))


def _place(text: str) -> Seen:
    """From the id of an event: its index, and after a dot how many log lines were seen."""
    if not _ID.fullmatch(text):
        raise Invalid(
            "cursor", "a cursor is the id of the last event that was seen; send it as it was received"
        )
    events, _, lines = text.partition(".")
    if max(int(events), int(lines or 0)) > CURSOR_MAX:
        raise Invalid("cursor", "there is no event so late; send the id of one that was seen")
    return Seen(int(events), int(lines or 0))


_CURSOR = Parameter(
    "cursor",
    "the id of the last event that was seen; `Last-Event-ID` does the same",
    {"type": "string", "pattern": "^[0-9]{1,15}(?:[.][0-9]{1,15})?$"},
)

ROUTES = (
    Route(
        "GET",
        "/api/jobs/{id}/events",
        events,
        Act.READ,
        "Watch a job: its history, then what happens, as server-sent events until it has ended",
        query=(_CURSOR,),
        errors=("NOT_FOUND", "RATE_LIMITED"),
        media="text/event-stream",
    ),
)
