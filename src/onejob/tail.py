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

from .core.facts import Attachment, Beside, Job
from .core.history import FIRST_MAX, LAST_MAX, Event, first_event
from .core.lookup import LookUpJob
from .core.receipt import AnyReply, Found, Missing
from .core.states import ENDED
from .engine import Attachments
from .engines.gate import Gate
from .errors import OnejobError
from .outcome import failure
from .results import LogPage, log_page

PAUSE_FIRST = 0.1
PAUSE_MAX = 1.0
WATCHERS_MAX = 1000
LINES_AT_ONCE = 100

log = logging.getLogger("onejob")


class TooManyWatchers(OnejobError):
    """Not now: others watch."""

    retryable = True


class Watched:
    """A job that is watched, as it was last read."""

    def __init__(self, look: LookUpJob, head: Job) -> None:
        self.look = look
        self.head = head
        self.gone = False  # erased meanwhile
        self.closed = False  # nobody looks at the store any more
        self.watchers = 0
        self.news = 0  # grows with everything there is to tell
        self._events = {0: first_event(head)}
        self._signal = asyncio.Event()

    @property
    def last(self) -> int:
        """The index of the latest event that is known."""
        return max(self._events)

    def ended(self, seen: int, lines: int) -> bool:
        """There is nothing more to tell to somebody who has seen so many events and log lines."""
        told = seen >= self.head.events - 1 and lines >= self.head.logs
        return self.gone or (self.head.state in ENDED and told)

    def since(self, seen: int) -> Iterator[tuple[int, Event]]:
        """The events after an index, as far as they are kept."""
        return ((index, self._events[index]) for index in sorted(self._events) if index > seen)

    async def wait(self, news: int, seconds: float) -> bool:
        """Wait until there is more news than that; False when time is up."""
        if self.news == news:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._signal.wait()
        return self.news != news

    def learn(self, head: Job, added: Iterable[Attachment]) -> None:
        known = self.last, *_visible(self.head)
        for add in added:
            if add.index not in self._events:
                self._events[add.index] = json.decode(add.data, type=Event)
        if head.version > self.head.version:
            self.head = head
        last = self.last
        for index in [index for index in self._events if FIRST_MAX <= index <= last - LAST_MAX]:
            del self._events[index]
        if known != (last, *_visible(self.head)):
            self.tell()

    def tell(self) -> None:
        """Wake everybody who waits for news."""
        self.news += 1
        self._signal.set()
        self._signal = asyncio.Event()


class Tail:
    def __init__(self, gate: Gate, *, watchers_max: int = WATCHERS_MAX) -> None:
        self._gate = gate
        self._watchers_max = watchers_max
        self._jobs: dict[LookUpJob, Watched] = {}
        self._tenants: Counter[str] = Counter()
        self._stirred = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def watchers(self) -> int:
        return self._tenants.total()

    @asynccontextmanager
    async def watching(self, tenant: str, job_id: bytes) -> AsyncIterator[Watched]:
        """A job that is kept up to date while somebody is inside; NotFound where there is none."""
        own = self._tenants[tenant] + 1
        if self.watchers >= self._watchers_max or own * 2 > self._watchers_max + 1:
            raise TooManyWatchers("too many jobs are being watched here; come back later, or ask for the job")
        self._tenants[tenant] = own
        look = LookUpJob(tenant=tenant, job_id=job_id)
        watched: Watched | None = None
        try:
            watched = await self._joined(look)
            watched.watchers += 1
            yield watched
        finally:
            self._tenants[tenant] -= 1
            self._tenants += Counter()  # drops the tenants without a watcher
            if watched is not None:
                self._left(watched)

    def close(self) -> None:
        """Let all watchers go: they may come back to another process, and go on where they were."""
        self._closed = True
        for watched in self._jobs.values():
            watched.closed = True
            watched.tell()
        if self._task is not None:
            self._task.cancel()

    async def _joined(self, look: LookUpJob) -> Watched:
        """The shared view of a job, at least as new as this call."""
        (reply,) = await self._gate.execute((look,))
        head = _head(reply)
        if head is None:
            raise failure(reply, "")
        added = await self._added(head, 1)
        watched = self._jobs.get(look)
        if watched is None:
            watched = self._jobs[look] = Watched(look, head)
        watched.closed |= self._closed
        watched.learn(head, added)
        self._stirred.set()
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._follow())
        return watched

    def _left(self, watched: Watched) -> None:
        watched.watchers -= 1
        if not watched.watchers and self._jobs.get(watched.look) is watched:
            del self._jobs[watched.look]
        if not self._jobs and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _follow(self) -> None:
        pause, failing = PAUSE_FIRST, False
        try:
            while True:
                pause = PAUSE_FIRST if await self._rested(pause) else min(pause * 2, PAUSE_MAX)
                try:
                    if await self._looked():
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
                watched.tell()
            self._jobs.clear()

    async def _rested(self, pause: float) -> bool:
        """Rest for so long, or for the shortest pause when somebody new has come; True then."""
        await asyncio.sleep(PAUSE_FIRST)
        if pause > PAUSE_FIRST:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause - PAUSE_FIRST):
                    await self._stirred.wait()
        stirred = self._stirred.is_set()
        self._stirred.clear()
        return stirred

    async def _looked(self) -> bool:
        """Look at every watched job once; True when something had happened."""
        looked = list(self._jobs.values())
        replies = await self._gate.execute([watched.look for watched in looked])
        happened = False
        for watched, reply in zip(looked, replies, strict=True):
            head = _head(reply)
            news = watched.news
            if head is not None and head.events > watched.last + 1:
                watched.learn(head, await self._added(head, watched.last + 1))
            elif head is not None:
                watched.learn(head, ())
            elif isinstance(reply, Missing):
                watched.gone = True
                watched.tell()
            happened |= watched.news != news
        return happened

    async def lines(self, head: Job, start: int) -> LogPage:
        """Log lines from there on. Each watcher reads its own: together they could be too much to keep."""
        return await log_page(self._gate, head, offset=start, limit=LINES_AT_ONCE)

    async def _added(self, head: Job, start: int) -> Iterable[Attachment]:
        query = Attachments(tenant=head.tenant, job_id=head.id, beside=Beside.EVENT, start=start)
        return (await self._gate.scan(query)).items


def _visible(head: Job) -> tuple[object, ...]:
    """What a watcher is told of a head, besides its events."""
    return head.state, head.attempts, head.progress, head.logs


def _head(reply: AnyReply) -> Job | None:
    return reply.job if isinstance(reply, Found) else None
