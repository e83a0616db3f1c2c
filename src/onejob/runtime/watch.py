"""Polls the store for all watched jobs of the process, for event streams and `Ledger.wait`.

One batched read fetches all watched jobs: every 100 ms, doubling to every second while nothing changes; no watcher
means no poll. Events are fetched only for jobs whose row counts new ones. Each watcher keeps its own position and
reads from the shared copy, so a slow one costs nothing and may only miss events that were trimmed meanwhile.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress

from msgspec import json

from onejob.backoff import Backoff
from onejob.core.facts import Attachment, AttachmentKind, Job
from onejob.core.lookup import LookUpJob
from onejob.core.replies import AnyReply, Found, Missing
from onejob.core.states import ENDED_STATES
from onejob.core.work import FIRST_EVENTS_MAX, LAST_EVENTS_MAX, Event, first_event
from onejob.engine import ListAttachments
from onejob.engines.gate import Gate
from onejob.errors import OnejobError
from onejob.resources.jobs import LogPage

from .present import load_log_page, to_exception
from .wakeups import admit_caller

PAUSE_FIRST = 0.1
PAUSE_MAX = 1.0
WATCHERS_MAX = 1000
LOG_LINES_PER_READ = 100

log = logging.getLogger("onejob")


class TooManyWatchers(OnejobError):
    """The limit on watchers is reached; a retry may succeed."""

    retryable = True


class WatchedJob:
    """A watched job as it was last read, shared by all its watchers."""

    def __init__(self, lookup: LookUpJob, job_row: Job) -> None:
        self.lookup = lookup
        self.job_row = job_row
        self.deleted = False
        self.closed = False  # polling has ended
        self.watcher_count = 0
        self.version = 0  # grows with every change that a watcher reports
        self._events = {0: first_event(job_row)}
        self._signal = asyncio.Event()

    @property
    def last_event_index(self) -> int:
        """The index of the latest event that was read."""
        return max(self._events)

    def is_exhausted(self, last_seen_event: int, lines_seen: int) -> bool:
        """True if nothing will follow for a watcher that has seen this many events and log lines."""
        all_seen = last_seen_event >= self.job_row.events - 1 and lines_seen >= self.job_row.logs
        return self.deleted or (self.job_row.state in ENDED_STATES and all_seen)

    def events_after(self, last_seen_event: int) -> Iterator[tuple[int, Event]]:
        """The events after an index, without those that were trimmed."""
        return ((index, self._events[index]) for index in sorted(self._events) if index > last_seen_event)

    async def wait_for_change(self, version: int, seconds: float) -> bool:
        """Wait until the version differs from this one; False when the time is up."""
        if self.version == version:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._signal.wait()
        return self.version != version

    def update(self, job_row: Job, attachments: Iterable[Attachment]) -> None:
        before = self.last_event_index, *_visible_fields(self.job_row)
        for attachment in attachments:
            if attachment.index not in self._events:
                self._events[attachment.index] = json.decode(attachment.data, type=Event)
        if job_row.version > self.job_row.version:
            self.job_row = job_row
        last = self.last_event_index
        for index in [index for index in self._events if FIRST_EVENTS_MAX <= index <= last - LAST_EVENTS_MAX]:
            del self._events[index]
        if before != (last, *_visible_fields(self.job_row)):
            self.notify()

    def notify(self) -> None:
        """Wake all watchers."""
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

    @property
    def is_closed(self) -> bool:
        return self._closed

    @asynccontextmanager
    async def watch(self, tenant: str, job_id: bytes) -> AsyncIterator[WatchedJob]:
        """Keep a job up to date while the caller is inside; NotFound if there is no such job."""
        refusal = TooManyWatchers("too many jobs are being watched; try again later, or fetch the job instead")
        with admit_caller(self._tenants, tenant, limit=self._watchers_max, refusal=refusal):
            watched = await self._join(LookUpJob(tenant=tenant, job_id=job_id))
            watched.watcher_count += 1
            try:
                yield watched
            finally:
                self._leave(watched)

    def close(self) -> None:
        """End polling and wake all watchers: they may continue from their position in another process."""
        self._closed = True
        self._close_watched_jobs()
        if self._task is not None:
            self._task.cancel()

    async def _join(self, lookup: LookUpJob) -> WatchedJob:
        """Return the shared copy of a job, read no earlier than this call."""
        (reply,) = await self._gate.execute((lookup,))
        job_row = _found_job_row(reply)
        if job_row is None:
            raise to_exception(reply, "")
        events = await self._load_events(job_row, 1)
        watched = self._jobs.get(lookup)
        if watched is None:
            watched = self._jobs[lookup] = WatchedJob(lookup, job_row)
        watched.closed |= self._closed
        watched.update(job_row, events)
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
        backoff, failing = Backoff(PAUSE_FIRST, PAUSE_MAX), False
        try:
            while True:
                if await self._pause(next(backoff)):
                    backoff.reset()
                try:
                    if await self._poll_once():
                        backoff.reset()
                    failing = False
                except OnejobError as error:
                    if not failing:
                        log.warning("polling of watched jobs failed, will retry: %s", error)
                    failing = True
        except Exception:
            log.exception("polling of watched jobs failed with an unexpected error; closing their watchers")
            self._task = None
            self._close_watched_jobs()
            self._jobs.clear()

    def _close_watched_jobs(self) -> None:
        for watched in self._jobs.values():
            watched.closed = True
            watched.notify()

    async def _pause(self, pause: float) -> bool:
        """Sleep for the pause; cut it short and return True if a watcher has joined."""
        await asyncio.sleep(PAUSE_FIRST)
        if pause > PAUSE_FIRST:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause - PAUSE_FIRST):
                    await self._wakeup.wait()
        has_joined = self._wakeup.is_set()
        self._wakeup.clear()
        return has_joined

    async def _poll_once(self) -> bool:
        """Read every watched job once; True if any of them changed."""
        jobs = list(self._jobs.values())
        replies = await self._gate.execute([watched.lookup for watched in jobs])
        changed = False
        for watched, reply in zip(jobs, replies, strict=True):
            job_row = _found_job_row(reply)
            version = watched.version
            if job_row is not None and job_row.events > watched.last_event_index + 1:
                watched.update(job_row, await self._load_events(job_row, watched.last_event_index + 1))
            elif job_row is not None:
                watched.update(job_row, ())
            elif isinstance(reply, Missing):
                watched.deleted = True
                watched.notify()
            changed |= watched.version != version
        return changed

    async def load_log_lines(self, job_row: Job, start: int) -> LogPage:
        """Read log lines from an index on. They are not shared, because all lines together could be too large."""
        return await load_log_page(self._gate, job_row, offset=start, limit=LOG_LINES_PER_READ)

    async def _load_events(self, job_row: Job, start: int) -> Iterable[Attachment]:
        query = ListAttachments(tenant=job_row.tenant, job_id=job_row.id, kind=AttachmentKind.EVENT, start=start)
        return (await self._gate.scan(query)).items


def _visible_fields(job_row: Job) -> tuple[object, ...]:
    """The fields whose change is reported to watchers, besides events."""
    return job_row.state, job_row.attempts, job_row.progress, job_row.logs


def _found_job_row(reply: AnyReply) -> Job | None:
    return reply.job if isinstance(reply, Found) else None
