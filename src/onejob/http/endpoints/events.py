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
from onejob.core.credentials import Permission
from onejob.core.errors import Invalid
from onejob.core.identity import parse_job_id
from onejob.core.states import ENDED_STATES, JobState
from onejob.core.timestamps import to_utc
from onejob.errors import NotFound
from onejob.http.problems import RateLimited
from onejob.http.request import Request
from onejob.http.responses import Response
from onejob.http.routing import Parameter, Route
from onejob.http.schemas.jobs import EventGapOut, StreamEndOut, event_out
from onejob.http.schemas.types import ResponseBody
from onejob.http.schemas.work import JobStateOut, LogLineOut, ProgressOut
from onejob.ledger.present import LogPage
from onejob.ledger.watch import JobWatcher, TooManyWatchers, WatchedJob

PING_SECONDS = 15.0
# Then the client comes back by itself, perhaps to another process. Its credential is looked at before every piece.
WATCH_SECONDS_MAX = 900.0
RETRY_AFTER_SECONDS = 10
RECONNECT_MS = 1000
CURSOR_MAX = 2**53

_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"x-accel-buffering", b"no"),  # proxies must not wait for more
)
_EVENT_ID_PATTERN = re.compile(r"[0-9]{1,16}(?:[.][0-9]{1,16})?")
_PING = b": ping\n\n"
_encode = json.Encoder().encode


class StreamPosition(NamedTuple):
    """How far a watcher is."""

    events: int = -1  # the index of the last one
    lines: int = 0  # of the log
    state: tuple[JobState, int] = (JobState.PENDING, 0)  # and attempts; as `submitted` implies
    progress: str = ""

    @property
    def id(self) -> bytes:
        events = max(self.events, 0)
        return b"%d.%d" % (events, self.lines) if self.lines else b"%d" % events


_STREAM_START = StreamPosition()


async def stream_events(request: Request) -> Response:
    asked = request.query("cursor")
    job_id = parse_job_id(request.path_params[0])
    # A browser that comes back repeats its first query, and says in the header what it has seen since.
    last_seen = request.header(b"last-event-id")
    place = asked.get("cursor") if last_seen is None else last_seen
    seen = _STREAM_START if place is None else _parse_cursor(place)
    caller = request.credential.caller
    if not caller.oversees:
        await request.ledger.job(request.path_params[0])  # whose job it is never changes
    story = _stream_job(request.ledger.job_watcher, caller.tenant, job_id, seen)
    try:
        something_left = await anext(story)
    except TooManyWatchers as error:
        raise RateLimited(str(error), RETRY_AFTER_SECONDS) from error
    if last_seen is not None and not something_left:
        await story.aclose()
        return Response(204, b"", ())  # which tells a browser to stay away
    return Response(200, b"", _HEADERS, story)


async def _stream_job(
    watcher: JobWatcher, tenant: str, job_id: bytes, position: StreamPosition
) -> AsyncGenerator[bytes, None]:
    """The pieces to send. The first is empty when there is nothing left to tell, and is not sent."""
    async with watcher.watch(tenant, job_id) as watched:
        if position.events > watched.last_event_index or position.lines > watched.job_row.logs:
            raise NotFound("nothing so late has happened to this job; send the id of an event you saw")
        yield b"" if watched.is_exhausted(position.events, position.lines) else _PING
        yield b"retry: %d\n\n" % RECONNECT_MS
        async with aclosing(_stream_updates(watcher, watched, position)) as told:
            async for piece in told:
                yield piece


async def _stream_updates(
    watcher: JobWatcher, watched_job: WatchedJob, position: StreamPosition
) -> AsyncGenerator[bytes, None]:
    monotonic = SystemClock().monotonic
    until = monotonic() + WATCH_SECONDS_MAX
    while not watched_job.closed and monotonic() < until:
        news = watched_job.version
        piece, position = _frames_since(watched_job, position)
        if watched_job.job_row.logs > position.lines and not watched_job.deleted:
            page = await watcher.load_log_lines(watched_job.job_row, position.lines)
            frames, position = _log_frames(page, position)
            piece += frames
        if watched_job.is_exhausted(position.events, position.lines):
            yield piece + _frame("end", StreamEndOut(None if watched_job.deleted else watched_job.job_row.state))
            return
        if piece:
            yield piece
        elif not await watched_job.wait_for_change(news, PING_SECONDS):
            yield _PING


def _frames_since(watched_job: WatchedJob, position: StreamPosition) -> tuple[bytes, StreamPosition]:
    """Everything but log lines in one piece, and what was seen after it."""
    frames = []
    for index, event in watched_job.events_after(position.events):
        if index > position.events + 1:
            before = position._replace(events=index - 1)
            frames.append(_frame("gap", EventGapOut(index - position.events - 1), before))
        position = position._replace(events=index)
        frames.append(_frame(event.what, event_out(event), position))
    head = watched_job.job_row
    now = (head.state, head.attempts)
    # Before the first attempt the events of the history say it all.
    if now != position.state and head.state not in ENDED_STATES and (head.attempts or position.state[1]):
        position = position._replace(state=now)
        frames.append(_frame("state", JobStateOut(head.state, head.attempts, to_utc(head.changed_at)), position))
    if head.progress != position.progress:
        position = position._replace(progress=head.progress)
        if head.progress:
            frames.append(_frame("progress", ProgressOut(Raw(head.progress), to_utc(head.changed_at)), position))
    return b"".join(frames), position


def _log_frames(page: LogPage, position: StreamPosition) -> tuple[bytes, StreamPosition]:
    frames = []
    for index, line in enumerate(page.lines, start=page.offset):
        position = position._replace(lines=index + 1)
        frames.append(_frame("log", LogLineOut(index, line), position))
    # What is not kept any more will not come.
    return b"".join(frames), position._replace(lines=page.next)


def _frame(event_type: str, data: ResponseBody, position: StreamPosition | None = None) -> bytes:
    place = b"" if position is None else b"id: %b\n" % position.id
    return b"%bevent: %b\ndata: %b\n\n" % (place, event_type.encode(), _encode(data))


def _parse_cursor(text: str) -> StreamPosition:
    """From the id of an event: its index, and after a dot how many log lines were seen."""
    if not _EVENT_ID_PATTERN.fullmatch(text):
        raise Invalid("cursor", "a cursor is the id of the last event that was seen; send it as it was received")
    events, _, lines = text.partition(".")
    if max(int(events), int(lines or 0)) > CURSOR_MAX:
        raise Invalid("cursor", "there is no event so late; send the id of one that was seen")
    return StreamPosition(int(events), int(lines or 0))


_CURSOR = Parameter(
    "cursor",
    "the id of the last event that was seen; `Last-Event-ID` does the same",
    {"type": "string", "pattern": "^[0-9]{1,15}(?:[.][0-9]{1,15})?$"},
)

ROUTES = (
    Route(
        "GET",
        "/api/jobs/{id}/events",
        stream_events,
        Permission.READ,
        "Watch a job: its history, then what happens, as server-sent events until it has ended",
        query=(_CURSOR,),
        errors=("NOT_FOUND", "RATE_LIMITED"),
        media_type="text/event-stream",
    ),
)
