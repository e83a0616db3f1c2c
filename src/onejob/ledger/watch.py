"""One tail of the store for everybody who watches jobs.

All watched jobs are looked at in one batched read, 100 ms doubling to 1 s while nothing changes, and not at all
while nobody watches. Events are fetched only for jobs whose head tells of new ones. A watcher keeps its own place
and reads from what is shared, so a slow one costs nothing but a gap in its story.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress

from msgspec import json

from onejob.core.facts import Attachment, AttachmentKind, Job
from onejob.core.lookup import LookUpJob
from onejob.core.replies import AnyReply, Found, Missing
from onejob.core.states import ENDED_STATES
from onejob.core.work import FIRST_EVENTS_MAX, LAST_EVENTS_MAX, Event, first_event
from onejob.engine import ListAttachments
from onejob.engines.gate import Gate
from onejob.errors import OnejobError

from .present import LogPage, load_log_page, to_exception

PAUSE_FIRST = 0.1
PAUSE_MAX = 1.0
WATCHERS_MAX = 1000
LOG_LINES_PER_READ = 100

log = logging.getLogger("onejob")


class TooManyWatchers(OnejobError):
    """Not now: others watch."""

    retryable = True


class WatchedJob:
    """A job that is watched, as it was last read."""

    def __init__(self, lookup: LookUpJob, job_row: Job) -> None:
        self.lookup = lookup
        self.job_row = job_row
        self.deleted = False  # erased meanwhile
        self.closed = False  # nobody looks at the store any more
        self.watcher_count = 0
        self.version = 0  # grows with everything there is to tell
        self._events = {0: first_event(job_row)}
        self._signal = asyncio.Event()

    @property
    def last_event_index(self) -> int:
        """The index of the latest event that is known."""
        return max(self._events)

    def is_exhausted(self, last_seen_event: int, lines_seen: int) -> bool:
        """There is nothing more to tell to somebody who has seen so many events and log lines."""
        told = last_seen_event >= self.job_row.events - 1 and lines_seen >= self.job_row.logs
        return self.deleted or (self.job_row.state in ENDED_STATES and told)

    def events_after(self, last_seen_event: int) -> Iterator[tuple[int, Event]]:
        """The events after an index, as far as they are kept."""
        return ((index, self._events[index]) for index in sorted(self._events) if index > last_seen_event)

    async def wait_for_change(self, version: int, seconds: float) -> bool:
        """Wait until there is more news than that; False when time is up."""
        if self.version == version:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._signal.wait()
        return self.version != version

    def update(self, job_row: Job, attachments: Iterable[Attachment]) -> None:
        known = self.last_event_index, *_visible_fields(self.job_row)
        for add in attachments:
            if add.index not in self._events:
                self._events[add.index] = json.decode(add.data, type=Event)
        if job_row.version > self.job_row.version:
            self.job_row = job_row
        last = self.last_event_index
        for index in [index for index in self._events if FIRST_EVENTS_MAX <= index <= last - LAST_EVENTS_MAX]:
            del self._events[index]
        if known != (last, *_visible_fields(self.job_row)):
            self.notify()

    def notify(self) -> None:
        """Wake everybody who waits for news."""
        self.version += 1
        self._signal.set()
        self._signal = asyncio.Event()


class JobWatcher:
    def __init__(self, gate: Gate, *, watchers_max: int = WATCHERS_MAX) -> None:
        self._gate = gate
        self._watchers_max = watchers_max
        self._jobs: dict[LookUpJob, WatchedJob] = {}
        self._tenants: Counter[str] = Counter()
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def watcher_count(self) -> int:
        return self._tenants.total()

    @asynccontextmanager
    async def watch(self, tenant: str, job_id: bytes) -> AsyncIterator[WatchedJob]:
        """A job that is kept up to date while somebody is inside; NotFound where there is none."""
        own = self._tenants[tenant] + 1
        if self.watcher_count >= self._watchers_max or own * 2 > self._watchers_max + 1:
            raise TooManyWatchers("too many jobs are being watched here; come back later, or ask for the job")
        self._tenants[tenant] = own
        look = LookUpJob(tenant=tenant, job_id=job_id)
        watched: WatchedJob | None = None
        try:
            watched = await self._join(look)
            watched.watcher_count += 1
            yield watched
        finally:
            self._tenants[tenant] -= 1
            self._tenants += Counter()  # drops the tenants without a watcher
            if watched is not None:
                self._leave(watched)

    def close(self) -> None:
        """Let all watchers go: they may come back to another process, and go on where they were."""
        self._closed = True
        for watched in self._jobs.values():
            watched.closed = True
            watched.notify()
        if self._task is not None:
            self._task.cancel()

    async def _join(self, lookup: LookUpJob) -> WatchedJob:
        """The shared view of a job, at least as new as this call."""
        (reply,) = await self._gate.execute((lookup,))
        head = _found_job_row(reply)
        if head is None:
            raise to_exception(reply, "")
        added = await self._load_events(head, 1)
        watched = self._jobs.get(lookup)
        if watched is None:
            watched = self._jobs[lookup] = WatchedJob(lookup, head)
        watched.closed |= self._closed
        watched.update(head, added)
        self._wakeup.set()
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._poll_forever())
        return watched

    def _leave(self, watched: WatchedJob) -> None:
        watched.watcher_count -= 1
        if not watched.watcher_count and self._jobs.get(watched.lookup) is watched:
            del self._jobs[watched.lookup]
        if not self._jobs and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _poll_forever(self) -> None:
        pause, failing = PAUSE_FIRST, False
        try:
            while True:
                pause = PAUSE_FIRST if await self._pause(pause) else min(pause * 2, PAUSE_MAX)
                try:
                    if await self._poll_once():
                        pause = PAUSE_FIRST
                    failing = False
                except OnejobError as error:  # what is not known has not changed
                    if not failing:
                        log.warning("whoever watches jobs must wait: %s", error)
                    failing = True
        except Exception:
            log.exception("the tail of the store broke; its watchers are let go")
            self._task = None
            for watched in self._jobs.values():
                watched.closed = True
                watched.notify()
            self._jobs.clear()

    async def _pause(self, pause: float) -> bool:
        """Rest for so long, or for the shortest pause when somebody new has come; True then."""
        await asyncio.sleep(PAUSE_FIRST)
        if pause > PAUSE_FIRST:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause - PAUSE_FIRST):
                    await self._wakeup.wait()
        stirred = self._wakeup.is_set()
        self._wakeup.clear()
        return stirred

    async def _poll_once(self) -> bool:
        """Look at every watched job once; True when something had happened."""
        looked = list(self._jobs.values())
        replies = await self._gate.execute([watched.lookup for watched in looked])
        happened = False
        for watched, reply in zip(looked, replies, strict=True):
            head = _found_job_row(reply)
            news = watched.version
            if head is not None and head.events > watched.last_event_index + 1:
                watched.update(head, await self._load_events(head, watched.last_event_index + 1))
            elif head is not None:
                watched.update(head, ())
            elif isinstance(reply, Missing):
                watched.deleted = True
                watched.notify()
            happened |= watched.version != news
        return happened

    async def load_log_lines(self, job_row: Job, start: int) -> LogPage:
        """Log lines from there on. Each watcher reads its own: together they could be too much to keep."""
        return await load_log_page(self._gate, job_row, offset=start, limit=LOG_LINES_PER_READ)

    async def _load_events(self, job_row: Job, start: int) -> Iterable[Attachment]:
        query = ListAttachments(tenant=job_row.tenant, job_id=job_row.id, kind=AttachmentKind.EVENT, start=start)
        return (await self._gate.scan(query)).items


def _visible_fields(job_row: Job) -> tuple[object, ...]:
    """What a watcher is told of a head, besides its events."""
    return job_row.state, job_row.attempts, job_row.progress, job_row.logs


def _found_job_row(reply: AnyReply) -> Job | None:
    return reply.job if isinstance(reply, Found) else None
