"""Waiting for work. What this process commits is heard at once; what others commit is seen by looking.

All who wait for the same types look together: 20 ms doubling to 1 s, earlier where a job's time comes earlier. While
nobody waits, nobody looks.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from onejob.core.facts import Job
from onejob.core.replies import AnyReply, Created, Finished, KeySettled, Released, Resolved, SequenceCommitted
from onejob.core.states import CLAIMABLE_STATES
from onejob.engine import ListBacklogs
from onejob.engines.gate import Gate
from onejob.errors import OnejobError
from onejob.ids import Ids

# Places for those who wait at an edge: bounded, half of them for one tenant, and let go when the process leaves.


WAITERS_MAX = 1000


class TooManyWaiters(OnejobError):
    """Not now: others wait."""

    retryable = True


class Waiters:
    def __init__(self, *, waiters_max: int = WAITERS_MAX) -> None:
        self._waiters_max = waiters_max
        self._tenants: Counter[str] = Counter()
        self._shutdown = asyncio.Event()

    @property
    def count(self) -> int:
        return self._tenants.total()

    @property
    def is_shutting_down(self) -> bool:
        """The server goes: whoever waits is let go, and nobody should begin to."""
        return self._shutdown.is_set()

    def release(self) -> None:
        self._shutdown.set()

    async def wait_for_shutdown(self) -> None:
        """Returns when the server is about to leave."""
        await self._shutdown.wait()

    @contextmanager
    def admit(self, tenant: str) -> Iterator[None]:
        """A place among those who wait."""
        own = self._tenants[tenant] + 1
        if self.count >= self._waiters_max or own * 2 > self._waiters_max + 1:
            raise TooManyWaiters("too many wait here; come back later, or ask without waiting")
        self._tenants[tenant] = own
        try:
            yield
        finally:
            self._tenants[tenant] -= 1
            self._tenants += Counter()  # drops the tenants without a waiter


PAUSE_FIRST = 0.02
PAUSE_MAX = 1.0
JITTER = 0.25
TOPICS_MAX = 1000

log = logging.getLogger("onejob")

Topic = tuple[tuple[str, ...], str | None]  # types, and the tenant if it is one


class WakeupHub:
    def __init__(self, gate: Gate, ids: Ids) -> None:
        self._gate = gate
        self._ids = ids
        self._topics: OrderedDict[Topic, _TopicState] = OrderedDict()
        self.closed = False

    def subscribe(self, types: tuple[str, ...], tenant: str | None) -> "Listener":
        """From now on hear of jobs that become free; to claim only then misses none of them."""
        return Listener(self, self._topic_state((types, tenant)))

    def on_claimed(self, types: tuple[str, ...], tenant: str | None) -> None:
        """Something was claimed: where there was one, the next may come soon."""
        self._topic_state((types, tenant)).pause = PAUSE_FIRST

    def on_commit(self, replies: Sequence[AnyReply | Exception]) -> None:
        """Wake one who waits for each job that has become free."""
        if not any(watch.waiters for watch in self._topics.values()):
            return
        for job in (job for reply in replies for job in _claimable_jobs(reply)):
            for (types, tenant), watch in self._topics.items():
                if watch.waiters and job.type in types and tenant in (None, job.tenant):
                    watch.wake(1)
                    break

    def close(self) -> None:
        """Nobody waits any more."""
        self.closed = True
        for watch in self._topics.values():
            watch.wake(len(watch.waiters))

    def _topic_state(self, topic: Topic) -> "_TopicState":
        watch = self._topics.get(topic)
        if watch is None:
            watch = self._topics[topic] = _TopicState(topic, self._gate, self._ids)
            idle = [key for key, known in self._topics.items() if known is not watch and not known.waiters]
            for key in idle[: max(len(self._topics) - TOPICS_MAX, 0)]:
                del self._topics[key]
        return watch


class Listener:
    """One who claims, and waits where there is nothing."""

    def __init__(self, hub: WakeupHub, topic_state: "_TopicState") -> None:
        self._hub = hub
        self._topic_state = topic_state
        self._signal: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._topic_state.waiters[self._signal] = None
        self._has_waited = False

    async def wait(self, seconds: float) -> None:
        """Until there may be something to claim, or the time is up."""
        self._has_waited = True
        watch = self._topic_state
        if self._hub.closed or self._signal.done():
            return
        watch.waiting_count += 1
        if watch.poll_task is None:
            watch.poll_task = asyncio.get_running_loop().create_task(watch.poll())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._signal
        finally:
            watch.waiting_count -= 1
            if not watch.waiting_count and watch.poll_task is not None:
                watch.poll_task.cancel()
                watch.poll_task = None

    def close(self) -> None:
        self._topic_state.waiters.pop(self._signal, None)
        if self._signal.done() and not self._signal.cancelled() and not self._has_waited:
            self._topic_state.wake(1)  # what was heard in vain is for the next


class _TopicState:
    """Who waits on one line, and the look-out that they share."""

    def __init__(self, topic: Topic, gate: Gate, ids: Ids) -> None:
        self._topic = topic
        self._gate = gate
        self._ids = ids
        self.waiters: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self.waiting_count = 0  # of the waiters: the others are claiming
        self.poll_task: asyncio.Task[None] | None = None
        self.pause = PAUSE_FIRST

    def wake(self, most: int) -> None:
        for _ in range(min(most, len(self.waiters))):
            signal, _ = self.waiters.popitem(last=False)
            if not signal.done():
                signal.set_result(None)

    async def poll(self) -> None:
        types, tenant = self._topic
        due = PAUSE_MAX
        failing = False
        while True:
            early = JITTER * self._ids.holder()[0] / 255
            await asyncio.sleep(min(self.pause * (1 - early), due))
            self.pause = min(self.pause * 2, PAUSE_MAX)
            try:
                page = await self._gate.scan(ListBacklogs(types=types, tenant=tenant))
                due = min((one.wait_ms / 1000 for one in page.items), default=PAUSE_MAX)
                failing = False
            except OnejobError as error:  # whoever claims will be told; here it is only not known
                if not failing:
                    log.warning("whoever waits for jobs must wait longer: %s", error)
                due, failing = PAUSE_MAX, True
            if due <= 0:
                # A job that was claimed and not started looks like a free one, so the pause goes on growing.
                due = PAUSE_MAX
                self.wake(len(self.waiters))


def _claimable_jobs(reply: AnyReply | Exception) -> Iterator[Job]:
    """The jobs that somebody may claim now, or could from a time on."""
    jobs: tuple[Job | None, ...] = ()
    if isinstance(reply, (Created, KeySettled, Released, Finished, Resolved)):
        jobs = (reply.job,)
    elif isinstance(reply, SequenceCommitted):
        jobs = reply.jobs
    return (job for job in jobs if job is not None and job.state in CLAIMABLE_STATES and not job.lease_until)
