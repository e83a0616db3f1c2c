"""Wake-ups for callers that wait for claimable jobs, and the limit on how many callers may wait.

A job that this process commits wakes a waiting caller at once. Jobs that other processes commit are found by polling:
all callers that wait for the same types (and tenant) share one poll, from every 20 ms doubling to every second, earlier
when a scheduled job becomes due. The poll also ends expired leases, which makes jobs ready. No caller waiting means no poll.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress

from onejob.backoff import Backoff
from onejob.core.facts import Job
from onejob.core.replies import AnyReply, Created, Finished, KeySettled, Released, Resolved, SequenceCommitted
from onejob.core.states import CLAIMABLE_STATES
from onejob.engine import ListBacklogs
from onejob.engines.gate import Gate
from onejob.errors import OnejobError
from onejob.ids import Ids

from .maintenance import LeaseExpiry

PAUSE_FIRST = 0.02
PAUSE_MAX = 1.0
JITTER = 0.25
TOPICS_MAX = 1000
WAITERS_MAX = 1000

log = logging.getLogger("onejob")

Topic = tuple[tuple[str, ...], str | None]  # types, and the tenant; None: of any tenant


class WakeupHub:
    def __init__(self, gate: Gate, ids: Ids, leases: LeaseExpiry) -> None:
        self._gate = gate
        self._ids = ids
        self._leases = leases
        self._topics: OrderedDict[Topic, _TopicState] = OrderedDict()
        self._listens_to_commits = False  # until the first subscriber: a process without workers has none
        self.closed = False

    def subscribe(self, types: tuple[str, ...], tenant: str | None) -> "Listener":
        """Listen for claimable jobs. A caller that subscribes before it tries to claim misses none."""
        if not self._listens_to_commits:
            self._listens_to_commits = True
            self._gate.add_commit_listener(self._on_commit)
        return Listener(self, self._topic_state((types, tenant)))

    def on_claimed(self, types: tuple[str, ...], tenant: str | None) -> None:
        """Poll often again: after one job the next may come soon."""
        self._topic_state((types, tenant)).backoff.reset()

    def _on_commit(self, replies: Sequence[AnyReply | Exception]) -> None:
        """Wake one listener for each job that has become claimable."""
        if not any(state.waiters for state in self._topics.values()):
            return
        for job in (job for reply in replies for job in _claimable_jobs(reply)):
            for (types, tenant), state in self._topics.items():
                if state.waiters and job.type in types and tenant in (None, job.tenant):
                    state.wake(1)
                    break

    def close(self) -> None:
        """Wake all listeners; from now on none waits."""
        self.closed = True
        for state in self._topics.values():
            state.wake(len(state.waiters))

    def _topic_state(self, topic: Topic) -> "_TopicState":
        state = self._topics.get(topic)
        if state is None:
            state = self._topics[topic] = _TopicState(topic, self._gate, self._ids, self._leases)
            idle = [key for key, known in self._topics.items() if known is not state and not known.waiters]
            for key in idle[: max(len(self._topics) - TOPICS_MAX, 0)]:
                del self._topics[key]
        return state


class Listener:
    """A caller that tries to claim, and waits if there was nothing to claim."""

    def __init__(self, hub: WakeupHub, topic_state: "_TopicState") -> None:
        self._hub = hub
        self._topic_state = topic_state
        self._signal: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._topic_state.waiters[self._signal] = None
        self._has_waited = False

    async def wait(self, seconds: float) -> None:
        """Return when there may be something to claim, or when the time is up."""
        self._has_waited = True
        state = self._topic_state
        if self._hub.closed or self._signal.done():
            return
        state.waiting_count += 1
        if state.poll_task is None:
            state.poll_task = asyncio.get_running_loop().create_task(state.poll())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._signal
        finally:
            state.waiting_count -= 1
            if not state.waiting_count and state.poll_task is not None:
                state.poll_task.cancel()
                state.poll_task = None

    def close(self) -> None:
        self._topic_state.waiters.pop(self._signal, None)
        if self._signal.done() and not self._signal.cancelled() and not self._has_waited:
            self._topic_state.wake(1)  # pass on a wake-up that this listener did not use


class _TopicState:
    """The listeners of one topic, and the poll that they share."""

    def __init__(self, topic: Topic, gate: Gate, ids: Ids, leases: LeaseExpiry) -> None:
        self._topic = topic
        self._gate = gate
        self._leases = leases
        self.backoff = Backoff(PAUSE_FIRST, PAUSE_MAX, jitter=JITTER, random=ids.fraction)
        self.waiters: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self.waiting_count = 0  # those in `wait`; the other listeners are claiming
        self.poll_task: asyncio.Task[None] | None = None

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
            await asyncio.sleep(min(next(self.backoff), due))
            try:
                await self._leases.end_expired()
                page = await self._gate.scan(ListBacklogs(types=types, tenant=tenant))
                due = min((backlog.wait_ms / 1000 for backlog in page.items), default=PAUSE_MAX)
                failing = False
            except OnejobError as error:  # the claim itself will raise it; the poll only goes on
                if not failing:
                    log.warning("job polling failed, will retry: %s", error)
                due, failing = PAUSE_MAX, True
            if due <= 0:
                # A job that is claimed and not yet started is listed as ready too, so the pause goes on growing.
                due = PAUSE_MAX
                self.wake(len(self.waiters))


def _claimable_jobs(reply: AnyReply | Exception) -> Iterator[Job]:
    """The jobs of a reply that can be claimed, now or once they are due."""
    jobs: tuple[Job | None, ...] = ()
    if isinstance(reply, (Created, KeySettled, Released, Finished, Resolved)):
        jobs = (reply.job,)
    elif isinstance(reply, SequenceCommitted):
        jobs = reply.jobs
    return (job for job in jobs if job is not None and job.state in CLAIMABLE_STATES and not job.lease_until)


class TooManyWaiters(OnejobError):
    """The limit on waiting callers is reached; a retry may succeed."""

    retryable = True


class Waiters:
    """The callers of this process that wait in a long poll, limited in number and released at shutdown."""

    def __init__(self, *, waiters_max: int = WAITERS_MAX) -> None:
        self._waiters_max = waiters_max
        self._tenants: Counter[str] = Counter()
        self._shutdown = asyncio.Event()

    @property
    def count(self) -> int:
        return self._tenants.total()

    @property
    def is_shutting_down(self) -> bool:
        return self._shutdown.is_set()

    def release(self) -> None:
        """Let every caller answer now: the server is shutting down."""
        self._shutdown.set()

    async def wait_for_shutdown(self) -> None:
        await self._shutdown.wait()

    def admit(self, tenant: str) -> AbstractContextManager[None]:
        """Count a waiting caller while it is inside; TooManyWaiters if the limit is reached."""
        refusal = TooManyWaiters("too many callers are waiting; try again later, or ask without waiting")
        return admit_caller(self._tenants, tenant, limit=self._waiters_max, refusal=refusal)


@contextmanager
def admit_caller(tenants: Counter[str], tenant: str, *, limit: int, refusal: OnejobError) -> Iterator[None]:
    """Count a caller of a tenant while it is inside. Raises at the limit, or when one tenant would exceed half of it."""
    own_count = tenants[tenant] + 1
    if tenants.total() >= limit or own_count * 2 > limit + 1:
        raise refusal
    tenants[tenant] = own_count
    try:
        yield
    finally:
        tenants[tenant] -= 1
        if not tenants[tenant]:
            del tenants[tenant]
