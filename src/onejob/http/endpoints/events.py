"""A job's history and its further course as server-sent events, until the job has ended.

Besides the events of the history there are `state` (an attempt started, or the job waits for another one), `progress` and
`log`. The id of an event counts the events and log lines sent so far, so a client that was cut off resumes there; browsers
do so by themselves.
"""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple

from msgspec import Raw, Struct, json

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
from onejob.http.schemas.types import ResponseBody
from onejob.http.schemas.work import JobStateOut, LogLineOut, ProgressOut
from onejob.ledger.base import runtime_of
from onejob.resources.jobs import LogPage
from onejob.runtime.present import to_event_view
from onejob.runtime.watch import JobWatcher, TooManyWatchers, WatchedJob

PING_SECONDS = 15.0
# Then the stream ends, and the client reconnects, perhaps to another process. The credential is checked before every chunk.
WATCH_SECONDS_MAX = 900.0
RETRY_AFTER_SECONDS = 10
RECONNECT_MS = 1000
CURSOR_MAX = 2**53

_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"x-accel-buffering", b"no"),  # a proxy must not buffer the stream
)
_EVENT_ID_PATTERN = re.compile(r"[0-9]{1,16}(?:[.][0-9]{1,16})?")
_PING = b": ping\n\n"
_encode = json.Encoder().encode


class EventGapOut(ResponseBody, frozen=True, rename="camel"):
    """Events that are no longer stored."""

    missing: int


class StreamEndOut(ResponseBody, frozen=True, rename="camel"):
    """The job has ended; no more events follow."""

    state: JobState | None  # None: the job was deleted


class StreamPosition(NamedTuple):
    """What a client has received."""

    events: int = -1  # index of the last event
    lines: int = 0  # number of log lines
    state: tuple[JobState, int] = (JobState.PENDING, 0)  # with the number of attempts; `submitted` implies these
    progress: str = ""

    @property
    def id(self) -> bytes:
        events = max(self.events, 0)
        return b"%d.%d" % (events, self.lines) if self.lines else b"%d" % events


_STREAM_START = StreamPosition()


async def stream_events(request: Request) -> Response:
    query = request.query("cursor")
    job_id = parse_job_id(request.path_params[0])
    # A browser that reconnects repeats its first query and sends what it received since in the header.
    last_event_id = request.header(b"last-event-id")
    cursor = query.get("cursor") if last_event_id is None else last_event_id
    position = _STREAM_START if cursor is None else _parse_cursor(cursor)
    caller = request.credential.caller
    if not caller.sees_all_users:
        await request.ledger.job(request.path_params[0])  # checks the owner, who never changes
    stream = _stream_job(runtime_of(request.ledger).job_watcher, caller.tenant, job_id, position)
    try:
        has_more = await anext(stream)
    except TooManyWatchers as error:
        raise RateLimited(str(error), RETRY_AFTER_SECONDS) from error
    if last_event_id is not None and not has_more:
        await stream.aclose()
        return Response(204, b"", ())  # tells a browser not to reconnect
    return Response(200, b"", _HEADERS, stream)


async def _stream_job(
    watcher: JobWatcher, tenant: str, job_id: bytes, position: StreamPosition
) -> AsyncGenerator[bytes, None]:
    """The chunks to send; the first is empty if nothing is left to send, and is not sent itself."""
    async with watcher.watch(tenant, job_id) as watched:
        if position.events > watched.last_event_index or position.lines > watched.job_row.logs:
            raise NotFound("this job has no event that late; send the id of an event you received")
        yield b"" if watched.is_exhausted(position.events, position.lines) else _PING
        yield b"retry: %d\n\n" % RECONNECT_MS
        async with aclosing(_stream_updates(watcher, watched, position)) as updates:
            async for chunk in updates:
                yield chunk


async def _stream_updates(
    watcher: JobWatcher, watched_job: WatchedJob, position: StreamPosition
) -> AsyncGenerator[bytes, None]:
    monotonic = SystemClock().monotonic
    until = monotonic() + WATCH_SECONDS_MAX
    while not watched_job.closed and monotonic() < until:
        version = watched_job.version
        chunk, position = _frames_since(watched_job, position)
        if watched_job.job_row.logs > position.lines and not watched_job.deleted:
            page = await watcher.load_log_lines(watched_job.job_row, position.lines)
            frames, position = _log_frames(page, position)
            chunk += frames
        if watched_job.is_exhausted(position.events, position.lines):
            yield chunk + _frame("end", StreamEndOut(None if watched_job.deleted else watched_job.job_row.state))
            return
        if chunk:
            yield chunk
        elif not await watched_job.wait_for_change(version, PING_SECONDS):
            yield _PING


def _frames_since(watched_job: WatchedJob, position: StreamPosition) -> tuple[bytes, StreamPosition]:
    """All new events except log lines, and the position after them."""
    frames = []
    for index, event in watched_job.events_after(position.events):
        if index > position.events + 1:
            before = position._replace(events=index - 1)
            frames.append(_frame("gap", EventGapOut(index - position.events - 1), before))
        position = position._replace(events=index)
        frames.append(_frame(event.what, to_event_view(event), position))
    row = watched_job.job_row
    state = (row.state, row.attempts)
    # Before the first attempt the history has every change of state.
    if state != position.state and row.state not in ENDED_STATES and (row.attempts or position.state[1]):
        position = position._replace(state=state)
        frames.append(_frame("state", JobStateOut(row.state, row.attempts, to_utc(row.changed_at)), position))
    if row.progress != position.progress:
        position = position._replace(progress=row.progress)
        if row.progress:
            frames.append(_frame("progress", ProgressOut(Raw(row.progress), to_utc(row.changed_at)), position))
    return b"".join(frames), position


def _log_frames(page: LogPage, position: StreamPosition) -> tuple[bytes, StreamPosition]:
    frames = []
    for index, line in enumerate(page.lines, start=page.offset):
        position = position._replace(lines=index + 1)
        frames.append(_frame("log", LogLineOut(index, line), position))
    # Lines before this page that were deleted are skipped.
    return b"".join(frames), position._replace(lines=page.next)


def _frame(event_type: str, data: Struct, position: StreamPosition | None = None) -> bytes:
    id_line = b"" if position is None else b"id: %b\n" % position.id
    return b"%bevent: %b\ndata: %b\n\n" % (id_line, event_type.encode(), _encode(data))


def _parse_cursor(text: str) -> StreamPosition:
    """Parse the id of an event: its index and, after a dot, the number of log lines received."""
    if not _EVENT_ID_PATTERN.fullmatch(text):
        raise Invalid("cursor", "a cursor is the id of the last event received; send it unchanged")
    events, _, lines = text.partition(".")
    if max(int(events), int(lines or 0)) > CURSOR_MAX:
        raise Invalid("cursor", "there is no event that late; send the id of one you received")
    return StreamPosition(int(events), int(lines or 0))


_CURSOR = Parameter(
    "cursor",
    "id of the last event received; the header `Last-Event-ID` means the same",
    {"type": "string", "pattern": "^[0-9]{1,15}(?:[.][0-9]{1,15})?$"},
)

ROUTES = (
    Route(
        "GET",
        "/api/jobs/{id}/events",
        stream_events,
        Permission.READ,
        "Watch a job: its history, then each change, as server-sent events until it has ended",
        query=(_CURSOR,),
        errors=("NOT_FOUND", "RATE_LIMITED"),
        media_type="text/event-stream",
    ),
)
