"""A job's story as server-sent events: what has happened, then what happens, until the job ends.

Every event has its index as its id, so whoever was cut off goes on where it was: browsers do so by themselves.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec import json

from onejob.clock import SystemClock
from onejob.core.ids import parse_id
from onejob.core.invalid import Invalid
from onejob.core.roles import Act
from onejob.errors import NotFound
from onejob.tail import Tail, TooManyWatchers, Watched

from .answers import Answer
from .problems import RateLimited
from .request import Request
from .routes import Parameter, Route
from .wire import Body, EndOut, GapOut, event_out

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
_NOTHING_SEEN = -1
_PING = b": ping\n\n"
_encode = json.Encoder().encode


async def events(request: Request) -> Answer:
    asked = request.query("cursor")
    job_id = parse_id(request.path[0])
    # A browser that comes back repeats its first query, and says in the header what it has seen since.
    last_seen = request.header(b"last-event-id")
    place = asked.get("cursor") if last_seen is None else last_seen
    seen = _NOTHING_SEEN if place is None else _index(place)
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


async def _story(tail: Tail, tenant: str, job_id: bytes, seen: int) -> AsyncGenerator[bytes, None]:
    """The pieces to send. The first is empty when there is nothing left to tell, and is not sent."""
    async with tail.watching(tenant, job_id) as watched:
        if seen > watched.last:
            raise NotFound("nothing so late has happened to this job; send the id of an event you saw")
        yield b"" if watched.ended(seen) else _PING
        yield b"retry: %d\n\n" % RECONNECT_MS
        async with aclosing(_told(watched, seen)) as told:
            async for piece in told:
                yield piece


async def _told(watched: Watched, seen: int) -> AsyncGenerator[bytes, None]:
    monotonic = SystemClock().monotonic
    until = monotonic() + WATCH_SECONDS_MAX
    while not watched.closed and monotonic() < until:
        news = watched.news
        piece, seen = _since(watched, seen)
        if watched.ended(seen):
            yield piece + _frame("end", EndOut(None if watched.gone else watched.head.state))
            return
        if piece:
            yield piece
        elif not await watched.wait(news, PING_SECONDS):
            yield _PING


def _since(watched: Watched, seen: int) -> tuple[bytes, int]:
    """Everything after an index in one piece, and the index of its last event."""
    frames = []
    for index, event in watched.since(seen):
        if index > seen + 1:
            frames.append(_frame("gap", GapOut(index - seen - 1), index - 1))
        frames.append(_frame(event.what, event_out(event), index))
        seen = index
    return b"".join(frames), seen


def _frame(what: str, data: Body, index: int | None = None) -> bytes:
    place = b"" if index is None else b"id: %d\n" % index
    return b"%bevent: %b\ndata: %b\n\n" % (place, what.encode(), _encode(data))


def _index(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 17 and int(text) <= CURSOR_MAX):
        raise Invalid(
            "cursor", "a cursor is the id of the last event that was seen; send it as it was received"
        )
    return int(text)


_CURSOR = Parameter(
    "cursor",
    "the id of the last event that was seen; `Last-Event-ID` does the same",
    {"type": "integer", "minimum": 0, "maximum": CURSOR_MAX},
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
